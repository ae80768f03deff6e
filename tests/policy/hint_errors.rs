//! What an error names as the next step, pasted as it stands, works and has the effect that the error promises.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::hint_texts::commands::{commands_in_text, shell_words};
use serde_json::Value;
use testkit::{Machine, Run};

/// The commands in what was printed to standard error.
fn printed(run: &Run) -> Vec<String> {
    let found = commands_in_text(&run.stderr, "standard error");
    found.into_iter().map(|command| command.text).collect()
}

/// Runs, expects this error, and pastes every command that it names.
#[track_caller]
fn paste_all(machine: &Machine, arguments: &[&str], code: &str) -> Vec<String> {
    let refused = machine.run(arguments);
    assert_eq!(refused.error_code(), code, "{refused:#?}");
    let commands = printed(&refused);
    assert!(!commands.is_empty(), "no command: {refused:#?}");
    for command in &commands {
        let pasted = machine.paste(command);
        assert_eq!(pasted.code, 0, "{command}: {pasted:#?}");
    }
    commands
}

#[test]
fn an_unknown_agent_is_added_by_the_command_that_the_error_names() {
    let machine = Machine::new();
    machine.start();
    for agent in ["builder", "mian"] {
        let explain = ["explain", "--agent", agent, "--", "ls"];
        paste_all(&machine, &explain, "AGENT_UNKNOWN");
        machine.ok(&explain);
    }
}

#[test]
fn errors_about_names_lead_to_the_list_of_them() {
    let machine = Machine::new();
    machine.start();
    let cases: &[(&[&str], &str)] = &[
        (
            &["approvals", "allowlist", "remove", "rg"],
            "ENTRY_NOT_FOUND",
        ),
        (&["deny", "remove", "rg"], "RULE_NOT_FOUND"),
        (&["process", "log", "brave-otter"], "SESSION_NOT_FOUND"),
        (&["approvals", "revoke", "3f2a"], "GRANT_NOT_FOUND"),
        (&["config", "get", "tools.exec.node"], "CONFIG_KEY_NOT_SET"),
        (
            &["policy", "suggest", "--accept", "3f2a"],
            "SUGGESTION_UNKNOWN",
        ),
        (&["agents", "revoke", "3f2a"], "TOKEN_NOT_FOUND"),
    ];
    for (arguments, code) in cases {
        paste_all(&machine, arguments, code);
    }
}

#[test]
fn a_refused_patch_is_let_in_by_the_command_that_the_error_names() {
    let machine = Machine::new();
    machine.start();
    let patch = "*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch\n";
    let file = machine.file("changes.patch", patch);
    let apply = ["apply-patch", "--dry-run", file.to_str().unwrap()];
    machine.ok(&["config", "set", "tools.exec.applyPatch.enabled", "false"]);
    paste_all(&machine, &apply, "TOOL_DENIED");
    machine.ok(&apply);
    let models = [
        "config",
        "set",
        "tools.exec.applyPatch.allowModels",
        "[\"m\"]",
    ];
    machine.ok(&models);
    paste_all(&machine, &apply, "PATCH_MODEL_UNNAMED");
    machine.ok(&apply);
    // With the name of another model, the owner is led to what is set.
    machine.ok(&models);
    let mut other = apply.to_vec();
    other.extend(["--model", "other"]);
    paste_all(&machine, &other, "TOOL_DENIED");
}

/// The approval of a patch, and the call that applies what was approved.
#[test]
fn an_approved_patch_is_applied_by_the_command_that_was_printed() {
    let machine = Machine::new();
    machine.start();
    machine.know_agents(&["lab"]);
    let git = machine.root().join("the work");
    std::fs::create_dir_all(git.join(".git/hooks")).unwrap();
    let patch = "*** Begin Patch\n*** Add File: .git/hooks/pre-commit\n+text\n*** End Patch\n";
    let file = machine.file("it's a hook.patch", patch);
    let asked = machine.run(&[
        "apply-patch",
        "--no-wait",
        "--agent",
        "lab",
        "--root",
        git.to_str().unwrap(),
        file.to_str().unwrap(),
    ]);
    assert_eq!(asked.code, 3, "{asked:#?}");
    let commands = printed(&asked);
    assert_eq!(commands.len(), 2, "{asked:#?}");
    for command in &commands {
        let pasted = machine.paste(command);
        assert_eq!(pasted.code, 0, "{command}: {pasted:#?}");
    }
    assert!(git.join(".git/hooks/pre-commit").exists());
}

