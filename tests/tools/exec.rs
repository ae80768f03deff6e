//! `interlock exec`: what may run, what it gets, and what is said when it may not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use testkit::{Machine, finish};

/// Writes a marker, so that anything that ran left a trace.
const TOUCH: &str = "touch marker";

#[track_caller]
fn nothing_ran(machine: &Machine) {
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn an_entry_lets_a_program_run_and_a_miss_does_not() {
    let machine = Machine::new();
    machine.start();
    let run = machine.exec(TOUCH);
    run.refused(3, "APPROVAL_PENDING");
    nothing_ran(&machine);
    // The hint, pasted, makes it run.
    let hint = run.stderr.lines().find(|line| line.starts_with("hint: "));
    let hint = hint.unwrap_or_else(|| panic!("{run:#?}"));
    let at = hint.find("interlock ").unwrap();
    let pasted = machine.paste(&hint[at..]);
    assert_eq!(pasted.code, 0, "{pasted:#?}");
    let run = machine.exec(TOUCH);
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", "")
    );
    assert!(machine.work().join("marker").exists());
}

#[test]
fn nothing_of_a_line_runs_unless_all_of_it_may() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "touch"]);
    for text in [
        "touch marker; rm -r x",
        "touch marker && nothing-of-this-name",
        "touch marker | sort > out",
        "rm x || touch marker",
        "touch marker $(date)",
        "touch marker; exit",
    ] {
        let run = machine.exec(text);
        let code = if text.contains("nothing-of") {
            "APPROVAL_UNBOUND"
        } else {
            "APPROVAL_PENDING"
        };
        run.refused(3, code);
        assert!(run.stderr.contains("\nhint: "), "{text}: {run:#?}");
        nothing_ran(&machine);
    }
}

#[test]
fn a_refusal_without_a_remedy_leads_to_explain() {
    let machine = Machine::open();
    machine.know_agents(&["ops"]);
    let state = machine.state();
    let state = state.to_str().unwrap();
    // No hint pastes a value of this length.
    let long = format!("A=b {}", "c".repeat(300));
    let run = machine.run(&[
        "--state-dir",
        state,
        "exec",
        "--no-wait",
        "--agent",
        "ops",
        "--env",
        &long,
        "--",
        "touch 'x y'",
    ]);
    run.refused(3, "APPROVAL_PENDING");
    let line = run.stderr.lines().last().unwrap();
    let command = line
        .strip_prefix("hint: see the whole judgement: ")
        .unwrap();
    let pasted = machine.paste(command);
    assert_eq!(pasted.code, 0, "{command}: {pasted:#?}");
    assert!(
        pasted.stdout.starts_with("ask  touch 'x y'\n"),
        "{pasted:#?}"
    );
    let json = machine.run(&["exec", "--json", "--no-wait", "--", "touch marker > x"]);
    assert_eq!((json.code, json.stderr.as_str()), (3, ""));
    assert_eq!(json.json()["status"], "approval-pending");
    nothing_ran(&machine);
}

