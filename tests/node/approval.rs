//! What a gateway's approval is worth on a node: a plan that the node made, as it was, once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};
use testkit::gateway_stand_in::{Pair, approved, sha256_hex};

const ASK_ON_MISS: &str =
    r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" } }"#;
const ASK_ALWAYS: &str =
    r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "always" } }"#;
const MISMATCH: (&str, &str) = (
    "SYSTEM_RUN_DENIED: execution plan mismatch",
    "execution-plan-miss",
);
const REQUIRED: (&str, &str) = ("SYSTEM_RUN_DENIED: approval required", "approval-required");
const SCRIPT_CHANGED: (&str, &str) = (
    "SYSTEM_RUN_DENIED: approval script operand changed before execution",
    "approval-required",
);

fn text(text: &str) -> Value {
    json!({ "command": ["/bin/sh", "-lc", text], "rawCommand": text })
}

#[test]
fn a_plan_says_what_would_run_in_the_known_words() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    let work = pair.machine.work();
    let link = pair.machine.root().join("link");
    std::os::unix::fs::symlink(&work, &link).unwrap();
    let plan = pair.link.plan(&json!({
        "command": ["/bin/sh", "-lc", "echo hi"], "rawCommand": "echo hi",
        "cwd": link, "agentId": "main", "sessionKey": "agent:main:x",
    }));
    assert_eq!(
        plan.to_string(),
        format!(
            r#"{{"argv":["/bin/sh","-lc","echo hi"],"cwd":"{}","commandText":"/bin/sh -lc \"echo hi\"","commandPreview":"echo hi","agentId":"main","sessionKey":"agent:main:x"}}"#,
            work.display()
        )
    );
    let plan = pair.link.plan(&json!({ "command": ["echo", "a b"] }));
    let program = plan["argv"][0].as_str().unwrap();
    assert!(
        program.starts_with('/') && program.ends_with("/echo"),
        "{plan}"
    );
    assert_eq!(plan["commandText"], format!("{program} \"a b\""));
    for name in ["cwd", "commandPreview", "agentId", "sessionKey"] {
        assert!(plan[name].is_null(), "{plan}");
    }
    let script = pair.machine.file("work/x.sh", "echo one\n");
    let plan = pair
        .link
        .plan(&json!({ "command": ["sh", "x.sh"], "cwd": work }));
    assert_eq!(plan["mutableFileOperand"]["argvIndex"], 1);
    assert_eq!(
        plan["mutableFileOperand"]["path"],
        script.display().to_string()
    );
    assert_eq!(
        plan["mutableFileOperand"]["sha256"].as_str().unwrap().len(),
        64
    );
}

#[test]
fn what_cannot_be_bound_gets_no_plan_and_the_known_words() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    pair.machine.file("work/file", "");
    let refusals = [
        (json!({ "command": [] }), "command required"),
        (
            json!({ "command": ["echo"], "rawCommand": "other" }),
            "INVALID_REQUEST: rawCommand does not match command",
        ),
        (
            json!({ "command": ["no-such-program"] }),
            "SYSTEM_RUN_DENIED: approval requires a stable executable path",
        ),
        (
            json!({ "command": ["echo"], "cwd": "/no/such" }),
            "SYSTEM_RUN_DENIED: approval requires an existing canonical cwd",
        ),
        (
            json!({ "command": ["echo"], "cwd": pair.machine.work().join("file") }),
            "SYSTEM_RUN_DENIED: approval requires cwd to be a directory",
        ),
        (
            text("bash -s < /tmp/x"),
            "SYSTEM_RUN_DENIED: approval cannot safely bind this interpreter/runtime command",
        ),
    ];
    // A mistake is reported before an approver is asked.
    pair.machine.file("work/x.py", "import os\nprint($HOME)\n");
    let call = json!({ "command": ["python3", "x.py"], "cwd": pair.machine.work() });
    let done = pair.link.invoke("system.run.prepare", &call);
    assert_eq!(done.code, "INVALID_REQUEST", "{done:#?}");
    assert!(done.message.starts_with("SYSTEM_RUN_DENIED: "), "{done:#?}");
    assert!(done.message.contains("HOME"), "{done:#?}");
    for (params, message) in refusals {
        let done = pair.link.invoke("system.run.prepare", &params);
        done.refused("INVALID_REQUEST", message);
    }
}

