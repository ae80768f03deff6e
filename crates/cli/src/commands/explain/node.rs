//! `interlock explain --node`: asks the node for its verdict, through the gateway.

use std::process::ExitCode;

use interlock_arguments::{ExplainArguments, StateArguments, StdinArgument};
use interlock_client::{GatewayClient, read_relayed, request};
use interlock_command::Source;
use interlock_console::output::{self, Paint, line, visible};
use interlock_console::{CommandOutcome, level_row};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, Ask, Levels, quote};
use interlock_wire::params::NodeExplain;
use interlock_wire::results::NodeExplanation;
use serde::Deserialize as _;
use serde_json::Value;

use super::super::nodes;

pub(super) fn run(
    state: &StateArguments,
    host: &LocalHost,
    agent: &AgentId,
    node: &str,
    arguments: &ExplainArguments,
) -> CommandOutcome {
    let call = &arguments.request;
    let source = request::source(call)?;
    let command = match &source {
        // Gateways send every text in this form.
        Source::Text(text) => vec!["/bin/sh".to_owned(), "-lc".to_owned(), text.clone()],
        Source::Argv(words) => words.clone(),
    };
    let mut gateway = GatewayClient::connect(state, host)?;
    let node = nodes::resolve_named(&mut gateway, node)?;
    let cwd = call.cwd.clone().map(std::path::PathBuf::into_os_string);
    let params = NodeExplain {
        node_id: node.id.clone(),
        command,
        agent_id: Some(agent.to_string()),
        cwd: cwd.map(|cwd| request::utf8(&cwd)).transpose()?,
        env: Some(request::environment(&call.env)?),
        pty: Some(arguments.pty),
        stdin_pipe: Some(arguments.stdin == StdinArgument::Pipe),
        ask: call.ask.map(|ask| Ask::from(ask).to_string()),
    };
    let explanation = match gateway.request(&params) {
        Ok(explanation) => explanation,
        // A foreign node or an earlier version reports only its policy.
        Err(refused) if refused.is_unsupported() => {
            return unexplained(state, host, agent, &node, call.json);
        }
        Err(refused) => return Err(refused.into()),
    };
    let shown = super::shown_command(&source);
    if call.json {
        output::print_json(&explanation.with("command", shown).with("node", node.name));
    } else {
        let explanation = read_relayed::<NodeExplain, _>(&explanation)?;
        output::print(&text(&shown, &node, &explanation, Paint::stdout()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the policy of a node that does not report verdicts, and notes that this is not a verdict.
fn unexplained(
    state: &StateArguments,
    host: &LocalHost,
    agent: &AgentId,
    node: &nodes::NamedNode,
    json: bool,
) -> CommandOutcome {
    let policy = nodes::NodePolicy::read(state, host, Some(&node.id), agent)?;
    let why = "the node does not report verdicts: this is its policy, and the node judges the command when it runs";
    if json {
        let mut value = policy.to_json();
        if let Value::Object(fields) = &mut value {
            fields.insert("notExplained".to_owned(), why.into());
        }
        output::print_json(&value);
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = format!("on the node {}\n", node.shown());
    out += &output::table(&policy.rows(), "  ");
    output::print(&out);
    output::note(&format!("warning: {why}"));
    Ok(ExitCode::SUCCESS)
}

fn text(
    command: &str,
    node: &nodes::NamedNode,
    explanation: &NodeExplanation,
    paint: Paint,
) -> String {
    let visible_text = |text: &Option<String>| text.as_deref().map(visible).unwrap_or_default();
    let word = visible_text(&explanation.verdict);
    let margin = " ".repeat(word.len() + 2);
    let mut out = format!(
        "{}  {}\n",
        paint.verdict(&word),
        paint.command(&line(command))
    );
    out += &format!("{margin}{}\n", visible_text(&explanation.reason.message));
    if let Some(origin) = &explanation.reason.origin {
        out += &format!(
            "{margin}{}\n",
            paint.dim(&format!("rule: {}", line(origin)))
        );
    }
    out += &format!(
        "{margin}on the node {}, in {}\n",
        node.shown(),
        visible_text(&explanation.cwd)
    );
    let segments = explanation.segments.iter().map(|segment| {
        let words: Vec<String> = segment.argv.iter().map(|word| quote(word)).collect();
        let mark = if segment.satisfied_by.is_null() {
            "miss"
        } else {
            "ok"
        };
        vec![
            mark.to_owned(),
            visible(&words.join(" ")),
            segment.resolved.as_deref().map_or("-".to_owned(), visible),
            visible_text(&segment.reason.message),
        ]
    });
    let segments: Vec<Vec<String>> = segments.collect();
    if !segments.is_empty() {
        out += &format!("\ncommands\n{}", output::table(&segments, "  "));
    }
    if let Ok(levels) = Levels::deserialize(&explanation.policy) {
        let rows = [
            level_row("security", &levels.security),
            level_row("ask", &levels.ask),
            level_row("askFallback", &levels.ask_fallback),
        ];
        out += &format!("\npolicy of the node\n{}", output::table(&rows, "  "));
    }
    let shield = visible_text(&explanation.shield);
    if !shield.starts_with("shielded") {
        out += &format!("shield: {shield}\n");
    }
    out
}
