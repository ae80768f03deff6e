//! Leaving the sandbox: every gate of `elevated`, what an approver sees of it, and who cannot open one.

use interlock_wire::identity::DeviceIdentity;
use serde_json::{Value, json};
use testkit::mcp::{StdioClient, raw};
use testkit::ws::{EVERYTHING, operator};
use testkit::{Machine, Run};

use crate::site::{Site, USUAL, everywhere, with_every_backend};

/// Every gate is open for these channels; `more` are further keys of `tools`.
fn open_for(channels: &str, more: &str) -> String {
    let allowed: Vec<String> = channels
        .split_whitespace()
        .map(|channel| format!("{channel}: ['*']"))
        .collect();
    format!(
        "{{ tools: {{ elevated: {{ enabled: true, allowFrom: {{ {} }} }}, {more} }},
           agents: {{ defaults: {{ sandbox: {{ {USUAL} }} }} }} }}",
        allowed.join(", ")
    )
}

/// Runs may do everything on the host, without prompts.
fn open_document(machine: &Machine) {
    let set = machine.set_document(r#"{ version: 1, defaults: { security: "full", ask: "off" } }"#);
    assert_eq!(set.code, 0, "{set:#?}");
}

/// A file that only the host shows, and the command that reads it.
fn outside(site: &Site) -> (String, String) {
    let path = site.home().join("data/file");
    site.owned(&path, "HOST");
    let read = format!("cat {}", path.display());
    (path.display().to_string(), read)
}

fn elevated(machine: &Machine, text: &str) -> Run {
    machine.run(&["exec", "--elevated", "--timeout", "60", "--", text])
}

/// P27: a closed gate refuses with its key, and nothing runs, inside or outside.
#[test]
fn each_closed_gate_refuses_with_its_key() {
    with_every_backend(USUAL, |site| {
        open_document(&site.machine);
        let trace = site.work().join("trace");
        let usual = site.settings(USUAL);
        let sandbox = format!("agents: {{ defaults: {{ sandbox: {{ {usual} }} }} }}");
        let gates = "tools: { elevated: { enabled: true, allowFrom: { cli: ['*'] } } }";
        let uid = if testkit::is_root() {
            "id:4294967290"
        } else {
            "id:0"
        };
        for (config, key) in [
            (format!("{{ {sandbox} }}"), "tools.elevated.enabled"),
            (
                format!("{{ tools: {{ elevated: {{ enabled: true }} }}, {sandbox} }}"),
                "tools.elevated.allowFrom.cli",
            ),
            (open_for("mcp http ws", ""), "tools.elevated.allowFrom.cli"),
            (
                format!(
                    "{{ tools: {{ elevated: {{ enabled: true, allowFrom: {{ cli: ['name:root', '{uid}'] }} }} }}, {sandbox} }}"
                ),
                "tools.elevated.allowFrom.cli",
            ),
            (
                format!(
                    "{{ {gates}, agents: {{ defaults: {{ sandbox: {{ {usual} }} }}, list: [{{ id: 'main', tools: {{ elevated: {{ enabled: false }} }} }}] }} }}"
                ),
                "agents.list[0].tools.elevated.enabled",
            ),
            (
                format!(
                    "{{ {gates}, agents: {{ defaults: {{ sandbox: {{ {usual} }} }}, list: [{{ id: 'main', tools: {{ elevated: {{ allowFrom: {{ cli: [] }} }} }} }}] }} }}"
                ),
                "agents.list[0].tools.elevated.allowFrom.cli",
            ),
            (
                format!(
                    "{{ {gates}, agents: {{ defaults: {{ sandbox: {{ {usual}, required: true }} }} }} }}"
                ),
                "agents.defaults.sandbox.required",
            ),
            (
                format!(
                    "{{ {gates}, agents: {{ defaults: {{ elevatedDefault: 'off', sandbox: {{ {usual} }} }} }} }}"
                ),
                "agents.defaults.elevatedDefault",
            ),
        ] {
            site.machine.configure(&config);
            let run = elevated(&site.machine, "touch trace");
            run.refused(1, "ELEVATED_NOT_ALLOWED");
            assert!(run.stderr.contains(key), "{key}: {run:#?}");
            assert!(!trace.exists(), "{key}");
            let explained = site.machine.ok(&["sandbox", "explain", "--json"]).json();
            assert_eq!(explained["elevated"]["open"], false, "{explained:#}");
            let gates = explained["elevated"]["gates"].as_array().unwrap().clone();
            let closed = gates.iter().find(|gate| !gate["closed"].is_null()).unwrap();
            assert_eq!(closed["key"], *key, "{explained:#}");
            let explained = site.machine.explain(&["--", "touch trace"]);
            assert_eq!(explained["elevated"]["closedBy"], *key, "{explained:#}");
        }
        let audit = site.machine.ok(&["audit", "log", "--json"]).stdout;
        assert!(audit.contains("ELEVATED_NOT_ALLOWED"), "{audit}");
    });
}

/// With every gate open the run is on the host, by the host's policy: it says so, and the audit does.
#[test]
fn an_elevated_run_is_on_the_host_and_says_so() {
    everywhere(USUAL, |site| {
        let (_, read) = outside(site);
        open_document(&site.machine);
        site.machine.configure(&open_for("cli", ""));
        assert_ne!(site.inside(&read).code, 0, "the sandbox hides it");
        let run = elevated(&site.machine, &read);
        assert_eq!((run.code, run.stdout.as_str()), (0, "HOST"), "{run:#?}");
        assert!(run.stderr.contains("elevated"), "{run:#?}");
        let json = ["exec", "--elevated", "--json", "--", &read];
        let result = site.machine.ok(&json).json();
        assert_eq!(result["elevated"], "on", "{result:#}");
        assert_eq!(result["host"], "gateway", "{result:#}");
        let audit = site.machine.ok(&["audit", "log", "--json"]).stdout;
        assert!(
            audit.contains(r#""elevated":"on""#) || audit.contains(r#""elevated": "on""#),
            "{audit}"
        );
        // A deny rule of the host holds outside, too.
        site.machine.ok(&["deny", "add", "--", "cat"]);
        assert_eq!(elevated(&site.machine, &read).code, 3);
    });
}

/// At `on` the approvals of the host apply. The prompt says that the run leaves, the plan holds it, and
/// the same approval is of no use for the run inside.
#[test]
fn an_approver_sees_that_a_run_leaves_and_allows_that_alone() {
    everywhere(USUAL, |site| {
        let (_, read) = outside(site);
        site.machine.configure(&open_for(
            "cli",
            "exec: { security: 'allowlist', ask: 'always' }",
        ));
        let id = site.machine.put_down(&["--elevated", "--", &read]);
        let pending = site.machine.pending();
        assert_eq!(pending[0]["elevated"], "on", "{pending:#?}");
        let shown = site.machine.ok(&["approvals", "pending"]).stdout;
        assert!(shown.contains("leaves the sandbox"), "{shown}");
        site.machine.ok(&["approvals", "approve", &id]);
        let inside = site.machine.run_approved(&id, &["--", &read]);
        inside.refused(1, "APPROVAL_REQUEST_MISMATCH");
        let run = site.machine.run_approved(&id, &["--elevated", "--", &read]);
        assert_eq!((run.code, run.stdout.as_str()), (0, "HOST"), "{run:#?}");
        // What is closed meanwhile closes what was allowed.
        let id = site.machine.approved(&["--elevated", "--", &read]);
        site.configure(USUAL);
        let late = site.machine.run_approved(&id, &["--elevated", "--", &read]);
        assert_ne!(late.code, 0, "{late:#?}");
        assert!(!late.stdout.contains("HOST"), "{late:#?}");
    });
}

/// `full` leaves out what the config asks for, and neither the document's prompts nor a config's `deny`.
#[test]
fn full_skips_the_prompts_of_the_config_and_no_others() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut admin = gateway.connect(EVERYTHING);
    let path = machine.root().join("outside");
    machine.write_private(&path, "HOST");
    let call = json!({ "name": "exec", "sessionKey": "agent:main:main", "approvalWaitMs": 0,
        "args": { "command": format!("cat {}", path.display()) } });
    let mut status = |level: &str, config: &str, document: &str| {
        machine.configure(&open_for("ws", config));
        let set = machine.set_document(document);
        assert_eq!(set.code, 0, "{set:#?}");
        let text = format!("/elev {level}");
        let say = json!({ "sessionKey": "agent:main:main", "text": text });
        admin.ok("sessions.directive", &say);
        let answer = admin.call("tools.invoke", &call).unwrap();
        let details = answer["output"]["details"].clone();
        let read = details["aggregated"] == "HOST";
        (details["status"].as_str().unwrap().to_owned(), read)
    };
    let (asks, open) = (
        "exec: { security: 'allowlist', ask: 'always' }",
        r#"{ version: 1, defaults: { security: "full", ask: "off" } }"#,
    );
    let cautious = r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss", askFallback: "deny" } }"#;
    let completed = |read| ("completed".to_owned(), read);
    let pending = ("approval-pending".to_owned(), false);
    let denied = ("denied".to_owned(), false);
    // Inside, the file is hidden.
    assert_eq!(status("off", asks, open), completed(false));
    assert_eq!(status("on", asks, open), pending);
    assert_eq!(status("ask", asks, open), pending);
    assert_eq!(status("full", asks, open), completed(true));
    assert_eq!(status("full", asks, cautious), pending);
    let closed = "exec: { security: 'deny' }";
    assert_eq!(status("full", closed, open), denied);
    // A miss that the config would not ask about stays refused.
    let listed = "exec: { security: 'allowlist', ask: 'off' }";
    assert_eq!(status("full", listed, open), denied);
    assert_eq!(status("default", asks, open), completed(false));
}

/// Neither an agent's token nor an MCP client nor the text of a call sets a level, and the gates hold for
/// each channel by itself.
#[test]
fn an_agent_never_raises_its_own_level() {
    let machine = Machine::new();
    machine.start();
    open_document(&machine);
    machine.configure(&open_for("http", ""));
    let path = machine.root().join("outside");
    machine.write_private(&path, "HOST");
    let read = format!("cat {}", path.display());
    let gateway = machine.gateway();
    let token = machine.ok(&["agents", "token", "main"]).stdout;
    let token = token.trim();
    let invoke = |args: Value| {
        let body = json!({ "tool": "exec", "args": args }).to_string();
        let request = format!(
            "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = raw(gateway.port, request.as_bytes());
        let answer: Value = serde_json::from_str(&reply.body).unwrap();
        answer["result"]["details"].clone()
    };
    // Its channel is listed: it leaves by the host's policy, and never further than `on`.
    let left = invoke(json!({ "command": read, "elevated": true }));
    assert_eq!(
        (&left["aggregated"], &left["elevated"]),
        (&json!("HOST"), &json!("on")),
        "{left:#}"
    );
    assert_eq!(left["host"], "gateway");
    let inside = invoke(json!({ "command": "true" }));
    assert_eq!(inside["host"], "sandbox", "{inside:#}");
    let wrong = invoke(json!({ "command": read, "elevated": "full" }));
    assert!(wrong.is_null() || wrong["status"] == "failed", "{wrong:#}");
    for text in ["/elevated full", "/elev full", "sh -c '/elevated full'"] {
        let refused = invoke(json!({ "command": text }));
        assert_eq!(refused["code"], "DIRECTIVE_IN_SHELL", "{refused:#}");
    }
    // The token opens no method that sets a conversation.
    let device = DeviceIdentity::generate().unwrap();
    let introduced = gateway
        .open()
        .introduce(operator(token, EVERYTHING), Some(&device));
    assert!(introduced.is_err(), "an agent is no operator");
    // Another channel is not listed.
    let mut client = gateway.connect(EVERYTHING);
    let call = json!({ "name": "exec", "args": { "command": read, "elevated": true } });
    let refused = client.call("tools.invoke", &call).unwrap()["output"]["details"].clone();
    assert_eq!(refused["code"], "ELEVATED_NOT_ALLOWED", "{refused:#}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("tools.elevated.allowFrom.ws")
    );
    let mut mcp = StdioClient::begin(&machine, &[], &json!({}));
    let refused = mcp.call("exec", &json!({ "command": read, "elevated": true }));
    assert!(
        refused.to_string().contains("tools.elevated.allowFrom.mcp"),
        "{refused:#}"
    );
    // A list may name the agent itself; another agent's name does not stand for it.
    for (entry, leaves) in [
        ("id:agent:main", true),
        ("agent:main", true),
        ("id:agent:other", false),
        ("main", false),
    ] {
        let config = open_for("ws", "").replace("ws: ['*']", &format!("http: ['{entry}']"));
        machine.configure(&config);
        let result = invoke(json!({ "command": read, "elevated": true }));
        assert_eq!(
            result["aggregated"] == "HOST",
            leaves,
            "{entry}: {result:#}"
        );
    }
    // A conversation that the owner set to a level stays inside where the sender is not listed.
    let say = json!({ "sessionKey": "agent:main:main", "text": "/elevated full" });
    client.ok("sessions.directive", &say);
    machine.configure(&open_for("ws", ""));
    let inside = invoke(json!({ "command": "grep NoNewPrivs: /proc/self/status" }));
    assert_eq!(inside["shield"], "in its sandbox", "{inside:#}");
}

/// Without a sandbox `elevated` says nothing, and `host` does not become a way out.
#[test]
fn elevated_is_ignored_without_a_sandbox_and_goes_to_the_configured_host() {
    everywhere(USUAL, |site| {
        open_document(&site.machine);
        site.configure("mode: 'off'");
        let run = elevated(&site.machine, "echo here");
        assert_eq!((run.code, run.stdout.as_str()), (0, "here\n"), "{run:#?}");
        assert!(!run.stderr.contains("elevated"), "{run:#?}");
        site.machine.configure(&open_for("cli", ""));
        for host in ["node", "sandbox"] {
            let run =
                site.machine
                    .run(&["exec", "--elevated", "--host", host, "--", "touch trace"]);
            run.refused(1, "HOST_NOT_ALLOWED");
        }
        assert!(!site.work().join("trace").exists());
        // The config's own target is a node, of which there is none.
        site.machine
            .configure(&open_for("cli", "exec: { host: 'node' }"));
        assert_ne!(elevated(&site.machine, "touch trace").code, 0);
        assert!(!site.work().join("trace").exists());
    });
}
