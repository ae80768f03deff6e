//! The picture in ARCHITECTURE.md stays true: a crate depends only on crates of lower layers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The layer of each crate, as the picture shows it. A crate that is missing here needs a layer
/// first.
const LAYERS: &[(&str, usize)] = &[
    ("interlock-programs", 0),
    ("interlock-command", 1),
    ("interlock-binding", 2),
    ("interlock-policy", 3),
    ("interlock-plan", 3),
    ("interlock-store", 3),
    ("interlock-patch", 3),
    ("interlock-tls", 3),
    ("interlock-wire", 3),
    ("interlock-config", 4),
    ("interlock-syscalls", 4),
    ("interlock-engine", 5),
    ("interlock-transcript", 4),
    ("interlock-supervisor", 6),
    ("interlock-rules", 6),
    ("interlock-arguments", 6),
    ("interlock-sandbox", 6),
    ("interlock-network", 6),
    ("interlock-approvals", 7),
    ("interlock-checks", 7),
    ("interlock-local", 8),
    ("interlock-effects", 9),
    ("interlock-host", 10),
    // Only tests and benchmarks use this crate.
    ("interlock-testkit", 8),
    ("interlock-sessions", 11),
    ("interlock-access", 11),
    ("interlock-doctor", 11),
    ("interlock-web", 11),
    ("interlock-channels", 11),
    ("interlock-connections", 11),
    ("interlock-dispatch", 12),
    ("interlock-node", 12),
    ("interlock-console", 12),
    ("interlock-mcp", 13),
    ("interlock-methods", 13),
    ("interlock-gateway", 14),
    ("interlock-client", 15),
    ("interlock-inbox", 16),
    ("interlock-setup", 16),
    ("interlock-services", 16),
    ("interlock-runs", 17),
    ("interlock", 18),
];

fn workspace() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn no_crate_depends_on_its_own_layer_or_a_higher_one() {
    let layers: BTreeMap<&str, usize> = LAYERS.iter().copied().collect();
    let mut upward = Vec::new();
    for package in workspace() {
        let name = package["name"].as_str().unwrap();
        let Some(layer) = layers.get(name) else {
            panic!("{name} is not in the picture: add it to ARCHITECTURE.md and to this table");
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            let for_tests = dependency["kind"].as_str() == Some("dev");
            if let Some(lower) = layers.get(on)
                && lower >= layer
                && !for_tests
            {
                upward.push(format!(
                    "{name} (layer {layer}) depends on {on} (layer {lower})"
                ));
            }
        }
    }
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

#[test]
fn the_picture_names_every_crate() {
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
    let picture = std::fs::read_to_string(picture).unwrap();
    for (name, layer) in LAYERS {
        let short = match *name {
            "interlock" => "cli",
            other => other.trim_start_matches("interlock-"),
        };
        let row = picture
            .lines()
            .find(|line| line.starts_with(&format!("layer {layer} ")))
            .unwrap_or_else(|| panic!("no layer {layer} in the picture"));
        assert!(row.contains(short), "{short} is not in: {row}");
    }
}

/// A promise in the documents names the test that proves it. If the test moves, the promise must
/// follow.
#[test]
fn files_that_the_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut missing = Vec::new();
    let mut count = 0;
    for page in [
        "README",
        "ARCHITECTURE",
        "SPECIFICATION",
        "SECURITY",
        "CONTRIBUTING",
    ] {
        let page = format!("{page}.md");
        let text = std::fs::read_to_string(root.join(&page)).unwrap();
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = ["tests/", "crates/", "benches/"]
                .iter()
                .any(|start| quoted.starts_with(start));
            let is_source = Path::new(quoted).extension().is_some_and(|end| end == "rs");
            if is_path && is_source && !quoted.contains(['*', '{', ' ']) {
                count += 1;
                if !root.join(quoted).exists() {
                    missing.push(format!("{page}: {quoted}"));
                }
            }
        }
    }
    assert!(count > 300, "{count}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn the_hook_that_stops_a_start_is_asked_for_by_tests_alone() {
    for package in workspace() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let features = dependency["features"].as_array().unwrap();
            let for_tests = dependency["kind"].as_str() == Some("dev");
            assert!(
                for_tests || !features.iter().any(|feature| feature == "race-hook"),
                "{}",
                package["name"]
            );
        }
    }
}
