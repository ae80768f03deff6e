//! A process killed while it patches: afterwards all files are old, or all are new.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::common::{Place, Tree};
use interlock_patch::observed::{CommitStep, apply_observed, recover_observed};
use interlock_patch::{ApplyOptions, Patch, RecoveryOutcome, ReservedPaths, apply, recover};

const BEFORE: &[(&str, &str)] = &[
    ("a", "1\n2\n"),
    ("b", "old\n"),
    ("dir/c", "gone\n"),
    ("dir/d", "move me\n"),
    ("keep", "same\n"),
];
const OPERATIONS: &str = "*** Update File: a\n@@\n-2\n+3\n*** Add File: new/deep/file\n+hello\n*** Delete File: dir/c\n\
    *** Update File: dir/d\n*** Move to: moved/d\n@@\n-move me\n+moved\n*** Delete File: b\n*** Add File: b\n+new";
const AFTER: &[(&str, &str)] = &[
    ("a", "1\n3\n"),
    ("b", "new\n"),
    ("moved/d", "moved\n"),
    ("new/deep/file", "hello\n"),
    ("keep", "same\n"),
];

/// What the child process below does, and where it stops.
const CHILD: &str = "INTERLOCK_PATCH_TEST_CHILD";

/// Runs in a child process of this test binary, and kills itself at the given step. Does nothing in a normal test run.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else {
        return;
    };
    let orders: Vec<&str> = orders.split('|').collect();
    let options = ApplyOptions {
        root: orders[1].into(),
        workspace_only: true,
        journal_dir: orders[2].into(),
        reserved: ReservedPaths::default(),
    };
    let left = Cell::new(orders[3].parse::<usize>().unwrap());
    let stop = |_: CommitStep| {
        left.set(left.get() - 1);
        if left.get() == 0 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        Ok(())
    };
    match orders[0] {
        "apply" => {
            apply_observed(&crate::common::patch(OPERATIONS), &options, &stop).unwrap();
        }
        "recover" => {
            recover_observed(&options.journal_dir, &stop).unwrap();
        }
        "flip" => {
            println!("ready");
            loop {
                apply(&flip(FILES, "one", "two"), &options).unwrap();
                apply(&flip(FILES, "two", "one"), &options).unwrap();
            }
        }
        other => panic!("unknown orders {other}"),
    }
}