#[test]
fn an_approved_plan_of_this_node_runs_once_for_each_run_id() {
    for document in [ASK_ON_MISS, ASK_ALWAYS] {
        let mut pair = Pair::with_document(document);
        let plan = pair.link.plan(&text("echo approved"));
        let call = json!({ "command": plan["argv"], "systemRunPlan": plan, "approved": false });
        pair.link.run(&call).denied(REQUIRED.0, REQUIRED.1);
        let done = pair.link.run_approved(&plan, "approval-1").ok();
        assert_eq!(done.payload["stdout"], "approved\n");
        assert_eq!(done.events[0].1["runId"], "approval-1");
        let used = "SYSTEM_RUN_DENIED: run id was used already; it is not run again";
        pair.link
            .run_approved(&plan, "approval-1")
            .refused("UNAVAILABLE", used);
        // After a restart too, which forgets neither plans nor run ids.
        let mut pair = pair.restarted();
        pair.link
            .run_approved(&plan, "approval-1")
            .refused("UNAVAILABLE", used);
        let again = pair.link.run_approved(&plan, "approval-2").ok();
        assert_eq!(again.payload["stdout"], "approved\n");
        pair.machine.ok(&["audit", "verify"]);
        let records = pair.machine.ok(&["audit", "export"]).stdout;
        let of_run = |kind: &str| {
            let is_it = |line: &&str| {
                let record: Value = serde_json::from_str(line).unwrap();
                record["kind"] == kind && record["body"]["runId"] == "node:approval-1"
            };
            records.lines().filter(is_it).count()
        };
        assert_eq!(
            (of_run("run-started"), of_run("run-ended")),
            (1, 1),
            "{records}"
        );
    }
}

#[test]
fn a_plan_that_was_changed_on_the_way_is_refused() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    let work = pair.machine.work();
    let root = pair.machine.root().to_owned();
    let plan = pair.link.plan(&json!({
        "command": ["/bin/sh", "-lc", "echo harmless"], "cwd": work, "agentId": "main", "sessionKey": "agent:main:x",
    }));
    let mutations = [
        ("/argv/2", json!("echo other")),
        ("/argv/1", json!("-c")),
        ("/cwd", json!(root)),
        ("/cwd", Value::Null),
        ("/agentId", json!("other")),
        ("/sessionKey", json!("agent:main:y")),
        ("/commandText", json!("echo something else")),
        ("/commandPreview", json!("echo something else")),
        ("/commandPreview", Value::Null),
    ];
    for (index, (place, value)) in mutations.into_iter().enumerate() {
        let mut mutated = plan.clone();
        *mutated.pointer_mut(place).unwrap() = value;
        // Once with the call along, once the plan alone.
        let done = pair.link.run_approved(&mutated, &format!("m{index}"));
        done.denied(MISMATCH.0, MISMATCH.1);
        let mut call = approved(&plan, &format!("n{index}"));
        call["systemRunPlan"] = mutated;
        pair.link.run(&call).denied(MISMATCH.0, MISMATCH.1);
    }
    let mut call = approved(&plan, "other-words");
    call["command"] = json!(["/bin/sh", "-lc", "echo other"]);
    pair.link.run(&call).denied(MISMATCH.0, MISMATCH.1);
    assert!(pair.link.run_approved(&plan, "whole").ok().payload["success"] == true);
}

