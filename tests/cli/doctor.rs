//! `interlock doctor`: says what separates runs from Interlock, and repairs without weakening anything.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};
use testkit::{Machine, is_root};

fn doctor(machine: &Machine, flags: &[&str]) -> Value {
    let mut arguments = vec!["doctor", "--json"];
    arguments.extend(flags);
    machine.ok(&arguments).json()
}

fn separation(machine: &Machine) -> Value {
    doctor(machine, &[])["separation"].clone()
}

fn repairs(report: &Value) -> Vec<(String, bool)> {
    let repairs = report["repairs"].as_array().unwrap().iter();
    let repairs = repairs.map(|repair| {
        let id = repair["id"].as_str().unwrap().to_owned();
        (id, repair["done"].as_bool().unwrap())
    });
    repairs.collect()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Every file of the state directory with its mode and content. Of the database, what it says: its files
/// change when it is only read.
fn state(machine: &Machine) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut directories = vec![machine.state()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let name = path.display().to_string();
            if metadata.is_dir() {
                directories.push(path);
                files.insert(name, (metadata.mode(), Vec::new()));
            } else if metadata.is_file() && !name.contains(".sqlite") {
                files.insert(name, (metadata.mode(), fs::read(&path).unwrap()));
            }
        }
    }
    let head = machine.ok(&["audit", "head"]).stdout;
    files.insert("audit head".to_owned(), (0, head.into_bytes()));
    let (document, hash) = machine.document();
    files.insert(
        "document".to_owned(),
        (0, format!("{hash} {document}").into_bytes()),
    );
    files
}

#[test]
fn root_is_told_that_the_shield_is_a_guard_only() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let machine = Machine::new();
    machine.start();
    let text = machine.ok(&["doctor"]).stdout;
    assert!(text.starts_with("approvals document: recorded ("), "{text}");
    let expected = "\nruns of main: guard only: runs are shielded, but they are root, and root can undo the shield\n";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("\nnothing to repair\n"), "{text}");
    machine.ok(&["config", "set", "tools.exec.runAs", "nobody"]);
    assert_eq!(separation(&machine)[0]["kind"], "wall");
    let what = separation(&machine)[0]["what"].as_str().unwrap().to_owned();
    assert_eq!(what, "a wall: runs have the account nobody");
}

#[test]
fn an_ordinary_user_is_told_what_the_shield_holds() {
    let machine = if is_root() {
        Machine::of_ordinary_user()
    } else {
        Some(Machine::new())
    };
    let Some(machine) = machine else { return };
    machine.start();
    let said = separation(&machine);
    match said[0]["kind"].as_str().unwrap() {
        "shield" => {
            let what = said[0]["what"].as_str().unwrap();
            assert!(
                what.contains("not for the other files and programs"),
                "{said}"
            );
        }
        // A system without user namespaces.
        other => {
            assert_eq!(other, "guard-only", "{said}");
            assert!(
                said[0]["what"]
                    .as_str()
                    .unwrap()
                    .contains("offers no shield"),
                "{said}"
            );
        }
    }
    machine.configure(
        r#"{ tools: { exec: { shield: "off" } }, agents: { list: [{ id: "lab", tools: { exec: { shield: "auto" } } }] } }"#,
    );
    let said = separation(&machine);
    let off = said
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["agents"] == json!(["main"]));
    let off = off.unwrap();
    assert_eq!(off["kind"], "guard-only", "{said}");
    assert!(
        off["what"]
            .as_str()
            .unwrap()
            .contains("tools.exec.shield is `off`"),
        "{said}"
    );
}

