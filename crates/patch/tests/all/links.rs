//! Links and paths that lead elsewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::Place;
use interlock_patch::apply;

#[test]
fn links_do_not_lead_out_of_the_workspace() {
    let place = Place::with(&[("a", "in\n"), ("dir/x", "in\n")]);
    let outside = place.outside();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "out\n").unwrap();
    let root = place.root();
    symlink(outside.join("victim"), root.join("absolute")).unwrap();
    symlink("../outside/victim", root.join("relative")).unwrap();
    symlink(outside.join("none"), root.join("broken")).unwrap();
    symlink(&outside, root.join("linkdir")).unwrap();
    symlink("../outside/newdir", root.join("brokendir")).unwrap();
    symlink("a", root.join("inside")).unwrap();
    symlink("dir", root.join("insidedir")).unwrap();
    symlink("/proc/self/cwd", root.join("magic")).unwrap();
    fs::hard_link(outside.join("victim"), root.join("hard")).unwrap();
    let before = place.tree();
    let cases = [
        (
            "*** Update File: absolute\n@@\n-out\n+bad",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
        (
            "*** Update File: relative\n@@\n-out\n+bad",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
        (
            "*** Update File: broken\n@@\n-out\n+bad",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
        ("*** Update File: inside\n@@\n-in\n+bad", "PATCH_LINK"),
        ("*** Update File: inside\n*** Move to: else", "PATCH_LINK"),
        ("*** Update File: hard\n@@\n-out\n+bad", "PATCH_LINK"),
        ("*** Add File: broken\n+bad", "PATCH_EXISTS"),
        ("*** Add File: linkdir/bad\n+bad", "PATCH_OUTSIDE_WORKSPACE"),
        (
            "*** Add File: brokendir/bad\n+bad",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
        ("*** Add File: magic/bad\n+bad", "PATCH_OUTSIDE_WORKSPACE"),
        ("*** Delete File: linkdir/victim", "PATCH_OUTSIDE_WORKSPACE"),
        (
            "*** Update File: a\n*** Move to: linkdir/bad",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
        (
            "*** Update File: linkdir/victim\n*** Move to: stolen",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
    ];
    for (operations, code) in cases {
        let error = apply(&crate::common::patch(operations), &place.options()).unwrap_err();
        assert_eq!(error.code(), code, "{operations}: {error}");
        assert_eq!(place.tree(), before, "{operations}");
        assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "out\n");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{operations}");
    }
    // A directory link that stays inside is followed; a link that is deleted is only a link.
    let patch = crate::common::patch(
        "*** Update File: insidedir/x\n@@\n-in\n+ok\n*** Delete File: absolute\n*** Delete File: hard",
    );
    apply(&patch, &place.options()).unwrap();
    assert_eq!(fs::read_to_string(root.join("dir/x")).unwrap(), "ok\n");
    assert!(!root.join("absolute").is_symlink());
    assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "out\n");
}

#[test]
fn two_names_of_one_file_are_seen_as_one() {
    let place = Place::with(&[("dir/x", "1\n")]);
    symlink("dir", place.root().join("alias")).unwrap();
    let patch = crate::common::patch(
        "*** Update File: dir/x\n@@\n-1\n+2\n*** Update File: alias/x\n@@\n-2\n+3",
    );
    apply(&patch, &place.options()).unwrap();
    assert_eq!(
        fs::read_to_string(place.root().join("dir/x")).unwrap(),
        "3\n"
    );
    let patch = crate::common::patch("*** Add File: dir/new/y\n+1\n*** Add File: alias/new/y\n+2");
    assert_eq!(
        apply(&patch, &place.options()).unwrap_err().code(),
        "PATCH_EXISTS"
    );
}

#[test]
fn without_the_limit_links_and_paths_lead_anywhere() {
    let place = Place::with(&[("a", "in\n")]);
    let outside = place.outside();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "out\n").unwrap();
    fs::write(outside.join("second"), "out\n").unwrap();
    symlink("../outside/victim", place.root().join("link")).unwrap();
    symlink("nowhere", place.root().join("broken")).unwrap();
    symlink("loop", place.root().join("loop")).unwrap();
    let mut options = place.options();
    options.workspace_only = false;
    let patch = crate::common::patch(&format!(
        "*** Update File: link\n@@\n-out\n+changed\n*** Delete File: {}\n*** Add File: ../outside/new/third\n+3",
        outside.join("second").display()
    ));
    let summary = apply(&patch, &options).unwrap();
    assert_eq!(summary.modified[0].path, "../outside/victim");
    assert!(place.root().join("link").is_symlink());
    assert_eq!(
        fs::read_to_string(outside.join("victim")).unwrap(),
        "changed\n"
    );
    assert!(!outside.join("second").exists());
    assert_eq!(
        fs::read_to_string(outside.join("new/third")).unwrap(),
        "3\n"
    );
    for (name, code) in [("broken", "PATCH_NOT_FOUND"), ("loop", "PATCH_LINK")] {
        let patch = crate::common::patch(&format!("*** Update File: {name}\n@@\n-x"));
        assert_eq!(apply(&patch, &options).unwrap_err().code(), code, "{name}");
    }
}

#[test]
fn absolute_paths_inside_are_accepted_by_either_name_of_the_root() {
    let place = Place::with(&[]);
    let alias = place.outside();
    symlink(place.root(), &alias).unwrap();
    let mut options = place.options();
    options.root.clone_from(&alias);
    let patch = crate::common::patch(&format!(
        "*** Add File: {}\n+1\n*** Add File: {}\n+2",
        alias.join("one").display(),
        place.root().join("two").display()
    ));
    apply(&patch, &options).unwrap();
    assert_eq!(
        place.tree(),
        crate::common::tree(&[("one", "1\n"), ("two", "2\n")])
    );
}
