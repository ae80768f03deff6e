//! One place of the program authorizes plans, and two kinds of permission exist: the judge's allow for
//! a plan, and the claim of what was approved. The types carry the argument; this holds their edges.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The files of the program that say this outside of comments, once for each time.
fn places_of(fragment: &str) -> Vec<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for package in fs::read_dir(workspace.join("crates")).unwrap() {
        let package = package.unwrap().path();
        // It starts plans for tests, and no program has it.
        if !package.ends_with("testkit") {
            sources(&package.join("src"), &mut files);
        }
    }
    assert!(files.len() > 100, "{}", files.len());
    let mut places = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().map(|line| line.split("//").next().unwrap());
        let count = code.filter(|line| line.contains(fragment)).count();
        let name = path.strip_prefix(&workspace).unwrap().display().to_string();
        places.extend(std::iter::repeat_n(name, count));
    }
    places
}

#[test]
fn one_place_authorizes_plans() {
    assert_eq!(places_of("key.authorize("), ["crates/host/src/exec.rs"]);
    assert_eq!(places_of(".authorize(plan"), ["crates/host/src/exec.rs"]);
}

#[test]
fn one_type_is_a_permission() {
    let implementations = places_of("PlanPermission for ");
    assert_eq!(implementations, ["crates/host/src/permission.rs"]);
}

#[test]
fn permissions_are_made_where_the_verdict_or_the_store_is_asked() {
    for (made, file) in [
        ("Allowed::bind(", "crates/host/src/prepare/judged.rs"),
        (
            "Claim::of_approval(",
            "crates/host/src/pipeline/approved_run.rs",
        ),
        (
            "Claim::of_grant(",
            "crates/host/src/pipeline/approved_run.rs",
        ),
        (
            "Claim::of_forwarded(",
            "crates/host/src/pipeline/node_run.rs",
        ),
        (
            "PreparedRun::forwarded(",
            "crates/host/src/pipeline/node_run.rs",
        ),
        ("PreparedRun::of(", "crates/host/src/exec/judged.rs"),
    ] {
        let places = places_of(made);
        assert!(!places.is_empty(), "{made}");
        assert!(
            places.iter().all(|place| place == file),
            "{made}: {places:?}"
        );
    }
}

/// The fallback is decided on a typed value, never by looking into the text of a stored verdict.
#[test]
fn no_code_looks_for_a_fallback_in_a_stored_verdict() {
    assert_eq!(places_of("[\"fallback\"]"), [""; 0]);
}
