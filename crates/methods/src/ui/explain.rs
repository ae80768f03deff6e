//! Explains the levels in force, and how this machine would judge a command without running it.

use std::collections::BTreeMap;

use interlock_checks::cases::Cases;
use interlock_command::Source;
use interlock_config::UnboundApprovals;
use interlock_host::{CallerContext, now_ms};
use interlock_policy::{
    AgentId, CallerInput, Evaluation, Joined, Levels, Outcome, PolicySource, RunRequest,
    can_be_approved, evaluate, quote,
};
use interlock_rules::SessionLevels;
use interlock_web::{ExplainedCommand, ExplainedLevel, ShownCase};

use crate::gateway::Gateway;
use crate::handlers::read_draft;

/// Returns the levels of an agent, each with the layers that determine it.
pub(super) fn levels(levels: &Levels) -> Vec<ExplainedLevel> {
    vec![
        level("security", &levels.security),
        level("ask", &levels.ask),
        level("askFallback", &levels.ask_fallback),
    ]
}

fn level<T: Copy + std::fmt::Display>(name: &'static str, joined: &Joined<T>) -> ExplainedLevel {
    let effective = &joined.effective;
    let by = match effective.source {
        PolicySource::Default => "built-in default".to_owned(),
        source if effective.path.is_empty() => source.as_str().to_owned(),
        source => format!("{} ({})", effective.path, source.as_str()),
    };
    let others = joined.layers.iter();
    let others = others
        .filter(|layer| layer.path != effective.path || layer.source != effective.source)
        .map(|layer| format!("{} says {}", layer.source.as_str(), layer.value));
    ExplainedLevel {
        name,
        value: effective.value.to_string(),
        by,
        others: others.collect::<Vec<_>>().join(", "),
    }
}

/// Returns the verdict on shell text, in the agent's workspace. The error is for the reader.
pub(super) fn explain(
    gateway: &Gateway,
    agent: &AgentId,
    command: &str,
) -> Result<(ExplainedCommand, String), String> {
    let scope = gateway.dispatcher.host.scope(agent);
    let scope = scope.map_err(|error| error.to_string())?;
    let caller = CallerContext::default();
    let workspace = scope.workspace().map_err(|error| error.to_string())?;
    let cwd = workspace.display().to_string();
    let request = RunRequest {
        source: Source::Text(command.to_owned()),
        workspace: scope.call_workspace(&caller),
        cwd: cwd.clone(),
        env: BTreeMap::new(),
        input: CallerInput::from_call(false, false),
        now_ms: now_ms(),
    };
    let policy = scope.policy(SessionLevels::default(), None, None);
    let policy = policy.map_err(|error| error.to_string())?;
    let resolver = scope.resolver(&caller);
    let judged = scope.as_run_account(|| evaluate(request, &policy, &resolver));
    let evaluation = judged
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
    let unbound = scope.exec().unbound_approvals;
    Ok((
        shown(&evaluation, unbound == Some(UnboundApprovals::Ask)),
        cwd,
    ))
}

/// The longest text of cases, and the most cases in it.
const MOST_CASES_BYTES: usize = 256 * 1024;
const MOST_CASES: usize = 1_000;

/// Judges cases by the policy in force, or by a draft of the document. Cases with files of their
/// own are left to the command line, because a page creates no files. The error is for the reader.
pub(super) fn judge_cases(
    gateway: &Gateway,
    text: &str,
    draft: Option<&str>,
) -> Result<Vec<ShownCase>, String> {
    let draft = draft.map(read_draft).transpose();
    let draft = draft.map_err(|error| error.message)?;
    if text.len() > MOST_CASES_BYTES {
        return Err(format!(
            "the cases are longer than {MOST_CASES_BYTES} bytes: interlock policy test FILE"
        ));
    }
    let brings_files = |line: &str| {
        let case = serde_json::from_str::<serde_json::Value>(line);
        case.is_ok_and(|case| case.get("fs").is_some())
    };
    if let Some(at) = text.lines().position(brings_files) {
        return Err(format!(
            "line {}: a case with `fs` makes files, which a page does not: interlock policy test FILE",
            at + 1
        ));
    }
    let mut cases = Cases::default();
    cases.add("line", text).map_err(|error| error.to_string())?;
    if cases.len() > MOST_CASES {
        return Err(format!(
            "{} cases are more than {MOST_CASES}: interlock policy test FILE",
            cases.len()
        ));
    }
    let results = cases
        .run(Some(&gateway.dispatcher.host), draft.as_ref())
        .into_iter();
    let judged = results.map(|result| ShownCase {
        passed: result.skipped.is_none().then_some(result.pass),
        command: result.command,
        expected: result.expected,
        verdict: result.verdict,
        reason: result.skipped.unwrap_or(result.reason),
    });
    Ok(judged.collect())
}

fn shown(evaluation: &Evaluation, asks_unbound: bool) -> ExplainedCommand {
    let verdict = &evaluation.verdict;
    let word = match verdict.outcome {
        Outcome::Allow(_) => "allow",
        Outcome::Deny => "deny",
        // If no approver could allow the command, the host refuses it instead of asking.
        Outcome::Ask if !can_be_approved(&verdict.binding, asks_unbound) => "refused",
        Outcome::Ask => "ask",
    };
    let segments = verdict.segments.iter().map(|judged| {
        let words = judged.wrappers.iter().cloned();
        let words = words.chain(judged.argv.iter().map(|word| quote(word)));
        let file = judged.canonical.clone().or_else(|| judged.resolved.clone());
        let reason = match &judged.reason.origin {
            Some(origin) => format!("{} ({origin})", judged.reason.message),
            None => judged.reason.message.clone(),
        };
        (
            judged.satisfied_by.is_some(),
            words.collect::<Vec<_>>().join(" "),
            file.unwrap_or_else(|| "-".to_owned()),
            reason,
        )
    });
    let remedies = verdict.remedies.iter();
    ExplainedCommand {
        verdict: word.to_owned(),
        reason: verdict.reason.message.clone(),
        origin: verdict.reason.origin.clone(),
        segments: segments.collect(),
        remedies: remedies
            .map(|remedy| (remedy.effect.clone(), remedy.command.clone()))
            .collect(),
        binding: match word {
            "ask" | "refused" => format!(
                "{}: {}",
                verdict.binding.kind.as_str(),
                verdict.binding.reason
            ),
            _ => String::new(),
        },
    }
}
