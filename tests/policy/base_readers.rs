//! Readers of the base whose arguments lead elsewhere by another reading, and git that is sent to a directory:
//! what is allowed really runs, and marks show what it did.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{Machine, Run};

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn machine() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["policy", "base", "restore"]);
    machine
}

fn run(machine: &Machine, arguments: &[&str]) -> Run {
    testkit::finish(machine.command(arguments).env("PATH", PATH))
}

fn exec(machine: &Machine, line: &str) -> Run {
    run(machine, &["exec", "--no-wait", "--", line])
}

fn explain(machine: &Machine, line: &str) -> Value {
    run(machine, &["explain", "--json", "--", line]).json()
}

fn git(directory: &Path, arguments: &[&str]) -> bool {
    let made = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=b"])
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .output();
    made.is_ok_and(|output| output.status.success())
}

/// A repository with one file; `false` without git.
fn repository(directory: &Path) -> bool {
    fs::create_dir_all(directory).unwrap();
    if !git(directory, &["init", "-q", "."]) {
        println!("skipped: git is not installed");
        return false;
    }
    fs::write(directory.join("a.txt"), "one\n").unwrap();
    assert!(git(directory, &["add", "a.txt"]) && git(directory, &["commit", "-q", "-m", "first"]));
    true
}

/// Files that git takes for a repository by themselves, whose settings name a program.
fn lookalike(directory: &Path, mark: &Path) {
    for name in ["objects", "refs"] {
        fs::create_dir_all(directory.join(name)).unwrap();
    }
    let helper = directory.join("helper");
    let text = format!("#!/bin/sh\necho ran >> {}\n", mark.display());
    fs::write(&helper, text).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let parent = directory.parent().unwrap().join("sub");
    fs::create_dir_all(&parent).unwrap();
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {}\n\tfsmonitor = {}\n",
        parent.display(),
        helper.display()
    );
    fs::write(directory.join("config"), config).unwrap();
}

#[test]
fn awk_is_given_no_file_as_the_value_of_an_option() {
    let machine = machine();
    let outside = machine.root().join("outside.txt");
    fs::write(&outside, "outside\n").unwrap();
    let work = machine.work();
    fs::write(work.join("a.txt"), "inside\n").unwrap();
    // Some implementations end at the first file that is not there, so that one is.
    for name in ["-v", "-F"] {
        fs::write(work.join(name), "").unwrap();
    }
    symlink(&outside, work.join("--")).unwrap();
    let outside = outside.display();
    for line in [
        format!("awk '{{print}}' -v {outside}"),
        format!("awk '{{print}}' a.txt -F {outside}"),
        "awk '{print}' -- a.txt".to_owned(),
    ] {
        assert_eq!(explain(&machine, &line)["verdict"], "ask", "{line}");
        let ran = exec(&machine, &line);
        assert!(!ran.stdout.contains("outside"), "{line}: {ran:#?}");
    }
    let ran = exec(&machine, "awk -F: -v n=1 '{print $n}' a.txt -");
    assert_eq!(ran.stdout, "inside\n", "{ran:#?}");
}

