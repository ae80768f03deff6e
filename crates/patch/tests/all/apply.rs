//! Patches against real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::common::Place;
use interlock_patch::{ApplyError, Patch, apply, check, recover};

type Tree<'a> = &'a [(&'a str, &'a str)];

#[test]
fn patches_change_trees() {
    // why, before, patch, after
    let cases: [(&str, Tree<'_>, &str, Tree<'_>); 12] = [
        ("add", &[], "*** Add File: a/b/c\n+x", &[("a/b/c", "x\n")]),
        ("add an empty file", &[], "*** Add File: a", &[("a", "")]),
        (
            "delete",
            &[("a", "x"), ("b", "y")],
            "*** Delete File: a",
            &[("b", "y")],
        ),
        (
            "update",
            &[("a", "x\n")],
            "*** Update File: a\n@@\n-x\n+y",
            &[("a", "y\n")],
        ),
        (
            "rename",
            &[("a", "x")],
            "*** Update File: a\n*** Move to: d/b",
            &[("d/b", "x")],
        ),
        (
            "rename and change",
            &[("a", "x\n")],
            "*** Update File: a\n*** Move to: b\n@@\n-x\n+y",
            &[("b", "y\n")],
        ),
        (
            "rename onto itself",
            &[("a", "x\n")],
            "*** Update File: a\n*** Move to: ./a\n@@\n-x\n+y",
            &[("a", "y\n")],
        ),
        (
            "replace by delete and add",
            &[("a", "x\n")],
            "*** Delete File: a\n*** Add File: a\n+y",
            &[("a", "y\n")],
        ),
        (
            "rename onto a file deleted before",
            &[("a", "x\n"), ("b", "y\n")],
            "*** Delete File: b\n*** Update File: a\n*** Move to: b",
            &[("b", "x\n")],
        ),
        (
            "swap two files",
            &[("a", "1\n"), ("b", "2\n")],
            "*** Update File: a\n*** Move to: t\n*** Update File: b\n*** Move to: a\n*** Update File: t\n*** Move to: b",
            &[("a", "2\n"), ("b", "1\n")],
        ),
        (
            "two updates of one file",
            &[("a", "1\n2\n")],
            "*** Update File: a\n@@\n-2\n+3\n*** Update File: ./a\n@@\n-1\n-3\n+4",
            &[("a", "4\n")],
        ),
        (
            "add and take back",
            &[],
            "*** Add File: d/a\n+x\n*** Delete File: d/a",
            &[],
        ),
    ];
    for (why, before, patch, after) in cases {
        let place = Place::with(before);
        let planned = check(&crate::common::patch(patch), &place.options()).unwrap();
        assert_eq!(
            place.tree(),
            crate::common::tree(before),
            "{why}: checking changes nothing"
        );
        let done = apply(&crate::common::patch(patch), &place.options()).unwrap();
        assert_eq!(done, planned, "{why}");
        assert_eq!(place.tree(), crate::common::tree(after), "{why}");
        place.assert_nothing_left_over();
    }
}

