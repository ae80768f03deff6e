use std::fs;
use std::path::Path;

use super::*;
use crate::elf::tests::elf;

fn at(root: &Path, name: &str, bytes: &[u8]) -> String {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn bound(loaded: &LoadedFiles) -> Vec<&str> {
    loaded
        .files
        .iter()
        .map(|file| file.found.as_str())
        .collect()
}

#[test]
fn a_program_of_the_system_loads_nothing_that_has_to_be_bound() {
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let loaded = LoadedFiles::of(shell.to_str().unwrap()).unwrap();
    assert_eq!(loaded, LoadedFiles::default());
}

#[test]
fn libraries_beside_a_program_are_bound_and_missing_ones_must_stay_away() {
    let scratch = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(scratch.path()).unwrap();
    let program = elf(
        None,
        &["liba.so", "libnone.so"],
        None,
        Some("$ORIGIN/../lib"),
    );
    let program = at(&root, "bin/tool", &program);
    // A library looks in its own directories, and not in the RUNPATH of the program.
    let library = elf(None, &["libb.so"], None, Some("$ORIGIN/deep"));
    at(&root, "lib/liba.so", &library);
    at(&root, "lib/deep/libb.so", &elf(None, &[], None, None));
    let loaded = LoadedFiles::of(&program).unwrap();
    let expected = ["bin/../lib/liba.so", "lib/deep/libb.so"].map(|name| {
        let path = root.join(name);
        path.to_str().unwrap().to_owned()
    });
    assert_eq!(bound(&loaded), expected);
    assert!(loaded.files.iter().all(|file| file.sha256.is_some()));
    let missing = format!("{}/bin/../lib/libnone.so", root.display());
    assert!(loaded.absent.contains(&missing), "{loaded:?}");
    assert!(!loaded.is_unknown);
}

/// The dependencies of a system library are searched for in the `DT_RPATH` of the program.
#[test]
fn an_rpath_is_inherited() {
    let scratch = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(scratch.path()).unwrap();
    let program = at(
        &root,
        "tool",
        &elf(None, &["liba.so"], Some("$ORIGIN"), None),
    );
    at(&root, "liba.so", &elf(None, &["libb.so"], None, None));
    at(&root, "libb.so", &elf(None, &[], None, None));
    let loaded = LoadedFiles::of(&program).unwrap();
    assert_eq!(loaded.files.len(), 2, "{loaded:?}");
}

#[test]
fn a_loader_elsewhere_is_bound() {
    let scratch = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(scratch.path()).unwrap();
    let loader = at(&root, "ld.so", b"loader");
    let program = at(&root, "tool", &elf(Some(&loader), &[], None, None));
    assert_eq!(bound(&LoadedFiles::of(&program).unwrap()), [loader]);
}

#[test]
fn places_that_depend_on_the_run_are_told() {
    let scratch = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(scratch.path()).unwrap();
    for runpath in ["", "lib", "$LIB", "/x/$PLATFORM", ":/usr/lib"] {
        let program = at(&root, "tool", &elf(None, &["liba.so"], None, Some(runpath)));
        assert!(LoadedFiles::of(&program).unwrap().is_unknown, "{runpath:?}");
    }
    let program = at(&root, "tool", &elf(Some("ld.so"), &[], None, None));
    assert!(LoadedFiles::of(&program).unwrap().is_unknown);
    let program = at(&root, "tool", b"\x7fELF, but not really");
    assert!(LoadedFiles::of(&program).unwrap().is_unknown);
    let script = at(&root, "script", b"#!/bin/sh\n");
    assert_eq!(LoadedFiles::of(&script).unwrap(), LoadedFiles::default());
}
