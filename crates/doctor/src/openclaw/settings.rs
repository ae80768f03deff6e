//! Applies the rules to a config of OpenClaw: makes the edits of Interlock's config and the report.

mod sandbox;

use std::collections::BTreeMap;

use interlock_config::{Config, ExecMode, Json5Text, KeyPath};
use interlock_policy::{AgentId, Ask, Security, Strictness, quote};
use interlock_store::lenient_field;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::rules::{CLOSED_PARTS, CONFIG_RULES, ImportRule, KeyRule, TOOL_RULES};
use super::{ImportReport, ImportedValue};

/// How many agents are imported at most.
const MAX_AGENTS: usize = 1000;

/// An edit of Interlock's config.
#[derive(Debug)]
pub struct SettingEdit {
    pub key: KeyPath,
    pub shown: String,
    pub value: Value,
}

/// The config after the edits so far, and the edits.
struct SettingsPlanner<'a> {
    text: Json5Text,
    edits: Vec<SettingEdit>,
    report: &'a mut ImportReport,
}

/// The place of a value in both configs: at the top or in an agent.
struct SettingPlace<'a> {
    /// The prefix of keys in the other config.
    theirs: String,
    ours: KeyPath,
    shown: String,
    /// The agent that the values are for, or empty for all agents.
    agent: &'a str,
}

/// The result of a rule for a value.
enum SettingFate {
    Take(Value),
    Change(Value, String),
    Leave(String),
    /// Interlock already has the same value.
    Nothing,
}

/// The edits that import `theirs`. The config must be valid after each of them.
pub fn plan(current: &Json5Text, theirs: &Value, report: &mut ImportReport) -> Vec<SettingEdit> {
    let mut planner = SettingsPlanner {
        text: current.clone(),
        edits: Vec::new(),
        report,
    };
    let mut rest = theirs.clone();
    planner.close(&mut rest);
    let top = SettingPlace {
        theirs: String::new(),
        ours: KeyPath::root(),
        shown: String::new(),
        agent: AgentId::MAIN,
    };
    planner.sandbox(&mut rest, &top);
    for rule in TOOL_RULES.iter().chain(CONFIG_RULES) {
        planner.apply(rule, &mut rest, &top);
    }
    planner.agents(&mut rest);
    planner.unknown(&rest);
    planner.edits
}

