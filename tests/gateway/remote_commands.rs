//! Every command goes to the gateway that `gateway.remote` names, or says that it does not: none answers
//! for this machine instead.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::remote_machines::{both, client, served};
use serde_json::json;
use testkit::eventually;
use testkit::mcp::StdioClient;

/// A call of each command that is refused without `--local`.
const REFUSED: &[(&str, &[&str])] = &[
    ("explain", &["--", "id"]),
    ("process attach", &["brave-otter"]),
    ("policy replay", &[]),
    ("policy suggest", &[]),
    ("policy base show", &[]),
    ("policy base remove", &[]),
    ("policy base restore", &[]),
    ("policy template apply", &["--dry-run", "rust"]),
    ("policy template remove", &["rust"]),
    ("approvals socket", &[]),
    ("approvals grants", &[]),
    ("approvals revoke", &["3f2a"]),
    ("exec-policy show", &[]),
    ("exec-policy set", &["--ask", "always"]),
    ("exec-policy preset", &["deny-all"]),
    ("audit archive", &["--before", "90d"]),
    ("audit export", &[]),
    // Without `--no-spawn` it would start a gateway here, which the commands after it would follow.
    ("dashboard", &["--no-open", "--no-spawn"]),
    // Without a desktop it ends at once.
    ("companion", &[]),
    ("events", &["--session", "agent:main:main"]),
    ("apply-patch", &["--dry-run", "empty.patch"]),
    ("agents list", &[]),
    ("agents token", &["main"]),
    ("agents revoke", &["0b1f"]),
    ("nodes enroll", &[]),
    ("sandbox bind", &["/srv"]),
    ("sandbox commit", &["3f2a"]),
    ("sandbox diff", &["3f2a"]),
    ("sandbox discard", &["3f2a"]),
    ("sandbox explain", &[]),
    ("sandbox net", &[]),
    ("sandbox list", &[]),
    ("sandbox prune", &[]),
    ("sandbox recreate", &["--all"]),
];

#[test]
fn what_is_only_for_this_machine_is_refused_until_that_is_said() {
    let (here, there, _gateway, port) = both();
    std::fs::write(there.work().join("empty.patch"), "").unwrap();
    let tested: BTreeSet<&str> = REFUSED.iter().map(|(command, _)| *command).collect();
    let refused: BTreeSet<&str> = interlock::reference::refused_elsewhere()
        .into_iter()
        .collect();
    assert_eq!(tested, refused);
    let before = (
        there.ok(&["--local", "approvals", "get", "--json"]).json(),
        here.document(),
    );
    for (command, rest) in REFUSED {
        let mut all: Vec<&str> = command.split(' ').collect();
        all.extend(*rest);
        let run = there.run(&all);
        run.refused(1, "LOCAL_ONLY");
        let url = format!("wss://127.0.0.1:{port}/");
        assert!(run.stderr.contains(&url), "{run:#?}");
        assert!(run.stderr.contains("interlock --local "), "{run:#?}");
        // With the flag it is about this machine, whatever it says.
        let mut local = vec!["--local"];
        local.extend(all);
        let run = there.run(&local);
        assert!(!run.stderr.contains("LOCAL_ONLY"), "{run:#?}");
    }
    let after = (
        there.ok(&["--local", "approvals", "get", "--json"]).json(),
        here.document(),
    );
    assert_eq!(before.1, after.1, "the gateway's document is untouched");
    assert_ne!(
        before.0, after.0,
        "`--local exec-policy preset` did what it says"
    );
}

#[test]
fn the_hint_of_a_refusal_can_be_pasted() {
    let (_here, there, _gateway, _) = both();
    let state = there.state();
    let run = there.run(&[
        "exec-policy",
        "show",
        "--state-dir",
        state.to_str().unwrap(),
    ]);
    run.refused(1, "LOCAL_ONLY");
    let hint = run.stderr.split("for this machine: ").nth(1).unwrap();
    let pasted = there.paste(hint.split(';').next().unwrap());
    assert_eq!(pasted.code, 0, "{pasted:#?}");
    assert!(pasted.stdout.contains("security"), "{pasted:#?}");
}

#[test]
fn what_is_about_this_machine_by_its_name_says_so() {
    let (_here, there, _gateway, port) = both();
    for command in [
        vec!["doctor"],
        vec!["security", "audit"],
        vec!["gateway", "status"],
        vec!["gateway", "token"],
    ] {
        let run = there.run(&command);
        let note = format!("not about the gateway wss://127.0.0.1:{port}/");
        assert_eq!(
            run.stderr.matches(&note).count(),
            1,
            "{command:?}: {run:#?}"
        );
        let mut local = vec!["--local"];
        local.extend(command);
        let run = there.run(&local);
        assert!(!run.stderr.contains("not about"), "{run:#?}");
    }
    // Those that no gateway could answer say nothing.
    let path = there.ok(&["config", "path"]);
    assert_eq!(path.stderr, "");
}

#[test]
fn the_guide_shows_the_table_of_commands() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/machines.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let table = interlock::reference::reach_table();
    assert!(
        guide.contains(&table),
        "docs/guide/machines.md lacks:\n{table}"
    );
}

