//! What a run may get in its environment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use interlock_policy::env::{
    CLASSES, EnvRefusal, EnvScope, EnvSource, OverrideAction, check_assignments, check_override,
    check_overrides, classify, for_sandbox, for_shell_wrapper, host_exec, inherited, scope,
};
use proptest::prelude::*;
use serde_json::Value;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn listed_keys() -> Vec<(&'static str, EnvScope)> {
    CLASSES
        .iter()
        .flat_map(|class| {
            [
                (EnvScope::Everywhere, class.everywhere),
                (EnvScope::Override, class.overrides),
                (EnvScope::OverrideInheritable, class.inheritable),
            ]
        })
        .flat_map(|(scope, keys)| keys.iter().map(move |key| (*key, scope)))
        .collect()
}

#[test]
fn every_key_is_listed_once_upper_case_and_in_a_class_with_a_reason() {
    let keys = listed_keys();
    let names: BTreeSet<&str> = keys.iter().map(|(key, _)| *key).collect();
    assert_eq!(names.len(), keys.len(), "a key is listed twice");
    for (key, expected) in keys {
        assert_eq!(key, key.to_ascii_uppercase());
        assert_eq!(scope(key), Some(expected), "{key}");
    }
    for class in CLASSES {
        assert!(!class.name.is_empty() && !class.reason.is_empty());
    }
}

/// Classes of our own, on top of the reference's lists.
const OURS: [&str; 4] = [
    "options of a tool",
    "program behind a tool",
    "code search path",
    "trace or profile file",
];

#[test]
fn the_table_is_complete() {
    let of_reference = |key: &str| {
        let class = classify(key).unwrap();
        !OURS.contains(&class.name)
    };
    let count = |wanted| {
        listed_keys()
            .iter()
            .filter(|(key, scope)| *scope == wanted && of_reference(key))
            .count()
    };
    assert_eq!(count(EnvScope::Everywhere), 110);
    assert_eq!(count(EnvScope::Override), 99);
    assert_eq!(count(EnvScope::OverrideInheritable), 42 + 1, "and PATH");
}

#[test]
fn variables_that_start_programs_behind_a_tool_are_refused() {
    for key in [
        "RIPGREP_CONFIG_PATH",
        "MAKEFILES",
        "TAR_OPTIONS",
        "GOCACHEPROG",
        "GIT_TRACE2",
        "RSYNC_RSH",
    ] {
        assert!(check_override(key, "x").is_err(), "{key}");
        assert_eq!(scope(key), Some(EnvScope::OverrideInheritable), "{key}");
    }
    for key in [
        "RUST_LOG",
        "CARGO_TERM_COLOR",
        "CI",
        "DEBUG",
        "TERM",
        "LC_ALL",
        "RUST_BACKTRACE",
        "PORT",
    ] {
        assert!(check_override(key, "x").is_ok(), "{key}");
    }
}

#[test]
fn no_listed_key_can_be_set_by_a_caller_in_any_case() {
    for (key, _) in listed_keys() {
        for spelling in [key.to_owned(), key.to_ascii_lowercase()] {
            assert!(
                matches!(check_override(&spelling, "x"), Err(EnvRefusal::Blocked(_))),
                "{spelling}"
            );
        }
    }
}

#[test]
fn prefixes_and_patterns_are_blocked() {
    for key in [
        "LD_PRELOAD",
        "LD_AUDIT",
        "ld_library_path",
        "DYLD_INSERT_LIBRARIES",
        "BASH_FUNC_ls",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_0",
        "NPM_CONFIG_REGISTRY",
        "npm_config_script_shell",
        "CARGO_REGISTRIES_X_INDEX",
        "TF_VAR_region",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
        "CARGO_TARGET_AARCH64_APPLE_DARWIN_RUNNER",
    ] {
        assert!(
            matches!(check_override(key, "x"), Err(EnvRefusal::Blocked(_))),
            "{key}"
        );
    }
}