/// A state with everything that can be repaired.
fn ailing() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    machine.configure(
        r#"{
  // kept: the owner's comment
  tools: { exec: { safeBins: ["head", "mytool", "python3", "xargs", "jq"] } },
  agents: { list: [{ id: "default", workspace: "/tmp" }, { id: "lab", tools: { exec: { safeBins: ["labtool"] } } }] },
}
"#,
    );
    let legacy = r#"{ "version": 1, "defaults": { "security": "full", "ask": "always", "askFallback": "full" },
      "agents": {
        "default": { "security": "deny", "allowlist": [{ "pattern": "/usr/bin/touch" }] },
        "*": { "deny": [{ "pattern": "rm" }], "autoAllowSkills": true, "allowlist": [{ "pattern": "*" }] } } }"#;
    fs::write(machine.state().join("exec-approvals.json"), legacy).unwrap();
    chmod(&machine.state().join("store.key"), 0o644);
    machine
}

#[test]
fn a_second_fix_changes_nothing() {
    let machine = ailing();
    let before = state(&machine);
    let looked = doctor(&machine, &[]);
    assert_eq!(state(&machine), before, "looking changes nothing");
    assert!(repairs(&looked).iter().all(|(_, done)| !done), "{looked:#}");
    let fixed = doctor(&machine, &["--fix"]);
    let mut ids: Vec<String> = repairs(&fixed).into_iter().map(|(id, _)| id).collect();
    ids.dedup();
    assert_eq!(
        ids,
        [
            "state.permissions",
            "config.safe_bin_profile",
            "config.agent_default",
            "approvals.legacy_document",
        ],
        "{fixed:#}"
    );
    assert!(repairs(&fixed).iter().all(|(_, done)| *done), "{fixed:#}");
    let after = state(&machine);
    assert_ne!(after, before);
    let again = doctor(&machine, &["--fix"]);
    assert_eq!(repairs(&again), [], "{again:#}");
    assert_eq!(state(&machine), after, "a second --fix changes nothing");
    let text = machine.ok(&["doctor", "--fix"]).stdout;
    assert!(text.contains("nothing to repair"), "{text}");
    machine.ok(&["audit", "verify"]);
}

/// `security audit --fix` makes the same repairs, says them, and leaves the rest as findings.
#[test]
fn the_audit_makes_the_same_repairs_and_names_what_is_left() {
    let machine = ailing();
    chmod(&machine.state(), 0o777);
    let key = machine.file("gateway.password", "secret");
    chmod(&key, 0o640);
    let key_text = key.to_str().unwrap();
    let audit = |flags: &[&str]| {
        let mut all = vec!["security", "audit"];
        all.extend(flags);
        machine.run(&all)
    };
    let before = audit(&[]);
    assert!(
        before.stdout.contains("critical state.directory"),
        "{before:#?}"
    );
    assert!(!before.stdout.contains("fixed"), "{before:#?}");
    assert_eq!(machine.state().metadata().unwrap().mode() & 0o777, 0o777);
    let fixed = audit(&["--fix"]);
    for id in [
        "state.permissions",
        "config.safe_bin_profile",
        "config.agent_default",
        "approvals.legacy_document",
    ] {
        assert!(
            fixed.stdout.contains(&format!("fixed {id}: ")),
            "{fixed:#?}"
        );
    }
    // What only the owner can decide is left, with its fix.
    assert!(fixed.stdout.contains("\nleft "), "{fixed:#?}");
    assert!(
        fixed.stdout.contains("safe_bins_interpreter_unprofiled"),
        "{fixed:#?}"
    );
    assert!(
        fixed.stdout.contains(" fixed; left: 0 critical"),
        "{fixed:#?}"
    );
    machine.ok(&["config", "set", "gateway.auth.passwordFile", key_text]);
    let json = audit(&["--fix", "--json"]).json();
    assert_eq!(json["fixed"][0]["id"], "secret.permissions", "{json:#}");
    assert_eq!(json["fixed"].as_array().unwrap().len(), 1, "{json:#}");
    assert_eq!(key.metadata().unwrap().mode() & 0o777, 0o600);
    let after = state(&machine);
    let again = audit(&["--fix", "--json"]).json();
    assert_eq!(again["fixed"], json!([]), "{again:#}");
    assert_eq!(state(&machine), after, "a second --fix changes nothing");
    assert_eq!(repairs(&doctor(&machine, &["--fix"])), []);
}

