//! Runs whose code files of a project decide: what an approver reads, what *always for this project*
//! stores, and what that does not cover. Real approvals, with programs that stand in for the tools.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use testkit::Machine;

/// A machine with a Rust project in `work/app`, a subdirectory, and another project beside it.
fn started() -> Machine {
    let machine = Machine::new();
    for name in ["cargo", "npm", "pytest", "make", "make-like"] {
        machine.native(name);
    }
    for folder in ["app/src", "app/tests", "evil", "app/node_modules"] {
        fs::create_dir_all(machine.work().join(folder)).unwrap();
    }
    machine.file("work/app/Cargo.toml", "[package]\nname = \"app\"\n");
    machine.file("work/app/build.rs", "fn main() {}\n");
    machine.file("work/app/package.json", "{}\n");
    machine.file("work/app/Makefile", "all:\n\ttrue\n");
    machine.file("work/app/tests/test_a.py", "def test(): pass\n");
    machine.file("work/evil/Cargo.toml", "[package]\nname = \"evil\"\n");
    machine.file("work/evil/test_evil.py", "def test(): pass\n");
    machine.start();
    machine
}

fn app(machine: &Machine) -> String {
    machine.work().join("app").to_str().unwrap().to_owned()
}

/// The pending approval of a command in the project.
#[track_caller]
fn ask(machine: &Machine, command: &str) -> (String, Value) {
    let cwd = app(machine);
    let id = machine.put_down(&["--cwd", &cwd, "--", command]);
    let asked = machine.pending();
    let asked = asked.into_iter().find(|one| one["id"] == id.as_str());
    (id, asked.unwrap())
}

#[track_caller]
fn verdict_in(machine: &Machine, cwd: &str, command: &str) -> Value {
    machine.explain(&["--cwd", cwd, "--", command])
}

/// All lines of the prompt.
fn prompt(machine: &Machine, id: &str) -> String {
    machine.ok(&["approvals", "pending", id]).stdout
}

