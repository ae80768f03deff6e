//! `interlock exec-policy`: config and document in step.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::Machine;

/// Security, ask and fallback in config and document, and what holds.
fn values(machine: &Machine) -> (Value, Value, Value) {
    let config = machine.ok(&["config", "get", "--json"]).json();
    let exec = config["tools"]["exec"].clone();
    let (document, _) = machine.document();
    let shown = machine.ok(&["exec-policy", "show", "--json"]).json();
    let policy = &shown["agents"]["main"]["policy"];
    let effective = |key: &str| policy[key]["effective"]["value"].clone();
    (
        json!([exec["security"], exec["ask"]]),
        json!([
            document["defaults"]["security"],
            document["defaults"]["ask"],
            document["defaults"]["askFallback"],
        ]),
        json!([
            effective("security"),
            effective("ask"),
            effective("askFallback")
        ]),
    )
}

#[test]
fn presets_are_written_to_config_and_document() {
    let machine = Machine::new();
    machine.start();
    let presets = [
        ("yolo", "full", "off", "full", "allow"),
        ("cautious", "allowlist", "on-miss", "deny", "ask"),
        ("deny-all", "deny", "off", "deny", "deny"),
    ];
    for (preset, security, ask, fallback, verdict) in presets {
        let run = machine.ok(&["exec-policy", "preset", preset]);
        insta::assert_snapshot!(format!("preset_{preset}"), machine.stable(&run.stdout));
        let all = json!([security, ask, fallback]);
        assert_eq!(
            values(&machine),
            (json!([security, ask]), all.clone(), all),
            "{preset}"
        );
        assert_eq!(machine.verdict("ls $HOME"), verdict, "{preset}");
    }
    let json = machine
        .ok(&["exec-policy", "preset", "yolo", "--json"])
        .json();
    assert_eq!(
        json["agents"]["main"]["policy"]["security"]["effective"]["value"],
        "full"
    );
}

#[test]
fn set_changes_only_what_is_named() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["exec-policy", "set", "--ask", "always"]);
    let cautious = json!(["allowlist", "always", "deny"]);
    assert_eq!(
        values(&machine),
        (json!([null, "always"]), cautious.clone(), cautious)
    );
    machine.ok(&[
        "exec-policy",
        "set",
        "--security",
        "full",
        "--ask-fallback",
        "full",
        "--host",
        "sandbox",
    ]);
    let open = json!(["full", "always", "full"]);
    assert_eq!(
        values(&machine),
        (json!(["full", "always"]), open.clone(), open)
    );
    assert_eq!(
        machine.ok(&["config", "get", "tools.exec.host"]).stdout,
        "sandbox\n"
    );
}

/// A mode stands for two levels: a change of one keeps what the mode said about the other.
#[test]
fn a_mode_gives_way_to_what_it_means() {
    let cases: &[(&str, &[&str], Value)] = &[
        (
            "deny",
            &["--ask", "always"],
            json!({ "security": "deny", "ask": "always" }),
        ),
        (
            "allowlist",
            &["--ask", "on-miss"],
            json!({ "security": "allowlist", "ask": "on-miss" }),
        ),
        (
            "ask",
            &["--security", "full"],
            json!({ "security": "full", "ask": "on-miss" }),
        ),
        (
            "full",
            &["--security", "deny", "--ask", "off"],
            json!({ "security": "deny", "ask": "off" }),
        ),
        (
            "deny",
            &["--ask-fallback", "deny"],
            json!({ "mode": "deny" }),
        ),
        (
            "deny",
            &["--host", "gateway"],
            json!({ "mode": "deny", "host": "gateway" }),
        ),
    ];
    for (mode, arguments, expected) in cases {
        let machine = Machine::new();
        machine.start();
        machine.write_config(&format!(
            "{{ tools: {{ exec: {{ mode: \"{mode}\" }} }} }}\n"
        ));
        let mut all = vec!["exec-policy", "set"];
        all.extend(*arguments);
        machine.ok(&all);
        let exec = machine
            .ok(&["config", "get", "tools.exec", "--json"])
            .json();
        assert_eq!(exec, *expected, "{mode} {arguments:?}");
    }
    // Written beside each other they contradict, and are refused, by hand as by command.
    let machine = Machine::new();
    machine.start();
    machine.write_config("{ tools: { exec: { mode: \"deny\" } } }\n");
    let run = machine.run(&["config", "set", "tools.exec.security", "full"]);
    assert_eq!(run.code, 1);
    insta::assert_snapshot!("config_mode_conflict", machine.stable(&run.stderr));
    // And a config that holds both can be repaired by saying what is meant.
    machine.write_config("{ tools: { exec: { mode: \"deny\", security: \"full\" } } }\n");
    assert_eq!(machine.run(&["exec-policy", "show"]).code, 1);
    machine.ok(&[
        "exec-policy",
        "set",
        "--security",
        "allowlist",
        "--ask",
        "on-miss",
    ]);
    assert_eq!(machine.verdict("ls"), "ask");
}

