//! An entry for a name means no program that an agent can put into its workspace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Machine, Run, copy, finish};

/// A machine on which the owner trusts `rg` by its name.
fn machine() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    machine
}

/// Runs Interlock with one more directory at the front of PATH, as a shell with an active project does.
fn run_with_path(machine: &Machine, first: &Path, arguments: &[&str]) -> Run {
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        first.display(),
        machine.bin().display()
    );
    finish(machine.command(arguments).env("PATH", path))
}

fn explain(machine: &Machine, first: &Path, line: &str) -> Value {
    run_with_path(machine, first, &["explain", "--json", "--", line]).json()
}

fn directory(path: PathBuf) -> PathBuf {
    fs::create_dir_all(&path).unwrap();
    path
}

/// A script that leaves a mark when it runs.
fn marking(machine: &Machine, path: &Path) {
    let script = format!("#!/bin/sh\ntouch {}/marker\n", machine.root().display());
    machine.script(
        path.strip_prefix(machine.root()).unwrap().to_str().unwrap(),
        &script,
    );
}

/// Ways to have a name lead to a program of the agent's choice. Each gives the directory for PATH.
type Attack = fn(&Machine) -> PathBuf;

const ATTACKS: &[(&str, Attack)] = &[
    ("a native program", |machine| {
        let tools = directory(machine.work().join("tools"));
        copy("/usr/bin/true", &tools.join("rg"));
        tools
    }),
    ("a script", |machine| {
        let tools = directory(machine.work().join("tools"));
        marking(machine, &tools.join("rg"));
        tools
    }),
    ("a program right in the workspace", |machine| {
        marking(machine, &machine.work().join("rg"));
        machine.work()
    }),
    ("a link to another program of the system", |machine| {
        let tools = directory(machine.work().join("tools"));
        symlink("/usr/bin/touch", tools.join("rg")).unwrap();
        tools
    }),
    (
        "a directory of PATH that leads into the workspace",
        |machine| {
            let tools = directory(machine.work().join("tools"));
            marking(machine, &tools.join("rg"));
            let link = machine.root().join("linked");
            symlink(&tools, &link).unwrap();
            link
        },
    ),
    (
        "a program elsewhere that leads into the workspace",
        |machine| {
            let tools = directory(machine.work().join("tools"));
            marking(machine, &tools.join("tool"));
            let other = directory(machine.root().join("other"));
            symlink(tools.join("tool"), other.join("rg")).unwrap();
            other
        },
    ),
    ("a link out of the workspace and back", |machine| {
        let tools = directory(machine.work().join("tools"));
        marking(machine, &tools.join("real"));
        let other = directory(machine.root().join("other"));
        symlink(tools.join("real"), other.join("rg")).unwrap();
        symlink(other.join("rg"), tools.join("rg")).unwrap();
        tools
    }),
];

#[test]
fn a_program_of_the_workspace_does_not_get_the_name_of_an_entry() {
    for (what, attack) in ATTACKS {
        let machine = machine();
        // The owner's own program runs.
        assert_eq!(machine.verdict("rg made"), "allow", "{what}");
        let first = attack(&machine);
        let told = explain(&machine, &first, "rg made");
        assert_eq!(told["verdict"], "ask", "{what}: {told:#}");
        assert_eq!(
            told["reason"]["code"], "entry-workspace",
            "{what}: {told:#}"
        );
        let ran = run_with_path(&machine, &first, &["exec", "--no-wait", "--", "rg made"]);
        assert_eq!(ran.code, 3, "{what}: {ran:#?}");
        assert!(!machine.root().join("marker").exists(), "{what}");
        assert!(!machine.work().join("made").exists(), "{what}");
        // The same in a line, behind a wrapper and for a pattern of names.
        machine.ok(&["approvals", "allowlist", "add", "r*"]);
        for line in ["rg a && rg b", "/usr/bin/nice rg a", "cd . && rg a"] {
            let told = explain(&machine, &first, line);
            assert_eq!(told["verdict"], "ask", "{what}: {line}: {told:#}");
        }
        // The hint names the path, and only the command that was explained.
        let hint = told["remedies"][0]["command"].as_str().unwrap();
        assert_eq!(machine.paste(hint).code, 0, "{what}: {hint}");
        let told = explain(&machine, &first, "rg made");
        assert_eq!(told["verdict"], "allow", "{what}: {told:#}");
        let told = explain(&machine, &first, "rg other");
        assert_eq!(told["verdict"], "ask", "{what}: {told:#}");
    }
}