/// A config elsewhere is closed to writers, but stays readable; links and files of other users are left.
#[test]
fn a_config_elsewhere_is_closed_to_writers_and_links_are_left() {
    let machine = Machine::new();
    machine.start();
    let config = machine.file("other.json5", "{}");
    chmod(&config, 0o666);
    let flags = ["--config", config.to_str().unwrap()];
    let fix = |flags: &[&str]| {
        let mut all = flags.to_vec();
        all.extend(["security", "audit", "--fix", "--json"]);
        machine.run(&all).json()
    };
    let told = fix(&flags);
    assert_eq!(told["fixed"][0]["id"], "config.permissions", "{told:#}");
    assert_eq!(config.metadata().unwrap().mode() & 0o777, 0o644);
    let linked = machine.root().join("linked.json5");
    std::os::unix::fs::symlink(&config, &linked).unwrap();
    chmod(&config, 0o666);
    let told = fix(&["--config", linked.to_str().unwrap()]);
    assert_eq!(told["fixed"], json!([]), "{told:#}");
    assert_eq!(config.metadata().unwrap().mode() & 0o777, 0o666);
    let left = told["findings"].to_string();
    assert!(left.contains("can change the config"), "{told:#}");
}

/// Before the first start there is nothing to repair, and a policy that no record wrote is not built upon.
#[test]
fn the_audit_repairs_no_state_that_is_not_there_or_not_recorded() {
    let machine = Machine::new();
    machine.ok(&["security", "audit", "--fix"]);
    let first = machine.ok(&["explain", "--", "ls"]).stderr;
    assert!(first.contains("wrote the cautious policy"), "{first}");
    let machine = ailing();
    let forged = "UPDATE approvals_document SET text = '{\"version\":1}'";
    machine.database().execute(forged, []).unwrap();
    let text = fs::read_to_string(machine.config()).unwrap();
    let told = machine.run(&["security", "audit", "--fix"]);
    assert_eq!(told.code, 1, "{told:#?}");
    assert!(told.stdout.contains("document_unrecorded"), "{told:#?}");
    assert_eq!(fs::read_to_string(machine.config()).unwrap(), text);
}

