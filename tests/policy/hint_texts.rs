//! Every command of this program that stands in a text can be pasted: in errors, remedies and findings, in
//! `--help`, and in the documentation.
//!
//! The texts are found in the sources, so a new remedy is tested the moment it is written. A command that the
//! program does not know fails [`every_written_command_is_known`]. A command that tells where to look or what to
//! set is also run, on a fresh machine, by `trials`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod commands;
mod literals;
mod put_together;
mod trials;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use commands::{CommandForm, WrittenCommand, commands_in_page, commands_in_text, shell_words};
use literals::string_literals;
use put_together::{filled, table_rows};
use testkit::Machine;
use trials::is_known_key;

fn repository() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// Files beneath a directory of the repository that end so.
fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let mut waiting = vec![repository().join(directory)];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    let path = path.strip_prefix(repository()).unwrap();
    path.display().to_string()
}

/// Commands in the string literals of every crate, tests left out.
fn commands_of_sources() -> Vec<WrittenCommand> {
    let mut found = Vec::new();
    for path in files("crates", ".rs") {
        let name = shown(&path);
        let is_source = name.split('/').nth(2) == Some("src");
        if !is_source || name.contains("/tests/") || name.ends_with("/tests.rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let tests = source.find("#[cfg(test)]\nmod tests {");
        let source = &source[..tests.unwrap_or(source.len())];
        for literal in string_literals(source) {
            let place = format!("{name}:{}", literal.line);
            found.extend(commands_in_text(&literal.text, &place));
        }
    }
    found
}

/// Commands in what `--help` shows of every command and argument.
fn commands_of_help() -> Vec<WrittenCommand> {
    let mut found = Vec::new();
    let mut waiting = vec![("interlock".to_owned(), interlock::reference::command_line())];
    while let Some((name, command)) = waiting.pop() {
        let place = format!("{name} --help");
        let of_command = [
            command.get_about(),
            command.get_long_about(),
            command.get_before_help(),
            command.get_after_help(),
            command.get_after_long_help(),
        ];
        let of_arguments = command
            .get_arguments()
            .flat_map(|argument| [argument.get_help(), argument.get_long_help()]);
        for text in of_command.into_iter().chain(of_arguments).flatten() {
            found.extend(commands_in_text(&text.to_string(), &place));
        }
        for inner in command.get_subcommands() {
            waiting.push((format!("{name} {}", inner.get_name()), inner.clone()));
        }
    }
    found
}

/// Commands in the documentation. The pages of the reference are made from `--help`, and the changelog tells
/// of programs as they were.
fn commands_of_documentation() -> Vec<WrittenCommand> {
    let mut pages: Vec<PathBuf> = ["README.md", "SECURITY.md", "SPECIFICATION.md"]
        .iter()
        .map(|name| repository().join(name))
        .collect();
    pages.extend(files("docs", ".md"));
    let mut found = Vec::new();
    for path in pages {
        let name = shown(&path);
        if !name.starts_with("docs/reference/") {
            found.extend(commands_in_page(&fs::read_to_string(&path).unwrap(), &name));
        }
    }
    found
}

/// Why the parser of the program does not take the command.
fn refusal(command: &str, form: CommandForm) -> Option<String> {
    let Some(words) = shell_words(command) else {
        return Some("has an open quote".to_owned());
    };
    let error = interlock::reference::command_line()
        .try_get_matches_from(words)
        .err()?;
    let is_named_only = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::InvalidValue
    ) && (error.kind() != ErrorKind::InvalidValue || has_no_value(&error));
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        _ if is_named_only && form == CommandForm::Named => None,
        _ => {
            let text = error.to_string();
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
    }
}

/// A flag or argument that is named without its value, or with a word in capital letters in its place.
fn has_no_value(error: &clap::Error) -> bool {
    let value = error.get(ContextKind::InvalidValue);
    matches!(value, Some(ContextValue::String(value)) if value.chars().all(|c| c.is_ascii_uppercase()))
}

/// All commands with values in place of placeholders, each with one place where it stands.
fn all_commands() -> BTreeMap<(String, bool), String> {
    let mut used = BTreeSet::new();
    let mut problems = Vec::new();
    let mut found = BTreeMap::new();
    let written = commands_of_sources()
        .into_iter()
        .chain(commands_of_help())
        .chain(commands_of_documentation());
    for one in written {
        match filled(&one, &mut used) {
            Ok(commands) => {
                for command in commands {
                    let key = (command, one.form == CommandForm::Whole);
                    found.entry(key).or_insert_with(|| one.place.clone());
                }
            }
            Err(reason) => problems.push(format!("{}: `{}` {reason}", one.place, one.text)),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let unused: Vec<&str> = table_rows().filter(|row| !used.contains(row)).collect();
    assert_eq!(unused, Vec::<&str>::new(), "no text has these any more");
    found
}

#[test]
fn every_written_command_is_known() {
    let all = all_commands();
    assert!(all.len() > 200, "only {} commands were found", all.len());
    let mut problems = Vec::new();
    for ((command, is_whole), place) in &all {
        let form = if *is_whole {
            CommandForm::Whole
        } else {
            CommandForm::Named
        };
        if let Some(reason) = refusal(command, form) {
            problems.push(format!("{place}: `{command}`: {reason}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The test sees what it is for: a command and a flag that do not exist, and a placeholder that it does not know.
#[test]
fn a_wrong_hint_is_seen() {
    let source = r##"
        // interlock of-a-comment
        const QUOTE: char = '"'; fn life<'a>(text: &'a str) {}
        let one = "look at it: interlock no-such-command";
        let two = format!("set it:\n  interlock config set {} on; then \"go\"", key);
        let raw = r#"in ticks: `interlock exec --no-such-flag "x"`, or so"#;
        let long = "first \
                    interlock status";
        let bytes = b"interlock digest";
    "##;
    let literals = string_literals(source);
    let found: Vec<WrittenCommand> = literals
        .iter()
        .flat_map(|literal| commands_in_text(&literal.text, &format!("x:{}", literal.line)))
        .collect();
    let texts: Vec<&str> = found.iter().map(|command| command.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "interlock no-such-command",
            "interlock config set {} on",
            "interlock exec --no-such-flag \"x\"",
            "interlock status",
        ]
    );
    assert_eq!(found[0].place, "x:4");
    assert!(refusal(texts[0], CommandForm::Named).is_some());
    assert!(refusal(texts[2], CommandForm::Named).is_some());
    assert_eq!(refusal(texts[3], CommandForm::Whole), None);
    assert!(filled(&found[1], &mut BTreeSet::new()).is_err());
    let machine = Machine::new();
    assert!(is_known_key(&machine, "tools.exec.node"));
    assert!(!is_known_key(&machine, "tools.exec.noSuchKey"));
    // What a sentence names may lack its arguments, what is to be pasted may not.
    assert_eq!(refusal("interlock exec", CommandForm::Named), None);
    assert!(refusal("interlock exec", CommandForm::Whole).is_some());
    assert_eq!(
        shell_words("a 'b c' \"d\\\"e\" f\\ g"),
        Some(vec![
            "a".to_owned(),
            "b c".to_owned(),
            "d\"e".to_owned(),
            "f g".to_owned(),
        ])
    );
    let page = "Text `interlock no-such` and\n```\ncargo run -p interlock --x\nA=1 interlock status # note\n```\n";
    let texts: Vec<String> = commands_in_page(page, "page")
        .into_iter()
        .map(|command| command.text)
        .collect();
    assert_eq!(texts, ["interlock no-such", "interlock status"]);
}
