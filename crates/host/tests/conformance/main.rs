//! Interlock against a corpus of cases whose expected answers come from outside this project.
//!
//! `INTERLOCK_CORPUS` names the directory of the corpus. Each file has an adapter that asks the
//! real code the question of each row; [`deviations`] says where Interlock answers otherwise on
//! purpose. Rules go by the form of a case, never by its id: the corpus may grow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod allow_always;
mod allowlist;
mod argpattern;
mod binder;
mod comparison;
mod deviations;
mod display;
mod environment;
mod forms;
mod harness;
mod inline_eval;
mod levels;
mod parse;
mod resolution;
mod safebins;
mod tally;
mod world;
mod wrappers;

use std::path::{Path, PathBuf};

use comparison::{Answer, Row};
use tally::Tally;

type Adapter = fn(Row<'_>) -> Answer;

const FILES: &[(&str, Adapter)] = &[
    ("allowlist", allowlist::ask),
    ("wrappers", wrappers::ask),
    ("safebins", safebins::ask),
    ("env", environment::ask),
    ("inline-eval", inline_eval::ask),
    ("argpattern", argpattern::ask),
    ("allow-always", allow_always::ask),
    ("binder", binder::ask),
    ("display", display::ask),
];

#[test]
fn interlock_agrees_with_the_corpus_or_says_why_not() {
    let Some(folder) = std::env::var_os("INTERLOCK_CORPUS").map(PathBuf::from) else {
        println!("skipped: INTERLOCK_CORPUS is not set");
        return;
    };
    let mut total = Tally::new("total");
    let mut failures = Vec::new();
    for (file, adapter) in FILES {
        let Some(text) = read(&folder, file) else {
            println!("{file}: not in this corpus");
            continue;
        };
        let mut tally = Tally::new(file);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            tally.row(line, *adapter);
        }
        println!("{tally}");
        failures.extend(tally.failures());
        total.add(tally);
    }
    assert!(!total.is_empty(), "there is no corpus in {folder:?}");
    println!("{}", total.line());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// From the directory itself or from its folder `public`.
fn read(folder: &Path, file: &str) -> Option<String> {
    let name = format!("{file}.jsonl");
    let places = [folder.join(&name), folder.join("public").join(&name)];
    places
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
}
