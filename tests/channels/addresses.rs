//! S-27: addresses that are never called, and config that is not taken.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::chat::HttpsServer;
use testkit::{Machine, eventually};

use super::{ADA, Chatting, ROOM, merge, secret_file};

fn config(machine: &Machine, homeserver: &str, is_private: bool) -> Value {
    let token = secret_file(machine, "matrix.token", "matrix-token");
    json!({
        "channels": { "matrix": {
            "homeserver": homeserver, "userId": "@interlock:test", "tokenFile": token,
            "allowPrivateNetwork": is_private,
            "execApprovals": { "approvers": [ADA], "target": "channel" },
        } },
        "approvals": { "exec": { "enabled": true, "targets": [{ "channel": "matrix", "to": ROOM }] } },
    })
}

#[test]
fn private_addresses_are_not_called_by_number_name_or_redirect() {
    // By name: the listener would see the connection.
    let machine = Machine::new();
    let server = HttpsServer::start(&machine, |_| (200, json!({})));
    let named = format!("https://localhost:{}", server.port);
    let chat = Chatting::start(machine, &config_of(&named));
    let (_, id) = chat.ask_marker("by-name");
    eventually("it failed", || {
        let receipts = chat.receipts(&id);
        receipts
            .iter()
            .any(|one| one.2.contains("allowPrivateNetwork"))
    });
    assert_eq!(server.accepted.load(Ordering::SeqCst), 0);
    drop(chat);
    // By number: the account is not even opened.
    let machine = Machine::new();
    let server = HttpsServer::start(&machine, |_| (200, json!({})));
    let chat = Chatting::start(machine, &config_of(&server.url()));
    let (_, id) = chat.ask_marker("by-number");
    assert_eq!(chat.receipts(&id), []);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 0);
    drop(chat);
    // A redirect is an answer like any other, and is not followed.
    let machine = Machine::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let server = HttpsServer::start(&machine, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        (302, json!({}))
    });
    let mut config = config(&machine, &server.url(), true);
    merge(&mut config, &json!({}));
    let chat = Chatting::start(machine, &config);
    let (_, id) = chat.ask_marker("redirected");
    eventually("it failed", || {
        let receipts = chat.receipts(&id);
        receipts.iter().any(|one| one.2.contains("status 302"))
    });
    assert!(asked.load(Ordering::SeqCst) > 0);
}

#[test]
fn the_interfaces_of_slack_and_discord_are_not_called_in_this_network_either() {
    for (channel, tokens) in [
        (
            "slack",
            json!({ "botToken": "xoxb-1", "appToken": "xapp-1" }),
        ),
        ("discord", json!({ "token": "t" })),
    ] {
        let machine = Machine::new();
        let server = HttpsServer::start(&machine, |_| (200, json!({})));
        let named = format!("https://localhost:{}/api", server.port);
        let mut own = json!({ "apiRoot": named, "execApprovals": { "approvers": ["1"] } });
        merge(&mut own, &tokens);
        let config = json!({ "channels": { channel: own } });
        let chat = Chatting::start(machine, &config);
        let (_, id) = chat.ask_marker("by-name");
        eventually("it failed", || {
            let receipts = chat.receipts(&id);
            receipts
                .iter()
                .any(|one| one.2.contains("allowPrivateNetwork"))
        });
        assert_eq!(server.accepted.load(Ordering::SeqCst), 0, "{channel}");
    }
}

/// The same without a file of a token: the machine is not there yet.
fn config_of(homeserver: &str) -> Value {
    json!({
        "channels": { "matrix": {
            "homeserver": homeserver, "userId": "@interlock:test", "accessToken": "matrix-token",
            "execApprovals": { "approvers": [ADA], "target": "channel" },
        } },
        "approvals": { "exec": { "enabled": true, "targets": [{ "channel": "matrix", "to": ROOM }] } },
    })
}

#[test]
fn keys_are_refused_with_their_names() {
    let machine = Machine::new();
    machine.start();
    for (key, value, code) in [
        (
            "channels.matrix.homeserver",
            "\"http://matrix.example.org\"",
            "BAD_VALUE",
        ),
        (
            "channels.slack.apiRoot",
            "\"http://slack.com/api\"",
            "BAD_VALUE",
        ),
        ("channels.slack.signingSecret", "\"x\"", "UNKNOWN_KEY"),
        ("channels.discord.botToken", "\"x\"", "UNKNOWN_KEY"),
        ("channels.matrix.botToken", "\"x\"", "UNKNOWN_KEY"),
        (
            "channels.matrix.accessToken",
            "{ source: 'file', id: 'x' }",
            "BAD_VALUE",
        ),
        (
            "channels.matrix.execApprovals.enabled",
            "\"maybe\"",
            "BAD_VALUE",
        ),
        (
            "channels.matrix.execApprovals.decisions",
            "[\"allow\"]",
            "BAD_VALUE",
        ),
        ("approvals.exec.mode", "\"session\"", "KEY_NOT_AVAILABLE"),
        (
            "approvals.exec.targets",
            "[{ channel: 'irc', to: '#ops' }]",
            "BAD_VALUE",
        ),
    ] {
        let run = machine.run(&["config", "set", key, value, "--json"]);
        assert_ne!(run.code, 0, "{key}");
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(said.contains(code), "{key}: {said}");
    }
    machine.ok(&[
        "config",
        "set",
        "channels.matrix.execApprovals.enabled",
        "auto",
    ]);
}

#[test]
fn channels_are_changed_on_their_own_machine_only() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut admin = gateway.connect(testkit::ws::EVERYTHING);
    let present = admin.ok("config.get", &json!({}));
    for raw in [
        "{ channels: { ntfy: { topic: 'x' } } }",
        "{ approvals: { exec: { enabled: true } } }",
    ] {
        let refused = admin.refused(
            "config.patch",
            &json!({ "raw": raw, "baseHash": present["hash"] }),
        );
        assert!(
            refused.to_string().contains("CONFIG_LOCAL_ONLY"),
            "{refused}"
        );
    }
}