impl SettingsPlanner<'_> {
    fn config(&self) -> Config {
        // The text is valid, because every edit was checked before it was kept.
        Config::from_text(&self.text).unwrap_or_default()
    }

    /// Keeps an edit if the config stays valid with it.
    fn set(&mut self, key: &KeyPath, shown: &str, value: &Value) -> Result<(), String> {
        let mut text = self.text.clone();
        text.set(key, value).map_err(|error| error.to_string())?;
        Config::from_text(&text).map_err(|problems| {
            let first = problems.0.first();
            first.map_or_else(String::new, |problem| problem.message.clone())
        })?;
        self.text = text;
        self.edits.push(SettingEdit {
            key: key.clone(),
            shown: shown.to_owned(),
            value: value.clone(),
        });
        Ok(())
    }

    /// Removes the parts that must never be read.
    fn close(&mut self, rest: &mut Value) {
        for (part, reason) in CLOSED_PARTS {
            if take(rest, part).is_some() {
                let mut value = ImportedValue::new(*part, *reason);
                if *part == "gateway.auth.token" {
                    value = value.with_command("interlock gateway token --new");
                }
                self.report.left.push(value);
            }
        }
    }

    /// Imports the sandbox of all agents.
    fn sandbox(&mut self, rest: &mut Value, top: &SettingPlace<'_>) {
        let Some(sandbox) = take(rest, "agents.defaults.sandbox") else {
            return;
        };
        let place = SettingPlace {
            theirs: "agents.defaults.".to_owned(),
            ours: KeyPath::root().key("agents").key("defaults"),
            shown: "agents.defaults.".to_owned(),
            agent: "",
        };
        let mut defaults = json!({ "sandbox": sandbox });
        self.take_sandbox(&mut defaults, &place, (rest, top));
    }

    fn apply(&mut self, rule: &KeyRule, rest: &mut Value, place: &SettingPlace<'_>) {
        let Some(theirs) = take(rest, rule.key) else {
            return;
        };
        let path = format!("{}{}", place.theirs, rule.key);
        let here = rule.here.unwrap_or(rule.key);
        let key = here
            .split('.')
            .fold(place.ours.clone(), |key, name| key.key(name));
        let shown = format!("{}{here}", place.shown);
        if theirs.to_string().contains("${") {
            let what = "it refers to a variable of the environment";
            self.report.left.push(ImportedValue::new(path, what));
            return;
        }
        let ours = self.text.get(&key);
        let fate = self.fate(rule, &theirs, ours.as_ref(), place);
        let command = |value: &Value| {
            format!(
                "interlock config set {} {}",
                quote(&shown),
                shown_value(value)
            )
        };
        match fate {
            SettingFate::Nothing => {}
            SettingFate::Leave(reason) => {
                let mut value = ImportedValue::new(path, reason);
                // Offer the command to set it, unless Interlock has no such key.
                let mut trial = self.text.clone();
                let is_valid =
                    trial.set(&key, &theirs).is_ok() && Config::from_text(&trial).is_ok();
                if is_valid {
                    value = value.with_command(command(&theirs));
                }
                self.report.left.push(value);
            }
            SettingFate::Take(value) => match self.set(&key, &shown, &value) {
                Ok(()) if rule.rule == ImportRule::Loosening => {
                    let what = format!("{}: {}", shown_value(&value), rule.reason);
                    let taken = ImportedValue::new(path, what);
                    self.report.taken.push(taken.loosening());
                }
                Ok(()) => {
                    let what = shown_value(&value);
                    let list = if rule.here.is_some() {
                        &mut self.report.changed
                    } else {
                        &mut self.report.taken
                    };
                    let what = match rule.here {
                        Some(_) => format!("{what}, as {shown}"),
                        None => what,
                    };
                    list.push(ImportedValue::new(path, what));
                }
                Err(reason) => self.report.left.push(ImportedValue::new(path, reason)),
            },
            SettingFate::Change(value, what) => match self.set(&key, &shown, &value) {
                Ok(()) => {
                    let changed = ImportedValue::new(path, what);
                    self.report
                        .changed
                        .push(changed.with_command(command(&theirs)));
                }
                Err(reason) => self.report.left.push(ImportedValue::new(path, reason)),
            },
        }
    }

    fn fate(
        &self,
        rule: &KeyRule,
        theirs: &Value,
        ours: Option<&Value>,
        place: &SettingPlace<'_>,
    ) -> SettingFate {
        if ours == Some(theirs) {
            return SettingFate::Nothing;
        }
        let reason = rule.reason.to_owned();
        match rule.rule {
            ImportRule::Left => SettingFate::Leave(reason),
            ImportRule::Levels => self.level_fate(rule, theirs, place),
            ImportRule::Neutral | ImportRule::Loosening => match ours {
                None => SettingFate::Take(theirs.clone()),
                Some(ours) => already(ours),
            },
            ImportRule::OnlyIf(wanted) => match (theirs.as_bool(), ours) {
                (Some(value), _) if value == wanted => SettingFate::Take(theirs.clone()),
                (Some(_), None) if is_default(rule.key, theirs) => SettingFate::Nothing,
                _ => SettingFate::Leave(reason),
            },
            ImportRule::OnlyWords(words) => match (theirs.as_str(), ours) {
                (Some(word), None) if words.contains(&word) => SettingFate::Take(theirs.clone()),
                (Some(word), Some(ours)) if words.contains(&word) => already(ours),
                _ => SettingFate::Leave(reason),
            },
            ImportRule::Smallest => match (theirs.as_u64(), ours.and_then(Value::as_u64)) {
                (Some(theirs), Some(ours)) if theirs > ours => SettingFate::Leave(reason),
                (Some(_), _) => SettingFate::Take(theirs.clone()),
                (None, _) => SettingFate::Leave("it is not a number".to_owned()),
            },
            ImportRule::AllNames => all_names(theirs, ours),
            ImportRule::CommonNames(default) => {
                let ours = match (ours, default) {
                    (Some(ours), _) => names(ours),
                    (None, Some(default)) => {
                        Some(default.iter().map(|name| (*name).to_owned()).collect())
                    }
                    // A missing list allows everything, so any list is stricter.
                    (None, None) => return SettingFate::Take(theirs.clone()),
                };
                common_names(theirs, ours.as_deref(), &reason)
            }
        }
    }

    /// Chooses the stricter level, compared with the effective one of the agent here.
    fn level_fate(&self, rule: &KeyRule, theirs: &Value, place: &SettingPlace<'_>) -> SettingFate {
        let exec = self.config().exec_for(place.agent);
        let ours = (
            exec.security.unwrap_or(Security::Full),
            exec.ask.unwrap_or(Ask::Off),
        );
        let word = theirs.as_str().unwrap_or_default();
        let unknown = || SettingFate::Leave("it is not a level that is known here".to_owned());
        let compare = |is_stricter: bool, is_same: bool| match (is_stricter, is_same) {
            (_, true) => SettingFate::Nothing,
            (true, false) => SettingFate::Take(theirs.clone()),
            (false, false) => SettingFate::Leave(format!("`{word}` would loosen what holds here")),
        };
        match rule.key.rsplit('.').next() {
            Some("security") => match Security::parse(word) {
                Some(level) => compare(level.join(ours.0) != ours.0, level == ours.0),
                None => unknown(),
            },
            Some("ask") => match Ask::parse(word) {
                Some(level) => compare(level.join(ours.1) != ours.1, level == ours.1),
                None => unknown(),
            },
            _ => {
                let mode = serde_json::from_value::<ExecMode>(theirs.clone());
                let Ok(mode) = mode else {
                    return unknown();
                };
                let levels = mode.policy();
                let has_levels =
                    exec.mode.is_none() && (exec.security.is_some() || exec.ask.is_some());
                let is_stricter = levels.0 >= ours.0 && levels.1 >= ours.1;
                if has_levels && levels != ours {
                    return SettingFate::Leave(
                        "tools.exec.security and ask are set here, and a mode would replace them"
                            .to_owned(),
                    );
                }
                compare(is_stricter, levels == ours)
            }
        }
    }

    /// Imports `agents.list[]` of version 2026.5 and `agents.entries` of 2026.9.
    fn agents(&mut self, rest: &mut Value) {
        let mut agents: Vec<(String, String, Value)> = Vec::new();
        if let Some(Value::Array(list)) = take(rest, "agents.list") {
            for (index, agent) in list.into_iter().enumerate() {
                let id = TheirAgent::deserialize(&agent).unwrap_or_default().id;
                agents.push((format!("agents.list[{index}]."), id, agent));
            }
        }
        if let Some(Value::Object(entries)) = take(rest, "agents.entries") {
            for (id, agent) in entries {
                agents.push((format!("agents.entries.{id}."), id, agent));
            }
        }
        if agents.len() > MAX_AGENTS {
            let what = format!(
                "{} agents are too many; {MAX_AGENTS} are taken",
                agents.len()
            );
            self.report.left.push(ImportedValue::new("agents", what));
            agents.truncate(MAX_AGENTS);
        }
        for (theirs, id, agent) in agents {
            self.agent(&theirs, &id, agent);
        }
    }

    fn agent(&mut self, theirs: &str, id: &str, mut agent: Value) {
        let Ok(id) = AgentId::new(id) else {
            let what = "its id is not a valid agent id";
            self.report
                .left
                .push(ImportedValue::new(theirs.trim_end_matches('.'), what));
            return;
        };
        let has_values = agent
            .as_object()
            .is_some_and(|keys| keys.keys().any(|key| key != "id" && key != "default"));
        let is_main = id.as_str() == AgentId::MAIN;
        take(&mut agent, "id");
        let position = |config: &Config| {
            let list = &config.agents.list;
            list.iter()
                .position(|own| own.id.eq_ignore_ascii_case(id.as_str()))
        };
        let config = self.config();
        let list = KeyPath::root().key("agents").key("list");
        let index = match position(&config) {
            Some(index) => index,
            // `main` always exists, even if it is not listed.
            None if is_main && !has_values => return,
            None => {
                let index = config.agents.list.len();
                let mut all = self.text.get(&list).unwrap_or_else(|| json!([]));
                if let Some(all) = all.as_array_mut() {
                    all.push(json!({ "id": id.as_str() }));
                }
                let path = format!("{theirs}id");
                match self.set(&list, "agents.list", &all) {
                    Ok(()) => {
                        let taken = ImportedValue::new(path, format!("the agent {id} is listed"));
                        let taken = if is_main { taken } else { taken.loosening() };
                        self.report.taken.push(taken);
                    }
                    Err(reason) => {
                        self.report.left.push(ImportedValue::new(path, reason));
                        return;
                    }
                }
                index
            }
        };
        let place = SettingPlace {
            theirs: theirs.to_owned(),
            ours: list.index(index),
            shown: format!("agents.list[{index}]."),
            agent: id.as_str(),
        };
        if let Some(sandbox) = take(&mut agent, "sandbox") {
            let mut own = json!({ "sandbox": sandbox });
            self.take_sandbox(&mut own, &place, (&mut agent, &place));
        }
        for rule in TOOL_RULES.iter().chain(AGENT_RULES) {
            self.apply(rule, &mut agent, &place);
        }
        for key in agent.as_object().into_iter().flat_map(Map::keys) {
            if key == "default" || is_empty(&agent[key]) {
                continue;
            }
            let what = "Interlock has no such key for an agent";
            self.report
                .left
                .push(ImportedValue::new(format!("{theirs}{key}"), what));
        }
    }

    /// Reports the keys that no rule handled, by their first two names. Values must not be shown,
    /// because they may be secrets.
    fn unknown(&mut self, rest: &Value) {
        let mut left: BTreeMap<String, usize> = BTreeMap::new();
        for (name, value) in rest.as_object().into_iter().flatten() {
            match value.as_object() {
                Some(inner) => {
                    for key in inner.iter().filter(|(_, value)| !is_empty(value)) {
                        *left.entry(format!("{name}.{}", key.0)).or_default() += 1;
                    }
                }
                None => *left.entry(name.clone()).or_default() += 1,
            }
        }
        for path in left.into_keys() {
            let what = "Interlock has no such key, or it means something else here";
            self.report.left.push(ImportedValue::new(path, what));
        }
    }
}

