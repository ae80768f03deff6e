//! What *always* remembers: scripts by their content, wider forms by choice, and when it was used.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use testkit::Machine;

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

/// Asks about a command and allows it always, in this form. What was stored is returned.
#[track_caller]
fn remember(machine: &Machine, command: &str, form: &str) -> Value {
    let id = machine.put_down(&["--", command]);
    let always = format!("--always={form}");
    let run = machine.ok(&["approvals", "approve", &id, &always, "--json"]);
    let answer = run.json();
    assert_eq!(answer["form"], form);
    answer["stored"].clone()
}

/// The question about a command; it is denied afterwards.
#[track_caller]
fn asked(machine: &Machine, command: &str) -> Value {
    let id = machine.put_down(&["--", command]);
    let asked = machine.pending().pop().unwrap();
    machine.ok(&["approvals", "deny", &id]);
    asked
}

fn forms(asked: &Value) -> Vec<String> {
    let wider = asked["alwaysWider"].as_array().unwrap().iter();
    wider
        .map(|wider| wider["form"].as_str().unwrap().to_owned())
        .collect()
}

/// The programs of this machine count as the system's own.
fn trust_bin(machine: &Machine) {
    let bin = format!("['{}']", machine.bin().display());
    machine.ok(&["config", "set", "tools.exec.safeBinTrustedDirs", &bin]);
}

/// A native program that is replaced after *always* is another one, whatever its path.
#[test]
fn a_program_in_a_writable_place_is_remembered_by_its_content() {
    let machine = started();
    let tool = machine.native("tool");
    let stored = remember(&machine, "tool go", "exact");
    let bound = &stored[0]["boundFile"];
    assert_eq!(bound["path"], tool.to_str().unwrap());
    assert_eq!(machine.verdict("tool go"), "allow");
    assert_eq!(machine.exec("tool go").code, 0);
    let mut other = fs::read(&tool).unwrap();
    other.extend_from_slice(b"another program");
    let next = machine.bin().join("next");
    fs::write(&next, other).unwrap();
    fs::set_permissions(&next, fs::metadata(&tool).unwrap().permissions()).unwrap();
    fs::rename(&next, &tool).unwrap();
    let explained = machine.explain(&["--", "tool go"]);
    assert_eq!(explained["verdict"], "ask");
    assert_eq!(explained["reason"]["code"], "entry-content");
    machine.exec("tool go").refused(3, "APPROVAL_PENDING");
}

const SCRIPT: &str = "#!/bin/sh\necho \"deployed $1\"\n";
const PYTHON: &str = "print('deployed')\n";

#[test]
fn a_script_is_remembered_by_its_content_and_asked_about_when_it_was_edited() {
    for (name, content, command) in [
        ("work/x.sh", SCRIPT, "./x.sh prod"),
        ("work/x.sh", SCRIPT, "bash x.sh prod"),
        ("work/x.sh", SCRIPT, "bash -e ./x.sh prod"),
        ("work/x.sh", SCRIPT, "env nice ./x.sh prod"),
        ("work/x.py", PYTHON, "python3 x.py prod"),
    ] {
        let machine = started();
        let path = machine.script(name, content);
        let stored = remember(&machine, command, "exact");
        let bound = &stored[0]["boundFile"];
        assert_eq!(bound["path"], path.to_str().unwrap(), "{command}");
        assert_eq!(machine.verdict(command), "allow", "{command}");
        let run = machine.exec(command);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:#?}");
        if content == SCRIPT {
            assert_eq!(run.stdout, "deployed prod\n");
        }
        // Other arguments, another directory.
        let other = command.replace("prod", "test");
        assert_eq!(machine.verdict(&other), "ask", "{command}");
        // Another content, and the same one again under another inode.
        machine.script(name, &content.replace("deployed", "removed"));
        let explained = machine.explain(&["--", command]);
        assert_eq!(explained["verdict"], "ask", "{command}");
        assert_eq!(explained["reason"]["code"], "entry-content", "{command}");
        assert_eq!(explained["remedies"], json!([]), "{command}");
        machine.exec(command).refused(3, "APPROVAL_PENDING");
        fs::remove_file(&path).unwrap();
        machine.script(name, content);
        assert_eq!(machine.verdict(command), "allow", "{command}");
        // The edited one can be remembered beside it.
        machine.script(name, &content.replace("deployed", "done"));
        remember(&machine, command, "exact");
        assert_eq!(machine.verdict(command), "allow", "{command}");
    }
}

