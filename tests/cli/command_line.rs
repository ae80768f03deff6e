//! The command line as a person and a script use it: deny rules, lists, agents by name, exit codes, the
//! status, and what packages are made of.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use testkit::asking::Waiting;
use testkit::{Machine, eventually};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

#[test]
fn deny_rules_are_added_listed_and_removed() {
    let machine = started();
    machine.ok(&["approvals", "allowlist", "add", "git"]);
    assert_eq!(machine.exec("git push origin").code, 0);
    let push = [
        "--reason",
        "people release",
        "--arg=push",
        "--arg=**",
        "git",
    ];
    let added = machine.ok(&[&["deny", "add"][..], &push].concat());
    assert_eq!(
        added.stdout,
        "added git (args push '**') to agents[\"*\"].deny\n"
    );
    let again = machine.ok(&[&["deny", "add"][..], &push].concat());
    assert!(again.stdout.contains("is already in"), "{again:#?}");
    let run = machine.exec("git push origin");
    run.refused(3, "EXEC_DENIED");
    assert!(run.stderr.contains("people release"), "{run:#?}");
    assert_eq!(machine.exec("git status").code, 0);
    // One agent only.
    machine.ok(&["deny", "add", "--agent", "main", "make"]);
    let listed = machine.ok(&["deny", "list", "--json"]).json();
    let rules: Vec<(&str, &str)> = listed["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let pattern = one["rule"]["pattern"].as_str().unwrap();
            (pattern, one["origin"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        rules,
        [
            ("make", "agents.main.deny[0]"),
            ("git", "agents[\"*\"].deny[0]")
        ]
    );
    let table = machine.ok(&["deny", "list", "--agent", "main"]).stdout;
    assert!(table.contains("people release"), "{table}");
    // By its pattern alone where that is clear, else by its arguments or all of them.
    machine.ok(&["deny", "add", "git"]);
    let unclear = machine.run(&["deny", "remove", "git"]);
    unclear.refused(1, "RULE_AMBIGUOUS");
    machine.exec("git status").refused(3, "EXEC_DENIED");
    machine.ok(&["deny", "remove", "--arg=push", "--arg=**", "git"]);
    machine.ok(&["deny", "remove", "git"]);
    assert_eq!(machine.exec("git push origin").code, 0);
    machine
        .run(&["deny", "remove", "git"])
        .refused(1, "RULE_NOT_FOUND");
    machine
        .run(&["deny", "add", "--arg-pattern", "(", "git"])
        .refused(2, "RULE_INVALID");
    // Each write of the document is in the audit.
    machine.ok(&["audit", "verify"]);
}

#[test]
fn rules_of_the_defaults_hold_for_every_agent_and_go_with_all() {
    let machine = started();
    let document = r#"{ version: 1, defaults: { deny: [{ pattern: "rm" }] },
        agents: { "*": { deny: [{ pattern: "rm", args: ["-r", "**"] }] } } }"#;
    assert_eq!(machine.set_document(document).code, 0);
    machine
        .run(&["deny", "remove", "rm"])
        .refused(1, "RULE_AMBIGUOUS");
    let removed = machine.ok(&["deny", "remove", "--all", "rm"]).stdout;
    assert!(removed.contains("from defaults.deny"), "{removed}");
    assert!(removed.contains("from agents[\"*\"].deny"), "{removed}");
    assert_eq!(
        machine.ok(&["deny", "list", "--json"]).json()["rules"],
        json!([])
    );
}

#[test]
fn a_run_changes_no_deny_rules() {
    let machine = Machine::open();
    machine.switch_shield_off();
    machine.ok(&["deny", "add", "make"]);
    for command in ["deny add git", "deny remove make"] {
        let text = format!(
            "{} --state-dir {} {command}",
            crate::BINARY,
            machine.state().display()
        );
        let run = machine.exec(&text);
        assert!(run.stderr.contains("DECISION_FROM_RUN"), "{run:#?}");
    }
    let listed = machine.ok(&["deny", "list", "--json"]).json();
    assert_eq!(listed["rules"][0]["rule"]["pattern"], "make");
    assert_eq!(listed["rules"].as_array().unwrap().len(), 1);
}

#[test]
fn the_allowlist_is_listed_with_its_writer_and_its_last_use() {
    let machine = started();
    let document = r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" }, agents: { "*": { allowlist: [
        { pattern: "ls", source: "base" }, { pattern: "git", args: ["status"], note: "read only" } ] } } }"#;
    assert_eq!(machine.set_document(document).code, 0);
    machine.native("tool");
    let id = machine.put_down(&["--", "tool go"]);
    machine.ok(&["approvals", "approve", &id, "--always"]);
    assert_eq!(machine.exec("git status").code, 0);
    let list = || {
        machine
            .ok(&["approvals", "allowlist", "list", "--json"])
            .json()
    };
    eventually("the use is written down", || {
        list()["entries"].to_string().contains("lastUsedAt")
    });
    let listed = list();
    assert_eq!(listed["base"][0]["entry"]["pattern"], "ls");
    let sources: Vec<(&str, &Value)> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["origin"].as_str().unwrap(), &one["entry"]["source"]))
        .collect();
    assert_eq!(
        sources,
        [
            ("agents.main.allowlist[0]", &json!("allow-always")),
            ("agents[\"*\"].allowlist[1]", &Value::Null),
        ]
    );
    let text = machine.ok(&["approvals", "allowlist", "list"]).stdout;
    let (own, base) = text.split_once("\nbase\n").unwrap();
    assert!(own.starts_with("allowlist\n"), "{text}");
    for part in [
        "allow-always",
        "owner",
        "args status",
        "read only",
        "never used",
        "ago: git status",
    ] {
        assert!(own.contains(part), "{part}: {text}");
    }
    assert!(base.contains("ls") && !base.contains("git"), "{text}");
}

