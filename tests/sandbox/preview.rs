//! Approve the effect: a command runs once on a copy, and an approver decides about what it changed.

use std::fs;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::EVERYTHING;

use crate::cow::picture;
use crate::site::{Site, everywhere};

/// No sandbox is configured: a preview has one of its own.
const OFF: &str = "mode: 'off'";

fn fill(site: &Site) {
    for (path, content) in [("a", "old a\n"), ("gone/x", "x\n"), ("gone/deep/y", "y\n")] {
        site.owned(&site.work().join(path), content);
    }
}

fn preview(site: &Site, text: &str) -> Value {
    let arguments = [
        "exec",
        "--json",
        "--no-wait",
        "--effects",
        "preview",
        "--",
        text,
    ];
    site.machine.run(&arguments).json()
}

/// The changes of a preview, which wait for an approver, and the short id of the approval.
fn pending(result: &Value) -> (&Value, &str) {
    let effect = &result["effect"];
    assert_eq!(effect["state"], "approval-pending", "{result:#}");
    assert_eq!(effect["preview"], true, "{result:#}");
    (effect, effect["shortId"].as_str().unwrap())
}

fn layers(site: &Site) -> Value {
    site.machine.run(&["sandbox", "list", "--json"]).json()["layers"].clone()
}

#[test]
fn an_approver_sees_the_effect_and_commits_it_once() {
    everywhere(OFF, |site| {
        fill(site);
        let work = site.work();
        let before = picture(&work);
        let text =
            "echo done; echo once >> log; rm -r gone; chmod 750 a; ln -s /etc/passwd link; exit 7";
        let result = preview(site, text);
        assert_eq!(result["exitCode"], 7, "{result:#}");
        let (effect, id) = pending(&result);
        assert_eq!(
            (&effect["created"], &effect["changed"], &effect["deleted"]),
            (&json!(2), &json!(1), &json!(4)),
            "{result:#}"
        );
        assert_eq!(
            picture(&work),
            before,
            "nothing is there before the decision"
        );
        let shown = site.machine.run(&["approvals", "pending", id]).stdout;
        for word in [
            "started",
            "/usr/bin/rm -r gone",
            "exit code 7",
            "done",
            "+once",
            "gone/deep/y",
            "(deleted)",
            "mode 0750",
            "/etc/passwd",
            "this ran already",
        ] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        let run = effect["runId"].as_str().unwrap();
        let diff = site.machine.ok(&["sandbox", "diff", run]);
        assert!(diff.stdout.contains("+once"), "{diff:#?}");
        assert!(diff.stderr.contains("a preview, exit code 7"), "{diff:#?}");
        // The approval is about the effect, and lets nothing run.
        let again =
            site.machine
                .run(&["exec", "--approval", id, "--effects", "preview", "--", text]);
        assert_ne!(again.code, 0, "{again:#?}");
        assert_eq!(picture(&work), before);
        for decision in ["--always", "--session"] {
            let refused = site.machine.run(&["approvals", "approve", id, decision]);
            assert_ne!(refused.code, 0, "{decision}: {refused:#?}");
        }
        // It is not run again: what is left to do is said, and done with the next command.
        let said = site.machine.ok(&["approvals", "approve", id]).stderr;
        assert!(
            said.contains("ran already") && said.contains("committed with the next command"),
            "{said}"
        );
        assert!(!said.contains("nothing runs now"), "{said}");
        assert!(!said.contains("exec --approval"), "{said}");
        assert_eq!(picture(&work), before);
        site.inside("true");
        assert_eq!(fs::read_to_string(work.join("log")).unwrap(), "once\n");
        assert!(!work.join("gone").exists() && work.join("link").is_symlink());
        assert_eq!(layers(site), json!([]));
        // A second look finds nothing to do.
        site.machine.run(&["approvals", "approve", id]);
        site.inside("true");
        assert_eq!(fs::read_to_string(work.join("log")).unwrap(), "once\n");
    });
}

#[test]
fn a_discarded_preview_leaves_nothing() {
    everywhere(OFF, |site| {
        fill(site);
        let before = picture(&site.work());
        let result = preview(site, "rm -rf * .*; echo x > new");
        let (_, id) = pending(&result);
        site.machine.ok(&["approvals", "deny", id]);
        site.inside("true");
        assert_eq!(picture(&site.work()), before);
        assert_eq!(layers(site), json!([]));
        // Nothing changed, nothing to decide.
        let result = preview(site, "cat a");
        assert_eq!(result["output"]["text"], "old a\n", "{result:#}");
        assert_eq!(result["effect"]["state"], "committed", "{result:#}");
        assert_eq!(site.machine.pending_ids(), Vec::<String>::new());
    });
}

