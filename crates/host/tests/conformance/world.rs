//! The machine of a case: its files made for real, its PATH, its policy; and the judge.

use std::collections::BTreeMap;

use interlock_checks::cases::{CasePolicy, FileSpec, Fixture};
use interlock_command::{Analysis, Closed, Program, Source};
use interlock_plan::FsResolver;
use interlock_policy::{
    AgentId, CallerInput, Entry, Evaluation, Layer, Levels, Policy, PolicyParts,
    PolicySource as LayerSource, RunRequest, evaluate,
};
use interlock_programs::VirtualHost;
use serde_json::{Map, Value};

use crate::comparison::Row;

/// A case on a real file system.
pub struct World {
    fixture: Fixture,
    pub resolver: FsResolver,
    pub cwd: String,
    /// The row with `${TMP}` filled in.
    pub row: Value,
}

impl World {
    /// `Err` says why the case cannot be asked here.
    pub fn make(row: Row<'_>) -> Result<Self, String> {
        if let Some(missing) = missing_program(row) {
            return Err(format!("needs {missing}"));
        }
        let files: Vec<FileSpec> = match row.get("fs") {
            Value::Null => Vec::new(),
            files => serde_json::from_value(files.clone()).map_err(|error| error.to_string())?,
        };
        let fixture = Fixture::make(&files).map_err(|error| error.to_string())?;
        let mut filled = row.0.clone();
        fill(&mut filled, fixture.root());
        let path = Row(&filled).argv("path").unwrap_or_default();
        let cwd = Row(&filled)
            .text("cwd")
            .unwrap_or(fixture.root())
            .to_owned();
        Ok(Self {
            resolver: FsResolver::new(path, std::env::var("HOME").ok()),
            cwd,
            row: filled,
            fixture,
        })
    }

    pub fn row(&self) -> Row<'_> {
        Row(&self.row)
    }

    pub fn root(&self) -> &str {
        self.fixture.root()
    }

    pub fn judge(&self, policy: &Policy, source: Source, cwd: &str) -> Option<Evaluation> {
        let mut request = request(source, cwd);
        request.env = environment(self.row().get("env"));
        evaluate(request, policy, &self.resolver).ok()
    }
}

/// Values that are not strings are no part of an environment.
pub fn environment(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

pub fn request(source: Source, cwd: &str) -> RunRequest {
    RunRequest {
        source,
        cwd: cwd.to_owned(),
        env: BTreeMap::new(),
        input: CallerInput::None,
        workspace: Vec::new(),
        now_ms: interlock_host::now_ms(),
    }
}

/// On a host made of a table, where every name is a program of the system.
pub fn judge_virtually(policy: &Policy, source: Source, host: &VirtualHost) -> Option<Evaluation> {
    evaluate(request(source, "/tmp"), policy, host).ok()
}

/// Input that cannot be judged at all is refused.
pub fn allows(evaluation: Option<&Evaluation>) -> bool {
    evaluation.is_some_and(|evaluation| evaluation.verdict.outcome.is_allow())
}

/// What keeps a command from being satisfied: its form, a closed shell or wrapper, or the reason
/// of the judge.
pub fn obstacle(evaluation: Option<&Evaluation>) -> String {
    let Some(evaluation) = evaluation else {
        return "input".to_owned();
    };
    if let Some(form) = closed_by(&evaluation.analysis) {
        return form;
    }
    let segments = &evaluation.verdict.segments;
    let missed = segments.iter().find(|judged| judged.satisfied_by.is_none());
    missed.map_or_else(
        || evaluation.verdict.reason.code.to_owned(),
        |judged| judged.reason.code.to_owned(),
    )
}

/// `None` when every command can be judged by an entry.
pub fn closed_by(analysis: &Analysis) -> Option<String> {
    if let Some(odd) = analysis.shape.odd() {
        return Some(format!("text {}", odd.reason.code()));
    }
    analysis.commands.iter().find_map(|command| {
        let Program::Closed { reason, .. } = &command.program else {
            return None;
        };
        Some(match reason {
            Closed::Shell(_) | Closed::ShellOptions(_) => "shell".to_owned(),
            Closed::ShellText(odd) => format!("text {}", odd.reason.code()),
            Closed::UntrustedShell => "untrusted shell".to_owned(),
            Closed::UntrustedWrapper => "untrusted wrapper".to_owned(),
            Closed::Wrapper => "wrapper".to_owned(),
        })
    })
}

/// The policy of a row; fields that a case of Interlock does not have are left out.
pub fn row_policy(value: &Value) -> Option<Policy> {
    const KNOWN: [&str; 11] = [
        "security",
        "ask",
        "askFallback",
        "allowlist",
        "deny",
        "safeBins",
        "safeBinTrustedDirs",
        "safeBinProfiles",
        "strictInlineEval",
        "autoAllowSkills",
        "skillBins",
    ];
    let fields: Map<String, Value> = value
        .as_object()?
        .iter()
        .filter(|(key, value)| KNOWN.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let policy: CasePolicy = serde_json::from_value(Value::Object(fields)).ok()?;
    let home = std::env::var("HOME").ok();
    policy
        .parts(AgentId::default())
        .ok()?
        .assemble(home.as_deref())
        .ok()
}

/// `security=allowlist`, `ask=on-miss`, no safe bins, and these entries.
pub fn allowlist_policy(entries: &[Entry]) -> Option<Policy> {
    use interlock_policy::{Ask, Security};
    let layer = Layer::new(
        LayerSource::Host,
        "",
        Some(Security::Allowlist),
        Some(Ask::OnMiss),
    );
    PolicyParts {
        levels: Some(Levels::join(&[layer])),
        entries: entries
            .iter()
            .map(|entry| (entry.clone(), "allowlist".to_owned()))
            .collect(),
        safe_bins: Some(Vec::new()),
        ..PolicyParts::default()
    }
    .assemble(None)
    .ok()
}

fn missing_program(row: Row<'_>) -> Option<String> {
    let needed = row.argv("needsHostBins").unwrap_or_default();
    needed
        .into_iter()
        .find(|path| !std::path::Path::new(path).exists())
}

fn fill(value: &mut Value, root: &str) {
    match value {
        Value::String(text) => *text = text.replace("${TMP}", root),
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, root)),
        Value::Object(fields) => fields.values_mut().for_each(|item| fill(item, root)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
