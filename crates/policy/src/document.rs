//! The approvals document, schema version 1: defaults, per-agent overrides, allowlists.
//!
//! Reading reports every problem with its location. A document with any problem is refused as a
//! whole, so that the document in force stays in force.

mod read;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::agent::AgentId;
use crate::entry::{DenyRule, Entry};
use crate::level::{Ask, Fallback, Security};

pub const VERSION: u64 = 1;
/// The scope whose values apply to every agent that does not set its own.
pub const EVERY_AGENT: &str = "*";
const MAX_ENTRIES: usize = 100_000;

/// The host-local policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Document {
    version: DocumentVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<Socket>,
    #[serde(skip_serializing_if = "Scope::is_empty")]
    pub defaults: Scope,
    /// Scopes by agent id, or [`EVERY_AGENT`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, Scope>,
}

/// The version, which is always 1. It has its own type so that no other number can be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DocumentVersion;

impl Serialize for DocumentVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(VERSION)
    }
}

/// The local approval socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Socket {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The values of one scope: the defaults, every agent, or one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_fallback: Option<Fallback>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_allow_skills: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<DenyRule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowlist: Vec<Entry>,
}

impl Scope {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One problem of a document, with the JSON path to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Problem {
    pub path: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The column in the string at `path`, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Whether the key is wrong, not its value.
    #[serde(skip)]
    pub at_key: bool,
}

impl Document {
    /// Reads a document, or returns every problem with it.
    pub fn from_json(value: &Value) -> Result<Self, Vec<Problem>> {
        read::strictly(value)
    }

    /// Reads a text that [`Self::from_json`] accepted before, without checking it again. The caller
    /// must know that the text is the same. Returns `None` if only [`Self::from_json`] can read the
    /// text.
    pub fn from_accepted_text(text: &str) -> Option<Self> {
        read::again(text)
    }

    /// Reads a document of another program, which may hold values that the other program ignored.
    /// Such values are left out and reported. A level of an agent that cannot be read becomes the
    /// level of the defaults. A deny rule is never left out: a rule that cannot be read is an
    /// error.
    pub fn import(value: &Value) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        read::of_another_program(value)
    }

    /// Reads a document of a client, which may know keys that this program does not. Unknown keys
    /// are left out and reported. A level that cannot be read and a key that looks misspelled are
    /// errors, because the rest of such a document may allow more than the client meant.
    pub fn from_client(value: &Value) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        read::of_a_client(value)
    }

    /// Returns the stored form: stable order, two spaces of indentation, and a final newline.
    pub fn to_json(&self) -> String {
        // Every field is plain data; serialization into a string cannot fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    /// The cautious levels, so that no agent gets open access by accident.
    pub fn cautious() -> Self {
        Self {
            defaults: crate::Preset::Cautious.scope(),
            ..Self::default()
        }
    }

    /// Returns the scopes that apply to an agent with their paths, the most specific first.
    pub fn scopes(&self, agent: &AgentId) -> Vec<(String, &Scope)> {
        let mut scopes = Vec::with_capacity(3);
        if let Some(scope) = self.agents.get(agent.as_str()) {
            scopes.push((agent_path(agent.as_str()), scope));
        }
        if let Some(scope) = self.agents.get(EVERY_AGENT) {
            scopes.push((agent_path(EVERY_AGENT), scope));
        }
        scopes.push(("defaults".to_owned(), &self.defaults));
        scopes
    }
}

