//! The approvals document, schema version 1: defaults, per-agent overrides, allowlists.
//!
//! Reading reports every problem with its place; a document with any problem is refused as a
//! whole, so that the one in force stays in force.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

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
    version: Version,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<Socket>,
    #[serde(skip_serializing_if = "Scope::is_empty")]
    pub defaults: Scope,
    /// By agent id, or [`EVERY_AGENT`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, Scope>,
}

/// Always 1; a type of its own so that no other number can be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Version;

impl Serialize for Version {
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

/// Values of one scope: the defaults, every agent, or one agent.
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
    /// Inside the string at `path`, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The key is wrong, not its value.
    #[serde(skip)]
    pub at_key: bool,
}

impl Document {
    /// Reads a document, or says everything that is wrong with it.
    pub fn from_json(value: &Value) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader::default();
        let document = reader.document(value);
        if reader.problems.is_empty() {
            Ok(document)
        } else {
            Err(reader.problems)
        }
    }

    /// The stored form: stable order, two blanks of indent, a newline at the end.
    pub fn to_json(&self) -> String {
        // Every field is plain data; serialization into a string cannot fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    /// What the first start writes: nobody is open by accident.
    pub fn cautious() -> Self {
        Self {
            defaults: crate::Preset::Cautious.scope(),
            ..Self::default()
        }
    }

    /// The scopes that apply to an agent, the most specific first, with their path.
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

/// `agents.main`, `agents["*"]`: as the key paths of the command line are written.
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

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn problem(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem {
            path: path.to_owned(),
            message: message.into(),
            hint: None,
            column: None,
            at_key: false,
        });
    }

    /// An object whose keys are all known; others are reported with the nearest known one.
    fn object<'a>(
        &mut self,
        path: &str,
        value: &'a Value,
        known: &[&str],
    ) -> Option<&'a Map<String, Value>> {
        let Some(object) = value.as_object() else {
            self.problem(path, format!("expected an object, found {}", kind(value)));
            return None;
        };
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            let nearest = nearest(key, known);
            self.problems.push(Problem {
                path: child(path, key),
                message: format!("unknown key `{key}`"),
                hint: Some(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("known keys: {}", known.join(", ")),
                }),
                column: None,
                at_key: true,
            });
        }
        Some(object)
    }

    fn document(&mut self, value: &Value) -> Document {
        let mut document = Document::default();
        let known = ["version", "socket", "defaults", "agents"];
        let Some(object) = self.object("", value, &known) else {
            return document;
        };
        match object.get("version") {
            Some(version) if version.as_u64() == Some(VERSION) => {}
            Some(version) => self.problem(
                "version",
                format!("version {version} is not known; this program reads version 1"),
            ),
            None => self.problem("", "`version: 1` is missing"),
        }
        if let Some(socket) = object.get("socket").filter(|value| !value.is_null()) {
            document.socket = self.socket(socket);
        }
        if let Some(defaults) = object.get("defaults").filter(|value| !value.is_null()) {
            document.defaults = self.scope("defaults", defaults);
        }
        if let Some(agents) = object.get("agents").filter(|value| !value.is_null()) {
            match agents.as_object() {
                Some(agents) => self.agents(agents, &mut document),
                None => self.problem(
                    "agents",
                    format!("expected an object, found {}", kind(agents)),
                ),
            }
        }
        document
    }

    fn socket(&mut self, value: &Value) -> Option<Socket> {
        let object = self.object("socket", value, &["path", "token"])?;
        Some(Socket {
            path: self.string("socket", object, "path"),
            token: self.string("socket", object, "token"),
        })
    }

    fn agents(&mut self, agents: &Map<String, Value>, document: &mut Document) {
        for (name, value) in agents {
            let path = agent_path(name);
            let id = if name == EVERY_AGENT {
                name.clone()
            } else {
                match AgentId::new(name) {
                    Ok(id) => id.as_str().to_owned(),
                    Err(error) => {
                        self.problem(&path, error.to_string());
                        continue;
                    }
                }
            };
            let scope = self.scope(&path, value);
            if document.agents.insert(id.clone(), scope).is_some() {
                self.problem(&path, format!("agent `{id}` stands here a second time"));
            }
        }
    }

    fn scope(&mut self, path: &str, value: &Value) -> Scope {
        const KNOWN: [&str; 6] = [
            "security",
            "ask",
            "askFallback",
            "autoAllowSkills",
            "deny",
            "allowlist",
        ];
        let Some(object) = self.object(path, value, &KNOWN) else {
            return Scope::default();
        };
        let scope = Scope {
            security: self.level(path, object, "security", Security::parse, Security::ALL),
            ask: self.level(path, object, "ask", Ask::parse, Ask::ALL),
            ask_fallback: self.level(path, object, "askFallback", Fallback::parse, Fallback::ALL),
            auto_allow_skills: self.boolean(path, object, "autoAllowSkills"),
            deny: self.list(path, object, "deny", |rule: &DenyRule| rule.check()),
            allowlist: self.list(path, object, "allowlist", |entry: &Entry| entry.check()),
        };
        if path == "defaults" && !scope.allowlist.is_empty() {
            self.problem(
                "defaults.allowlist",
                "allowlists belong to agents; use `agents[\"*\"].allowlist` for all of them",
            );
        }
        scope
    }

    fn level<T: Copy + std::fmt::Display>(
        &mut self,
        path: &str,
        object: &Map<String, Value>,
        key: &str,
        parse: fn(&str) -> Option<T>,
        all: &[T],
    ) -> Option<T> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        let level = value.as_str().and_then(parse);
        if level.is_none() {
            let allowed: Vec<_> = all.iter().map(|level| format!("`{level}`")).collect();
            let shown = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            self.problem(
                &child(path, key),
                format!("`{shown}` is not one of {}", allowed.join(", ")),
            );
        }
        level
    }

    fn boolean(&mut self, path: &str, object: &Map<String, Value>, key: &str) -> Option<bool> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        if value.as_bool().is_none() {
            self.problem(
                &child(path, key),
                format!("expected true or false, found {}", kind(value)),
            );
        }
        value.as_bool()
    }

    fn string(&mut self, path: &str, object: &Map<String, Value>, key: &str) -> Option<String> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        if value.as_str().is_none() {
            let found = kind(value);
            self.problem(
                &child(path, key),
                format!("expected a string, found {found}"),
            );
        }
        value.as_str().map(str::to_owned)
    }

    fn list<T: serde::de::DeserializeOwned + KnownKeys>(
        &mut self,
        path: &str,
        object: &Map<String, Value>,
        key: &str,
        check: impl Fn(&T) -> Result<(), crate::entry::EntryError>,
    ) -> Vec<T> {
        let path = child(path, key);
        let Some(value) = object.get(key).filter(|value| !value.is_null()) else {
            return Vec::new();
        };
        let Some(items) = value.as_array() else {
            self.problem(&path, format!("expected a list, found {}", kind(value)));
            return Vec::new();
        };
        if items.len() > MAX_ENTRIES {
            self.problem(&path, format!("more than {MAX_ENTRIES} entries"));
            return Vec::new();
        }
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            // A bare string was once a pattern.
            let item = match item {
                Value::String(pattern) => serde_json::json!({ "pattern": pattern }),
                other => other.clone(),
            };
            let Some(fields) = self.object(&path, &item, T::KEYS) else {
                continue;
            };
            let mut fields = fields.clone();
            fields.retain(|key, value| T::KEYS.contains(&key.as_str()) && !value.is_null());
            match serde_json::from_value::<T>(Value::Object(fields)) {
                Err(error) => self.problem(&path, error.to_string()),
                Ok(entry) => {
                    if let Err(error) = check(&entry) {
                        self.problems.push(Problem {
                            path: child(&path, error.field()),
                            message: error.to_string(),
                            hint: None,
                            column: error.column(),
                            at_key: false,
                        });
                    }
                    list.push(entry);
                }
            }
        }
        list
    }
}

trait KnownKeys {
    const KEYS: &'static [&'static str];
}

impl KnownKeys for Entry {
    const KEYS: &'static [&'static str] = &[
        "id",
        "pattern",
        "argPattern",
        "args",
        "source",
        "commandText",
        "lastUsedAt",
        "lastUsedCommand",
        "lastResolvedPath",
        "note",
        "expiresAt",
        "cwd",
    ];
}

impl KnownKeys for DenyRule {
    const KEYS: &'static [&'static str] = &["pattern", "argPattern", "args", "reason"];
}

fn child(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(key, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3).max(2))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