#[test]
fn git_reads_the_repository_of_a_directory_that_it_is_sent_to() {
    let machine = machine();
    let work = machine.work();
    let outside = machine.root().join("outside");
    if !repository(&work.join("project")) || !repository(&outside) {
        return;
    }
    symlink(&outside, work.join("link")).unwrap();
    let mark = machine.root().join("mark");
    lookalike(&work.join("bare"), &mark);
    fs::write(work.join("bare/HEAD"), "ref: refs/heads/main\n").unwrap();
    for line in [
        "git -C project log --oneline",
        "git -C ./project show HEAD:a.txt",
        "git -C project config --local core.bare",
        "git --no-pager -c color.ui=never -C project diff HEAD -- a.txt",
        "git -C project stash list",
        "git -C project symbolic-ref --short HEAD",
    ] {
        let ran = exec(&machine, line);
        assert_eq!(ran.code, 0, "{line}: {ran:#?}");
    }
    let outside = outside.display();
    for line in [
        "git -C link log".to_owned(),
        "git -C .. log".to_owned(),
        "git -C project/.. log".to_owned(),
        "git -C bare status".to_owned(),
        "git -C project -C ../link log".to_owned(),
        "git -C project diff ../link/a.txt a.txt".to_owned(),
        "git -C project branch other".to_owned(),
        "git -C project config user.name other".to_owned(),
        "git -C project -c core.fsmonitor=./x status".to_owned(),
        format!("git -C {outside} log"),
    ] {
        assert_eq!(explain(&machine, &line)["verdict"], "ask", "{line}");
        let ran = exec(&machine, &line);
        assert!(!ran.stdout.contains("first"), "{line}: {ran:#?}");
    }
    assert!(!mark.exists());
}

#[test]
fn narrow_entries_for_git_trust_no_files_that_look_like_a_repository() {
    let machine = machine();
    let work = machine.work();
    if !repository(&work) {
        return;
    }
    let applied = run(&machine, &["policy", "template", "apply", "project"]);
    assert_eq!(applied.code, 0, "{applied:#?}");
    let mark = machine.root().join("mark");
    // One as it is cloned, one whose HEAD leads nowhere, and one whose objects lie elsewhere.
    lookalike(&work.join("bare"), &mark);
    fs::write(work.join("bare/HEAD"), "ref: refs/heads/main\n").unwrap();
    lookalike(&work.join("linked"), &mark);
    symlink("refs/heads/main", work.join("linked/HEAD")).unwrap();
    fs::create_dir(work.join("common")).unwrap();
    fs::write(work.join("common/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(work.join("common/commondir"), "../bare\n").unwrap();
    fs::create_dir_all(work.join("bare/deep/er")).unwrap();
    for directory in ["bare", "linked", "common", "bare/deep/er"] {
        for command in ["git add -A", "git stash", "git commit -m x"] {
            let line = format!("cd {directory} && {command}");
            let told = explain(&machine, &line);
            assert_eq!(told["verdict"], "ask", "{line}");
            assert_eq!(told["reason"]["code"], "entry-repository", "{told:#}");
            exec(&machine, &line);
            assert!(!mark.exists(), "{line}");
        }
    }
    fs::create_dir(work.join("plain")).unwrap();
    for line in ["git add -A", "cd plain && git add ."] {
        assert_eq!(explain(&machine, line)["verdict"], "allow", "{line}");
    }
}

#[test]
fn bytes_are_shown_and_written_nowhere() {
    let machine = machine();
    let outside = machine.root().join("outside.txt");
    fs::write(&outside, "outside of everything\n").unwrap();
    let work = machine.work();
    fs::write(work.join("a.txt"), "inside of the workspace\n").unwrap();
    fs::write(work.join("list"), format!("{}\n", outside.display())).unwrap();
    let outside = outside.display();
    for line in [
        "xxd a.txt made".to_owned(),
        "xxd -p a.txt made".to_owned(),
        format!("xxd -pl {outside}"),
        format!("xxd -ps {outside}"),
        "strings @list".to_owned(),
        "strings -n 4 -- @list".to_owned(),
        format!("base64 {outside}"),
        format!("tac {outside}"),
        format!("df {outside}"),
    ] {
        assert_eq!(explain(&machine, &line)["verdict"], "ask", "{line}");
        let ran = exec(&machine, &line);
        assert!(ran.stdout.is_empty(), "{line}: {ran:#?}");
        assert!(!work.join("made").exists(), "{line}");
    }
    for line in [
        "tac a.txt",
        "fold -w 10 a.txt | base64",
        "base64 a.txt | base64 -d",
        "expand a.txt && expr 1 + 1",
        "df -h",
    ] {
        let ran = exec(&machine, line);
        assert_eq!(ran.code, 0, "{line}: {ran:#?}");
    }
}
