//! Judges the commands of the audit by another policy.
//!
//! Only commands that the audit recorded completely are judged. Files are judged as they are now.

use std::collections::BTreeMap;

use interlock_command::Source;
use interlock_policy::{
    AgentId, Ask, CallerInput, Document, Evaluation, Policy, RunRequest, evaluate,
};
use interlock_rules::{RulesError, document_in_force, now_ms};
use interlock_store::{
    AuditFilter, AuditKind, AuditOrder, AuditRecord, MAX_PAGE, Store, lenient_field,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy_host::PolicyHost;

/// The part of the history to judge.
#[derive(Debug, Clone, Default)]
pub struct ReplayFilter {
    pub agent: Option<String>,
    pub since_ms: Option<i64>,
    /// The most verdicts to judge, the newest ones.
    pub limit: usize,
}

/// The result of a replay.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replay {
    /// How many verdicts were judged again.
    pub judged: u64,
    /// Commands that needed an approval then and are allowed now.
    pub prompts_saved: u64,
    /// Commands that were denied then and are allowed now.
    pub newly_allowed: u64,
    /// Commands that need an approval now and did not then.
    pub newly_asked: u64,
    /// Commands that are denied now and were not then.
    pub newly_refused: u64,
    /// The commands whose verdicts change, the oldest first.
    pub changes: Vec<Replayed>,
    /// The reasons why verdicts were not judged again, with counts.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Replay {
    /// Whether at least one verdict is looser than before.
    pub fn is_looser(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.direction == Direction::Looser)
    }
}

/// A command whose verdict changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub agent: String,
    pub cwd: String,
    pub command: String,
    pub before: String,
    pub before_reason: String,
    pub after: String,
    pub after_reason: String,
    pub direction: Direction,
    /// How often the command occurs in this part of the history.
    pub times: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Looser,
    Stricter,
}

/// Judges the verdicts of the audit again, by a proposed document or by the one in force.
pub fn replay<H: PolicyHost>(
    host: &H,
    filter: &ReplayFilter,
    proposed: Option<&Document>,
) -> Result<Replay, H::Error> {
    let present;
    let document = if let Some(proposed) = proposed {
        proposed
    } else {
        present = document_in_force(host.store())?.0;
        &present
    };
    let mut judge = HistoryJudge::new(host, document);
    let mut replay = Replay::default();
    let mut changes: BTreeMap<String, usize> = BTreeMap::new();
    for record in history(host.store(), filter, Some(AuditKind::Verdict), filter.limit)? {
        let past = match Past::read(&record.body) {
            Ok(past) => past,
            Err(why) => {
                *replay.left_out.entry(why).or_default() += 1;
                continue;
            }
        };
        let Some((after, after_reason)) = judge.judge(&past)? else {
            *replay.left_out.entry("it is no command").or_default() += 1;
            continue;
        };
        replay.judged += 1;
        let Some(direction) = replay.count(&past.verdict, after) else {
            continue;
        };
        let key = format!("{} {after}", past.key());
        if let Some(index) = changes.get(&key) {
            replay.changes[*index].times += 1;
            continue;
        }
        changes.insert(key, replay.changes.len());
        replay.changes.push(Replayed {
            agent: past.agent,
            cwd: past.cwd,
            command: past.command,
            before: past.verdict,
            before_reason: past.reason,
            after: after.to_owned(),
            after_reason,
            direction,
            times: 1,
        });
    }
    Ok(replay)
}

/// The newest records of a kind, or of all kinds, with the oldest of them first.
pub(crate) fn history(
    store: &Store,
    filter: &ReplayFilter,
    kind: Option<AuditKind>,
    most: usize,
) -> Result<Vec<AuditRecord>, RulesError> {
    let mut records: Vec<AuditRecord> = Vec::new();
    let mut from_seq = None;
    while records.len() < most {
        let count = (most - records.len()).min(MAX_PAGE);
        let page = store.audit_log(&AuditFilter {
            kind,
            agent: filter.agent.clone(),
            since_ms: filter.since_ms,
            from_seq,
            order: AuditOrder::NewestFirst,
            limit: Some(count),
        })?;
        let is_last = page.len() < count;
        from_seq = page.last().and_then(|last| last.seq.checked_sub(1));
        records.extend(page);
        if is_last || from_seq.is_none() {
            break;
        }
    }
    records.reverse();
    Ok(records)
}

impl Replay {
    /// Counts a verdict. Returns `None` if it stays the same.
    fn count(&mut self, before: &str, after: &str) -> Option<Direction> {
        let (counter, direction) = match (before, after) {
            ("ask", "allow") => (&mut self.prompts_saved, Direction::Looser),
            ("deny", "allow") => (&mut self.newly_allowed, Direction::Looser),
            ("deny", "ask") => (&mut self.newly_asked, Direction::Looser),
            ("allow", "ask") => (&mut self.newly_asked, Direction::Stricter),
            ("allow" | "ask", "deny") => (&mut self.newly_refused, Direction::Stricter),
            _ => return None,
        };
        *counter += 1;
        Some(direction)
    }
}

/// A call that the audit has a verdict for.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    pub(crate) agent: String,
    cwd: String,
    pub(crate) command: String,
    argv: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    input: CallerInput,
    workspace: Option<Vec<String>>,
    ask: Option<Ask>,
    pub(crate) verdict: String,
    reason: String,
}