#[test]
fn a_refused_patch_changes_nothing() {
    let before: Tree<'_> = &[("a", "x\n"), ("b", "y\n"), ("dir/c", "z\n")];
    // a patch whose first operation is fine, the code of the error
    let cases = [
        ("*** Add File: b\n+n", "PATCH_EXISTS"),
        ("*** Add File: dir\n+n", "PATCH_EXISTS"),
        ("*** Update File: b\n*** Move to: dir/c", "PATCH_EXISTS"),
        ("*** Delete File: none", "PATCH_NOT_FOUND"),
        ("*** Delete File: none/deep", "PATCH_NOT_FOUND"),
        ("*** Update File: none\n@@\n-x", "PATCH_NOT_FOUND"),
        (
            "*** Delete File: b\n*** Update File: b\n@@\n-y",
            "PATCH_NOT_FOUND",
        ),
        ("*** Delete File: dir", "PATCH_NOT_A_FILE"),
        ("*** Update File: dir\n@@\n-x", "PATCH_NOT_A_FILE"),
        ("*** Add File: b/c\n+x", "PATCH_NOT_A_FILE"),
        ("*** Add File: .\n+x", "PATCH_NOT_A_FILE"),
        (
            "*** Add File: n\n+x\n*** Add File: n/m\n+x",
            "PATCH_NOT_A_FILE",
        ),
        (
            "*** Add File: n/m\n+x\n*** Add File: n\n+x",
            "PATCH_NOT_A_FILE",
        ),
        ("*** Update File: b\n@@\n-z", "PATCH_CONTEXT_MISMATCH"),
        ("*** Add File: ../n\n+x", "PATCH_OUTSIDE_WORKSPACE"),
        ("*** Add File: /etc/n\n+x", "PATCH_OUTSIDE_WORKSPACE"),
        (
            "*** Update File: b\n*** Move to: ../b",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
        ("*** Add File: dir/../../n\n+x", "PATCH_OUTSIDE_WORKSPACE"),
    ];
    for (operations, code) in cases {
        let place = Place::with(before);
        let text = format!(
            "*** Update File: a\n@@\n-x\n+changed\n*** Add File: new/file\n+x\n{operations}"
        );
        let error = apply(&crate::common::patch(&text), &place.options()).unwrap_err();
        assert_eq!(error.code(), code, "{operations}: {error}");
        assert_eq!(place.tree(), crate::common::tree(before), "{operations}");
        place.assert_nothing_left_over();
    }
}

#[test]
fn a_mismatch_tells_file_hunk_line_and_nearest_match() {
    let place = Place::with(&[("a", "one\ntwo\nthree\n")]);
    let patch = crate::common::patch("*** Update File: a\n@@\n one\n-tow\n three");
    let error = apply(&patch, &place.options()).unwrap_err();
    let expected = serde_json::json!({
        "code": "PATCH_CONTEXT_MISMATCH",
        "message": "hunk 1 of `a` does not match: patch line 5 expects `tow`; the nearest match is line 2: `two`",
        "hint": "read the file again and copy the lines as they are",
        "path": "a",
        "hunk": 1,
        "patchLine": 5,
        "expected": "tow",
        "nearest": {"line": 2, "text": "two"},
    });
    assert_eq!(serde_json::to_value(&error).unwrap(), expected);
    let early = crate::common::patch("*** Update File: a\n@@\n-two\n@@\n-one");
    let message = apply(&early, &place.options()).unwrap_err().to_string();
    assert!(
        message.ends_with(
            "line 1: `one` (it lies before the place that earlier hunks or headers reached)"
        ),
        "{message}"
    );
}

#[test]
fn the_summary_counts_lines_and_leaves_out_what_did_not_change() {
    let place = Place::with(&[
        ("same", "x\n"),
        ("old", "1\n2\n"),
        ("gone", "1\n2\n3"),
        ("mod", "a\nb\n"),
    ]);
    let patch = crate::common::patch(
        "*** Update File: same\n@@\n-x\n+x\n*** Update File: old\n*** Move to: new\n@@\n-1\n*** Delete File: gone\n\
         *** Update File: mod\n@@\n-a\n+A\n+B\n*** Add File: add\n+1",
    );
    let modified = fs::metadata(place.root().join("same"))
        .unwrap()
        .modified()
        .unwrap();
    let summary = apply(&patch, &place.options()).unwrap();
    let expected = serde_json::json!({
        "added": [{"path": "add", "linesAdded": 1, "linesRemoved": 0}],
        "modified": [{"path": "mod", "linesAdded": 2, "linesRemoved": 1}],
        "deleted": [{"path": "gone", "linesAdded": 0, "linesRemoved": 3}],
        "moved": [{"from": "old", "to": "new", "linesAdded": 0, "linesRemoved": 1}],
        "unchanged": ["same"],
    });
    assert_eq!(serde_json::to_value(&summary).unwrap(), expected);
    assert_eq!(
        fs::metadata(place.root().join("same"))
            .unwrap()
            .modified()
            .unwrap(),
        modified
    );
}

#[test]
fn permission_bits_are_kept_and_new_files_follow_the_mask() {
    let place = Place::with(&[
        ("run", "x\n"),
        ("secret", "x\n"),
        ("moved", "x\n"),
        ("suid", "x\n"),
    ]);
    for (name, mode) in [
        ("run", 0o755),
        ("secret", 0o600),
        ("moved", 0o750),
        ("suid", 0o4755),
    ] {
        fs::set_permissions(place.root().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let patch = crate::common::patch(
        "*** Update File: run\n@@\n-x\n+y\n*** Update File: secret\n@@\n-x\n+y\n\
         *** Update File: moved\n*** Move to: there\n*** Update File: suid\n@@\n-x\n+y\n*** Add File: new\n+x",
    );
    apply(&patch, &place.options()).unwrap();
    fs::write(place.root().join("plain"), "").unwrap();
    let mode = |name: &str| fs::metadata(place.root().join(name)).unwrap().mode() & 0o7777;
    for (name, expected) in [
        ("run", 0o755),
        ("secret", 0o600),
        ("there", 0o750),
        ("suid", 0o755),
        ("new", mode("plain")),
    ] {
        assert_eq!(mode(name), expected, "{name}");
    }
}

#[test]
fn owner_and_user_attributes_are_kept_where_possible() {
    let place = Place::with(&[("a", "x\n")]);
    let path = place.root().join("a");
    let tagged =
        rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty()).is_ok();
    let owned = std::os::unix::fs::chown(&path, Some(12_345), Some(12_345)).is_ok();
    apply(
        &crate::common::patch("*** Update File: a\n@@\n-x\n+y"),
        &place.options(),
    )
    .unwrap();
    if owned {
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12_345, 12_345));
    }
    if tagged {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(&path, "user.note", &mut value).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
}

#[test]
fn a_file_the_user_may_not_write_is_not_replaced() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may write every file");
        return;
    }
    let place = Place::with(&[("a", "x\n")]);
    fs::set_permissions(place.root().join("a"), fs::Permissions::from_mode(0o444)).unwrap();
    let error = apply(
        &crate::common::patch("*** Update File: a\n@@\n-x\n+y"),
        &place.options(),
    )
    .unwrap_err();
    assert_eq!(error.code(), "PATCH_PERMISSION");
}

