//! Whatever is swapped between the check and the start, by force at the worst moment or blindly
//! thousands of times: what was not approved never runs as if it had been.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use interlock_engine::race_hook::{self, Moment};
use interlock_engine::{Run, Settings, StartError};
use interlock_plan::{
    BindingKind, BoundRole, FsResolver, PinnedFile, PlanAction, PlanBinding, PlanBoundFile,
    PlanProgram, RunPlan,
};
use interlock_programs::Resolver as _;
use rustix::fs::OFlags;
use tempfile::TempDir;
use testkit::plans::{Kept, begin_with, executable, pin, plan};

/// What an attempt came to.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Refused,
    Ran { stdout: Vec<u8>, race_free: bool },
}

fn attempt(plan: &RunPlan) -> Came {
    came(begin_with(plan, &Settings::default()))
}

fn came(begun: Result<(Run, Kept), StartError>) -> Came {
    match begun {
        Err(StartError::Drift(_) | StartError::Execute { .. }) => Came::Refused,
        Err(error) => panic!("{error}"),
        Ok((run, kept)) => {
            run.wait();
            Came::Ran {
                stdout: kept.get().stdout,
                race_free: run.is_race_free(),
            }
        }
    }
}

/// Does `swap` once, at `moment` of the next start in this thread.
fn attempt_while(plan: &RunPlan, moment: Moment, swap: impl Fn() + 'static) -> Came {
    let reached = Rc::new(Cell::new(false));
    let seen = Rc::clone(&reached);
    race_hook::set(move |now| {
        if now == moment && !seen.replace(true) {
            swap();
        }
    });
    let came = attempt(plan);
    race_hook::clear();
    assert!(reached.get(), "the start never came to {moment:?}");
    came
}

const MOMENTS: [Moment; 2] = [Moment::FilesAreOpen, Moment::LastCheckIsOver];

/// `cat`, alone or with something behind it: native programs that differ.
fn native(with: &[u8]) -> Vec<u8> {
    let cat = fs::read(pin("cat", "/").canonical).unwrap();
    [&cat, with].concat()
}

/// Runs `tool`, a copy of `cat`, and has it print the file that it was started from.
fn native_plan(tool: PinnedFile, directory: &Path) -> RunPlan {
    let mut plan = plan("cat /proc/self/exe", directory);
    let PlanProgram::Direct { pipelines } = &mut plan.program else {
        panic!()
    };
    let PlanAction::Execute { executable, .. } = &mut pipelines[0].stages[0].action else {
        panic!()
    };
    *executable = tool;
    plan
}

fn two_natives(directory: &Path) -> RunPlan {
    executable(&directory.join("tool"), &native(b""));
    executable(&directory.join("other"), &native(b"unapproved"));
    native_plan(pin("./tool", directory.to_str().unwrap()), directory)
}

/// Writes over a file in place, without waiting for the holder of a lease.
fn overwrite(path: &Path, with: &Path) -> io::Result<()> {
    let content = fs::read(with)?;
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut file = OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    file.write_all(&content)?;
    file.set_len(content.len() as u64)
}

type Swap = fn(&Path);

/// Each leaves other content where `name` was.
const SWAPS: [(&str, Swap); 4] = [
    ("another file is renamed over it", |tool| {
        fs::rename(tool.with_file_name("other"), tool).unwrap();
    }),
    ("it is written to in place", |tool| {
        // May be refused.
        let _ = overwrite(tool, &tool.with_file_name("other"));
    }),
    ("a link to another file takes its place", |tool| {
        fs::remove_file(tool).unwrap();
        symlink("other", tool).unwrap();
    }),
    ("another directory takes the place of its own", |tool| {
        let directory = tool.parent().unwrap();
        let aside = directory.with_extension("aside");
        fs::rename(directory, &aside).unwrap();
        fs::create_dir(directory).unwrap();
        fs::copy(aside.join("other"), tool).unwrap();
    }),
];

#[test]
fn a_native_program_that_is_swapped_before_it_starts_is_refused_or_is_still_the_approved_one() {
    for moment in MOMENTS {
        for (what, swap) in SWAPS {
            let scratch = TempDir::new().unwrap();
            let work = scratch.path().join("work");
            fs::create_dir(&work).unwrap();
            let plan = two_natives(&work);
            let came = attempt_while(&plan, moment, move || swap(&work.join("tool")));
            let approved = Came::Ran {
                stdout: native(b""),
                race_free: true,
            };
            assert!(
                came == Came::Refused || came == approved,
                "{what}, {moment:?}"
            );
        }
    }
}

