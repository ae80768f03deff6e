//! `system.run` on a node: what runs, what does not, and what the gateway is told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::gateway_stand_in::{Node, Pair, StandIn, TOKEN};

/// `allowlist`, no approver is asked, these programs.
fn allowing(programs: &[&str]) -> String {
    let entries: Vec<Value> = programs.iter().map(|p| json!({ "pattern": p })).collect();
    json!({
        "version": 1,
        "defaults": { "security": "allowlist", "ask": "off" },
        "agents": { "*": { "allowlist": entries } },
    })
    .to_string()
}

#[test]
fn a_run_gives_exactly_the_known_properties_in_their_order() {
    let mut pair = Pair::open();
    let done = pair.link.run(&json!({
        "command": ["/bin/sh", "-lc", "echo out; echo err >&2; exit 3"],
        "runId": "r1", "sessionKey": "agent:main:x",
    }));
    let done = done.ok();
    assert_eq!(
        done.payload.to_string(),
        r#"{"exitCode":3,"timedOut":false,"success":false,"stdout":"out\n","stderr":"err\n","error":null}"#
    );
    assert_eq!(pair.link.order, ["node.event", "node.invoke.result"]);
    assert_eq!(
        done.events,
        [(
            "exec.finished".to_owned(),
            json!({
                "sessionKey": "agent:main:x", "runId": "r1", "host": "node",
                "command": "/bin/sh -lc \"echo out; echo err >&2; exit 3\"",
                "exitCode": 3, "timedOut": false, "success": false, "output": "out\n\nerr",
            })
        )]
    );
    let done = pair.link.run(&json!({ "command": ["echo", "hello"] })).ok();
    assert_eq!(
        done.payload.to_string(),
        r#"{"exitCode":0,"timedOut":false,"success":true,"stdout":"hello\n","stderr":"","error":null}"#
    );
    assert_eq!(done.events[0].1["sessionKey"], "node");
    assert!(!done.events[0].1["runId"].as_str().unwrap().is_empty());
}

#[test]
fn runs_that_have_no_exit_code_say_none() {
    let mut pair = Pair::open();
    let killed = pair.link.run_text("kill -KILL $$").ok().payload;
    assert!(killed.get("exitCode").is_none(), "{killed}");
    assert_eq!(
        (&killed["success"], &killed["timedOut"]),
        (&json!(false), &json!(false))
    );

    let late = json!({ "command": ["/bin/sh", "-lc", "echo early; sleep 600"], "timeoutMs": 300 });
    let late = pair.link.run(&late).ok();
    assert!(late.payload.get("exitCode").is_none(), "{late:#?}");
    assert_eq!(late.payload["timedOut"], true);
    assert_eq!(late.payload["stdout"], "early\n");
    assert_eq!(late.events[0].1["timedOut"], true);

    let missing = pair
        .link
        .run(&json!({ "command": ["/no/such/bin"] }))
        .ok()
        .payload;
    assert_eq!(
        missing.to_string(),
        r#"{"timedOut":false,"success":false,"stdout":"","stderr":"","error":"spawn /no/such/bin ENOENT"}"#
    );
    let nowhere = json!({ "command": ["pwd"], "cwd": "/no/such/directory" });
    assert_eq!(
        pair.link.run(&nowhere).ok().payload["error"],
        "spawn pwd ENOENT"
    );
}

#[test]
fn a_run_takes_as_long_as_it_is_given_and_others_go_on_meanwhile() {
    let mut pair = Pair::open();
    let gate = pair.machine.root().join("gate");
    let text = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    let call = json!({ "command": ["/bin/sh", "-c", text] });
    pair.link
        .begin("long", "system.run", &Value::String(call.to_string()));
    for _ in 0..5 {
        assert_eq!(pair.link.run_text("echo on").ok().payload["stdout"], "on\n");
    }
    fs::write(gate, "").unwrap();
    assert_eq!(pair.link.end("long").ok().payload["exitCode"], 0);
}

