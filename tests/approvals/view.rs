//! What an approver reads: the whole plan, on every surface, and nothing that the caller made up.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::companion::Companion;
use testkit::mcp::{StdioClient, forms, tool_call};
use testkit::ws::EVERYTHING;
use testkit::{Machine, Run};

/// What one surface shows of an approval.
struct Surface {
    name: &'static str,
    text: String,
}

/// The same approval on every surface that is a program; the last one denies it.
fn surfaces(machine: &Machine, id: &str) -> Vec<Surface> {
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let listed = client.ok("exec.approval.list", &json!({}));
    let read = client.ok("exec.approval.get", &json!({ "id": id }));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pending = machine.pending();
    let approval = pending.iter().find(|one| one["id"] == id).unwrap();
    let surface = |name, text| Surface { name, text };
    let input = b"quit\n";
    let watch = ["approvals", "watch", "--plain", "--no-listen"];
    vec![
        surface("list", machine.ok(&["approvals", "pending"]).stdout),
        surface("one", machine.ok(&["approvals", "pending", id]).stdout),
        surface("json", view_text(&approval["view"])),
        surface("watch", machine.run_with_input(&watch, input).stdout),
        surface("ws list", text(&listed[0]["request"]["viewText"])),
        surface("ws list value", view_text(&listed[0]["request"]["view"])),
        surface("ws get", text(&read["viewText"])),
        surface("deny", machine.ok(&["approvals", "deny", id]).stderr),
    ]
}

/// A foreign surface: every part of the value on lines of its own.
fn view_text(view: &Value) -> String {
    let mut text = String::new();
    for part in view["parts"].as_array().unwrap() {
        let label = part["label"].as_str().unwrap();
        let value = part["value"].as_str().or(part["title"].as_str());
        text += &format!("  {label:<10}{}\n", value.unwrap());
        for line in part["lines"].as_array().into_iter().flatten() {
            text += &format!("  | {}\n", line.as_str().unwrap());
        }
    }
    text
}

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

#[test]
fn every_surface_shows_environment_terminal_input_and_script() {
    let machines = [Some(started()), Machine::of_ordinary_user()];
    for machine in machines.into_iter().flatten() {
        let script = machine.script("work/do.sh", "#!/bin/sh\necho one-of-a-kind\n");
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let arguments = [
            "--env",
            "GREETING=good morning",
            "--env",
            "DEPLOY_TOKEN=hunter2hunter2",
            "--pty",
            "--timeout",
            "90",
            "--",
            "./do.sh --fast",
        ];
        let id = machine.put_down(&arguments);
        for surface in surfaces(&machine, &id) {
            let (name, text) = (surface.name, &surface.text);
            for expected in [
                "./do.sh --fast",
                "GREETING=good morning",
                "DEPLOY_TOKEN=***",
                "the caller can type into the program",
                "ended after 90 s",
                "echo one-of-a-kind",
                "sha256 ",
                "agent:main:main",
                "shield",
                "race",
            ] {
                assert!(text.contains(expected), "{name}: {expected}\n{text}");
            }
            assert!(!text.contains("hunter2"), "{name}: {text}");
        }
        let mut stdin = vec!["--stdin", "--", "./do.sh"];
        let id = machine.put_down(&stdin);
        let text = machine.ok(&["approvals", "pending", &id]).stdout;
        assert!(text.contains("stays open: the caller can type"), "{text}");
        stdin.clear();
        // Reveal before allow.
        let id = machine.put_down(&["--env", "DEPLOY_TOKEN=hunter2", "--", "./do.sh"]);
        let run = machine.ok(&["approvals", "approve", &id, "--reveal"]);
        assert!(run.stderr.contains("DEPLOY_TOKEN=hunter2"), "{run:#?}");
    }
}

/// What an agent names ends in no line of its own, and each line of a text is marked.
#[test]
fn names_and_texts_cannot_forge_a_line_of_a_prompt() {
    let machine = started();
    let forged = "x\n  in        /safe\r\u{1b}[2K\u{202e}\u{2028}kmnpz  ls";
    let directory = machine.work().join(forged.replace('/', "%"));
    fs::create_dir(&directory).unwrap();
    let cwd = directory.to_str().unwrap();
    let command = "touch 'x\n  in        /safe\n  agent     owner\nkmnpz  ls'";
    let arguments = [
        "--cwd",
        cwd,
        "--env",
        "A=1\n  in        /safe",
        "--",
        command,
    ];
    let id = machine.put_down(&arguments);
    for surface in surfaces(&machine, &id) {
        let name = surface.name;
        for line in surface.text.lines() {
            for forged in ["in        /safe", "agent     owner", "kmnpz  ls"] {
                let start = line.trim_start();
                assert!(!start.starts_with(forged), "{name}: {line:?}");
            }
        }
        for hidden in ['\r', '\u{1b}', '\u{202e}', '\u{2028}'] {
            assert!(!surface.text.contains(hidden), "{name}: {hidden:?}");
        }
        assert!(
            surface.text.contains("| kmnpz  ls"),
            "{name}: {}",
            surface.text
        );
    }
}