#[test]
fn a_native_program_is_not_started_while_a_process_can_write_to_it() {
    let scratch = TempDir::new().unwrap();
    let plan = two_natives(scratch.path());
    let tool = scratch.path().join("tool");
    let writer = OpenOptions::new().write(true).open(&tool).unwrap();
    let error = begin_with(&plan, &Settings::default())
        .map(|_| ())
        .unwrap_err();
    assert!(
        error.to_string().ends_with("it is being written to"),
        "{error}"
    );
    drop(writer);
    // A process that another test is about to start may hold the descriptor for a moment longer.
    let until = Instant::now() + Duration::from_secs(20);
    while !matches!(
        attempt(&plan),
        Came::Ran {
            race_free: true,
            ..
        }
    ) {
        assert!(Instant::now() < until, "it is never started without a race");
    }
    // And writers are kept away no longer than the start takes.
    overwrite(&tool, &scratch.path().join("other")).unwrap();
    assert_eq!(attempt(&plan), Came::Refused);
}

/// Writes to a file through a mapping that was read first. On a file system in memory this changes
/// none of its times, and no process has it open for writing afterwards.
#[allow(unsafe_code)]
fn patch_through_mapping(path: &Path, offset: usize) {
    use std::os::fd::AsRawFd as _;
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.unwrap();
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    assert!(offset < length);
    // SAFETY: a new mapping of a file that is longer than the offset; no process makes it shorter.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        let place = start.cast::<u8>().add(offset);
        let before = place.read_volatile();
        place.write_volatile(!before);
        assert_eq!(libc::munmap(start, length), 0);
    }
}

/// The same, when no process has the file open for writing any more: a process that another test
/// starts has all of this one's descriptors for a moment.
fn attempt_alone(plan: &RunPlan) -> Came {
    let began = Instant::now();
    loop {
        match begin_with(plan, &Settings::default()) {
            Err(StartError::Execute { .. }) if began.elapsed() < testkit::plans::PATIENCE => {
                std::thread::yield_now();
            }
            attempted => return came(attempted),
        }
    }
}

#[test]
fn a_program_in_memory_that_is_patched_without_a_trace_does_not_run() {
    let Ok(scratch) = TempDir::new_in("/dev/shm") else {
        println!("skipped: there is no /dev/shm");
        return;
    };
    // The approved one ends with something that can be altered without making it unusable.
    let approved = native(b"approved");
    let last = approved.len() - 1;
    let tool = scratch.path().join("tool");
    executable(&tool, &approved);
    let plan = native_plan(
        pin("./tool", scratch.path().to_str().unwrap()),
        scratch.path(),
    );
    let PlanAction::Execute { executable, .. } = (match &plan.program {
        PlanProgram::Direct { pipelines } => &pipelines[0].stages[0].action,
        _ => panic!(),
    }) else {
        panic!()
    };
    while interlock_plan::is_young(executable.ctime_ns) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let usual = Came::Ran {
        stdout: approved.clone(),
        race_free: true,
    };
    let forbidden = io::ErrorKind::PermissionDenied;
    let alone = std::process::Command::new(&tool).arg("/dev/null").status();
    if alone.is_err_and(|error| error.kind() == forbidden) {
        println!("skipped: nothing may be executed in /dev/shm");
        return;
    }
    // By now it is known, if ever.
    assert_eq!(attempt_alone(&plan), usual);
    assert_eq!(attempt_alone(&plan), usual);
    patch_through_mapping(&tool, last);
    executable.check_marks().expect("no time tells of it");
    assert_eq!(attempt_alone(&plan), Came::Refused, "between two runs");
    patch_through_mapping(&tool, last);
    assert_eq!(attempt_alone(&plan), usual, "as it was");
    let came = attempt_while(&plan, Moment::FilesAreOpen, move || {
        patch_through_mapping(&tool, last);
    });
    assert_eq!(came, Came::Refused, "after it was opened");
}

#[test]
fn a_working_directory_that_is_swapped_before_the_start_is_refused_or_still_the_approved_one() {
    let swaps: [(&str, Swap); 2] = [
        ("another directory", |work| {
            fs::rename(work, work.with_extension("aside")).unwrap();
            fs::create_dir(work).unwrap();
            fs::write(work.join("name"), "unapproved").unwrap();
        }),
        ("a link to another directory", |work| {
            fs::rename(work, work.with_extension("aside")).unwrap();
            let other = work.with_extension("other");
            fs::create_dir(&other).unwrap();
            fs::write(other.join("name"), "unapproved").unwrap();
            symlink(other, work).unwrap();
        }),
    ];
    for moment in MOMENTS {
        for (what, swap) in swaps {
            let scratch = TempDir::new().unwrap();
            let work = scratch.path().join("work");
            fs::create_dir(&work).unwrap();
            fs::write(work.join("name"), "approved").unwrap();
            let plan = plan("cat name", &work);
            let came = attempt_while(&plan, moment, move || swap(&work));
            let approved = Came::Ran {
                stdout: b"approved".to_vec(),
                race_free: true,
            };
            assert!(
                came == Came::Refused || came == approved,
                "{what}, {moment:?}: {came:?}"
            );
        }
    }
}

