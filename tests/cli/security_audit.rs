//! `interlock security audit`: every check finds what it is for, and its fix, pasted, ends the finding.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::mcp::Gateway;
use testkit::{Machine, Run, eventually, is_root};

/// A machine of its own account: of `nobody` where the tests are root.
fn ordinary_machine() -> Option<Machine> {
    if is_root() {
        Machine::of_ordinary_user()
    } else {
        Some(Machine::new())
    }
}

fn audit(machine: &Machine) -> Run {
    machine.run(&["security", "audit", "--json"])
}

fn findings(machine: &Machine) -> Vec<Value> {
    let report = audit(machine).json();
    report["findings"].as_array().unwrap().clone()
}

/// The finding of an id, if there is one.
fn find(machine: &Machine, id: &str) -> Option<Value> {
    let mut findings = findings(machine).into_iter();
    findings.find(|finding| finding["id"] == id)
}

#[track_caller]
fn found(machine: &Machine, id: &str, severity: &str) -> Value {
    let Some(finding) = find(machine, id) else {
        panic!("{id} was not found: {:#?}", findings(machine));
    };
    assert_eq!(finding["severity"], severity, "{finding}");
    for field in ["subject", "what", "why", "fix"] {
        assert_ne!(finding[field].as_str().unwrap(), "", "{field}: {finding}");
    }
    finding
}

fn fix(finding: &Value) -> String {
    finding["fix"].as_str().unwrap().to_owned()
}

/// Pastes a fix as the user would.
fn paste(machine: &Machine, fix: &str) {
    for command in fix.split(" && ") {
        let run = if command.starts_with("interlock ") {
            machine.paste(command)
        } else {
            testkit::finish(Command::new("/bin/sh").args(["-c", command]))
        };
        assert_eq!(run.code, 0, "{command}: {run:#?}");
    }
}

/// The finding is there, and its fix, pasted, ends it.
#[track_caller]
fn found_and_fixed(machine: &Machine, id: &str, severity: &str) {
    let finding = found(machine, id, severity);
    let code = audit(machine).code;
    assert_eq!(code, i32::from(severity == "critical"), "{finding}");
    paste(machine, &fix(&finding));
    assert_eq!(find(machine, id), None, "{finding}");
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_fresh_machine_of_root_has_one_warning_about_the_shield() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let machine = Machine::new();
    machine.start();
    let run = audit(&machine);
    assert_eq!(run.code, 0, "{run:#?}");
    let report = run.json();
    let ids: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["tools.exec.shield_root"], "{report:#}");
    let finding = &report["findings"][0];
    assert!(fix(finding).contains("--run-as"), "{finding}");
    assert!(
        finding["why"].as_str().unwrap().contains("sandbox"),
        "{finding}"
    );
    assert_eq!(
        report["counts"],
        json!({ "critical": 0, "warn": 1, "info": 0 })
    );
}

#[test]
fn a_fresh_machine_of_an_ordinary_user_has_nothing_worse() {
    let Some(machine) = ordinary_machine() else {
        return;
    };
    machine.start();
    let run = audit(&machine);
    assert_eq!(run.code, 0, "{run:#?}");
    for finding in run.json()["findings"].as_array().unwrap() {
        // Where the system has no user namespaces, that is one.
        assert_eq!(finding["id"], "tools.exec.shield_unavailable", "{finding}");
    }
}

#[test]
fn the_guide_names_every_id() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/operating.md");
    let guide = fs::read_to_string(guide).unwrap();
    for check in interlock_doctor::audit::SECURITY_CHECKS {
        let short = check.id.rsplit("_no_sandbox").next().unwrap_or(check.id);
        let is_named = guide.contains(check.id) || (short != check.id && guide.contains(short));
        assert!(is_named, "{}", check.id);
    }
}

