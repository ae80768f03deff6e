//! What pages ask for besides their HTML: pages of approvals by filter, receipts, decisions of one
//! approver. And what a device that may only read can make the gateway keep.

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::EVERYTHING;

use super::Agent;

#[test]
fn pages_of_approvals_fit_their_filter_and_say_the_exact_number() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&[
        "config",
        "set",
        "agents.list",
        r#"[{"id":"main"},{"id":"ci"}]"#,
    ]);
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut asked = Vec::new();
    for number in 0..7 {
        let name = if number % 3 == 0 { "ci" } else { "main" };
        let args = json!({ "command": format!("git push origin page-{number}"), "workdir": machine.work() });
        let call = json!({ "name": "exec", "agentId": name, "args": args, "approvalWaitMs": 0 });
        let answer = agent.client.ok("tools.invoke", &call);
        asked.push((name, super::approval_id(&answer)));
    }
    let mut operator = gateway.connect(EVERYTHING);
    let mut read = |filter: Value, total: u64| {
        let mut ids: Vec<String> = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let mut params = json!({ "limit": 2 });
            if !filter.is_null() {
                params["filter"] = filter.clone();
            }
            if !cursor.is_null() {
                params["cursor"] = cursor.clone();
            }
            let page = operator.ok("exec.approval.page", &params);
            assert_eq!(page["total"], total, "{page:#}");
            let rows = page["approvals"].as_array().unwrap();
            assert!(rows.len() <= 2);
            ids.extend(
                rows.iter()
                    .map(|row| row["id"].as_str().unwrap().to_owned()),
            );
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                ids.sort();
                return ids;
            }
        }
    };
    let wanted = |agent: &str| {
        let fitting = asked
            .iter()
            .filter(|(name, _)| agent.is_empty() || *name == agent);
        let mut ids: Vec<String> = fitting.map(|(_, id)| id.clone()).collect();
        ids.sort();
        ids
    };
    assert_eq!(read(Value::Null, 7), wanted(""));
    assert_eq!(read(json!({ "agentId": "ci" }), 3), wanted("ci"));
    assert_eq!(
        read(json!({ "agentId": "main", "host": "gateway" }), 4),
        wanted("main")
    );
    assert_eq!(
        read(json!({ "host": "elsewhere" }), 0),
        Vec::<String>::new()
    );
    for params in [
        json!({ "cursor": "x" }),
        json!({ "cursor": "x", "filter": {} }),
        json!({ "cursor": "x.y", "filter": {} }),
    ] {
        let refused = operator.refused("exec.approval.page", &params);
        assert_eq!(refused["details"]["code"], "CURSOR_INVALID", "{refused:#}");
    }
    operator.refused(
        "exec.approval.page",
        &json!({ "filter": { "agent": "ci" } }),
    );
    // A row is no prompt: what was only listed is not decided.
    let decide = json!({ "id": asked[0].1, "decision": "allow-once" });
    operator.refused("exec.approval.resolve", &decide);
    // A page that begins behind an approval which was decided meanwhile leaves none out.
    let first = json!({ "limit": 1, "filter": { "agentId": "ci" } });
    let first = operator.ok("exec.approval.page", &first);
    let gone = first["approvals"][0]["id"].as_str().unwrap();
    machine.ok(&["approvals", "deny", gone]);
    let next = json!({ "limit": 5, "cursor": first["nextCursor"], "filter": { "agentId": "ci" } });
    let next = operator.ok("exec.approval.page", &next);
    assert_eq!(next["total"], 2);
    assert_eq!(next["approvals"].as_array().unwrap().len(), 2, "{next:#}");
}

#[test]
fn receipts_are_listed_and_the_form_of_always_has_two_names() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut page = gateway.connect(EVERYTHING);
    page.ok("ui.open", &json!({ "view": "inbox" }));
    let id = agent.ask(&machine, "/usr/bin/touch listed");
    let open = json!({ "view": "approval", "params": { "id": id } });
    let opened = page.ok("ui.open", &open);
    let mut states = Vec::new();
    testkit::eventually("it was seen", || {
        let listed = page.ok("deliveries.list", &json!({ "id": id }));
        assert_eq!(listed["id"], id.as_str());
        let all = listed["deliveries"].as_array().unwrap();
        states = all.iter().map(|one| one["state"].clone()).collect();
        all.iter()
            .all(|one| one["surface"].as_str().unwrap().starts_with("web:"))
            && states.contains(&json!("seen"))
    });
    let mut reader = gateway.connect(&["operator.read"]);
    for method in ["deliveries.list", "exec.approval.page"] {
        let refused = reader.refused(method, &json!({ "id": id }));
        assert_eq!(refused["message"], "missing scope: operator.approvals");
    }
    let ticket = &opened["tickets"][&id];
    let decide = |form: &str, other: &str| json!({ "id": id, "decision": "allow-always", "ticket": ticket, "form": form, "alwaysForm": other });
    let refused = page.refused("exec.approval.resolve", &decide("exact", "program"));
    assert!(
        refused["message"].as_str().unwrap().contains("alwaysForm"),
        "{refused:#}"
    );
    let stored = json!({ "id": id, "decision": "allow-always", "ticket": ticket, "alwaysForm": "leading:1" });
    page.ok("exec.approval.resolve", &stored);
    let shown = machine
        .ok(&["approvals", "get", "--json"])
        .json()
        .to_string();
    assert!(shown.contains(r#""args":["listed","**"]"#), "{shown}");
}

#[test]
fn the_audit_is_narrowed_to_the_decisions_of_one_approver() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut operator = gateway.connect(EVERYTHING);
    let by_cli = agent.ask(&machine, "git push origin one");
    let by_page = agent.ask(&machine, "git push origin two");
    machine.ok(&["approvals", "deny", &by_cli]);
    operator.ok("exec.approval.get", &json!({ "id": by_page }));
    let denied = json!({ "id": by_page, "decision": "deny" });
    operator.ok("exec.approval.resolve", &denied);
    let records = operator.ok("audit.list", &json!({ "approver": "a test" }));
    let events = records["events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{records:#}");
    assert!(events[0].to_string().contains(&by_page), "{records:#}");
    let open = json!({ "view": "audit", "params": { "approver": "a test" } });
    let html = operator.ok("ui.open", &open)["html"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(html.contains(&by_page) && !html.contains(&by_cli), "{html}");
    for name in ["a test", "uid "] {
        assert!(
            html.contains(&format!("<option value=\"{name}")),
            "{name}: {html}"
        );
    }
}

/// Names of topics come from clients: only those of sessions that are there are kept.
#[test]
fn a_view_that_is_refused_is_not_followed() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut reader = gateway.connect(&["operator.read"]);
    let long = "x".repeat(1 << 20);
    for name in ["no-such", long.as_str()] {
        let open = json!({ "view": "session", "params": { "id": name } });
        let refused = reader.refused("ui.open", &open);
        assert_eq!(refused["details"]["code"], "SESSION_NOT_FOUND");
        let close = json!({ "topic": format!("session:{name}") });
        assert_eq!(reader.ok("ui.close", &close)["closed"], false);
    }
}
