//! What approvers see of a run on an Interlock node, and that the approval outlives the gateway.

use serde_json::{Value, json};

use super::real;
use super::wire::{Gateway, Wire};
use testkit::{Machine, eventually};

fn start(here: &Machine) -> (Gateway, Wire) {
    here.write_config("{ tools: { exec: { approvalWaitMs: 1 } } }");
    here.start();
    let gateway = Gateway::start(here);
    let admin = gateway.admin();
    (gateway, admin)
}

fn pending(here: &Machine, id: &Value) -> Value {
    let listed = here.ok(&["approvals", "pending", "--json"]).json();
    let all = listed["approvals"].as_array().unwrap().clone();
    all.into_iter().find(|one| one["id"] == *id).unwrap()
}

#[test]
fn the_question_says_where_why_and_what_always_would_store_on_the_node() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = start(&here);
    there.start();
    let _node = real::connect(&there, &gateway, &mut admin);
    let ask = |command: &str| {
        let call = json!({ "command": command, "node": "real" });
        let result = gateway.exec(&call);
        assert_eq!(result["details"]["status"], "approval-pending", "{result}");
        let approval = pending(&here, &result["details"]["approvalId"]);
        assert_eq!(
            result["details"]["allowedDecisions"], approval["choices"],
            "{approval}"
        );
        approval
    };
    // A program that can be stored.
    let asked = ask("/usr/bin/id -un");
    assert_eq!(asked["binding"], "native", "{asked}");
    assert!(asked["cwd"].as_str().unwrap().starts_with('/'), "{asked}");
    let why = asked["reasons"][0].as_str().unwrap();
    assert!(!why.contains("another host"), "{why}");
    assert!(
        asked["choices"].to_string().contains("allow-always"),
        "{asked}"
    );
    assert!(
        asked["always"].to_string().contains("/usr/bin/id"),
        "{asked}"
    );
    let shown = admin.event("exec.approval.requested");
    let warning = shown["request"]["warningText"].as_str().unwrap();
    assert!(
        warning.contains("native: ") && warning.contains(why),
        "{warning}"
    );
    here.ok(&[
        "approvals",
        "approve",
        "--always",
        asked["id"].as_str().unwrap(),
    ]);
    eventually("it is stored there, and no approver is asked again", || {
        let call = json!({ "command": "/usr/bin/id -un", "node": "real" });
        gateway.exec(&call)["details"]["status"] == "completed"
    });
    // Text cannot be stored, and where the node asks every time nothing is.
    let asked = ask("echo $(id -un)");
    assert_eq!(asked["binding"], "text", "{asked}");
    assert_eq!(asked["choices"], json!(["allow-once", "deny"]));
    assert!(asked["alwaysNotOffered"].is_string(), "{asked}");
    there.ok(&["exec-policy", "set", "--ask", "always"]);
    let asked = ask("/usr/bin/uname");
    assert_eq!(asked["choices"], json!(["allow-once", "deny"]));
    let why = asked["alwaysNotOffered"].as_str().unwrap();
    assert!(why.contains("always"), "{why}");
    let refused = here.run(&[
        "approvals",
        "approve",
        "--always",
        asked["id"].as_str().unwrap(),
    ]);
    assert_ne!(refused.code, 0, "{refused:#?}");
}

