//! `interlock explain`: shows the verdict and the deciding rule first, then all facts behind them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use interlock_approvals::usual_session_key;
use interlock_arguments::{ExplainArguments, StateArguments, StdinArgument};
use interlock_client::{
    agent_id, caller_context, command_line_sender, known_agent, open, request, routed_call,
};
use interlock_command::display::{self, Secrets};
use interlock_command::{Highlight, Shape, Source, highlight};
use interlock_config::{Config, UnboundApprovals};
use interlock_console::output::{self, Paint};
use interlock_console::{CommandOutcome, Failure};
use interlock_host::{
    CallSender, Elevation, ElevationFacts, LocalHost, Route, RouteRefusal, plan_shield,
};
use interlock_plan::SandboxTree;
use interlock_policy::{
    AgentId, CallerInput, Evaluation, Levels, Outcome as VerdictOutcome, Verdict, can_be_approved,
    evaluate, quote,
};
use interlock_rules::SessionLevels;
use interlock_sandbox::SandboxCoverage;
use serde::Serialize;

mod node;
mod text;

pub fn run(state: &StateArguments, arguments: &ExplainArguments) -> CommandOutcome {
    let has_pipe = arguments.stdin == StdinArgument::Pipe;
    let input = CallerInput::from_call(arguments.pty, has_pipe);
    let all = arguments;
    let arguments = &arguments.request;
    agent_id(&arguments.agent)?;
    if let Some(named) = &all.node {
        let host = open(state)?;
        let agent = known_agent(&host, &arguments.agent)?;
        return node::run(state, &host, &agent, named, all);
    }
    let mut request = request::request(arguments, input)?;
    let caller = caller_context(Path::new(&request.cwd));
    let host = open(state)?;
    let agent = known_agent(&host, &arguments.agent)?;
    let scope = host.scope(&agent)?;
    request.workspace = scope.call_workspace(&caller);
    let call_ask = arguments.ask.map(Into::into);
    let policy = scope.policy(SessionLevels::default(), call_ask, None)?;
    let shown = shown_command(&request.source);
    let facts = CallFacts {
        env: without_secrets(&request.env),
        input,
    };
    let resolver = scope.resolver(&caller);
    let mut evaluation = scope.as_run_account(|| evaluate(request, &policy, &resolver))??;
    for remedy in &mut evaluation.verdict.remedies {
        remedy.command = state.in_command(&remedy.command);
    }
    let exec = scope.exec();
    let shield = match plan_shield(exec, evaluation.verdict.shield) {
        Ok(shield) => shield.words().to_owned(),
        Err(missing) => missing.to_string(),
    };
    let tree = exec.tree();
    let tree = (evaluation.verdict.by_allowlist && tree != SandboxTree::Off).then_some(tree);
    let unbound = exec.unbound_approvals;
    let approval = ExplainedApproval::of(&evaluation.verdict, unbound);
    let next_step = next_step(&evaluation.verdict, approval).map(|step| state.in_command(&step));
    let sender = command_line_sender(&host, &agent)?;
    let routed = routed_call(&host, &agent, (None, None), sender.as_ref())?;
    let elevated = ExplainedElevation::of_call(&host, &agent, sender.as_ref())?;
    let elsewhere = elsewhere(routed.map(|routed| routed.route));
    let sandbox = ExplainedSandbox::of_agent(scope.config().config(), &agent);
    if arguments.json {
        let mut explanation = Explanation::new(
            &shown,
            &agent,
            &facts,
            &evaluation,
            &policy.levels,
            approval,
        );
        explanation.elsewhere = elsewhere;
        explanation.sandbox = sandbox;
        explanation.elevated = elevated;
        explanation.next_step = next_step;
        explanation.shield = shield;
        explanation.tree = tree;
        output::print_json(&explanation.with_refusal());
    } else {
        let paint = Paint::stdout();
        let text = text::text(&shown, &facts, &evaluation, &policy.levels, approval, paint);
        output::print(&text);
        if let Some(step) = next_step.filter(|_| evaluation.verdict.remedies.is_empty()) {
            output::print(&format!("\nnext: {}\n", paint.strong(&step)));
        }
        if !shield.starts_with("shielded") {
            output::print(&format!("shield: {shield}\n"));
        }
        if let Some(tree) = tree {
            let words = match tree {
                SandboxTree::Enforce => "only those that the command and the allowlist name start",
                SandboxTree::Off | SandboxTree::Log => "all that start are logged",
            };
            output::print(&format!("programs: {words} (tools.exec.tree)\n"));
        }
        if let Some(sandbox) = sandbox {
            output::print(&sandbox.text());
        }
        if let Some(elevated) = elevated {
            output::print(&elevated.text());
        }
        if let Some(elsewhere) = elsewhere {
            output::note(&format!(
                "warning: this is what this host says; {elsewhere}"
            ));
        }
        for (origin, error) in policy.allowlist.known_broken() {
            output::note(&format!("warning: {origin} never matches: {error}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The environment and input of the call. Secret values are masked, because the output may be
/// pasted into a bug report.
#[derive(Serialize)]
struct CallFacts {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    /// How the caller can type into the run.
    input: CallerInput,
}

fn without_secrets(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let pairs = env.iter().map(|(name, value)| {
        let text = format!("{name}={} :", quote(value));
        let is_shown =
            display::command(&text, Secrets::Masked).is_ok_and(|shown| shown.masked == 0);
        let value = if is_shown { value.as_str() } else { "***" };
        (name.clone(), value.to_owned())
    });
    pairs.collect()
}

/// Which policy decides instead, if the agent's commands do not run on this host.
fn elsewhere(routed: Result<Route, RouteRefusal>) -> Option<String> {
    match routed {
        Ok(Route::Gateway) => None,
        Ok(Route::Sandbox) => {
            let text = "the agent's commands run in its sandbox, by the policy of tools.sandbox.exec (interlock sandbox explain)";
            Some(text.to_owned())
        }
        Ok(Route::Node) => {
            let text = "the agent's commands run on a node, whose own policy decides (explain --node NODE)";
            Some(text.to_owned())
        }
        Err(refused) => Some(format!("exec refuses it: {refused}")),
    }
}

/// Whether an approval of this command would be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExplainedApproval {
    Possible,
    /// The files that would run cannot be pinned.
    Refused,
}

const UNBOUND_CODE: &str = "APPROVAL_UNBOUND";
/// The verdict if the policy would ask, but no approver could allow the command.
const REFUSED: &str = "refused";

impl ExplainedApproval {
    fn of(verdict: &Verdict, unbound: Option<UnboundApprovals>) -> Self {
        let is_refused = verdict.outcome == VerdictOutcome::Ask
            && !can_be_approved(&verdict.binding, unbound == Some(UnboundApprovals::Ask));
        if is_refused {
            Self::Refused
        } else {
            Self::Possible
        }
    }

    /// The verdict as it is shown. `ask` means that an approver can allow the command.
    fn word(self, verdict: &Verdict) -> &'static str {
        match self {
            Self::Possible => verdict.outcome.as_str(),
            Self::Refused => REFUSED,
        }
    }
}

/// What to do if the command cannot be approved.
fn next_step(verdict: &Verdict, approval: ExplainedApproval) -> Option<String> {
    let unbound = verdict.binding.unbound.as_ref();
    let unbound = unbound.filter(|_| approval == ExplainedApproval::Refused)?;
    Some(unbound.next_step.clone())
}

/// The command as it is shown: text unchanged, an argument vector quoted.
fn shown_command(source: &Source) -> String {
    match source {
        Source::Text(text) => text.clone(),
        Source::Argv(argv) => argv
            .iter()
            .map(|word| quote(word))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    command: &'a str,
    agent: &'a AgentId,
    cwd: &'a str,
    #[serde(flatten)]
    facts: &'a CallFacts,
    plain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_plain: Option<&'a interlock_command::NotPlain>,
    highlights: Vec<Highlight>,
    #[serde(flatten)]
    verdict: &'a Verdict,
    /// The code with which an approval would be refused. The verdict is then `refused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_refused: Option<&'static str>,
    /// What to do about a refused approval, ready to be pasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
    policy: &'a Levels,
    /// The shield that keeps the run away from Interlock itself.
    shield: String,
    /// How the programs that the run starts are limited or logged, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<SandboxTree>,
    /// Why this host does not run the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    elsewhere: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<ExplainedSandbox>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elevated: Option<ExplainedElevation>,
}

/// Whether a call of a sandboxed conversation may leave its sandbox.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedElevation {
    /// The level of an elevated call if every gate is open.
    level: Elevation,
    /// The first closed gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_by: Option<String>,
}

impl ExplainedElevation {
    /// Returns `None` if no sandbox holds the conversation of the command line.
    fn of_call(
        host: &LocalHost,
        agent: &AgentId,
        sender: Option<&CallSender>,
    ) -> Result<Option<Self>, Failure> {
        let (scope, session_key) = (host.scope(agent)?, usual_session_key(agent.as_str()));
        let standing = host.sandbox_standing(&scope, agent, &session_key);
        if !standing.is_active() {
            return Ok(None);
        }
        let facts = ElevationFacts {
            config: scope.config().config(),
            agent,
            asked: Some(true),
            session: host.session(&session_key)?.elevated,
            sender,
        };
        let gates = facts.gates(standing.is_required());
        let closed = gates.into_iter().find(|gate| gate.closed.is_some());
        Ok(Some(Self {
            level: facts.level(),
            closed_by: closed.map(|gate| gate.key),
        }))
    }

    fn text(&self) -> String {
        match &self.closed_by {
            Some(key) => format!("elevated: refused ({key})\n"),
            None => format!(
                "elevated: a call with `elevated` leaves the sandbox at `{}`, by the policy above\n",
                self.level
            ),
        }
    }
}

/// Whether the conversation of the command line is sandboxed, if the config sets it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedSandbox {
    session_key: String,
    sandboxed: bool,
    key: String,
    value: String,
}

impl ExplainedSandbox {
    fn of_agent(config: &Config, agent: &AgentId) -> Option<Self> {
        let coverage = SandboxCoverage::of_agent(config, agent.as_str())?;
        let session_key = usual_session_key(agent.as_str());
        Some(Self {
            sandboxed: coverage.holds(agent.as_str(), &session_key),
            session_key,
            key: coverage.key,
            value: coverage.value,
        })
    }

    fn text(&self) -> String {
        let Self {
            session_key,
            key,
            value,
            ..
        } = self;
        let is = if self.sandboxed { "is" } else { "is not" };
        format!("sandbox: {session_key} {is} sandboxed ({key} is {value})\n")
    }
}

impl<'a> Explanation<'a> {
    /// The explanation as JSON. If no approval is possible, `refused` replaces the verdict `ask` of
    /// the policy.
    fn with_refusal(&self) -> serde_json::Value {
        let mut value = serde_json::json!(self);
        if self.approval_refused.is_some() {
            value["verdict"] = REFUSED.into();
        }
        value
    }

    fn new(
        command: &'a str,
        agent: &'a AgentId,
        facts: &'a CallFacts,
        evaluation: &'a Evaluation,
        policy: &'a Levels,
        approval: ExplainedApproval,
    ) -> Self {
        let analysis = &evaluation.analysis;
        Self {
            command,
            agent,
            cwd: &analysis.cwd,
            facts,
            plain: analysis.shape.odd().is_none(),
            not_plain: analysis.shape.odd(),
            highlights: match &analysis.shape {
                Shape::Argv => Vec::new(),
                Shape::Plain(_) | Shape::Odd(_) => highlight(command),
            },
            verdict: &evaluation.verdict,
            approval_refused: (approval == ExplainedApproval::Refused).then_some(UNBOUND_CODE),
            next_step: None,
            policy,
            shield: String::new(),
            tree: None,
            elsewhere: None,
            sandbox: None,
            elevated: None,
        }
    }
}
