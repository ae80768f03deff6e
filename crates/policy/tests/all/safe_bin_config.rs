//! Safe bins as the config describes them: custom profiles, trusted directories, the view for audits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use interlock_policy::safe_bin::{
    DEFAULT_SAFE_BINS, ProfileProblemKind, Profiles, SafeBinProfile, SafeBinRefusal, SafeBinView,
    check, is_interpreter_like,
};
use interlock_programs::{in_trusted_dir, trusted_dirs};

fn owned<W: AsRef<str>>(words: &[W]) -> Vec<String> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

fn judge_with<W: AsRef<str>>(profiles: &Profiles, words: &[W]) -> Result<(), SafeBinRefusal> {
    let literal = vec![true; words.len()];
    check(words[0].as_ref(), &owned(words), &literal, profiles)
}

/// One command per line, words parted by blanks.
fn commands(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| !words.is_empty())
        .collect()
}

fn custom(name: &str, json: &str) -> Profiles {
    let profile: SafeBinProfile = serde_json::from_str(json).unwrap();
    Profiles::with_custom(&BTreeMap::from([(name.to_owned(), profile)]))
}

#[test]
fn a_custom_profile_allows_exactly_what_it_lists() {
    let profiles = custom(
        "myfilter",
        r#"{"minPositional": 0, "maxPositional": 1, "allowedValueFlags": ["--limit", "-l", "-field"],
            "allowedFlags": ["-q", "--quiet"], "deniedFlags": ["-f", "--file", "-exec"]}"#,
    );
    for words in commands(
        "
        myfilter
        myfilter hello
        myfilter -q --limit 5 hello
        myfilter -ql5
        myfilter -field name
        myfilter -field=name
        myfilter --quiet -
        myfilter -- -x
        ",
    ) {
        assert_eq!(judge_with(&profiles, &words), Ok(()), "{words:?}");
    }
    for words in commands(
        "
        myfilter a b
        myfilter ./hello
        myfilter dir/hello
        myfilter ~
        myfilter .env
        myfilter @args
        myfilter C:hello
        myfilter *.txt
        myfilter --limit /etc/passwd
        myfilter --limit=/etc/passwd
        myfilter --limit -q
        myfilter -f
        myfilter -qf
        myfilter --fil=x
        myfilter -exec
        myfilter -exec:x
        myfilter -x
        myfilter --verbose
        myfilter hello -q
        ",
    ) {
        assert!(judge_with(&profiles, &words).is_err(), "{words:?}");
    }
}

#[test]
fn an_empty_custom_profile_allows_the_bare_command_only() {
    let profiles = custom("myfilter", "{}");
    assert_eq!(judge_with(&profiles, &["myfilter"]), Ok(()));
    assert!(judge_with(&profiles, &["myfilter", "word"]).is_err());
    assert!(judge_with(&profiles, &["myfilter", "-x"]).is_err());
}

#[test]
fn a_custom_profile_cannot_lift_what_a_built_in_one_denies() {
    let profiles = custom(
        "sort",
        r#"{"allowedValueFlags": ["-o"], "allowedFlags": ["-r"]}"#,
    );
    assert_eq!(judge_with(&profiles, &["sort", "-r"]), Ok(()));
    assert!(matches!(
        judge_with(&profiles, &["sort", "-o", "out"]),
        Err(SafeBinRefusal::DeniedFlag { .. })
    ));
    assert!(judge_with(&profiles, &["sort", "-n"]).is_err());
}

