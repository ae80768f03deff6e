//! Every surface says where a run is confined: prompts, answers of the gateway, audit records, `explain`,
//! `exec-policy show` and `doctor`.

use serde_json::{Value, json};
use testkit::asking::Waiting;
use testkit::ws::EVERYTHING;

use crate::site::{Site, USUAL, everywhere};

/// Every run inside needs an approval.
fn ask_inside(site: &Site, settings: &str) {
    let text = format!(
        "{{ tools: {{ sandbox: {{ exec: {{ ask: 'always' }} }} }}, agents: {{ defaults: {{ sandbox: {{ {settings} }} }} }} }}"
    );
    site.machine.configure(&text);
}

fn records(site: &Site, kind: &str) -> Vec<Value> {
    let log = site.machine.ok(&["audit", "log", "--json", "--kind", kind]);
    let log = log.json();
    log["records"].as_array().unwrap().clone()
}

fn last_body(site: &Site, kind: &str) -> Value {
    let records = records(site, kind);
    let newest = records.iter().max_by_key(|one| one["seq"].as_i64());
    newest.unwrap()["body"].clone()
}

fn summary(access: &str, view: &str) -> Value {
    json!({
        "backend": "native",
        "scope": "agent main",
        "view": view,
        "workspaceAccess": access,
        "network": "none",
    })
}

#[test]
fn every_approver_is_shown_the_sandbox_of_a_run() {
    everywhere(USUAL, |site| {
        ask_inside(site, "mode: 'all', workspaceAccess: 'ro'");
        let expected = summary("ro", "minimal");
        let line = "sandbox   native, agent main; workspace ro, no network\n";
        let waiting = Waiting::new(&site.machine, &["--", "echo inside"]);
        let pending = &site.machine.pending()[0];
        assert_eq!(pending["sandbox"], expected, "{pending:#}");
        assert_eq!(pending["view"]["sandbox"], expected, "{pending:#}");
        let listed = site.machine.ok(&["approvals", "pending"]).stdout;
        assert!(listed.contains(line), "{listed}");
        let watch = ["approvals", "watch", "--plain", "--no-listen"];
        let watched = site.machine.run_with_input(&watch, b"quit\n").stdout;
        assert!(watched.contains(line), "{watched}");
        let gateway = site.machine.gateway();
        let mut client = gateway.connect(EVERYTHING);
        let read = client.ok("exec.approval.get", &json!({ "id": pending["id"] }));
        assert_eq!(read["sandbox"], expected, "{read:#}");
        assert!(
            read["viewText"].as_str().unwrap().contains(line),
            "{read:#}"
        );
        let approved = site.machine.ok(&["approvals", "approve", &waiting.id]);
        assert!(approved.stderr.contains(line), "{approved:#?}");
        let run = waiting.end();
        assert_eq!(run.stdout, "inside\n", "{run:#?}");
        for kind in ["verdict", "run-started", "run-ended"] {
            let body = last_body(site, kind);
            assert_eq!(body["sandbox"], expected, "{kind}: {body:#}");
        }
    });
}

/// The policy alone, a grant, and a run that goes to the background are recorded alike.
#[test]
fn the_audit_names_the_sandbox_of_every_run() {
    everywhere("mode: 'all', view: 'host', workspaceAccess: 'rw'", |site| {
        let expected = summary("rw", "host");
        site.says("true");
        for kind in ["verdict", "run-started", "run-ended"] {
            let body = last_body(site, kind);
            assert_eq!(body["sandbox"], expected, "{kind}: {body:#}");
        }
        let begun = site
            .machine
            .ok(&["exec", "--json", "--background", "--", "true"]);
        assert_eq!(begun.json()["host"], "sandbox", "{begun:#?}");
        let id = begun.json()["sessionId"].as_str().unwrap().to_owned();
        let ended = || {
            let all = records(site, "run-ended");
            all.into_iter()
                .map(|one| one["body"].clone())
                .find(|body| body["outcome"]["session"] == id.as_str())
        };
        testkit::eventually("the end of the background run to be recorded", || {
            // Without a gateway, the next run records the end.
            site.says("true");
            ended().is_some()
        });
        assert_eq!(ended().unwrap()["sandbox"], expected);
        site.machine.configure(
            "{ tools: { sandbox: { exec: { security: 'allowlist', ask: 'on-miss' } } }, agents: { defaults: { sandbox: { mode: 'all', view: 'host', workspaceAccess: 'rw' } } } }",
        );
        let waiting = Waiting::new(&site.machine, &["--", "id -u"]);
        site.machine
            .ok(&["approvals", "approve", &waiting.id, "--session"]);
        assert_eq!(waiting.end().code, 0);
        site.machine.ok(&["exec", "--no-wait", "--", "id -u"]);
        let body = last_body(site, "run-started");
        assert!(body["grantId"].is_string(), "{body:#}");
        assert_eq!(body["sandbox"], expected, "{body:#}");
        assert_eq!(last_body(site, "run-ended")["sandbox"], expected);
        site.machine.ok(&["audit", "verify"]);
    });
}

