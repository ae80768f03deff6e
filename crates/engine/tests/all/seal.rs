//! Scripts that others can write to, in directories that only root can change: the run sees the
//! content that was approved, whatever is written meanwhile.
//!
//! Only root can make such a directory, so these tests are run by the last one, as an ordinary user
//! and with a directory that is seen by them alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use interlock_engine::race_hook::{self, Moment};
use interlock_engine::{RunStatus, Settings, StartError};
use interlock_plan::{
    BindingKind, BoundRole, FsResolver, PinnedFile, PlanBinding, PlanBoundFile, PtySize, RunPlan,
};
use interlock_programs::Resolver as _;
use tempfile::TempDir;
use testkit::plans::{begin_with, has, pin, plan};

/// Holds files that belong to this user, in a directory of root.
const PROTECTED: &str = "INTERLOCK_TEST_PROTECTED";

/// So many files are there; each test takes its own.
const FILES: u32 = 12;

/// A script of its own for each caller, with this content.
fn script(content: &str) -> Option<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Ok(protected) = std::env::var(PROTECTED) else {
        eprintln!("skipped: only root can make the directory that this needs");
        return None;
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < FILES);
    let path = Path::new(&protected).join(format!("script{number}"));
    write(&path, content);
    Some(path)
}

fn write(path: &Path, content: &str) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.set_len(content.len() as u64).unwrap();
}

/// A line, approved with these scripts and `sh`.
fn approved(line: &str, scripts: &[&Path], cwd: &Path) -> RunPlan {
    let bound = |role, file| PlanBoundFile {
        role,
        file,
        operand: None,
        looked_up: None,
    };
    let mut plan = plan(line, cwd);
    let scripts = scripts
        .iter()
        .map(|path| bound(BoundRole::Script, pin_content(path)));
    plan.binding = PlanBinding {
        kind: BindingKind::File,
        files: scripts
            .chain([bound(BoundRole::Interpreter, pin("sh", "/"))])
            .collect(),
        absent: Vec::new(),
    };
    plan
}

fn pin_content(path: &Path) -> PinnedFile {
    let resolver = FsResolver::from_path_value("", None);
    let found = resolver.file(path.to_str().unwrap(), "/");
    PinnedFile::with_content(found.found().unwrap()).unwrap()
}

/// Races must be excluded, or nothing runs.
fn strictly() -> Settings {
    Settings {
        require_race_free: true,
        ..Settings::default()
    }
}

fn run(plan: &RunPlan) -> (String, RunStatus) {
    let (run, kept) = begin_with(plan, &strictly()).unwrap_or_else(|error| panic!("{error}"));
    let outcome = run.wait();
    assert!(run.is_race_free());
    let streams = kept.get();
    let all = [streams.stdout, streams.stderr, streams.terminal].concat();
    (String::from_utf8(all).unwrap(), outcome.status)
}

fn run_while(plan: &RunPlan, swap: impl Fn() + 'static) -> (String, RunStatus) {
    race_hook::set(move |moment| {
        if moment == Moment::LastCheckIsOver {
            swap();
        }
    });
    let ran = run(plan);
    race_hook::clear();
    ran
}

#[test]
fn a_script_that_is_written_to_before_its_interpreter_reads_it_runs_as_approved() {
    let content = "#!/bin/sh\nprintf '%s approved ' \"$0\"; cat \"${0%/*}/neighbour\"";
    let Some(script) = script(content) else {
        return;
    };
    let (directory, name) = (script.parent().unwrap(), script.file_name().unwrap());
    let (path, name) = (script.display(), name.display());
    for (line, called) in [
        (format!("sh {path}"), path.to_string()),
        (format!("{path}"), path.to_string()),
        (format!("./{name}"), format!("./{name}")),
        (format!("true && sh ./{name}"), format!("./{name}")),
    ] {
        write(&script, content);
        let plan = approved(&line, &[&script], directory);
        let swapped = script.clone();
        let conducted = line.starts_with("true");
        let ran = if conducted {
            run(&plan)
        } else {
            run_while(&plan, move || write(&swapped, "echo unapproved"))
        };
        let expected = format!("{called} approved neighbour");
        assert_eq!(ran, (expected, RunStatus::Exited(0)), "{line}");
        // All other processes see what was written.
        let outside = fs::read_to_string(&script).unwrap();
        assert_eq!(outside == content, conducted, "{line}");
    }
}

