//! The language of the workspace stays plain: no word without a subject, and one name for one type.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that hide the subject of a sentence. The vocabulary has a noun for each: caller, approver,
/// operator, owner, client, process, Interlock node, foreign node.
const RIDDLES: &[&str] = &[
    "whoever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "someone",
    "no one",
    "who asked",
    "of ours",
    "of another make",
];

/// Uses of such a word that are correct: the file, the text around the word, and the reason.
const USES: &[(&str, &str, &str)] = &[
    (
        "ARCHITECTURE.md",
        "the account `nobody`",
        "the name of a system account",
    ),
    (
        "crates/mcp/src/caller.rs",
        "\"anybody\"",
        "the owner of sessions without a token, stored by earlier versions",
    ),
    (
        "crates/plan/src/account.rs",
        "user: \"nobody\"",
        "the name of a system account",
    ),
    (
        "crates/testkit/src/lib.rs",
        "the user `nobody`",
        "the name of a system account",
    ),
    (
        "crates/testkit/src/lib.rs",
        "NOBODY",
        "the number of that account",
    ),
];

/// Names that several types may share, each with its reason.
const SHARED_NAMES: &[(&str, &str)] = &[];

/// How many names [`SHARED_NAMES`] may contain.
const MOST_SHARED_NAMES: usize = 30;

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}

/// All files below a directory with this extension, with their paths from the root.
fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        found.extend(files_below(&entry.unwrap().path().join("src"), "rs"));
    }
    found.sort();
    assert!(found.len() > 100, "the sources were not found");
    found
}

fn pages() -> Vec<PathBuf> {
    let mut found = files_below(&root().join("docs"), "md");
    for entry in fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|found| found == "md") {
            found.push(path);
        }
    }
    assert!(found.len() > 10, "the pages were not found");
    found
}

/// The text on one line, without the comment marks at the beginning of lines, so that a phrase is
/// found across line breaks.
fn on_one_line(text: &str) -> String {
    let words = text.lines().flat_map(|line| {
        let line = line.trim_start();
        let line = ["///", "//!", "//"]
            .iter()
            .find_map(|mark| line.strip_prefix(mark))
            .unwrap_or(line);
        line.split_whitespace()
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Where the text contains this phrase as whole words, or as whole words of an identifier.
fn position(text: &str, phrase: &str) -> Option<usize> {
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    text.match_indices(phrase).map(|(at, _)| at).find(|&at| {
        !is_letter(text[..at].chars().next_back())
            && !is_letter(text[at + phrase.len()..].chars().next())
    })
}

#[test]
fn sentences_have_a_subject() {
    let mut riddles = Vec::new();
    let mut unused: Vec<_> = USES.iter().collect();
    for path in sources().into_iter().chain(pages()) {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let mut text = on_one_line(&fs::read_to_string(&path).unwrap());
        for (file, fragment, _) in USES.iter().filter(|(file, ..)| *file == name) {
            unused
                .retain(|used| (used.0, used.1) != (*file, *fragment) || !text.contains(fragment));
            text = text.replace(fragment, "");
        }
        let text = text.to_lowercase().replace('_', " ");
        for riddle in RIDDLES {
            if let Some(at) = position(&text, riddle) {
                let around: String = text[..at].chars().rev().take(40).collect();
                let around: String = around.chars().rev().collect();
                riddles.push(format!("{name}: …{around}{riddle}…"));
            }
        }
    }
    assert!(
        riddles.is_empty(),
        "name the subject (caller, approver, operator, owner, client, process, Interlock node, foreign \
         node):\n{}",
        riddles.join("\n")
    );
    assert!(unused.is_empty(), "not needed any more: {unused:#?}");
}

/// The names of the types that a file defines outside of its tests.
fn types_of(text: &str) -> Vec<String> {
    let end = text.find("#[cfg(test)]\nmod tests {");
    let text = &text[..end.unwrap_or(text.len())];
    let mut names = Vec::new();
    for line in text.lines() {
        let code = line.trim_start();
        let is_item = code.len() == line.len();
        let mut words = code.split_whitespace().peekable();
        if words.peek().is_some_and(|word| word.starts_with("pub")) {
            // The rest of `pub(in some::module)` is a word of its own.
            if words.next() == Some("pub(in") {
                words.next();
            }
        }
        let is_type = match words.next() {
            Some("struct" | "enum" | "union" | "trait") => true,
            // Deeper ones belong to a trait.
            Some("type") => is_item,
            _ => false,
        };
        let Some(word) = words.next().filter(|_| is_type) else {
            continue;
        };
        let name: String = word
            .chars()
            .take_while(|&one| one.is_alphanumeric() || one == '_')
            .collect();
        if name.starts_with(char::is_uppercase) {
            names.push(name);
        }
    }
    names
}

#[test]
fn a_type_name_belongs_to_one_type() {
    // Types of tests may repeat.
    let is_test = |path: &Path| {
        path.iter().any(|part| part == "tests" || part == "testkit")
            || path.file_name().unwrap() == "tests.rs"
    };
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources() {
        let path = path.strip_prefix(root()).unwrap().to_owned();
        if is_test(&path) {
            continue;
        }
        for name in types_of(&fs::read_to_string(root().join(&path)).unwrap()) {
            types
                .entry(name)
                .or_default()
                .push(path.display().to_string());
        }
    }
    assert!(types.len() > 500, "the types were not found");
    types.retain(|_, places| places.len() > 1);
    for (name, reason) in SHARED_NAMES {
        assert!(!reason.is_empty());
        assert!(
            types.remove(*name).is_some(),
            "{name} is not shared any more"
        );
    }
    assert!(SHARED_NAMES.len() <= MOST_SHARED_NAMES);
    let listed: Vec<String> = types
        .iter()
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(
        listed.is_empty(),
        "give each type a qualified name of its own, such as `RunOutcome`:\n{}",
        listed.join("\n")
    );
}

/// The modules that a crate's `lib.rs` declares.
fn modules_of(text: &str) -> Vec<&str> {
    let declared = text.lines().filter_map(|line| {
        let code = line.strip_prefix("pub ").unwrap_or(line);
        code.strip_prefix("mod ")?.strip_suffix(';')
    });
    declared.collect()
}

#[test]
fn the_map_names_every_module() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = page.split("## Map").nth(1).expect("a map");
    let map = map.split("\n## ").next().unwrap();
    let mut missing = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let crate_name = path.file_name().unwrap().to_str().unwrap();
        let row = map
            .lines()
            .find(|line| line.starts_with(&format!("| `{crate_name}` |")))
            .unwrap_or_default();
        for module in modules_of(&fs::read_to_string(path.join("src/lib.rs")).unwrap()) {
            seen += 1;
            if !row.contains(&format!(" `{module}`")) {
                missing.push(format!("{crate_name}: {module}"));
            }
        }
    }
    assert!(seen > 100, "the modules were not found");
    assert!(
        missing.is_empty(),
        "the map in ARCHITECTURE.md lacks modules:\n{}",
        missing.join("\n")
    );
}