#[test]
fn denials_run_nothing() {
    let machine = Machine::open();
    let set = |text: &str| assert_eq!(machine.set_document(text).code, 0, "{text}");
    let denied = |arguments: &[&str], code: &str, says: &str| {
        let mut all = vec!["exec", "--no-wait"];
        all.extend(arguments);
        let run = machine.run(&all);
        run.refused(3, code);
        assert!(run.stderr.contains(says), "{arguments:?}: {run:#?}");
        nothing_ran(&machine);
    };
    for (key, value) in [
        ("LD_PRELOAD", "/x.so"),
        ("PATH", "/tmp"),
        ("BASH_ENV", "/x"),
        ("NODE_OPTIONS", "--require=/x"),
    ] {
        let pair = format!("{key}={value}");
        denied(&["--env", &pair, "--", TOUCH], "ENV_REJECTED", key);
    }
    denied(
        &["--ask", "always", "--", TOUCH],
        "APPROVAL_PENDING",
        "always",
    );
    set(r#"{ version: 1, defaults: { security: "deny" } }"#);
    denied(&["--", TOUCH], "EXEC_DENIED", "deny");
    set(r#"{ version: 1, defaults: { security: "full", ask: "off" },
        agents: { "*": { deny: [{ pattern: "touch", reason: "no marks here" }] } } }"#);
    denied(&["--", TOUCH], "EXEC_DENIED", "no marks here");
    denied(
        &["--", "true; sh -c 'touch marker'"],
        "EXEC_DENIED",
        "no marks here",
    );
    denied(&["--", "(touch marker)"], "EXEC_DENIED", "no marks here");
}

#[test]
fn the_tool_policy_of_the_agent_holds_for_exec() {
    let machine = Machine::open();
    for (config, agent, path) in [
        ("{ tools: { deny: ['exec'] } }", "main", "tools.deny"),
        (
            "{ tools: { deny: ['group:runtime'] } }",
            "main",
            "tools.deny",
        ),
        ("{ tools: { allow: ['read'] } }", "main", "tools.allow"),
        (
            "{ agents: { list: [{ id: 'ops', tools: { deny: ['exec'] } }] } }",
            "ops",
            "the agent's tools.deny",
        ),
    ] {
        machine.write_config(config);
        let run = machine.run(&["exec", "--agent", agent, "--", TOUCH]);
        run.refused(3, "TOOL_DENIED");
        assert!(run.stderr.contains(path), "{run:#?}");
        assert!(
            run.stderr
                .contains("\nhint: look at it: interlock config get"),
            "{run:#?}"
        );
        nothing_ran(&machine);
    }
    assert_eq!(machine.exec("true").code, 0);
}

#[test]
fn the_environment_of_a_run_follows_the_rules() {
    let machine = Machine::open();
    machine.ok(&["approvals", "allowlist", "add", "--env", "ADDED", "env"]);
    let mut command = machine.command(&["exec", "--env", "ADDED=by the call", "--", "env"]);
    let given = [
        ("LANG", "C"),
        ("MINE", "kept"),
        ("LD_PRELOAD", ""),
        ("NODE_OPTIONS", "--version"),
        ("BASH_ENV", "/nowhere"),
        ("PYTHONSTARTUP", "/nowhere"),
        ("PERL5OPT", "-Mnothing"),
        ("GIT_SSH_COMMAND", "false"),
        ("INTERLOCK_GATEWAY_TOKEN", "secret"),
        ("OPENCLAW_GATEWAY_PASSWORD", "secret"),
    ];
    command.envs(given);
    let run = finish(&mut command);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:#?}");
    let lines = run.stdout.lines();
    let got: BTreeMap<&str, &str> = lines.map(|line| line.split_once('=').unwrap()).collect();
    let home = machine.root().join("home").display().to_string();
    let path = format!("{}:/usr/bin:/bin", machine.bin().display());
    let expected = BTreeMap::from([
        ("ADDED", "by the call"),
        ("GIT_PAGER", "cat"),
        ("HOME", home.as_str()),
        ("INTERLOCK_SHELL", "exec"),
        ("LANG", "C"),
        ("LESSSECURE", "1"),
        ("MANPAGER", "cat"),
        ("MINE", "kept"),
        ("OPENCLAW_CLI", "1"),
        ("OPENCLAW_SHELL", "exec"),
        ("PAGER", "cat"),
        ("PATH", path.as_str()),
        ("SYSTEMD_PAGERSECURE", "1"),
    ]);
    assert_eq!(got, expected);
}

#[test]
fn standard_input_is_a_copy_and_never_the_callers_own() {
    let machine = Machine::open();
    let closed = ["exec", "--input", "none", "--", "cat"];
    let run = machine.run_with_input(&closed, b"secret of the caller\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:#?}");
    // The run has a pipe of its own, in which only what was passed is found.
    let own = machine.file("own.txt", "passed\n");
    let mut command = machine.command(&["exec", "--", "readlink /proc/self/fd/0"]);
    command.stdin(std::fs::File::open(own).unwrap());
    let run = testkit::finish(&mut command);
    assert!(run.stdout.starts_with("pipe:"), "{run:#?}");
    let run = machine.exec("readlink /proc/self/fd/0");
    assert_eq!(run.stdout, "/dev/null\n");
}

/// Descriptors of the caller are not passed on.
#[test]
fn a_run_has_only_its_three_descriptors() {
    let machine = Machine::open();
    let run = machine.exec("ls /proc/self/fd");
    // The fourth is the directory that ls reads.
    assert_eq!(run.stdout, "0\n1\n2\n3\n", "{run:#?}");
}

#[test]
fn what_cannot_be_started_is_told_in_words() {
    let machine = Machine::open();
    let work = machine.work();
    machine.script("work/plain", "echo without a first line\n");
    machine.script("work/lost", "#!/no/such/interpreter\n");
    machine.file("work/closed", "#!/bin/sh\n");
    let plain = machine.exec("./plain");
    assert_eq!(
        (plain.code, plain.stdout.as_str()),
        (0, "without a first line\n"),
        "{plain:#?}"
    );
    let told = |text: &str, code: &str, says: &str| {
        let run = machine.exec(text);
        let exit = if code == "APPROVAL_UNBOUND" { 3 } else { 1 };
        run.refused(exit, code);
        assert!(run.stderr.contains(says), "{text}: {run:#?}");
    };
    told(
        "no-such-program",
        "APPROVAL_UNBOUND",
        "`no-such-program`: not found",
    );
    told("./closed", "APPROVAL_UNBOUND", "is not executable");
    told(
        "./lost",
        "START_FAILED",
        "cannot execute ./lost: no such file or directory",
    );
    // Behind the first command it is a failure of that command, as in shells.
    let run = machine.exec("echo first; ./lost; echo last");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "first\nlast\n"),
        "{run:#?}"
    );
    assert!(run.stderr.contains("./lost"), "{run:#?}");
    let gone = work.join("gone");
    let gone_text = gone.to_str().unwrap();
    let run = machine.run(&["exec", "--cwd", gone_text, "--", "pwd"]);
    run.refused(2, "CWD_UNUSABLE");
    assert!(run.stderr.contains("--cwd"), "{run:#?}");
    fs::create_dir(&gone).unwrap();
    let mut command = std::process::Command::new("/bin/sh");
    let line = format!("rmdir {gone_text} && exec {} exec -- pwd", crate::BINARY);
    command.args(["-c", &line]).current_dir(&gone);
    command.env("HOME", machine.root().join("home"));
    finish(&mut command).refused(2, "CWD_UNUSABLE");
}