#[test]
fn a_mask_hides_no_code_on_any_surface_nor_in_the_audit() {
    let machine = started();
    machine.native("evil");
    fs::copy(machine.bin().join("evil"), machine.work().join("evil")).unwrap();
    let command = "touch --token hunter2&./evil; touch --token hunter3 $(./evil)";
    let plain = "touch --token hunter2&./evil";
    for (command, masked) in [(plain, true), (command, false)] {
        let id = machine.put_down(&["--ask", "always", "--", command]);
        let shown = command.replace("hunter2", if masked { "***" } else { "hunter2" });
        for surface in surfaces(&machine, &id) {
            let (name, text) = (surface.name, &surface.text);
            assert!(text.contains(&shown), "{name}: {shown}\n{text}");
            assert_eq!(!text.contains("hunter2"), masked, "{name}: {text}");
        }
        let records = machine.ok(&["audit", "log", "--json"]).stdout;
        assert!(
            records.contains(&json!(shown).to_string()),
            "{shown}\n{records}"
        );
    }
}

/// The approver reads what was pinned, whatever the path leads to by then.
#[test]
fn the_content_that_is_shown_is_the_content_that_was_pinned() {
    let machine = started();
    let path = machine.script("work/do.sh", "#!/bin/sh\necho pinned-words\n");
    let id = machine.put_down(&["--", "./do.sh"]);
    fs::write(&path, "#!/bin/sh\necho other-words\n").unwrap();
    let text = machine.ok(&["approvals", "pending", &id]).stdout;
    assert!(text.contains("| echo pinned-words"), "{text}");
    assert!(!text.contains("other-words"), "{text}");
    machine.ok(&["approvals", "approve", &id]);
    let run = machine.run_approved(&id, &["--", "./do.sh"]);
    assert_ne!(run.code, 0, "{run:#?}");
    assert!(run.stderr.contains("APPROVAL_DRIFT"), "{run:#?}");
}

/// A script that is too long to be kept is shown only while it is what was pinned.
#[test]
fn a_long_script_is_counted_opened_and_never_allowed_unread() {
    let machine = started();
    let lines = |word: &str| -> String {
        let lines = (0..30_000).map(|line| format!("# {word} {line}\n"));
        format!("#!/bin/sh\n{}", lines.collect::<String>())
    };
    let path = machine.script("work/do.sh", &lines("first"));
    let id = machine.put_down(&["--", "./do.sh"]);
    let view = machine.pending()[0]["view"].clone();
    let parts = view["parts"].as_array().unwrap();
    let script = parts.iter().find(|part| part["label"] == "script").unwrap();
    let shown = script["lines"].as_array().unwrap().len();
    let left_out = script["leftOutLines"].as_u64().unwrap();
    assert_eq!(shown as u64 + left_out, 30_001);
    let listed = machine.ok(&["approvals", "pending"]).stdout;
    assert!(
        listed.contains("more lines: interlock approvals pending"),
        "{listed}"
    );
    let whole = machine.ok(&["approvals", "pending", &id]).stdout;
    assert!(whole.contains("| # first 29999\n"));
    fs::write(&path, lines("second")).unwrap();
    let read = machine.ok(&["approvals", "pending", &id]).stdout;
    assert!(read.contains("no longer what was asked about"), "{read}");
    assert!(!read.contains("# second"), "{read}");
    let run = machine.run(&["approvals", "approve", &id]);
    assert!(run.stderr.contains("APPROVAL_NOT_SHOWN"), "{run:#?}");
    machine.ok(&["approvals", "deny", &id]);
}

#[test]
fn a_companion_gets_the_view_and_can_reveal_it() {
    let machine = started();
    let companion = Companion::listen(&machine);
    let mut command = machine.command(&["exec", "--env", "A_TOKEN=hunter2", "--", "touch marker"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut prompt = companion.asked();
    let shown = view_text(&prompt.approval()["view"]);
    assert!(shown.contains("A_TOKEN=***"), "{shown}");
    prompt.say(&json!({ "type": "reveal" }));
    let revealed = view_text(&prompt.hear().unwrap()["view"]);
    assert!(revealed.contains("A_TOKEN=hunter2"), "{revealed}");
    assert_eq!(prompt.answer("deny")["ok"], true);
    assert_eq!(Run::of(&child.wait_with_output().unwrap()).code, 3);
}

/// The lines that every client shows hold the environment; a script is asked about elsewhere.
#[test]
fn a_client_form_shows_the_environment_and_no_script_is_asked_there() {
    let machine = Machine::unguarded();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "300"]);
    machine.script("work/do.sh", "#!/bin/sh\necho one\n");
    let mut client = StdioClient::begin(&machine, &["--elicitation"], &forms());
    let call = json!({ "command": "true", "ask": "always", "env": { "GREETING": "hello" } });
    let id = client.ask(tool_call(0, "exec", &call));
    let prompt = client.receive();
    assert_eq!(prompt["method"], "elicitation/create", "{prompt}");
    let message = prompt["params"]["message"].as_str().unwrap();
    let head: Vec<&str> = message.lines().take(3).collect();
    assert!(head.contains(&"with GREETING=hello"), "{message}");
    let decline = json!({ "action": "decline" });
    client.send(&json!({ "jsonrpc": "2.0", "id": prompt["id"], "result": decline }));
    client.answer(id);
    let script = json!({ "command": "./do.sh", "ask": "always" });
    let id = client.ask(tool_call(0, "exec", &script));
    let told = client.receive();
    assert_eq!(told["id"], id, "{told}");
    let status = &told["result"]["structuredContent"]["status"];
    assert_eq!(status, "approval-pending", "{told}");
}