#[test]
fn an_audit_before_the_first_start_writes_no_policy() {
    let machine = Machine::new();
    assert_eq!(audit(&machine).code, 0);
    let first = machine.ok(&["explain", "--", "ls"]);
    assert!(
        first.stderr.contains("wrote the cautious policy"),
        "{first:#?}"
    );
}

#[test]
fn levels_hosts_and_tools() {
    let machine = Machine::new();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    found_and_fixed(&machine, "tools.exec.security_full_configured", "warn");

    machine.configure(
        r#"{ agents: { list: [{ id: "lab", tools: { exec: { security: "full", ask: "off" } } }] } }"#,
    );
    let open = r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" },
                    agents: { lab: { security: "full", ask: "off" } } }"#;
    assert_eq!(machine.set_document(open).code, 0);
    let finding = found(&machine, "tools.exec.security_full_configured", "warn");
    assert!(
        finding["what"].as_str().unwrap().contains("lab"),
        "{finding}"
    );
    found_and_fixed(&machine, "tools.exec.security_full_configured", "warn");

    machine.configure(r#"{ tools: { exec: { host: "sandbox" } } }"#);
    found_and_fixed(
        &machine,
        "tools.exec.host_sandbox_no_sandbox_defaults",
        "warn",
    );
    machine.configure(
        r#"{ agents: { list: [{ id: "lab", tools: { exec: { host: "sandbox" } } }] } }"#,
    );
    found_and_fixed(
        &machine,
        "tools.exec.host_sandbox_no_sandbox_agents",
        "warn",
    );

    machine.configure(r#"{ tools: { deny: ["group:fs"] } }"#);
    found_and_fixed(
        &machine,
        "tools.exec.fs_tools_disabled_but_exec_enabled",
        "warn",
    );
    // A tool that is closed because everything is closed is no finding.
    machine.configure("{ tools: { allow: [] } }");
    assert_eq!(
        find(&machine, "tools.exec.fs_tools_disabled_but_exec_enabled"),
        None
    );

    let skills = r#"{ version: 1, defaults: { security: "allowlist" },
                      agents: { "*": { autoAllowSkills: true } } }"#;
    assert_eq!(machine.set_document(skills).code, 0);
    found_and_fixed(&machine, "tools.exec.auto_allow_skills_enabled", "warn");
    let (document, _) = machine.document();
    assert_eq!(document["agents"]["*"]["autoAllowSkills"], false);
}

#[test]
fn a_policy_that_allows_everything_is_critical_on_a_network() {
    let machine = Machine::new();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    machine.ok(&["config", "set", "gateway.bind", "lan"]);
    found_and_fixed(&machine, "tools.exec.security_full_configured", "critical");
}

#[test]
fn safe_bins_and_their_directories() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&[
        "config",
        "set",
        "tools.exec.safeBins",
        r#"["head", "python3", "jq"]"#,
    ]);
    found_and_fixed(
        &machine,
        "tools.exec.safe_bins_interpreter_unprofiled",
        "warn",
    );
    found_and_fixed(&machine, "tools.exec.safe_bins_broad_behavior", "warn");
    let left = machine.ok(&["config", "get", "tools.exec.safeBins"]).json();
    assert_eq!(left, json!(["head"]));
    // A profile does not turn an interpreter into a filter.
    machine.configure(
        r#"{ tools: { exec: { safeBins: ["python3"], safeBinProfiles: { python3: {} } } } }"#,
    );
    found_and_fixed(&machine, "tools.exec.safe_bins_broad_behavior", "warn");

    let open = machine.root().join("open");
    fs::create_dir(&open).unwrap();
    chmod(&open, 0o777);
    for directory in [
        "/tmp",
        "/usr/local/bin",
        open.to_str().unwrap(),
        "/no/such/directory",
    ] {
        machine.configure(&format!(
            "{{ tools: {{ exec: {{ safeBinTrustedDirs: [\"/usr/sbin\", \"{directory}\"] }} }} }}"
        ));
        let finding = found(&machine, "tools.exec.safe_bin_trusted_dirs_risky", "warn");
        assert!(
            finding["what"].as_str().unwrap().contains(directory),
            "{finding}"
        );
        found_and_fixed(&machine, "tools.exec.safe_bin_trusted_dirs_risky", "warn");
    }
    machine.configure(r#"{ tools: { exec: { safeBinTrustedDirs: ["/usr/sbin"] } } }"#);
    assert_eq!(
        find(&machine, "tools.exec.safe_bin_trusted_dirs_risky"),
        None
    );
}