#[test]
fn repairs_never_weaken_the_policy() {
    let machine = ailing();
    let commands = [
        "rg x",
        "touch made",
        "rm made",
        "ls",
        "python3 -c 1",
        "xargs id",
        "jq .",
        "mytool file",
    ];
    let strictness = |verdict: &str| match verdict {
        "allow" => 0,
        "ask" => 1,
        _ => 2,
    };
    let verdicts = || commands.map(|command| strictness(&machine.verdict(command)));
    let before = verdicts();
    doctor(&machine, &["--fix"]);
    for ((command, before), after) in commands.iter().zip(before).zip(verdicts()) {
        assert!(after >= before, "{command}");
    }
    let (document, _) = machine.document();
    assert_eq!(document["defaults"]["security"], "allowlist");
    assert_eq!(document["defaults"]["ask"], "always");
    assert_eq!(document["defaults"]["askFallback"], "deny");
    assert_eq!(document["agents"]["main"]["security"], "deny");
    assert_eq!(document["agents"]["*"]["deny"][0]["pattern"], "rm");
    assert_eq!(document["agents"]["*"]["autoAllowSkills"], Value::Null);
    assert!(!document.to_string().contains("touch"), "{document}");
    let entries = document["agents"]["*"]["allowlist"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{document}");
}

#[test]
fn profiles_are_scaffolded_but_never_for_what_runs_other_code() {
    let machine = ailing();
    let fixed = doctor(&machine, &["--fix"]);
    let config = machine.ok(&["config", "get"]).json();
    let profiles = &config["tools"]["exec"]["safeBinProfiles"];
    assert_eq!(*profiles, json!({ "mytool": {} }), "{config:#}");
    let lab = &config["agents"]["list"][1];
    assert_eq!(
        lab["tools"]["exec"]["safeBinProfiles"],
        json!({ "labtool": {} })
    );
    assert_eq!(config["agents"]["list"][0]["id"], "main");
    let text = fs::read_to_string(machine.config()).unwrap();
    assert!(text.contains("// kept: the owner's comment"), "{text}");
    let notes = fixed["notes"].to_string();
    for name in ["python3", "xargs", "jq"] {
        assert!(notes.contains(&format!("`{name}`")), "{notes}");
    }
}

#[test]
fn a_state_directory_that_others_could_write_is_closed() {
    let machine = Machine::new();
    machine.start();
    chmod(&machine.state(), 0o777);
    machine.run(&["doctor"]).refused(1, "STATE_DIR_UNSAFE");
    let fixed = doctor(&machine, &["--fix"]);
    assert_eq!(repairs(&fixed), [("state.permissions".to_owned(), true)]);
    assert_eq!(machine.state().metadata().unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_legacy_file_that_cannot_be_read_is_told_and_stops_nothing() {
    let machine = Machine::new();
    machine.start();
    let legacy = machine.state().join("exec-approvals.json");
    for text in ["{ not json", "[]", r#"{ "version": 7 }"#] {
        fs::write(&legacy, text).unwrap();
        let fixed = doctor(&machine, &["--fix"]);
        assert!(
            fixed["notes"].to_string().contains("is not taken over"),
            "{fixed:#}"
        );
    }
    fs::remove_file(&legacy).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &legacy).unwrap();
    let fixed = doctor(&machine, &["--fix"]);
    assert!(
        fixed["notes"].to_string().contains("not a regular file"),
        "{fixed:#}"
    );
}

#[test]
fn a_run_cannot_have_repairs_made() {
    let machine = Machine::open();
    machine.switch_shield_off();
    let mine = machine.binary().display().to_string();
    for command in ["doctor --fix", "security audit --fix"] {
        let run = machine.exec(&format!("{mine} {command}"));
        assert_ne!(run.code, 0, "{run:#?}");
        assert!(
            run.stderr.contains("DECISION_FROM_RUN") || run.stdout.contains("DECISION_FROM_RUN"),
            "{run:#?}"
        );
    }
}

#[test]
fn entries_that_never_match_and_critical_findings_are_told() {
    let machine = Machine::new();
    machine.start();
    let imported = r#"{ version: 1, defaults: { security: "allowlist" }, agents: { main: { allowlist: [
        { pattern: "/usr/bin/git", source: "allow-always" } ] } } }"#;
    assert_eq!(machine.set_document(imported).code, 0);
    let said = machine.ok(&["doctor"]).stderr;
    assert!(
        said.contains("note: approvals.entry_inert: agents.main.allowlist[0]"),
        "{said}"
    );
    machine.ok(&["config", "set", "gateway.bind", "lan"]);
    machine.ok(&["config", "set", "gateway.auth.mode", "none"]);
    let said = machine.ok(&["doctor"]).stderr;
    assert!(said.contains("note: gateway.bind_no_auth: "), "{said}");
}

/// The command that a note about a legacy document names.
#[test]
fn what_a_legacy_document_would_allow_is_shown_by_the_named_command() {
    let machine = ailing();
    let report = doctor(&machine, &["--fix"]);
    let notes = report["notes"].as_array().unwrap().iter();
    let mut notes = notes.map(|note| note.as_str().unwrap());
    let note = notes
        .find(|note| note.contains("interlock import"))
        .unwrap();
    let (_, command) = note.split_once(": interlock ").unwrap();
    let before = machine.document();
    let run = machine.paste(&format!("interlock {command}"));
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(
        run.stdout
            .contains("`/usr/bin/touch` with any arguments (allows more)"),
        "{run:#?}"
    );
    assert_eq!(machine.document(), before);
}
