//! Properties over generated patches and trees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write;

use crate::common::{Place, Tree};
use interlock_patch::{Patch, apply, check};
use proptest::prelude::*;

/// Lines that look like parts of a patch more often than chance would have it.
fn patch_line() -> impl Strategy<Value = String> {
    let marker = prop::sample::select(vec![
        "*** Begin Patch",
        "*** End Patch",
        "*** Add File: a",
        "*** Update File: b/c",
        "*** Delete File: d",
        "*** Move to: e",
        "*** End of File",
        "@@",
        "@@ fn main",
        "",
        " ",
        "\r",
        "<<EOF",
        "EOF",
    ]);
    prop_oneof![
        4 => marker.prop_map(str::to_owned),
        6 => ("[ +\\-@*]", "[ -~äß\u{2014}\r\u{a0}]{0,12}").prop_map(|(first, rest)| first + &rest),
        1 => ".{0,20}",
    ]
}

/// What one line of a file becomes.
#[derive(Debug, Clone)]
enum Fate {
    Keep,
    Remove,
    Replace(Vec<String>),
    InsertAfter(Vec<String>),
}

#[derive(Debug, Clone)]
struct File {
    lines: Vec<(String, Fate)>,
    windows: bool,
    final_newline: bool,
    fate: FileFate,
}

#[derive(Debug, Clone, PartialEq)]
enum FileFate {
    Update,
    Move,
    Delete,
    Add,
}

fn text() -> impl Strategy<Value = String> {
    "[a-zäß \u{1f600}]{0,6}"
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        5 => Just(Fate::Keep),
        1 => Just(Fate::Remove),
        1 => prop::collection::vec(text(), 1..3).prop_map(Fate::Replace),
        1 => prop::collection::vec(text(), 1..3).prop_map(Fate::InsertAfter),
    ]
}

fn file() -> impl Strategy<Value = File> {
    let kinds = vec![
        FileFate::Update,
        FileFate::Update,
        FileFate::Move,
        FileFate::Delete,
        FileFate::Add,
    ];
    (
        prop::collection::vec((text(), fate()), 1..30),
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(kinds),
    )
        .prop_map(|(lines, windows, final_newline, fate)| {
            // Numbered, so that every line is found in one place only.
            let lines: Vec<_> = lines
                .into_iter()
                .enumerate()
                .map(|(number, (text, fate))| (format!("{number} {text}|"), fate))
                .collect();
            File {
                // A file without any line end has no kind of them.
                windows: windows && (lines.len() > 1 || final_newline),
                lines,
                final_newline,
                fate,
            }
        })
}

impl File {
    fn join(&self, lines: &[String]) -> Vec<u8> {
        let ending = if self.windows { "\r\n" } else { "\n" };
        let mut text = lines.join(ending);
        if self.final_newline && !lines.is_empty() {
            text.push_str(ending);
        }
        text.into_bytes()
    }

    fn before(&self) -> Vec<u8> {
        self.join(
            &self
                .lines
                .iter()
                .map(|(line, _)| line.clone())
                .collect::<Vec<_>>(),
        )
    }

    /// The model: what the file is afterwards.
    fn after(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for (line, fate) in &self.lines {
            match fate {
                Fate::Keep => lines.push(line.clone()),
                Fate::Remove => {}
                Fate::Replace(new) => lines.extend(new.clone()),
                Fate::InsertAfter(new) => {
                    lines.push(line.clone());
                    lines.extend(new.clone());
                }
            }
        }
        self.join(&lines)
    }

    /// Hunks with one line of context where there is one.
    fn hunks(&self) -> String {
        let mut text = String::new();
        let changed = |number: usize| {
            self.lines
                .get(number)
                .is_some_and(|(_, fate)| !matches!(fate, Fate::Keep))
        };
        for (number, (line, fate)) in self.lines.iter().enumerate() {
            if !changed(number) {
                let before = changed(number + 1);
                let after = number > 0 && changed(number - 1);
                if before && !after {
                    text.push_str("@@\n");
                }
                if before || after {
                    writeln!(text, " {line}").unwrap();
                }
                continue;
            }
            if number == 0 {
                text.push_str("@@\n");
            }
            let (first, new) = match fate {
                Fate::Keep => unreachable!("only changed lines come here"),
                Fate::Remove => ('-', &Vec::new()),
                Fate::Replace(new) => ('-', new),
                Fate::InsertAfter(new) => (' ', new),
            };
            writeln!(text, "{first}{line}").unwrap();
            for line in new {
                writeln!(text, "+{line}").unwrap();
            }
        }
        text
    }
}