#[test]
fn content_that_cannot_be_read_or_is_too_large_is_no_match() {
    let machine = started();
    let path = machine.script("work/x.sh", SCRIPT);
    remember(&machine, "./x.sh", "exact");
    // The same bytes somewhere else are another script.
    fs::rename(&path, machine.work().join("y.sh")).unwrap();
    symlink("y.sh", &path).unwrap();
    assert_eq!(machine.verdict("./x.sh"), "ask");
    fs::remove_file(&path).unwrap();
    fs::rename(machine.work().join("y.sh"), &path).unwrap();
    assert_eq!(machine.verdict("./x.sh"), "allow");
    // So large that nothing is held by its content.
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.set_len((1 << 30) + 1).unwrap();
    drop(file);
    assert_eq!(machine.verdict("./x.sh"), "ask");
    let run = machine.exec("./x.sh");
    run.refused(1, "BIND_TOO_LARGE");
    assert!(
        run.stderr.contains("a smaller program, or a sandbox"),
        "{run:#?}"
    );
}

#[test]
fn an_entry_holds_only_the_script_that_it_names() {
    let machine = started();
    machine.script("work/x.py", "pass\n");
    machine.script("work/y.py", "pass\n");
    let stored = remember(&machine, "python3 x.py", "leading:1");
    assert_eq!(stored[0]["args"], json!(["x.py", "**"]));
    assert_eq!(machine.verdict("python3 x.py --flag"), "allow");
    for command in [
        "python3 y.py",
        "python3 -c 'print(1)'",
        "python3 -m x.py",
        "python3",
        "cd / && python3 x.py",
    ] {
        assert_ne!(machine.verdict(command), "allow", "{command}");
    }
}

#[test]
fn a_script_is_remembered_with_what_runs_it() {
    let machine = started();
    machine.script("work/x.sh", "#!/usr/bin/env runner\n");
    let runner = machine.native("runner");
    let stored = remember(&machine, "./x.sh", "exact");
    let by = stored[0]["boundFile"]["interpreters"].as_array().unwrap();
    assert!(by.contains(&json!(runner.to_str().unwrap())), "{stored:#}");
    assert_eq!(machine.verdict("./x.sh"), "allow");
    for command in ["bash x.sh", "sh ./x.sh"] {
        assert_eq!(machine.verdict(command), "ask", "{command}");
    }
    // Another program of that name, earlier in PATH.
    fs::create_dir(machine.root().join("early")).unwrap();
    testkit::copy(&runner, &machine.root().join("early/runner"));
    let early = format!("['{}']", machine.root().join("early").display());
    machine.ok(&["config", "set", "tools.exec.pathPrepend", &early]);
    assert_eq!(machine.verdict("./x.sh"), "ask");
}

#[test]
fn what_was_judged_is_what_runs() {
    let machine = started();
    let deploy = machine.script("work/deploy.sh", "#!/bin/sh\ntouch deployed\n");
    machine.script(
        "work/build.sh",
        "#!/bin/sh\nprintf '#!/bin/sh\\ntouch marker\\n' > deploy.sh\n",
    );
    remember(&machine, "./build.sh", "exact");
    remember(&machine, "./deploy.sh", "exact");
    let command = "./build.sh && ./deploy.sh";
    assert_eq!(machine.verdict(command), "allow");
    let run = machine.exec(command);
    assert_ne!(run.code, 0, "{run:#?}");
    let changed = format!("{} was changed", deploy.display());
    assert!(run.stderr.contains(&changed), "{run:#?}");
    assert!(!machine.work().join("marker").exists());
    assert!(!machine.work().join("deployed").exists());
}

