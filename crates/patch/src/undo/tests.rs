//! Every state in which a patch of one file can be found, also on file systems that cannot exchange
//! two names or have no hard links.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::journal::RecordedChange;
use crate::path_text::PathText;
use crate::tree::LinkScope;

const NEW: &str = ".interlock-patch-test-0.new";
const OLD: &str = ".interlock-patch-test-0.old";

/// What stands under a name: the version from before the patch, the one of the patch, a part of it,
/// or that of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Before,
    Patched,
    Part,
    Theirs,
}

use Version::{Before, Part, Patched, Theirs};

impl Version {
    fn content(self) -> &'static str {
        match self {
            Before => "before\n",
            Patched => "written by the patch\n",
            Part => "written by",
            Theirs => "written by another process\n",
        }
    }
}

type State<'a> = &'a [(&'a str, Version)];

/// Builds the state, undoes (twice: the second time must change nothing), and returns what is there
/// and the conflicts.
fn undone(kind: &str, state: State<'_>) -> (BTreeMap<String, String>, Vec<Conflict>) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().canonicalize().unwrap();
    // The file from before keeps its identity wherever it is.
    fs::write(root.join("origin"), Before.content()).unwrap();
    let mut tree = DirectoryTree::open(&root, LinkScope::Beneath).unwrap();
    let directory = tree.directory(Path::new("")).unwrap();
    let identity = found::find(&directory, OsStr::new("origin"))
        .unwrap()
        .unwrap()
        .identity;
    for (name, version) in state.iter().filter(|(_, version)| *version != Before) {
        fs::write(root.join(name), version.content()).unwrap();
    }
    match state.iter().find(|(_, version)| *version == Before) {
        Some((name, _)) => fs::rename(root.join("origin"), root.join(name)).unwrap(),
        None => fs::remove_file(root.join("origin")).unwrap(),
    }
    let change = RecordedChange {
        directory: PathText(PathBuf::new()),
        name: PathText(PathBuf::from("file")),
        new: (kind != "remove").then(|| Digest::of(Patched.content().as_bytes())),
        old: (kind != "create").then_some(identity),
        kind: RecordedKind::Content,
    };
    let record = JournalRecord::for_test(&root, change);
    let conflicts = undo(&record, None, &mut tree, &|_| Ok(())).unwrap();
    let read = || -> BTreeMap<String, String> {
        let entries = fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect()
    };
    let after = read();
    if conflicts.is_empty() {
        assert_eq!(
            undo(&record, None, &mut tree, &|_| Ok(())).unwrap(),
            [],
            "{kind} {state:?}"
        );
        assert_eq!(read(), after, "{kind} {state:?}: undoing twice");
    }
    (after, conflicts)
}

#[test]
fn every_state_of_one_file_is_undone() {
    // kind, state, state after undoing
    let cases: [(&str, State<'_>, State<'_>); 18] = [
        ("replace", &[("file", Before)], &[("file", Before)]),
        (
            "replace",
            &[("file", Before), (NEW, Part)],
            &[("file", Before)],
        ),
        (
            "replace",
            &[("file", Before), (NEW, Patched)],
            &[("file", Before)],
        ),
        (
            "replace",
            &[("file", Patched), (NEW, Before)],
            &[("file", Before)],
        ),
        ("replace", &[(NEW, Before)], &[("file", Before)]),
        (
            "replace",
            &[(OLD, Before), (NEW, Patched)],
            &[("file", Before)],
        ),
        (
            "replace",
            &[("file", Patched), (OLD, Before)],
            &[("file", Before)],
        ),
        (
            "replace",
            &[("file", Theirs), (NEW, Patched)],
            &[("file", Theirs)],
        ),
        (
            "replace",
            &[("file", Patched), (NEW, Theirs)],
            &[("file", Theirs)],
        ),
        ("replace", &[(NEW, Patched)], &[]),
        ("create", &[], &[]),
        ("create", &[(NEW, Part)], &[]),
        ("create", &[(NEW, Patched)], &[]),
        ("create", &[("file", Patched)], &[]),
        (
            "create",
            &[("file", Theirs), (NEW, Patched)],
            &[("file", Theirs)],
        ),
        ("create", &[("file", Theirs)], &[("file", Theirs)]),
        ("remove", &[("file", Before)], &[("file", Before)]),
        ("remove", &[(OLD, Before)], &[("file", Before)]),
    ];
    for (kind, state, expected) in cases {
        let (after, conflicts) = undone(kind, state);
        let expected = expected
            .iter()
            .map(|(name, version)| ((*name).to_owned(), version.content().to_owned()))
            .collect();
        assert_eq!(after, expected, "{kind} {state:?}");
        assert_eq!(conflicts, [], "{kind} {state:?}");
    }
}

#[test]
fn what_others_wrote_stays_and_the_old_version_is_kept_beside_it() {
    let cases: [(&str, State<'_>, &str); 4] = [
        ("replace", &[("file", Theirs), (NEW, Before)], NEW),
        ("replace", &[("file", Theirs), (OLD, Before)], OLD),
        (
            "replace",
            &[("file", Theirs), (OLD, Before), (NEW, Patched)],
            OLD,
        ),
        ("remove", &[("file", Theirs), (OLD, Before)], OLD),
    ];
    for (kind, state, kept) in cases {
        let (after, conflicts) = undone(kind, state);
        let expected = [("file", Theirs), (kept, Before)]
            .map(|(name, version)| (name.to_owned(), version.content().to_owned()))
            .into();
        assert_eq!(after, expected, "{kind} {state:?}");
        let [conflict] = conflicts.as_slice() else {
            panic!("{kind} {state:?}: {conflicts:?}")
        };
        assert!(conflict.path.ends_with("/file"));
        assert!(
            conflict
                .kept
                .as_ref()
                .is_some_and(|path| path.ends_with(kept)),
            "{conflict:?}"
        );
    }
}
