//! What holds for any arguments, and for the real programs that get them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use interlock_policy::safe_bin::{Profiles, check, is_interpreter_like};
use interlock_programs::{in_trusted_dir, trusted_dirs};
use proptest::prelude::*;

const BINS: [&str; 8] = ["cut", "uniq", "head", "tail", "tr", "wc", "grep", "sort"];

static PROFILES: LazyLock<Profiles> = LazyLock::new(Profiles::built_in);

fn accepted(bin: &str, arguments: &[String]) -> bool {
    let mut argv = vec![bin.to_owned()];
    argv.extend_from_slice(arguments);
    let literal = vec![true; argv.len()];
    check(bin, &argv, &literal, &PROFILES).is_ok()
}

/// Words that option parsers find interesting, mixed with any text.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,8}",
        "--?[a-zA-Z0-9=/-]{0,10}",
        "-[a-zA-Z0-9]{1,4}",
        proptest::sample::select(vec![
            "-",
            "--",
            "-n",
            "5",
            "-f1",
            "-d",
            "-k2,2",
            "--lines",
            "--lines=5",
            "/etc/passwd",
        ])
        .prop_map(str::to_owned),
    ]
}

/// Arguments that are accepted, one program per row; each argument holds all its words.
const GOOD: &[(&str, &[&[&str]])] = &[
    (
        "cut",
        &[
            &["-f1"],
            &["-d", "/"],
            &["-d:"],
            &["-c", "1-3"],
            &["--complement"],
            &["-sz"],
        ],
    ),
    (
        "uniq",
        &[
            &["-c"],
            &["-f", "1"],
            &["-w3"],
            &["--group"],
            &["--group=both"],
            &["-di"],
        ],
    ),
    (
        "head",
        &[
            &["-5"],
            &["-n", "5"],
            &["-c1K"],
            &["--lines", "-3"],
            &["--quiet"],
            &["-vz"],
        ],
    ),
    (
        "tail",
        &[
            &["-5"],
            &["-n", "+5"],
            &["-c1K"],
            &["--lines=3"],
            &["--pid", "1"],
            &["-qz"],
        ],
    ),
    (
        "wc",
        &[
            &["-l"],
            &["-wc"],
            &["--words"],
            &["-L"],
            &["-m"],
            &["--max-line-length"],
        ],
    ),
    (
        "sort",
        &[
            &["-rn"],
            &["-k", "2,2"],
            &["-t/"],
            &["-t", ":"],
            &["-u"],
            &["--check=quiet"],
        ],
    ),
    (
        "grep",
        &[
            &["-e", "x"],
            &["-in"],
            &["--color"],
            &["-A", "1"],
            &["-2"],
            &["--label=x"],
        ],
    ),
];

fn good_arguments() -> impl Strategy<Value = (&'static str, Vec<String>)> {
    proptest::sample::select(GOOD.to_vec()).prop_flat_map(|(bin, choices)| {
        proptest::collection::vec(proptest::sample::select(choices.to_vec()), 0..4).prop_map(
            move |chosen| {
                let words = chosen.concat().into_iter().map(str::to_owned).collect();
                (bin, words)
            },
        )
    })
}

/// Flags that are denied for the program, in several spellings.
const DENIED: &[(&str, &str)] = &[
    ("tail", "-f"),
    ("tail", "-F"),
    ("tail", "-qvzf"),
    ("tail", "--follow"),
    ("tail", "--follow=name"),
    ("tail", "--fol"),
    ("tail", "--retry"),
    ("sort", "-o"),
    ("sort", "-oout"),
    ("sort", "-rno"),
    ("sort", "-T"),
    ("sort", "-Tdir"),
    ("sort", "--output"),
    ("sort", "--output=out"),
    ("sort", "--outp=out"),
    ("sort", "--compress-program=sh"),
    ("sort", "--files0-from=x"),
    ("sort", "--random-source=x"),
    ("wc", "--files0-from=x"),
    ("wc", "--files"),
    ("grep", "-r"),
    ("grep", "-R"),
    ("grep", "-inr"),
    ("grep", "-f"),
    ("grep", "-fx"),
    ("grep", "-d"),
    ("grep", "--recursive"),
    ("grep", "--file=x"),
    ("grep", "--exclude-from=x"),
];

