//! The tools that agents call: `exec`, `process`, `apply_patch`. Every transport comes through
//! here, so all of them ask the same policy and give the same answers.

mod caller;
mod catalog;
mod details;
mod events;
mod exec;
mod listed_sessions;
mod local_run;
mod model_text;
mod node_run;
mod patch;
mod pipeline;
mod process;
mod render;
mod result;
mod resume;
mod run_outcome;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use interlock_approvals::PendingApproval;
use interlock_config::ConfigFile;
use interlock_config::types::ExecConfig;
use interlock_host::{
    AgentScope, CallSender, CallerContext, WorkspaceError, check_sandbox_tool, now_ms, tool_levels,
};
use interlock_policy::{AgentId, ToolLevel, check_tool};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use caller::{CallerError, caller, sender};
pub use catalog::{CATALOG, Described};
pub use node_run::GatewayLevels;
pub use result::ToolResult;
pub use resume::{ask_again, resume};

use crate::dispatcher::Dispatcher;
use crate::once;
use crate::work::{CallError, blocking};

/// How long a call waits for a decision, where neither caller nor config say it.
const APPROVAL_WAIT: Duration = Duration::from_secs(45);

/// The same for a caller that takes progress: it knows what the call waits for, and keeps it open.
const APPROVAL_WAIT_WITH_PROGRESS: Duration = Duration::from_mins(10);

/// One of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Exec,
    Process,
    ApplyPatch,
}

impl Tool {
    pub fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Process => "process",
            Self::ApplyPatch => "apply_patch",
        }
    }
}

/// Who calls, and how progress is reported to the caller.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub agent: AgentId,
    pub session_key: String,
    /// Where a caller on this machine is.
    pub cwd: Option<PathBuf>,
    /// What the calling program brings of its own.
    pub context: CallerContext,
    /// Which background sessions `process list` shows.
    pub listed: ListedSessions,
    /// The connection that asks. It never decides.
    pub requester: String,
    /// Who calls, as the transport proved it. A call of a run has none, and leaves no sandbox.
    pub sender: Option<CallSender>,
    pub progress: Option<mpsc::Sender<Progress>>,
    pub asking: Asking,
    /// Goes on with a question that this caller was given back.
    pub approval: Option<String>,
    /// How long the caller waits for a person, if it said so.
    pub approval_wait: Option<Duration>,
    /// Who reads the result.
    pub audience: Audience,
    /// Cancelled when the caller wants no result any more. None where its transport has no way to say so.
    pub cancellation: Option<CancellationToken>,
}

impl ToolCall {
    /// Returns when the caller wants no result any more.
    async fn cancelled(&self) {
        match &self.cancellation {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// How long it waits for a decision.
    fn patience(&self, exec: &ExecConfig) -> Duration {
        let configured = exec.approval_wait_ms.map(Duration::from_millis);
        approval_wait(self.approval_wait.or(configured), self.progress.is_some())
    }
}

/// How long a call waits for a decision: as it is set, else longer where the caller takes progress.
fn approval_wait(set: Option<Duration>, takes_progress: bool) -> Duration {
    let usual = if takes_progress {
        APPROVAL_WAIT_WITH_PROGRESS
    } else {
        APPROVAL_WAIT
    };
    set.unwrap_or(usual)
}

/// Which background sessions a list shows. Each of the agent's can be used by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedSessions {
    OfAgent,
    /// Two clients of one agent do not get in each other's way.
    OfConversation,
}

/// Who reads a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// In the form of the reference, with as much output as `tools.exec.maxOutputChars` allows.
    Programs,
    /// As text of at most so many characters.
    Models { result_chars: usize },
}

impl Audience {
    /// For models, as the config says.
    pub fn models(config: &ConfigFile, agent: &AgentId) -> Self {
        let exec = config.config().exec_for(agent.as_str());
        let result_chars = exec.result_chars();
        Self::Models { result_chars }
    }

    /// Characters of output that fit into the result, where the config does not say it already.
    fn show_chars(self) -> Option<usize> {
        match self {
            Self::Programs => None,
            Self::Models { result_chars } => Some(model_text::output_room(result_chars)),
        }
    }
}

/// Where a question goes, besides the owner's own surfaces.
#[derive(Debug, Clone)]
pub enum Asking {
    /// Nowhere: the call waits for as long as callers have patience.
    Elsewhere,
    /// To the person at the caller, and the call waits while that one looks at it.
    Here(Arc<dyn Asker>),
    /// Back to the caller at once, who comes again with the answer; if it is a question for that one.
    Returned(fn(&PendingApproval) -> bool),
}

