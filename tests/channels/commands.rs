//! `interlock channels`.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use testkit::{Machine, eventually};

use super::ROOM;
use super::matrix::chatting;

#[test]
fn the_owner_lists_and_tries_chats() {
    let (chat, matrix) = chatting(&json!({ "approvals": { "exec": { "targets": [
        { "channel": "matrix", "to": ROOM },
        { "channel": "matrix", "to": "!forbidden:test" },
        { "channel": "telegram", "to": "5" },
    ] } } }));
    matrix
        .state
        .change(|state| state.forbidden.insert("!forbidden:test".to_owned()));
    let mut listed = json!({});
    eventually("the channels are open", || {
        listed = chat.machine.ok(&["channels", "list", "--json"]).json();
        listed["targets"]
            .as_array()
            .is_some_and(|targets| targets.len() == 2)
    });
    assert_eq!(listed["accounts"], json!(["matrix"]));
    assert_eq!(listed["problems"][0]["key"], "approvals.exec.targets[2]");
    let run = chat.machine.run(&["channels", "test", "--json"]);
    assert_eq!(run.code, 1, "{run:#?}");
    let tested = run.json();
    assert_eq!(tested["targets"][0]["target"], format!("matrix:{ROOM}"));
    assert_eq!(tested["targets"][0]["account"], "@interlock:test");
    assert_eq!(tested["targets"][0]["problem"], json!(null));
    let problem = tested["targets"][1]["problem"].as_str().unwrap();
    assert!(problem.contains("M_FORBIDDEN"), "{problem}");
    // The doctor says the same of the keys.
    let doctor = chat.machine.ok(&["doctor"]);
    for words in [
        "chats: approvals go to 2\n",
        "\n  approvals.exec.targets[2] has no account: channels.telegram.default\n",
    ] {
        assert!(doctor.stdout.contains(words), "{doctor:#?}");
    }
    let doctor = chat.machine.ok(&["doctor", "--json"]).json();
    let named = &doctor["channels"]["gateway"];
    assert_eq!(named["problems"], listed["problems"]);
    assert_eq!(named["accounts"], json!(["matrix"]));
    // Nothing can be decided by it.
    let (event, content) = matrix.prompts(ROOM).remove(0);
    let sent = content["body"].as_str().unwrap();
    assert!(sent.contains("Nothing is to be decided now"), "{sent}");
    assert!(matrix.seeds(&event).is_empty());
    // The platform found the message again, and changed it.
    assert!(sent.contains("this text changes"), "{sent}");
    let shown = matrix.shown(&event);
    assert!(shown.contains("This chat gets approvals"), "{shown}");
    let unknown = chat.machine.run(&["channels", "test", "matrix:!none:test"]);
    unknown.refused(1, "TARGET_NOT_FOUND");
    assert!(
        unknown.stderr.contains("interlock channels list"),
        "{unknown:#?}"
    );
}

#[test]
fn what_was_configured_a_moment_ago_is_listed_and_tried() {
    let machine = Machine::new();
    machine.start();
    let none = machine.ok(&["channels", "list"]);
    assert!(
        none.stderr.contains("interlock channels login"),
        "{none:#?}"
    );
    let token = machine.root().join("token");
    machine.write_private(&token, "syt_secret");
    let account = json!({ "homeserver": "https://127.0.0.1:9", "userId": "@interlock:test",
        "tokenFile": token, "allowPrivateNetwork": true });
    machine.ok(&["config", "set", "channels.matrix", &account.to_string()]);
    let listed = machine.ok(&["channels", "list"]);
    assert!(listed.stderr.contains("no approver"), "{listed:#?}");
    let approvers = "channels.matrix.execApprovals.approvers";
    machine.ok(&["config", "set", approvers, r#"["@ada:test"]"#]);
    let listed = machine.ok(&["channels", "list"]);
    assert!(listed.stdout.contains("matrix:@ada:test"), "{listed:#?}");
    // The homeserver does not answer: that is said of this target.
    let tested = machine.run(&["channels", "test"]);
    assert_eq!(tested.code, 1, "{tested:#?}");
    assert!(tested.stdout.contains("matrix:@ada:test"), "{tested:#?}");
    machine.ok(&["gateway", "stop"]);
}

#[test]
fn a_token_is_kept_in_the_state_directory_and_named_in_the_config() {
    let machine = Machine::new();
    machine.start();
    let run = machine.run_with_input(
        &[
            "channels",
            "login",
            "matrix",
            "--homeserver",
            "https://matrix.example.org",
            "--user-id",
            "@interlock:example.org",
        ],
        b"syt_secret\n",
    );
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(!format!("{run:?}").contains("syt_secret"));
    let path = machine.state().join("channel-matrix.token");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "syt_secret");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let config = machine
        .ok(&["config", "get", "channels.matrix", "--json"])
        .json();
    assert_eq!(config["tokenFile"], path.to_str().unwrap());
    assert_eq!(config["userId"], "@interlock:example.org");
    // Slack has two, and what is neither is not kept.
    for (token, key, file) in [
        ("xoxb-1", "tokenFile", "channel-slack.token"),
        ("xapp-1", "appTokenFile", "channel-slack-app.token"),
    ] {
        let run = machine.run_with_input(&["channels", "login", "slack"], token.as_bytes());
        assert_eq!(run.code, 0, "{run:#?}");
        let kept = std::fs::read_to_string(machine.state().join(file)).unwrap();
        assert_eq!(kept, token);
        let config = machine.ok(&["config", "get", "channels.slack", "--json"]);
        assert!(config.json()[key].as_str().unwrap().ends_with(file));
    }
    let run = machine.run_with_input(&["channels", "login", "slack"], b"xoxp-1");
    assert_eq!(run.error_code(), "TOKEN_UNKNOWN", "{run:#?}");
    for input in ["", "two words", "\n"] {
        let run = machine.run_with_input(&["channels", "login", "telegram"], input.as_bytes());
        assert_eq!(run.error_code(), "TOKEN_MISSING", "{run:#?}");
    }
}