#[test]
fn a_document_with_a_hash_that_is_none_is_refused() {
    let machine = started();
    for (bound, says) in [
        (r#"{ path: "/x.sh", sha256: "abc" }"#, "64 hex digits"),
        (
            r#"{ path: "x.sh", sha256: "0000000000000000000000000000000000000000000000000000000000000000" }"#,
            "a path is not absolute",
        ),
        (r#"{ path: "/x.sh" }"#, "sha256"),
        (r#"{ path: "/x.sh", sha256: 1, more: 2 }"#, "boundFile"),
    ] {
        let text = format!(
            "{{ version: 1, agents: {{ main: {{ allowlist: [{{ pattern: '/x.sh', boundFile: {bound} }}] }} }} }}"
        );
        let run = machine.set_document(&text);
        run.refused(1, "DOCUMENT_INVALID");
        assert!(run.stderr.contains(says), "{says}: {run:#?}");
    }
}

#[test]
fn a_person_may_choose_the_leading_arguments_or_the_program() {
    let machine = started();
    machine.native("tool");
    let shown = asked(&machine, "tool push origin main");
    let all = ["leading:1", "leading:2", "leading:3"];
    assert_eq!(forms(&shown), all, "{shown:#}");
    let stored = remember(&machine, "tool push origin main", "leading:2");
    assert_eq!(stored[0]["args"], json!(["push", "origin", "**"]));
    assert!(stored[0]["argPattern"].is_null());
    for (command, verdict) in [
        ("tool push origin main", "allow"),
        ("tool push origin", "allow"),
        ("tool push origin a b", "allow"),
        ("cd / && tool push origin x", "allow"),
        ("tool push other", "ask"),
        ("tool", "ask"),
    ] {
        assert_eq!(machine.verdict(command), verdict, "{command}");
    }
    trust_bin(&machine);
    let stored = remember(&machine, "ls", "program");
    assert_eq!(stored[0]["args"], json!(["**"]));
    assert_eq!(machine.verdict("ls anything"), "allow");
    // The decision says which.
    let log = machine.ok(&["audit", "log", "--kind", "decision", "--json"]);
    let log = log.json();
    let records = log["records"].as_array().unwrap();
    let forms: Vec<&Value> = records
        .iter()
        .map(|record| &record["body"]["form"])
        .collect();
    assert!(forms.contains(&&json!("leading:2")), "{log:#}");
    assert!(forms.contains(&&json!("program")), "{log:#}");
}

#[test]
fn a_form_that_would_let_any_code_through_is_not_offered() {
    let machine = started();
    for name in ["node", "find"] {
        machine.native(name);
    }
    machine.script("work/x.sh", SCRIPT);
    machine.script("work/x.js", "1\n");
    trust_bin(&machine);
    for (command, offered) in [
        ("python3 --version", &[][..]),
        ("node --version", &[]),
        ("git push origin", &["leading:1", "leading:2"]),
        ("find . -name x", &[]),
        ("node x.js a", &["leading:1", "leading:2"]),
        ("./x.sh a", &["leading:1"]),
        ("bash x.sh", &[]),
        ("rg a && ls b", &[]),
        ("ls 'a*'", &["program"]),
        (
            "ls a --password hunter2secret",
            &["leading:1", "leading:2", "program"],
        ),
    ] {
        let shown = asked(&machine, command);
        assert_eq!(forms(&shown), offered, "{command}: {shown:#}");
        assert_ne!(shown["always"], json!([]), "{command}");
        let not = shown["alwaysNotWider"].as_array().unwrap();
        assert!(
            offered.len() > 1 || !not.is_empty(),
            "{command}: without a reason: {shown:#}"
        );
        let id = machine.put_down(&["--", command]);
        for form in ["program", "leading:1", "leading:9"] {
            if !offered.contains(&form) {
                let before = machine.document();
                let always = format!("--always={form}");
                let run = machine.run(&["approvals", "approve", &id, &always]);
                assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:#?}");
                assert!(run.stderr.contains("APPROVAL_NOT_OFFERED"), "{run:#?}");
                assert_eq!(machine.document(), before);
            }
        }
        machine.ok(&["approvals", "deny", &id]);
    }
    let run = machine.run(&["approvals", "approve", "x", "--always=everything"]);
    assert_eq!(run.code, 2, "{run:#?}");
}

#[test]
fn a_wider_entry_covers_no_code_and_no_options_that_start_programs() {
    let machine = started();
    remember(&machine, "git push origin", "leading:1");
    for (command, verdict) in [
        ("git push other", "allow"),
        ("git push --receive-pack=evil other", "ask"),
        ("git push --exec=evil other", "ask"),
    ] {
        assert_eq!(machine.verdict(command), verdict, "{command}");
    }
    let explained = machine.explain(&["--", "git push --exec=evil other"]);
    assert_eq!(explained["reason"]["code"], "entry-unforeseen");
}

#[test]
fn a_widened_script_is_still_held_by_its_content() {
    let machine = started();
    machine.script("work/x.sh", SCRIPT);
    let stored = remember(&machine, "./x.sh prod", "leading:1");
    assert!(stored[0]["boundFile"]["sha256"].is_string());
    assert_eq!(machine.exec("./x.sh prod 2").stdout, "deployed prod\n");
    machine.script("work/x.sh", "#!/bin/sh\ntouch marker\n");
    machine.exec("./x.sh prod 2").refused(3, "APPROVAL_PENDING");
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn one_file_that_is_many_programs_is_remembered_by_its_name() {
    let machine = started();
    machine.native("many");
    for name in ["show", "remove"] {
        symlink("many", machine.bin().join(name)).unwrap();
    }
    let stored = remember(&machine, "show file", "exact");
    assert_eq!(stored[0]["calledAs"], "show");
    assert_eq!(machine.verdict("show file"), "allow");
    for command in ["remove file", "many file"] {
        assert_eq!(machine.verdict(command), "ask", "{command}");
    }
}

#[test]
fn success_is_never_told_when_nothing_was_stored() {
    let machine = started();
    machine.native("tool");
    let id = machine.put_down(&["--", "tool a b"]);
    let approve = |form: &str| machine.run(&["approvals", "approve", &id, form, "--json"]);
    let first = approve("--always=exact").json();
    // The same again is fine, and shows what is stored.
    let again = approve("--always").json();
    assert_eq!(again["again"], true);
    assert_eq!(again["stored"], first["stored"]);
    // Another form is another answer, and came too late.
    let wider = approve("--always=leading:1");
    assert_eq!(wider.code, 1, "{wider:#?}");
    assert!(
        wider.stderr.contains("APPROVAL_ALREADY_DECIDED"),
        "{wider:#?}"
    );
    let entry = first["stored"][0]["id"].as_str().unwrap();
    machine.ok(&["approvals", "allowlist", "remove", "--agent", "main", entry]);
    let gone = approve("--always");
    assert_eq!(gone.code, 1, "{gone:#?}");
    assert!(
        gone.stderr.contains("APPROVAL_ALREADY_DECIDED"),
        "{gone:#?}"
    );
}

#[test]
fn an_entry_knows_its_last_use_and_the_document_stays_the_same() {
    let machine = started();
    machine.ok(&["approvals", "allowlist", "add", "--agent", "main", "rg"]);
    let set = machine.run(&["approvals", "allowlist", "add", "ls"]);
    assert_eq!(set.code, 0);
    let (before, hash) = machine.document();
    assert!(before["agents"]["main"]["allowlist"][0]["lastUsedAt"].is_null());
    assert_eq!(machine.exec("rg first").code, 0);
    assert_eq!(machine.exec("rg second | ls").code, 0);
    // Judged, asked or refused is not used.
    assert_eq!(machine.verdict("rg third"), "allow");
    machine
        .exec("rg fourth | tool")
        .refused(3, "APPROVAL_UNBOUND");
    let (after, same) = machine.document();
    assert_eq!(hash, same);
    let entry = &after["agents"]["main"]["allowlist"][0];
    assert!(
        entry["lastUsedAt"].as_u64().unwrap() > 1_000_000,
        "{entry:#}"
    );
    assert_eq!(entry["lastUsedCommand"], "rg second | ls");
    assert_eq!(
        entry["lastResolvedPath"],
        machine.bin().join("rg").to_str().unwrap()
    );
    assert_eq!(
        after["agents"]["*"]["allowlist"][0]["lastUsedCommand"],
        "rg second | ls"
    );
    let shown = machine.ok(&["approvals", "get"]).stdout;
    assert!(shown.contains("ago: rg second | ls"), "{shown}");
    // What was shown and is written back is the same document.
    let text = after.to_string();
    assert_eq!(machine.set_document(&text).code, 0);
    assert_eq!(machine.document().1, hash);
    // A secret is not kept.
    assert_eq!(
        machine
            .exec("rg --token=sk-live-abcdefghijklmnopqrstuvwxyz0123456789")
            .code,
        0
    );
    let entry = machine.document().0["agents"]["main"]["allowlist"][0].clone();
    assert!(
        !entry["lastUsedCommand"]
            .as_str()
            .unwrap()
            .contains("abcdefghijkl")
    );
}

#[test]
fn an_entry_without_an_id_knows_its_last_use_too() {
    let machine = started();
    let set = machine.set_document(
        r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" },
            agents: { main: { allowlist: ["ls", { pattern: "rg", args: ["a"] }, "rg"] } } }"#,
    );
    assert_eq!(set.code, 0, "{set:#?}");
    assert_eq!(machine.exec("rg b").code, 0);
    let list = machine.document().0["agents"]["main"]["allowlist"].clone();
    let used: Vec<&Value> = (0..3)
        .map(|index| &list[index]["lastUsedCommand"])
        .collect();
    assert_eq!(used, [&Value::Null, &Value::Null, &json!("rg b")]);
}
