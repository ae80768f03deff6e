//! The command line, for people.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, answering, identity};
use testkit::Machine;

const COMMANDS: &[&str] = &[
    "system.run",
    "system.which",
    "system.execApprovals.get",
    "system.execApprovals.set",
];

/// A node with a document of its own.
fn answers(invocation: &Value) -> Reply {
    let file = json!({
        "version": 1,
        "socket": { "path": "/n/s.sock" },
        "defaults": { "security": "allowlist", "ask": "off" },
        "agents": { "*": { "allowlist": [{ "id": "1", "pattern": "/usr/bin/whoami" }] } },
    });
    let snapshot =
        |hash: &str| json!({ "path": "/n/x", "exists": true, "hash": hash, "file": file });
    match invocation["command"].as_str().unwrap() {
        "system.which" => Reply::Give(json!({ "bins": { "sh": "/bin/sh" } })),
        "system.execApprovals.get" => Reply::Give(snapshot("h1")),
        "system.execApprovals.set" if invocation["params"]["baseHash"] == "h1" => {
            Reply::Give(snapshot("h2"))
        }
        _ => Reply::Fail(
            "INVALID_REQUEST",
            "Error: INVALID_REQUEST: changed; reload and retry",
        ),
    }
}

#[test]
fn without_a_gateway_it_is_said_how_to_start_one() {
    let machine = Machine::new();
    machine.start();
    for command in [
        &["nodes", "list", "--no-spawn"][..],
        &["devices", "list", "--no-spawn"],
        &["approvals", "get", "--node", "x", "--no-spawn"],
        &["exec", "--node", "x", "--no-spawn", "--", "true"],
    ] {
        let run = machine.run(command);
        run.refused(1, "GATEWAY_NOT_RUNNING");
        assert!(run.stderr.contains("interlock gateway run"), "{run:#?}");
    }
    assert!(machine.spawned_gateways().is_empty());
}

#[test]
fn a_command_that_needs_a_gateway_starts_one_and_says_how_to_end_it() {
    let machine = Machine::new();
    machine.start();
    // A script that has a file open; no other process should keep it open behind it.
    let lock = machine.work().join("lock");
    let list = machine.command(&["nodes", "list"]);
    let mut script = std::process::Command::new("/bin/sh");
    script.args(["-c", "exec 9>\"$0\"; exec \"$@\""]).arg(&lock);
    script.arg(list.get_program()).args(list.get_args());
    for (name, value) in list.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    let first = testkit::finish(&mut script);
    assert_eq!(first.stdout, "", "{first:#?}");
    assert!(
        first.stderr.contains("no nodes; to add one: interlock"),
        "{first:#?}"
    );
    for gateway in machine.spawned_gateways() {
        // Only root can look at it.
        let Ok(open) = std::fs::read_dir(format!("/proc/{gateway}/fd")) else {
            continue;
        };
        let mut open = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        assert!(!open.any(|path| path == lock));
    }
    let stop = first.stderr.split("end it: ").nth(1).unwrap();
    let stop = stop.lines().next().unwrap().trim();
    // The next one joins it.
    let second = machine.ok(&["devices", "list"]);
    assert_eq!(
        (second.stdout.as_str(), second.stderr.as_str()),
        (
            "",
            "no devices; new machines and browsers are listed here when they connect\n"
        )
    );
    assert_eq!(machine.spawned_gateways().len(), 1);
    assert_eq!(machine.paste(stop).code, 0);
    machine
        .run(&["gateway", "stop"])
        .refused(1, "GATEWAY_NOT_RUNNING");
}

#[test]
fn an_allowlist_of_a_node_is_changed_there_and_keeps_what_is_not_known_here() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let file = Mutex::new(json!({
        "version": 1,
        "agents": { "*": { "allowlist": [{ "id": "1", "pattern": "/usr/bin/whoami", "odd": 7 }] } },
    }));
    let store = move |invocation: &Value| {
        let mut file = file.lock().unwrap();
        if invocation["command"] == "system.execApprovals.set" {
            *file = invocation["params"]["file"].clone();
        }
        let hash = file.to_string().len().to_string();
        Reply::Give(json!({ "path": "/n/x", "exists": true, "hash": hash, "file": *file }))
    };
    let seen = answering(gateway.node(&identity(31), "lab", COMMANDS), store);
    machine.ok(&["nodes", "approve", "lab"]);
    let allowlist = |words: &[&str]| {
        let mut all = vec!["approvals", "allowlist"];
        all.extend(words);
        all.push("--json");
        machine.ok(&all).json()
    };
    // By its address, as it has no other name.
    let added = allowlist(&["add", "--node", "127.0.0.1", "--agent", "main", "rg"]);
    assert_eq!(added["added"], true, "{added}");
    assert_eq!(added["nodeId"], identity(31).device_id().as_str());
    let again = allowlist(&["add", "--node", "lab", "--agent", "main", "rg"]);
    assert_eq!(again["added"], false, "{again}");
    let removed = allowlist(&["remove", "--node", "lab", "--agent", "main", "rg"]);
    assert_eq!(removed["removed"][0]["pattern"], "rg", "{removed}");
    machine
        .run(&["approvals", "allowlist", "remove", "--node", "lab", "rg"])
        .refused(1, "ENTRY_NOT_FOUND");
    let written: Vec<Value> = seen
        .try_iter()
        .filter(|one| one["command"] == "system.execApprovals.set")
        .map(|one| one["params"]["file"]["agents"].clone())
        .collect();
    assert_eq!(written.len(), 2, "{written:#?}");
    for agents in &written {
        assert_eq!(agents["*"]["allowlist"][0]["odd"], 7, "{agents}");
    }
    // Nothing of it is in the document of this host.
    assert_eq!(machine.document().0["agents"], Value::Null);
}

