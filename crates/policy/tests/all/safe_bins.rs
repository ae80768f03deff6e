//! Which commands need no allowlist entry because they only filter their standard input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use interlock_policy::safe_bin::{
    Profiles, SafeBinProfile, SafeBinRefusal, SafeBinView, always_refused, check,
    is_interpreter_like,
};
use interlock_programs::{in_trusted_dir, trusted_dirs};
use serde_json::Value;

fn owned<W: AsRef<str>>(words: &[W]) -> Vec<String> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

fn judge_with<W: AsRef<str>>(profiles: &Profiles, words: &[W]) -> Result<(), SafeBinRefusal> {
    let literal = vec![true; words.len()];
    check(words[0].as_ref(), &owned(words), &literal, profiles)
}

/// One command per line, words parted by blanks; `#` begins a comment.
fn commands(text: &str) -> Vec<Vec<String>> {
    let special = [
        ("<SPACE>", " "),
        ("<TAB>", "\t"),
        ("<NL>", "\n"),
        ("<ESC>", "\u{1b}"),
    ];
    let word = |word: &str| {
        special
            .iter()
            .fold(word.to_owned(), |word, (name, it)| word.replace(name, it))
    };
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split(' ').map(word).collect())
        .collect()
}

fn judge<W: AsRef<str>>(words: &[W]) -> Result<(), SafeBinRefusal> {
    judge_with(&Profiles::built_in(), words)
}

fn custom(name: &str, json: &str) -> Profiles {
    let profile: SafeBinProfile = serde_json::from_str(json).unwrap();
    Profiles::with_custom(&BTreeMap::from([(name.to_owned(), profile)]))
}

#[test]
fn everyday_filters_are_allowed() {
    for words in commands(
        "
        head
        head -20
        head -n 5
        head -n5
        head -n -5
        head -c 10K
        head -qn5
        head --lines=5
        head --lines 5
        head -
        head -n 1 --
        head -n 1 -- -
        tail -5
        tail -n 5
        tail -n+2
        tail -n +2
        tail -c 1MiB
        tail --bytes=1kB
        cut -d: -f1
        cut -d : -f 1,3
        cut -d/ -f2-
        cut -d / -f -3
        cut -d <SPACE> -f2
        cut -d= -f2
        cut -d - -f1
        cut -d<TAB> -f1
        cut -sd, -f1
        cut -c1-80
        cut --fields=1 --delimiter=, --output-delimiter=/
        tr -d \\n
        tr / _
        tr a-z A-Z
        tr -s <SPACE>
        tr -cd [:alnum:]
        tr [:upper:] [:lower:]
        tr -d *?
        tr - _
        tr -- -_ +/
        tr a -d
        tr ~ .
        wc
        wc -l
        wc -lwc
        wc --lines -
        uniq
        uniq -c
        uniq -cd
        uniq -f1 -w 10
        uniq --group
        uniq --group=both
        sort -rn -k2,2
        sort -k 2n,2 -t :
        sort -t/ -k1.3,1.5b
        sort -u
        sort --numeric-sort --reverse
        sort -S 50% --parallel=2
        sort --check=quiet
        grep -e needle
        grep -ie needle
        grep -c --regexp=a/b
        grep -v -e^#
        grep -3 -n -e x
        grep --color=never -e x
        grep -e-x
        ",
    ) {
        assert_eq!(judge(&words), Ok(()), "{words:?}");
    }
}

#[test]
fn what_could_open_a_file_is_refused() {
    for words in commands(
        "
        head /etc/passwd
        head notes.txt
        head notes
        head -- notes
        head -n 1 .env
        head -5 5
        head +5
        tail +5
        cut -f1 notes
        uniq in
        uniq - out
        uniq - -
        uniq --group notes
        sort --check notes
        grep --color notes
        grep needle
        grep -e x notes
        grep -e /etc/passwd
        grep -e ~/.ssh
        grep -e a*
        grep --regexp=[a-z]
        wc -l notes
        wc -- -l
        sort notes
        # Where operands end the flags, these words would all be files.
        cut - -d /etc/passwd -f1
        head - -n 5
        uniq - --
        ",
    ) {
        assert!(judge(&words).is_err(), "{words:?}");
    }
}

