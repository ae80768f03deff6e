//! `interlock apply-patch`: several files, all or nothing, within the limits of the config.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{Machine, Run};

const ALL_KINDS: &str = "\
*** Begin Patch
*** Add File: new/deep.txt
+first
+second
*** Update File: greet.txt
@@
 hello
-world
+there
+you
*** Update File: old name.txt
*** Move to: moved/new name.txt
@@
-old
+new
*** Delete File: gone.txt
*** End Patch
";

fn machine() -> Machine {
    let machine = Machine::new();
    machine.start();
    fill(&machine);
    machine
}

fn fill(machine: &Machine) {
    machine.file("work/greet.txt", "hello\nworld\nbye\n");
    machine.file("work/old name.txt", "old\nsame\n");
    machine.file("work/gone.txt", "gone\n");
}

/// Every file below a directory, with its content.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for file in fs::read_dir(next).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap();
                let content = fs::read_to_string(&path).unwrap();
                found.insert(name.display().to_string(), content);
            }
        }
    }
    found
}

fn apply(machine: &Machine, flags: &[&str], patch: impl AsRef<[u8]>) -> Run {
    let mut all = vec!["apply-patch"];
    all.extend(flags);
    all.push("-");
    machine.run_with_input(&all, patch.as_ref())
}

fn patch(operations: &str) -> String {
    format!("*** Begin Patch\n{operations}*** End Patch\n")
}

/// Refused, with a text, and every file is as it was.
#[track_caller]
fn refused(machine: &Machine, patch: impl AsRef<[u8]>, code: &str, says: &[&str]) {
    let before = files(&machine.work());
    for flags in [&[][..], &["--dry-run"]] {
        let run = apply(machine, flags, &patch);
        run.refused(1, code);
        for text in says {
            assert!(run.stderr.contains(text), "{text}: {run:#?}");
        }
    }
    assert_eq!(files(&machine.work()), before);
}

