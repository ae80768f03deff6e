//! The approver's view of a run of another host: what the gateway will send, and what the node says
//! about its own plan.

use std::collections::BTreeMap;

use interlock_command::display::{self, Secrets, ShownText};
use interlock_plan::Elevation;
use interlock_policy::{AlwaysForm, Entry};
use interlock_store::lenient_field;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::build::{ViewInput, add_command, add_env, add_input, add_time};
use super::{ApprovalView, ViewLabel, ViewPart};
use crate::pending::shown_command;

/// The limit of a node's statements in a view. The view says when it leaves some out.
const MAX_NODE_VIEW_BYTES: usize = 1024 * 1024;

/// What the gateway will send with a run besides the node's plan. The approval stores it as
/// `runFacts` of its subject.
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
    /// How far the run leaves the sandbox that its conversation has on the gateway.
    #[serde(skip_serializing_if = "Elevation::is_off")]
    pub elevated: Elevation,
}

impl RemoteRunFacts {
    /// The key of the variables alone, where a client itself runs an allowed command.
    pub const ENV_KEY: &str = "runEnv";
    /// The key of the node's name. A node chooses its name, so its id is shown as well.
    pub const NODE_NAME_KEY: &str = "nodeName";
}

/// The subject of an approval for a run of the caller's own shell.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElsewhereSubject<'a> {
    pub command: &'a str,
    pub cwd: &'a str,
    pub host: &'static str,
    pub agent_id: &'a str,
    pub session_key: &'a str,
    pub allowed_decisions: [&'static str; 2],
    /// The name of that shell. Only this host writes this property; subjects of clients and nodes
    /// do not have it.
    pub runs_elsewhere: &'a str,
    pub notes: ElsewhereNotes,
}

/// The notes of this host about such a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElsewhereNotes {
    pub binding: &'static str,
    pub binding_reason: String,
    pub reasons: Vec<String>,
    pub no_always: String,
}

/// The part of a remote approval's stored subject that an approver is shown.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RemoteSubject {
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) command: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) cwd: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    env_keys: Vec<Value>,
    #[serde(deserialize_with = "lenient_field")]
    node_name: Option<String>,
    /// The node's own statements, which are not trusted.
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) notes: RemoteNotes,
    #[serde(deserialize_with = "lenient_field")]
    run_env: BTreeMap<String, String>,
    #[serde(deserialize_with = "lenient_field")]
    run_facts: Option<RemoteRunFacts>,
    /// See [`ElsewhereSubject::runs_elsewhere`].
    #[serde(deserialize_with = "lenient_field")]
    runs_elsewhere: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    system_run_plan: RemotePlanText,
}

impl RemoteSubject {
    pub(crate) fn read(subject: &Value) -> Self {
        Self::deserialize(subject).unwrap_or_default()
    }

    pub(crate) fn shown_command(&self, secrets: Secrets) -> ShownText {
        shown_command(self.command.as_deref().unwrap_or_default(), secrets)
    }
}

/// The other host's own notes about a run. Approvers read them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RemoteNotes {
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) always: Vec<Entry>,
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) always_form: AlwaysForm,
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) binding: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) binding_reason: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) no_always: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    pub(crate) reasons: Option<Vec<String>>,
    #[serde(deserialize_with = "lenient_field")]
    view: ApprovalView,
}

/// The command texts in the plan of a node.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RemotePlanText {
    #[serde(deserialize_with = "lenient_field")]
    command_text: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    command_preview: Option<String>,
}

pub(crate) fn build_remote_view(
    subject: &RemoteSubject,
    node: Option<&str>,
    secrets: Secrets,
) -> ApprovalView {
    let mut view = ApprovalView::default();
    let plan = &subject.system_run_plan;
    let command = plan
        .command_text
        .as_deref()
        .or(unless_empty(subject.command.as_ref()));
    add_command(&mut view, command.unwrap_or_default(), secrets);
    let preview = plan.command_preview.as_deref();
    if let Some(preview) = preview.filter(|preview| Some(*preview) != command) {
        view.field(ViewLabel::Runs, &format!("the text {preview}"));
    }
    let said = &subject.notes.view;
    for runs in said.values(ViewLabel::Runs) {
        let (lines, masked) = display::command_lines(runs.as_str(), secrets);
        view.masked_secrets += masked;
        for line in lines {
            view.field(ViewLabel::Runs, line.as_str());
        }
    }
    if let Some(cwd) = unless_empty(subject.cwd.as_ref()) {
        view.field(ViewLabel::Directory, cwd);
    }
    let known_facts = subject.run_facts.as_ref();
    let env = known_facts.map_or(&subject.run_env, |facts| &facts.env);
    for (name, value) in env {
        add_env(&mut view, name, value, secrets);
    }
    for name in subject.env_keys.iter().filter_map(Value::as_str) {
        if !env.contains_key(name) {
            view.warning(
                ViewLabel::Env,
                &format!("{name} is set; its value is not known here"),
            );
        }
    }
    if let Some(node) = node {
        let name = unless_empty(subject.node_name.as_ref()).filter(|name| *name != node);
        let shown = name.map_or_else(|| node.to_owned(), |name| format!("{name} ({node})"));
        view.field(ViewLabel::Host, &format!("the node {shown}"));
    }
    let input = ViewInput {
        terminal: known_facts.is_some_and(|facts| facts.pty).then(String::new),
        stdin_is_open: known_facts.is_some_and(|facts| facts.stdin_pipe),
    };
    add_input(&mut view, &input);
    if let Some(runner) = unless_empty(subject.runs_elsewhere.as_ref()) {
        let text = format!(
            "{runner} runs it, not Interlock: it is not bound, not shielded and not race-free, and its environment and limits \
             are not known here"
        );
        view.warning(ViewLabel::Race, &text);
    } else if let Some(facts) = known_facts {
        if facts.elevated.leaves() {
            view.leave_sandbox(facts.elevated);
        }
        add_time(&mut view, facts.timeout_ms, facts.background_after_ms);
    } else {
        let text = "another program runs it: what that does not say is not shown";
        view.warning(ViewLabel::Note, text);
    }
    add_said(
        &mut view,
        said,
        &[
            ViewLabel::Limits,
            ViewLabel::Sandbox,
            ViewLabel::Shield,
            ViewLabel::Programs,
            ViewLabel::Race,
            ViewLabel::Manifest,
            ViewLabel::Script,
        ],
    );
    view
}

fn unless_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// Adds the node's statements under these labels. Every line was made visible when it was read.
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