#[test]
fn denied_flags_are_refused_in_every_spelling() {
    for words in commands(
        "
        tail -f
        tail -F
        tail -fn 1
        tail -qf
        tail -n 1 -f
        tail --follow
        tail --follow=name
        tail --fol
        tail --f
        tail --retry
        sort -o out
        sort -oout
        sort -rno out
        sort -Tdir
        sort --output=out
        sort --outp out
        sort --compress-prog=sh
        sort --files0-fro=x
        sort --random-source x
        wc --files0-from=-
        wc --f
        grep -r -e x
        grep -ir -e x
        grep -fpatterns
        grep --file=patterns
        grep -dread -e x
        grep --directories=recurse -e x
        ",
    ) {
        assert!(
            matches!(judge(&words), Err(SafeBinRefusal::DeniedFlag { .. })),
            "{words:?}: {:?}",
            judge(&words)
        );
    }
}

#[test]
fn a_denied_flag_cannot_hide_as_a_value() {
    for words in commands(
        "
        sort -t -o out
        sort -k -o
        tail -n -f
        tail -nf
        grep -e -f
        cut -d -- -f1
        head -n --
        ",
    ) {
        assert!(judge(&words).is_err(), "{words:?}");
    }
}

#[test]
fn only_known_flags_written_in_full_are_accepted() {
    for words in commands(
        "
        head --lin=5
        head --line 5
        head -x
        head -5x
        head -n=5
        head --unknown
        head ---lines
        head --quiet=yes
        head --LINES=5
        cut -5
        tail -5f
        tail ---disable-inotify
        uniq -5
        uniq --group=/etc/passwd
        wc --help
        sort -2
        sort --f=1
        tr -x a
        grep -n5 -e x
        ",
    ) {
        assert!(judge(&words).is_err(), "{words:?}");
    }
    assert!(matches!(
        judge(&["head", "--lin=5"]),
        Err(SafeBinRefusal::AbbreviatedFlag { .. })
    ));
}

#[test]
fn values_must_be_there_and_fit_their_kind() {
    for words in commands(
        "
        head -n
        head --lines
        head --lines=
        head -n five
        head -n /etc/passwd
        head -n 5x
        head -n 5KiBB
        head -n +-5
        head -n 5.
        cut -f a
        cut -f -
        cut -f 1/2
        sort -k a
        sort -k 1,
        sort -k 1.x
        sort -k1,2,3
        sort --key
        grep --binary-files=/dev/zero -e x
        ",
    ) {
        assert!(judge(&words).is_err(), "{words:?}");
    }
}

#[test]
fn marks_of_expansion_and_control_characters_are_refused() {
    for words in commands(
        "
        head -c${IFS}16
        tr $HOME x
        tr a `id`
        cut -d$ -f1
        cut -d<NL> -f1
        tr <ESC> x
        grep -e a<TAB>b
        grep -e $x
        ",
    ) {
        assert!(judge(&words).is_err(), "{words:?}");
    }
}

#[test]
fn tr_needs_one_or_two_sets() {
    assert!(matches!(
        judge(&["tr"]),
        Err(SafeBinRefusal::TooFewOperands { .. })
    ));
    assert!(matches!(
        judge(&["tr", "-d"]),
        Err(SafeBinRefusal::TooFewOperands { .. })
    ));
    assert!(matches!(
        judge(&["tr", "a", "b", "c"]),
        Err(SafeBinRefusal::TooManyOperands { .. })
    ));
}

#[test]
fn every_word_must_be_literal() {
    let profiles = Profiles::built_in();
    let argv = owned(&["tr", "a", "b"]);
    assert_eq!(check("tr", &argv, &[true, true, true], &profiles), Ok(()));
    for literal in [
        &[true, true, false][..],
        &[true, false, true],
        &[false, true, true],
        &[true, true],
        &[],
    ] {
        assert!(matches!(
            check("tr", &argv, literal, &profiles),
            Err(SafeBinRefusal::NotLiteral { .. })
        ));
    }
    assert_eq!(
        check("tr", &[], &[], &profiles),
        Err(SafeBinRefusal::NoCommand)
    );
}