#[test]
fn files_are_added_updated_moved_and_deleted() {
    let machine = machine();
    let file = machine.file("changes.patch", ALL_KINDS);
    let run = machine.ok(&["apply-patch", file.to_str().unwrap()]);
    let shown = "\
added     +2 -0  new/deep.txt
modified  +2 -1  greet.txt
deleted   +0 -1  gone.txt
moved     +1 -1  old name.txt -> moved/new name.txt
";
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (shown, ""));
    let expected = [
        ("greet.txt", "hello\nthere\nyou\nbye\n"),
        ("moved/new name.txt", "new\nsame\n"),
        ("new/deep.txt", "first\nsecond\n"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(files(&machine.work()), BTreeMap::from(expected));
}

#[test]
fn a_dry_run_says_the_same_and_changes_nothing() {
    let machine = machine();
    let before = files(&machine.work());
    let dry = apply(&machine, &["--dry-run"], ALL_KINDS);
    assert_eq!((dry.code, dry.stderr.as_str()), (0, ""), "{dry:#?}");
    let dry_json = apply(&machine, &["--dry-run", "--json"], ALL_KINDS).json();
    assert_eq!(files(&machine.work()), before);
    let json = apply(&machine, &["--json"], ALL_KINDS).json();
    assert_eq!(dry_json, json);
    fs::remove_dir_all(machine.work().join("new")).unwrap();
    fs::remove_dir_all(machine.work().join("moved")).unwrap();
    fill(&machine);
    let real = apply(&machine, &[], ALL_KINDS);
    assert_eq!(
        dry.stdout,
        format!("{}dry run: no file was changed\n", real.stdout)
    );
}

#[test]
fn programs_read_json() {
    let machine = machine();
    let summary = apply(&machine, &["--json"], ALL_KINDS).json();
    let file = |path: &str, added: u32, removed: u32| json!([{ "path": path, "linesAdded": added, "linesRemoved": removed }]);
    assert_eq!(
        summary,
        json!({
            "added": file("new/deep.txt", 2, 0),
            "modified": file("greet.txt", 2, 1),
            "deleted": file("gone.txt", 0, 1),
            "moved": [{
                "from": "old name.txt", "to": "moved/new name.txt",
                "linesAdded": 1, "linesRemoved": 1,
            }],
            "unchanged": [],
        })
    );
    let run = apply(&machine, &["--json"], ALL_KINDS);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    let error: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(error["error"]["code"], "PATCH_EXISTS");
    assert!(error["error"]["hint"].is_string(), "{error}");
}

#[test]
fn a_mismatch_names_file_hunk_line_and_the_nearest_match() {
    let machine = machine();
    let text = patch("*** Update File: greet.txt\n@@\n-hello\n+hi\n@@\n-wurld\n+there\n");
    refused(
        &machine,
        text,
        "PATCH_CONTEXT_MISMATCH",
        &[
            "hunk 2 of `greet.txt` does not match: patch line 7 expects `wurld`",
            "the nearest match is line 2: `world`",
            "\nhint: read the file again",
        ],
    );
}

#[test]
fn a_later_failure_leaves_the_earlier_files_alone() {
    let machine = machine();
    let good = "*** Add File: new.txt\n+x\n*** Update File: greet.txt\n@@\n-world\n+there\n*** Delete File: gone.txt\n";
    for (bad, code) in [
        (
            "*** Update File: missing.txt\n@@\n-a\n+b\n",
            "PATCH_NOT_FOUND",
        ),
        (
            "*** Update File: old name.txt\n@@\n-nothing\n+b\n",
            "PATCH_CONTEXT_MISMATCH",
        ),
        ("*** Add File: old name.txt\n+b\n", "PATCH_EXISTS"),
        ("*** Delete File: missing.txt\n", "PATCH_NOT_FOUND"),
        (
            "*** Add File: ../outside.txt\n+b\n",
            "PATCH_OUTSIDE_WORKSPACE",
        ),
    ] {
        refused(
            &machine,
            patch(&format!("{good}{bad}")),
            code,
            &["\nhint: "],
        );
    }
    assert!(!machine.root().join("outside.txt").exists());
}

#[test]
fn nothing_outside_of_the_workspace_is_reached() {
    let machine = machine();
    fs::create_dir(machine.root().join("beside")).unwrap();
    let outside = machine.file("outside.txt", "hello\n");
    let absolute = outside.display().to_string();
    symlink(&outside, machine.work().join("link.txt")).unwrap();
    symlink("greet.txt", machine.work().join("inner.txt")).unwrap();
    symlink(machine.root(), machine.work().join("up")).unwrap();
    let update = |path: &str| patch(&format!("*** Update File: {path}\n@@\n-hello\n+changed\n"));
    let before = files(&machine.root().join("beside"));
    for (path, code) in [
        ("../outside.txt", "PATCH_OUTSIDE_WORKSPACE"),
        ("new/../../outside.txt", "PATCH_OUTSIDE_WORKSPACE"),
        (absolute.as_str(), "PATCH_OUTSIDE_WORKSPACE"),
        ("up/outside.txt", "PATCH_OUTSIDE_WORKSPACE"),
        ("link.txt", "PATCH_OUTSIDE_WORKSPACE"),
        ("inner.txt", "PATCH_LINK"),
    ] {
        for flags in [&[][..], &["--dry-run"]] {
            let run = apply(&machine, flags, update(path));
            run.refused(1, code);
            assert!(run.stderr.contains(path), "{run:#?}");
        }
    }
    let add = patch("*** Add File: up/beside/evil\n+x\n");
    apply(&machine, &[], add).refused(1, "PATCH_OUTSIDE_WORKSPACE");
    assert_eq!(files(&machine.root().join("beside")), before);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "hello\n");
    // The owner can lift the limit, as the hint says.
    machine.ok(&[
        "config",
        "set",
        "tools.exec.applyPatch.workspaceOnly",
        "false",
    ]);
    let run = apply(&machine, &[], update("../outside.txt"));
    assert_eq!(run.code, 0, "{run:#?}");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "changed\n");
}

#[test]
fn another_workspace_is_named_by_root() {
    let machine = machine();
    let root = machine.root().join("other");
    let name = root.to_str().unwrap();
    let text = patch("*** Add File: a.txt\n+x\n");
    let run = apply(&machine, &["--root", name], &text);
    run.refused(2, "CWD_UNUSABLE");
    assert!(run.stderr.contains("--root"), "{run:#?}");
    fs::create_dir(&root).unwrap();
    let run = apply(&machine, &["--root", name], &text);
    assert_eq!(run.code, 0, "{run:#?}");
    assert_eq!(
        files(&root),
        BTreeMap::from([("a.txt".to_owned(), "x\n".to_owned())])
    );
    let file = root.join("a.txt");
    apply(&machine, &["--root", file.to_str().unwrap()], &text).refused(2, "CWD_UNUSABLE");
    let relative = apply(
        &machine,
        &["--root", "../other"],
        patch("*** Delete File: a.txt\n"),
    );
    assert_eq!(relative.code, 0, "{relative:#?}");
}

