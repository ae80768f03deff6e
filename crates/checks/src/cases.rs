//! Test cases for policies: JSON lines, one case each. The evaluator that judges real calls judges
//! them.

mod case;
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use interlock_command::InputError;
use interlock_config::UnboundApprovals;
use interlock_plan::{FsResolver, PlanStdin};
use interlock_policy::{
    BindingKind, CallerInput, Document, Evaluation, Outcome, Policy, PolicyParts, RunRequest,
    can_be_approved, evaluate,
};
use interlock_programs::{DYNAMIC, Resolver};
use interlock_rules::now_ms;
use serde::Serialize;

use crate::policy_host::PolicyHost;
use case::{Case, Expectation};

pub use case::CasePolicy;
pub use fixture::{FileSpec, Fixture};

/// An invalid line in a file of cases.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct CaseError {
    pub file: String,
    pub line: usize,
    pub message: String,
}

/// The result of one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    pub id: String,
    pub pass: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    pub verdict: String,
    pub expected: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingKind>,
    pub reason: String,
    #[serde(skip)]
    pub command: String,
}

/// Cases of one or more files.
#[derive(Debug, Default)]
pub struct Cases {
    cases: Vec<Case>,
}

impl Cases {
    /// Reads the lines of a file; blank lines and those starting with `//` are skipped.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), CaseError> {
        for (index, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with("//") {
                continue;
            }
            let case = Case::parse(trimmed).map_err(|message| CaseError {
                file: file.to_owned(),
                line: index + 1,
                message,
            })?;
            self.cases.push(case);
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.cases.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    /// Whether any case is judged by the policy of this host.
    pub fn need_host(&self) -> bool {
        self.cases.iter().any(|case| case.policy.is_none())
    }

    /// Judges all cases on all cores, and returns the results in the order of the files. Cases
    /// without a policy are judged by the policy of the host: the one in force, or the one that
    /// `proposed` gives.
    pub fn run<H: PolicyHost>(
        &self,
        host: Option<&H>,
        proposed: Option<&Document>,
    ) -> Vec<CaseResult> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let next = AtomicUsize::new(0);
        let done: Vec<(usize, CaseResult)> = std::thread::scope(|scope| {
            let work = || {
                let mut done = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    match self.cases.get(index) {
                        Some(case) => done.push((index, run_case(case, host, proposed))),
                        None => return done,
                    }
                }
            };
            let handles: Vec<_> = (0..workers.min(self.cases.len()).max(1))
                .map(|_| scope.spawn(work))
                .collect();
            let finished = handles.into_iter().map(std::thread::ScopedJoinHandle::join);
            finished.flat_map(Result::unwrap_or_default).collect()
        });
        // If a worker panics, its results are lost. A case without a result must count as failed.
        let mut results: Vec<CaseResult> = self.cases.iter().map(CaseResult::unjudged).collect();
        for (index, result) in done {
            results[index] = result;
        }
        results
    }
}

impl CaseResult {
    fn unjudged(case: &Case) -> Self {
        Self {
            id: case.id.clone(),
            pass: false,
            skipped: None,
            verdict: "error".to_owned(),
            expected: case.expect.to_string(),
            binding: None,
            reason: "the case was not judged".to_owned(),
            command: case.command_text(),
        }
    }
}

fn run_case<H: PolicyHost>(
    case: &Case,
    host: Option<&H>,
    proposed: Option<&Document>,
) -> CaseResult {
    let mut result = CaseResult::unjudged(case);
    if let Some(why) = case.skip_reason() {
        result.skipped = Some(why);
        return result;
    }
    let (evaluation, missing) = match judge(case, host, proposed) {
        Ok(Ok(judged)) => judged,
        // Input that cannot be judged is refused, which counts as a denial.
        Ok(Err(error)) => {
            "deny".clone_into(&mut result.verdict);
            result.pass = case.expect.accepts_denial() || case.accepts_alternative("deny");
            result.reason = format!("{}: {error}", error.code());
            return result;
        }
        Err(message) => {
            result.reason = message;
            return result;
        }
    };
    let verdict = &evaluation.verdict;
    let word = word(&evaluation, case, host);
    word.clone_into(&mut result.verdict);
    if verdict.outcome == Outcome::Ask {
        result.binding = Some(verdict.binding.kind);
    }
    result.reason = format!("{}: {}", verdict.reason.code, verdict.reason.message);
    let accepted = case.expect.accepts(verdict.outcome)
        || case.expect.accepts_word(word)
        || case.accepts_alternative(verdict.outcome.as_str())
        || case.accepts_alternative(word);
    match missing {
        Some(argv) if accepted => result.reason = format!("no such segment: {argv:?}"),
        _ => result.pass = accepted,
    }
    result
}