#[test]
fn output_is_cut_at_200000_bytes_of_both_streams_with_the_marker() {
    let mut pair = Pair::open();
    let done = pair
        .link
        .run_text("head -c 500000 /dev/zero | tr '\\0' x")
        .ok();
    let stdout = done.payload["stdout"].as_str().unwrap();
    assert_eq!(stdout.len(), 200_016);
    assert!(stdout.ends_with("x\n... (truncated)"));
    assert_eq!(done.payload["stderr"], "");
    let output = done.events[0].1["output"].as_str().unwrap();
    assert!(output.starts_with("... (truncated) x"));
    assert_eq!(output.len(), "... (truncated) ".len() + 20_000);

    let both = "echo no >&2; head -c 199997 /dev/zero | tr '\\0' y";
    let done = pair.link.run_text(both).ok().payload;
    assert_eq!(done["stderr"], "no\n");
    assert_eq!(done["stdout"].as_str().unwrap().len(), 199_997);
    let more = "echo no >&2; sleep 0.3; head -c 199998 /dev/zero | tr '\\0' y";
    let done = pair.link.run_text(more).ok().payload;
    assert_eq!(done["stderr"], "no\n\n... (truncated)");
    assert_eq!(done["stdout"].as_str().unwrap().len(), 199_997);
}

#[test]
fn output_that_is_no_text_is_given_as_far_as_it_is() {
    let mut pair = Pair::open();
    let done = pair.link.run_text("printf 'a\\377b'").ok().payload;
    assert_eq!(done["stdout"], "a\u{fffd}b");
}

#[test]
fn environment_that_could_take_over_a_program_is_refused_in_known_words() {
    let mut pair = Pair::open();
    let call = json!({ "command": ["env"], "env": { "PATH": "/tmp", "LD_PRELOAD": "x.so" } });
    let done = pair.link.run(&call);
    done.refused(
        "INVALID_REQUEST",
        "SYSTEM_RUN_DENIED: environment override rejected (blocked override keys: LD_PRELOAD, PATH)",
    );
    assert!(done.events.is_empty());
    let call = json!({ "command": ["env"], "env": { "a-b": "1" } });
    pair.link.run(&call).refused(
        "INVALID_REQUEST",
        "SYSTEM_RUN_DENIED: environment override rejected (invalid non-portable override keys: a-b)",
    );
    let call = json!({ "command": ["/bin/sh", "-lc", "printenv GREETING"], "env": { "GREETING": "hello" } });
    assert_eq!(pair.link.run(&call).ok().payload["stdout"], "hello\n");
    // The gateway's token stays with the node.
    let shown = pair.link.run_text("env").ok().payload["stdout"].to_string();
    assert!(
        shown.contains("INTERLOCK_SHELL") && !shown.contains(TOKEN),
        "{shown}"
    );
}

/// Prints the environment of every process above it, but for this one.
fn environments_above(but: u32) -> String {
    format!(
        "p=$PPID; while [ \"$p\" -gt 1 ]; do [ $p = {but} ] || {{ echo above $p; tr '\\0' '\\n' </proc/$p/environ; }}; \
         p=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status); done; exit 0"
    )
}

#[test]
fn no_process_above_a_run_shows_the_gateways_token() {
    let mut pair = Pair::open();
    pair.machine.switch_shield_off();
    let text = environments_above(pair.node.pid());
    let done = pair.link.run_text(&text).ok();
    let shown = done.payload["stdout"].as_str().unwrap();
    assert!(shown.matches("above ").count() >= 2, "{done:#?}");
    assert!(!shown.contains(TOKEN), "{done:#?}");
}