#[test]
fn several_scripts_are_sealed_at_once() {
    let (Some(one), Some(two)) = (script("printf one"), script("printf two")) else {
        return;
    };
    let line = format!("sh {} && sh {}", one.display(), two.display());
    let plan = approved(&line, &[&one, &two], Path::new("/"));
    assert_eq!(run(&plan).0, "onetwo");
    let line = format!("sh {}", two.display());
    let plan = approved(&line, &[&one, &two], Path::new("/"));
    let ran = run_while(&plan, move || {
        write(&one, "echo unapproved");
        write(&two, "echo unapproved");
    });
    assert_eq!(ran.0, "two");
}

#[test]
fn a_run_cannot_alter_or_remove_what_covers_its_script() {
    let content = "exec 2>/dev/null
        echo changed >\"$0\" || printf 'no-write '
        umount \"$0\" || umount -l \"$0\" || printf 'no-umount '
        mount -o remount,rw \"$0\" || printf 'no-remount '
        mv \"$0\" \"$0.aside\" || printf 'no-rename '
        rm -f \"$0\" || printf 'no-remove '
        grep -c '^Cap\\(Inh\\|Prm\\|Eff\\|Amb\\).*0000000000000000$' /proc/self/status
        id -u; id -g; tail -n 1 \"$0\"
        #last";
    let Some(script) = script(content) else {
        return;
    };
    let plan = approved(
        &format!("sh {}", script.display()),
        &[&script],
        Path::new("/"),
    );
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let expected = format!(
        "no-write no-umount no-remount no-rename no-remove 4\n{}\n{}\n        #last",
        user.as_raw(),
        group.as_raw()
    );
    assert_eq!(run(&plan).0, expected);
    assert_eq!(fs::read_to_string(&script).unwrap(), content);
}

#[test]
fn a_sealed_run_has_its_terminal_its_directory_and_proc_and_this_process_is_as_before() {
    let text = "test -t 0 && test -t 1 && touch here && pwd && readlink /proc/self/ns/mnt";
    let Some(script) = script(text) else {
        return;
    };
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    let scratch = TempDir::new().unwrap();
    let mut plan = approved(
        &format!("sh {}", script.display()),
        &[&script],
        scratch.path(),
    );
    plan.pty = Some(PtySize {
        columns: 80,
        rows: 24,
    });
    let (shown, status) = run(&plan);
    assert_eq!(status, RunStatus::Exited(0), "{shown}");
    assert!(
        shown.starts_with(scratch.path().to_str().unwrap()),
        "{shown}"
    );
    assert!(scratch.path().join("here").exists());
    assert!(!shown.contains(own.to_str().unwrap()), "{shown}");
    assert_eq!(fs::read_link("/proc/self/ns/mnt").unwrap(), own);
    // Its own files in /proc would be root's otherwise.
    let status = fs::metadata("/proc/self/environ").unwrap();
    assert_eq!(
        std::os::unix::fs::MetadataExt::uid(&status),
        rustix::process::getuid().as_raw()
    );
}

#[test]
fn a_working_directory_that_is_swapped_is_refused() {
    let Some(script) = script("cat name") else {
        return;
    };
    let scratch = TempDir::new().unwrap();
    let work = scratch.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("name"), "approved").unwrap();
    let plan = approved(&format!("sh {}", script.display()), &[&script], &work);
    assert_eq!(run(&plan).0, "approved");
    race_hook::set(move |moment| {
        if moment == Moment::LastCheckIsOver {
            fs::rename(&work, work.with_extension("aside")).unwrap();
            fs::create_dir(&work).unwrap();
            fs::write(work.join("name"), "unapproved").unwrap();
        }
    });
    let error = begin_with(&plan, &strictly()).map(|_| ()).unwrap_err();
    race_hook::clear();
    assert!(
        error.to_string().ends_with("not what was checked any more"),
        "{error}"
    );
}

#[test]
fn what_only_root_can_change_needs_no_seal() {
    let Some(script) = script("") else {
        return;
    };
    let script = script.with_file_name("fixed");
    let plan = approved(
        &format!("sh {}", script.display()),
        &[&script],
        Path::new("/"),
    );
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    assert_eq!(run(&plan).0, format!("{}\n", own.display()));
}