/// The body of the audit record of a verdict, as this or an earlier version wrote it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VerdictBody {
    #[serde(deserialize_with = "lenient_field")]
    agent: Option<String>,
    /// A list of strings, or null.
    argv: Value,
    #[serde(deserialize_with = "lenient_field")]
    ask: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    command: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    cwd: Option<String>,
    /// The variables with their values. Earlier versions wrote a list of names.
    env: Value,
    /// Whether the record contains the exact command, without masked secrets.
    #[serde(deserialize_with = "lenient_field")]
    exact: bool,
    input: Value,
    #[serde(deserialize_with = "lenient_field")]
    reason: VerdictBodyReason,
    #[serde(deserialize_with = "lenient_field")]
    refused: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    verdict: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    workspace: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VerdictBodyReason {
    #[serde(deserialize_with = "lenient_field")]
    code: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    message: Option<String>,
}

impl Past {
    /// Reads a record, or returns the reason why its call cannot be judged again.
    pub(crate) fn read(body: &Value) -> Result<Self, &'static str> {
        let body = VerdictBody::deserialize(body).unwrap_or_default();
        if body.refused.as_deref() == Some("TOOL_DENIED") {
            return Err("the tool was closed, so nothing was judged");
        }
        if body.reason.code.as_deref() == Some("env-rejected") {
            return Err("the environment was refused, whatever the policy says");
        }
        if !body.exact {
            return Err("the record does not hold the command as it was");
        }
        let argv = match body.argv {
            Value::Null => None,
            argv => Some(serde_json::from_value(argv).map_err(|_| UNREADABLE)?),
        };
        // Earlier versions wrote the names of the variables without their values.
        let env = match body.env {
            Value::Null => BTreeMap::new(),
            Value::Array(names) if names.is_empty() => BTreeMap::new(),
            Value::Array(_) => return Err("the record does not hold the environment as it was"),
            env => serde_json::from_value(env).map_err(|_| UNREADABLE)?,
        };
        let input = match body.input {
            Value::Null => CallerInput::None,
            input => serde_json::from_value(input).map_err(|_| UNREADABLE)?,
        };
        Ok(Self {
            env,
            input,
            workspace: body.workspace,
            agent: body.agent.ok_or(UNREADABLE)?,
            cwd: body.cwd.ok_or(UNREADABLE)?,
            command: body.command.ok_or(UNREADABLE)?,
            argv,
            ask: body.ask.as_deref().and_then(Ask::parse),
            verdict: body.verdict.ok_or(UNREADABLE)?,
            reason: body.reason.message.unwrap_or_default(),
        })
    }

    /// The same call with only one of its commands.
    pub(crate) fn with_command(&self, argv: &[String], cwd: &str) -> Self {
        Self {
            command: argv.join(" "),
            argv: Some(argv.to_vec()),
            cwd: cwd.to_owned(),
            ..self.clone()
        }
    }

    fn source(&self) -> Source {
        match &self.argv {
            Some(argv) => Source::Argv(argv.clone()),
            None => Source::Text(self.command.clone()),
        }
    }

    /// A key that is equal for calls with the same facts and verdict.
    fn key(&self) -> String {
        let ask = self.ask.map(Ask::as_str);
        let words = (&self.agent, &self.cwd, &self.command, &self.argv, ask);
        let words = (words, &self.env, self.input, &self.workspace);
        format!("{words:?} {}", self.verdict)
    }
}

const UNREADABLE: &str = "the record cannot be read";

/// Judges verdicts of the audit by a document.
pub(crate) struct HistoryJudge<'a, H> {
    host: &'a H,
    document: &'a Document,
    policies: BTreeMap<(String, Option<&'static str>), Policy>,
    /// The verdicts of calls that were judged already.
    known: BTreeMap<String, Option<(&'static str, String)>>,
}

impl<'a, H: PolicyHost> HistoryJudge<'a, H> {
    pub(crate) fn new(host: &'a H, document: &'a Document) -> Self {
        Self {
            host,
            document,
            policies: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    fn judge(&mut self, past: &Past) -> Result<Option<(&'static str, String)>, H::Error> {
        if let Some(known) = self.known.get(&past.key()) {
            return Ok(known.clone());
        }
        let judged = self.evaluate(past)?.map(|evaluation| {
            let verdict = evaluation.verdict;
            (verdict.outcome.as_str(), verdict.reason.message)
        });
        self.known.insert(past.key(), judged.clone());
        Ok(judged)
    }

    /// Whether the document allows the call without an approval.
    pub(crate) fn allows(&mut self, past: &Past) -> Result<bool, H::Error> {
        let evaluation = self.evaluate(past)?;
        Ok(evaluation.is_some_and(|evaluation| evaluation.verdict.outcome.is_allow()))
    }

    /// Judges the call. Returns `None` if it has no valid command or agent.
    pub(crate) fn evaluate(&mut self, past: &Past) -> Result<Option<Evaluation>, H::Error> {
        let Ok(agent) = AgentId::new(&past.agent) else {
            return Ok(None);
        };
        let key = (past.agent.clone(), past.ask.map(Ask::as_str));
        if !self.policies.contains_key(&key) {
            let host = self.host;
            let made = host.policy_with(self.document, &agent, past.ask, host.home())?;
            self.policies.insert(key.clone(), made);
        }
        let request = RunRequest {
            source: past.source(),
            cwd: past.cwd.clone(),
            env: past.env.clone(),
            input: past.input,
            workspace: match &past.workspace {
                Some(workspace) => workspace.clone(),
                None => self.host.call_workspace(&agent)?,
            },
            now_ms: now_ms(),
        };
        let resolver = self.host.resolver(&agent)?;
        Ok(evaluate(request, &self.policies[&key], &resolver).ok())
    }
}