#[test]
fn a_run_of_the_same_user_cannot_read_the_environment_of_its_node() {
    let machine = if testkit::is_root() {
        // Root reads everything.
        let Some(machine) = Machine::of_ordinary_user() else {
            return;
        };
        machine
    } else {
        Machine::new()
    };
    machine.start();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    machine.switch_shield_off();
    let mut pair = Pair::of(machine);
    let node = pair.node.pid();
    let done = pair
        .link
        .run_text(&format!("cat /proc/{node}/environ"))
        .ok();
    assert_eq!(done.payload["stdout"], "", "{done:#?}");
    let said = done.payload["stderr"].as_str().unwrap();
    assert!(said.contains("Permission denied"), "{said}");
}

#[test]
fn wrong_calls_are_refused_before_anything_is_judged() {
    let mut pair = Pair::open();
    for command in [json!("echo hi"), json!([]), json!([1])] {
        let done = pair.link.run(&json!({ "command": command }));
        done.refused("INVALID_REQUEST", "command required");
    }
    let mismatch = json!({ "command": ["echo", "a"], "rawCommand": "echo b" });
    pair.link
        .run(&mismatch)
        .refused("INVALID_REQUEST", "rawCommand does not match command");
    let plan = json!({ "command": ["echo"], "systemRunPlan": { "argv": [] } });
    pair.link
        .run(&plan)
        .refused("INVALID_REQUEST", "systemRunPlan invalid");
    let screen = json!({ "command": ["echo"], "needsScreenRecording": true });
    let denied = pair.link.run(&screen);
    denied.denied(
        "PERMISSION_MISSING: screenRecording",
        "permission:screenRecording",
    );
    let agent = json!({ "command": ["echo"], "agentId": "a/../b" });
    assert_eq!(pair.link.run(&agent).code, "INVALID_REQUEST");
}

#[test]
fn the_policy_of_this_machine_decides_whatever_the_gateway_says() {
    let deny = r#"{ "version": 1, "defaults": { "security": "deny" } }"#;
    let mut pair = Pair::with_document(deny);
    for extra in [
        json!({}),
        json!({ "approved": true, "approvalDecision": "allow-always", "runId": "a" }),
    ] {
        let mut call =
            json!({ "command": ["/bin/sh", "-lc", "whoami"], "suppressNotifyOnExit": true });
        call.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let done = pair.link.run(&call);
        done.denied("SYSTEM_RUN_DISABLED: security=deny", "security=deny");
        assert_eq!(done.events[0].1["command"], "/bin/sh -lc whoami");
        assert_eq!(done.events[0].1["suppressNotifyOnExit"], true);
    }
    // A plan of its own, from before, helps neither; now there is none.
    let asking = r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" } }"#;
    assert_eq!(pair.machine.set_document(asking).code, 0);
    let call = json!({ "command": ["/bin/sh", "-lc", "whoami"] });
    let plan = pair.link.plan(&call);
    assert_eq!(pair.machine.set_document(deny).code, 0);
    let done = pair.link.run_approved(&plan, "b");
    done.denied("SYSTEM_RUN_DISABLED: security=deny", "security=deny");
    let done = pair.link.invoke("system.run.prepare", &call);
    done.refused("INVALID_REQUEST", "SYSTEM_RUN_DISABLED: security=deny");

    let mut pair = Pair::with_document(&allowing(&["/usr/bin/whoami"]));
    pair.link
        .run_text("uname")
        .denied("SYSTEM_RUN_DENIED: allowlist miss", "allowlist-miss");
    let approved = json!({ "command": ["uname"], "approved": true, "runId": "c" });
    pair.link
        .run(&approved)
        .denied("SYSTEM_RUN_DENIED: allowlist miss", "allowlist-miss");

    let asking = r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" } }"#;
    let mut pair = Pair::with_document(asking);
    pair.link
        .run_text("uname")
        .denied("SYSTEM_RUN_DENIED: approval required", "approval-required");
    assert!(
        pair.machine.pending().is_empty(),
        "the gateway asks, not this machine"
    );
}