#[test]
fn the_shield_and_the_account_of_runs() {
    let machine = Machine::new();
    machine.start();
    machine.switch_shield_off();
    found_and_fixed(&machine, "tools.exec.shield_off", "warn");
    machine
        .configure(r#"{ agents: { list: [{ id: "lab", tools: { exec: { shield: "off" } } }] } }"#);
    let finding = found(&machine, "tools.exec.shield_off", "warn");
    assert_eq!(finding["subject"], "runs of lab", "{finding}");
    found_and_fixed(&machine, "tools.exec.shield_off", "warn");
    machine.configure(r#"{ tools: { exec: { runAs: "no-such-user" } } }"#);
    found_and_fixed(&machine, "tools.exec.run_as_unusable", "warn");
    if is_root() {
        machine.configure(r#"{ tools: { exec: { runAs: "nobody", shield: "off" } } }"#);
        for id in ["tools.exec.shield_off", "tools.exec.shield_root"] {
            assert_eq!(find(&machine, id), None, "another account is a wall");
        }
    }
}

#[test]
fn secrets_of_chats_in_the_config_and_decisions_without_an_approver() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "channels.telegram.botToken", "\"123:abc\""]);
    let run = audit(&machine);
    assert!(!run.stdout.contains("123:abc"), "{run:#?}");
    found_and_fixed(&machine, "channels.inline_secret", "warn");
    // Outside the state directory, where a shielded run reads it.
    let outside = machine.root().join("slack.token");
    machine.write_private(&outside, "xapp-1");
    let named = serde_json::to_string(outside.to_str().unwrap()).unwrap();
    machine.ok(&["config", "set", "channels.slack.appTokenFile", &named]);
    found_and_fixed(&machine, "channels.secret_file_readable", "warn");
    let moved = machine
        .ok(&["config", "get", "channels.slack.appTokenFile"])
        .stdout;
    assert!(moved.contains(machine.state().to_str().unwrap()), "{moved}");
    let outside = machine.root().join("gateway.token");
    machine.write_private(&outside, "token");
    let named = serde_json::to_string(outside.to_str().unwrap()).unwrap();
    machine.ok(&["config", "set", "gateway.remote.tokenFile", &named]);
    found_and_fixed(&machine, "gateway.secret_file_readable", "warn");
    let everyone = [
        "config",
        "set",
        "channels.matrix.execApprovals.approvers",
        "[\"*\"]",
    ];
    machine.ok(&everyone);
    found_and_fixed(&machine, "channels.approver_wildcard", "warn");
    machine.ok(&["config", "set", "channels.ntfy.allow", "true"]);
    found_and_fixed(&machine, "channels.allow_without_approver", "warn");
}

#[test]
fn the_gateway_without_credentials_or_encryption() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "gateway.auth.mode", "none"]);
    found_and_fixed(&machine, "gateway.bind_no_auth", "warn");
    machine.ok(&["config", "set", "gateway.auth.mode", "none"]);
    machine.ok(&["config", "set", "gateway.bind", "lan"]);
    found_and_fixed(&machine, "gateway.bind_no_auth", "critical");
    found_and_fixed(&machine, "gateway.bind_without_tls", "warn");

    let password = machine.file("password", "secret\n");
    chmod(&password, 0o644);
    let name = password.to_str().unwrap();
    machine.ok(&["config", "set", "gateway.auth.passwordFile", name]);
    let run = audit(&machine);
    assert!(!run.stdout.contains("secret\\n"), "{run:#?}");
    found_and_fixed(&machine, "gateway.secret_file_permissions", "critical");
}

