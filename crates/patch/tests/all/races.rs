//! Others at work in the same files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Place;
use interlock_patch::observed::{CommitStep, apply_observed};
use interlock_patch::{ApplyError, ApplyOptions, Conflict, apply};
use rustix::fs::{CWD, RenameFlags, renameat_with};

fn flip(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Ends the other thread, also when the test panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Applies patches while another thread exchanges two names as fast as it can. Returns the conflicts.
fn patch_while_flipping(
    one: &Path,
    other: &Path,
    options: &ApplyOptions,
    operations: impl Fn(usize) -> String,
    allowed: &[&str],
) -> Vec<Conflict> {
    let done = AtomicBool::new(false);
    let mut kept = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Always a pair, so that the names end as they began, and mostly are.
                flip(one, other);
                flip(one, other);
                (0..20).for_each(|_| std::thread::yield_now());
            }
        });
        let _done = Done(&done);
        let (mut applied, mut refused) = (0, 0);
        for number in 0..200 {
            match apply(&crate::common::patch(&operations(number)), options) {
                Ok(_) => applied += 1,
                Err(ApplyError::Conflict { conflicts, .. }) => kept.extend(conflicts),
                Err(error) => {
                    assert!(allowed.contains(&error.code()), "{error}");
                    refused += 1;
                }
            }
        }
        println!(
            "{applied} applied, {refused} refused, {} conflicts",
            kept.len()
        );
    });
    kept
}

const REFUSALS: [&str; 4] = [
    "PATCH_OUTSIDE_WORKSPACE",
    "PATCH_LINK",
    "PATCH_CHANGED",
    "PATCH_NOT_FOUND",
];

/// A workspace with `dir/counter`, and `link` to a directory outside that has a `counter` as well.
fn with_a_link_outside() -> Place {
    let place = Place::with(&[("dir/counter", "x\n")]);
    fs::create_dir(place.outside()).unwrap();
    fs::write(place.outside().join("counter"), "x\n").unwrap();
    symlink(place.outside(), place.root().join("link")).unwrap();
    place
}

fn assert_nothing_outside_changed(place: &Place) {
    assert_eq!(
        crate::common::read(&place.outside()),
        crate::common::tree(&[("counter", "x\n")])
    );
    assert_eq!(crate::common::directories(&place.outside()), [""; 0]);
}

fn update_and_add(number: usize) -> String {
    format!(
        "*** Update File: dir/counter\n@@\n-x\n+x\n+{number}\n*** Add File: dir/sub{number}/new\n+1"
    )
}

#[test]
fn a_directory_swapped_for_a_link_never_leads_a_write_outside() {
    let place = with_a_link_outside();
    let (real, link) = (place.root().join("dir"), place.root().join("link"));
    let conflicts = patch_while_flipping(&real, &link, &place.options(), update_and_add, &REFUSALS);
    assert_eq!(conflicts, []);
    assert_nothing_outside_changed(&place);
    place.assert_nothing_left_over();
    apply(
        &crate::common::patch(&update_and_add(1_000)),
        &place.options(),
    )
    .unwrap();
}

#[test]
fn a_directory_swapped_for_a_link_at_any_step_never_leads_a_write_outside() {
    for swap_at in 1.. {
        let place = with_a_link_outside();
        let (real, link) = (place.root().join("dir"), place.root().join("link"));
        let count = std::cell::Cell::new(0);
        let outcome = apply_observed(
            &crate::common::patch(&update_and_add(1)),
            &place.options(),
            &|_| {
                count.set(count.get() + 1);
                if count.get() == swap_at {
                    flip(&real, &link);
                }
                Ok(())
            },
        );
        assert_nothing_outside_changed(&place);
        place.assert_nothing_left_over();
        if count.get() < swap_at {
            break;
        }
        // The directory was checked before, and the patch went there, whatever its name is now.
        outcome.unwrap();
        assert_eq!(fs::read_to_string(link.join("counter")).unwrap(), "x\n1\n");
        assert_eq!(fs::read_to_string(link.join("sub1/new")).unwrap(), "1\n");
    }
}

