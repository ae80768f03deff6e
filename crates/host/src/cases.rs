//! Policies under test: JSON lines, one case each, judged by the same evaluator as everything.

mod case;
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use interlock_approvals::can_be_approved;
use interlock_command::{DYNAMIC, InputError, Resolver};
use interlock_config::UnboundApprovals;
use interlock_plan::{FsResolver, PlanStdin};
use interlock_policy::{BindingKind, CallerInput, Document, Outcome, Policy, PolicyParts};
use serde::Serialize;

use crate::evaluate::{Evaluation, RunRequest, evaluate};
use crate::local::{LocalHost, now_ms, policy};
use case::{Case, Expectation};

pub use case::CasePolicy;
pub use fixture::{FileSpec, Fixture};

/// A file that cannot be read as cases, with the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct CaseError {
    pub file: String,
    pub line: usize,
    pub message: String,
}

/// What became of one case.
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

    /// Judges all cases on every core, in order of the files.
    pub fn run(&self, host: Option<&LocalHost>) -> Vec<CaseResult> {
        self.run_with(host, None)
    }

    /// The same where cases without a policy of their own are judged by a proposed document and the
    /// config of the host, instead of the document in force.
    pub fn run_with(
        &self,
        host: Option<&LocalHost>,
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
                        Some(case) => done.push((index, run(case, host, proposed))),
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
        // A worker that came to grief takes its results along; a case without one has failed.
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

fn run(case: &Case, host: Option<&LocalHost>, proposed: Option<&Document>) -> CaseResult {
    let mut result = CaseResult::unjudged(case);
    if let Some(why) = case.skip_reason() {
        result.skipped = Some(why);
        return result;
    }
    let (evaluation, missing) = match judge(case, host, proposed) {
        Ok(Ok(judged)) => judged,
        // Input that nothing can judge is refused: that is a denial.
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

/// The verdict as its reader acts on it: `refused` where the policy would ask and no approver could say
/// yes.
fn word(evaluation: &Evaluation, case: &Case, host: Option<&LocalHost>) -> &'static str {
    let verdict = &evaluation.verdict;
    // The policy of a case has no config of its own.
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

/// The evaluation, and an argv that the case lists and the judge did not see.
type JudgedCase = Result<(Evaluation, Option<Vec<String>>), InputError>;

fn judge(
    case: &Case,
    host: Option<&LocalHost>,
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
                let config = host.config().map_err(|error| error.to_string())?;
                let config = config.config();
                let proposed = policy(config, document, &agent, None, home.as_deref());
                Arc::new(proposed.map_err(|error| error.to_string())?)
            }
            None => {
                let present = host.policy(&agent, None);
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

/// Every argv that the case lists must be one that was judged or seen on the way. A word that only
/// the shell will know stands for any.
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