#[test]
fn what_drifted_since_the_plan_was_made_is_refused() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    let work = pair.machine.work();
    // A script, in both forms.
    pair.machine.file("work/x.sh", "echo one\n");
    for command in [json!(["sh", "x.sh"]), json!(["/bin/sh", "-lc", "sh x.sh"])] {
        pair.machine.file("work/x.sh", "echo one\n");
        let plan = pair.link.plan(&json!({ "command": command, "cwd": work }));
        let run = pair
            .link
            .run_approved(&plan, &format!("before {command}"))
            .ok();
        assert_eq!(run.payload["stdout"], "one\n", "{run:#?}");
        pair.machine.file("work/x.sh", "echo two\n");
        let done = pair.link.run_approved(&plan, &format!("after {command}"));
        done.denied(SCRIPT_CHANGED.0, SCRIPT_CHANGED.1);
        // A plan that pretends to be for the new content is refused.
        let mut forged = plan.clone();
        let new = pair
            .link
            .plan(&json!({ "command": ["sh", "x.sh"], "cwd": work }));
        forged["mutableFileOperand"]["sha256"] = new["mutableFileOperand"]["sha256"].clone();
        if forged["argv"] != new["argv"] {
            let done = pair.link.run_approved(&forged, "forged");
            done.denied(MISMATCH.0, MISMATCH.1);
        }
    }
    // The directory.
    let place = pair.machine.root().join("place");
    fs::create_dir(&place).unwrap();
    let plan = pair
        .link
        .plan(&json!({ "command": ["/bin/sh", "-lc", "echo here"], "cwd": place }));
    fs::rename(&place, pair.machine.root().join("elsewhere")).unwrap();
    fs::create_dir(&place).unwrap();
    let done = pair.link.run_approved(&plan, "moved");
    done.denied(
        "SYSTEM_RUN_DENIED: approval cwd changed before execution",
        "approval-required",
    );
    let plan = pair
        .link
        .plan(&json!({ "command": ["/bin/sh", "-lc", "echo here"], "cwd": place }));
    fs::remove_dir(&place).unwrap();
    let done = pair.link.run_approved(&plan, "gone");
    done.denied(
        "SYSTEM_RUN_DENIED: approval cwd changed before execution",
        "approval-required",
    );
    // The program: a second request with the same words does not change what was approved.
    let tool = pair.machine.native("tool");
    let call = json!({ "command": [tool], "cwd": work });
    let plan = pair.link.plan(&call);
    fs::remove_file(&tool).unwrap();
    testkit::copy("/bin/echo", &tool);
    assert_eq!(pair.link.plan(&call), plan);
    pair.link
        .run_approved(&plan, "swapped")
        .denied(MISMATCH.0, MISMATCH.1);
    // After the refusal it can be asked for anew.
    let plan = pair.link.plan(&call);
    assert!(pair.link.run_approved(&plan, "asked anew").ok().payload["success"] == true);
}

#[test]
fn a_policy_that_became_stricter_refuses_what_was_approved() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    let plan = pair.link.plan(&text("echo approved"));
    pair.machine.ok(&["exec-policy", "preset", "deny-all"]);
    let done = pair.link.run_approved(&plan, "a");
    done.denied("SYSTEM_RUN_DISABLED: security=deny", "security=deny");
}

const FULL: &str = r#"{ "version": 1, "defaults": { "security": "full", "ask": "off" } }"#;

/// Each field that a plan has is compared, and no other field is let through.
#[test]
fn a_plan_that_is_not_whole_is_a_mismatch_under_every_policy() {
    for document in [ASK_ON_MISS, ASK_ALWAYS, FULL] {
        let mut pair = Pair::with_document(document);
        let script = pair.machine.script("work/tool", "#!/bin/sh\necho one\n");
        let plan = pair.link.plan(&json!({
            "command": [script], "cwd": pair.machine.work(),
            "agentId": "main", "sessionKey": "agent:main:x",
        }));
        let names: Vec<String> = plan.as_object().unwrap().keys().cloned().collect();
        assert_eq!(names.len(), 7, "{plan}");
        let mut forged = Vec::new();
        for name in &names {
            let mut left_out = plan.clone();
            left_out.as_object_mut().unwrap().remove(name);
            forged.push(left_out);
        }
        for name in ["argvIndex", "path", "sha256"] {
            let mut left_out = plan.clone();
            let operand = left_out["mutableFileOperand"].as_object_mut().unwrap();
            operand.remove(name);
            forged.push(left_out);
        }
        for (place, value) in [
            (
                "policySnapshot",
                json!({ "security": "full", "ask": "off" }),
            ),
            ("env", json!({ "A": "b" })),
            ("mutableFileOperand", Value::Null),
            ("commandPreview", json!("echo")),
        ] {
            let mut added = plan.clone();
            added[place] = value;
            forged.push(added);
        }
        for (index, forged) in forged.into_iter().enumerate() {
            for claim in [json!(true), json!(false), Value::Null] {
                let mut call = approved(&plan, &format!("f{index} {claim}"));
                call["systemRunPlan"] = forged.clone();
                call["approved"] = claim;
                let done = pair.link.run(&call);
                done.denied(MISMATCH.0, MISMATCH.1);
            }
        }
        let whole = pair.link.run_approved(&plan, "whole").ok();
        assert_eq!(whole.payload["stdout"], "one\n");
    }
}

