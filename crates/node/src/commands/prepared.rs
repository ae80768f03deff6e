//! Shows a foreign gateway that no approver is needed.
//!
//! A foreign gateway does not ask the node: it reads the node's document and judges by itself, with
//! less knowledge than this machine. An entry that it cannot read, such as those that *always*
//! stores here, makes it ask about every run again. It can read an entry for exactly one command.
//! Therefore its copy of the document contains such an entry for each command that it recently had
//! prepared and that the allowlist here allows.
//!
//! These entries are only shown, never stored: runs are judged by the document of this machine, and
//! a document that comes back is stored without them (`foreign_document`).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_policy::{ALLOW_ALWAYS, AgentId};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// How long an entry is shown. A gateway reads the document right after a command was prepared.
const TOLD_FOR: Duration = Duration::from_mins(1);

/// How many commands are remembered. The oldest is forgotten first.
const MAX_REMEMBERED: usize = 256;

/// The prefix of the id of an entry that is only shown.
const ID_PREFIX: &str = "interlock-prepared-";

/// The prefix of the hash in the pattern of an entry for one command.
const PATTERN_PREFIX: &str = "=command:";

/// The commands that a foreign gateway had prepared, and whether the allowlist allows them.
#[derive(Debug, Default)]
pub(crate) struct PreparedCommands {
    commands: Mutex<VecDeque<PreparedCommand>>,
}

#[derive(Debug)]
struct PreparedCommand {
    agent: String,
    /// The hash by which the pattern of an entry names the command.
    hash: String,
    at: Instant,
    is_allowed: bool,
}

impl PreparedCommands {
    /// Remembers the verdict on a command, by the command text of its plan. The newest verdict
    /// counts, because the same text may be prepared for another directory.
    pub(super) fn note(&self, agent: &AgentId, command_text: &str, is_allowed: bool) {
        let hash = command_hash(command_text);
        let mut commands = self.lock();
        commands.retain(|other| other.hash != hash || other.agent != agent.as_str());
        if commands.len() >= MAX_REMEMBERED {
            commands.pop_front();
        }
        commands.push_back(PreparedCommand {
            agent: agent.to_string(),
            hash,
            at: Instant::now(),
            is_allowed,
        });
    }

    /// Adds entries for prepared and allowed commands to a document.
    pub(super) fn tell_in(&self, mut document: Value) -> Value {
        let commands = self.lock();
        let told = commands
            .iter()
            .filter(|command| command.is_allowed && command.at.elapsed() < TOLD_FOR);
        for command in told {
            let Some(list) = allowlist_of(&mut document, &command.agent) else {
                continue;
            };
            list.push(json!({
                "id": format!("{ID_PREFIX}{}", command.hash),
                "pattern": format!("{PATTERN_PREFIX}{}", command.hash),
                "source": ALLOW_ALWAYS,
            }));
        }
        document
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<PreparedCommand>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The list of an agent, which is created if it does not exist.
fn allowlist_of<'a>(document: &'a mut Value, agent: &str) -> Option<&'a mut Vec<Value>> {
    let empty = || Value::Object(Map::new());
    let agents = document.as_object_mut()?;
    let agents = agents.entry("agents").or_insert_with(empty);
    let scope = agents.as_object_mut()?;
    let scope = scope.entry(agent).or_insert_with(empty);
    let scope = scope.as_object_mut()?;
    let list = scope.entry("allowlist").or_insert_with(|| json!([]));
    list.as_array_mut()
}

/// The first 16 hexadecimal digits of the SHA-256 of the text.
fn command_hash(text: &str) -> String {
    let digest = Sha256::digest(text.trim().as_bytes());
    let digits = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentId {
        AgentId::default()
    }

    #[test]
    fn an_entry_for_a_prepared_command_is_told_in_the_words_of_the_reference() {
        let commands = PreparedCommands::default();
        let text = "/bin/sh -lc \"id -un\"";
        commands.note(&agent(), text, true);
        let stored = json!({ "version": 1, "agents": { "main": { "allowlist": [{ "pattern": "/usr/bin/id" }] } } });
        let told = commands.tell_in(stored);
        let list = told["agents"]["main"]["allowlist"].as_array().unwrap();
        assert_eq!(list.len(), 2, "{told}");
        let hash = command_hash(text);
        assert_eq!(
            list[1],
            json!({
                "id": format!("interlock-prepared-{hash}"),
                "pattern": format!("=command:{hash}"),
                "source": "allow-always",
            })
        );
        // The beginning of the SHA-256.
        assert_eq!(command_hash("abc"), "ba7816bf8f01cfea");
    }

    #[test]
    fn what_is_not_allowed_is_not_told_and_the_newest_verdict_counts() {
        let commands = PreparedCommands::default();
        let stored = json!({ "version": 1 });
        commands.note(&agent(), "id", false);
        assert_eq!(commands.tell_in(stored.clone()), stored);
        commands.note(&agent(), "id", true);
        assert_ne!(commands.tell_in(stored.clone()), stored);
        commands.note(&agent(), "id", false);
        assert_eq!(commands.tell_in(stored.clone()), stored);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_odd_documents_stay_as_they_are() {
        let commands = PreparedCommands::default();
        for number in 0..MAX_REMEMBERED + 10 {
            commands.note(&agent(), &number.to_string(), true);
        }
        assert_eq!(commands.lock().len(), MAX_REMEMBERED);
        for odd in [
            json!(null),
            json!([]),
            json!({ "agents": 1 }),
            json!({ "agents": { "main": [] } }),
            json!({ "agents": { "main": { "allowlist": {} } } }),
        ] {
            assert_eq!(commands.tell_in(odd.clone()), odd);
        }
    }
}
