//! The tools that agents call: `exec`, `process`, `apply_patch`. Every transport uses this module,
//! so all of them apply the same policy and give the same answers.

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

/// How long a call waits for a decision by default.
const APPROVAL_WAIT: Duration = Duration::from_secs(45);

/// The default for a caller that accepts progress reports: it knows what the call waits for, and
/// keeps it open.
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

/// The caller of a tool, and how progress is reported to it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub agent: AgentId,
    pub session_key: String,
    /// The directory of a caller on this machine.
    pub cwd: Option<PathBuf>,
    /// The calling program's own context.
    pub context: CallerContext,
    /// Which background sessions `process list` shows.
    pub listed: ListedSessions,
    /// The connection of the caller. No decision depends on it.
    pub requester: String,
    /// The sender, as the transport proved it. A call of a run has none, and leaves no sandbox.
    pub sender: Option<CallSender>,
    pub progress: Option<mpsc::Sender<Progress>>,
    pub asking: Asking,
    /// The approval that this caller was given earlier, to continue with.
    pub approval: Option<String>,
    /// How long the caller waits for an approver, if it said so.
    pub approval_wait: Option<Duration>,
    /// The reader of the result.
    pub audience: Audience,
    /// Cancelled when the caller no longer wants a result. `None` if its transport cannot express
    /// that.
    pub cancellation: Option<CancellationToken>,
}

impl ToolCall {
    /// Returns when the caller no longer wants a result.
    async fn cancelled(&self) {
        match &self.cancellation {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// How long the call waits for a decision.
    fn patience(&self, exec: &ExecConfig) -> Duration {
        let configured = exec.approval_wait_ms.map(Duration::from_millis);
        approval_wait(self.approval_wait.or(configured), self.progress.is_some())
    }
}

/// How long a call waits for a decision: the configured time, or a default, which is longer if the
/// caller accepts progress reports.
fn approval_wait(set: Option<Duration>, takes_progress: bool) -> Duration {
    let usual = if takes_progress {
        APPROVAL_WAIT_WITH_PROGRESS
    } else {
        APPROVAL_WAIT
    };
    set.unwrap_or(usual)
}

/// Which background sessions a list shows. Each session of the agent can be used by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedSessions {
    OfAgent,
    /// Keeps two clients of one agent out of each other's way.
    OfConversation,
}

/// The reader of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Programs get the form of the reference, with as much output as `tools.exec.maxOutputChars`
    /// allows.
    Programs,
    /// Models get text of limited length.
    Models { result_chars: usize },
}

impl Audience {
    /// The audience of models, according to the config.
    pub fn models(config: &ConfigFile, agent: &AgentId) -> Self {
        let exec = config.config().exec_for(agent.as_str());
        let result_chars = exec.result_chars();
        Self::Models { result_chars }
    }

    /// How many characters of output fit into the result, unless the config already limits them.
    fn show_chars(self) -> Option<usize> {
        match self {
            Self::Programs => None,
            Self::Models { result_chars } => Some(model_text::output_room(result_chars)),
        }
    }
}

/// Where an approval is shown, besides the owner's own surfaces.
#[derive(Debug, Clone)]
pub enum Asking {
    /// Nowhere else: the call waits for as long as its caller has patience.
    Elsewhere,
    /// To the person at the caller. The call waits while that person looks at it.
    Here(Arc<dyn Asker>),
    /// Returned to the caller at once, which repeats the call with the answer. Only for approvals
    /// that the caller can show.
    Returned(fn(&PendingApproval) -> bool),
}

/// Shows an approval to the person at the caller. Only used if the owner trusts that program to do
/// so.
pub trait Asker: std::fmt::Debug + Send + Sync {
    /// Ends when no answer will come from there; an answer is stored by then. Dropped when the
    /// approval was decided elsewhere.
    fn ask(&self, approval: PendingApproval) -> BoxFuture<'static, ()>;
}

/// A progress report for a waiting caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The output since the last report.
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

/// Calls a tool. A refusal by policy or by an approver is a result; an error means that the call
/// could not be made.
///
/// `config` is the config that the call began with. It holds until the call is carried out or waits
/// for an approver: a call that is approved later is judged by the config of that time.
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

/// The directory in which a call starts: the workspace of the calling program, or else that
/// program's directory, or else the agent's workspace, which is created if needed.
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

/// The key under which a call is made once, regardless of its transport.
pub fn once_key(call: &ToolCall, key: &str, tool: &str, arguments: &Value) -> once::OnceKey {
    let name = format!("{}\n{}\n{key}", call.agent, call.session_key);
    once::OnceKey::new(name, tool, arguments.clone())
}

/// Whether an answer stands for an effect, or a possible one. A refusal does not. A pending
/// approval does, because a run that is allowed later starts by itself.
pub fn had_effect((status, body): &once::OnceAnswer) -> bool {
    let answered = AnsweredCall::deserialize(body).unwrap_or_default();
    match answered.result.details.status {
        Some(said) => said != "denied",
        None => status.is_success() || *status == StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The part of an answer that describes its result.
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