/// Formats the path of an agent like the key paths of the command line: `agents.main`,
/// `agents["*"]`.
pub fn agent_path(agent: &str) -> String {
    let plain = agent
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if plain {
        format!("agents.{agent}")
    } else {
        format!("agents[{}]", Value::from(agent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_accepted_before_is_read_as_the_same_document() {
        let value = json!({
            "version": 1,
            "socket": { "path": "/run/x", "token": null },
            "defaults": { "security": "allowlist", "ask": "on-miss", "askFallback": "deny",
                "deny": [{ "pattern": "rm", "args": ["-rf", "**"], "reason": "no" }] },
            "agents": {
                "*": { "autoAllowSkills": true, "allowlist": [{ "pattern": "git", "args": ["status"] }] },
                "Main": { "ask": "always", "allowlist": [
                    { "pattern": "~/bin/*", "argPattern": "^x$", "id": "1", "env": ["A=b"],
                      "cwd": "/src/**", "interactive": true, "terminal": false, "shield": "off",
                      "paths": ["${workspace}/**"], "expiresAt": 7, "note": "n" },
                ] },
            },
        });
        let read = Document::from_json(&value).unwrap();
        // What is taken out of a document is what applies to the agent, in the same order.
        let agent = AgentId::new("main").unwrap();
        let taken = crate::take_entries(&mut read.clone(), &agent);
        let taken = (0..taken.len()).map(|at| (taken.get(at).unwrap().clone(), taken.origin(at)));
        assert_eq!(taken.collect::<Vec<_>>(), crate::entries(&read, &agent));
        for text in [value.to_string(), read.to_json()] {
            assert_eq!(Document::from_accepted_text(&text), Some(read.clone()));
        }
        // Other forms are left to the careful reader.
        for other in [
            json!({ "version": 1, "agents": { "main": { "allowlist": ["git"] } } }),
            json!({ "version": 1, "agents": { "main": { "allowlist": [{ "pattern": "a", "env": null }] } } }),
            json!({ "version": 1, "agents": { "main": {}, "MAIN": {} } }),
            json!({ "version": 1, "agents": { "main": { "security": "none" } } }),
            json!({ "version": 2 }),
            json!({ "version": 1, "more": 1 }),
        ] {
            assert_eq!(
                Document::from_accepted_text(&other.to_string()),
                None,
                "{other}"
            );
        }
    }

    use serde_json::json;

    fn problems(value: &Value) -> Vec<String> {
        let problems = Document::from_json(value).unwrap_err();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_document_survives_the_round_trip() {
        let value = json!({
            "version": 1,
            "socket": { "path": "~/x.sock", "token": "t" },
            "defaults": { "security": "deny", "ask": "on-miss", "askFallback": "deny", "deny": [{ "pattern": "rm" }] },
            "agents": {
                "*": { "allowlist": [{ "pattern": "rg", "args": ["-n", "**"], "expiresAt": 5 }] },
                "main": { "security": "allowlist", "autoAllowSkills": true }
            }
        });
        let document = Document::from_json(&value).unwrap();
        let written: Value = serde_json::from_str(&document.to_json()).unwrap();
        assert_eq!(Document::from_json(&written).unwrap(), document);
    }

    #[test]
    fn a_client_may_know_more_but_not_mean_something_else() {
        let more = json!({
            "version": 1,
            "later": 1,
            "agents": { "main": { "security": "allowlist", "allowlist": [{ "pattern": "rg", "tomorrow": 1 }] } }
        });
        let (document, left_out) = Document::from_client(&more).unwrap();
        assert_eq!(document.agents["main"].security, Some(Security::Allowlist));
        assert!(document.agents["main"].allowlist.is_empty());
        assert_eq!(left_out.len(), 2);
        for wrong in [
            json!({ "version": 1, "defaults": { "security": "alowlist" } }),
            json!({ "version": 1, "defaults": { "ask": "on_miss" } }),
            json!({ "version": 1, "defaults": { "secutity": "deny" } }),
            json!({ "version": 1, "agents": { "main": { "askFallback": 1 } } }),
        ] {
            Document::from_client(&wrong).unwrap_err();
            Document::import(&wrong).unwrap();
        }
    }

    #[test]
    fn every_problem_is_reported_with_its_place() {
        let value = json!({
            "version": 1,
            "defaults": { "secutity": "deny", "ask": "sometimes" },
            "agents": {
                "main": { "allowlist": [{ "pattern": "rg" }, { "pattern": "x", "argPattern": "a(?=b)" }, 7] },
                "bad id": {},
                "b": { "autoAllowSkills": "yes", "allowlist": [{ "patern": "x" }] }
            },
            "extra": 1
        });
        assert_eq!(
            problems(&value),
            [
                "extra: unknown key `extra`",
                "defaults.secutity: unknown key `secutity`",
                "defaults.ask: `sometimes` is not one of `off`, `on-miss`, `always`",
                "agents.main.allowlist[1].argPattern: argPattern: look-around, including look-ahead and look-behind, is not supported (column 2 of the pattern)",
                "agents.main.allowlist[2]: expected an object, found a number",
                "agents[\"bad id\"]: `bad id` is not an agent id: use letters, digits, `_`, `-` and `.`, at most 64",
                "agents.b.autoAllowSkills: expected true or false, found a string",
                "agents.b.allowlist[0].patern: unknown key `patern`",
                "agents.b.allowlist[0]: missing field `pattern`",
            ]
        );
    }

    #[test]
    fn the_version_must_be_known() {
        assert_eq!(problems(&json!({})), [": `version: 1` is missing"]);
        assert!(problems(&json!({ "version": 2 }))[0].contains("version 2 is not known"));
        assert!(problems(&json!([]))[0].contains("expected an object"));
    }

    #[test]
    fn the_old_name_of_the_main_agent_is_understood() {
        let value = json!({ "version": 1, "agents": { "default": { "security": "deny" } } });
        let document = Document::from_json(&value).unwrap();
        assert!(document.agents.contains_key("main"));
        let twice = json!({ "version": 1, "agents": { "default": {}, "main": {} } });
        assert!(problems(&twice)[0].contains("a second time"));
    }

    #[test]
    fn an_import_leaves_out_what_cannot_be_read_and_never_loosens() {
        let value = json!({
            "version": 1,
            "defaults": { "security": "deny", "ask": "never", "extra": 1 },
            "agents": {
                "*": { "security": "full" },
                "runner": { "security": "foo", "allowlist": [
                    { "pattern": "rg" }, { "pattern": "git", "argPatern": "^status" }, { "pattern": "x", "argPattern": "(" }
                ] }
            }
        });
        let (document, left_out) = Document::import(&value).unwrap();
        let runner = &document.agents["runner"];
        assert_eq!(runner.security, Some(Security::Deny));
        assert_eq!(runner.allowlist, [Entry::for_pattern("rg")]);
        assert_eq!(document.defaults.ask, None);
        assert_eq!(left_out.len(), 5);
        let broken_rule =
            json!({ "version": 1, "defaults": { "deny": [{ "pattern": "rm", "arg": "x" }] } });
        assert!(Document::import(&broken_rule).is_err());
    }
}