/// The verdict as it is shown: `refused` if the policy would ask, but no approver could allow the
/// command.
fn word<H: PolicyHost>(evaluation: &Evaluation, case: &Case, host: Option<&H>) -> &'static str {
    let verdict = &evaluation.verdict;
    // A case with its own policy has no config.
    let config = host
        .filter(|_| case.policy.is_none())
        .and_then(|host| host.config().ok());
    let asks = config
        .zip(case.agent_id().ok())
        .is_some_and(|(config, agent)| {
            let exec = config.config().exec_for(agent.as_str());
            exec.unbound_approvals == Some(UnboundApprovals::Ask)
        });
    if verdict.outcome == Outcome::Ask && !can_be_approved(&verdict.binding, asks) {
        return "refused";
    }
    verdict.outcome.as_str()
}

/// The evaluation, and the first argv that the case lists but the judge did not see.
type JudgedCase = Result<(Evaluation, Option<Vec<String>>), InputError>;

fn judge<H: PolicyHost>(
    case: &Case,
    host: Option<&H>,
    proposed: Option<&Document>,
) -> Result<JudgedCase, String> {
    let fixture = case
        .needs_fixture
        .then(|| Fixture::make(&case.fs))
        .transpose()
        .map_err(|error| format!("fixture: {error}"))?;
    let root = fixture.as_ref().map_or("", Fixture::root);
    let case = case.with_fixture(root);
    let virtual_host = case.virtual_host()?;
    let home = case.home(host);
    let file_system;
    let resolver: &dyn Resolver = if let Some(table) = &virtual_host {
        table
    } else {
        file_system = FsResolver::new(case.path_directories(), home.clone());
        &file_system
    };
    let agent = case.agent_id()?;
    let policy: Arc<Policy> = match (&case.policy, host) {
        (Some(own), _) => {
            let parts: PolicyParts = own.parts(agent)?;
            let assembled = parts.assemble(home.as_deref());
            Arc::new(assembled.map_err(|error| error.to_string())?)
        }
        (None, Some(host)) => match proposed {
            Some(document) => {
                let proposed = host.policy_with(document, &agent, None, home.as_deref());
                Arc::new(proposed.map_err(|error| error.to_string())?)
            }
            None => {
                let present = host.policy_in_force(&agent);
                present.map_err(|error| error.to_string())?
            }
        },
        (None, None) => return Err("the case names no policy".to_owned()),
    };
    let request = RunRequest {
        source: case.source()?,
        cwd: case.cwd(root)?,
        env: case.env.clone(),
        input: CallerInput::from_call(case.pty, case.stdin == Some(PlanStdin::Pipe)),
        workspace: case.workspace(root)?,
        now_ms: now_ms(),
    };
    Ok(evaluate(request, &policy, resolver).map(|evaluation| {
        let missing = missing_segment(&case.expect, &evaluation);
        (evaluation, missing)
    }))
}

/// The first argv of the case that was neither judged nor seen inside another command. A word that
/// only the shell can expand matches any word.
fn missing_segment(expect: &Expectation, evaluation: &Evaluation) -> Option<Vec<String>> {
    if expect.segments.is_empty() {
        return None;
    }
    let judged = evaluation.verdict.segments.iter();
    let seen = evaluation.analysis.sight().commands;
    let known: Vec<Vec<String>> = judged
        .map(|judged| judged.argv.to_vec())
        .chain(seen.into_iter().map(|seen| seen.argv.to_vec()))
        .collect();
    let same = |listed: &[String], known: &[String]| {
        let words = listed.iter().zip(known);
        listed.len() == known.len() && { words }.all(|(a, b)| a == b || b.contains(DYNAMIC))
    };
    let is_known = |listed: &&Vec<String>| known.iter().any(|known| same(listed, known));
    expect
        .segments
        .iter()
        .find(|listed| !is_known(listed))
        .cloned()
}
