//! The outbox under kill -9: nothing is lost, nothing is decided or sent twice.

use serde_json::json;
use testkit::eventually;

use super::matrix::chatting;
use super::{ADA, ROOM};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The moments at which the gateway is killed: two in each of so many rounds (`INTERLOCK_CHAT_ROUNDS`). More
/// rounds than the usual ones are at random moments; `INTERLOCK_CHAT_SEED` repeats those of another run.
struct KillMoments {
    rounds: u64,
    state: u64,
}

impl KillMoments {
    fn read() -> Self {
        let rounds = number("INTERLOCK_CHAT_ROUNDS");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let random = rounds.map_or(7, |_| u64::from(now.unwrap().subsec_nanos()));
        let state = number("INTERLOCK_CHAT_SEED").unwrap_or(random);
        println!("INTERLOCK_CHAT_SEED={state}");
        Self {
            rounds: rounds.unwrap_or(2),
            state,
        }
    }

    /// Waits until the next moment.
    fn wait(&mut self) {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005);
        self.state = self.state.wrapping_add(1_442_695_040_888_963_407);
        let wait = (self.state >> 33) % 400;
        std::thread::sleep(std::time::Duration::from_millis(wait));
    }
}

#[test]
fn a_killed_gateway_sends_every_prompt_once_and_takes_every_answer_once() {
    let (mut chat, matrix) = chatting(&json!({}));
    let mut moments = KillMoments::read();
    let mut not_run = 0;
    for round in 0..moments.rounds {
        // A new process counts the approvals of a chat anew, so each of these has its own message.
        let before = matrix.prompts(ROOM).len();
        let asked: Vec<_> = (0..3)
            .map(|number| chat.ask_marker(&format!("k{round}-{number}")))
            .collect();
        // While they are sent.
        moments.wait();
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
        // While the answers are taken.
        moments.wait();
        chat.restart();
        for (file, id, event) in &decided {
            assert_eq!(chat.until_ended(id).0, "allow-once");
            // A gateway that is killed between the claim and the start runs nothing again.
            let is_unknown = || {
                let database = chat.machine.database();
                let statement =
                    "SELECT count(*) FROM run_claim WHERE id = ?1 AND state = 'unknown'";
                let found: i64 = database
                    .query_row(statement, [id], |row| row.get(0))
                    .unwrap();
                found == 1
            };
            eventually("it runs, or is not run again", || {
                file.exists() || is_unknown()
            });
            not_run += u32::from(!file.exists());
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
    println!("{not_run} runs of {} are unknown", moments.rounds * 3);
}