/// A run without a sandbox is shown and recorded as ever.
#[test]
fn a_run_on_the_host_names_no_sandbox() {
    everywhere("mode: 'off'", |site| {
        let waiting = Waiting::new(&site.machine, &["--", "id -u"]);
        let pending = &site.machine.pending()[0];
        assert!(pending.get("sandbox").is_none(), "{pending:#}");
        assert!(pending["view"].get("sandbox").is_none(), "{pending:#}");
        let listed = site.machine.ok(&["approvals", "pending"]).stdout;
        assert!(listed.contains("sandbox   none\n"), "{listed}");
        site.machine.ok(&["approvals", "approve", &waiting.id]);
        assert_eq!(waiting.end().code, 0);
        for kind in ["verdict", "run-started", "run-ended"] {
            let body = last_body(site, kind);
            assert!(body.get("sandbox").is_none(), "{kind}: {body:#}");
        }
    });
}

/// `exec-policy show` and `explain` name the key that decides; without one they say nothing of it.
#[test]
fn the_key_that_decides_is_shown() {
    everywhere("", |site| {
        let policy = || site.machine.ok(&["exec-policy", "show", "--json"]).json();
        assert!(policy()["agents"]["main"].get("sandbox").is_none());
        let plain = site.machine.ok(&["exec-policy", "show"]).stdout;
        assert!(!plain.contains("sandbox"), "{plain}");
        assert!(site.machine.explain(&["--", "id"]).get("sandbox").is_none());
        site.configure("mode: 'non-main'");
        let expected = json!({
            "conversations": "non-main",
            "key": "agents.defaults.sandbox.mode",
            "value": "non-main",
        });
        assert_eq!(policy()["agents"]["main"]["sandbox"], expected);
        let told = site.machine.ok(&["exec-policy", "show"]).stdout;
        let line =
            "every conversation but agent:main:main (agents.defaults.sandbox.mode is non-main)";
        assert!(told.contains(line), "{told}");
        let explained = site.machine.explain(&["--", "id"]);
        assert_eq!(explained["sandbox"]["sandboxed"], false, "{explained:#}");
        site.configure("required: true");
        let expected = json!({
            "sessionKey": "agent:main:main",
            "sandboxed": true,
            "key": "agents.defaults.sandbox.required",
            "value": "true",
        });
        assert_eq!(site.machine.explain(&["--", "id"])["sandbox"], expected);
        let told = site.machine.ok(&["explain", "--", "id"]).stdout;
        let line =
            "sandbox: agent:main:main is sandboxed (agents.defaults.sandbox.required is true)\n";
        assert!(told.contains(line), "{told}");
    });
}

/// `doctor` sets a sandbox up to see whether it works, leaves none behind, and says what fixes it.
#[test]
fn the_doctor_says_whether_the_sandbox_works() {
    everywhere("", |site| {
        let told = site.machine.ok(&["doctor"]).stdout;
        assert!(
            told.contains("sandbox: the native sandbox works here\n"),
            "{told}"
        );
        let told = site.machine.ok(&["doctor", "--json"]).json();
        assert_eq!(told["sandbox"]["works"], true, "{told:#}");
        assert_eq!(told["sandbox"]["backend"], "native", "{told:#}");
        let listed = site.machine.ok(&["sandbox", "list", "--json"]).json();
        assert_eq!(listed["scopes"], json!([]));
        let limited = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
        let mut command = site.machine.other_program("/usr/bin/unshare");
        command.args(["-Ur", "sh", "-c", limited, "sh"]);
        command.arg(site.machine.binary());
        command.args(["doctor", "--json"]);
        let run = testkit::finish(&mut command);
        let told = run.json();
        assert_eq!(told["sandbox"]["works"], false, "{told:#}");
        let fix = "sudo sysctl -w user.max_user_namespaces=15000";
        assert_eq!(told["sandbox"]["fix"], fix, "{told:#}");
    });
}
