//! What channels cost a gateway that rests. The figure is made with the released program only:
//! `tests/run-heavy chat-memory`.

use serde_json::json;
use testkit::chat::{DiscordStandIn, HttpsServer, MatrixStandIn, SlackStandIn, TelegramStandIn};
use testkit::{Machine, eventually};

use super::{Chatting, matrix_config, merge, secret_file, slack};

/// Memory of a gateway that has rested, in KiB: the least of what it has over a while.
fn rested(chat: &Chatting) -> u64 {
    let samples = (0..90).map(|_| {
        std::thread::sleep(std::time::Duration::from_secs(1));
        chat.gateway.memory().0
    });
    samples.min().unwrap()
}

#[test]
fn all_channels_cost_a_resting_gateway_little() {
    if std::env::var_os("INTERLOCK_CHAT_MEMORY").is_none() {
        println!("skipped: INTERLOCK_CHAT_MEMORY is not set (tests/run-heavy chat-memory sets it)");
        return;
    }
    let plain = Chatting::start(Machine::new(), &json!({}));
    let machine = Machine::new();
    let matrix = MatrixStandIn::start(&machine);
    let telegram = TelegramStandIn::start(&machine);
    let slack = SlackStandIn::start(&machine);
    let discord = DiscordStandIn::start(&machine);
    let others = HttpsServer::start(&machine, |_| (200, json!({})));
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
    let (without, with) = (rested(&plain), rested(&chat));
    println!("a resting gateway: {without} KiB, with all channels {with} KiB");
    assert!(with <= without + 2 * 1024, "{without} KiB, then {with} KiB");
}