/// The approval of a command, its text, and the call that runs what was approved.
#[test]
fn an_approved_command_is_run_by_the_command_that_was_printed() {
    let machine = Machine::new();
    machine.start();
    let asked = machine.exec("make all");
    assert_eq!(asked.code, 3, "{asked:#?}");
    let commands = printed(&asked);
    let approve: Vec<&String> = commands
        .iter()
        .filter(|command| command.contains("approvals approve"))
        .collect();
    assert_eq!(approve.len(), 1, "{asked:#?}");
    let approved = machine.paste(approve[0]);
    assert_eq!(approved.code, 0, "{approved:#?}");
    // Its caller has gone, so the approver is told how it is run; COMMAND stands for the command.
    let again = printed(&approved);
    assert_eq!(again.len(), 1, "{approved:#?}");
    let again = again[0].replace("COMMAND", "'make all'");
    // In the shell of the test the programs of the machine are not in PATH.
    let run = machine.run(&shell_words(&again).unwrap()[1..]);
    assert_eq!(run.code, 0, "{again}: {run:#?}");
}

#[test]
fn what_cannot_be_bound_can_be_asked_about_after_the_next_step() {
    let machine = Machine::new();
    machine.start();
    let explained = machine.explain(&["--", "python3 -"]);
    assert_eq!(explained["verdict"], "refused", "{explained}");
    let mut steps = Vec::new();
    collect_steps(&explained, &mut steps);
    assert!(!steps.is_empty(), "{explained}");
    for step in &steps {
        let pasted = machine.paste(step);
        assert_eq!(pasted.code, 0, "{step}: {pasted:#?}");
    }
    assert_eq!(machine.verdict("python3 -"), "ask");
}

/// Every `nextStep` of a JSON value that is a command of this program.
fn collect_steps(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let Some(text) = value
                    .as_str()
                    .filter(|_| key == "next_step" || key == "nextStep")
                {
                    let commands = commands_in_text(text, key);
                    found.extend(commands.into_iter().map(|command| command.text));
                }
                collect_steps(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_steps(item, found)),
        _ => {}
    }
}

#[test]
fn errors_of_sessions_name_commands_that_work() {
    let machine = Machine::open();
    let started = machine.ok(&["exec", "--background", "--json", "--", "sleep 600"]);
    let name = started.json()["sessionId"].as_str().unwrap().to_owned();
    // It has neither open input nor a terminal.
    let cases: &[(&[&str], &str)] = &[
        (&["process", "write", &name, "x"], "STDIN_CLOSED"),
        (&["process", "screen", &name], "NO_TERMINAL"),
    ];
    for (arguments, code) in cases {
        let refused = machine.run(arguments);
        assert_eq!(refused.error_code(), *code, "{refused:#?}");
        for command in printed(&refused) {
            let command = command.replace("COMMAND", "true");
            let pasted = machine.paste(&command);
            assert_eq!(pasted.code, 0, "{command}: {pasted:#?}");
        }
    }
    paste_all(&machine, &["process", "clear", &name], "SESSION_RUNNING");
    let started = machine.ok(&["exec", "--background", "--json", "--", "ls"]);
    let name = started.json()["sessionId"].as_str().unwrap().to_owned();
    testkit::eventually("the session ends", || {
        let polled = machine.ok(&["process", "poll", &name, "--json"]).json();
        polled["status"] != "running"
    });
    paste_all(
        &machine,
        &["process", "write", &name, "x"],
        "SESSION_FINISHED",
    );
}

#[test]
fn the_other_scope_and_the_other_way_of_setup_can_be_pasted() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["setup", "codex", "--scope", "project"]);
    paste_all(&machine, &["setup", "codex", "--undo"], "SETUP_NOT_FOUND");
    assert!(!machine.work().join(".codex/config.toml").exists());
    paste_all(&machine, &["setup", "goose", "--hook"], "HOOK_UNAVAILABLE");
    assert!(
        machine
            .root()
            .join("home/.config/goose/config.yaml")
            .exists()
    );
}

/// A document that no audit record wrote: both ways out.
#[test]
fn an_unrecorded_document_is_restored_or_recorded_by_what_the_error_names() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    for way in ["--restore-document", "--record-document"] {
        let forged = "UPDATE approvals_document SET text = replace(text, '\"rg\"', '\"rm\"')";
        let changed = machine.database().execute(forged, []).unwrap();
        assert_eq!(changed, 1);
        let refused = machine.run(&["explain", "--", "rg"]);
        assert_eq!(refused.error_code(), "DOCUMENT_UNRECORDED", "{refused:#?}");
        let look = printed(&refused);
        let looked = machine.paste(&look[0]);
        let commands = printed(&looked);
        let command = commands.iter().find(|command| command.contains(way));
        let command = command.unwrap_or_else(|| panic!("{looked:#?}"));
        assert_eq!(machine.paste(command).code, 0, "{command}");
        machine.ok(&["explain", "--", "rg"]);
    }
}
