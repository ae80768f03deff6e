//! Everyday work passes, ways around the policy do not: `tests/cases/attacks.jsonl` and `paths.jsonl`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

fn judged_as_expected(cases: &str) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases");
    let output = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["policy", "test", &format!("{directory}/{cases}")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!text.starts_with("0 passed"), "{text}");
    assert!(!text.contains("\n0 passed"), "{text}");
}

#[test]
fn every_case_is_judged_as_expected() {
    judged_as_expected("attacks.jsonl");
}

#[test]
fn entries_with_paths_cover_the_workspace_alone() {
    judged_as_expected("paths.jsonl");
}