/// Every form in which a program of the system may be named.
fn seed_cases(pair: &mut Pair) {
    let user = pair.link.run_text("/usr/bin/whoami").ok().payload["stdout"].clone();
    assert!(user.as_str().unwrap().ends_with('\n'));
    for text in ["/usr/bin/whoami", "env /usr/bin/whoami", "whoami"] {
        let call = json!({ "command": ["/bin/sh", "-lc", text], "rawCommand": text });
        let plan = pair.link.plan(&call);
        assert_eq!(plan["commandPreview"], text);
        assert!(plan.get("mutableFileOperand").is_none(), "{plan}");
        let replayed = json!({ "command": plan["argv"], "systemRunPlan": plan, "approved": false });
        for call in [call, replayed] {
            let done = pair.link.run(&call).ok();
            assert_eq!(
                (&done.payload["exitCode"], &done.payload["stdout"]),
                (&json!(0), &user),
                "{text}"
            );
        }
    }
    for argv in [
        json!(["/usr/bin/whoami"]),
        json!(["whoami"]),
        json!(["env", "whoami"]),
    ] {
        let plan = pair.link.plan(&json!({ "command": argv }));
        let call = json!({ "command": plan["argv"], "systemRunPlan": plan });
        assert_eq!(pair.link.run(&call).ok().payload["stdout"], user, "{argv}");
    }
    for text in ["uname && whoami", "uname | head -n 1"] {
        let call = json!({ "command": ["/bin/sh", "-lc", text], "rawCommand": text });
        let plan = pair.link.plan(&call);
        let call = json!({ "command": plan["argv"], "systemRunPlan": plan });
        let done = pair.link.run(&call).ok();
        assert_eq!(done.payload["exitCode"], 0, "{text}: {done:#?}");
        assert!(
            done.payload["stdout"]
                .as_str()
                .unwrap()
                .starts_with("Linux\n")
        );
    }
    pair.link
        .run_text("/usr/bin/id")
        .denied("SYSTEM_RUN_DENIED: allowlist miss", "allowlist-miss");
}

fn seed_machine(machine: Machine) {
    if !Path::new("/usr/bin/whoami").exists() || !Path::new("/usr/bin/uname").exists() {
        println!("skipped: whoami and uname are not in /usr/bin");
        return;
    }
    machine.start();
    let document = allowing(&["/usr/bin/whoami", "/usr/bin/uname"]);
    assert_eq!(machine.set_document(&document).code, 0);
    seed_cases(&mut Pair::of(machine));
}

#[test]
fn allowlisted_programs_run_however_they_are_named() {
    seed_machine(Machine::new());
}

#[test]
fn allowlisted_programs_run_however_they_are_named_for_an_ordinary_user_too() {
    if !testkit::is_root() {
        println!("skipped: this user is one");
        return;
    }
    if let Some(machine) = Machine::of_ordinary_user() {
        seed_machine(machine);
    }
}

#[test]
fn the_document_is_read_and_written_by_its_hash() {
    let mut pair = Pair::with_document(&allowing(&["/usr/bin/whoami"]));
    let got = pair
        .link
        .invoke("system.execApprovals.get", &json!({}))
        .ok()
        .payload;
    assert_eq!(got["exists"], true);
    assert_eq!(got["hash"], pair.machine.document().1);
    assert_eq!(
        got["file"]["agents"]["*"]["allowlist"][0]["pattern"],
        "/usr/bin/whoami"
    );
    assert!(got["file"]["socket"].get("token").is_none());

    let mut file = got["file"].clone();
    file["defaults"]["security"] = "deny".into();
    let set =
        |pair: &mut Pair, params: Value| pair.link.invoke("system.execApprovals.set", &params);
    set(&mut pair, json!({ "baseHash": "x" })).refused(
        "INVALID_REQUEST",
        "Error: INVALID_REQUEST: exec approvals file required",
    );
    set(&mut pair, json!({ "file": file })).refused(
        "INVALID_REQUEST",
        "Error: INVALID_REQUEST: exec approvals base hash required; reload and retry",
    );
    set(&mut pair, json!({ "file": file, "baseHash": "00" })).refused(
        "INVALID_REQUEST",
        "Error: INVALID_REQUEST: exec approvals changed; reload and retry",
    );
    let stored = set(&mut pair, json!({ "file": file, "baseHash": got["hash"] }))
        .ok()
        .payload;
    assert_ne!(stored["hash"], got["hash"]);
    assert_eq!(stored["hash"], pair.machine.document().1);
    pair.link
        .run_text("whoami")
        .denied("SYSTEM_RUN_DISABLED: security=deny", "security=deny");
    let broken = json!({ "file": { "version": 7 }, "baseHash": stored["hash"] });
    assert_eq!(set(&mut pair, broken).code, "INVALID_REQUEST");
}