#[test]
fn the_tool_policy_and_the_config_decide_who_may_patch() {
    let text = patch("*** Add File: a.txt\n+x\n");
    let agent =
        |tools: &str| format!("{{ agents: {{ list: [{{ id: 'ops', tools: {tools} }}] }} }}");
    let global =
        |tools: &str| format!("{{ tools: {tools}, agents: {{ list: [{{ id: 'ops' }}] }} }}");
    // Config, then whether main and ops may.
    let table = [
        (global("{}"), true, true),
        (global("{ deny: ['apply_patch'] }"), false, false),
        (global("{ deny: ['group:fs'] }"), false, false),
        (global("{ deny: ['write'] }"), true, true),
        (global("{ deny: ['exec'] }"), true, true),
        (global("{ allow: ['apply_patch'] }"), true, true),
        (global("{ allow: ['write'] }"), true, true),
        (global("{ allow: ['group:fs'] }"), true, true),
        (global("{ allow: ['exec'] }"), false, false),
        (global("{ allow: [] }"), false, false),
        (
            global("{ allow: ['write'], deny: ['group:fs'] }"),
            false,
            false,
        ),
        (
            global("{ exec: { applyPatch: { enabled: false } } }"),
            false,
            false,
        ),
        (agent("{ deny: ['apply_patch'] }"), true, false),
        (agent("{ allow: ['exec'] }"), true, false),
        (
            agent("{ exec: { applyPatch: { enabled: false } } }"),
            true,
            false,
        ),
    ];
    for (config, main, ops) in table {
        let machine = machine();
        machine.write_config(&config);
        for (agent, may) in [("main", main), ("ops", ops)] {
            let run = apply(&machine, &["--agent", agent], &text);
            let file = machine.work().join("a.txt");
            assert_eq!(file.exists(), may, "{config} {agent}: {run:#?}");
            if may {
                assert_eq!(run.code, 0, "{config} {agent}: {run:#?}");
                fs::remove_file(file).unwrap();
            } else {
                run.refused(3, "TOOL_DENIED");
                assert!(run.stderr.contains("\nhint: "), "{config}: {run:#?}");
            }
        }
    }
}

/// The limit can be lifted for one agent without lifting it for the others.
#[test]
fn the_workspace_limit_is_each_agents_own() {
    let machine = machine();
    machine.write_config(
        "{ agents: { list: [{ id: 'ops', tools: { exec: { applyPatch: { workspaceOnly: false } } } }] } }",
    );
    let text = patch("*** Add File: ../outside.txt\n+x\n");
    apply(&machine, &[], &text).refused(1, "PATCH_OUTSIDE_WORKSPACE");
    let run = apply(&machine, &["--agent", "ops"], &text);
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(machine.root().join("outside.txt").exists());
    apply(&machine, &["--agent", "a b"], &text).refused(2, "AGENT_INVALID");
}

#[test]
fn what_is_no_patch_is_refused_with_its_place() {
    let machine = machine();
    refused(
        &machine,
        b"*** Begin Patch\n\xff\n".as_slice(),
        "PATCH_PARSE",
        &["UTF-8"],
    );
    refused(
        &machine,
        "",
        "PATCH_PARSE",
        &["empty", "\nhint: a patch is "],
    );
    refused(
        &machine,
        "hello\n",
        "PATCH_PARSE",
        &["line 1", "*** Begin Patch"],
    );
    refused(
        &machine,
        patch("*** Rename File: a\n"),
        "PATCH_PARSE",
        &["line 2"],
    );
    refused(
        &machine,
        "*** Begin Patch\n*** Add File: a\n+x\n",
        "PATCH_PARSE",
        &["*** End Patch"],
    );
    let mut large = String::from("*** Begin Patch\n*** Add File: a.txt\n");
    large.push_str(&"+0123456789abcdef\n".repeat(17 * 1024 * 1024 / 18));
    large.push_str("*** End Patch\n");
    refused(
        &machine,
        large,
        "PATCH_TOO_LARGE",
        &["16777216", "\nhint: split the patch"],
    );
    let missing = machine.run(&["apply-patch", "missing.patch"]);
    missing.refused(2, "PATCH_UNREADABLE");
    assert!(missing.stderr.contains("missing.patch"), "{missing:#?}");
    machine
        .run(&["apply-patch", "."])
        .refused(2, "PATCH_UNREADABLE");
    assert_eq!(machine.run(&["apply-patch"]).code, 2);
}

/// Reading stops at the limit, so an endless patch is refused too.
#[test]
fn an_endless_patch_is_refused() {
    let machine = machine();
    machine
        .run(&["apply-patch", "/dev/zero"])
        .refused(1, "PATCH_TOO_LARGE");
}

#[test]
fn an_ordinary_user_is_kept_from_files_of_others() {
    if !testkit::is_root() {
        println!("skipped: this user is an ordinary one");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    let run = apply(&machine, &[], patch("*** Add File: own.txt\n+x\n"));
    assert_eq!(run.code, 0, "{run:#?}");
    machine.file("work/roots.txt", "hello\n");
    let text =
        "*** Update File: own.txt\n@@\n-x\n+y\n*** Update File: roots.txt\n@@\n-hello\n+changed\n";
    refused(
        &machine,
        patch(text),
        "PATCH_PERMISSION",
        &["roots.txt", "\nhint: "],
    );
}