#[test]
fn documents_and_rules_are_those_of_the_gateway() {
    let (here, there, _gateway, port) = both();
    let own = there.ok(&["--local", "approvals", "get", "--json"]).json();
    let added = there.ok(&["approvals", "allowlist", "add", "--json", "/usr/bin/uptime"]);
    let url = format!("wss://127.0.0.1:{port}/");
    assert_eq!(added.json()["gateway"], url.as_str());
    there.ok(&["deny", "add", "--reason", "not here", "terraform"]);
    assert_eq!(here.verdict("/usr/bin/uptime"), "allow");
    let got = there.ok(&["approvals", "get", "--json"]).json();
    let kept = here.ok(&["approvals", "get", "--json"]).json();
    assert_eq!(got["hash"], kept["hash"]);
    assert_eq!(got["effective"], kept["effective"]);
    assert_eq!(got["gateway"], url.as_str());
    for command in [&["approvals", "allowlist", "list"][..], &["deny", "list"]] {
        assert_eq!(there.ok(command).stdout, here.ok(command).stdout);
    }
    let text = there.ok(&["approvals", "get"]).stdout;
    assert!(text.contains(&url), "{text}");
    there.ok(&["approvals", "allowlist", "remove", "/usr/bin/uptime"]);
    there.ok(&["deny", "remove", "terraform"]);
    assert_eq!(here.verdict("/usr/bin/uptime"), "ask");
    assert_eq!(
        here.ok(&["deny", "list", "--json"]).json()["rules"],
        json!([])
    );
    there
        .run(&["approvals", "allowlist", "remove", "nosuch"])
        .refused(1, "ENTRY_NOT_FOUND");
    let open = r#"{ version: 1, defaults: { security: "full", ask: "off" } }"#;
    let set = there.run_with_input(&["approvals", "set", "--stdin"], open.as_bytes());
    assert_eq!(set.code, 0, "{set:#?}");
    assert_eq!(here.verdict("touch x"), "allow");
    // A document that was changed meanwhile is not replaced.
    let stale = there.run_with_input(
        &["approvals", "set", "--stdin", "--base-hash", "0"],
        open.as_bytes(),
    );
    assert_eq!(stale.code, 1, "{stale:#?}");
    // And nothing of it happened on this machine.
    let still = there.ok(&["--local", "approvals", "get", "--json"]).json();
    assert_eq!(still["hash"], own["hash"]);
}

#[test]
fn runs_and_records_are_those_of_the_gateway() {
    let (here, there, _gateway, port) = both();
    here.leave_to_nodes();
    here.ok(&["exec", "--background", "--", "echo ready; exec sleep 300"]);
    let sessions = there.ok(&["process", "list", "--json"]).json();
    let session = sessions["sessions"][0]["sessionId"].as_str().unwrap();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    let beginning = &session[..session.len() - 1];
    eventually("its output", || {
        let log = there.ok(&["process", "log", beginning]);
        log.stdout == "ready\n"
    });
    let polled = there.ok(&["process", "poll", session, "--json"]).json();
    assert_eq!(polled["status"], "running", "{polled:#}");
    there.ok(&["process", "kill", session]);
    let here_now = here.ok(&["process", "list", "--json"]).json();
    assert_eq!(here_now["sessions"][0]["status"], "killed", "{here_now:#}");
    there.ok(&["process", "remove", session]);
    there
        .run(&["process", "log", "no-such"])
        .refused(1, "SESSION_NOT_FOUND");
    there
        .run(&["process", "list", "--agent", "main"])
        .refused(2, "AGENT_ON_GATEWAY");
    assert_eq!(
        there.ok(&["--local", "process", "list", "--json"]).json()["sessions"],
        json!([])
    );
    let log = |flags: &[&str]| {
        let mut all = vec!["audit", "log", "--json"];
        all.extend(flags);
        (there.ok(&all).json(), here.ok(&all).json())
    };
    for flags in [
        &[][..],
        &["--limit", "3"],
        &["--kind", "verdict"],
        &["--since", "1h"],
    ] {
        let (told, kept) = log(flags);
        assert_eq!(told, kept);
        assert_ne!(told["records"], json!([]));
    }
    let head = there.ok(&["audit", "head"]).stdout;
    assert_eq!(head, here.ok(&["audit", "head"]).stdout);
    there.ok(&["audit", "verify", "--head", head.trim()]);
    let other = head.replace(':', ":0");
    assert_ne!(
        there.run(&["audit", "verify", "--head", other.trim()]).code,
        0
    );
    let status = there.ok(&["status", "--json"]).json();
    assert_eq!(
        status["gateway"]["url"],
        format!("wss://127.0.0.1:{port}/").as_str()
    );
    assert_eq!(status["pending"], 0);
    let id = here.put_down(&["--ask", "always", "--", "touch x"]);
    let status = there.ok(&["status"]).stdout;
    assert!(status.contains("1 wait for a decision"), "{status}");
    there.ok(&["approvals", "deny", &id]);
}