#[test]
fn a_question_that_outlives_the_gateway_runs_when_it_is_allowed_and_once() {
    for decided_while_away in [false, true] {
        let (here, there) = (Machine::new(), Machine::new());
        let (gateway, mut admin) = start(&here);
        there.start();
        let node = real::connect(&there, &gateway, &mut admin);
        let marks = there.work().join("marks");
        let ask = || {
            let call = json!({
                "command": format!("echo mark $LANG | tee -a {}", marks.display()),
                "node": "real",
                "env": { "LANG": "de" },
            });
            let asked = gateway.exec(&call);
            assert_eq!(asked["details"]["status"], "approval-pending", "{asked}");
            asked["details"]["approvalId"].as_str().unwrap().to_owned()
        };
        let (allowed, denied) = (ask(), ask());
        drop((gateway, node, admin));
        let decide = || {
            here.ok(&["approvals", "approve", &allowed]);
            here.ok(&["approvals", "deny", &denied]);
        };
        if decided_while_away {
            decide();
        }
        let gateway = Gateway::start(&here);
        let mut admin = gateway.admin();
        let node = real::come_back(&there, &gateway, &mut admin);
        if !decided_while_away {
            decide();
        }
        eventually("it runs there, as it was asked", || {
            std::fs::read_to_string(&marks).is_ok_and(|text| text == "mark de\n")
        });
        eventually("its session is told", || {
            let events = here.ok(&["events", "--session", "agent:main:main", "--json"]);
            let events = events.json();
            let mut events = events["events"].as_array().unwrap().iter();
            events
                .any(|event| event["kind"] == "exec-finished" && event["runId"] == allowed.as_str())
        });
        // After another restart nothing is left to run.
        drop((gateway, node));
        let gateway = Gateway::start(&here);
        let mut admin = gateway.admin();
        let _node = real::come_back(&there, &gateway, &mut admin);
        here.ok(&["audit", "verify"]);
        let log = here.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
        assert_eq!(
            log.stdout
                .matches(&format!("\"runId\": \"{allowed}\""))
                .count(),
            1,
            "{}",
            log.stdout
        );
        assert!(!log.stdout.contains(&denied), "{}", log.stdout);
        assert_eq!(std::fs::read_to_string(&marks).unwrap(), "mark de\n");
    }
}

#[test]
fn what_no_gateway_was_there_to_run_in_time_does_not_run() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = start(&here);
    there.start();
    let node = real::connect(&there, &gateway, &mut admin);
    let marks = there.work().join("marks");
    let call = json!({ "command": format!("touch {}", marks.display()), "node": "real" });
    let asked = gateway.exec(&call);
    let id = asked["details"]["approvalId"].as_str().unwrap();
    drop((gateway, node, admin));
    here.ok(&["approvals", "approve", id]);
    let sql = "UPDATE approval SET expires_at_ms = expires_at_ms - 3600000 WHERE id = ?1";
    assert_eq!(here.database().execute(sql, [id]).unwrap(), 1);
    let gateway = Gateway::start(&here);
    let mut admin = gateway.admin();
    let _node = real::come_back(&there, &gateway, &mut admin);
    eventually("it is over", || {
        let log = here.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
        log.stdout.contains(id) && log.stdout.contains("in time")
    });
    assert!(!marks.exists());
}

#[test]
fn what_was_asked_before_its_session_was_closed_does_not_run() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = start(&here);
    there.start();
    let _node = real::connect(&there, &gateway, &mut admin);
    let marks = there.work().join("marks");
    let call = json!({ "command": format!("touch {}", marks.display()), "node": "real" });
    let asked = gateway.exec(&call);
    let id = asked["details"]["approvalId"].as_str().unwrap();
    let set = json!({ "key": "agent:main:main", "execSecurity": "deny" });
    admin.ok("sessions.patch", &set);
    here.ok(&["approvals", "approve", id]);
    eventually("it is over", || {
        let log = here.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
        log.stdout.contains(id) && log.stdout.contains("security=deny")
    });
    assert!(!marks.exists());
}

#[test]
fn what_was_asked_before_its_agent_lost_the_tool_or_the_host_does_not_run() {
    for (key, value) in [("tools.deny", "[\"exec\"]"), ("tools.exec.host", "gateway")] {
        let (here, there) = (Machine::new(), Machine::new());
        let (gateway, mut admin) = start(&here);
        there.start();
        let _node = real::connect(&there, &gateway, &mut admin);
        let marks = there.work().join("marks");
        let call = json!({ "command": format!("touch {}", marks.display()), "node": "real" });
        let asked = gateway.exec(&call);
        let id = asked["details"]["approvalId"].as_str().unwrap();
        here.ok(&["config", "set", key, value]);
        here.ok(&["approvals", "approve", id]);
        eventually("it is over", || {
            let log = here.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
            log.stdout.contains(id) && log.stdout.contains("became stricter")
        });
        assert!(!marks.exists(), "{key}");
    }
}
