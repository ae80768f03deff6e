//! What runs did in layers over a workspace, committed all or nothing. The layers are made by hand, as the
//! kernel keeps them; `tests/sandbox/cow.rs` has real ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use interlock_patch::observed::{CommitStep, commit_effect_observed};
use interlock_patch::{
    EffectChange, EffectError, EffectHashes, EffectSource, EffectTarget, ReservedPaths, RunEffect,
    describe_effect, recover,
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::time::ClockId;

/// A workspace, and the layer of a run that ended.
struct Layered {
    directory: tempfile::TempDir,
    started_ns: i64,
}

fn nanoseconds(clock: ClockId) -> i64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

impl Layered {
    /// The workspace has these files; the layer is empty.
    fn with(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["work", "upper", "journal"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut layered = Self {
            directory,
            started_ns: 0,
        };
        for (path, content) in files {
            write(&layered.work().join(path), content);
        }
        layered.start();
        layered
    }

    /// From now on every change of the workspace is a later one.
    fn start(&mut self) {
        self.started_ns = nanoseconds(ClockId::Realtime);
        while nanoseconds(ClockId::RealtimeCoarse) <= self.started_ns {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    fn upper(&self) -> PathBuf {
        self.directory.path().join("upper")
    }

    fn source(&self) -> EffectSource {
        let root = fs::canonicalize(self.work()).unwrap();
        let found = fs::metadata(&root).unwrap();
        EffectSource {
            upper: self.upper(),
            committed: self.directory.path().join("committed"),
            root,
            device: found.dev(),
            inode: found.ino(),
            started_ns: self.started_ns,
            clock_ahead_ns: i64::MIN / 2,
            owner: None,
        }
    }

    fn target(&self) -> EffectTarget {
        let journal_dir = self.directory.path().join("journal");
        fs::set_permissions(&journal_dir, fs::Permissions::from_mode(0o700)).unwrap();
        EffectTarget {
            journal_dir,
            reserved: ReservedPaths::default(),
        }
    }

    /// A directory that both have.
    fn merged(&self, path: &str) {
        let directory = self.upper().join(path);
        fs::create_dir_all(&directory).unwrap();
        for above in Path::new(path)
            .ancestors()
            .filter(|one| *one != Path::new(""))
        {
            let origin = self.upper().join(above);
            rustix::fs::setxattr(&origin, "user.overlay.origin", b"", XattrFlags::empty()).unwrap();
            let mode = fs::metadata(self.work().join(above)).unwrap().permissions();
            fs::set_permissions(origin, mode).unwrap();
        }
    }

    fn remove(&self, path: &str) {
        let path = self.upper().join(path);
        rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    fn opaque(&self, path: &str) {
        let path = self.upper().join(path);
        fs::create_dir_all(&path).unwrap();
        rustix::fs::setxattr(path, "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    }

    fn commit(&self) -> Result<RunEffect, EffectError> {
        self.commit_observed(&|_| Ok(()))
    }

    fn commit_observed(
        &self,
        observer: &dyn Fn(CommitStep) -> io::Result<()>,
    ) -> Result<RunEffect, EffectError> {
        commit_effect_observed(&self.source(), &self.target(), observer)
    }

    fn picture(&self) -> BTreeMap<String, String> {
        picture(&self.work())
    }
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn picture(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                open.push(path.clone());
                format!("directory {:o}", metadata.mode() & 0o7777)
            } else if metadata.is_symlink() {
                format!("link {}", fs::read_link(&path).unwrap().display())
            } else {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                format!("{:o} {text}", metadata.mode() & 0o7777)
            };
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, content);
        }
    }
    found
}

const BEFORE: &[(&str, &str)] = &[
    ("a", "1"),
    ("keep", "same"),
    ("dir/b", "2"),
    ("dir/c", "3"),
    ("old/x", "x"),
    ("old/deep/y", "y"),
    ("swap/s", "s"),
    ("file", "becomes a directory"),
];

/// Every kind of change at once.
fn usual() -> Layered {
    let layered = Layered::with(BEFORE);
    let upper = layered.upper();
    write(&upper.join("a"), "changed");
    layered.merged("dir");
    write(&upper.join("dir/b"), "changed too");
    layered.remove("dir/c");
    write(&upper.join("dir/new"), "new");
    layered.remove("old");
    layered.opaque("swap");
    write(&upper.join("swap/other"), "other");
    layered.opaque("tree");
    for index in 0..20 {
        write(&upper.join(format!("tree/deep/{index}")), "leaf");
    }
    symlink("../outside", upper.join("tree/link")).unwrap();
    write(&upper.join("file/inside"), "in");
    fs::set_permissions(upper.join("a"), fs::Permissions::from_mode(0o4755)).unwrap();
    layered
}

fn assert_new(layered: &Layered, why: &str) {
    let after = layered.picture();
    let is = |path: &str, content: &str| {
        assert_eq!(
            after.get(path).map(String::as_str),
            Some(content),
            "{why}: {path}"
        );
    };
    is("a", "755 changed");
    is("dir/b", "644 changed too");
    is("dir/new", "644 new");
    is("swap/other", "644 other");
    is("tree/deep/19", "644 leaf");
    is("tree/link", "link ../outside");
    is("file/inside", "644 in");
    is("keep", "644 same");
    for gone in ["dir/c", "old", "old/deep/y", "swap/s"] {
        assert!(!after.contains_key(gone), "{why}: {gone}");
    }
    assert!(
        after.keys().all(|name| !name.contains(".interlock")),
        "{why}: {after:?}"
    );
}

#[test]
fn every_kind_of_change_arrives() {
    let layered = usual();
    let effect = describe_effect(&layered.source(), &layered.target(), EffectHashes::All).unwrap();
    assert_eq!(effect.count(EffectChange::Changed), 3);
    // old, old/x, old/deep, old/deep/y, dir/c, swap, swap/s
    assert_eq!(effect.count(EffectChange::Deleted), 7);
    let digest = effect.digest("plan");
    assert_ne!(digest, effect.digest("other plan"));
    let committed = layered.commit().unwrap();
    assert_eq!(committed.paths.len(), effect.paths.len());
    assert_new(&layered, "committed");
    // Once: the mark stays.
    assert!(layered.commit().unwrap().is_empty());
}

#[test]
fn what_is_no_file_is_never_committed() {
    let layered = Layered::with(&[("a", "1")]);
    let upper = layered.upper();
    for (name, kind) in [("pipe", FileType::Fifo), ("socket", FileType::Socket)] {
        rustix::fs::mknodat(CWD, upper.join(name), kind, Mode::from_raw_mode(0o644), 0).unwrap();
    }
    layered.opaque("tree");
    rustix::fs::mknodat(
        CWD,
        upper.join("tree/pipe"),
        FileType::Fifo,
        Mode::empty(),
        0,
    )
    .unwrap();
    write(&upper.join("tree/x"), "x");
    let mut skipped = layered.commit().unwrap().skipped;
    skipped.sort();
    assert_eq!(skipped, ["pipe", "socket", "tree/pipe"]);
    assert_eq!(
        layered.picture().into_keys().collect::<Vec<_>>(),
        ["a", "tree", "tree/x"]
    );
    let attributes = rustix::fs::getxattr(
        layered.work().join("tree"),
        "user.overlay.opaque",
        &mut [0u8; 8][..],
    );
    assert!(attributes.is_err(), "an attribute of the overlay arrived");
}

/// Whatever the host did since the start: its version stays, and nothing is committed.
#[test]
fn later_changes_of_the_host_are_conflicts() {
    type HostChange = fn(&Path);
    let cases: &[(&str, HostChange, &str)] = &[
        ("changed", |work| write(&work.join("a"), "host"), "a"),
        (
            "touched again",
            |work| write(&work.join("dir/b"), "2"),
            "dir/b",
        ),
        (
            "replaced",
            |work| {
                write(&work.join("t"), "1");
                fs::rename(work.join("t"), work.join("a")).unwrap();
            },
            "a",
        ),
        (
            "added to what is removed",
            |work| write(&work.join("old/deep/new"), "n"),
            "old/deep",
        ),
        (
            "removed from it",
            |work| fs::remove_file(work.join("old/x")).unwrap(),
            "old",
        ),
        (
            "made what the run makes",
            |work| write(&work.join("tree/mine"), "m"),
            "tree",
        ),
        (
            "removed a directory",
            |work| fs::remove_dir_all(work.join("dir")).unwrap(),
            "dir",
        ),
        (
            "put a link in its place",
            |work| {
                fs::rename(work.join("dir"), work.join("moved")).unwrap();
                symlink("moved", work.join("dir")).unwrap();
            },
            "dir",
        ),
    ];
    for (what, change, path) in cases {
        let layered = usual();
        change(&layered.work());
        let before = layered.picture();
        let error = layered.commit().unwrap_err();
        assert_eq!(error.code(), "EFFECT_DRIFT", "{what}: {error}");
        let named = error
            .conflicts()
            .iter()
            .any(|named| named.starts_with(path));
        assert!(named, "{what}: {error}");
        assert_eq!(layered.picture(), before, "{what}");
    }
}

#[test]
fn another_workspace_under_the_same_name_is_a_conflict() {
    let layered = usual();
    let source = layered.source();
    let moved = layered.directory.path().join("moved");
    fs::rename(layered.work(), &moved).unwrap();
    fs::create_dir(layered.work()).unwrap();
    write(&layered.work().join("a"), "another");
    let error = commit_effect_observed(&source, &layered.target(), &|_| Ok(())).unwrap_err();
    assert_eq!(error.code(), "EFFECT_DRIFT");
    assert_eq!(layered.picture().len(), 1);
}

/// Between the comparison and the swap.
#[test]
fn changes_of_the_host_during_the_commit_stop_it() {
    type HostChange = fn(&Path);
    let cases: &[(&str, HostChange, &str)] = &[
        ("a file", |work| write(&work.join("a"), "host"), "a"),
        (
            "a removed file",
            |work| write(&work.join("dir/c"), "host"),
            "dir/c",
        ),
        (
            "a removed directory",
            |work| write(&work.join("old/deep/y"), "host"),
            "old/deep/y",
        ),
        (
            "a new name",
            |work| write(&work.join("tree"), "host"),
            "tree",
        ),
    ];
    for (what, change, path) in cases {
        let layered = usual();
        let is_changed = Cell::new(false);
        let observer = |step: CommitStep| {
            if step == CommitStep::Staged && !is_changed.replace(true) {
                change(&layered.work());
            }
            Ok(())
        };
        let error = layered.commit_observed(&observer).unwrap_err();
        assert_eq!(error.code(), "EFFECT_DRIFT", "{what}: {error}");
        let after = layered.picture();
        assert_eq!(after[*path], "644 host", "{what}");
        assert_eq!(after["keep"], "644 same", "{what}");
        let is_new = |name: &&str| after.contains_key(*name);
        assert!(
            !["dir/new", "file/inside", "swap/other"].iter().any(is_new),
            "{what}: {after:?}"
        );
        assert!(
            after.keys().all(|name| !name.contains(".interlock")),
            "{what}: {after:?}"
        );
    }
}

/// A link that is put in place of a directory during the commit leads nowhere.
#[test]
fn a_link_in_a_parent_is_not_followed() {
    let layered = usual();
    let outside = layered.directory.path().join("outside");
    write(&outside.join("b"), "outside");
    write(&outside.join("c"), "outside");
    let (work, is_swapped) = (layered.work(), Cell::new(false));
    let observer = |step: CommitStep| {
        if step == CommitStep::JournalWritten && !is_swapped.replace(true) {
            fs::rename(work.join("dir"), work.join("away")).unwrap();
            symlink(&outside, work.join("dir")).unwrap();
        }
        Ok(())
    };
    let _ = layered.commit_observed(&observer);
    assert_eq!(
        picture(&outside),
        BTreeMap::from([
            ("b".to_owned(), "644 outside".to_owned()),
            ("c".to_owned(), "644 outside".to_owned())
        ])
    );
}

const CHILD: &str = "INTERLOCK_EFFECT_TEST_CHILD";

/// Runs in a child process of this test binary, and kills itself at the given step. Does nothing in a normal test run.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else {
        return;
    };
    let orders: Vec<&str> = orders.split('|').collect();
    let directory = PathBuf::from(orders[0]);
    let root = directory.join("work");
    let found = fs::metadata(&root).unwrap();
    let source = EffectSource {
        upper: directory.join("upper"),
        committed: directory.join("committed"),
        root,
        device: found.dev(),
        inode: found.ino(),
        started_ns: orders[1].parse().unwrap(),
        clock_ahead_ns: i64::MIN / 2,
        owner: None,
    };
    let target = EffectTarget {
        journal_dir: directory.join("journal"),
        reserved: ReservedPaths::default(),
    };
    let left = Cell::new(orders[2].parse::<usize>().unwrap());
    let stop = |_: CommitStep| {
        left.set(left.get().wrapping_sub(1));
        if left.get() == 0 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        Ok(())
    };
    commit_effect_observed(&source, &target, &stop).unwrap();
}

fn commit_in_child(layered: &Layered, steps: usize) -> Command {
    let _ = layered.target();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let directory = fs::canonicalize(layered.directory.path()).unwrap();
    command
        .args(["--exact", "effects::child", "--nocapture"])
        .env(
            CHILD,
            format!("{}|{}|{steps}", directory.display(), layered.started_ns),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Old or new as a whole, and going on brings the rest.
fn assert_whole(layered: &Layered, before: &BTreeMap<String, String>, why: &str) -> bool {
    let report = recover(&layered.target().journal_dir).unwrap();
    assert!(report.failed.is_empty(), "{why}: {report:?}");
    let conflicts = report.recovered.iter().flat_map(|one| &one.conflicts);
    assert_eq!(conflicts.count(), 0, "{why}: {report:?}");
    let is_committed = layered.source().committed.exists();
    if is_committed {
        assert_new(layered, why);
        assert!(layered.commit().unwrap().is_empty(), "{why}");
    } else {
        assert_eq!(&layered.picture(), before, "{why}");
    }
    is_committed
}

#[test]
fn a_kill_at_any_step_leaves_all_old_or_all_new() {
    let (mut undone, mut finished) = (0, 0);
    for steps in 1.. {
        let layered = usual();
        let before = layered.picture();
        let status = commit_in_child(&layered, steps).status().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}");
        if assert_whole(&layered, &before, &format!("killed at step {steps}")) {
            finished += 1;
        } else {
            undone += 1;
        }
        if status.success() {
            break;
        }
    }
    // A journal, six copies, eight swaps, one sync; then the mark, eight to clean, the end.
    assert!(
        undone >= 14 && finished >= 8,
        "{undone} undone, {finished} finished"
    );
}

/// At any moment, not only between steps. More rounds: `INTERLOCK_EFFECT_ROUNDS`.
#[test]
fn a_kill_at_any_moment_leaves_all_old_or_all_new() {
    let rounds: u64 = std::env::var("INTERLOCK_EFFECT_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(4);
    for round in 0..rounds {
        let layered = usual();
        for index in 0..300 {
            write(&layered.upper().join(format!("tree/more/{index}")), "more");
        }
        let before = layered.picture();
        let mut child = commit_in_child(&layered, usize::MAX).spawn().unwrap();
        // Spread over the time that a commit takes.
        std::thread::sleep(Duration::from_micros(2_000 + (round * 7_919) % 60_000));
        let _ = child.kill();
        child.wait().unwrap();
        assert_whole(&layered, &before, &format!("round {round}"));
    }
}
