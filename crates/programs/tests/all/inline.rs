//! Inline code and program-starting options, against the conformance corpus.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use interlock_programs::inline::{
    HitKind, detect, detect_through_carriers, is_inline_capable_pattern,
    is_interpreter_like_safe_bin,
};
use serde_json::Value;

/// Where our rules are meant to differ: what the corpus does not look for, and what it reports
/// more widely.
struct Deviation {
    reason: &'static str,
    applies: fn(argv: &[String], expected: Option<&str>, kind: Option<HitKind>) -> bool,
}

const DEVIATIONS: &[Deviation] = &[
    Deviation {
        reason: "options beyond inline code are reported as well",
        applies: |_, expected, kind| {
            expected.is_none()
                && kind.is_some_and(|kind| !matches!(kind, HitKind::Code | HitKind::ProgramOption))
        },
    },
    Deviation {
        reason: "a sed program that only edits text is no hit",
        applies: |argv, expected, kind| {
            matches!(argv[0].as_str(), "sed" | "gsed") && expected.is_some() && kind.is_none()
        },
    },
];

#[test]
fn the_corpus_of_inline_code_agrees() {
    let Some(rows) = corpus("inline-eval.jsonl") else {
        return;
    };
    let (mut agree, mut deviate) = (0, Vec::new());
    for row in &rows {
        let id = row["id"].as_str().unwrap();
        if row["kind"] == "allowlist-pattern" {
            let pattern = row["pattern"].as_str().unwrap();
            let expected = row["expect"]["interpreterLike"].as_bool().unwrap();
            assert_eq!(
                is_inline_capable_pattern(pattern),
                expected,
                "{id} {pattern}"
            );
            agree += 1;
            continue;
        }
        let argv: Vec<String> = serde_json::from_value(row["argv"].clone()).unwrap();
        let hit = if row["throughCarriers"] == true {
            detect_through_carriers(&argv)
        } else {
            detect(&argv)
        };
        let expected = row["expect"]["label"].as_str();
        let label = hit
            .as_ref()
            .map(interlock_programs::inline::InlineHit::label);
        if label.as_deref() == expected {
            agree += 1;
            continue;
        }
        let kind = hit.as_ref().map(|hit| hit.kind);
        let allowed = DEVIATIONS
            .iter()
            .find(|deviation| (deviation.applies)(&argv, expected, kind));
        let Some(deviation) = allowed else {
            panic!("{id} {argv:?}: expected {expected:?}, found {hit:?}");
        };
        deviate.push(format!("{id} {argv:?}: {}", deviation.reason));
    }
    println!("inline-eval: {agree} of {} agree", rows.len());
    for line in deviate {
        println!("  deviates: {line}");
    }
}

#[test]
fn the_corpus_of_interpreter_like_safe_bins_agrees() {
    let Some(rows) = corpus("safebins.jsonl") else {
        return;
    };
    let rows: Vec<&Value> = rows
        .iter()
        .filter(|row| row["kind"] == "interpreter-like")
        .collect();
    for row in &rows {
        let bin = row["bin"].as_str().unwrap();
        let expected = row["expect"]["interpreterLike"].as_bool().unwrap();
        assert_eq!(is_interpreter_like_safe_bin(bin), expected, "{bin}");
    }
    println!("interpreter-like: {} of {} agree", rows.len(), rows.len());
}

/// The rows of a corpus file; `None`, said aloud, when there is no corpus here.
fn corpus(file: &str) -> Option<Vec<Value>> {
    let Some(root) = std::env::var_os("INTERLOCK_CORPUS") else {
        println!("skipped: INTERLOCK_CORPUS is not set");
        return None;
    };
    let root = PathBuf::from(root);
    let candidates = [root.join(file), root.join("public").join(file)];
    let path = candidates
        .iter()
        .find(|path| Path::exists(path))
        .expect("the corpus has the file");
    let text = std::fs::read_to_string(path).expect("the corpus can be read");
    let rows = text.lines().filter(|line| !line.trim().is_empty());
    Some(
        rows.map(|line| serde_json::from_str(line).expect("a row is JSON"))
            .collect(),
    )
}
