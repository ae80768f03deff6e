//! The outbox under kill -9: nothing is lost, nothing is decided or sent twice.

use serde_json::json;
use testkit::eventually;

use super::matrix::chatting;
use super::{ADA, ROOM};

/// How often the gateway is killed: `INTERLOCK_CHAT_ROUNDS`.
fn rounds() -> u32 {
    let set = std::env::var("INTERLOCK_CHAT_ROUNDS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[test]
fn a_killed_gateway_sends_every_prompt_once_and_takes_every_answer_once() {
    let (mut chat, matrix) = chatting(&json!({}));
    for round in 0..rounds() {
        // A new process counts the approvals of a chat anew, so each of these has its own message.
        let before = matrix.prompts(ROOM).len();
        let asked: Vec<_> = (0..3)
            .map(|number| chat.ask_marker(&format!("k{round}-{number}")))
            .collect();
        // Killed at another moment of the sending in each round.
        std::thread::sleep(std::time::Duration::from_millis(u64::from(
            round * 37 % 200,
        )));
        chat.restart();
        let mut decided = Vec::new();
        for (file, id) in &asked {
            let short_id = chat.short_id(id);
            let find = || {
                let all = matrix.prompts(ROOM).into_iter();
                all.filter(|(_, content)| content["body"].as_str().unwrap().contains(&short_id))
                    .map(|(event, _)| event)
                    .collect::<Vec<_>>()
            };
            eventually("the prompt is there", || !find().is_empty());
            let events = find();
            assert_eq!(events.len(), 1, "sent once");
            decided.push((file.clone(), id.clone(), events[0].clone()));
        }
        assert_eq!(matrix.prompts(ROOM).len(), before + 3);
        for (_, _, event) in &decided {
            matrix.react(ROOM, ADA, event, "✅");
        }
        chat.restart();
        for (file, id, event) in &decided {
            assert_eq!(chat.until_ended(id).0, "allow-once");
            eventually("it runs", || file.exists());
            eventually("it is shown", || {
                matrix.shown(event).starts_with("✅ Allowed once")
            });
            let decisions: i64 = chat
                .machine
                .database()
                .query_row(
                    "SELECT count(*) FROM audit WHERE kind = 'decision'
                        AND json_extract(body, '$.approvalId') = ?1",
                    [id],
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(decisions, 1, "decided once");
        }
    }
}