/// The id of an agent in the other program's list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TheirAgent {
    #[serde(deserialize_with = "lenient_field")]
    id: String,
}

/// Keys that only an agent has.
const AGENT_RULES: &[KeyRule] = &[
    KeyRule {
        key: "workspace",
        here: None,
        rule: ImportRule::Loosening,
        reason: "the agent reads and patches files there",
    },
    KeyRule {
        key: "name",
        here: None,
        rule: ImportRule::Neutral,
        reason: "a name for people",
    },
];

/// Removes and returns the value of a key.
fn take(value: &mut Value, path: &str) -> Option<Value> {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut here = value;
    for name in parents.split('.').filter(|name| !name.is_empty()) {
        here = here.get_mut(name)?;
    }
    here.as_object_mut()?.shift_remove(last)
}

/// Whether a value is an object from which everything was removed.
fn is_empty(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|inner| inner.values().all(is_empty))
}

/// Whether a value is the default here.
fn is_default(key: &str, value: &Value) -> bool {
    let default = match key {
        "tools.exec.applyPatch.enabled" => json!(true),
        "tools.exec.strictInlineEval" | "tools.elevated.enabled" | "gateway.tls.enabled" => {
            json!(false)
        }
        _ => return false,
    };
    // Here `tools.elevated.enabled` is false by default, so only `false` means the same.
    default == *value
}