/// Shows a question to the person at the caller. Only where the owner trusts that program to do so.
pub trait Asker: std::fmt::Debug + Send + Sync {
    /// Ends when no answer is to come from there any more; an answer is decided by then. Dropped
    /// when the question has been answered elsewhere.
    fn ask(&self, approval: PendingApproval) -> BoxFuture<'static, ()>;
}

/// A report of progress to a waiting caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Text that the run has written since.
    Output(String),
    /// What the call waits for, and where to decide.
    Waiting(String),
}

/// The tools that an agent may call.
pub fn available(config: &ConfigFile, agent: &AgentId) -> Vec<&'static Described> {
    let gateway = &config.config().gateway.tools;
    let mut levels = tool_levels(config.config(), agent);
    levels.push(ToolLevel {
        allow: gateway.allow.as_deref().filter(|list| !list.is_empty()),
        deny: gateway.deny.as_deref().unwrap_or_default(),
        path: "gateway.tools",
    });
    CATALOG
        .iter()
        .filter(|tool| check_tool(tool.name, &levels).is_ok())
        .collect()
}

/// Calls a tool. A refusal by policy or by a person is a result; an error is a call that could not
/// be made.
///
/// The config is the one that the call began with. It holds until the call is carried out, or waits
/// for an approver: what is approved later is judged by the config of then.
pub async fn call(
    dispatcher: &Arc<Dispatcher>,
    config: &Arc<ConfigFile>,
    name: &str,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let mut offered = available(config, &call.agent).into_iter();
    let Some(described) = offered.find(|tool| tool.name == name) else {
        return Err(CallError::NotAvailable(name.to_owned()));
    };
    let conversation = (&call.agent, &*call.session_key);
    if let Err(refused) = check_sandbox_tool(config.config(), conversation, name) {
        return Ok(ToolResult::denied(
            "TOOL_DENIED",
            &refused.to_string(),
            None,
        ));
    }
    dispatcher.metrics.called(described.tool);
    dispatcher
        .seen
        .note(&call.session_key, call.agent.as_str(), now_ms());
    let result = match described.tool {
        Tool::Exec => Box::pin(exec::exec(dispatcher, config, call, arguments)).await,
        Tool::Process => process::process(dispatcher, call, arguments).await,
        Tool::ApplyPatch => patch::apply_patch(dispatcher, config, call, arguments).await,
    }?;
    events::with_events(dispatcher, call, result).await
}

/// Where a call starts: in the workspace of the calling program, else where that program is, else in
/// the agent's workspace, which this makes if need be.
fn start_directory(scope: &AgentScope<'_>, call: &ToolCall) -> Result<PathBuf, WorkspaceError> {
    let own = call.context.workspace().first();
    match own.or(call.cwd.as_ref()) {
        Some(start) => Ok(start.clone()),
        None => scope.workspace(),
    }
}

fn no_workspace(error: &WorkspaceError) -> ToolResult {
    ToolResult::denied(error.code(), &error.to_string(), error.remedy().as_deref())
}

/// The key under which a call is made once, whichever transport it comes through.
pub fn once_key(call: &ToolCall, key: &str, tool: &str, arguments: &Value) -> once::OnceKey {
    let name = format!("{}\n{}\n{key}", call.agent, call.session_key);
    once::OnceKey::new(name, tool, arguments.clone())
}

/// Whether an answer to a call stands for something that was done, or may be. A refusal does not; a
/// question does: what is allowed later runs by itself.
pub fn had_effect((status, body): &once::OnceAnswer) -> bool {
    let answered = AnsweredCall::deserialize(body).unwrap_or_default();
    match answered.result.details.status {
        Some(said) => said != "denied",
        None => status.is_success() || *status == StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What an answer to a call says of its result.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredCall {
    result: AnsweredResult,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredResult {
    details: AnsweredDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnsweredDetails {
    status: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_takes_progress_waits_ten_minutes_unless_another_time_is_set() {
        let seconds = Duration::from_secs;
        assert_eq!(approval_wait(None, false), seconds(45));
        assert_eq!(approval_wait(None, true), seconds(600));
        for takes_progress in [false, true] {
            assert_eq!(approval_wait(Some(seconds(1)), takes_progress), seconds(1));
        }
    }
}
