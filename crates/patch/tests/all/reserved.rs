//! Files that are out of reach of every patch, by whatever way they are named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::Place;
use interlock_patch::{ApplyOptions, apply, check};

/// A workspace that contains a state directory, and a config and a program elsewhere.
fn place() -> (Place, ApplyOptions) {
    let place = Place::with(&[
        ("a", "in\n"),
        (".state/interlock.db", "secret\n"),
        (".state/deep/key", "secret\n"),
        ("etc/config.json", "{}\n"),
        ("bin/interlock", "program\n"),
    ]);
    let root = place.root();
    let mut options = place.options();
    options.reserved.directories = vec![root.join(".state")];
    options.reserved.files = vec![
        root.join("etc/config.json"),
        root.join("bin/interlock"),
        root.join("etc/missing.json"),
    ];
    (place, options)
}

#[track_caller]
fn refused(place: &Place, options: &ApplyOptions, operations: &str) {
    let before = place.tree();
    for workspace_only in [true, false] {
        let options = ApplyOptions {
            workspace_only,
            ..options.clone()
        };
        let patch = crate::common::patch(operations);
        for result in [check(&patch, &options), apply(&patch, &options)] {
            let error = result.expect_err(operations);
            assert_eq!(error.code(), "PATCH_RESERVED", "{operations}: {error}");
            assert!(error.hint().contains("interlock config"), "{error}");
        }
    }
    assert_eq!(place.tree(), before, "{operations}");
}

#[test]
fn no_operation_reaches_a_reserved_file() {
    let (place, options) = place();
    let operations = [
        "*** Update File: etc/config.json\n@@\n-{}\n+{evil}",
        "*** Delete File: etc/config.json",
        "*** Update File: etc/config.json\n*** Move to: b",
        "*** Add File: etc/missing.json\n+{evil}",
        "*** Update File: a\n*** Move to: etc/missing.json",
        "*** Add File: etc/missing.json/x\n+evil",
        "*** Add File: etc/MISSING.JSON\n+{evil}",
        "*** Update File: bin/interlock\n@@\n-program\n+evil",
        "*** Update File: .state/interlock.db\n@@\n-secret\n+evil",
        "*** Add File: .state/new\n+evil",
        "*** Add File: .state/deep/new/newer\n+evil",
        "*** Delete File: .state/deep/key",
        "*** Update File: a\n*** Move to: .state/deep/a",
        "*** Update File: .state/deep/key\n*** Move to: stolen",
        // Several operations count as one: none is applied.
        "*** Add File: b\n+b\n*** Delete File: .state/deep/key",
        // The text of a path is no way around its meaning.
        "*** Add File: x/../.state/new\n+evil",
        "*** Add File: ./.state//new\n+evil",
    ];
    for operation in operations {
        refused(&place, &options, operation);
    }
    let full = place.root().join(".state/new").display().to_string();
    refused(&place, &options, &format!("*** Add File: {full}\n+evil"));
}

#[test]
fn links_and_other_names_do_not_reach_a_reserved_file() {
    let (place, options) = place();
    let root = place.root();
    fs::hard_link(root.join("etc/config.json"), root.join("hard")).unwrap();
    fs::hard_link(root.join(".state/interlock.db"), root.join("database")).unwrap();
    symlink("etc/config.json", root.join("soft")).unwrap();
    symlink(".state", root.join("directory")).unwrap();
    symlink("etc/missing.json", root.join("dangling")).unwrap();
    let operations = [
        "*** Update File: hard\n@@\n-{}\n+{evil}",
        "*** Delete File: hard",
        "*** Update File: hard\n*** Move to: b",
        "*** Update File: database\n@@\n-secret\n+evil",
        "*** Delete File: database",
        "*** Update File: soft\n@@\n-{}\n+{evil}",
        "*** Add File: directory/new\n+evil",
        "*** Update File: directory/deep/key\n@@\n-secret\n+evil",
        "*** Delete File: directory/deep/key",
    ];
    for operation in operations {
        refused(&place, &options, operation);
    }
}

#[test]
fn a_link_on_the_way_to_a_reserved_file_is_reserved_too() {
    let (place, mut options) = place();
    let root = place.root();
    symlink("etc", root.join("config-directory")).unwrap();
    symlink("config.json", root.join("etc/current.json")).unwrap();
    options.reserved.files = vec![root.join("config-directory/current.json")];
    for operation in [
        "*** Delete File: config-directory",
        "*** Delete File: etc/current.json",
        "*** Update File: etc/config.json\n@@\n-{}\n+{evil}",
    ] {
        refused(&place, &options, operation);
    }
}

#[test]
fn the_rest_of_the_workspace_stays_open() {
    let (place, options) = place();
    let root = place.root();
    fs::write(root.join("twice"), "in\n").unwrap();
    fs::hard_link(root.join("twice"), root.join("thrice")).unwrap();
    let patch = crate::common::patch(
        "*** Update File: a\n@@\n-in\n+out\n*** Add File: etc/other.json\n+x\n\
         *** Delete File: thrice\n*** Add File: new/.state/x\n+x",
    );
    apply(&patch, &options).unwrap();
    assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "out\n");
}

/// A mount shows a part of the state directory at another path, from where no way leads up to it.
#[test]
fn other_mounts_do_not_reach_a_reserved_file() {
    let (place, options) = place();
    let root = place.root();
    fs::create_dir(root.join("mounted")).unwrap();
    fs::write(root.join("mounted-file"), "").unwrap();
    let mount = |from: &str, to: &str| {
        let mounted = Command::new("mount")
            .args(["--bind"])
            .args([root.join(from), root.join(to)])
            .output();
        mounted.is_ok_and(|output| output.status.success())
    };
    if !mount(".state/deep", "mounted") {
        println!("skipped: this user cannot mount");
        return;
    }
    let _mounts = Mounts(&root);
    assert!(mount(".state/interlock.db", "mounted-file"));
    for operation in [
        "*** Add File: mounted/new\n+evil",
        "*** Delete File: mounted/key",
        "*** Update File: mounted/key\n@@\n-secret\n+evil",
        "*** Update File: mounted-file\n@@\n-secret\n+evil",
    ] {
        refused(&place, &options, operation);
    }
}

struct Mounts<'a>(&'a Path);

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for name in ["mounted", "mounted-file"] {
            let _ = Command::new("umount").arg(self.0.join(name)).output();
        }
    }
}