#[test]
fn wrong_usage_starts_nothing() {
    let machine = Machine::open();
    for (arguments, code) in [
        (&["exec", "--", ""][..], "COMMAND_EMPTY"),
        (&["exec", "--agent", "a b", "--", TOUCH], "AGENT_INVALID"),
        (&["exec", "--env", "novalue", "--", TOUCH], "ENV_INVALID"),
    ] {
        machine.run(arguments).refused(2, code);
        nothing_ran(&machine);
    }
    for timeout in ["-1", "x", "1.5", "99999999999999999999999"] {
        let flag = format!("--timeout={timeout}");
        assert_eq!(machine.run(&["exec", &flag, "--", TOUCH]).code, 2);
        nothing_ran(&machine);
    }
    let largest = format!("--timeout={}", u64::MAX);
    assert_eq!(machine.run(&["exec", &largest, "--", "true"]).code, 0);
}

fn key(machine: &Machine) -> std::path::PathBuf {
    machine.state().join("run.key")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_run_key_is_made_once_for_its_owner_alone() {
    let machine = Machine::open();
    assert!(!key(&machine).exists());
    let children: Vec<_> = (0..8)
        .map(|_| {
            let mut command = machine.command(&["exec", "--", "echo done"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"done\n", "{output:?}");
    }
    assert_eq!(mode(&key(&machine)), 0o600);
    let first = fs::read(key(&machine)).unwrap();
    assert_eq!(first.len(), 32);
    assert_eq!(machine.exec("true").code, 0);
    assert_eq!(fs::read(key(&machine)).unwrap(), first);
    let strays = fs::read_dir(machine.state()).unwrap();
    let strays = strays.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".run-key-")
    });
    assert_eq!(strays.count(), 0);
}