/// The tree before, the patch, and the tree after by the model.
fn scenario(files: &[File]) -> (Tree, Patch, Tree) {
    let (mut before, mut after, mut text) = (Tree::new(), Tree::new(), String::new());
    for (number, file) in files.iter().enumerate() {
        let (name, moved) = (format!("d{}/f{number}", number % 2), format!("m{number}/f"));
        let hunks = file.hunks();
        if file.fate != FileFate::Add {
            before.insert(name.clone(), file.before());
        }
        match file.fate {
            FileFate::Delete => writeln!(text, "*** Delete File: {name}").unwrap(),
            FileFate::Add => {
                let lines: Vec<String> = file.lines.iter().map(|(line, _)| line.clone()).collect();
                writeln!(text, "*** Add File: {name}").unwrap();
                for line in &lines {
                    writeln!(text, "+{line}").unwrap();
                }
                after.insert(name, (lines.join("\n") + "\n").into_bytes());
            }
            FileFate::Update if hunks.is_empty() => drop(after.insert(name, file.before())),
            FileFate::Update => {
                write!(text, "*** Update File: {name}\n{hunks}").unwrap();
                after.insert(name, file.after());
            }
            FileFate::Move => {
                write!(
                    text,
                    "*** Update File: {name}\n*** Move to: {moved}\n{hunks}"
                )
                .unwrap();
                after.insert(moved, file.after());
            }
        }
    }
    text.push_str("*** Add File: always\n+here");
    after.insert("always".to_owned(), b"here\n".to_vec());
    (before, crate::common::patch(&text), after)
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        if let Ok(patch) = Patch::parse(&text) {
            prop_assert_eq!(Patch::parse(&patch.to_string()), Ok(patch));
        }
    }

    #[test]
    fn what_is_read_can_be_printed_and_read_again(
        lines in prop::collection::vec(patch_line(), 0..25),
        wrapped in prop::bool::weighted(0.8),
    ) {
        let body = lines.join("\n");
        let text = if wrapped { format!("*** Begin Patch\n*** Add File: x\n{body}\n*** End Patch") } else { body };
        match Patch::parse(&text) {
            Ok(patch) => prop_assert_eq!(Patch::parse(&patch.to_string()), Ok(patch)),
            Err(error) => {
                let line = error.line().unwrap_or(0);
                prop_assert!(line <= text.split('\n').count(), "{error}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_patch_does_to_a_tree_what_the_model_says(files in prop::collection::vec(file(), 1..6)) {
        let (before, patch, after) = scenario(&files);
        prop_assert_eq!(&Patch::parse(&patch.to_string()).unwrap(), &patch);
        let place = Place::with(&[]);
        crate::common::write(&place.root(), &before);
        let planned = check(&patch, &place.options()).unwrap();
        prop_assert_eq!(apply(&patch, &place.options()).unwrap(), planned);
        prop_assert_eq!(place.tree(), after);
        place.assert_nothing_left_over();
    }

    #[test]
    fn a_patch_with_one_wrong_operation_changes_nothing(files in prop::collection::vec(file(), 1..6)) {
        let (before, patch, _) = scenario(&files);
        let text = patch.to_string().replace("*** End Patch", "*** Delete File: never\n*** End Patch");
        let place = Place::with(&[]);
        crate::common::write(&place.root(), &before);
        let error = apply(&Patch::parse(&text).unwrap(), &place.options()).unwrap_err();
        prop_assert_eq!(error.code(), "PATCH_NOT_FOUND");
        prop_assert_eq!(place.tree(), before);
    }
}