#[test]
fn cases_are_judged_by_a_proposed_document() {
    let machine = started();
    let cases = machine.file(
        "cases.jsonl",
        concat!(
            r#"{"id":"1","resolve":{},"command":"rg x","expect":"allow"}"#,
            "\n",
            r#"{"id":"2","resolve":{},"command":"ls","expect":"deny"}"#,
            "\n",
        ),
    );
    let cases = cases.to_str().unwrap();
    let proposed = machine.file(
        "proposed.json5",
        r#"{ version: 1, defaults: { security: "allowlist", ask: "off" }, agents: { "*": { allowlist: ["rg"] } } }"#,
    );
    let proposed = proposed.to_str().unwrap();
    let before = machine.document();
    assert_eq!(machine.run(&["policy", "test", cases]).code, 1);
    let run = machine.ok(&["policy", "test", "--with", proposed, cases]);
    assert!(run.stdout.contains("2 passed, 0 failed"), "{run:#?}");
    assert_eq!(machine.document(), before);
    let broken = machine.file("broken.json5", "{ version: 2 }");
    let run = machine.run(&["policy", "test", "--with", broken.to_str().unwrap(), cases]);
    run.refused(1, "DOCUMENT_INVALID");
    let own = machine.file(
        "own.jsonl",
        r#"{"id":"1","resolve":{},"command":"rg x","policy":{"security":"deny"},"expect":"deny"}"#,
    );
    let run = machine.ok(&["policy", "test", "--with", proposed, own.to_str().unwrap()]);
    assert!(run.stderr.contains("judges none of them"), "{run:#?}");
}

#[test]
fn an_unknown_agent_is_an_error_with_the_nearest_name() {
    let machine = started();
    machine.know_agents(&["builder"]);
    let before = machine.document();
    for arguments in [
        &["exec", "--agent", "bulider", "--", "ls"][..],
        &["explain", "--agent", "bulider", "--", "ls"],
        &["apply-patch", "--agent", "bulider", "-"],
        &["approvals", "get", "--agent", "bulider"],
        &["approvals", "allowlist", "add", "--agent", "bulider", "ls"],
        &[
            "approvals",
            "allowlist",
            "remove",
            "--agent",
            "bulider",
            "ls",
        ],
        &["approvals", "allowlist", "list", "--agent", "bulider"],
        &["deny", "add", "--agent", "bulider", "ls"],
        &["deny", "remove", "--agent", "bulider", "ls"],
        &["deny", "list", "--agent", "bulider"],
        &["policy", "template", "apply", "--agent", "bulider", "rust"],
        &["exec-policy", "show", "--agent", "bulider"],
        &["policy", "replay", "--agent", "bulider"],
        &["audit", "log", "--agent", "bulider"],
        &["process", "list", "--agent", "bulider"],
        &["agents", "token", "bulider"],
        &["mcp", "--agent", "bulider", "--no-spawn"],
    ] {
        let run = machine.run(arguments);
        run.refused(2, "AGENT_UNKNOWN");
        assert!(
            run.stderr.contains("did you mean `builder`?"),
            "{arguments:?}: {run:#?}"
        );
    }
    assert_eq!(machine.document(), before);
    // The hint adds it.
    let far = machine.run(&["explain", "--agent", "zz", "--", "ls"]);
    far.refused(2, "AGENT_UNKNOWN");
    assert!(far.stderr.contains("known are main, builder"), "{far:#?}");
    let hint = far.stderr.lines().last().unwrap();
    let add = hint.split("to add it: ").nth(1).unwrap();
    assert_eq!(machine.paste(add).code, 0, "{add}");
    machine.ok(&["explain", "--agent", "zz", "--", "ls"]);
    // One that only the approvals document names is known too.
    let named = "{ version: 1, agents: { lab: { allowlist: ['ls'] } } }";
    assert_eq!(machine.set_document(named).code, 0);
    machine.ok(&["explain", "--agent", "lab", "--", "ls"]);
}