/// What was shown is what is committed: neither the workspace nor the layer changes in between.
#[test]
fn an_effect_that_drifted_is_not_committed() {
    everywhere(OFF, |site| {
        fill(site);
        let result = preview(site, "echo run >> a");
        let (_, id) = pending(&result);
        site.owned(&site.work().join("a"), "host\n");
        site.machine.ok(&["approvals", "approve", id]);
        site.inside("true");
        assert_eq!(fs::read_to_string(site.work().join("a")).unwrap(), "host\n");
        assert_eq!(layers(site)[0]["kept"]["code"], "EFFECT_DRIFT");
        let run = result["effect"]["runId"].as_str().unwrap();
        site.machine.ok(&["sandbox", "discard", run]);
        if !testkit::is_root() {
            return;
        }
        // A process that reached the layer after it was described.
        let result = preview(site, "echo shown > new");
        let (effect, id) = pending(&result);
        let run = effect["runId"].as_str().unwrap();
        let list = site.machine.run(&["sandbox", "list", "--json"]).json();
        let scopes = list["scopes"].as_array().unwrap();
        let upper = scopes.iter().find_map(|scope| {
            let scope = std::path::Path::new(scope["directory"].as_str().unwrap());
            let upper = scope.join("layers").join(run).join("overlay/upper");
            upper.exists().then_some(upper)
        });
        fs::write(upper.unwrap().join("new"), "other\n").unwrap();
        site.machine.ok(&["approvals", "approve", id]);
        site.inside("true");
        assert!(!site.work().join("new").exists());
        assert_eq!(layers(site)[0]["kept"]["code"], "EFFECT_DRIFT");
    });
}

#[test]
fn names_that_lie_are_spelled_out() {
    everywhere(OFF, |site| {
        fill(site);
        let result = preview(
            site,
            "printf x > \"$(printf 'evil\\033[2Kname\\nsecond line')\"; printf '\\033[31mred\\033[0m\\n'",
        );
        let (_, id) = pending(&result);
        let shown = site.machine.run(&["approvals", "pending", id]).stdout;
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        assert!(shown.contains("second line"), "{shown}");
        assert!(
            !shown.lines().any(|line| line.starts_with("second line")),
            "{shown}"
        );
        site.machine.ok(&["approvals", "approve", id]);
        site.inside("true");
        assert!(site.work().join("evil\u{1b}[2Kname\nsecond line").exists());
    });
}

#[test]
fn a_preview_reaches_no_host_and_says_which_it_wanted() {
    everywhere(OFF, |site| {
        fill(site);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let result = preview(
            site,
            &format!(
                "getent hosts wanted.example; (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached; echo x > new"
            ),
        );
        assert_eq!(result["output"]["text"], "", "{result:#}");
        let (_, id) = pending(&result);
        assert!(listener.accept().is_err());
        let shown = site.machine.run(&["approvals", "pending", id]).stdout;
        assert!(shown.contains("wanted.example"), "{shown}");
    });
}

