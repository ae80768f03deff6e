//! The harmless table, and what an entry may admit beyond it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use interlock_policy::Entry;
use interlock_policy::env::{CLASSES, HARMLESS, check_override, classify, is_harmless};
use proptest::prelude::*;

#[test]
fn every_row_has_a_reason_and_every_name_stands_once() {
    let mut names = BTreeSet::new();
    for row in HARMLESS {
        assert!(!row.reason.is_empty());
        for name in row.names.iter().chain(row.prefixes) {
            assert!(names.insert(*name), "{name} stands twice");
        }
    }
}

#[test]
fn nothing_that_is_blocked_is_harmless_but_a_pager_that_is_turned_off() {
    for class in CLASSES {
        let lists = [class.everywhere, class.overrides, class.inheritable];
        for name in lists.into_iter().flatten() {
            for value in ["", "1", "0", "cat", "true", "x", "test", "UTC", "C", "8080"] {
                let is_pager =
                    matches!(*name, "PAGER" | "GIT_PAGER") && matches!(value, "" | "cat");
                assert_eq!(is_harmless(name, value), is_pager, "{name}={value}");
            }
        }
    }
}

#[test]
fn a_value_is_matched_in_full_and_as_ascii() {
    for (name, value) in [
        ("TZ", "UTC"),
        ("LANG", "en_US.UTF-8"),
        ("TERM", "xterm"),
        ("COLUMNS", "80"),
        ("NO_COLOR", "1"),
        ("CI", "true"),
        ("RUST_BACKTRACE", "full"),
        ("RUST_LOG", "debug"),
        ("NODE_ENV", "test"),
        ("PORT", "8080"),
        ("PAGER", "cat"),
    ] {
        assert!(is_harmless(name, value), "{name}={value}");
        for odd in ["\n", "\0", " ", "\t", "/", ";", "é", "\u{202e}", "$(x)"] {
            for other in [format!("{value}{odd}"), format!("{odd}{value}")] {
                assert!(!is_harmless(name, &other), "{name}={other:?}");
            }
        }
        assert!(!is_harmless(&name.to_lowercase(), value), "{name}");
        assert!(!is_harmless(&format!("{name}X"), value), "{name}");
    }
}

#[test]
fn an_entry_names_portable_variables_that_are_not_blocked() {
    let entry = |item: &str| Entry {
        env: vec![item.to_owned()],
        ..Entry::for_pattern("make")
    };
    for item in [
        "FOO",
        "FOO=",
        "FOO=a*",
        "_x",
        "STAGE=dev",
        "PAGER=cat",
        "RUST_LOG=*",
    ] {
        assert_eq!(entry(item).check(), Ok(()), "{item}");
    }
    for item in [
        "",
        "=",
        "=x",
        "A-B",
        "1A",
        "PATH",
        "path=x",
        "LD_PRELOAD",
        "HOME=/x",
        "GIT_SSH_COMMAND",
        "npm_config_x=1",
        "BASH_FUNC_x",
        "PAGER",
        "PAGER=less",
        "FOO=a\0",
    ] {
        let error = entry(item).check().unwrap_err();
        assert_eq!(error.field(), "env", "{item}: {error}");
    }
}

/// Variables that run code or read elsewhere, by the tool that does.
#[test]
fn variables_that_name_a_config_or_a_helper_are_blocked() {
    for name in [
        "PYTEST_ADDOPTS",
        "TS_NODE_PROJECT",
        "DOTENV_CONFIG_PATH",
        "COMPOSE_FILE",
        "DOCKER_CONFIG",
        "BUNDLE_APP_CONFIG",
        "CARGO_HOST_LINKER",
        "CARGO_REGISTRY_DEFAULT",
        "CCACHE_PREFIX",
        "GCC_EXEC_PREFIX",
        "RSYNC_CONNECT_PROG",
        "RCLONE_CONFIG",
        "BORG_RSH",
        "MAILCAPS",
        "NETRC",
        "KRB5_CONFIG",
        "CLOUDSDK_PYTHON",
        "PERL5SHELL",
        "PS1",
        "CDPATH",
        "TZDIR",
        "RESOLV_HOST_CONF",
        "AR",
        "STRIP",
        "PKG_CONFIG",
        "IRBRC",
        "MATPLOTLIBRC",
        "NODE_COMPILE_CACHE",
        "BUN_OPTIONS",
    ] {
        assert!(classify(name).is_some(), "{name}");
        assert!(check_override(name, "x").is_err(), "{name}");
    }
    // Names that agents set every day and that start nothing by themselves.
    for name in [
        "GIT_TERMINAL_PROMPT",
        "CARGO_TARGET_DIR",
        "CARGO_TERM_COLOR",
        "CARGO_NET_OFFLINE",
        "DEBIAN_FRONTEND",
        "DOCKER_BUILDKIT",
        "GOOS",
        "CGO_ENABLED",
        "PYTHONHASHSEED",
        "TMPDIR",
        "AWS_PROFILE",
        "CCACHE_DISABLE",
        "FOO",
    ] {
        assert!(check_override(name, "x").is_ok(), "{name}");
    }
}

proptest! {
    #[test]
    fn no_value_with_a_slash_or_a_line_break_is_harmless_unless_it_is_a_zone(
        value in ".{0,8}[/\n\r\u{0}].{0,8}",
    ) {
        for row in HARMLESS {
            let prefixed = row.prefixes.iter().map(|prefix| format!("{prefix}ALL"));
            for name in row.names.iter().map(|name| (*name).to_owned()).chain(prefixed) {
                if name == "TZ" {
                    let leads_out = value.starts_with(['/', ':']) || value.contains("..");
                    prop_assert!(!(leads_out && is_harmless(&name, &value)));
                } else {
                    prop_assert!(!is_harmless(&name, &value), "{name}={value:?}");
                }
            }
        }
    }
}