/// `sub` with the approved file, and `other` with another one.
fn two_directories(work: &Path) {
    for (directory, content) in [("sub", "approved"), ("other", "unapproved")] {
        fs::create_dir(work.join(directory)).unwrap();
        fs::write(work.join(directory).join("name"), content).unwrap();
    }
}

#[test]
fn a_directory_of_a_cd_that_is_swapped_before_the_start_is_refused() {
    let swaps: [(&str, Swap); 2] = [
        ("another directory", |work| {
            fs::rename(work.join("other"), work.join("sub")).unwrap();
        }),
        ("a link to another directory", |work| {
            symlink("other", work.join("sub")).unwrap();
        }),
    ];
    for (what, swap) in swaps {
        let scratch = TempDir::new().unwrap();
        let work = scratch.path().to_path_buf();
        two_directories(&work);
        let plan = plan("cd sub && cat name", &work);
        let came = attempt_while(&plan, Moment::FilesAreOpen, move || {
            fs::rename(work.join("sub"), work.join("aside")).unwrap();
            swap(&work);
        });
        assert_eq!(came, Came::Refused, "{what}");
    }
}

/// The line itself, or anything beside it, exchanges the directory while the line runs.
#[test]
fn a_directory_of_a_cd_is_entered_by_its_descriptor_whatever_its_path_leads_to() {
    let scratch = TempDir::new().unwrap();
    let work = scratch.path();
    two_directories(work);
    let line = "cd sub && mv ../sub ../aside && mv ../other ../sub && test -f name && cat name";
    let came = attempt(&plan(line, work));
    let Came::Ran { stdout, .. } = came else {
        panic!("{came:?}")
    };
    assert_eq!(stdout, b"approved");
}

/// A plan that leaves a directory out opens nothing by its path.
#[test]
fn a_directory_that_is_not_in_the_plan_is_not_entered() {
    let scratch = TempDir::new().unwrap();
    let work = scratch.path();
    two_directories(work);
    let mut plan = plan("cd sub && cat name", work);
    plan.directories.clear();
    let came = attempt(&plan);
    let nothing = |stdout: &[u8]| stdout.is_empty();
    assert!(
        matches!(&came, Came::Ran { stdout, .. } if nothing(stdout)) || came == Came::Refused,
        "{came:?}"
    );
}

/// `sh FILE`, approved with this file.
fn script_plan(script: &PinnedFile, cwd: &Path) -> RunPlan {
    let bound = |role, file, operand| PlanBoundFile {
        role,
        file,
        operand,
        looked_up: None,
    };
    let mut plan = plan(&format!("sh {}", script.found), cwd);
    plan.binding = PlanBinding {
        kind: BindingKind::File,
        files: vec![
            bound(BoundRole::Script, script.clone(), Some(1)),
            bound(BoundRole::Interpreter, pin("sh", "/"), None),
        ],
        absent: Vec::new(),
    };
    plan
}

/// As it is now, unless it changes just then.
fn pin_content(path: &Path) -> Option<PinnedFile> {
    let resolver = FsResolver::from_path_value("", None);
    let found = resolver.file(path.to_str().unwrap(), "/");
    PinnedFile::with_content(found.found()?).ok()
}

#[test]
fn a_script_that_is_swapped_before_it_starts_is_refused_or_the_approved_one_or_not_race_free() {
    for moment in MOMENTS {
        for (what, swap) in SWAPS {
            let scratch = TempDir::new().unwrap();
            let work = scratch.path().join("work");
            fs::create_dir(&work).unwrap();
            let script = work.join("tool");
            fs::write(&script, "printf approved").unwrap();
            fs::write(work.join("other"), "printf unapproved").unwrap();
            let plan = script_plan(&pin_content(&script).unwrap(), &work);
            match attempt_while(&plan, moment, move || swap(&script)) {
                Came::Refused => {}
                Came::Ran { stdout, race_free } => assert!(
                    stdout == b"approved" || !race_free,
                    "{what}, {moment:?}: {}",
                    String::from_utf8_lossy(&stdout)
                ),
            }
        }
    }
}

fn flips() -> usize {
    let asked = std::env::var("INTERLOCK_TEST_FLIPS").ok();
    asked.map_or(10_000, |number| number.parse().unwrap())
}

/// So many flips in a row, beginning at any time of an attempt.
const BURST: usize = 25;

