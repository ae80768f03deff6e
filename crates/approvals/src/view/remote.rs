//! What an approver reads of a run that another host makes: what its gateway will send, and what
//! the node says of its own plan.

use std::collections::BTreeMap;

use interlock_command::display::{self, Secrets};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::build::{ViewInput, add_command, add_env, add_input, add_time};
use super::{ApprovalView, ViewLabel, ViewPart};

/// The property of a subject whose approval lets the caller's own shell run something: it names that
/// shell. Only this host writes it; subjects of clients and nodes have no such property.
pub const RUNS_ELSEWHERE: &str = "runsElsewhere";

/// More of what a node says is not shown; it is said that it is not.
const MAX_NODE_VIEW_BYTES: usize = 1024 * 1024;

/// What the gateway will send with a run beyond the plan of its node. It is stored with the
/// approval, under [`RemoteRunFacts::KEY`] of its subject.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteRunFacts {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    pub pty: bool,
    pub stdin_pipe: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_after_ms: Option<u64>,
}

impl RemoteRunFacts {
    pub const KEY: &str = "runFacts";
    /// Holds the variables alone, where a client runs what is allowed by itself.
    pub const ENV_KEY: &str = "runEnv";
    /// What the node is called; its id stands beside it, since a node chooses its name.
    pub const NODE_NAME_KEY: &str = "nodeName";
}

/// `subject` is what is stored; `notes` is what the node says, and is not trusted.
pub(crate) fn build_remote_view(
    subject: &Value,
    notes: &Value,
    node: Option<&str>,
    secrets: Secrets,
) -> ApprovalView {
    let mut view = ApprovalView::default();
    let text = |name: &str| subject[name].as_str().filter(|text| !text.is_empty());
    let plan = &subject["systemRunPlan"];
    let command = plan["commandText"].as_str().or(text("command"));
    add_command(&mut view, command.unwrap_or_default(), secrets);
    let preview = plan["commandPreview"].as_str();
    if let Some(preview) = preview.filter(|preview| Some(*preview) != command) {
        view.field(ViewLabel::Runs, &format!("the text {preview}"));
    }
    let said = ApprovalView::deserialize(&notes["view"]).unwrap_or_default();
    for runs in said.values(ViewLabel::Runs) {
        let (lines, masked) = display::command_lines(runs.as_str(), secrets);
        view.masked_secrets += masked;
        for line in lines {
            view.field(ViewLabel::Runs, line.as_str());
        }
    }
    if let Some(cwd) = text("cwd") {
        view.field(ViewLabel::Directory, cwd);
    }
    let facts = RemoteRunFacts::deserialize(&subject[RemoteRunFacts::KEY]);
    let facts_known = facts.is_ok();
    let facts = facts.unwrap_or_default();
    let said_env = BTreeMap::deserialize(&subject[RemoteRunFacts::ENV_KEY]).unwrap_or_default();
    let env: &BTreeMap<String, String> = if facts_known { &facts.env } else { &said_env };
    for (name, value) in env {
        add_env(&mut view, name, value, secrets);
    }
    let names = subject["envKeys"].as_array().into_iter().flatten();
    for name in names.filter_map(Value::as_str) {
        if !env.contains_key(name) {
            view.warning(
                ViewLabel::Env,
                &format!("{name} is set; its value is not known here"),
            );
        }
    }
    if let Some(node) = node {
        let name = text(RemoteRunFacts::NODE_NAME_KEY).filter(|name| *name != node);
        let shown = name.map_or_else(|| node.to_owned(), |name| format!("{name} ({node})"));
        view.field(ViewLabel::Host, &format!("the node {shown}"));
    }
    let input = ViewInput {
        terminal: facts.pty.then(String::new),
        stdin_is_open: facts.stdin_pipe,
    };
    add_input(&mut view, &input);
    if let Some(runner) = text(RUNS_ELSEWHERE) {
        let text = format!(
            "{runner} runs it, not Interlock: it is not bound, not shielded and not race-free, and its environment and limits \
             are not known here"
        );
        view.warning(ViewLabel::Race, &text);
    } else if facts_known {
        add_time(&mut view, facts.timeout_ms, facts.background_after_ms);
    } else {
        let text = "another program runs it: what that does not say is not shown";
        view.warning(ViewLabel::Note, text);
    }
    add_said(
        &mut view,
        &said,
        &[
            ViewLabel::Limits,
            ViewLabel::Sandbox,
            ViewLabel::Shield,
            ViewLabel::Race,
            ViewLabel::Manifest,
            ViewLabel::Script,
        ],
    );
    view
}

/// Adds what the node says under these labels. Every line of it was made visible when it was read.
fn add_said(view: &mut ApprovalView, said: &ApprovalView, labels: &[ViewLabel]) {
    let mut left = MAX_NODE_VIEW_BYTES;
    for part in &said.parts {
        let (label, bytes) = match part {
            ViewPart::Field(field) => (field.label, field.value.as_str().len()),
            ViewPart::Block(block) => {
                let lines = block.lines.iter().map(|line| line.as_str().len() + 1);
                (
                    block.label,
                    block.title.as_str().len() + lines.sum::<usize>(),
                )
            }
        };
        if !labels.contains(&label) {
            continue;
        }
        match left.checked_sub(bytes) {
            Some(rest) => {
                left = rest;
                view.parts.push(part.clone());
            }
            None => {
                let text = format!("{bytes} bytes that the node says of it are not shown");
                view.warning(label, &text);
            }
        }
    }
}