#[test]
fn an_approval_without_a_plan_is_a_mismatch_under_every_policy() {
    let call = |run: &str, rest: &Value| {
        let mut call = json!({ "command": ["/bin/sh", "-lc", "echo plain"], "runId": run });
        call.as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        call
    };
    let claims = [
        json!({ "approved": true }),
        json!({ "approved": true, "approvalDecision": "allow-once" }),
        json!({ "approved": true, "approvalDecision": "deny" }),
        json!({ "approved": true, "systemRunPlan": null }),
        json!({ "approvalDecision": "allow-always" }),
    ];
    for document in [ASK_ON_MISS, ASK_ALWAYS, FULL] {
        let mut pair = Pair::with_document(document);
        for (index, claim) in claims.iter().enumerate() {
            let done = pair.link.run(&call(&format!("r{index}"), claim));
            done.denied(MISMATCH.0, MISMATCH.1);
        }
    }
    // Neither a plan nor an approval: the policy of this machine alone decides.
    let nothing = [
        json!({}),
        json!({ "approved": false }),
        json!({ "approved": false, "approvalDecision": "allow-once" }),
    ];
    for (document, runs) in [(ASK_ON_MISS, false), (ASK_ALWAYS, false), (FULL, true)] {
        let mut pair = Pair::with_document(document);
        for (index, rest) in nothing.iter().enumerate() {
            let done = pair.link.run(&call(&format!("n{index}"), rest));
            if runs {
                assert_eq!(done.ok().payload["stdout"], "plain\n");
            } else {
                done.denied(REQUIRED.0, REQUIRED.1);
            }
        }
    }
}

#[test]
fn a_plan_that_cannot_be_bound_is_kept_and_compared_too() {
    let mut pair = Pair::with_document(FULL);
    pair.machine.file("work/input", "echo from a stream\n");
    let plan = pair.link.plan(&json!({
        "command": ["/bin/sh", "-lc", "sh -s < input"], "cwd": pair.machine.work(),
    }));
    assert!(plan.get("mutableFileOperand").is_none(), "{plan}");
    let call = |run: &str, plan: &Value| {
        let mut call = approved(plan, run);
        call["approved"] = false.into();
        call
    };
    let done = pair.link.run(&call("a", &plan)).ok();
    assert_eq!(done.payload["stdout"], "from a stream\n");
    let mut stripped = plan.clone();
    stripped["cwd"] = Value::Null;
    pair.link
        .run(&call("b", &stripped))
        .denied(MISMATCH.0, MISMATCH.1);
    // Across a restart, and never by an approval.
    let mut pair = pair.restarted();
    assert!(pair.link.run(&call("c", &plan)).ok().payload["success"] == true);
    pair.machine.ok(&["exec-policy", "preset", "cautious"]);
    let done = pair.link.run_approved(&plan, "d");
    assert!(!done.ok, "{done:#?}");
}

/// The reference gateways trim texts and make null of empty ones before they send a plan back.
#[test]
fn a_plan_comes_back_as_the_reference_gateways_send_it() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    let text = "  echo padded \n";
    let plan = pair.link.plan(&json!({
        "command": ["/bin/sh", "-lc", text], "rawCommand": text,
        "cwd": pair.machine.work(), "agentId": "main", "sessionKey": "agent:main:x",
    }));
    let mut normal = plan.clone();
    for name in [
        "cwd",
        "commandText",
        "commandPreview",
        "agentId",
        "sessionKey",
    ] {
        normal[name] = plan[name].as_str().unwrap().trim().into();
    }
    let done = pair.link.run_approved(&normal, "a").ok();
    assert_eq!(done.payload["stdout"], "padded\n");
}

/// What the policy allows by itself is held to the newest plan: a program that was built anew runs.
#[test]
fn a_program_that_was_built_anew_runs_by_its_new_plan_where_the_policy_allows_it() {
    let mut pair = Pair::with_document(FULL);
    let tool = pair.machine.native("tool");
    let call = json!({ "command": [tool], "cwd": pair.machine.work() });
    for round in ["a", "b"] {
        let plan = pair.link.plan(&call);
        let mut run = approved(&plan, round);
        run["approved"] = false.into();
        assert!(pair.link.run(&run).ok().payload["success"] == true);
        fs::remove_file(&tool).unwrap();
        testkit::copy("/bin/echo", &tool);
    }
}