fn command(what: &str, options: &ApplyOptions, steps: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let (root, journal) = (options.root.display(), options.journal_dir.display());
    command
        .args(["--exact", "crash::child", "--nocapture"])
        .env(CHILD, format!("{what}|{root}|{journal}|{steps}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn run(what: &str, options: &ApplyOptions, steps: usize) -> ExitStatus {
    command(what, options, steps).status().unwrap()
}

fn is_killed(status: ExitStatus) -> bool {
    assert!(
        status.success() || status.signal() == Some(9),
        "the child failed: {status}"
    );
    status.signal() == Some(9)
}

fn assert_old(place: &Place, why: &str) {
    assert_eq!(place.tree(), crate::common::tree(BEFORE), "{why}");
    assert_eq!(crate::common::directories(&place.root()), ["dir"], "{why}");
    place.assert_nothing_left_over();
}

fn assert_new(place: &Place, why: &str) {
    assert_eq!(place.tree(), crate::common::tree(AFTER), "{why}");
    place.assert_nothing_left_over();
}

#[test]
fn a_kill_at_any_step_leaves_all_old_or_all_new_after_recovery() {
    let (mut undone, mut finished) = (0, 0);
    for steps in 1.. {
        let place = Place::with(BEFORE);
        if !is_killed(run("apply", &place.options(), steps)) {
            assert_new(&place, "not stopped");
            break;
        }
        let report = recover(&place.options().journal_dir).unwrap();
        assert!(report.failed.is_empty(), "{report:?}");
        match report.recovered.as_slice() {
            [recovered] if recovered.outcome == RecoveryOutcome::Undone => {
                assert!(recovered.conflicts.is_empty(), "{report:?}");
                assert_old(&place, &format!("killed at step {steps}"));
                undone += 1;
            }
            [_] => {
                assert_new(&place, &format!("killed at step {steps}"));
                finished += 1;
            }
            [] => assert_new(&place, &format!("killed at step {steps}, after the end")),
            more => panic!("{more:?}"),
        }
    }
    // One journal, four new directories, five new files, six swaps, one sync; then the mark, six to clean.
    assert!(
        undone >= 15 && finished >= 6,
        "{undone} undone, {finished} finished"
    );
}

#[test]
fn a_kill_during_recovery_is_recovered_from() {
    for steps in 1.. {
        let mut last = 0;
        for recovery_steps in 1.. {
            let place = Place::with(BEFORE);
            if !is_killed(run("apply", &place.options(), steps)) {
                return;
            }
            let stopped = is_killed(run("recover", &place.options(), recovery_steps));
            recover(&place.options().journal_dir).unwrap();
            let why = format!("killed at step {steps}, recovery at {recovery_steps}");
            if place.tree() == crate::common::tree(AFTER) {
                assert_new(&place, &why);
            } else {
                assert_old(&place, &why);
            }
            last = recovery_steps;
            if !stopped {
                break;
            }
        }
        assert!(last > 0);
    }
}

#[test]
fn the_next_patch_recovers_by_itself() {
    for steps in [1, 8, 14, 18, 20] {
        let place = Place::with(BEFORE);
        assert!(is_killed(run("apply", &place.options(), steps)));
        apply(
            &crate::common::patch("*** Update File: keep\n@@\n-same\n+other"),
            &place.options(),
        )
        .unwrap();
        let mut tree = place.tree();
        assert_eq!(
            tree.insert("keep".to_owned(), b"same\n".to_vec()),
            Some(b"other\n".to_vec())
        );
        assert!(
            tree == crate::common::tree(BEFORE) || tree == crate::common::tree(AFTER),
            "step {steps}: {tree:?}"
        );
        place.assert_nothing_left_over();
    }
}

#[test]
fn a_failure_at_any_step_undoes_the_patch_at_once() {
    let (mut undone, mut finished) = (0, 0);
    for fail_at in 1.. {
        let place = Place::with(BEFORE);
        let count = Cell::new(0);
        let fail = |_: CommitStep| {
            count.set(count.get() + 1);
            if count.get() == fail_at {
                Err(io::Error::other("injected"))
            } else {
                Ok(())
            }
        };
        let outcome = apply_observed(&crate::common::patch(OPERATIONS), &place.options(), &fail);
        if count.get() < fail_at {
            break;
        }
        if outcome.is_ok() {
            // Only cleaning up failed; what is left is removed by the next recovery.
            recover(&place.options().journal_dir).unwrap();
            assert_new(&place, &format!("failed at {fail_at}"));
            finished += 1;
        } else {
            assert_old(&place, &format!("failed at {fail_at}"));
            undone += 1;
        }
    }
    assert!(
        undone >= 15 && finished >= 6,
        "{undone} undone, {finished} finished"
    );
}

const FILES: usize = 60;

fn flip(files: usize, from: &str, to: &str) -> Patch {
    let updates = (0..files).map(|number| {
        let file = format!("d{}/f{number}", number % 7);
        format!("*** Update File: {file}\n@@\n-{from}\n+{to}\n")
    });
    let text = updates.collect::<Vec<_>>().concat();
    let text = format!("{text}*** Update File: is-{from}\n*** Move to: is-{to}");
    crate::common::patch(&text)
}

fn flipped(files: usize, word: &str) -> Tree {
    let mut tree: Tree = (0..files)
        .map(|number| {
            (
                format!("d{}/f{number}", number % 7),
                format!("{word}\n").into_bytes(),
            )
        })
        .collect();
    tree.insert(format!("is-{word}"), b"x".to_vec());
    tree
}

#[test]
fn a_kill_at_a_random_moment_leaves_all_old_or_all_new_after_recovery() {
    let place = Place::with(&[]);
    crate::common::write(&place.root(), &flipped(FILES, "one"));
    for _ in 0..25 {
        let mut child = command("flip", &place.options(), 0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines
            .next()
            .expect("the child says that it is ready")
            .unwrap()
            .contains("ready")
        {}
        let random = uuid::Uuid::new_v4().as_u128() % 60_000;
        std::thread::sleep(Duration::from_micros(u64::try_from(random).unwrap()));
        child.kill().unwrap();
        assert!(is_killed(child.wait().unwrap()));
        let report = recover(&place.options().journal_dir).unwrap();
        assert!(report.failed.is_empty(), "{report:?}");
        assert!(
            report
                .recovered
                .iter()
                .all(|recovered| recovered.conflicts.is_empty()),
            "{report:?}"
        );
        let tree = place.tree();
        let whole = ["one", "two"]
            .iter()
            .any(|word| tree == flipped(FILES, word));
        assert!(whole, "{tree:?}");
        place.assert_nothing_left_over();
        if tree.contains_key("is-two") {
            apply(&flip(FILES, "two", "one"), &place.options()).unwrap();
        }
    }
}

/// The step number right after the last swap: every file is new, nothing is committed.
fn killed_before_commit(place: &Place) {
    let count = Cell::new(0);
    let scout = Place::with(BEFORE);
    let at_sync = Cell::new(0);
    apply_observed(
        &crate::common::patch(OPERATIONS),
        &scout.options(),
        &|step| {
            count.set(count.get() + 1);
            if step == CommitStep::Synced {
                at_sync.set(count.get());
            }
            Ok(())
        },
    )
    .unwrap();
    assert!(is_killed(run("apply", &place.options(), at_sync.get())));
}

#[test]
fn what_another_process_wrote_after_the_crash_is_not_lost() {
    let place = Place::with(BEFORE);
    killed_before_commit(&place);
    let root = place.root();
    fs::write(root.join("a"), "edited after the crash\n").unwrap();
    fs::write(root.join("dir/c"), "made again\n").unwrap();
    fs::write(root.join("new/deep/file"), "continued\n").unwrap();
    let report = recover(&place.options().journal_dir).unwrap();
    let conflicts = &report.recovered[0].conflicts;
    let kept = |name: &str| {
        let conflict = conflicts
            .iter()
            .find(|conflict| Path::new(&conflict.path) == root.join(name))
            .unwrap();
        conflict
            .kept
            .as_ref()
            .map(|path| fs::read_to_string(path).unwrap())
    };
    assert_eq!(
        fs::read_to_string(root.join("a")).unwrap(),
        "edited after the crash\n"
    );
    assert_eq!(kept("a").as_deref(), Some("1\n2\n"));
    assert_eq!(
        fs::read_to_string(root.join("dir/c")).unwrap(),
        "made again\n"
    );
    assert_eq!(kept("dir/c").as_deref(), Some("gone\n"));
    assert_eq!(
        fs::read_to_string(root.join("new/deep/file")).unwrap(),
        "continued\n"
    );
    assert_eq!(kept("new/deep/file"), None);
    assert_eq!(conflicts.len(), 3);
    assert_eq!(fs::read_to_string(root.join("b")).unwrap(), "old\n");
    assert_eq!(fs::read_to_string(root.join("dir/d")).unwrap(), "move me\n");
    assert_eq!(
        recover(&place.options().journal_dir).unwrap(),
        interlock_patch::RecoveryReport::default()
    );
}

#[test]
fn a_workspace_that_is_not_the_same_directory_is_not_touched() {
    let place = Place::with(BEFORE);
    killed_before_commit(&place);
    let away = place.outside();
    fs::rename(place.root(), &away).unwrap();
    assert_eq!(
        recover(&place.options().journal_dir).unwrap().failed.len(),
        1
    );
    fs::create_dir(place.root()).unwrap();
    assert_eq!(
        recover(&place.options().journal_dir).unwrap().failed.len(),
        1
    );
    let error = apply(
        &crate::common::patch("*** Add File: x\n+1"),
        &place.options(),
    )
    .unwrap_err();
    assert_eq!(error.code(), "PATCH_RECOVERY_NEEDED");
    fs::remove_dir(place.root()).unwrap();
    fs::rename(&away, place.root()).unwrap();
    assert_eq!(
        recover(&place.options().journal_dir)
            .unwrap()
            .recovered
            .len(),
        1
    );
    assert_old(&place, "the workspace is back");
}

#[test]
fn a_journal_that_cannot_be_read_stops_the_workspace_but_a_half_written_one_does_not() {
    let place = Place::with(BEFORE);
    killed_before_commit(&place);
    let journal_dir = place.options().journal_dir;
    let journal = fs::read_dir(&journal_dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "journal")
        })
        .unwrap();
    let text = fs::read(&journal).unwrap();
    let wrong: [&[u8]; 3] = [b"{\"version\":1}\n", b"", &text[..text.len() / 2]];
    for content in wrong {
        fs::write(&journal, content).unwrap();
        let report = recover(&journal_dir).unwrap();
        assert_eq!((report.recovered.len(), report.failed.len()), (0, 1));
    }
    // A commit mark that was only half written does not count.
    fs::write(&journal, [&text[..], b"com"].concat()).unwrap();
    fs::write(journal.with_extension("unfinished"), b"{").unwrap();
    let report = recover(&journal_dir).unwrap();
    assert_eq!(report.recovered[0].outcome, RecoveryOutcome::Undone);
    assert_old(&place, "recovered");
}
