//! Everyday work passes, ways around the policy do not: `tests/cases/attacks.jsonl`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

#[test]
fn every_case_is_judged_as_expected() {
    let cases = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/cases/attacks.jsonl"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["policy", "test", cases])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("\n0 passed"), "{text}");
}