/// A path says what it means, wherever it lies; and `*` means every program.
#[test]
fn paths_and_the_lone_star_cover_the_workspace() {
    for pattern in ["PATH", "*"] {
        let machine = Machine::new();
        machine.start();
        let tools = directory(machine.work().join("tools"));
        copy("/usr/bin/true", &tools.join("tool"));
        let path = tools.join("tool").display().to_string();
        let pattern = if pattern == "PATH" { &path } else { pattern };
        machine.ok(&["approvals", "allowlist", "add", pattern]);
        for line in ["tool a", "./tools/tool a"] {
            let told = explain(&machine, &tools, line);
            assert_eq!(told["verdict"], "allow", "{pattern}: {line}: {told:#}");
        }
    }
}

/// Where the workspace is another directory, the programs of this one are like any others.
#[test]
fn a_name_means_programs_outside_of_the_workspace() {
    let machine = machine();
    let tools = directory(machine.root().join("tools"));
    copy("/usr/bin/true", &tools.join("rg"));
    assert_eq!(explain(&machine, &tools, "rg x")["verdict"], "allow");
    // A directory whose name only begins like that of the workspace.
    let beside = directory(machine.root().join("work-tools"));
    copy("/usr/bin/true", &beside.join("rg"));
    assert_eq!(explain(&machine, &beside, "rg x")["verdict"], "allow");
    // Programs of the home directory, where package managers put them.
    let own = directory(machine.root().join("home/.local/bin"));
    copy("/usr/bin/true", &own.join("rg"));
    assert_eq!(explain(&machine, &own, "rg x")["verdict"], "allow");
}

/// Entries for the directory of a project trust its files where these decide what runs, and so a virtual
/// environment in it; not a program that only has the name of another one.
#[test]
fn a_virtual_environment_is_part_of_the_project_that_an_entry_trusts() {
    let machine = Machine::new();
    machine.start();
    let environment = directory(machine.work().join(".venv/bin"));
    for name in ["pytest", "git", "ls"] {
        copy("/usr/bin/true", &environment.join(name));
    }
    symlink("/usr/bin/python3", environment.join("python3")).unwrap();
    fs::write(machine.work().join("run.py"), "print(1)\n").unwrap();
    machine.ok(&["policy", "template", "apply", "python"]);
    for line in ["pytest -q", "python3 -m pytest -q", "python3 run.py"] {
        let told = explain(&machine, &environment, line);
        assert_eq!(told["verdict"], "allow", "{line}: {told:#}");
    }
    for line in ["git status", "git add run.py", "python3 --version"] {
        let told = explain(&machine, &environment, line);
        assert_eq!(told["verdict"], "ask", "{line}: {told:#}");
        // Whatever the reason is, the hint holds.
        let hint = told["remedies"][0]["command"].as_str().unwrap();
        assert_eq!(machine.paste(hint).code, 0, "{line}: {hint}");
        let told = explain(&machine, &environment, line);
        assert_eq!(told["verdict"], "allow", "{line}: {hint}: {told:#}");
    }
    // Without the directory, an entry says nothing about the project.
    machine.ok(&["approvals", "allowlist", "add", "tox"]);
    copy("/usr/bin/true", &environment.join("tox"));
    let told = explain(&machine, &environment, "tox -q");
    assert_eq!(told["verdict"], "ask", "{told:#}");
}