/// No attempt takes longer on a machine that is not busy.
const LONGEST_DELAY: Duration = Duration::from_millis(3);

/// Flips in a thread of its own while attempts are made, until it has flipped often enough: each
/// attempt is met by a burst somewhere in its course, or a little later.
fn flip_while(flip: impl Fn(usize) + Send + 'static, mut attempt: impl FnMut()) {
    let (begun, begins) = sync_channel::<()>(0);
    let flipper = std::thread::spawn(move || {
        let mut number = 0;
        let mut random: u32 = 1;
        while number < flips() && begins.recv().is_ok() {
            // Any sequence without a pattern will do.
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let until = Instant::now() + LONGEST_DELAY * (random >> 24) / 256;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            for _ in 0..BURST {
                flip(number);
                number += 1;
            }
        }
    });
    while begun.send(()).is_ok() {
        attempt();
    }
    flipper.join().unwrap();
}

/// A name that leads now to one file and now to another, in every way.
fn flip(work: &Path, number: usize) {
    let tool = work.join("tool");
    match number / 2 % 3 {
        0 => drop(overwrite(&tool, &work.join(["one", "other"][number % 2]))),
        1 => exchange(&tool, &work.join("twin")),
        _ => exchange(&tool, &work.join("link")),
    }
}

fn exchange(tool: &Path, other: &Path) {
    let aside = tool.with_file_name("aside");
    fs::rename(tool, &aside).unwrap();
    fs::rename(other, tool).unwrap();
    fs::rename(&aside, other).unwrap();
}

fn two_files(work: &Path, one: &[u8], other: &[u8]) {
    for (name, content) in [
        ("one", one),
        ("other", other),
        ("tool", one),
        ("twin", other),
    ] {
        executable(&work.join(name), content);
    }
    symlink("other", work.join("link")).unwrap();
}

/// How many attempts ran, and how many of those did not run what was pinned.
#[derive(Debug, Default)]
struct Count {
    ran: usize,
    race_free: usize,
    unapproved: usize,
}

impl Count {
    fn add(&mut self, came: Came, approved: &[u8]) {
        if let Came::Ran { stdout, race_free } = came {
            let unapproved = stdout != approved;
            assert!(
                !(race_free && unapproved),
                "it says race-free, and printed {}",
                String::from_utf8_lossy(&stdout[..stdout.len().min(100)])
            );
            self.ran += 1;
            self.race_free += usize::from(race_free);
            self.unapproved += usize::from(unapproved);
        }
    }
}

#[test]
fn flipped_blindly_ten_thousand_times_no_native_program_runs_that_was_not_approved() {
    let scratch = TempDir::new().unwrap();
    let work = scratch.path().to_owned();
    let (one, other) = (native(b""), native(b"other"));
    two_files(&work, &one, &other);
    let mut count = Count::default();
    let tool = work.join("tool");
    let flipped = work.clone();
    flip_while(
        move |number| flip(&flipped, number),
        || {
            let Some(pinned) = pin_content(&tool) else {
                return;
            };
            // A file that is being written to is neither.
            let is_pinned = |content: &&&Vec<u8>| content.len() as u64 == pinned.size;
            let Some(approved) = [&one, &other].iter().find(is_pinned).copied() else {
                return;
            };
            count.add(attempt(&native_plan(pinned, &work)), approved);
        },
    );
    eprintln!("{count:?}");
    assert!(count.ran > 0 && count.ran == count.race_free, "{count:?}");
    assert_eq!(count.unapproved, 0, "{count:?}");
}

#[test]
fn flipped_blindly_ten_thousand_times_no_script_that_was_not_approved_runs_as_race_free() {
    let scratch = TempDir::new().unwrap();
    let work = scratch.path().to_owned();
    two_files(&work, b"printf one", b"printf 'other one'");
    let mut count = Count::default();
    let tool = work.join("tool");
    let flipped = work.clone();
    flip_while(
        move |number| flip(&flipped, number),
        || {
            let Some(pinned) = pin_content(&tool) else {
                return;
            };
            let approved = printed(&pinned);
            count.add(attempt(&script_plan(&pinned, &work)), approved);
        },
    );
    eprintln!("{count:?}");
    assert!(count.ran > 0, "{count:?}");
}

/// By the script that was pinned; an empty one while it was being written.
fn printed(pinned: &PinnedFile) -> &'static [u8] {
    match pinned.size {
        0 => b"",
        10 => b"one",
        _ => b"other one",
    }
}

#[test]
fn all_this_holds_for_an_ordinary_user_too() {
    testkit::plans::run_again_as_ordinary_user(
        module_path!(),
        "all_this_holds_for_an_ordinary_user_too",
    );
}
