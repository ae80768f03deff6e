//! Reads one test case.

use std::collections::BTreeMap;
use std::fmt;

use interlock_command::Source;
use interlock_plan::PlanStdin;
use interlock_policy::safe_bin::SafeBinProfile;
use interlock_policy::{
    AgentId, Ask, DenyRule, Document, EVERY_AGENT, EntryLists, Fallback, Layer, Levels, Outcome,
    PolicyParts, PolicySource as LayerSource, Security, SkillBin, Sourced,
};
use interlock_programs::{FileKind, VIRTUAL_HOME, VirtualHost};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::fixture::FileSpec;
use crate::policy_host::PolicyHost;

const DEFAULT_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Fields about the origin of a case. They are ignored.
const IGNORED: &[&str] = &[
    "source",
    "note",
    "why",
    "technique",
    "class",
    "tier",
    "verified",
    "basis",
    "release",
    "history",
    "kind",
    "assert",
    "soft",
];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Case {
    #[serde(deserialize_with = "any_id")]
    pub(super) id: String,
    pub(super) policy: Option<CasePolicy>,
    agent: Option<String>,
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    /// The value of `${workspace}`, if it is not the working directory.
    workspace: Option<String>,
    path: Option<Vec<String>>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) env: BTreeMap<String, String>,
    pub(super) pty: bool,
    /// `null`, as a string or as JSON, or `pipe`.
    pub(super) stdin: Option<PlanStdin>,
    pub(super) fs: Vec<FileSpec>,
    resolve: Option<BTreeMap<String, Value>>,
    pub(super) expect: Expectation,
    #[serde(rename = "alt_expect")]
    alt_expect: Option<String>,
    platform: Option<String>,
    needs_host_bins: Vec<String>,
    /// Whether the case needs files. Most cases do not, and get no directory.
    #[serde(skip)]
    pub(super) needs_fixture: bool,
}

/// The policy of a case: the fields of a document and of `tools.exec`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CasePolicy {
    security: Option<Security>,
    ask: Option<Ask>,
    ask_fallback: Option<Fallback>,
    allowlist: Vec<Value>,
    deny: Vec<DenyRule>,
    safe_bins: Option<Vec<String>>,
    safe_bin_trusted_dirs: Vec<String>,
    safe_bin_profiles: BTreeMap<String, SafeBinProfile>,
    strict_inline_eval: bool,
    auto_allow_skills: bool,
    skill_bins: Vec<Value>,
}

/// The expected verdict of a case.
#[derive(Debug, Clone, Default)]
pub(super) struct Expectation {
    verdict: String,
    pub(super) segments: Vec<Vec<String>>,
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verdict)
    }
}

impl Expectation {
    pub(super) fn accepts(&self, outcome: Outcome) -> bool {
        fits(&self.verdict, outcome.as_str())
    }

    /// Whether the shown verdict fits. `refused` is a separate verdict; a case that expects `ask`
    /// is about the policy alone.
    pub(super) fn accepts_word(&self, word: &str) -> bool {
        fits(&self.verdict, word)
    }

    pub(super) fn accepts_denial(&self) -> bool {
        fits(&self.verdict, "deny")
    }
}

fn fits(expected: &str, outcome: &str) -> bool {
    expected == outcome || (expected == "miss" && outcome != "allow")
}

impl<'de> Deserialize<'de> for Expectation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = Value::deserialize(deserializer)?;
        let (verdict, segments) = match &value {
            Value::String(verdict) => (verdict.clone(), Vec::new()),
            Value::Object(object) => {
                let verdict = object.get("verdict").and_then(Value::as_str);
                let verdict =
                    verdict.ok_or_else(|| D::Error::custom("`expect` has no `verdict`"))?;
                (
                    verdict.to_owned(),
                    segments(object).map_err(D::Error::custom)?,
                )
            }
            _ => {
                return Err(D::Error::custom(
                    "`expect` is neither a string nor an object",
                ));
            }
        };
        if !matches!(
            verdict.as_str(),
            "allow" | "ask" | "deny" | "miss" | "refused"
        ) {
            let message = format!("`{verdict}` is not one of allow, ask, deny, miss, refused");
            return Err(D::Error::custom(message));
        }
        Ok(Self { verdict, segments })
    }
}

/// Formats a JSON error without its line, which is always 1. The caller adds the line of the file.
fn not_json(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let place = format!(" at line {line} column {column}");
    let message = message.strip_suffix(&place).unwrap_or(&message);
    format!("not JSON at column {column}: {message}")
}

fn segments(expect: &Map<String, Value>) -> Result<Vec<Vec<String>>, String> {
    let Some(list) = expect.get("segments").and_then(Value::as_array) else {
        return Ok(Vec::new());
    };
    let argv = |item: &Value| {
        let words = item.get("argv").unwrap_or(item);
        serde_json::from_value::<Vec<String>>(words.clone())
    };
    let argvs = list.iter().map(argv).collect::<Result<_, _>>();
    argvs.map_err(|error| format!("`expect.segments`: {error}"))
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn any_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(id) => id,
        other => other.to_string(),
    })
}

