//! What channels cost a gateway that rests. The figure is made with the released program only:
//! `tests/run-heavy chat-memory`.

use std::sync::atomic::Ordering;

use serde_json::json;
use testkit::chat::{DiscordStandIn, HttpsServer, MatrixStandIn, SlackStandIn, TelegramStandIn};
use testkit::{Machine, eventually};

use super::{Chatting, matrix_config, merge, secret_file, slack};

/// The authorities of this machine, besides which those of the stand-ins are trusted: a gateway reads and
/// keeps as many as it does for its owner.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The middle of what gateways have over two minutes, in KiB: all of it, and what is their own, after one minute of rest: several rounds of what
/// accounts do while nothing happens.
fn rested(gateways: [&Chatting; 2]) -> [(u64, u64); 2] {
    let second = std::time::Duration::from_secs(1);
    std::thread::sleep(60 * second);
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..120 {
        std::thread::sleep(second);
        for (chat, samples) in gateways.iter().zip(&mut samples) {
            let own = testkit::own_memory(chat.gateway.pid());
            samples.push((chat.gateway.memory().0, own));
        }
    }
    samples.map(|samples| {
        let middle = |mut all: Vec<u64>| {
            all.sort_unstable();
            all[all.len() / 2]
        };
        let (all, own) = samples.into_iter().unzip();
        (middle(all), middle(own))
    })
}

#[test]
fn all_channels_cost_a_resting_gateway_little() {
    if std::env::var_os("INTERLOCK_CHAT_MEMORY").is_none() {
        println!("skipped: INTERLOCK_CHAT_MEMORY is not set (tests/run-heavy chat-memory sets it)");
        return;
    }
    let plain = Chatting::start(Machine::new(), &json!({}));
    let machine = Machine::new();
    if std::path::Path::new(AUTHORITIES).exists() {
        std::fs::copy(AUTHORITIES, machine.root().join("chat-ca.pem")).unwrap();
    }
    let matrix = MatrixStandIn::start(&machine);
    let telegram = TelegramStandIn::start(&machine);
    let slack = SlackStandIn::start(&machine);
    let discord = DiscordStandIn::start(&machine);
    let others = HttpsServer::start(&machine, |_| (200, json!({})));
    // As the platforms do: a gateway that is answered every two seconds does not rest.
    matrix.state.is_patient.store(true, Ordering::SeqCst);
    telegram.state.is_patient.store(true, Ordering::SeqCst);
    let mut config = matrix_config(&machine, &matrix.server.url());
    merge(&mut config, &slack::config(&machine, &slack));
    let token = |name: &str, text: &str| secret_file(&machine, name, text);
    let more = json!({ "channels": {
        "telegram": { "apiRoot": telegram.server.url(), "allowPrivateNetwork": true,
            "tokenFile": token("telegram.token", "telegram-token"),
            "execApprovals": { "approvers": ["4242"] } },
        "discord": { "apiRoot": format!("{}/api", discord.server.url()),
            "allowPrivateNetwork": true, "tokenFile": token("discord.token", "discord-token"),
            "execApprovals": { "approvers": ["42000000000000001"] } },
        "ntfy": { "url": others.url(), "topic": "t", "allowPrivateNetwork": true },
        "webhook": { "url": others.url(), "allowPrivateNetwork": true,
            "secretFile": token("out.secret", "out") },
    } });
    merge(&mut config, &more);
    let chat = Chatting::start(machine, &config);
    eventually("every account listens", || {
        slack.state.lock().open == 1 && discord.state.lock().open == 1
    });
    let [(without, own_without), (with, own_with)] = rested([&plain, &chat]);
    println!("a resting gateway: {without} KiB, with all channels {with} KiB");
    println!("of that its own: {own_without} KiB, with all channels {own_with} KiB");
    assert!(with <= without + 2 * 1024, "{without} KiB, then {with} KiB");
}
