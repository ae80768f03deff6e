//! `interlock hook`: judges a command that an agent program is about to run in its own shell, and
//! asks for approval in the same inbox. The agent program runs the command, so the approval binds
//! nothing; the prompt and the documentation say so.
//!
//! Every failure must be a denial. If a hook fails in any other way, agent programs run the
//! command, so the hook must never end with an ordinary error.

mod call;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use interlock_approvals::companion::{Courier, CourierWaits};
use interlock_approvals::{
    ApprovalEnd, DENIAL_TEXT, PendingApproval, RecordedOutcome, RecordedStatus, process_name,
};
use interlock_arguments::{AgentProgram, HookArguments, StateArguments};
use interlock_client::{agent_id, known_agent, open, outside_runs, routed};
use interlock_command::Source;
use interlock_console::{Failure, output};
use interlock_host::{
    CallerContext, ElsewhereRequest, ElsewhereVerdict, ExecError, ExecRequest, LocalHost,
    RequestedPlace, Route, Yield,
};
use interlock_plan::PlanStdin;
use interlock_policy::{AgentId, Ask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use call::HookCall;

/// The longest description of a call. A call with a longer one is denied.
const MAX_INPUT: u64 = 4 * 1024 * 1024;

/// How often the hook checks for the decision, a signal and the companion.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The exit code that every agent program with hooks takes for a denial, with the reason on stderr.
const BLOCKED: u8 = 2;

/// The answer to the agent program.
enum HookAnswer {
    Allow(String),
    Deny(String),
}

/// Judges the call and prints an answer, whatever happens.
pub fn run(state: &StateArguments, arguments: &HookArguments) -> ExitCode {
    let judged = std::panic::catch_unwind(AssertUnwindSafe(|| judge(state, arguments)));
    let answer = match judged {
        Ok(Ok(answer)) => answer,
        Ok(Err(failure)) => HookAnswer::Deny(format!("{failure} ({})", failure.code())),
        Err(_) => HookAnswer::Deny("the hook failed; its panic is on standard error".to_owned()),
    };
    let text = answer.text(arguments.program);
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match (written, answer) {
        (Ok(()), _) => ExitCode::SUCCESS,
        (Err(_), HookAnswer::Allow(_)) => {
            output::note("Interlock: the answer could not be written");
            ExitCode::from(BLOCKED)
        }
        (Err(_), HookAnswer::Deny(reason)) => {
            output::note(&reason);
            ExitCode::from(BLOCKED)
        }
    }
}

impl HookAnswer {
    /// The answer in the format of the agent program, with a line break.
    fn text(&self, program: AgentProgram) -> String {
        let (word, reason) = match self {
            Self::Allow(reason) => ("allow", reason),
            Self::Deny(reason) => ("deny", reason),
        };
        let reason = format!("Interlock: {reason}");
        let answer = match program {
            // Codex has no answer for "allow": it continues if the hook prints nothing.
            AgentProgram::Codex if word == "allow" => return String::new(),
            AgentProgram::Gemini => serde_json::json!({ "decision": word, "reason": reason }),
            _ => serde_json::json!({ "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": word,
                "permissionDecisionReason": reason,
            } }),
        };
        format!("{answer}\n")
    }
}

fn judge(state: &StateArguments, arguments: &HookArguments) -> Result<HookAnswer, Failure> {
    let refused = |message: &str| Failure::refused("HOOK_INPUT_INVALID", message.to_owned());
    let mut input = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_INPUT + 1)
        .read_to_end(&mut input)
        .map_err(|error| refused(&format!("the call cannot be read: {error}")))?;
    if input.len() as u64 > MAX_INPUT {
        return Err(refused("the description of the call is too long"));
    }
    let call = HookCall::read(arguments.program, &input).map_err(|problem| refused(&problem))?;
    agent_id(&arguments.agent)?;
    let host = open(state)?;
    let agent = known_agent(&host, &arguments.agent)?;
    match routed(&host, &agent, None)? {
        // The judge handles commands that belong into a sandbox.
        Ok(Route::Gateway | Route::Sandbox) => {}
        Ok(Route::Node) => {
            let message =
                "the commands of this agent run on a node, not in a shell on this machine";
            return Err(Failure::refused("HOST_IS_NODE", message));
        }
        Err(refusal) => return Err(Failure::refused(refusal.code(), refusal.to_string())),
    }
    ask(state, arguments, &host, &agent, &call)
}