#[test]
fn the_prompt_says_that_the_project_decides() {
    let machine = started();
    let (id, asked) = ask(&machine, "cargo test");
    assert_eq!(asked["binding"], "project");
    assert_eq!(
        asked["bindingReason"],
        "`cargo test` runs code from this project (Cargo.toml, build.rs, tests). Approving trusts the \
         project's files as they are when it runs."
    );
    let choices = asked["choices"].as_array().unwrap();
    for choice in [
        "allow-once",
        "allow-session",
        "lease",
        "allow-always",
        "deny",
    ] {
        assert!(choices.contains(&json!(choice)), "{choice}: {asked:#}");
    }
    let text = prompt(&machine, &id);
    for part in [
        "Approving trusts the project's files as they are when it runs",
        "app/Cargo.toml, 23 bytes, sha256 ",
        "app/build.rs",
        "`cargo` was not allowed here before",
        "for this project would store",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_changed_manifest_is_told_with_its_difference() {
    let machine = started();
    let (id, _) = ask(&machine, "cargo test");
    machine.ok(&["approvals", "approve", &id]);
    // Denied runs are not what was allowed.
    let (id, asked) = ask(&machine, "cargo build");
    assert_eq!(asked["diff"], Value::Null);
    let text = prompt(&machine, &id);
    assert!(
        text.contains("unchanged since `cargo` was last allowed here"),
        "{text}"
    );
    machine.ok(&["approvals", "deny", &id]);
    machine.file("work/app/build.rs", "fn main() {\n    evil();\n}\n");
    let (id, asked) = ask(&machine, "cargo build");
    assert_eq!(asked["diff"]["added"], 3, "{asked:#}");
    let text = prompt(&machine, &id);
    for part in [
        "CHANGED since `cargo` was last allowed here",
        "+    evil();",
        "-fn main() {}",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    machine.ok(&["approvals", "deny", &id]);
    // Another program has not been allowed with these files.
    let (id, _) = ask(&machine, "npm test");
    let text = prompt(&machine, &id);
    assert!(text.contains("`npm` was not allowed here before"), "{text}");
}

/// A link among the manifests must not bring a file from elsewhere before an approver or into the store.
#[test]
fn a_manifest_that_leads_out_of_the_project_is_not_read() {
    let machine = started();
    let secret = machine.file("home/secret", "TOP SECRET\n");
    let manifest = machine.work().join("app/build.rs");
    fs::remove_file(&manifest).unwrap();
    symlink(&secret, &manifest).unwrap();
    let (id, _) = ask(&machine, "cargo test");
    let text = prompt(&machine, &id);
    assert!(text.contains("is not compared"), "{text}");
    machine.ok(&["approvals", "approve", &id]);
    fs::write(&secret, "ANOTHER SECRET\n").unwrap();
    let (id, asked) = ask(&machine, "cargo test --lib");
    assert_eq!(asked["diff"], Value::Null, "{asked:#}");
    assert!(!prompt(&machine, &id).contains("SECRET"));
}

#[test]
fn always_for_this_project_stores_the_words_that_decide() {
    let machine = started();
    let cwd = app(&machine);
    let (id, asked) = ask(&machine, "cargo test --lib");
    assert_eq!(asked["alwaysForm"], "project");
    assert_eq!(asked["alwaysWider"], json!([]));
    let run = machine
        .ok(&["approvals", "approve", &id, "--always", "--json"])
        .json();
    assert_eq!(run["form"], "project", "{run:#}");
    let stored = &run["stored"][0];
    assert_eq!(stored["args"], json!(["test", "**"]));
    assert_eq!(stored["cwd"], format!("{cwd}/**"));
    assert_eq!(stored["source"], "allow-always");
    assert_eq!(
        stored["pattern"],
        machine
            .bin()
            .join("cargo")
            .canonicalize()
            .unwrap()
            .to_str()
            .unwrap()
    );
    for command in [
        "cargo test",
        "cargo test --lib",
        "cargo test some::name -- --nocapture",
        "cargo test 2>&1 | tail -3",
        "timeout 60 cargo test --release",
    ] {
        assert_eq!(
            verdict_in(&machine, &cwd, command)["verdict"],
            "allow",
            "{command}"
        );
    }
    let below = format!("{cwd}/src");
    assert_eq!(
        verdict_in(&machine, &below, "cargo test")["verdict"],
        "allow"
    );
    let run = machine.run(&["exec", "--no-wait", "--cwd", &cwd, "--", "cargo test"]);
    assert_eq!(run.code, 0, "{run:#?}");
    // The project's files may change: that is what was trusted.
    machine.file("work/app/Cargo.toml", "[package]\nname = \"other\"\n");
    assert_eq!(verdict_in(&machine, &cwd, "cargo test")["verdict"], "allow");
}

/// How an agent would try to run something else by the entry.
#[test]
fn an_entry_for_the_project_does_not_cover_what_leads_out_of_it() {
    let machine = started();
    let cwd = app(&machine);
    let work = machine.work();
    let (id, _) = ask(&machine, "cargo test");
    machine.ok(&["approvals", "approve", &id, "--always=project"]);
    let (id, _) = ask(&machine, "pytest -q");
    machine.ok(&["approvals", "approve", &id, "--always"]);
    let (id, _) = ask(&machine, "make all");
    machine.ok(&["approvals", "approve", &id, "--always"]);
    symlink(work.join("evil"), work.join("app/link")).unwrap();
    symlink("/tmp", work.join("app/tmp")).unwrap();
    let evil = work.join("evil");
    let evil = evil.to_str().unwrap();
    for command in [
        format!("cargo test --manifest-path {evil}/Cargo.toml"),
        "cargo test --manifest-path=../evil/Cargo.toml".to_owned(),
        "cargo test --config build.rustc-wrapper='/tmp/x'".to_owned(),
        "cargo test --config /tmp/x.toml".to_owned(),
        "cargo test -C ../evil".to_owned(),
        "cargo test -Zunstable-options".to_owned(),
        "cargo test --target x.json".to_owned(),
        "cargo test --target-dir /tmp/x".to_owned(),
        "cargo test -- --logfile /tmp/x".to_owned(),
        "cargo --config x test".to_owned(),
        "cargo -C ../evil test".to_owned(),
        "cargo +nightly test".to_owned(),
        "cargo build".to_owned(),
        "cargo run".to_owned(),
        "RUSTFLAGS=-Clinker=/tmp/x cargo test".to_owned(),
        "RUSTC_WRAPPER=/tmp/x cargo test".to_owned(),
        "ANYTHING=1 cargo test".to_owned(),
        "env CARGO_HOME=/tmp/x cargo test".to_owned(),
        "cd ../evil && cargo test".to_owned(),
        "cd link && cargo test".to_owned(),
        "cd tmp && cargo test".to_owned(),
        "cargo test; cargo run".to_owned(),
        "cargo test $(touch x)".to_owned(),
        "cargo test > /tmp/x".to_owned(),
        "../../bin/cargo test --config x".to_owned(),
        format!("pytest {evil}/test_evil.py"),
        "pytest ../evil".to_owned(),
        "pytest link/test_evil.py".to_owned(),
        "pytest -p evil".to_owned(),
        "pytest -c /tmp/x.ini".to_owned(),
        "pytest --rootdir /tmp".to_owned(),
        "pytest --rootdir=/tmp".to_owned(),
        "make deploy".to_owned(),
        "make all deploy".to_owned(),
        "make all SHELL=/tmp/x".to_owned(),
        "make -C ../evil all".to_owned(),
        "make -f /tmp/x all".to_owned(),
        "make-like all".to_owned(),
    ] {
        let explained = verdict_in(&machine, &cwd, &command);
        assert_ne!(explained["verdict"], "allow", "{command}: {explained:#}");
    }
    // Elsewhere, through a link, with variables of the call, and on a terminal.
    let linked = work.join("linked");
    symlink(evil, &linked).unwrap();
    for place in [evil, work.to_str().unwrap(), linked.to_str().unwrap()] {
        assert_ne!(
            verdict_in(&machine, place, "cargo test")["verdict"],
            "allow",
            "{place}"
        );
    }
    let with = |more: &[&str]| {
        let mut all = vec!["--cwd", cwd.as_str()];
        all.extend(more);
        all.extend(["--", "cargo test"]);
        machine.explain(&all)["verdict"].clone()
    };
    assert_eq!(with(&[]), "allow");
    assert_ne!(with(&["--env", "SOME=1"]), "allow");
    assert_ne!(with(&["--pty"]), "allow");
    // What is inside stays allowed, by a link as well: the directory is the same one.
    assert_eq!(
        verdict_in(&machine, &cwd, "pytest -x tests/test_a.py::test")["verdict"],
        "allow"
    );
    assert_eq!(verdict_in(&machine, &cwd, "make all")["verdict"], "allow");
    let inside = work.join("inside");
    symlink(&cwd, &inside).unwrap();
    let inside = inside.to_str().unwrap();
    assert_eq!(
        verdict_in(&machine, inside, "cargo test")["verdict"],
        "allow"
    );
}

/// Another program under the same name is not the one that was allowed.
#[test]
fn the_program_of_an_entry_is_held_by_its_content() {
    let machine = started();
    let cwd = app(&machine);
    let (id, _) = ask(&machine, "cargo test");
    machine.ok(&["approvals", "approve", &id, "--always"]);
    assert_eq!(verdict_in(&machine, &cwd, "cargo test")["verdict"], "allow");
    let cargo = machine.bin().join("cargo");
    let mut other = fs::read(&cargo).unwrap();
    other.extend_from_slice(b"another");
    let next = machine.bin().join("next");
    fs::write(&next, other).unwrap();
    fs::set_permissions(&next, fs::metadata(&cargo).unwrap().permissions()).unwrap();
    fs::rename(&next, &cargo).unwrap();
    assert_ne!(verdict_in(&machine, &cwd, "cargo test")["verdict"], "allow");
}

#[test]
fn what_leads_elsewhere_can_be_approved_once_and_is_not_stored() {
    let machine = started();
    machine.file("work/app/x.mk", "all:\n\ttrue\n");
    for (command, says) in [
        (
            "cargo test --manifest-path ../evil/Cargo.toml",
            "names another project",
        ),
        ("make -C ../evil", "names another project"),
        ("make -f x.mk", "names another project"),
        ("npm install left-pad", "left-pad"),
        ("cargo test --unknown-option", "--unknown-option"),
        (
            "pytest ../evil/test_evil.py",
            "does not lead to a file or directory of the project",
        ),
    ] {
        let (id, asked) = ask(&machine, command);
        assert_eq!(asked["binding"], "project", "{command}: {asked:#}");
        let why = asked["alwaysNotOffered"].as_str().unwrap_or_default();
        assert!(why.contains(says), "{command}: {why}");
        let run = machine.run(&["approvals", "approve", &id, "--always"]);
        assert!(run.stderr.contains("APPROVAL_NOT_OFFERED"), "{run:#?}");
        machine.ok(&["approvals", "approve", &id]);
        let cwd = app(&machine);
        let run = machine.run_approved(&id, &["--cwd", &cwd, "--", command]);
        assert_eq!(run.code, 0, "{command}: {run:#?}");
    }
}

/// A conversation's grant holds the words; the project's files may change meanwhile.
#[test]
fn a_grant_for_the_conversation_outlives_an_edit_of_the_project() {
    let machine = started();
    let cwd = app(&machine);
    let (id, _) = ask(&machine, "cargo test");
    machine.ok(&["approvals", "approve", &id, "--session"]);
    let exec = |command: &str| machine.run(&["exec", "--no-wait", "--cwd", &cwd, "--", command]);
    assert_eq!(
        machine
            .run_approved(&id, &["--cwd", &cwd, "--", "cargo test"])
            .code,
        0
    );
    machine.file("work/app/Cargo.toml", "[package]\nname = \"edited\"\n");
    assert_eq!(exec("cargo test").code, 0);
    exec("cargo test --lib").refused(3, "APPROVAL_PENDING");
}

/// Text is told to run project code, and stores nothing.
#[test]
fn a_text_with_project_code_in_it_says_so() {
    let machine = started();
    for command in [
        "cargo test > log 2>&1 &",
        "for i in 1 2; do cargo test; done",
    ] {
        let (id, asked) = ask(&machine, command);
        assert_eq!(asked["binding"], "text", "{asked:#}");
        assert_eq!(asked["always"], json!([]));
        let text = prompt(&machine, &id);
        assert!(
            text.contains("`cargo test` runs code from this project"),
            "{text}"
        );
        assert!(text.contains("app/Cargo.toml"), "{text}");
        machine.ok(&["approvals", "deny", &id]);
    }
}

#[test]
fn a_program_that_no_table_knows_says_so() {
    let machine = started();
    machine.native("frobnicate");
    let (id, asked) = ask(&machine, "frobnicate --all");
    assert_eq!(asked["binding"], "native");
    let text = prompt(&machine, &id);
    assert!(
        text.contains("what `frobnicate` does with its arguments is not known"),
        "{text}"
    );
    let (id, _) = ask(&machine, "ls -l");
    assert!(!prompt(&machine, &id).contains("is not known"));
}

/// The home directory is no project.
#[test]
fn nothing_is_stored_for_a_directory_that_holds_more_than_a_project() {
    let machine = started();
    let home = machine.root().join("home");
    let id = machine.put_down(&["--cwd", home.to_str().unwrap(), "--", "make all"]);
    let asked = machine.pending().pop().unwrap();
    assert_eq!(asked["id"], id.as_str());
    let why = asked["alwaysNotOffered"].as_str().unwrap();
    assert!(why.contains("holds more than a project"), "{why}");
}

/// A manifest above the workspace makes the project no larger than the workspace.
#[test]
fn a_project_does_not_begin_above_the_workspace() {
    let machine = started();
    let inner = machine.work().join("app/src");
    let inner = inner.to_str().unwrap();
    let workspace = format!("'{inner}'");
    machine.ok(&["config", "set", "agents.defaults.workspace", &workspace]);
    let ask = [
        "exec",
        "--no-wait",
        "--json",
        "--cwd",
        inner,
        "--",
        "cargo test",
    ];
    let output = machine.command(&ask).current_dir(inner).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let asked = machine.pending().pop().unwrap();
    assert_eq!(
        asked["always"][0]["cwd"],
        format!("{inner}/**"),
        "{asked:#}"
    );
}