#[test]
fn the_journal_directory_is_out_of_reach_and_must_be_private() {
    let place = Place::with(&[]);
    let mut options = place.options();
    options.journal_dir = place.root().join(".interlock-patch");
    apply(&crate::common::patch("*** Add File: a\n+1"), &options).unwrap();
    for path in [".interlock-patch/x.journal", ".interlock-patch/deep/x"] {
        let error = apply(
            &crate::common::patch(&format!("*** Add File: {path}\n+1")),
            &options,
        )
        .unwrap_err();
        assert_eq!(error.code(), "PATCH_RESERVED");
    }
    fs::set_permissions(&options.journal_dir, fs::Permissions::from_mode(0o777)).unwrap();
    let error = apply(&crate::common::patch("*** Add File: b\n+1"), &options).unwrap_err();
    assert!(matches!(error, ApplyError::Journal { .. }), "{error}");
    assert!(recover(&options.journal_dir).is_err());
}

#[test]
fn pipes_and_sockets_are_left_alone() {
    let place = Place::with(&[]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.root().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for operation in ["*** Update File: pipe\n@@\n-x", "*** Delete File: pipe"] {
        let error = apply(&crate::common::patch(operation), &place.options()).unwrap_err();
        assert_eq!(error.code(), "PATCH_NOT_A_FILE");
    }
}

#[test]
fn a_patch_of_many_directories_needs_few_descriptors() {
    let place = Place::with(&[]);
    let text: Vec<String> = (0..700)
        .map(|number| format!("*** Add File: d{number}/f\n+{number}\n"))
        .collect();
    apply(
        &crate::common::patch(text.concat().trim_end()),
        &place.options(),
    )
    .unwrap();
    assert_eq!(place.tree().len(), 700);
    let text: Vec<String> = (0..700)
        .map(|number| format!("*** Update File: d{number}/f\n@@\n-{number}\n+x\n"))
        .collect();
    apply(
        &crate::common::patch(text.concat().trim_end()),
        &place.options(),
    )
    .unwrap();
    assert!(place.tree().values().all(|content| content == b"x\n"));
    place.assert_nothing_left_over();
}

#[test]
fn a_workspace_that_is_missing_or_a_file_is_an_error() {
    let place = Place::with(&[("file", "")]);
    let patch = Patch::parse("*** Begin Patch\n*** Add File: a\n*** End Patch").unwrap();
    let mut options = place.options();
    options.root = place.root().join("none");
    assert_eq!(apply(&patch, &options).unwrap_err().code(), "PATCH_IO");
    options.root = place.root().join("file");
    assert_eq!(
        check(&patch, &options).unwrap_err().code(),
        "PATCH_NOT_A_FILE"
    );
}