#[test]
fn files_that_other_users_could_change() {
    let machine = Machine::new();
    machine.start();
    let key = machine.state().join("store.key");
    chmod(&key, 0o644);
    found_and_fixed(&machine, "state.file_permissions", "warn");
    chmod(&key, 0o666);
    found_and_fixed(&machine, "state.file_permissions", "critical");
    chmod(&machine.state(), 0o755);
    found_and_fixed(&machine, "state.directory_permissions", "warn");
    // The program itself refuses this one; the audit still says why.
    chmod(&machine.state(), 0o777);
    found_and_fixed(&machine, "state.directory_permissions", "critical");
    let home = machine.state().parent().unwrap().to_owned();
    chmod(&home, 0o777);
    found_and_fixed(&machine, "state.directory_permissions", "critical");

    let elsewhere = machine.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let config = elsewhere.join("interlock.json");
    fs::write(&config, "{}").unwrap();
    chmod(&config, 0o666);
    let config = config.to_str().unwrap();
    let report = machine.run(&["--config", config, "security", "audit", "--json"]);
    let report = report.json();
    let finding = &report["findings"][0];
    assert_eq!(finding["id"], "config.file_permissions", "{report:#}");
    paste(&machine, &fix(finding));
    machine.ok(&["--config", config, "security", "audit"]);
}

#[test]
fn a_file_of_another_user_in_the_state_directory_is_critical() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let machine = Machine::new();
    machine.start();
    let planted = machine.state().join("planted");
    fs::write(&planted, "").unwrap();
    chown(&planted, Some(65_534), None).unwrap();
    let finding = found(&machine, "state.file_permissions", "critical");
    assert!(
        finding["what"].as_str().unwrap().contains("65534"),
        "{finding}"
    );
    // It is looked at, and not made the owner's.
    paste(&machine, &fix(&finding));
    assert_eq!(audit(&machine).code, 1);
}

#[test]
fn a_config_that_cannot_be_used_and_a_forged_document_are_critical() {
    let machine = Machine::new();
    machine.start();
    machine.configure("{ tools: { exek: 1 } }");
    let finding = found(&machine, "config.invalid", "critical");
    assert!(
        finding["what"].as_str().unwrap().contains("exek"),
        "{finding}"
    );
    assert_eq!(audit(&machine).code, 1);
    machine.configure("{}");
    let forged = r#"UPDATE approvals_document SET text = '{"version":1}'"#;
    machine.database().execute(forged, []).unwrap();
    let finding = found(&machine, "approvals.document_unrecorded", "critical");
    assert_eq!(fix(&finding), "interlock doctor");
}