#[test]
fn a_node_is_not_steered_from_here() {
    let machine = Machine::new();
    machine.start();
    let before = (machine.document(), machine.config().exists());
    let run = machine.run(&["exec-policy", "set", "--host", "node", "--security", "full"]);
    run.refused(1, "NODE_POLICY_IS_REMOTE");
    assert!(
        run.stderr.contains("hint: interlock approvals set --node "),
        "{run:#?}"
    );
    assert_eq!((machine.document(), machine.config().exists()), before);
}

#[test]
fn show_says_which_layer_decides_for_every_agent() {
    let machine = Machine::new();
    machine.start();
    machine.write_config(
        r#"{
          tools: { exec: { security: "full", ask: "off" } },
          agents: { list: [
            { id: "main", default: true },
            { id: "remote", tools: { exec: { host: "node", node: "laptop" } } },
            { id: "strict", tools: { exec: { mode: "deny" } } },
          ] },
        }"#,
    );
    machine.set_document(
        r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" },
             agents: { bot: { ask: "always" }, strict: { security: "full" } } }"#,
    );
    let run = machine.ok(&["exec-policy", "show"]);
    insta::assert_snapshot!("exec_policy_show", machine.stable(&run.stdout));
    let json = machine.ok(&["exec-policy", "show", "--json"]).json();
    let agents = json["agents"].as_object().unwrap();
    assert_eq!(
        agents.keys().collect::<Vec<_>>(),
        ["main", "bot", "strict", "remote"]
    );
    assert_eq!(agents["remote"]["managedBy"], "node");
    assert_eq!(agents["main"]["managedBy"], "local");
    let one = machine
        .ok(&["exec-policy", "show", "--agent", "strict", "--json"])
        .json();
    assert_eq!(
        one["agents"]["strict"]["policy"]["security"]["effective"],
        json!({ "value": "deny", "source": "config", "path": "agents.list[2].tools.exec.mode" })
    );
}

#[test]
fn nothing_is_written_when_the_config_cannot_be() {
    let machine = Machine::new();
    machine.start();
    machine.write_config("{ tools: { exec: { timeoutSec: \"soon\" } } }\n");
    let text = std::fs::read_to_string(machine.config()).unwrap();
    for arguments in [
        &["exec-policy", "preset", "yolo"][..],
        &["exec-policy", "set", "--security", "full"],
    ] {
        let run = machine.run(arguments);
        assert_eq!(run.code, 1, "{run:#?}");
        assert_eq!(std::fs::read_to_string(machine.config()).unwrap(), text);
    }
    machine.write_config("{}\n");
    assert_eq!(machine.document().0["defaults"]["security"], "allowlist");
}

#[test]
fn wrong_words_are_wrong_usage() {
    let machine = Machine::new();
    let cases: &[&[&str]] = &[
        &["exec-policy", "set"],
        &["exec-policy", "set", "--security", "open"],
        &["exec-policy", "set", "--host", "moon"],
        &["exec-policy", "preset", "reckless"],
        &["exec-policy", "preset"],
        &["exec-policy", "show", "--agent", "a b"],
    ];
    for arguments in cases {
        let run = machine.run(arguments);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (2, ""),
            "{arguments:?}: {run:#?}"
        );
    }
}

#[test]
fn a_sandbox_that_a_host_overrules_is_told_with_a_command_to_paste() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let is_told = |text: &str| {
        let text = text.replace(&format!(" --state-dir {}", machine.state().display()), "");
        text.contains("holds no command, because tools.exec.host is gateway")
            && text.contains("interlock config set tools.exec.host auto")
    };
    let report = |words: &[&str]| {
        let run = machine.run(words);
        run.stdout + &run.stderr
    };
    let reports = [
        &["status"][..],
        &["exec-policy", "show"],
        &["sandbox", "explain"],
        &["security", "audit"],
        &["doctor"],
    ];
    for words in reports {
        assert!(!is_told(&report(words)), "{words:?}");
    }
    let set = ["config", "set", "agents.defaults.sandbox.mode", "all"];
    assert!(is_told(&report(&set)));
    for words in reports {
        assert!(is_told(&report(words)), "{words:?}: {}", report(words));
    }
    let show = machine.ok(&["exec-policy", "show", "--json"]).json();
    assert!(
        show["agents"]["main"]["sandbox"]["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("config set tools.exec.host auto")),
        "{show:#}"
    );
    machine.ok(&["config", "set", "tools.exec.host", "auto"]);
    for words in reports {
        assert!(!is_told(&report(words)), "{words:?}");
    }
}

#[test]
fn a_preset_takes_no_command_out_of_a_sandbox() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "agents.defaults.sandbox.mode", "non-main"]);
    for preset in ["yolo", "cautious", "deny-all"] {
        machine.ok(&["exec-policy", "preset", preset]);
        let config = machine.ok(&["config", "get", "--json"]).json();
        assert_eq!(config["tools"]["exec"]["host"], Value::Null, "{preset}");
    }
}