#[test]
fn a_script_tells_a_command_that_failed_from_one_that_was_not_allowed() {
    let machine = Machine::open();
    machine.script("work/leave.sh", "#!/bin/sh\nexit $1\n");
    // Ran: the exit code is the command's own, whatever it is.
    for code in [0, 1, 3, 77] {
        assert_eq!(machine.exec(&format!("./leave.sh {code}")).code, code);
    }
    let closed = started();
    closed.exec("touch marker").refused(3, "APPROVAL_PENDING");
    let denied = Waiting::new(&closed, &["--", "touch marker"]);
    closed.ok(&["approvals", "deny", &denied.id]);
    assert_eq!(denied.end().code, 3);
    closed.ok(&["deny", "add", "git"]);
    closed.exec("git push").refused(3, "EXEC_DENIED");
    closed.ok(&["exec-policy", "preset", "deny-all"]);
    closed.exec("ls").refused(3, "EXEC_DENIED");
    // Neither wrong usage nor a mistake is a denial.
    assert_eq!(
        closed
            .run(&["exec", "--cwd", "/no/such/place", "--", "ls"])
            .code,
        2
    );
    assert_eq!(closed.run(&["approvals", "approve", "zzzzz"]).code, 1);
}

#[test]
fn the_status_is_one_screen_and_starts_nothing() {
    let machine = started();
    machine.know_agents(&["ops"]);
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    machine.ok(&["deny", "add", "make"]);
    machine.ok(&["agents", "token", "ops"]);
    machine.put_down(&["--", "touch marker"]);
    let text = machine.ok(&["status"]).stdout;
    for part in [
        "does not run",
        "main, ops (1 token)",
        "1 wait for a decision",
        "main: touch marker",
        "security allowlist, ask on-miss, askFallback deny; 1 entry",
        "1 deny rule;",
        "interlock gateway run",
        "interlock approvals watch",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 24, "{text}");
    assert!(machine.spawned_gateways().is_empty());
    let value = machine.ok(&["status", "--json"]).json();
    assert_eq!(value["gateway"], json!({ "running": false }));
    assert_eq!(value["pending"], 1);
    assert_eq!(value["agents"][1], json!({ "id": "ops", "tokens": 1 }));
    assert_eq!(value["policy"][0]["denyRules"], 1);
    // With a gateway it says where.
    machine.ok(&["nodes", "list"]);
    let value = machine.ok(&["status", "--json"]).json();
    assert_eq!(value["gateway"]["running"], true);
    assert_eq!(value["gateway"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(value["nodes"], json!([]));
    assert!(machine.ok(&["status"]).stdout.contains("http://127.0.0.1:"));
}

/// The commands as the reference lists them: `interlock approvals watch`.
fn commands() -> BTreeSet<String> {
    let page = interlock::reference::cli_page();
    let titles = page.lines().filter_map(|line| line.strip_prefix("## `"));
    titles
        .filter_map(|title| title.strip_suffix('`'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_a_man_page_with_its_example() {
    let machine = Machine::new();
    let directory = machine.root().join("man");
    machine.ok(&["man", directory.to_str().unwrap()]);
    let commands = commands();
    assert!(
        commands.contains("interlock approvals watch"),
        "{commands:?}"
    );
    for command in &commands {
        let name = command.replace(' ', "-");
        let page = fs::read_to_string(directory.join(format!("{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH NAME"), "{name}: {page}");
    }
    let pages = fs::read_dir(&directory).unwrap().count();
    // And one for the program itself; nothing hidden has one.
    assert_eq!(pages, commands.len() + 1);
    let watch = fs::read_to_string(directory.join("interlock-approvals-watch.1")).unwrap();
    assert!(watch.contains("interlock approvals watch"), "{watch}");
}

#[test]
fn completions_know_every_command() {
    let machine = Machine::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = machine.ok(&["completion", shell]).stdout;
        for command in commands() {
            let word = command.split(' ').next_back().unwrap();
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(machine.run(&["completion", "csh"]).code, 2);
    // Bash takes what is made for it.
    let script = machine.ok(&["completion", "bash"]).stdout;
    let file = machine.file("complete.bash", script);
    let line = format!(
        ". {}; COMP_WORDS=(interlock approvals wa); COMP_CWORD=2; _interlock interlock wa approvals; echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    let out = std::process::Command::new("/bin/bash")
        .args(["-c", &line])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "watch\n", "{out:?}");
    // It makes no state.
    assert!(!machine.state().exists());
}