#[test]
fn the_owner_of_a_node_may_keep_gateways_from_loosening_its_document() {
    let mut pair = Pair::with_document(
        r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" } }"#,
    );
    let get = |pair: &mut Pair| {
        let got = pair.link.invoke("system.execApprovals.get", &json!({}));
        got.ok().payload
    };
    let set = |pair: &mut Pair, security: &str| {
        let got = get(pair);
        let mut file = got["file"].clone();
        file["defaults"]["security"] = security.into();
        let params = json!({ "file": file, "baseHash": got["hash"] });
        pair.link.invoke("system.execApprovals.set", &params)
    };
    let key = "node.remoteDocument";
    pair.machine.ok(&["config", "set", key, "tighten"]);
    let before = get(&mut pair);
    set(&mut pair, "full").refused(
        "INVALID_REQUEST",
        "Error: INVALID_REQUEST: exec approvals of this node can only be made stricter (node.remoteDocument is tighten): security and ask allowlist/on-miss → full/on-miss for every agent",
    );
    // Nothing is stored for later either.
    let plan = pair.link.plan(&json!({ "command": ["uname"] }));
    let call = json!({
        "command": plan["argv"], "systemRunPlan": plan, "runId": "a",
        "approved": true, "approvalDecision": "allow-always",
    });
    assert!(pair.link.run(&call).ok().payload["success"] == true);
    assert_eq!(get(&mut pair), before);
    pair.link
        .run(&json!({ "command": ["uname"] }))
        .denied("SYSTEM_RUN_DENIED: approval required", "approval-required");
    assert!(set(&mut pair, "deny").ok);
    assert!(!set(&mut pair, "allowlist").ok);

    pair.machine.ok(&["config", "set", key, "read"]);
    assert!(!set(&mut pair, "deny").ok);
    pair.machine.ok(&["config", "unset", key]);
    assert!(set(&mut pair, "full").ok);
}

#[test]
fn a_run_goes_on_when_its_node_ends() {
    let machine = Machine::unguarded();
    let stand_in = StandIn::new();
    let node = Node::start(&machine, &stand_in);
    let mut link = stand_in.welcome();
    let begun = machine.work().join("begun");
    let ended = machine.work().join("ended");
    let gate = machine.root().join("gate");
    let text = format!(
        "echo yes > {}; while [ ! -e {} ]; do sleep 0.02; done; echo yes > {}",
        begun.display(),
        gate.display(),
        ended.display()
    );
    let call = json!({ "command": ["/bin/sh", "-c", text], "runId": "r" });
    link.begin("i", "system.run", &Value::String(call.to_string()));
    assert_eq!(testkit::written(&begun), "yes\n");
    node.signal("-KILL");
    node.wait();
    fs::write(gate, "").unwrap();
    assert_eq!(testkit::written(&ended), "yes\n");
    // The one that comes after it knows of the run, and does not repeat it.
    let _node = Node::start(&machine, &stand_in);
    let mut link = stand_in.welcome();
    let done = link.run(&call);
    done.refused(
        "UNAVAILABLE",
        "SYSTEM_RUN_DENIED: run id was used already; it is not run again",
    );
}