#[test]
fn the_document_of_the_gateway_is_the_one_of_its_host() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "--gateway", "rg"]);
    let own = machine.ok(&["approvals", "get", "--json"]).json();
    let gateway = machine
        .ok(&["approvals", "get", "--gateway", "--json"])
        .json();
    assert_eq!(own, gateway);
    assert_eq!(
        own["document"]["agents"]["*"]["allowlist"][0]["pattern"],
        "rg"
    );
    let file = machine.file("empty.json5", "{ version: 1 }");
    let file = file.to_str().unwrap();
    machine.ok(&["approvals", "set", "--gateway", "--file", file]);
    let both = ["approvals", "get", "--gateway", "--node", "lab"];
    assert_eq!(machine.run(&both).code, 2);
}

#[test]
fn a_person_sees_and_approves_nodes_and_their_documents() {
    let machine = Machine::new();
    machine.write_config("{ tools: { exec: { host: 'node' } } }");
    machine.start();
    let gateway = Gateway::start(&machine);
    let key = identity(30);
    let id = key.device_id();
    let seen = answering(gateway.node(&key, "lab", COMMANDS), answers);

    let status = machine.ok(&["nodes", "status"]).stdout;
    assert!(status.contains("connected, not approved"), "{status}");
    let approve = status
        .lines()
        .find(|line| line.contains("interlock nodes approve"))
        .unwrap();
    assert_eq!(machine.paste(approve.trim()).code, 0);
    let listed = machine.ok(&["nodes", "list", "--json"]).json();
    assert_eq!(listed["nodes"][0]["nodeId"], id.as_str());
    assert_eq!(listed["nodes"][0]["paired"], true);
    let devices = machine.ok(&["devices", "list", "--json"]).json();
    assert_eq!(devices["paired"][0]["deviceId"], id.as_str());
    assert!(
        machine
            .ok(&["nodes", "describe", "lab"])
            .stdout
            .contains(&id)
    );

    let which = [
        "nodes",
        "invoke",
        "lab",
        "system.which",
        "--params",
        "{\"bins\":[\"sh\"]}",
    ];
    assert_eq!(machine.ok(&which).json()["bins"]["sh"], "/bin/sh");
    assert_eq!(seen.recv().unwrap()["params"]["bins"], json!(["sh"]));
    for command in ["system.run", "system.run.prepare"] {
        let run = machine.run(&["nodes", "invoke", "lab", command]);
        run.refused(2, "INVOKE_NO_RUN");
        assert!(run.stderr.contains("interlock exec --node"), "{run:#?}");
    }

    let got = machine
        .ok(&["approvals", "get", "--node", "lab", "--json"])
        .json();
    assert_eq!(got["hash"], "h1");
    // It is another program, whose defaults are its own: the answer does not claim Interlock's
    // defaults.
    assert_eq!(got["defaultsKnown"], false);
    let text = machine.ok(&["approvals", "get", "--node", "lab"]).stdout;
    assert!(text.contains("(version 9.9.9)"), "{text}");
    assert_eq!(got["version"], "9.9.9");
    let of_field = |name: &str| {
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(
        of_field("askFallback").ends_with("not set the node's own default"),
        "{text}"
    );
    assert!(of_field("ask ").contains("off"), "{text}");
    let main = &got["effective"]["main"];
    assert_eq!(main["security"]["effective"]["value"], "allowlist");
    assert_eq!(main["ask"]["effective"]["value"], "off");
    let text = machine.ok(&["approvals", "get", "--node", &id[..8]]).stdout;
    assert!(text.contains("/usr/bin/whoami"), "{text}");
    let shown = machine.ok(&["exec-policy", "show", "--json"]).json();
    let node = &shown["agents"]["main"]["node"];
    assert_eq!(node["nodeId"], id.as_str(), "{shown}");
    assert_eq!(node["policy"]["ask"]["effective"]["value"], "off");
    // A foreign node does not know what this gateway adds.
    let joined = &shown["agents"]["main"]["joined"];
    assert_eq!(joined["joinedBy"], "gateway", "{shown:#}");
    assert_eq!(joined["security"], "allowlist", "{shown:#}");

    let file = machine.file("document.json5", "{ version: 1 }");
    let file = file.to_str().unwrap();
    let set = machine.ok(&[
        "approvals",
        "set",
        "--node",
        "lab",
        "--file",
        file,
        "--json",
    ]);
    assert_eq!(set.json()["hash"], "h2");
    let set = [
        "approvals",
        "set",
        "--node",
        "lab",
        "--file",
        file,
        "--base-hash",
        "old",
    ];
    machine.run(&set).refused(1, "GATEWAY_REFUSED");

    machine.ok(&["nodes", "rename", "lab", "workshop"]);
    machine.ok(&["nodes", "remove", "workshop"]);
    let status = machine.ok(&["nodes", "list", "--json"]).json();
    assert_eq!(status["nodes"][0]["paired"], false);
    machine.ok(&["devices", "revoke", &id[..8], "--role", "node"]);
    machine.ok(&["devices", "remove", &id]);
    assert_eq!(machine.ok(&["nodes", "list"]).stdout, "");
    machine
        .run(&["nodes", "describe", "lab"])
        .refused(1, "NOT_FOUND");
}