/// `ask`: in place of a prompt. `always`: every command. What is denied, cannot be bound or goes to the
/// background is not previewed.
#[test]
fn the_owner_says_when_commands_are_previewed() {
    everywhere(OFF, |site| {
        fill(site);
        let machine = &site.machine;
        let configure = |effects: &str| {
            machine.configure(&format!(
                "{{ tools: {{ exec: {{ security: 'allowlist', ask: 'on-miss', effects: '{effects}' }} }} }}"
            ));
        };
        machine.ok(&["approvals", "allowlist", "add", "/usr/bin/touch"]);
        let run = |words: &[&str]| {
            let mut all = vec!["exec", "--json", "--no-wait"];
            all.extend(words);
            machine.run(&all).json()
        };
        let made = |name: &str| site.work().join(name).exists();
        configure("ask");
        let direct = run(&["--", "/usr/bin/touch allowed"]);
        assert_eq!(direct["exitCode"], 0, "{direct:#}");
        assert!(direct["effect"].is_null() && made("allowed"), "{direct:#}");
        let missed = run(&["--", "/usr/bin/mkdir missed"]);
        let (_, id) = pending(&missed);
        assert!(!made("missed"));
        machine.ok(&["approvals", "approve", id]);
        site.inside("true");
        configure("always");
        let previewed = run(&["--", "/usr/bin/touch previewed"]);
        let (_, id) = pending(&previewed);
        assert!(made("missed") && !made("previewed"));
        machine.ok(&["approvals", "deny", id]);
        // For real is another approval, also of what the list allows.
        let real = run(&["--effects", "direct", "--", "/usr/bin/touch real"]);
        assert_eq!(real["status"], "approval-pending", "{real:#}");
        assert!(real["effect"].is_null() && !made("real"), "{real:#}");
        let id = real["shortId"].as_str().unwrap();
        machine.ok(&["approvals", "approve", id]);
        let words = [
            "exec",
            "--approval",
            id,
            "--effects",
            "direct",
            "--",
            "/usr/bin/touch real",
        ];
        machine.ok(&words);
        assert!(made("real"));
        // These go their usual way.
        let behind = run(&["--background", "--", "/usr/bin/mkdir behind"]);
        assert_eq!(behind["status"], "approval-pending", "{behind:#}");
        let opaque = machine.run(&["exec", "--no-wait", "--", "echo touch opaque | sh"]);
        opaque.refused(3, "APPROVAL_UNBOUND");
        machine.configure("{ tools: { exec: { security: 'deny', effects: 'always' } } }");
        let denied = machine.run(&["exec", "--", "/usr/bin/touch denied"]);
        assert_eq!(denied.code, 3, "{denied:#?}");
        assert!(!made("denied") && !made("behind"));
    });
}

#[test]
fn a_call_that_cannot_be_previewed_is_refused_and_runs_nowhere() {
    everywhere(OFF, |site| {
        fill(site);
        let opaque =
            site.machine
                .run(&["exec", "--effects", "preview", "--", "echo touch made | sh"]);
        opaque.refused(1, "PREVIEW_REFUSED");
        assert!(opaque.stderr.contains("effects"), "{opaque:#?}");
        for access in ["none", "ro"] {
            site.configure(&format!("mode: 'all', workspaceAccess: '{access}'"));
            let refused = site
                .machine
                .run(&["exec", "--effects", "preview", "--", "touch made"]);
            refused.refused(1, "PREVIEW_REFUSED");
        }
        site.configure("mode: 'all', workspaceAccess: 'rw'");
        let result = preview(site, "touch made");
        pending(&result);
        assert!(!site.work().join("made").exists());
    });
}

/// Over the gateway: the parameter, a caller that waits, and one that asks for nothing known.
#[test]
fn a_caller_of_the_gateway_gets_the_committed_result() {
    let machine = Machine::new();
    machine.start();
    machine.configure(&format!(
        "{{ tools: {{ exec: {{ approvalWaitMs: 20000 }} }}, agents: {{ defaults: {{ workspace: '{}' }} }} }}",
        machine.work().display()
    ));
    let gateway = machine.gateway();
    let call =
        |args: Value| json!({ "name": "exec", "args": args, "sessionKey": "agent:main:chat" });
    let result = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let args = json!({ "command": "echo new > made", "effects": "preview", "yieldMs": 10 });
            gateway
                .connect(EVERYTHING)
                .call("tools.invoke", &call(args))
        });
        testkit::eventually("the approval", || !machine.pending_ids().is_empty());
        assert!(!machine.work().join("made").exists());
        machine.ok(&["approvals", "approve", &machine.pending_ids()[0]]);
        waiting.join().unwrap().unwrap()
    });
    let details = &result["output"]["details"];
    assert_eq!(details["effect"]["state"], "committed", "{result:#}");
    assert_eq!(
        fs::read_to_string(machine.work().join("made")).unwrap(),
        "new\n"
    );
    let args = json!({ "command": "echo x", "effects": "later" });
    let refused = gateway
        .connect(EVERYTHING)
        .call("tools.invoke", &call(args));
    assert!(format!("{refused:?}").contains("effects"), "{refused:?}");
    let args = json!({ "command": "touch b", "effects": "preview", "background": true });
    let refused = gateway
        .connect(EVERYTHING)
        .call("tools.invoke", &call(args));
    assert!(
        format!("{refused:?}").contains("PREVIEW_REFUSED"),
        "{refused:?}"
    );
    assert!(!machine.work().join("b").exists());
}
