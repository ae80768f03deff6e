//! `interlock explain --node`: the verdict of the node itself, asked through the gateway.

use std::process::ExitCode;

use interlock_command::Source;
use interlock_host::LocalHost;
use interlock_policy::{AgentId, Ask, Levels, quote};
use serde_json::{Value, json};

use super::super::{CommandOutcome, level_row, nodes, request};
use crate::args::{ExplainArguments, StateArguments, StdinArgument};
use crate::gateway_client::GatewayClient;
use crate::output::{self, Paint, line, visible};

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
        // As gateways send every text.
        Source::Text(text) => vec!["/bin/sh".to_owned(), "-lc".to_owned(), text.clone()],
        Source::Argv(words) => words.clone(),
    };
    let mut gateway = GatewayClient::connect(state, host)?;
    let node = nodes::resolve_named(&mut gateway, node)?;
    let mut params = json!({
        "nodeId": node.id,
        "agentId": agent.as_str(),
        "command": command,
        "env": request::environment(&call.env)?,
        "pty": arguments.pty,
        "stdinPipe": arguments.stdin == StdinArgument::Pipe,
    });
    if let Some(cwd) = &call.cwd {
        params["cwd"] = request::utf8(&cwd.clone().into_os_string())?.into();
    }
    if let Some(ask) = call.ask {
        params["ask"] = Ask::from(ask).to_string().into();
    }
    let told = match gateway.call("node.explain", &params) {
        Ok(told) => told,
        // A node of another program, or of an earlier version: its policy is all that it tells.
        Err(refused) if refused.is_unsupported() => {
            return unexplained(state, host, agent, &node, call.json);
        }
        Err(refused) => return Err(refused.into()),
    };
    let shown = super::shown_command(&source);
    if call.json {
        let mut told = told;
        told["command"] = shown.into();
        told["node"] = node.name.into();
        output::print_json(&told);
    } else {
        output::print(&text(&shown, &node, &told, Paint::stdout()));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of a node that does not tell its verdicts. It is said that it is not the verdict.
fn unexplained(
    state: &StateArguments,
    host: &LocalHost,
    agent: &AgentId,
    node: &nodes::NamedNode,
    json: bool,
) -> CommandOutcome {
    let policy = nodes::NodePolicy::read(state, host, Some(&node.id), agent)?;
    let why = "the node does not tell its verdicts: this is its policy, and it judges when it runs";
    if json {
        let mut value = policy.to_json();
        value["notExplained"] = why.into();
        output::print_json(&value);
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = format!("on the node {}\n", node.shown());
    out += &output::table(&policy.rows(), "  ");
    output::print(&out);
    output::note(&format!("warning: {why}"));
    Ok(ExitCode::SUCCESS)
}

fn text(command: &str, node: &nodes::NamedNode, told: &Value, paint: Paint) -> String {
    let said = |value: &Value| value.as_str().map(visible).unwrap_or_default();
    let word = said(&told["verdict"]);
    let margin = " ".repeat(word.len() + 2);
    let mut out = format!(
        "{}  {}\n",
        paint.verdict(&word),
        paint.command(&line(command))
    );
    out += &format!("{margin}{}\n", said(&told["reason"]["message"]));
    if let Some(origin) = told["reason"]["origin"].as_str() {
        out += &format!(
            "{margin}{}\n",
            paint.dim(&format!("rule: {}", line(origin)))
        );
    }
    out += &format!(
        "{margin}on the node {}, in {}\n",
        node.shown(),
        said(&told["cwd"])
    );
    let segments: Vec<Vec<String>> = told["segments"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|segment| {
            let words = segment["argv"].as_array().into_iter().flatten();
            let words: Vec<String> = words.filter_map(Value::as_str).map(quote).collect();
            let mark = if segment["satisfiedBy"].is_null() {
                "miss"
            } else {
                "ok"
            };
            vec![
                mark.to_owned(),
                visible(&words.join(" ")),
                segment["resolved"].as_str().map_or("-".to_owned(), visible),
                said(&segment["reason"]["message"]),
            ]
        })
        .collect();
    if !segments.is_empty() {
        out += &format!("\ncommands\n{}", output::table(&segments, "  "));
    }
    if let Ok(levels) = serde_json::from_value::<Levels>(told["policy"].clone()) {
        let rows = [
            level_row("security", &levels.security),
            level_row("ask", &levels.ask),
            level_row("askFallback", &levels.ask_fallback),
        ];
        out += &format!("\npolicy of the node\n{}", output::table(&rows, "  "));
    }
    let shield = said(&told["shield"]);
    if !shield.starts_with("shielded") {
        out += &format!("shield: {shield}\n");
    }
    out
}
