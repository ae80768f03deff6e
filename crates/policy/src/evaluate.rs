//! Analyzes and judges: from a request to a verdict.

use std::collections::BTreeMap;

use interlock_command::{Analysis, Host, InputError, Source, analyse};
use interlock_programs::Resolver;

use crate::judge::{CallerInput, JudgedCall, Policy};
use crate::verdict::Verdict;

/// A request to run a command.
#[derive(Debug, Clone)]
pub struct RunRequest {
    pub source: Source,
    /// An absolute path.
    pub cwd: String,
    /// The overrides of the call.
    pub env: BTreeMap<String, String>,
    pub input: CallerInput,
    /// The directories that `${workspace}` stands for, if any.
    pub workspace: Vec<String>,
    pub now_ms: u64,
}

/// The analysis of a request, and whether the request may run.
#[derive(Debug)]
pub struct Evaluation {
    pub analysis: Analysis,
    pub verdict: Verdict,
}

/// The only way from a request to a verdict.
pub fn evaluate(
    request: RunRequest,
    policy: &Policy,
    resolver: &dyn Resolver,
) -> Result<Evaluation, InputError> {
    let host = Host {
        resolver,
        trusted_dirs: &policy.safe_bins.trusted_dirs,
    };
    let analysis = analyse(request.source, &request.cwd, host)?;
    let call = JudgedCall {
        env: &request.env,
        input: request.input,
        workspace: &request.workspace,
        now_ms: request.now_ms,
    };
    let verdict = policy.judge(&analysis, call, resolver);
    Ok(Evaluation { analysis, verdict })
}