fn ask(
    state: &StateArguments,
    arguments: &HookArguments,
    host: &LocalHost,
    agent: &AgentId,
    call: &HookCall,
) -> Result<HookAnswer, Failure> {
    // From now on, a signal withdraws the approval.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
    let base_env = BTreeMap::new();
    let session_key = call.session_key(agent);
    let wait = Duration::from_secs(arguments.wait);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = std::env::var("PATH").ok();
    let caller = CallerContext::of_program(path, &call.project, home.as_deref());
    let exec = ExecRequest {
        agent,
        config: None,
        caller: &caller,
        source: Source::Text(call.command.clone()),
        cwd: call.cwd.clone(),
        env: BTreeMap::new(),
        // An unknown field could change what the command does, so an approver must read it.
        ask: (!call.unknown.is_empty()).then_some(Ask::Always),
        gateway: None,
        timeout_seconds: None,
        base_env: &base_env,
        session_key: Some(&session_key),
        pty: None,
        stdin: PlanStdin::Null,
        yields: Yield::Never,
        show_chars: Some(0),
        requester: process_name(),
        runs_later: false,
        place: RequestedPlace::default(),
    };
    let runner = format!("{}\u{2019}s own shell", arguments.program.title());
    let judged = host.judge_elsewhere(&ElsewhereRequest {
        exec: &exec,
        runner: &runner,
        facts: &call.unknown,
        expires_in_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
    });
    match judged {
        Ok(ElsewhereVerdict::Allowed(verdict)) => {
            Ok(HookAnswer::Allow(output::line(&verdict.reason.message)))
        }
        Ok(ElsewhereVerdict::Asked(approval)) => {
            let ended = settle(host, &approval, Instant::now() + wait, &mut signals)?;
            decided(host, &approval, ended)
        }
        Err(error) => Ok(HookAnswer::Deny(refusal_text(state, &error))),
    }
}

/// Waits for a decision. If the time is up or a signal arrives, the approval is withdrawn, and the
/// result is `None` unless a decision came first.
fn settle(
    host: &LocalHost,
    approval: &PendingApproval,
    until: Instant,
    signals: &mut Signals,
) -> Result<Option<ApprovalEnd>, Failure> {
    let mut courier = host
        .approvals()
        .courier(approval, CourierWaits::ForDecision);
    let outside = courier
        .as_ref()
        .and_then(|_| outside_runs(host.state_dir()).ok());
    let finish = |courier: Option<Courier<'_>>, how: &str| {
        if let Some(courier) = courier {
            courier.end(how);
        }
    };
    loop {
        if let Some(courier) = &mut courier {
            courier.look(Duration::ZERO, outside);
        }
        if let Some(ended) = host.approvals().wait(&approval.id, POLL_INTERVAL)? {
            finish(courier, &ended.to_string());
            return Ok(Some(ended));
        }
        if signals.pending().next().is_some() || Instant::now() >= until {
            finish(courier, "the agent program does not wait for it any more");
            host.approvals().withdraw(&approval.id)?;
            // A decision may have arrived just before the withdrawal.
            return Ok(host.approvals().ended(&approval.id)?);
        }
    }
}

fn decided(
    host: &LocalHost,
    approval: &PendingApproval,
    ended: Option<ApprovalEnd>,
) -> Result<HookAnswer, Failure> {
    let Some(ended) = ended.filter(|ended| ended.decider.is_some() || ended.ending.allows()) else {
        return Ok(HookAnswer::Deny(format!(
            "no approver decided about {} in time. {DENIAL_TEXT}",
            approval.short_id
        )));
    };
    let how = output::line(&ended.to_string());
    if !ended.ending.allows() {
        return Ok(HookAnswer::Deny(format!(
            "{} was {how}. {DENIAL_TEXT}",
            approval.short_id
        )));
    }
    // The single use must be on disk before the agent program may run the command.
    host.approvals().use_remote(&approval.id)?;
    let outcome = RecordedOutcome::new(RecordedStatus::LeftToAgentProgram);
    host.approvals()
        .finish_remote(&approval.id, Some(&outcome))?;
    Ok(HookAnswer::Allow(format!("{}: {how}", approval.short_id)))
}

/// Why the command is refused, and what the owner can do about it.
fn refusal_text(state: &StateArguments, error: &ExecError) -> String {
    let mut text = format!("{} ({})", output::line(&error.to_string()), error.code());
    let remedies = error
        .verdict()
        .into_iter()
        .flat_map(|verdict| &verdict.remedies);
    let judged = remedies
        .map(|remedy| format!("{}: {}", remedy.effect, state.in_command(&remedy.command)))
        .next();
    if let Some(remedy) = error.remedy().or(judged) {
        text += &format!(". For the owner: {remedy}");
    }
    text
}
