//! The strict lexer must be useful: what agents type every day is plain.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use interlock_command::lex;

const EVERYDAY: &str = include_str!("../everyday.txt");

fn commands() -> Vec<&'static str> {
    EVERYDAY
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn at_least_nine_of_ten_everyday_commands_are_plain() {
    let commands = commands();
    let refused: Vec<_> = commands
        .iter()
        .filter_map(|command| lex(command).err().map(|odd| (command, odd)))
        .collect();
    let plain = commands.len() - refused.len();
    for (command, odd) in &refused {
        println!("not plain, {}: {command}", odd.reason.code());
    }
    println!("everyday: {plain} of {} are plain", commands.len());
    assert!(
        plain * 10 >= commands.len() * 9,
        "only {plain} of {} everyday commands are plain",
        commands.len()
    );
}

#[test]
fn the_list_is_long_and_has_no_duplicates() {
    let commands = commands();
    assert!(commands.len() >= 320, "only {} commands", commands.len());
    let mut seen = BTreeMap::new();
    for command in commands {
        let skeleton = skeleton(command);
        if let Some(earlier) = seen.insert(skeleton, command) {
            panic!("{command:?} differs from {earlier:?} only by names");
        }
    }
}

/// A command without its digits and without the file and branch names at the end of words:
/// what is left says which kind of command it is.
fn skeleton(command: &str) -> String {
    command
        .split_whitespace()
        .map(|word| {
            let word = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            let is_path = word.contains('/') && !word.contains("://");
            if is_path { "PATH" } else { word }
        })
        .collect::<Vec<_>>()
        .join(" ")
}