#[test]
fn a_custom_profile_with_a_mistake_closes_its_bin_and_is_reported() {
    for (name, json) in [
        ("a/b", "{}"),
        ("x", r#"{"allowedFlags": ["q"]}"#),
        ("x", r#"{"deniedFlags": ["--"]}"#),
        ("x", r#"{"allowedValueFlags": ["--a=b"]}"#),
        (
            "x",
            r#"{"allowedFlags": ["-a"], "allowedValueFlags": ["-a"]}"#,
        ),
        ("head", r#"{"minPositional": 2, "maxPositional": 1}"#),
    ] {
        let profiles = custom(name, json);
        assert_eq!(profiles.problems().len(), 1, "{name} {json}");
        assert!(judge_with(&profiles, &[name]).is_err(), "{name} {json}");
    }
    let profiles = custom("head", r#"{"minPositional": 1}"#);
    assert_eq!(
        profiles.problems()[0].kind,
        ProfileProblemKind::Positional { fewest: 1, most: 0 }
    );
    assert!(serde_json::from_str::<SafeBinProfile>(r#"{"maxPositionals": 1}"#).is_err());
}

#[test]
fn trusted_directories_are_explicit_absolute_and_normalised() {
    assert_eq!(trusted_dirs(&[]), ["/bin", "/usr/bin"]);
    let extra = owned(&[
        "/opt//tools/./bin/",
        "relative",
        "",
        "/a/../b",
        "~/bin",
        "/usr/bin/",
    ]);
    assert_eq!(trusted_dirs(&extra), ["/bin", "/opt/tools/bin", "/usr/bin"]);
}

#[test]
fn a_link_outside_cannot_lend_a_safe_name_to_another_program() {
    let dirs = trusted_dirs(&[]);
    for (found, canonical, name, expected) in [
        ("/usr/bin/head", "/usr/bin/head", "head", true),
        ("/bin/head", "/usr/bin/head", "head", true),
        ("/usr/bin/head", "/usr/bin/coreutils", "head", true),
        ("/tmp/x/head", "/usr/bin/head", "head", true),
        ("/tmp/x/head", "/usr/bin/python3", "head", false),
        ("/usr/bin/head", "/opt/evil/head", "head", false),
        ("/tmp/head", "/tmp/head", "head", false),
        ("/usr/bin/sub/head", "/usr/bin/sub/head", "head", false),
        ("/usr/bin/python3", "/usr/bin/python3", "head", false),
        ("usr/bin/head", "/usr/bin/head", "head", false),
        ("/usr/bin/../../tmp/head", "/usr/bin/cut", "head", false),
        ("head", "head", "head", false),
        ("", "", "", false),
        ("/usr/bin/", "/usr/bin/", "", false),
    ] {
        assert_eq!(
            in_trusted_dir(found, canonical, name, &dirs),
            expected,
            "{found} -> {canonical} as {name}"
        );
    }
}

#[test]
fn interpreters_are_recognised_by_name_version_and_path() {
    for name in [
        "python3",
        "python3.12",
        "ruby3.2",
        "node20",
        "node-20",
        "php8.3",
        "perl5.36.0",
        "bash",
        "/opt/homebrew/bin/gawk",
        "Python.exe",
        "lua5.4",
    ] {
        assert!(is_interpreter_like(name), "{name}");
    }
    for name in ["jq", "myfilter", "head", "nodejsx", "pythonista", "", "3.2"] {
        assert!(!is_interpreter_like(name), "{name}");
    }
}

#[test]
fn the_view_tells_what_a_config_amounts_to() {
    let built_in = Profiles::built_in();
    let view = SafeBinView::new(None, &[], &built_in);
    assert_eq!(view.safe_bins, DEFAULT_SAFE_BINS);
    assert!(view.unprofiled.is_empty() && view.always_refused.is_empty());

    let names = owned(&["jq", "curl", " python3 ", "curl", "", "head"]);
    let view = SafeBinView::new(Some(&names), &owned(&["/opt/bin"]), &built_in);
    assert_eq!(view.safe_bins, ["jq", "curl", "python3", "head"]);
    assert_eq!(view.unprofiled, ["curl", "python3"]);
    assert_eq!(
        view.unprofiled_interpreters().collect::<Vec<_>>(),
        ["python3"]
    );
    assert_eq!(view.always_refused[0].0, "jq");
    assert_eq!(view.trusted_dirs, ["/bin", "/opt/bin", "/usr/bin"]);

    let profiled = custom("python3", "{}");
    let view = SafeBinView::new(Some(&names), &[], &profiled);
    assert_eq!(view.unprofiled, ["curl"]);
    assert_eq!(view.interpreter_like, ["python3"]);
    assert!(
        SafeBinView::new(Some(&[]), &[], &built_in)
            .safe_bins
            .is_empty()
    );
}
