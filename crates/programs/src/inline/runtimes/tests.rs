use std::process::{Command, Stdio};

use super::table::{Operand, RUNTIMES};
use super::*;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn path_of(argv: &[&str]) -> Option<String> {
    match interpreter_code(&words(argv)) {
        Some(InterpreterCode::File { path, .. }) => Some(path),
        _ => None,
    }
}

/// The row's way to name a file, behind some options.
fn call<'a>(name: &'a str, row: &Runtime, options: &[&'a str]) -> Vec<&'a str> {
    let mut argv = vec![name];
    match (row.operand, row.file_options.first()) {
        (Operand::BehindRun { .. }, _) => argv.push("run"),
        (Operand::None, Some(option)) => argv.push(option),
        _ => {}
    }
    if row.operand == Operand::None {
        argv.push("./file");
        argv.extend(options);
    } else {
        argv.extend(options);
        argv.push("./file");
    }
    argv
}

#[test]
fn options_that_are_harmless_leave_the_file_where_it_stands() {
    for row in RUNTIMES {
        for name in row.names {
            assert_eq!(
                path_of(&call(name, row, &[])).as_deref(),
                Some("./file"),
                "{name}"
            );
            for option in row.harmless {
                let option = option.trim_end_matches('*');
                let argv = call(name, row, &[option]);
                assert_eq!(path_of(&argv).as_deref(), Some("./file"), "{argv:?}");
            }
            for option in row.with_value {
                let argv = call(name, row, &[option, "value"]);
                assert_eq!(path_of(&argv).as_deref(), Some("./file"), "{argv:?}");
            }
            let argv = call(name, row, &["--no-such-option-here"]);
            assert!(
                matches!(
                    interpreter_code(&words(&argv)),
                    Some(InterpreterCode::Elsewhere { .. })
                ),
                "{argv:?}"
            );
        }
    }
}

#[test]
fn no_interpreter_stands_in_two_rows() {
    let mut names: Vec<_> = RUNTIMES.iter().flat_map(|row| row.names).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// If an interpreter took the bound file for the value of an option, the next word would be its
/// program: code that no check has seen. The test asks the real interpreters that are installed.
#[test]
fn no_known_option_makes_a_real_interpreter_run_the_word_behind_the_file() {
    let marks = [
        ("python3", "open('other-ran', 'w')"),
        ("node", "require('fs').writeFileSync('other-ran', '')"),
        ("perl", "open(my $f, '>', 'other-ran');"),
        ("ruby", "File.write('other-ran', '')"),
        ("php", "<?php touch('other-ran');"),
        ("lua", "io.open('other-ran', 'w')"),
    ];
    for (name, mark) in marks {
        let asked = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if asked.is_err() {
            println!("skipped: no {name} here");
            continue;
        }
        let row = find(name).unwrap();
        let alone = row.harmless.iter().map(|option| vec![*option]);
        let valued = row.with_value.iter().map(|option| vec![*option, "strict"]);
        for options in alone.chain(valued) {
            let folder = tempfile::tempdir().unwrap();
            let empty = if name == "php" { "<?php" } else { "" };
            std::fs::write(folder.path().join("file"), empty).unwrap();
            std::fs::write(folder.path().join("other"), mark).unwrap();
            let output = Command::new(name)
                .args(&options)
                .args(["./file", "./other"])
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let ran = folder.path().join("other-ran").exists();
            assert!(
                !ran,
                "{name} {options:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}
