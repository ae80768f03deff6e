//! Plain lines, carried out by Interlock itself: they do what bash would do with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{Machine, finish};

fn machine() -> Machine {
    let machine = Machine::open();
    admit_variables(&machine);
    prepare(&machine.work());
    machine
}

/// Lets the lines below set variables for the program that prints them.
fn admit_variables(machine: &Machine) {
    let add = ["approvals", "allowlist", "add"];
    let variables = ["--env", "A", "--env", "B", "--env", "VALUE", "printenv"];
    machine.ok(&[&add[..], &variables[..]].concat());
}

/// A few files to work on.
fn prepare(work: &Path) {
    fs::create_dir_all(work.join("sub/deep")).unwrap();
    fs::create_dir(work.join("two words")).unwrap();
    fs::write(work.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(work.join("b.txt"), "four\n").unwrap();
    fs::write(work.join(".hidden.txt"), "hidden\n").unwrap();
    fs::write(work.join("sub/c.txt"), "five\n").unwrap();
    fs::write(work.join("two words/d e.txt"), "six\n").unwrap();
}

/// Every line is allowed by an entry, so no shell sees it; stdout and exit code are bash's.
const LINES: &[&str] = &[
    "echo hello",
    "echo 'single $HOME' \"double quotes\"",
    r"echo back\ slash \* \$x",
    "echo \"a\"'b'c",
    "echo ''",
    "printf '%s|' a 'b c' '' d",
    "printf 'no newline'",
    "true",
    "false",
    "true && echo yes",
    "false && echo no",
    "false || echo instead",
    "true || echo no",
    "false && echo no || echo other",
    "true && false || echo other",
    "echo a; echo b; false",
    "false; echo last",
    "echo a\necho b",
    "cat a.txt | wc -l",
    "cat a.txt | sort | head -n 1",
    "cat a.txt | grep -c o",
    "grep nothing a.txt",
    "grep nothing a.txt | cat",
    "cat a.txt | grep nothing",
    "cat a.txt | false",
    "false | true",
    "seq 100000 | head -n 1",
    "cat missing.txt",
    "cat missing.txt 2>/dev/null",
    "cat missing.txt 2>&1 | wc -l",
    "cat a.txt >/dev/null",
    "cat a.txt missing.txt >/dev/null 2>&1 || echo failed",
    "cat missing.txt &>/dev/null || echo failed",
    "echo to-stderr 1>&2",
    "cat </dev/null",
    "echo *.txt",
    "echo *.none",
    "echo '*.txt'",
    "cat *.txt",
    "echo sub/*",
    "echo */*.txt",
    "echo ?.txt",
    "echo [ab].txt",
    "ls -a",
    "ls -- 'two words'",
    "cat 'two words'/*.txt",
    "cd sub && pwd",
    "cd sub && cat c.txt",
    "cd sub && cd deep && pwd",
    "cd sub/deep && cd .. && ls",
    "pwd",
    "test -f a.txt && echo file",
    "[ -d sub ] && echo directory",
    "[ -e missing ] || echo none",
    "test a = b",
    "[ 3 -gt 2 ]",
    "echo ~",
    "echo ~/notes",
    "echo '~'",
    "VALUE=here printenv VALUE",
    "A=1 B='2 3' printenv A B",
    "A= printenv A",
    "nice echo nice",
    "nice -n 3 nice",
    "timeout 30 echo in-time",
    "timeout 30 false",
    "nohup echo on",
    "stdbuf -oL echo buffered",
    "env echo by-env",
    "sh -c 'echo inner'",
    "bash -c 'echo one; echo two'",
    "bash -c 'cat a.txt | wc -l' && echo done",
    "bash -lc 'false'",
    "echo a # a comment",
    "# only a comment\necho b",
    "echo a && # why\necho b",
    "echo äöü ✓",
    "expr 3 + 4",
    "expr 1 - 1",
    "sh -c 'cat missing.txt'",
];

#[test]
fn plain_lines_do_what_bash_does() {
    let machine = machine();
    compare_with_bash(&machine, LINES);
}

/// A subset again, where the system itself keeps things from the user.
#[test]
fn plain_lines_do_what_bash_does_for_an_ordinary_user() {
    if !testkit::is_root() {
        println!("skipped: this user is an ordinary one");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.allow_every_program();
    admit_variables(&machine);
    prepare(&machine.work());
    let some: Vec<&str> = LINES.iter().copied().step_by(4).collect();
    compare_with_bash(&machine, &some);
    let id = machine.exec("id -u");
    assert_eq!((id.code, id.stdout.as_str()), (0, "65534\n"), "{id:#?}");
}

#[track_caller]
fn compare_with_bash(machine: &Machine, lines: &[&str]) {
    let path = format!("{}:/usr/bin:/bin", machine.bin().display());
    let mut differences = Vec::new();
    for line in lines {
        let ours = machine.exec(line);
        let mut bash = Command::new("/bin/bash");
        bash.args(["--norc", "--noprofile", "-c", line])
            .env_clear()
            .env("HOME", machine.root().join("home"))
            .env("PATH", &path)
            .stdin(Stdio::null())
            .current_dir(machine.work());
        let theirs = finish(&mut bash);
        if (ours.code, &ours.stdout) != (theirs.code, &theirs.stdout)
            || ours.stderr.contains("error[")
        {
            differences.push(format!("{line}\n  ours {ours:?}\n  bash {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn stdout_and_stderr_come_apart_and_in_order() {
    let machine = machine();
    let run = machine.exec("echo 1; cat no1; echo 2; cat no2; echo 3 >&2; echo 4");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n2\n4\n"));
    let complaints: Vec<&str> = run.stderr.lines().collect();
    let [first, second, third] = complaints.as_slice() else {
        panic!("{run:#?}");
    };
    assert!(first.contains("no1") && second.contains("no2"), "{run:#?}");
    assert_eq!(*third, "3");
    let joined = machine.exec("cat no1 2>&1; echo 2; cat a.txt >&2");
    assert_eq!(joined.stdout.lines().count(), 2, "{joined:#?}");
    assert_eq!(joined.stderr, "one\ntwo\nthree\n");
}

#[test]
fn several_words_are_an_exact_argument_vector() {
    let machine = machine();
    let run = machine.run(&[
        "exec", "--", "printf", "%s|", "*.txt", "a b", "$HOME", "~", "",
    ]);
    assert_eq!(run.stdout, "*.txt|a b|$HOME|~||", "{run:#?}");
    let run = machine.run(&["exec", "--argv", "--", "pwd"]);
    assert_eq!(run.stdout.trim_end(), machine.work().to_str().unwrap());
    let sub = machine.work().join("sub");
    let run = machine.run(&[
        "exec",
        "--cwd",
        sub.to_str().unwrap(),
        "--",
        "cat c.txt; pwd",
    ]);
    assert_eq!(run.stdout, format!("five\n{}\n", sub.display()));
}

/// Start-up files and BASH_ENV would leave a mark if any shell were started.
#[test]
fn text_behind_a_shell_runs_without_that_shell() {
    let machine = machine();
    let mark = machine.root().join("mark");
    let touch = format!("echo started >> {}\n", mark.display());
    for name in [".profile", ".bash_profile", ".bashrc", ".bash_login", "env"] {
        machine.file(&format!("home/{name}"), &touch);
    }
    let exec = |text: &str, agent: &str| {
        let mut command = machine.command(&["exec", "--agent", agent, "--", text]);
        let file = machine.root().join("home/env");
        command.env("BASH_ENV", &file).env("ENV", &file);
        finish(&mut command)
    };
    // The fixture works: such a shell does leave a mark.
    let mut bash = Command::new("/bin/bash");
    bash.args(["-lc", "true"])
        .env("HOME", machine.root().join("home"));
    assert_eq!(finish(&mut bash).code, 0);
    assert!(mark.exists());
    fs::remove_file(&mark).unwrap();
    machine.script("work/script.sh", "echo script $1\n");
    for (text, stdout) in [
        ("bash -lc 'echo inner'", "inner\n"),
        ("sh -c 'echo a; echo b'", "a\nb\n"),
        ("bash -c \"sh -lc 'echo deep'\"", "deep\n"),
        ("bash script.sh 1", "script 1\n"),
        ("./script.sh 2", "script 2\n"),
    ] {
        let run = exec(text, "main");
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, stdout),
            "{text}: {run:#?}"
        );
        assert!(!mark.exists(), "{text}");
    }
    // What a shell does run is run without them too.
    let run = machine.set_document(r#"{ version: 1, defaults: { security: "full", ask: "off" } }"#);
    assert_eq!(run.code, 0, "{run:#?}");
    let run = exec("for x in 1 2; do echo $x; done", "main");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n2\n"), "{run:#?}");
    assert!(!mark.exists());
}

#[test]
fn a_script_is_trusted_by_its_own_entry_not_by_the_shell() {
    let machine = Machine::new();
    machine.start();
    let script = machine.script("work/build.sh", "echo built \"$@\"\nexit 3\n");
    machine.ok(&["approvals", "allowlist", "add", "bash"]);
    machine
        .exec("bash build.sh all")
        .refused(3, "APPROVAL_PENDING");
    let entry = script.to_str().unwrap();
    machine.ok(&["approvals", "allowlist", "add", entry]);
    let run = machine.exec("bash build.sh 'all of it'");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (3, "built all of it\n"),
        "{run:#?}"
    );
}

/// Only a shell can run such text; it gets it exactly as written.
#[test]
fn full_security_runs_odd_text_by_the_shell() {
    let machine = machine();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let run = machine.exec("for f in *.txt; do echo \"$f\"; done > list; cat list; exit 7");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (7, "a.txt\nb.txt\n"),
        "{run:#?}"
    );
    assert_eq!(
        fs::read_to_string(machine.work().join("list")).unwrap(),
        "a.txt\nb.txt\n"
    );
    let run = machine.exec("x='a  b'; echo $x \"$x\" $((6*7)) `echo tick`");
    assert_eq!(run.stdout, "a b a  b 42 tick\n", "{run:#?}");
    let run = machine.exec("-n() { echo odd; }; -n");
    assert_eq!(run.stdout, "odd\n", "{run:#?}");
    let run = machine.exec("kill -KILL $$");
    assert_eq!(run.code, 137, "{run:#?}");
    let run = machine.exec("no-such-program-anywhere");
    assert_eq!(run.code, 127, "{run:#?}");
}