impl Case {
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| not_json(&error))?;
        let Value::Object(mut object) = value else {
            return Err("a case is a JSON object".to_owned());
        };
        object.retain(|key, _| !key.starts_with("x-") && !IGNORED.contains(&key.as_str()));
        let mut case: Self =
            serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())?;
        case.needs_fixture = !case.fs.is_empty() || line.contains("${TMP}");
        if case.command.is_some() == case.argv.is_some() {
            return Err("a case has either `command` or `argv`".to_owned());
        }
        if case.expect.verdict.is_empty() {
            return Err("`expect` is missing".to_owned());
        }
        Ok(case)
    }

    /// A copy in which `${TMP}` is replaced by the fixture's directory.
    pub(super) fn with_fixture(&self, root: &str) -> Self {
        let mut case = self.clone();
        let fill = |text: &mut String| *text = text.replace("${TMP}", root);
        case.command.iter_mut().for_each(fill);
        case.argv.iter_mut().flatten().for_each(fill);
        case.cwd.iter_mut().for_each(fill);
        case.workspace.iter_mut().for_each(fill);
        case.path.iter_mut().flatten().for_each(fill);
        case.env.values_mut().for_each(fill);
        case.expect.segments.iter_mut().flatten().for_each(fill);
        if let Some(policy) = &mut case.policy {
            policy.safe_bin_trusted_dirs.iter_mut().for_each(fill);
            for value in policy.allowlist.iter_mut().chain(&mut policy.skill_bins) {
                fill_value(value, root);
            }
            for rule in &mut policy.deny {
                fill(&mut rule.pattern);
                rule.args.iter_mut().flatten().for_each(fill);
            }
        }
        case
    }

    pub(super) fn skip_reason(&self) -> Option<String> {
        let platform = self.platform.as_deref().unwrap_or("any");
        if !matches!(platform, "any" | "linux" | "posix" | "unix") {
            return Some(format!("for {platform}"));
        }
        let missing = |path: &&String| !std::path::Path::new(path.as_str()).exists();
        let absent = self.needs_host_bins.iter().find(missing)?;
        Some(format!("needs {absent}"))
    }

    pub(super) fn command_text(&self) -> String {
        match (&self.command, &self.argv) {
            (Some(command), _) => command.clone(),
            (None, Some(argv)) => format!("{argv:?}"),
            (None, None) => String::new(),
        }
    }

    pub(super) fn accepts_alternative(&self, outcome: &str) -> bool {
        self.alt_expect
            .as_deref()
            .is_some_and(|expected| fits(expected, outcome))
    }

    pub(super) fn source(&self) -> Result<Source, String> {
        match (&self.command, &self.argv) {
            (Some(command), None) => Ok(Source::Text(command.clone())),
            (None, Some(argv)) => Ok(Source::Argv(argv.clone())),
            _ => Err("a case has either `command` or `argv`".to_owned()),
        }
    }

    pub(super) fn agent_id(&self) -> Result<AgentId, String> {
        let name = self.agent.as_deref().unwrap_or(AgentId::MAIN);
        AgentId::new(name).map_err(|error| error.to_string())
    }

    pub(super) fn cwd(&self, root: &str) -> Result<String, String> {
        if let Some(cwd) = &self.cwd {
            return Ok(cwd.clone());
        }
        if self.resolve.is_some() {
            return Ok(VIRTUAL_HOME.to_owned());
        }
        if !self.fs.is_empty() {
            return Ok(root.to_owned());
        }
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let here = here.to_str().map(str::to_owned);
        here.ok_or_else(|| "the working directory is not valid UTF-8".to_owned())
    }

    /// The directories to which agents can write. A case without `workspace` whose programs are in
    /// its working directory has none: its files stand for a whole machine.
    pub(super) fn workspace(&self, root: &str) -> Result<Vec<String>, String> {
        if let Some(workspace) = &self.workspace {
            return Ok(vec![workspace.clone()]);
        }
        let cwd = self.cwd(root)?;
        let directories = self.path_directories();
        let holds_programs = directories.iter().any(|directory| {
            let rest = directory.strip_prefix(cwd.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        Ok(if holds_programs {
            Vec::new()
        } else {
            vec![cwd]
        })
    }

    pub(super) fn path_directories(&self) -> Vec<String> {
        let default = || DEFAULT_PATH.map(str::to_owned).to_vec();
        self.path.clone().unwrap_or_else(default)
    }

    pub(super) fn home<H: PolicyHost>(&self, host: Option<&H>) -> Option<String> {
        if self.resolve.is_some() {
            return Some(VIRTUAL_HOME.to_owned());
        }
        let of_host = host.and_then(PolicyHost::home).map(str::to_owned);
        of_host.or_else(|| std::env::var("HOME").ok())
    }

    /// The table of programs of a case that resolves names without files.
    pub(super) fn virtual_host(&self) -> Result<Option<VirtualHost>, String> {
        let Some(table) = &self.resolve else {
            return Ok(None);
        };
        let mut host = VirtualHost::new();
        for (name, value) in table {
            host.insert(name.clone(), virtual_file(name, value)?);
        }
        Ok(Some(host))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VirtualFile {
    found: Option<String>,
    canonical: Option<String>,
    kind: Option<VirtualKind>,
    protected: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum VirtualKind {
    Native,
    Script,
}

fn virtual_file(name: &str, value: &Value) -> Result<interlock_programs::Executable, String> {
    if let Some(text) = value.as_str() {
        let (found, canonical) = text.split_once(" -> ").unwrap_or((text, text));
        return Ok(VirtualHost::describe(found.trim(), canonical.trim()));
    }
    let file: VirtualFile = serde_json::from_value(value.clone())
        .map_err(|error| format!("`resolve` of `{name}`: {error}"))?;
    let found = match file.found {
        Some(found) => found,
        None if name.starts_with('/') => name.to_owned(),
        None => format!("/usr/bin/{name}"),
    };
    let canonical = file.canonical.unwrap_or_else(|| found.clone());
    let mut executable = VirtualHost::describe(&found, &canonical);
    match file.kind {
        Some(VirtualKind::Native) => executable.kind = FileKind::Native,
        Some(VirtualKind::Script) => executable.kind = FileKind::Script,
        None => {}
    }
    if let Some(protected) = file.protected {
        executable.protected = protected;
        executable.mutable = !protected;
    }
    Ok(executable)
}

impl CasePolicy {
    /// The policy of the case, as parts to assemble. Its values and entries count as those of the
    /// host document.
    pub fn parts(&self, agent: AgentId) -> Result<PolicyParts, String> {
        let source = |path: &str| (LayerSource::Host, path.to_owned());
        let layer = Layer {
            security: sourced(self.security, source("policy.security")),
            ask: sourced(self.ask, source("policy.ask")),
            ask_fallback: sourced(self.ask_fallback, source("policy.askFallback")),
        };
        let deny = self.deny.iter().cloned().enumerate();
        Ok(PolicyParts {
            agent,
            levels: Some(Levels::join(&[layer])),
            entries: self.entries()?,
            deny: deny
                .map(|(index, rule)| (rule, format!("policy.deny[{index}]")))
                .collect(),
            safe_bins: self.safe_bins.clone(),
            safe_bin_trusted_dirs: self.safe_bin_trusted_dirs.clone(),
            safe_bin_profiles: self.safe_bin_profiles.clone(),
            strict_inline_eval: self.strict_inline_eval,
            auto_allow_skills: self.auto_allow_skills,
            skill_bins: self
                .skill_bins
                .iter()
                .map(skill_bin)
                .collect::<Result<_, _>>()?,
            ..PolicyParts::default()
        })
    }

    /// Reads the entries like those of a document. An entry that does not compile is no error, but
    /// never matches, which a case may test.
    fn entries(&self) -> Result<EntryLists, String> {
        let mut entries = Vec::with_capacity(self.allowlist.len());
        for (index, value) in self.allowlist.iter().enumerate() {
            let document = serde_json::json!({
                "version": 1, "agents": { EVERY_AGENT: { "allowlist": [value] } }
            });
            let entry = match Document::from_json(&document) {
                Ok(mut document) => document
                    .agents
                    .remove(EVERY_AGENT)
                    .and_then(|mut scope| scope.allowlist.pop()),
                Err(_) => serde_json::from_value(value.clone())
                    .map(Some)
                    .map_err(|error| format!("`policy.allowlist[{index}]`: {error}"))?,
            };
            entries.extend(entry.map(|entry| (entry, format!("policy.allowlist[{index}]"))));
        }
        Ok(entries.into_iter().collect())
    }
}

fn sourced<T>(value: Option<T>, (source, path): (LayerSource, String)) -> Option<Sourced<T>> {
    value.map(|value| Sourced {
        value,
        source,
        path,
    })
}

fn skill_bin(value: &Value) -> Result<SkillBin, String> {
    if let Some(name) = value.as_str() {
        return Ok(SkillBin {
            name: name.to_owned(),
            path: None,
        });
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = text("name").ok_or_else(|| "`policy.skillBins`: a name is missing".to_owned())?;
    Ok(SkillBin {
        name,
        path: text("resolvedPath"),
    })
}

fn fill_value(value: &mut Value, root: &str) {
    match value {
        Value::String(text) => *text = text.replace("${TMP}", root),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_value(item, root)),
        Value::Object(fields) => fields.values_mut().for_each(|item| fill_value(item, root)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
