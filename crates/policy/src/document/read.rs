//! Reads documents, and reports every problem with its location.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Document, EVERY_AGENT, MAX_ENTRIES, Problem, Scope, Socket, VERSION, agent_path};
use crate::agent::AgentId;
use crate::entry::{DenyRule, Entry};
use crate::level::{Ask, Fallback, Security};

pub(super) fn strictly(value: &Value) -> Result<Document, Vec<Problem>> {
    let mut reader = DocumentReader::default();
    let document = reader.document(value);
    if reader.problems.is_empty() {
        Ok(document)
    } else {
        Err(reader.problems)
    }
}

/// Reads a text that [`strictly`] read before, so nothing needs to be checked again. Returns `None`
/// if the text has a form that only [`strictly`] can read.
pub(super) fn again(text: &str) -> Option<Document> {
    let written: DocumentText = serde_json::from_str(text).ok()?;
    let mut document = Document {
        socket: written.socket.map(|socket| Socket {
            path: socket.path,
            token: socket.token,
        }),
        ..Document::default()
    };
    if written.version != VERSION {
        return None;
    }
    if let Some(defaults) = written.defaults {
        document.defaults = defaults.scope()?;
    }
    for (name, scope) in written.agents.into_iter().flatten() {
        let id = match name.as_str() {
            EVERY_AGENT => name,
            _ => AgentId::new(&name).ok()?.as_str().to_owned(),
        };
        if document.agents.insert(id, scope.scope()?).is_some() {
            return None;
        }
    }
    Some(document)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentText {
    version: u64,
    socket: Option<AcceptedSocket>,
    defaults: Option<AcceptedScope>,
    agents: Option<BTreeMap<String, AcceptedScope>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptedSocket {
    path: Option<String>,
    token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AcceptedScope {
    security: Option<String>,
    ask: Option<String>,
    ask_fallback: Option<String>,
    auto_allow_skills: Option<bool>,
    deny: Option<Vec<DenyRule>>,
    allowlist: Option<Vec<Entry>>,
}

impl AcceptedScope {
    fn scope(self) -> Option<Scope> {
        /// An absent level stays absent. An unknown level means that only the strict reader can
        /// read the text.
        fn level<T>(word: Option<&String>, parse: fn(&str) -> Option<T>) -> Result<Option<T>, ()> {
            let level = word.map(|word| parse(word).ok_or(()));
            level.transpose()
        }
        Some(Scope {
            security: level(self.security.as_ref(), Security::parse).ok()?,
            ask: level(self.ask.as_ref(), Ask::parse).ok()?,
            ask_fallback: level(self.ask_fallback.as_ref(), Fallback::parse).ok()?,
            auto_allow_skills: self.auto_allow_skills,
            deny: self.deny.unwrap_or_default(),
            allowlist: self.allowlist.unwrap_or_default(),
        })
    }
}

/// A document with the problems that were left out.
pub(super) type Leniently = Result<(Document, Vec<Problem>), Vec<Problem>>;

pub(super) fn of_another_program(value: &Value) -> Leniently {
    leniently(value, Leniency::Everything)
}

pub(super) fn of_a_client(value: &Value) -> Leniently {
    leniently(value, Leniency::NoLevels)
}

fn leniently(value: &Value, leniency: Leniency) -> Leniently {
    let mut reader = DocumentReader {
        leniency,
        ..DocumentReader::default()
    };
    let document = reader.document(value);
    if reader.problems.is_empty() {
        Ok((document, reader.left_out))
    } else {
        Err(reader.problems)
    }
}

/// Which values are left out if they cannot be read.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Leniency {
    #[default]
    Nothing,
    /// Everything but levels and keys that look like a known key: without them the document would
    /// mean something else.
    NoLevels,
    Everything,
}

#[derive(Default)]
struct DocumentReader {
    problems: Vec<Problem>,
    leniency: Leniency,
    left_out: Vec<Problem>,
}

impl DocumentReader {
    /// Reports a problem that an import can do without.
    fn flaw(&mut self, problem: Problem) {
        match self.leniency {
            Leniency::Nothing => self.problems.push(problem),
            Leniency::NoLevels | Leniency::Everything => self.left_out.push(problem),
        }
    }

    /// Reports a key that a client misspelled but must have meant.
    fn misspelt(&mut self, problem: Problem) {
        match self.leniency {
            Leniency::Everything => self.left_out.push(problem),
            Leniency::Nothing | Leniency::NoLevels => self.problems.push(problem),
        }
    }

    fn entry_flaw<T: KnownKeys>(&mut self, problem: Problem) {
        if T::MUST_STAY {
            self.problems.push(problem);
        } else {
            self.flaw(problem);
        }
    }

    fn problem(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem {
            path: path.to_owned(),
            message: message.into(),
            hint: None,
            column: None,
            at_key: false,
        });
    }

    /// Returns the object. Unknown keys are reported with the nearest known key.
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
            let problem = Problem {
                path: child(path, key),
                message: format!("unknown key `{key}`"),
                hint: Some(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("known keys: {}", known.join(", ")),
                }),
                column: None,
                at_key: true,
            };
            if nearest.is_some() {
                self.misspelt(problem);
            } else {
                self.flaw(problem);
            }
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
            document.defaults = self.scope("defaults", defaults, &Scope::default());
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
            let scope = self.scope(&path, value, &document.defaults);
            if document.agents.insert(id.clone(), scope).is_some() {
                self.problem(&path, format!("agent `{id}` stands here a second time"));
            }
        }
    }

    /// Reads a scope. `general` replaces a level that cannot be read.
    fn scope(&mut self, path: &str, value: &Value, general: &Scope) -> Scope {
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
            security: self.level(
                path,
                object,
                "security",
                Security::parse,
                Security::ALL,
                general.security,
            ),
            ask: self.level(path, object, "ask", Ask::parse, Ask::ALL, general.ask),
            ask_fallback: self.level(
                path,
                object,
                "askFallback",
                Fallback::parse,
                Fallback::ALL,
                general.ask_fallback,
            ),
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
        general: Option<T>,
    ) -> Option<T> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        let level = value.as_str().and_then(parse);
        if level.is_some() {
            return level;
        }
        let allowed: Vec<_> = all.iter().map(|level| format!("`{level}`")).collect();
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        self.misspelt(Problem {
            path: child(path, key),
            message: format!("`{shown}` is not one of {}", allowed.join(", ")),
            hint: None,
            column: None,
            at_key: false,
        });
        general
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
            // Older documents write an entry as a bare string, its pattern.
            let item = match item {
                Value::String(pattern) => serde_json::json!({ "pattern": pattern }),
                other => other.clone(),
            };
            let before = self.left_out.len();
            let Some(fields) = self.object(&path, &item, T::KEYS) else {
                continue;
            };
            if self.left_out.len() > before {
                // Without the unreadable part the entry would mean something else.
                if T::MUST_STAY {
                    self.problems.extend(self.left_out.drain(before..));
                }
                continue;
            }
            let mut fields = fields.clone();
            fields.retain(|key, value| T::KEYS.contains(&key.as_str()) && !value.is_null());
            match serde_json::from_value::<T>(Value::Object(fields)) {
                Err(error) => self.entry_flaw::<T>(Problem {
                    path,
                    message: error.to_string(),
                    hint: None,
                    column: None,
                    at_key: false,
                }),
                Ok(entry) => {
                    if let Err(error) = check(&entry) {
                        self.entry_flaw::<T>(Problem {
                            path: child(&path, error.field()),
                            message: error.to_string(),
                            hint: None,
                            column: error.column(),
                            at_key: false,
                        });
                        continue;
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
    /// Whether an import must not leave out such an item.
    const MUST_STAY: bool;
}

impl KnownKeys for Entry {
    const MUST_STAY: bool = false;
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
        "calledAs",
        "boundFile",
        "env",
        "interactive",
        "terminal",
        "paths",
        "shield",
    ];
}

impl KnownKeys for DenyRule {
    const MUST_STAY: bool = true;
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
