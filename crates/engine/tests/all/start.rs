//! What must hold before anything runs, and what a program finds when it does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use interlock_engine::{
    AuthorizationKey, OpenedPlan, RunInputError, RunStatus, Settings, Signal, StartError, start,
};
use interlock_plan::{Drift, PlanAction, PlanProgram, PlanStdin, RunPlan};
use tempfile::TempDir;
use testkit::plans::{
    Kept, authorized, begin, begin_with, executable, has, key, plan, run, run_line, shell_plan,
};

fn refusal(plan: &RunPlan) -> StartError {
    match begin_with(plan, &Settings::default()) {
        Ok((run, _)) => panic!("it ran: {:?}", run.wait()),
        Err(error) => error,
    }
}

#[test]
fn nothing_runs_without_an_authorization_for_exactly_this_plan() {
    let scratch = TempDir::new().unwrap();
    let approved = plan("touch approved", scratch.path());
    let other = plan("touch other", scratch.path());
    let authorized_plan = authorized(&key(), &approved);
    let authorization = authorized_plan.authorization();
    let foreign = AuthorizationKey::from_bytes([1; 32]);
    let by_foreign = authorized(&foreign, &approved);
    let settings = Settings::default();
    let mut later = approved.clone();
    later.env.insert("A".to_owned(), "1".to_owned());
    let attempts = [
        (&other, key(), authorization),
        (&later, key(), authorization),
        (&approved, key(), by_foreign.authorization()),
        (&approved, foreign, authorization),
    ];
    for (plan, key, authorization) in attempts {
        let result = start(
            OpenedPlan::open(plan.clone()),
            authorization,
            &key,
            &settings,
            Kept::default(),
        );
        assert!(matches!(result, Err(StartError::NotAuthorized(_))));
    }
    // An altered stored authorization is refused.
    let mut stored = serde_json::to_value(authorization).unwrap();
    stored["digest"] = serde_json::to_value(other.digest()).unwrap();
    let altered = serde_json::from_value(stored).unwrap();
    let result = start(
        OpenedPlan::open(other),
        &altered,
        &key(),
        &settings,
        Kept::default(),
    );
    assert!(matches!(result, Err(StartError::NotAuthorized(_))));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    assert!(!format!("{:?}", key()).contains("42"));

    let run = start(
        OpenedPlan::open(approved),
        authorization,
        &key(),
        &settings,
        Kept::default(),
    )
    .unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert!(scratch.path().join("approved").exists());
}

