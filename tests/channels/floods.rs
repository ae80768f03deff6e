//! Many approvals at once: chats get what they take, nothing is lost, and the inbox is exact.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::eventually;

use super::telegram::{ADA, chatting};

const CALLERS: usize = 8;

/// How many approvals come: `INTERLOCK_CHAT_FLOOD`. `tests/run-heavy chat` asks for 1,000.
fn flood() -> usize {
    let set = std::env::var("INTERLOCK_CHAT_FLOOD").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(40)
}

#[test]
fn a_flood_is_a_few_messages_at_the_rate_of_the_chat_and_the_inbox_is_exact() {
    let (chat, telegram) = chatting(&json!({ "tools": { "exec": { "maxPending": 10_000 } } }));
    let (count, begun) = (flood(), Instant::now());
    // Several callers at once.
    let asked: Vec<String> = std::thread::scope(|scope| {
        let callers = (0..CALLERS).map(|caller| {
            let chat = &chat;
            scope.spawn(move || {
                let own = (0..count).filter(|number| number % CALLERS == caller);
                own.map(|number| chat.ask_marker(&format!("flood{number}")).1)
                    .collect::<Vec<_>>()
            })
        });
        let callers: Vec<_> = callers.collect();
        let all = callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap());
        all.collect()
    });
    println!("{count} approvals in {:?}", begun.elapsed());
    // A client that does not read is not kept.
    let waiting = || {
        let mut client = chat.gateway.connect(testkit::ws::EVERYTHING);
        let page = client.ok(
            "exec.approval.list",
            &json!({ "summary": true, "limit": 1 }),
        );
        usize::try_from(page["total"].as_u64().unwrap()).unwrap()
    };
    assert_eq!(waiting(), count, "the inbox is exact");
    // Each of them was shown in the chat, alone or with others.
    let sent = |state: &str| {
        let database = chat.machine.database();
        let statement = "SELECT count(*) FROM chat_message WHERE state = ?1";
        let found: i64 = database
            .query_row(statement, [state], |row| row.get(0))
            .unwrap();
        usize::try_from(found).unwrap()
    };
    eventually("all are sent", || sent("sent") == count);
    assert_eq!((sent("queued"), sent("failed")), (0, 0));
    let messages = telegram.prompts();
    let is_group = |text: &str| text.contains("approvals wait");
    let text = |number: &i64| {
        let all = telegram.prompts();
        let (_, message) = all.into_iter().find(|(id, _)| id == number).unwrap();
        message["text"].as_str().unwrap().to_owned()
    };
    let groups: Vec<i64> = messages
        .iter()
        .map(|(number, _)| *number)
        .filter(|number| is_group(&text(number)))
        .collect();
    assert!(!groups.is_empty());
    // Within ten seconds no more than three have a message of their own.
    let took = begun.elapsed().as_secs() / 10 + 1;
    let most = usize::try_from(took).unwrap() * 4;
    assert!(messages.len() <= most, "{} messages", messages.len());
    for number in &groups {
        let (_, message) = &telegram.prompts()[usize::try_from(*number).unwrap() - 1];
        assert_eq!(
            message["reply_markup"]
                .get("inline_keyboard")
                .map_or(0, |rows| { rows.as_array().map_or(0, Vec::len) }),
            0,
            "nothing is allowed by a message for several"
        );
    }
    // They are decided elsewhere, all of them, and one in the chat.
    let first = chat.short_id(&asked[count - 1]);
    telegram.say(ADA, ADA, &format!("/approve {first} deny"));
    assert_eq!(chat.until_ended(&asked[count - 1]).0, "deny");
    let mut decider = chat.gateway.connect(testkit::ws::EVERYTHING);
    for id in &asked[..count - 1] {
        decider.ok("exec.approval.get", &json!({ "id": id }));
        decider.ok(
            "exec.approval.resolve",
            &json!({ "id": id, "decision": "deny" }),
        );
    }
    eventually("every message shows its end", || {
        let all = telegram.prompts();
        all.iter().all(|(_, message)| {
            let text = message["text"].as_str().unwrap();
            text.starts_with("❌ Denied") || text.starts_with("✅ no approval waits")
        })
    });
    assert_eq!(waiting(), 0);
    let decisions: i64 = chat
        .machine
        .database()
        .query_row(
            "SELECT count(*) FROM audit WHERE kind = 'decision'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(
        usize::try_from(decisions).unwrap(),
        count,
        "each is decided once"
    );
    // The chat was never written to more often than it takes.
    let touched = telegram.state.lock().touched.clone();
    for pair in touched.windows(2) {
        let pause = pair[1].1 - pair[0].1;
        assert!(pause >= Duration::from_millis(950), "{pause:?}");
    }
    println!("{} messages, {} calls", messages.len(), touched.len());
}