#[test]
fn entries_that_can_be_bent_or_are_of_no_use() {
    let machine = Machine::new();
    machine.start();
    let add = |pattern: &str| machine.ok(&["approvals", "allowlist", "add", pattern]);
    add("python3");
    found_and_fixed(
        &machine,
        "tools.exec.allowlist_interpreter_without_strict_inline_eval",
        "warn",
    );
    machine.ok(&["config", "unset", "tools.exec.strictInlineEval"]);
    machine.ok(&["approvals", "allowlist", "remove", "python3"]);
    for (pattern, is_interpreter) in [
        ("/usr/bin/*", true),
        ("*", true),
        ("/usr/bin/perl5.36", true),
        ("/usr/bin/git", false),
    ] {
        add(pattern);
        let id = "tools.exec.allowlist_interpreter_without_strict_inline_eval";
        assert_eq!(find(&machine, id).is_some(), is_interpreter, "{pattern}");
        machine.ok(&["approvals", "allowlist", "remove", pattern]);
    }
    // Its arguments are bound.
    machine.ok(&[
        "approvals",
        "allowlist",
        "add",
        "python3",
        "--arg",
        "--version",
    ]);
    let id = "tools.exec.allowlist_interpreter_without_strict_inline_eval";
    assert_eq!(find(&machine, id), None);
    machine.ok(&["approvals", "allowlist", "remove", "python3"]);

    let open = machine.root().join("open");
    fs::create_dir(&open).unwrap();
    let tool = open.join("tool");
    testkit::copy("/usr/bin/true", &tool);
    add(tool.to_str().unwrap());
    assert_eq!(
        find(&machine, "approvals.entry_overwritable").is_some(),
        !is_root()
    );
    chmod(&open, 0o777);
    found_and_fixed(&machine, "approvals.entry_overwritable", "critical");
    add(&format!("{}/*", open.display()));
    found_and_fixed(&machine, "approvals.entry_overwritable", "critical");
    // A name that another user can give to a program in front of the real one.
    let own = machine.bin().join("rg");
    fs::remove_file(&own).unwrap();
    machine.native("rg");
    add("rg");
    chmod(&machine.bin(), 0o777);
    found_and_fixed(&machine, "approvals.entry_overwritable", "critical");

    add("/no/such/tool");
    found_and_fixed(&machine, "approvals.entry_file_gone", "info");
    add("no-such-name");
    found_and_fixed(&machine, "approvals.entry_file_gone", "info");
    found_and_fixed(&machine, "approvals.entry_never_used", "info");
}

#[test]
fn entries_that_never_match_are_found() {
    let machine = Machine::new();
    machine.start();
    let imported = r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" }, agents: { main: { allowlist: [
        { pattern: "/usr/bin/git", source: "allow-always" },
        { pattern: "/usr/bin/id", expiresAt: 1000 },
        { pattern: "~/bin/tool" } ] } } }"#;
    assert_eq!(machine.set_document(imported).code, 0);
    found_and_fixed(&machine, "approvals.entry_inert", "warn");
    found_and_fixed(&machine, "approvals.entry_expired", "info");
    // Without a home directory `~` stands for nothing.
    let state = machine.state();
    let mut command = machine.command(&[
        "--state-dir",
        state.to_str().unwrap(),
        "security",
        "audit",
        "--json",
    ]);
    command.env_remove("HOME");
    let report = testkit::finish(&mut command).json();
    let ids: Vec<&Value> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| &finding["id"])
        .collect();
    assert!(
        ids.contains(&&json!("approvals.entry_broken")),
        "{report:#}"
    );
}

#[test]
fn runs_of_an_ordinary_user_could_replace_its_own_programs() {
    let Some(machine) = ordinary_machine() else {
        return;
    };
    machine.start();
    let tool = machine.work().join("tool");
    let mut copy = machine.other_program("/bin/cp");
    assert!(
        copy.arg("/usr/bin/true")
            .arg(&tool)
            .status()
            .unwrap()
            .success()
    );
    machine.ok(&["approvals", "allowlist", "add", tool.to_str().unwrap()]);
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/true"]);
    let all = findings(&machine);
    let overwritable: Vec<&Value> = all
        .iter()
        .filter(|finding| finding["id"] == "approvals.entry_overwritable")
        .collect();
    assert_eq!(overwritable.len(), 1, "{all:#?}");
    assert_eq!(overwritable[0]["severity"], "warn");
    assert!(overwritable[0]["what"].as_str().unwrap().contains("tool"));
}

