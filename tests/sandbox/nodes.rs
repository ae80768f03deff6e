//! Sandboxes on nodes: the node's own config confines what a gateway sends, with the same code.

use serde_json::json;
use testkit::node_pair::{Pair, machines};

use crate::site::USUAL;

/// Inside there is a filter of system calls; the workspace of the node is shown.
const LOOK: &str = "pwd; grep NoNewPrivs: /proc/self/status; ls -A; echo made > made";

#[test]
fn a_node_confines_what_a_gateway_sends_by_its_own_config() {
    for there in machines() {
        let pair = Pair::new(there);
        let outside = pair.there.root().join("outside");
        pair.there.write_private(&outside, "HOST");
        let read = format!("cat {}", outside.display());
        let before = pair.exec(&json!({ "command": read }));
        assert_eq!(before["aggregated"], "HOST", "{before:#}");
        let work = pair.there.work();
        let config = format!(
            "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {USUAL} }} }} }} }}",
            work.display()
        );
        pair.there.configure(&config);
        let inside = pair.exec(&json!({ "command": LOOK }));
        let said = inside["aggregated"].as_str().unwrap();
        assert!(said.starts_with(work.to_str().unwrap()), "{inside:#}");
        assert!(said.contains("NoNewPrivs:\t1"), "{inside:#}");
        assert_eq!(
            std::fs::read_to_string(work.join("made")).unwrap(),
            "made\n"
        );
        let hidden = pair.exec(&json!({ "command": read }));
        assert_ne!(hidden["exitCode"], 0, "{hidden:#}");
        assert!(!hidden.to_string().contains("HOST"), "{hidden:#}");
        // A directory of the node that its sandbox does not show, and what the gateway calls elevated.
        let refused = pair.exec(&json!({ "command": "pwd", "workdir": "/srv" }));
        assert!(
            refused.to_string().contains("WORKDIR_OUTSIDE_SANDBOX"),
            "{refused:#}"
        );
        let elevated = pair.exec(&json!({ "command": read, "elevated": true }));
        assert!(!elevated.to_string().contains("HOST"), "{elevated:#}");
        // A background session, ended with all that it started.
        let id = pair.background("echo begun; sleep 600");
        testkit::eventually("its output", || {
            pair.of("log", &id).to_string().contains("begun")
        });
        let killed = pair.of("kill", &id);
        assert!(!killed.to_string().contains("error"), "{killed:#}");
        // A sandbox that the node cannot have is no run on its host.
        let config = format!(
            "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {USUAL}, binds: ['/etc:/data'] }} }} }} }}",
            work.display()
        );
        pair.there.configure(&config);
        let refused = pair.exec(&json!({ "command": "touch trace" }));
        assert!(refused.to_string().contains("SANDBOX_BIND"), "{refused:#}");
        assert!(!work.join("trace").exists());
    }
}

/// An approver at the gateway sees the node's sandbox; a plan for it is of no use once the node has none.
#[test]
fn a_plan_for_a_sandbox_of_a_node_is_refused_without_one() {
    let config = "{ tools: { exec: { approvalWaitMs: 0 } } }";
    let pair = Pair::with_config(testkit::Machine::new(), config);
    let work = pair.there.work();
    let of_node = |more: &str| {
        format!(
            "{{ tools: {{ sandbox: {{ exec: {{ ask: 'always' }} }}, exec: {{ ask: 'always' }} }}, agents: {{ defaults: {{ workspace: '{}'{more} }} }} }}",
            work.display()
        )
    };
    let confined = of_node(&format!(", sandbox: {{ {USUAL} }}"));
    pair.there.configure(&confined);
    let ask = |command: &str| {
        let pending = pair.exec(&json!({ "command": command }));
        assert_eq!(pending["status"], "approval-pending", "{pending:#}");
        pending["approvalId"].as_str().unwrap().to_owned()
    };
    let id = ask("echo inside > inside");
    let shown = pair.here.ok(&["approvals", "pending"]).stdout;
    assert!(
        shown.contains("workspace rw") || shown.contains("native"),
        "{shown}"
    );
    pair.here.ok(&["approvals", "approve", &id]);
    testkit::eventually("the run inside", || work.join("inside").exists());
    let id = ask("echo outside > outside");
    pair.there.configure(&of_node(""));
    pair.here.ok(&["approvals", "approve", &id]);
    testkit::eventually("the refusal", || {
        let log = pair.there.ok(&["audit", "log", "--json"]).stdout;
        log.contains("SANDBOX_UNAVAILABLE")
    });
    assert!(!work.join("outside").exists());
}