#[test]
fn a_broken_run_key_is_told_with_what_to_do() {
    let machine = Machine::open();
    for broken in [&b""[..], b"short", &[7; 33]] {
        fs::write(key(&machine), broken).unwrap();
        let run = machine.exec(TOUCH);
        run.refused(1, "RUN_KEY_UNUSABLE");
        assert!(run.stderr.contains("\nhint: remove the file"), "{run:#?}");
        nothing_ran(&machine);
    }
    fs::remove_file(key(&machine)).unwrap();
    assert_eq!(machine.exec("true").code, 0);
    assert_eq!(fs::read(key(&machine)).unwrap().len(), 32);
}

#[test]
fn an_ordinary_user_runs_and_is_refused_as_root_is() {
    if !testkit::is_root() {
        println!("skipped: this user is an ordinary one");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    machine.exec(TOUCH).refused(3, "APPROVAL_PENDING");
    nothing_ran(&machine);
    machine.allow_every_program();
    let run = machine.exec("touch marker && sh -c 'ls | wc -l'");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:#?}");
    assert_eq!(mode(&key(&machine)), 0o600);
    // What only root may read fails in the run, not before it.
    let run = machine.exec("cat /etc/shadow || echo closed");
    assert_eq!((run.code, run.stdout.as_str()), (0, "closed\n"), "{run:#?}");
    // A program in a directory that this user cannot enter is not there for them.
    machine.script("closed-tool", "#!/bin/sh\necho no\n");
    let closed = machine.root().join("closed-tool");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let run = machine.exec(closed.to_str().unwrap());
    run.refused(3, "APPROVAL_UNBOUND");
}

#[test]
fn directories_of_the_config_come_first_for_explain_and_exec() {
    let machine = Machine::open();
    let tools = machine.root().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let path = tools.to_str().unwrap();
    machine.ok(&[
        "config",
        "set",
        "tools.exec.pathPrepend",
        &format!("[{path:?}]"),
    ]);
    testkit::copy("/usr/bin/true", &tools.join("ls"));
    let found = machine.explain(&["--", "ls"]);
    assert_eq!(found["segments"][0]["resolved"], format!("{path}/ls"));
    assert_eq!(machine.exec("ls").stdout, "");
}

#[test]
fn a_run_that_goes_on_shows_what_it_wrote_so_far() {
    let machine = Machine::open();
    machine.script(
        "work/build",
        "#!/bin/sh\necho one\necho two\nuntil test -e go; do sleep 0.05; done\n",
    );
    let run = machine.run(&["exec", "--json", "--yield-ms", "2000", "--", "./build"]);
    let result = run.json();
    assert_eq!(result["status"], "running", "{run:#?}");
    assert_eq!(result["tail"], "one\ntwo\n");
    machine.file("work/go", "");
}

#[test]
fn an_agent_that_may_not_handle_sessions_gets_none() {
    let machine = Machine::open();
    machine.write_config("{ tools: { deny: ['process'] } }");
    let run = machine.run(&["exec", "--json", "--background", "--", "echo done"]);
    assert_eq!(run.json()["status"], "completed", "{run:#?}");
    assert_eq!(run.json()["output"]["text"], "done\n");
    let run = machine.run(&["exec", "--yield-ms", "1", "--", "echo done"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "done\n"), "{run:#?}");
}

#[test]
fn a_race_that_the_config_excludes_is_refused() {
    let machine = Machine::open();
    machine.script("work/tool", "#!/bin/sh\ntouch marker\n");
    machine.ok(&["config", "set", "tools.exec.requireRaceFree", "true"]);
    let run = machine.exec("./tool");
    run.refused(1, "RACE_NOT_EXCLUDED");
    assert!(
        run.stderr.contains("hint: run a native program"),
        "{run:#?}"
    );
    nothing_ran(&machine);
    assert_eq!(machine.exec("touch marker").code, 0);
    assert!(machine.work().join("marker").exists());
}