#[test]
fn allow_always_is_remembered_by_the_node_that_runs_it() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    let plan = pair.link.plan(&text("uname"));
    let mut call = approved(&plan, "a");
    call["approvalDecision"] = "allow-always".into();
    assert!(pair.link.run(&call).ok().payload["success"] == true);
    assert!(pair.link.run_text("uname").ok().payload["success"] == true);
    // Exactly that, and nothing that cannot be bound.
    pair.link
        .run_text("uname -a")
        .denied(REQUIRED.0, REQUIRED.1);
    let plan = pair.link.plan(&text("echo $(uname)"));
    let mut call = approved(&plan, "b");
    call["approvalDecision"] = "allow-always".into();
    assert!(pair.link.run(&call).ok().payload["success"] == true);
    pair.link
        .run_text("echo $(uname)")
        .denied(REQUIRED.0, REQUIRED.1);
}

#[test]
fn a_script_that_the_policy_allows_is_held_to_the_content_of_its_plan() {
    let mut pair = Pair::with_document(
        r#"{ "version": 1, "defaults": { "security": "full", "ask": "off" } }"#,
    );
    let script = pair.machine.script("work/tool", "#!/bin/sh\necho one\n");
    let plan = pair.link.plan(&json!({ "command": [script] }));
    assert_eq!(plan["mutableFileOperand"]["argvIndex"], 0);
    let call = json!({ "command": plan["argv"], "systemRunPlan": plan });
    assert_eq!(pair.link.run(&call).ok().payload["stdout"], "one\n");
    pair.machine.script("work/tool", "#!/bin/sh\necho two\n");
    pair.link
        .run(&call)
        .denied(SCRIPT_CHANGED.0, SCRIPT_CHANGED.1);
}

#[test]
fn a_plan_of_others_leads_to_no_file_of_this_machine() {
    let secret_text = "private\n";
    for (document, denial) in [
        (
            r#"{ "version": 1, "defaults": { "security": "deny" } }"#,
            ("SYSTEM_RUN_DISABLED: security=deny", "security=deny"),
        ),
        (ASK_ON_MISS, MISMATCH),
        (
            r#"{ "version": 1, "defaults": { "security": "full", "ask": "off" } }"#,
            MISMATCH,
        ),
    ] {
        let mut pair = Pair::with_document(document);
        let secret = pair.machine.file("work/secret", secret_text);
        let fifo = pair.machine.work().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let right = sha256_hex(secret_text.as_bytes());
        let wrong = "0".repeat(64);
        let paths = [
            (secret.display().to_string(), right.as_str()),
            (secret.display().to_string(), wrong.as_str()),
            // A reader that opens it waits for a writer.
            (fifo.display().to_string(), wrong.as_str()),
            // A reader never gets to its end.
            ("/dev/zero".to_owned(), wrong.as_str()),
        ];
        for (index, (path, sha256)) in paths.into_iter().enumerate() {
            let plan = json!({
                "argv": ["/bin/true"], "cwd": null, "commandText": "/bin/true",
                "agentId": null, "sessionKey": null,
                "mutableFileOperand": { "argvIndex": 0, "path": path, "sha256": sha256 },
            });
            let done = pair.link.run_approved(&plan, &format!("o{index}"));
            done.denied(denial.0, denial.1);
        }
    }
}

#[test]
fn a_script_that_is_gone_is_a_script_that_changed() {
    let mut pair = Pair::with_document(ASK_ON_MISS);
    let script = pair.machine.script("work/tool", "#!/bin/sh\necho one\n");
    let plan = pair.link.plan(&json!({ "command": ["sh", script] }));
    fs::remove_file(&script).unwrap();
    let done = pair.link.run_approved(&plan, "gone");
    done.denied(SCRIPT_CHANGED.0, SCRIPT_CHANGED.1);
}

#[test]
fn a_program_that_is_not_there_fails_as_gateways_know_it() {
    let call = |run: &str, command: Value| json!({ "command": command, "runId": run });
    let mut pair = Pair::with_document(FULL);
    let done = pair.link.run(&call("a", json!(["/no/such/bin"]))).ok();
    assert_eq!(done.payload["error"], "spawn /no/such/bin ENOENT");
    // Without a plan, an approval of it is worth nothing.
    let mut pair = Pair::with_document(ASK_ON_MISS);
    for command in [json!(["/no/such/bin"]), json!(["sh", "/no/such/script"])] {
        let mut call = call("b", command);
        call["approved"] = true.into();
        pair.link.run(&call).denied(MISMATCH.0, MISMATCH.1);
    }
}