#[test]
fn everyday_overrides_are_kept() {
    for (key, value) in [
        ("TERM", "xterm-256color"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
        ("CI", "1"),
        ("NODE_ENV", "test"),
        ("RUST_LOG", "debug"),
        ("RUST_BACKTRACE", "1"),
        ("CARGO_TARGET_DIR", "/tmp/target"),
        ("CARGO_TARGET_LINKER", "x"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("PYTHONUNBUFFERED", "1"),
        ("FOO", "a=b $HOME `id`"),
        ("EMPTY", ""),
        ("ProgramFiles(x86)", "C:\\Program Files (x86)"),
    ] {
        assert_eq!(
            check_override(key, value),
            Ok(OverrideAction::Keep),
            "{key}"
        );
    }
}

#[test]
fn a_pager_may_only_be_turned_off() {
    for key in ["PAGER", "GIT_PAGER", "pager"] {
        for value in ["", "cat"] {
            assert_eq!(
                check_override(key, value),
                Ok(OverrideAction::Replace(String::new()))
            );
        }
        for value in ["less", "cat ", "cat;id", "/bin/cat", "sh -c id"] {
            assert!(check_override(key, value).is_err(), "{key}={value}");
        }
    }
    assert!(check_override("MANPAGER", "cat").is_err());
    assert!(check_override("EDITOR", "cat").is_err());
}

#[test]
fn names_that_are_not_portable_are_invalid() {
    for key in [
        "",
        "BAD-KEY",
        "1ST",
        "A B",
        "A=B",
        "É",
        "X\n",
        " PATH",
        "BASH_FUNC_ls%%",
        "A\0",
    ] {
        assert_eq!(
            check_override(key, "x"),
            Err(EnvRefusal::NotPortable),
            "{key:?}"
        );
    }
    assert_eq!(check_override("FOO", "a\0b"), Err(EnvRefusal::NulInValue));
}

#[test]
fn a_rejection_names_all_keys_in_the_words_of_the_wire_format() {
    let overrides = map(&[
        ("SAFE", "1"),
        ("PATH", "/tmp"),
        ("ld_preload", "/tmp/x.so"),
        ("BAD-KEY", "x"),
        ("1", "x"),
    ]);
    let rejection = check_overrides(&overrides).unwrap_err();
    assert_eq!(
        rejection.to_string(),
        "SYSTEM_RUN_DENIED: environment override rejected (blocked override keys: LD_PRELOAD, PATH; \
         invalid non-portable override keys: 1, BAD-KEY)"
    );
    assert_eq!(
        check_overrides(&map(&[("HOME", "/x")]))
            .unwrap_err()
            .to_string(),
        "SYSTEM_RUN_DENIED: environment override rejected (blocked override keys: HOME)"
    );
    assert_eq!(
        check_overrides(&map(&[("A\x1b[2J", "/x"), ("", "")]))
            .unwrap_err()
            .to_string(),
        "SYSTEM_RUN_DENIED: environment override rejected (invalid non-portable override keys: \
         (empty), A\\u{1b}[2J)"
    );
    let reasons: Vec<_> = rejection
        .reasons()
        .map(|(key, class)| (key, class.name))
        .collect();
    assert_eq!(
        reasons,
        [("LD_PRELOAD", "loader"), ("PATH", "program search path")]
    );
}

#[test]
fn assignments_before_a_command_follow_the_same_rules() {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        check_assignments(&[pair("A", "1"), pair("GIT_PAGER", "cat"), pair("A", "2")]).unwrap(),
        map(&[("A", "2"), ("GIT_PAGER", "")])
    );
    let rejection = check_assignments(&[
        pair("LD_PRELOAD", "/tmp/x.so"),
        pair("A", "1"),
        pair("PATH", "."),
    ])
    .unwrap_err();
    assert_eq!(rejection.source(), EnvSource::Assignment);
    assert_eq!(
        rejection.to_string(),
        "SYSTEM_RUN_DENIED: command env assignment rejected (blocked env assignment keys: \
         LD_PRELOAD, PATH)"
    );
}

#[test]
fn a_later_harmless_assignment_does_not_hide_an_earlier_refused_one() {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert!(check_assignments(&[pair("PAGER", "sh"), pair("PAGER", "cat")]).is_err());
}

#[test]
fn inheritance_drops_hooks_and_secrets_and_keeps_what_the_owner_set_up() {
    let base = map(&[
        ("PATH", "/usr/bin"),
        ("HOME", "/home/u"),
        ("HTTPS_PROXY", "http://proxy"),
        ("https_proxy", "http://proxy"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("GIT_CONFIG_GLOBAL", "/home/u/.gitconfig"),
        ("NOT-PORTABLE", "kept"),
        ("LD_PRELOAD", "/tmp/x.so"),
        ("BASH_FUNC_ls%%", "() { id; }"),
        ("NODE_OPTIONS", "--require x"),
        ("GITHUB_TOKEN", "secret"),
        ("LESSOPEN", "|x"),
    ]);
    let expected = map(&[
        ("PATH", "/usr/bin"),
        ("HOME", "/home/u"),
        ("HTTPS_PROXY", "http://proxy"),
        ("https_proxy", "http://proxy"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("GIT_CONFIG_GLOBAL", "/home/u/.gitconfig"),
        ("NOT-PORTABLE", "kept"),
    ]);
    assert_eq!(inherited(&base), expected);
}

#[test]
fn the_protocol_switches_of_git_lose_their_permissive_part() {
    for (value, expected) in [
        ("https:ext:ssh", "https:ssh"),
        ("ext", ""),
        ("", ""),
        ("file:git:http", "git:http"),
        ("HTTPS", ""),
    ] {
        assert_eq!(
            inherited(&map(&[("GIT_ALLOW_PROTOCOL", value)])),
            map(&[("GIT_ALLOW_PROTOCOL", expected)])
        );
    }
    for (value, expected) in [
        ("0", "0"),
        ("-0", "-0"),
        ("false", "false"),
        ("OFF", "OFF"),
        ("", ""),
        ("1", "0"),
        ("true", "0"),
        ("0k1", "0"),
        ("+", "0"),
        ("nonsense", "0"),
    ] {
        assert_eq!(
            inherited(&map(&[("GIT_PROTOCOL_FROM_USER", value)])),
            map(&[("GIT_PROTOCOL_FROM_USER", expected)]),
            "{value}"
        );
    }
}

#[test]
fn only_terminal_and_locale_reach_shell_text() {
    let overrides = map(&[
        ("TERM", "dumb"),
        ("lang", "C"),
        ("LC_NUMERIC", "C"),
        ("NO_COLOR", "1"),
        ("FOO", "bar"),
        ("LC_X-Y", "bad name"),
        ("LANGUAGE", "de"),
    ]);
    assert_eq!(
        for_shell_wrapper(&overrides),
        map(&[
            ("TERM", "dumb"),
            ("lang", "C"),
            ("LC_NUMERIC", "C"),
            ("NO_COLOR", "1")
        ])
    );
}

#[test]
fn a_host_environment_is_handed_out_only_when_nothing_was_refused() {
    let base = map(&[("PATH", "/bin"), ("LD_PRELOAD", "x"), ("A", "old")]);
    let fine = host_exec(&base, &map(&[("A", "new"), ("PAGER", "cat")]));
    assert_eq!(
        fine.accept().unwrap(),
        map(&[("PATH", "/bin"), ("A", "new"), ("PAGER", "")])
    );
    let bad = host_exec(&base, &map(&[("A", "new"), ("PATH", "/tmp")]));
    assert_eq!(bad.remaining(), &map(&[("PATH", "/bin"), ("A", "new")]));
    assert_eq!(
        bad.accept().unwrap_err().blocked_keys().collect::<Vec<_>>(),
        ["PATH"]
    );
}

#[test]
fn a_sandbox_does_not_see_what_looks_like_a_secret() {
    let env = map(&[
        ("USER", "alice"),
        ("PATH", "/bin"),
        ("TOKENIZER", "fast"),
        ("KEYBOARD", "de"),
        ("SORT_KEY", "name"),
        ("MY_TOKEN", "x"),
        ("DB_PASSWORD", "x"),
        ("openai_api_key", "x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("SECRET", "x"),
        ("DATABASE_URL", "x"),
        ("A", "nul\0"),
    ]);
    let sorted = for_sandbox(&env);
    let allowed: Vec<_> = sorted.allowed.keys().map(String::as_str).collect();
    assert_eq!(
        allowed,
        ["KEYBOARD", "PATH", "SORT_KEY", "TOKENIZER", "USER"]
    );
    assert_eq!(sorted.blocked.len(), env.len() - allowed.len());
}

#[test]
fn a_free_variable_has_no_class() {
    assert_eq!(classify("FOO"), None);
    assert_eq!(
        classify("ld_preload").map(|class| class.name),
        Some("loader")
    );
    assert_eq!(
        check_override("NODE_OPTIONS", "x").unwrap_err().to_string(),
        "blocked (interpreter hook): an interpreter or virtual machine loads modules, runs code or \
         takes options from it"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_caller_sends_nothing_blocked_gets_through(
        overrides in proptest::collection::btree_map("\\PC{0,12}|[A-Z_]{1,10}|LD_[A-Z]{0,4}|path|PAGER", "\\PC{0,6}|cat", 0..6),
    ) {
        if let Ok(accepted) = check_overrides(&overrides) {
            prop_assert_eq!(accepted.len(), overrides.len());
            for (key, value) in &accepted {
                let turned_off = key.to_ascii_uppercase().ends_with("PAGER") && value.is_empty();
                prop_assert!(classify(key).is_none() || turned_off, "{}", key);
            }
        }
        let host = host_exec(&overrides, &overrides);
        for key in host.remaining().keys() {
            prop_assert!(scope(key) != Some(EnvScope::Override));
            prop_assert!(!key.to_ascii_uppercase().starts_with("LD_"));
        }
        let shell = for_shell_wrapper(&overrides);
        prop_assert!(shell.keys().all(|key| classify(key).is_none()));
    }
}

/// Values that are not strings are no part of an environment.
fn strings(value: &Value) -> BTreeMap<String, String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn list(value: &Value) -> BTreeSet<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// `None` when the case is about more than the environment.
fn agrees(case: &Value) -> Option<bool> {
    let key = case["key"].as_str().unwrap_or_default();
    let value = case["value"].as_str().unwrap_or_default();
    let expect = &case["expect"];
    Some(match case["context"].as_str()? {
        "override" => check_override(key, value).is_ok() == (expect == "kept"),
        "inherited" => inherited(&map(&[(key, value)])).contains_key(key) == (expect == "kept"),
        "host-exec" => {
            let host = host_exec(&strings(&case["base"]), &strings(&case["overrides"]));
            let owned = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
            let (blocked, invalid): (BTreeSet<String>, BTreeSet<String>) =
                host.rejection().map_or_else(Default::default, |rejection| {
                    (
                        owned(rejection.blocked_keys().collect()),
                        owned(rejection.invalid_keys().collect()),
                    )
                });
            *host.remaining() == strings(&expect["env"])
                && blocked == list(&expect["rejectedKeys"])
                && invalid == list(&expect["invalidKeys"])
        }
        "shell-wrapper" => {
            for_shell_wrapper(&strings(&case["overrides"])) == strings(&expect["kept"])
        }
        "sandbox" => {
            let sorted = for_sandbox(&strings(&case["env"]));
            sorted.allowed == strings(&expect["allowed"])
                && sorted.blocked == list(&expect["blocked"])
        }
        "host-run" => {
            let rejection = check_overrides(&strings(&case["request"]["env"])).err();
            expect["errorMessage"].as_str() == rejection.map(|it| it.to_string()).as_deref()
        }
        _ => return None,
    })
}

#[test]
fn the_corpus_agrees() {
    let Some(folder) = std::env::var_os("INTERLOCK_CORPUS") else {
        println!("skipped: INTERLOCK_CORPUS is not set");
        return;
    };
    let text = std::fs::read_to_string(std::path::Path::new(&folder).join("env.jsonl")).unwrap();
    let (mut agreed, mut judged) = (0, 0);
    let mut differing = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let Some(same) = agrees(&case) else { continue };
        judged += 1;
        if same {
            agreed += 1;
        } else if case["soft"] != true {
            differing.push(format!("{} {}", case["id"], case["key"]));
        }
    }
    println!("env: {agreed} of {judged} agree");
    assert!(judged > 0);
    assert!(differing.is_empty(), "{differing:#?}");
}