#[test]
fn a_file_swapped_for_a_link_never_leads_a_write_outside() {
    let place = with_a_link_outside();
    let (file, link) = (
        place.root().join("dir/counter"),
        place.root().join("dir/link"),
    );
    symlink(place.outside().join("counter"), &link).unwrap();
    let update = |number| format!("*** Update File: dir/counter\n@@\n-x\n+x\n+{number}");
    let conflicts = patch_while_flipping(&file, &link, &place.options(), update, &REFUSALS);
    assert_nothing_outside_changed(&place);
    // Both names and what they hold can be exchanged in the very moment in which the patch
    // exchanges one of them with its own. Then the old file is not put back over the other
    // process's work, but kept and named.
    let mut expected: BTreeSet<String> = ["dir/counter", "dir/link", "link"]
        .map(str::to_owned)
        .into();
    for kept in conflicts
        .iter()
        .filter_map(|conflict| conflict.kept.as_ref())
    {
        let kept = Path::new(kept).strip_prefix(place.root()).unwrap();
        expected.insert(kept.to_str().unwrap().to_owned());
    }
    let names: BTreeSet<String> = place.tree().into_keys().collect();
    assert_eq!(names, expected, "all are still there, nothing else");
}

#[test]
fn a_file_that_changes_while_the_patch_is_applied_stops_it() {
    // when it happens, and what happens to the file that the patch changes last
    type Meddling = (&'static str, CommitStep, fn(&Path));
    let meddlings: [Meddling; 4] = [
        ("edited in place", CommitStep::JournalWritten, |path| {
            fs::write(path, "edited by hand\n").unwrap();
        }),
        ("replaced", CommitStep::Staged, |path| {
            fs::write(path.with_extension("tmp"), "edited by hand\n").unwrap();
            fs::rename(path.with_extension("tmp"), path).unwrap();
        }),
        ("removed", CommitStep::Staged, |path| {
            fs::remove_file(path).unwrap();
        }),
        ("replaced by a link", CommitStep::Staged, |path| {
            fs::remove_file(path).unwrap();
            symlink("first", path).unwrap();
        }),
    ];
    for (why, when, meddle) in meddlings {
        let place = Place::with(&[("first", "1\n"), ("last", "2\n"), ("third", "3\n")]);
        let patch = crate::common::patch(
            "*** Update File: first\n@@\n-1\n+one\n*** Delete File: third\n*** Update File: last\n@@\n-2\n+two",
        );
        let done = std::cell::Cell::new(false);
        let outcome = apply_observed(&patch, &place.options(), &|step| {
            if step == when && !done.replace(true) {
                meddle(&place.root().join("last"));
            }
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().code(), "PATCH_CHANGED", "{why}");
        let mut expected = crate::common::tree(&[("first", "1\n"), ("third", "3\n")]);
        match why {
            "removed" => {}
            "replaced by a link" => drop(expected.insert("last".to_owned(), b"-> first".to_vec())),
            _ => drop(expected.insert("last".to_owned(), b"edited by hand\n".to_vec())),
        }
        assert_eq!(place.tree(), expected, "{why}");
        place.assert_nothing_left_over();
    }
}

#[test]
fn a_file_that_appears_where_one_is_added_is_kept() {
    let place = Place::with(&[("first", "1\n")]);
    let patch =
        crate::common::patch("*** Update File: first\n@@\n-1\n+one\n*** Add File: new/file\n+mine");
    let theirs = place.root().join("new/file");
    let error = apply_observed(&patch, &place.options(), &|step| {
        if step == CommitStep::Staged && !theirs.exists() {
            fs::write(&theirs, "theirs\n").unwrap();
        }
        Ok(())
    })
    .unwrap_err();
    assert_eq!(error.code(), "PATCH_CHANGED");
    assert_eq!(
        place.tree(),
        crate::common::tree(&[("first", "1\n"), ("new/file", "theirs\n")])
    );
}

#[test]
fn patches_of_one_workspace_wait_for_each_other() {
    let place = Place::with(&[("log", "")]);
    let (threads, rounds) = (6, 8);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let options = place.options();
            scope.spawn(move || {
                for round in 0..rounds {
                    let text = format!("*** Update File: log\n@@\n+{thread}-{round}\n*** Add File: t{thread}/r{round}\n+x");
                    apply(&crate::common::patch(&text), &options).unwrap();
                }
            });
        }
    });
    let log = fs::read_to_string(place.root().join("log")).unwrap();
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..threads)
        .flat_map(|thread| (0..rounds).map(move |round| format!("{thread}-{round}")))
        .collect();
    expected.sort();
    assert_eq!(lines, expected);
    assert_eq!(place.tree().len(), 1 + threads * rounds);
    place.assert_nothing_left_over();
}