fn denied_flag() -> impl Strategy<Value = (&'static str, String, Vec<String>)> {
    proptest::sample::select(DENIED.to_vec()).prop_flat_map(|(bin, flag)| {
        let choices = GOOD.iter().find(|(name, _)| *name == bin).unwrap().1;
        let good = proptest::sample::select(choices.concat()).prop_map(str::to_owned);
        proptest::collection::vec(prop_oneof![good, word()], 0..4)
            .prop_map(move |before| (bin, flag.to_owned(), before))
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_input_makes_it_panic(
        bin in proptest::sample::select(BINS.to_vec()),
        words in proptest::collection::vec(word(), 0..6),
        literal in proptest::collection::vec(any::<bool>(), 0..7),
    ) {
        let mut argv = vec![bin.to_owned()];
        argv.extend(words);
        let verdict = check(bin, &argv, &literal, &PROFILES);
        prop_assert!(verdict.is_err() || literal.iter().take(argv.len()).all(|it| *it));
        if let Err(refusal) = verdict {
            prop_assert!(!refusal.to_string().contains(char::is_control));
        }
        accepted(bin, &argv[1..]);
        is_interpreter_like(&argv[argv.len() - 1]);
        in_trusted_dir(&argv[0], &argv[argv.len() - 1], bin, &trusted_dirs(&argv));
    }

    #[test]
    fn a_file_operand_turns_an_accepted_command_into_a_refused_one(
        (bin, mut arguments) in good_arguments(),
        end_of_flags in any::<bool>(),
        path in "/?[a-z0-9.+]{1,6}(/[a-z]{1,5}){0,2}",
    ) {
        prop_assert!(accepted(bin, &arguments), "{} {:?}", bin, arguments);
        if end_of_flags {
            arguments.push("--".to_owned());
        }
        arguments.push(path);
        prop_assert!(!accepted(bin, &arguments), "{} {:?}", bin, arguments);
    }

    #[test]
    fn a_denied_flag_is_refused_wherever_it_stands(
        (bin, flag, before) in denied_flag(),
        after in proptest::collection::vec(word(), 0..4),
    ) {
        prop_assume!(!before.iter().any(|word| word == "--"));
        let mut arguments = before;
        arguments.push(flag);
        arguments.extend(after);
        prop_assert!(!accepted(bin, &arguments), "{} {:?}", bin, arguments);
    }
}

/// Every word is also the name of a file that holds this text.
const CANARY: &str = "canary";

const WORDS: &[&str] = &[
    "-",
    "--",
    "-5",
    "5",
    "+5",
    "-n",
    "-n5",
    "-c",
    "-c5",
    "-f",
    "-f1",
    "-d",
    "-d:",
    "-dx",
    "-s",
    "-w",
    "-z",
    "-q",
    "-l",
    "-u",
    "-k1",
    "-t",
    "-t:",
    "-e",
    "-ex",
    "-A",
    "-x",
    "1",
    "1,2",
    ":",
    "x",
    "notes",
    "--group",
    "--group=both",
    "--lines",
    "--lines=5",
    "--check",
    "--color",
    "--label=x",
    "--pid=1",
    "--output-delimiter",
    "--delimiter=x",
    "--complement",
    "--max-count=1",
];

/// All accepted commands of up to three of the words above, run for real in a directory full of
/// files with these names: no file may show up in the output, none may be changed or made. With
/// and without the switch that makes GNU programs stop looking for flags at the first operand.
#[test]
fn the_real_programs_open_no_file_with_accepted_arguments() {
    let folder = tempfile::tempdir().unwrap();
    for word in WORDS {
        std::fs::write(folder.path().join(word), CANARY).unwrap();
    }
    let before = contents(folder.path());
    let words: Vec<String> = WORDS.iter().map(|word| (*word).to_owned()).collect();
    let mut runs = 0;
    for bin in BINS {
        let program = Path::new("/usr/bin").join(bin);
        if !program.exists() {
            continue;
        }
        let mut commands: Vec<Vec<String>> = vec![Vec::new()];
        for first in &words {
            commands.push(vec![first.clone()]);
            for second in &words {
                commands.push(vec![first.clone(), second.clone()]);
                // A third word only where it matters: behind something that may take it.
                for third in ["notes", "x", "5", "-", "-f1"] {
                    commands.push(vec![first.clone(), second.clone(), third.to_owned()]);
                }
            }
        }
        commands.retain(|arguments| accepted(bin, arguments));
        // Longer commands are many and alike: take every seventh.
        let mut position = 0;
        commands.retain(|arguments| {
            position += 1;
            arguments.len() < 3 || position % 7 == 0
        });
        for arguments in commands {
            for strict in [false, true] {
                let mut command = Command::new(&program);
                command
                    .args(&arguments)
                    .current_dir(folder.path())
                    .env_clear();
                if strict {
                    command.env("POSIXLY_CORRECT", "1");
                }
                let output = command.stdin(Stdio::null()).output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(
                    !text.contains(CANARY),
                    "{bin} {arguments:?} strict={strict}: {text}"
                );
                runs += 1;
            }
        }
        assert_eq!(contents(folder.path()), before, "{bin} changed a file");
    }
    assert!(
        runs > 500 || !Path::new("/usr/bin/head").exists(),
        "only {runs} runs"
    );
}

fn contents(folder: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}