#[test]
fn every_drift_of_a_pinned_file_is_refused() {
    type Change = fn(&std::path::Path);
    let changes: [(Change, &str); 5] = [
        (
            |tool| executable(tool, b"#!/bin/sh\nprintf b >ran\n"),
            "was changed",
        ),
        (|tool| fs::remove_file(tool).unwrap(), "is gone"),
        (
            |tool| {
                let copy = tool.with_extension("copy");
                fs::copy(tool, &copy).unwrap();
                fs::rename(copy, tool).unwrap();
            },
            "is another file now",
        ),
        (
            |tool| {
                let moved = tool.with_extension("moved");
                fs::rename(tool, &moved).unwrap();
                symlink(moved, tool).unwrap();
            },
            "leads to",
        ),
        (
            |tool| fs::set_permissions(tool, fs::Permissions::from_mode(0o644)).unwrap(),
            "was changed",
        ),
    ];
    for (change, expected) in changes {
        let scratch = TempDir::new().unwrap();
        let tool = scratch.path().join("tool");
        executable(&tool, b"#!/bin/sh\nprintf a >ran\n");
        // Far behind in the line, and in a group: it is checked before the first command runs.
        let plan = plan("touch first; sh -c './tool && true'", scratch.path());
        change(&tool);
        let error = refusal(&plan);
        assert!(matches!(error, StartError::Drift(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!scratch.path().join("first").exists());
        assert!(!scratch.path().join("ran").exists());
    }
}

#[test]
fn a_working_directory_that_changed_is_refused() {
    let scratch = TempDir::new().unwrap();
    let work = scratch.path().join("work");
    let at = |change: &dyn Fn()| {
        let _ = fs::remove_dir_all(&work);
        let _ = fs::remove_file(&work);
        fs::create_dir(&work).unwrap();
        let plan = plan("touch ran", &work);
        change();
        refusal(&plan)
    };
    let gone = at(&|| fs::remove_dir(&work).unwrap());
    assert!(matches!(gone, StartError::Drift(Drift::Gone(_))), "{gone}");
    let replaced = at(&|| {
        fs::rename(&work, scratch.path().join("old")).unwrap();
        fs::create_dir(&work).unwrap();
    });
    let is_replaced = matches!(replaced, StartError::Drift(Drift::Replaced(_)));
    assert!(is_replaced, "{replaced}");
    let file = at(&|| {
        fs::remove_dir(&work).unwrap();
        fs::write(&work, "").unwrap();
    });
    assert!(file.to_string().ends_with("not a directory"), "{file}");
    let elsewhere = at(&|| {
        fs::remove_dir(&work).unwrap();
        symlink("/tmp", &work).unwrap();
    });
    let is_moved = matches!(elsewhere, StartError::Drift(Drift::Moved { .. }));
    assert!(is_moved, "{elsewhere}");
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_in_words() {
    let scratch = TempDir::new().unwrap();
    let tool = scratch.path().join("tool");
    for (content, words) in [
        (&b"#!/nope/interpreter\n"[..], "no such file or directory"),
        (
            &b"\0\x01\x02\x03"[..],
            "not in a format that this system can run",
        ),
    ] {
        executable(&tool, content);
        for line in ["./tool", "./tool | cat", "./tool; true"] {
            let error = refusal(&plan(line, scratch.path()));
            assert!(
                matches!(error, StartError::Execute { .. }),
                "{line}: {error}"
            );
            assert!(error.to_string().ends_with(words), "{line}: {error}");
        }
    }
    let mut too_long = plan("true; cat", scratch.path());
    let PlanProgram::Direct { pipelines } = &mut too_long.program else {
        panic!()
    };
    pipelines.remove(0);
    too_long.env.insert("A".to_owned(), "x".repeat(4_000_000));
    let error = refusal(&too_long);
    assert!(error.to_string().contains("too long"), "{error}");
    let mut with_nul = plan("cat", scratch.path());
    with_nul.env.insert("A".to_owned(), "\0".to_owned());
    assert!(matches!(refusal(&with_nul), StartError::Invalid(_)));
}

#[test]
fn a_script_without_a_first_line_is_run_by_sh_and_knows_its_name() {
    let scratch = TempDir::new().unwrap();
    executable(
        &scratch.path().join("tool"),
        b"printf '%s-%s' \"$0\" \"$1\"\n",
    );
    executable(
        &scratch.path().join("script"),
        b"#!/bin/sh\nprintf '%s-%s' \"$0\" \"$1\"\n",
    );
    for name in ["./tool", "./script"] {
        let plan = plan(&format!("{name} 'a b'"), scratch.path());
        let (run, kept) = begin(&plan);
        assert_eq!(run.wait().status, RunStatus::Exited(0));
        let stdout = String::from_utf8(kept.get().stdout).unwrap();
        assert_eq!(stdout, format!("{name}-a b"));
        assert!(!run.is_race_free());
    }
    let (run, _) = begin(&plan("cat", scratch.path()));
    assert!(run.is_race_free());
}

#[test]
fn where_races_must_be_excluded_a_script_is_refused_before_anything_runs() {
    let scratch = TempDir::new().unwrap();
    executable(&scratch.path().join("script"), b"#!/bin/sh\n");
    executable(&scratch.path().join("tool"), b"exit 0\n");
    let settings = Settings {
        require_race_free: true,
        ..Settings::default()
    };
    let mut through_a_wrapper = plan("cat", scratch.path());
    let PlanProgram::Direct { pipelines } = &mut through_a_wrapper.program else {
        panic!()
    };
    let PlanAction::Execute { passes_on, .. } = &mut pipelines[0].stages[0].action else {
        panic!()
    };
    passes_on.push(testkit::plans::pin(
        "./tool",
        scratch.path().to_str().unwrap(),
    ));
    for plan in [
        plan("touch marker; ./script", scratch.path()),
        plan("./tool", scratch.path()),
        through_a_wrapper,
    ] {
        let error = begin_with(&plan, &settings).map(|_| ()).unwrap_err();
        let StartError::RaceNotExcluded { risk } = &error else {
            panic!("{}: {error}", plan.command)
        };
        let path = &risk.path;
        assert!(error.to_string().contains(path), "{error}");
        assert!(["script", "tool"].iter().any(|name| path.ends_with(name)));
        assert!(!scratch.path().join("marker").exists());
    }
    let (run, _) = begin_with(&plan("touch marker", scratch.path()), &settings).unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert!(run.is_race_free());
    assert!(scratch.path().join("marker").exists());
}

#[test]
fn a_program_finds_exactly_the_environment_of_the_plan() {
    let scratch = TempDir::new().unwrap();
    let mut plan = plan("B=own env", scratch.path());
    plan.env = [("A", "1"), ("B", "2")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    assert_eq!(run(&plan).stdout, "A=1\nB=own\n");
}

#[test]
fn a_program_finds_no_descriptor_but_its_three() {
    // One that this process was given without close-on-exec must not get through either.
    let leaky = rustix::io::dup(std::io::stderr()).unwrap();
    // `ls` has one more open: the directory itself.
    for line in [
        "ls -l /proc/self/fd",
        "ls -l /proc/self/fd | cat",
        "sh -c 'true; ls -l /proc/self/fd' | cat",
    ] {
        let ran = run_line(line);
        let numbers: Vec<&str> = ran
            .stdout
            .lines()
            .filter_map(|line| line.split(" -> ").next()?.rsplit(' ').next())
            .filter(|word| word.parse::<u32>().is_ok())
            .skip(1)
            .collect();
        assert_eq!(
            numbers,
            ["0", "1", "2", "3"][4 - numbers.len()..],
            "{}",
            ran.stdout
        );
        assert!(ran.stdout.contains("0 -> /dev/null"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("socket:"), "{}", ran.stdout);
    }
    drop(leaky);
}

#[test]
fn a_program_finds_signals_and_umask_as_a_login_would_give_them() {
    let ran = run_line("grep -E '^Sig(Blk|Ign)|^Umask' /proc/self/status");
    let zero = "0000000000000000";
    let expected = format!("Umask:\t0022\nSigBlk:\t{zero}\nSigIgn:\t{zero}\n");
    assert_eq!(ran.stdout, expected);
}

#[test]
fn a_program_leads_its_own_session_and_has_the_name_of_its_file() {
    let ran = run_line("cat /proc/self/stat");
    let fields: Vec<&str> = ran.stdout.split_ascii_whitespace().collect();
    let [pid, name, _, _, group, session, terminal, ..] = fields.as_slice() else {
        panic!("{fields:?}")
    };
    assert_eq!((group, session), (pid, pid));
    assert_eq!(*terminal, "0");
    if *name != "(cat)" {
        eprintln!("this kernel calls a program that is run from a descriptor {name}");
    }
}

#[test]
fn the_soft_limit_of_open_files_is_what_is_asked_for() {
    let scratch = TempDir::new().unwrap();
    let settings = Settings {
        open_files: Some(77),
        ..Settings::default()
    };
    let plan = shell_plan("sh", &[], "ulimit -n", scratch.path());
    let (run, kept) = begin_with(&plan, &settings).unwrap();
    run.wait();
    assert_eq!(kept.get().stdout, b"77\n");
}

#[test]
fn a_text_is_handed_to_the_shell_as_it_is() {
    let scratch = TempDir::new().unwrap();
    let text = "x='a  b'; for i in 1 2; do printf '%s|' \"$x\" \"$i\"; done; exit 5";
    for (shell, options) in [
        ("sh", &[][..]),
        ("dash", &[]),
        ("bash", &["--norc", "--noprofile"]),
        ("zsh", &["-f"]),
    ] {
        if has(shell) {
            let ran = run(&shell_plan(shell, options, text, scratch.path()));
            assert_eq!(ran.stdout, "a  b|1|a  b|2|", "{shell}");
            assert_eq!(ran.outcome.status, RunStatus::Exited(5), "{shell}");
        }
    }
    let ran = run(&shell_plan("sh", &[], "-x", scratch.path()));
    assert_eq!(ran.outcome.status, RunStatus::Exited(127), "not an option");
    let ran = run(&shell_plan("sh", &[], "kill -USR1 $$", scratch.path()));
    assert_eq!(
        ran.outcome.status,
        RunStatus::Signaled(Signal::USR1.as_raw())
    );
}

#[test]
fn input_comes_through_a_pipe_whole_and_ends_when_it_is_closed() {
    let scratch = TempDir::new().unwrap();
    let mut plan = plan("cat | cat", scratch.path());
    plan.stdin = PlanStdin::Pipe;
    let (run, kept) = begin(&plan);
    // More than any pipe holds.
    let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    for part in sent.chunks(300_000) {
        run.write_stdin(part).unwrap();
    }
    run.close_stdin().unwrap();
    assert_eq!(run.write_stdin(b"x"), Err(RunInputError::Closed));
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert!(kept.get().stdout == sent);
}

#[test]
fn unread_input_is_refused_at_some_point_and_never_waited_for() {
    let scratch = TempDir::new().unwrap();
    let mut plan = plan("sleep 600", scratch.path());
    plan.stdin = PlanStdin::Pipe;
    let (run, _) = begin(&plan);
    let part = vec![0; 1 << 20];
    let refused = (0..64).find_map(|_| run.write_stdin(&part).err());
    assert_eq!(refused, Some(RunInputError::Full));
    run.kill(Signal::KILL).unwrap();
    assert_eq!(run.write_stdin(b"x"), Err(RunInputError::Closed));

    let (run, _) = begin(&testkit::plans::plan("true", scratch.path()));
    assert_eq!(run.write_stdin(b"x"), Err(RunInputError::Closed));
}

#[test]
fn all_this_holds_for_an_ordinary_user_too() {
    testkit::plans::run_again_as_ordinary_user(
        module_path!(),
        "all_this_holds_for_an_ordinary_user_too",
    );
}