fn already(ours: &Value) -> SettingFate {
    SettingFate::Leave(format!("it is {} here already", shown_value(ours)))
}

fn names(value: &Value) -> Option<Vec<String>> {
    let list = value.as_array()?.iter();
    list.map(|name| name.as_str().map(str::to_owned)).collect()
}

fn all_names(theirs: &Value, ours: Option<&Value>) -> SettingFate {
    let Some(theirs) = names(theirs) else {
        return SettingFate::Leave("it is not a list of names".to_owned());
    };
    let before = ours.and_then(names).unwrap_or_default();
    let mut all = before.clone();
    for name in theirs {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    if all == before {
        SettingFate::Nothing
    } else {
        SettingFate::Take(json!(all))
    }
}

fn common_names(theirs: &Value, ours: Option<&[String]>, reason: &str) -> SettingFate {
    let (Some(theirs), Some(ours)) = (names(theirs), ours) else {
        return SettingFate::Leave("it is not a list of names".to_owned());
    };
    let (common, more): (Vec<String>, Vec<String>) =
        theirs.into_iter().partition(|name| ours.contains(name));
    if common.len() == ours.len() {
        return match more.as_slice() {
            [] => SettingFate::Nothing,
            more => SettingFate::Leave(format!("{}: {reason}", more.join(", "))),
        };
    }
    if more.is_empty() {
        return SettingFate::Take(json!(common));
    }
    let what = format!("only {}; not {}: {reason}", json!(common), more.join(", "));
    SettingFate::Change(json!(common), what)
}

/// A value as one word of a command line.
fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        value => quote(&value.to_string()),
    }
}