#[test]
fn a_file_in_a_directory_that_can_change_is_not_sealed_and_not_race_free() {
    let scratch = TempDir::new().unwrap();
    let script = scratch.path().join("script");
    fs::write(&script, "readlink /proc/self/ns/mnt").unwrap();
    let plan = approved(
        &format!("sh {}", script.display()),
        &[&script],
        scratch.path(),
    );
    let error = begin_with(&plan, &strictly()).map(|_| ()).unwrap_err();
    assert!(
        matches!(error, StartError::RaceNotExcluded { .. }),
        "{error}"
    );
    let (run, kept) = begin_with(&plan, &Settings::default()).unwrap();
    run.wait();
    assert!(!run.is_race_free());
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    assert_eq!(kept.get().stdout, format!("{}\n", own.display()).as_bytes());
}

#[test]
fn flipped_blindly_ten_thousand_times_a_sealed_script_runs_as_approved_or_not_at_all() {
    let Some(script) = script("printf one") else {
        return;
    };
    let mut contents = BTreeMap::new();
    for word in ["two", "one"] {
        write(&script, &format!("printf {word}"));
        contents.insert(word.to_owned(), pin_content(&script).sha256.unwrap());
    }
    let asked = std::env::var("INTERLOCK_TEST_FLIPS").ok();
    let wanted: usize = asked.map_or(10_000, |number| number.parse().unwrap());
    let (over, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let flipper = std::thread::spawn({
        let (over, done, script) = (Arc::clone(&over), Arc::clone(&done), script.clone());
        move || {
            while !over.load(Ordering::Relaxed) {
                let number = done.fetch_add(1, Ordering::Relaxed);
                write(&script, ["printf two", "printf one"][number % 2]);
                // So that attempts come through between two of them.
                if number % 25 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        }
    });
    let mut ran = 0;
    while done.load(Ordering::Relaxed) < wanted || ran == 0 {
        let pinned = pin_content(&script);
        let line = format!("sh {}", script.display());
        let mut plan = approved(&line, &[&script], Path::new("/"));
        plan.binding.files[0].file = pinned.clone();
        match begin_with(&plan, &strictly()) {
            Err(StartError::Drift(_)) => {}
            Err(error) => panic!("{error}"),
            Ok((run, kept)) => {
                run.wait();
                assert!(run.is_race_free());
                let word = String::from_utf8(kept.get().stdout).unwrap();
                assert_eq!(pinned.sha256, contents.get(&word).cloned(), "{word}");
                ran += 1;
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    flipper.join().unwrap();
    eprintln!("{ran} ran");
}

#[test]
fn all_this_holds_for_an_ordinary_user_in_a_directory_of_root() {
    const THIS: &str = "all_this_holds_for_an_ordinary_user_in_a_directory_of_root";
    if !rustix::process::geteuid().is_root() || !has("setpriv") || !has("unshare") {
        return;
    }
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let mut unshare = Command::new("setpriv");
    unshare
        .args(user)
        .args(["unshare", "--user", "--mount", "true"]);
    if !unshare.output().unwrap().status.success() {
        eprintln!("skipped: there are no user namespaces for ordinary users");
        return;
    }
    if !Command::new("unshare")
        .args(["--mount", "true"])
        .output()
        .unwrap()
        .status
        .success()
    {
        eprintln!("skipped: not even root can mount here");
        return;
    }
    let scratch = TempDir::new().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = testkit::plans::copy_of_this_program(scratch.path());
    let prepare = "set -e
        mount -t tmpfs -o mode=0755 tmpfs /mnt
        cd /mnt; printf neighbour >neighbour; echo 'readlink /proc/self/ns/mnt' >fixed
        number=0
        while [ $number -lt $1 ]; do
            touch script$number; chmod 755 script$number; chown 65534:65534 script$number
            number=$((number + 1))
        done
        shift; exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", prepare, "sh", &FILES.to_string()])
        .arg(&program)
        .args(["--skip", THIS])
        .env(PROTECTED, "/mnt")
        .env_remove("TMPDIR")
        .current_dir("/")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !report.contains(" 0 passed"),
        "{report}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