#[test]
fn commands_run_at_the_gateway_and_get_standard_input() {
    let (here, there, _gateway, port) = both();
    // Its policy judges, and its inbox is asked.
    let asked = there.run(&["exec", "--no-wait", "--", "touch marker"]);
    asked.refused(3, "APPROVAL_PENDING");
    let id = here.pending_ids()[0].clone();
    assert!(asked.stderr.contains(&id), "{asked:#?}");
    there.ok(&["approvals", "deny", &id]);
    here.leave_to_nodes();
    let run = there.run(&["exec", "--", "echo out; echo here > where; exit 5"]);
    assert_eq!((run.code, run.stdout.as_str()), (5, "out\n"), "{run:#?}");
    let note = format!("sent to the gateway wss://127.0.0.1:{port}/");
    assert!(run.stderr.contains(&note), "{run:#?}");
    assert!(!there.work().join("where").exists());
    let run = there.run_with_input(&["exec", "--", "sort"], b"b\na\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, "a\nb\n"), "{run:#?}");
    let json = there.run_with_input(&["exec", "--json", "--", "wc -c"], b"12345");
    assert_eq!(
        json.json()["output"]["text"].as_str().unwrap().trim(),
        "5",
        "{json:#?}"
    );
    // `--local` is this machine.
    there.ok(&["--local", "exec-policy", "preset", "yolo"]);
    there.ok(&["--local", "exec", "--", "echo here > where"]);
    assert!(there.work().join("where").exists());
}

#[test]
fn a_command_that_waits_elsewhere_names_its_approval_and_denies_it_when_it_goes() {
    let (here, there, _gateway, _) = both();
    let begin = |text: &str| {
        let child = there
            .command(&["exec", "--", text])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("it waits", || here.pending_ids().len() == 1);
        (child, here.pending_ids()[0].clone())
    };
    let (mut child, id) = begin("touch one");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let hint = lines
        .find_map(|line| Some(line.ok()?.split_once("allow it: ")?.1.to_owned()))
        .unwrap();
    assert!(hint.contains(&id), "{hint}");
    let pasted = there.paste(&hint);
    assert_eq!(pasted.code, 0, "{pasted:#?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // Interrupted: nothing waits for it any more, so nothing runs when it is allowed later.
    let (child, id) = begin("touch two");
    let pid = child.id().to_string();
    Command::new("/bin/kill")
        .args(["-INT", &pid])
        .status()
        .unwrap();
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(130));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        said.contains(&format!("{id} is denied; nothing was done")),
        "{said}"
    );
    assert_eq!(here.pending().len(), 0);
    assert_ne!(there.run(&["approvals", "approve", &id]).code, 0);
    let runs = here.ok(&["audit", "log", "--kind", "run-ended", "--json"]);
    assert_eq!(runs.json()["records"].as_array().unwrap().len(), 1);
}

#[test]
fn an_mcp_client_of_another_machine_is_an_agent_of_the_gateway() {
    let (here, _gateway, port, fingerprint) = served();
    here.leave_to_nodes();
    let minted = here.ok(&["agents", "token", "main", "--json"]).json();
    let url = format!("wss://127.0.0.1:{port}");
    let remote = json!({ "url": url, "tlsFingerprint": fingerprint });
    // An agent's token is enough, and so is an operator's.
    let agents = client(minted["token"].as_str().unwrap(), &remote);
    let operators = client(&here.operator_token(), &remote);
    for there in [&agents, &operators] {
        let mut mcp = StdioClient::begin(there, &["--no-spawn"], &json!({}));
        let result = mcp.call("exec", &json!({ "command": "echo from the gateway" }));
        assert!(
            result["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("from the gateway"),
            "{result:#}"
        );
    }
    // The end of a run is written a moment after its answer.
    eventually("the ends of both runs to be recorded", || {
        let runs = here.ok(&["audit", "log", "--kind", "run-ended", "--json"]);
        runs.json()["records"].as_array().unwrap().len() == 2
    });
    let own = agents.ok(&["--local", "audit", "log", "--kind", "run-ended", "--json"]);
    assert_eq!(own.json()["records"], json!([]));
    // Another agent than the token's is refused, and so is a switch that only the gateway's owner has.
    agents
        .run(&["mcp", "--agent", "other"])
        .refused(1, "GATEWAY_REFUSED");
    agents
        .run(&["mcp", "--elicitation"])
        .refused(2, "ELICITATION_REMOTE");
    // A token that is revoked ends the connection.
    let mut mcp = StdioClient::begin(&agents, &["--no-spawn"], &json!({}));
    here.ok(&["agents", "revoke", minted["id"].as_str().unwrap()]);
    assert!(mcp.is_over());
    let refused = agents.run(&["mcp"]);
    refused.refused(1, "GATEWAY_REFUSED");
    let token = minted["token"].as_str().unwrap();
    assert!(!refused.stderr.contains(token), "{refused:#?}");
    // Another certificate gets no token.
    let other = json!({ "url": url, "tlsFingerprint": "ab".repeat(32) });
    let there = client(&here.operator_token(), &other);
    there.run(&["mcp"]).refused(1, "GATEWAY_UNREACHABLE");
}