#[test]
fn awk_sed_jq_and_shells_are_refused_whatever_the_profile() {
    for name in [
        "awk",
        "gawk",
        "mawk",
        "nawk",
        "sed",
        "gsed",
        "jq",
        "bash",
        "sh",
        "busybox",
        "/usr/bin/awk",
        "C:\\Tools\\mawk.exe",
        "AWK",
        "bash5.2",
    ] {
        assert!(always_refused(name).is_some(), "{name}");
        let profiles = custom(name, r#"{"maxPositional": 1}"#);
        let refusal = judge_with(&profiles, &[name, "x"]).unwrap_err();
        assert!(refusal.to_string().contains("allowlist"), "{refusal}");
    }
    assert_eq!(always_refused("head"), None);
    assert_eq!(always_refused("used"), None);
}

#[test]
fn a_program_without_a_profile_is_never_allowed() {
    for name in ["cat", "echo", "Head", "/usr/bin/head", ""] {
        assert!(matches!(
            judge(&[name]),
            Err(SafeBinRefusal::NoProfile { .. })
        ));
    }
}

#[test]
fn a_refusal_says_which_word_why_and_what_to_do() {
    let text = |words: &[&str]| judge(words).unwrap_err().to_string();
    assert_eq!(
        text(&["head", "/etc/passwd"]),
        "`/etc/passwd` could be a file: as a safe bin `head` reads only standard input; \
         pipe the file into it or add an allowlist entry"
    );
    assert_eq!(
        text(&["tail", "-fn", "1"]),
        "`-fn` uses the flag `-f`, which `tail` may not have as a safe bin: it keeps running after \
         its input ended; leave it out or add an allowlist entry"
    );
    assert_eq!(
        text(&["head", "-n", "x\u{1b}[2J"]),
        "`x\\u{1b}[2J` contains a control character; write an escape such as `\\n` instead"
    );
    let long = "x".repeat(1000);
    assert!(text(&["head", &long]).len() < 400);
}

fn text_list(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn corpus_check(case: &Value) -> bool {
    let bin = case["bin"].as_str().unwrap();
    let argv = text_list(&case["argv"]);
    let profiles = case
        .get("profile")
        .map_or_else(Profiles::built_in, |profile| {
            custom(bin, &profile.to_string())
        });
    let configured = case.get("safeBins").map(text_list);
    let trusted = case["resolved"].as_str().is_none_or(|found| {
        let canonical = case["realPath"].as_str().unwrap_or(found);
        let dirs = trusted_dirs(&text_list(&case["trustedDirs"]));
        in_trusted_dir(found, canonical, bin, &dirs)
    });
    let named = configured.is_none_or(|names| names.iter().any(|name| name == bin));
    named && trusted && check(bin, &argv, &vec![true; argv.len()], &profiles).is_ok()
}

fn corpus_agrees(case: &Value) -> Option<bool> {
    let expect = &case["expect"];
    let allow = expect == "allow";
    Some(match case["kind"].as_str() {
        None => corpus_check(case) == allow,
        Some("trusted-dirs") => {
            trusted_dirs(&text_list(&case["input"]["extraDirs"])) == text_list(&expect["dirs"])
        }
        Some("trusted-dir") => {
            let path = case["resolved"].as_str()?.replace("${TMP}", "/tmp/t");
            let name = path.rsplit('/').next()?;
            let dirs: Vec<String> = text_list(&case["trustedDirs"])
                .iter()
                .map(|dir| dir.replace("${TMP}", "/tmp/t"))
                .collect();
            in_trusted_dir(&path, &path, name, &trusted_dirs(&dirs)) == allow
        }
        Some("interpreter-like") => {
            Some(is_interpreter_like(case["bin"].as_str()?)) == expect["interpreterLike"].as_bool()
        }
        Some("semantics") => {
            let name = case["bin"].as_str()?;
            let mut argv = vec![name.to_owned()];
            argv.extend(text_list(&case["positional"]));
            let verdict = check(name, &argv, &vec![true; argv.len()], &Profiles::built_in());
            verdict.is_ok() == allow
        }
        Some("runtime-policy") => {
            let local = &case["config"]["local"];
            let names = local.get("safeBins").map(text_list);
            let dirs = text_list(&local["safeBinTrustedDirs"]);
            let view = SafeBinView::new(names.as_deref(), &dirs, &Profiles::built_in());
            let interpreters: Vec<_> = view.unprofiled_interpreters().collect();
            view.safe_bins == text_list(&expect["safeBins"])
                && view.unprofiled == text_list(&expect["unprofiled"])
                && interpreters == text_list(&expect["unprofiledInterpreters"])
                && expect
                    .get("trustedDirs")
                    .is_none_or(|dirs| view.trusted_dirs == text_list(dirs))
        }
        Some(_) => return None,
    })
}

#[test]
fn the_corpus_agrees() {
    let Some(folder) = std::env::var_os("INTERLOCK_CORPUS") else {
        println!("skipped: INTERLOCK_CORPUS is not set");
        return;
    };
    let file = std::path::Path::new(&folder).join("safebins.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let (mut agreed, mut judged) = (0, 0);
    let mut differing = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let Some(same) = corpus_agrees(&case) else {
            continue;
        };
        judged += 1;
        if same {
            agreed += 1;
        } else if case["soft"] != true {
            differing.push(case.to_string());
        }
    }
    println!("safebins: {agreed} of {judged} agree");
    assert!(judged > 0);
    assert!(differing.is_empty(), "{differing:#?}");
}