#[test]
fn a_fix_leads_to_the_same_state_directory() {
    let machine = Machine::new();
    let other = machine.root().join("other");
    let other = other.to_str().unwrap();
    machine.ok(&["--state-dir", other, "exec-policy", "preset", "yolo"]);
    let report = machine.ok(&["--state-dir", other, "security", "audit", "--json"]);
    let report = report.json();
    let finding = report["findings"].as_array().unwrap();
    let finding = finding
        .iter()
        .find(|finding| finding["id"] == "tools.exec.security_full_configured")
        .unwrap();
    assert!(fix(finding).contains(other), "{finding}");
    paste(&machine, &fix(finding));
    let after = machine.ok(&["--state-dir", other, "security", "audit"]);
    assert!(
        !after.stdout.contains("security_full_configured"),
        "{after:#?}"
    );
}

#[test]
fn the_text_has_what_why_and_fix_on_one_line_each() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "gateway.auth.mode", "none"]);
    machine.ok(&["approvals", "allowlist", "add", "/no/such/\u{1b}[31mtool"]);
    let text = machine.ok(&["security", "audit"]).stdout;
    let expected = "\
warn gateway.bind_no_auth (gateway.auth.mode)
  what  gateway.auth.mode is `none`: every process of this machine can call tools
  why   a caller without credentials can call tools as the agent `main`
  fix   interlock config set gateway.auth.mode token
";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let last = text.lines().last().unwrap();
    assert!(
        last.ends_with(" info") && last.starts_with("0 critical, "),
        "{text}"
    );
}

#[test]
fn deep_probes_call_the_gateway_that_runs() {
    let machine = Machine::new();
    machine.start();
    let deep = |machine: &Machine| {
        machine
            .ok(&["security", "audit", "--deep", "--json"])
            .json()
    };
    let report = deep(&machine);
    assert_eq!(
        report["probes"][1],
        json!({ "name": "gateway", "result": "not running" })
    );
    {
        let _gateway = Gateway::start(&machine);
        let report = deep(&machine);
        let said = report["probes"][1]["result"].as_str().unwrap();
        assert!(
            said.contains("turns callers without credentials away"),
            "{report:#}"
        );
        assert!(
            !report.to_string().contains("gateway.bind_no_auth"),
            "{report:#}"
        );
    }
    machine.ok(&["config", "set", "gateway.auth.mode", "none"]);
    let gateway = Gateway::start(&machine);
    let report = deep(&machine);
    let address = format!("127.0.0.1:{}", gateway.port);
    let all = report["findings"].as_array().unwrap();
    let live = all
        .iter()
        .find(|finding| finding["subject"] == address.as_str());
    assert_eq!(live.unwrap()["id"], "gateway.bind_no_auth", "{report:#}");
}

/// Ends with the test.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("/bin/kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

#[test]
fn deep_probes_ask_the_nodes_for_their_policy() {
    let (here, there) = (Machine::new(), Machine::new());
    here.start();
    there.ok(&["exec-policy", "preset", "yolo"]);
    let gateway = Gateway::start(&here);
    let port = gateway.port.to_string();
    let mut command = there.command(&["node", "run", "--host", "127.0.0.1", "--port", &port]);
    command.env("INTERLOCK_GATEWAY_TOKEN", here.operator_token());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _node = Node(child.unwrap());
    let report = || here.ok(&["security", "audit", "--deep", "--json"]).json();
    eventually("a node that waits", || {
        let listed = here.run(&["nodes", "list", "--json"]);
        listed.code == 0 && listed.stdout.contains("nodeId")
    });
    let nodes = here.ok(&["nodes", "list", "--json"]).json();
    let id = nodes["nodes"][0]["nodeId"].as_str().unwrap().to_owned();
    // It is there a moment before its request is written.
    eventually("its request", || {
        here.run(&["nodes", "approve", &id]).code == 0
    });
    eventually("the node is found", || {
        report().to_string().contains("nodes.security_full")
    });
    there.ok(&["exec-policy", "preset", "cautious"]);
    let text = report().to_string();
    assert!(!text.contains("nodes.security_full"), "{text}");
    assert!(
        text.contains("1 reported their policy, 0 did not"),
        "{text}"
    );
}
