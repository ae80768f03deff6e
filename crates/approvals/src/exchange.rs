//! Approvals as a gateway sends them to an inbox on another machine, and as the inbox reads them.
//!
//! The inbox shows only what the gateway sent. An approval that it cannot show completely can only
//! be denied. The inbox makes every text visible again, regardless of the gateway.

use interlock_command::display::{ShownLine, ShownText};
use interlock_policy::{AlwaysForm, Entry, NotWider, Wider};
use interlock_store::{ApprovalDecision, ApprovalEnd, ApprovalEnding, ApprovalSummary};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::content::ScriptDiff;
use crate::pending::PendingApproval;
use crate::process::{requester_elsewhere, requester_has_ended};
use crate::view::ApprovalView;

/// The error for approvals that an inbox received and cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what the gateway says of an approval cannot be read: {0}")]
pub struct UnreadableApproval(String);

/// One approval in the list of a remote inbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentSummary {
    id: String,
    short_id: String,
    plan_digest: String,
    content_digest: String,
    binding: String,
    preview: String,
    agent: String,
    session_key: String,
    host: String,
    #[serde(default)]
    node: Option<String>,
    requester: String,
    caller_has_ended: bool,
    created_at_ms: i64,
    expires_at_ms: i64,
}

/// How an approval ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentEnd {
    ending: String,
    #[serde(default)]
    decider: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    at_ms: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentDiff {
    text: String,
    added: usize,
    removed: usize,
    left_out_lines: usize,
}

/// One opened approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentApproval {
    id: String,
    short_id: String,
    plan_digest: String,
    agent: String,
    session_key: String,
    host: String,
    command: String,
    view: ApprovalView,
    cwd: String,
    binding: String,
    binding_reason: String,
    reasons: Vec<String>,
    always: Vec<Entry>,
    always_form: AlwaysForm,
    always_wider: Vec<Wider>,
    always_not_wider: Vec<NotWider>,
    #[serde(default)]
    always_not_offered: Option<String>,
    choices: Vec<String>,
    #[serde(default)]
    diff: Option<SentDiff>,
    requester: String,
    caller_has_ended: bool,
    created_at_ms: i64,
    expires_at_ms: i64,
    #[serde(default)]
    ended: Option<SentEnd>,
    #[serde(default)]
    node: Option<String>,
}

/// A row for the list of a remote inbox.
pub fn summary_to_send(summary: &ApprovalSummary) -> Value {
    json!(SentSummary {
        id: summary.id.clone(),
        short_id: summary.short_id.clone(),
        plan_digest: summary.plan_digest.clone(),
        content_digest: summary.content_digest.clone(),
        binding: summary.binding.clone(),
        preview: summary.preview.clone(),
        agent: summary.agent.clone(),
        session_key: summary.session_key.clone(),
        host: summary.host.clone(),
        node: summary.node.clone(),
        requester: summary.requester.clone(),
        caller_has_ended: requester_has_ended(&summary.requester),
        created_at_ms: summary.created_at_ms,
        expires_at_ms: summary.expires_at_ms,
    })
}

/// Reads the rows that a gateway sent.
pub fn read_summaries(sent: Value) -> Result<Vec<ApprovalSummary>, UnreadableApproval> {
    let sent: Vec<SentSummary> =
        serde_json::from_value(sent).map_err(|error| unreadable(&error))?;
    let read = |one: SentSummary| {
        Ok(ApprovalSummary {
            id: checked_id(one.id)?,
            short_id: checked_id(one.short_id)?,
            plan_digest: one.plan_digest,
            content_digest: one.content_digest,
            binding: one.binding,
            preview: one.preview,
            agent: one.agent,
            session_key: one.session_key,
            host: one.host,
            node: one.node,
            requester: requester_elsewhere(&one.requester, one.caller_has_ended),
            created_at_ms: one.created_at_ms,
            expires_at_ms: one.expires_at_ms,
        })
    };
    sent.into_iter().map(read).collect()
}

impl PendingApproval {
    /// The approval for a remote inbox, with at most `bytes` bytes of each text. If this limit
    /// leaves out more than this host would, no approver there can read the approval, so it can
    /// only be denied.
    pub fn to_send(&self, bytes: usize) -> Value {
        let view = self.view.bounded(bytes);
        let choices: Vec<String> = if view.left_out_lines() > self.view.left_out_lines() {
            vec![ApprovalDecision::Deny.as_str().to_owned()]
        } else {
            let offered = self.offered.iter();
            offered
                .map(|decision| decision.as_str().to_owned())
                .collect()
        };
        let diff = self.diff.as_ref().map(|diff| SentDiff {
            text: diff.text.clone(),
            added: diff.added,
            removed: diff.removed,
            left_out_lines: diff.left_out,
        });
        let ended = self.ended.as_ref().map(|ended| SentEnd {
            ending: ended.ending.as_str().to_owned(),
            decider: ended.decider.clone(),
            reason: ended.reason.clone(),
            at_ms: ended.at_ms,
        });
        json!(SentApproval {
            id: self.id.clone(),
            short_id: self.short_id.clone(),
            plan_digest: self.plan_digest.clone(),
            agent: self.agent.clone(),
            session_key: self.session_key.clone(),
            host: self.host.clone(),
            command: self.command.text.clone(),
            view,
            cwd: self.cwd.clone(),
            binding: self.binding.clone(),
            binding_reason: self.binding_reason.clone(),
            reasons: self.reasons.clone(),
            always: self.always.clone(),
            always_form: self.always_form,
            always_wider: self.wider.clone(),
            always_not_wider: self.not_wider.clone(),
            always_not_offered: self.no_always.clone(),
            choices,
            diff,
            requester: self.requester.clone(),
            caller_has_ended: requester_has_ended(&self.requester),
            created_at_ms: self.created_at_ms,
            expires_at_ms: self.expires_at_ms,
            ended,
            node: self.node.clone(),
        })
    }

    /// Reads an approval that a gateway sent. Unknown decisions are not offered.
    pub fn of_sent(sent: Value) -> Result<Self, UnreadableApproval> {
        let sent: SentApproval =
            serde_json::from_value(sent).map_err(|error| unreadable(&error))?;
        let masked = sent.view.masked_secrets;
        let offered = sent.choices.iter();
        let ended = sent.ended.map(|ended| {
            let ending = ApprovalEnding::from_word(&ended.ending);
            let ending = ending.ok_or_else(|| {
                UnreadableApproval(format!("`{}` is no ending", ShownLine::new(&ended.ending)))
            })?;
            Ok(ApprovalEnd {
                ending,
                decider: ended.decider.map(|text| visible(&text)),
                reason: ended.reason.map(|text| visible(&text)),
                at_ms: ended.at_ms,
            })
        });
        Ok(Self {
            id: checked_id(sent.id)?,
            short_id: checked_id(sent.short_id)?,
            plan_digest: sent.plan_digest,
            agent: sent.agent,
            session_key: sent.session_key,
            host: sent.host,
            command: ShownText {
                text: visible(&sent.command),
                masked,
                spelled_out: 0,
                left_out: 0,
            },
            offered: offered
                .filter_map(|word| ApprovalDecision::offered_as(word))
                .collect(),
            view: sent.view,
            cwd: sent.cwd,
            binding: sent.binding,
            binding_reason: sent.binding_reason,
            reasons: sent.reasons,
            always: sent.always,
            always_form: sent.always_form,
            wider: sent.always_wider,
            not_wider: sent.always_not_wider,
            no_always: sent.always_not_offered,
            diff: sent.diff.map(|diff| ScriptDiff {
                text: diff.text,
                added: diff.added,
                removed: diff.removed,
                left_out: diff.left_out_lines,
            }),
            requester: requester_elsewhere(&sent.requester, sent.caller_has_ended),
            created_at_ms: sent.created_at_ms,
            expires_at_ms: sent.expires_at_ms,
            ended: ended.transpose()?,
            node: sent.node,
            remote: None,
            deliveries: Vec::new(),
        })
    }
}

fn visible(text: &str) -> String {
    ShownLine::new(text).as_str().to_owned()
}

/// Ids are printed as they are, so they may contain only letters, digits and `-`, `_`, `.`.
fn checked_id(id: String) -> Result<String, UnreadableApproval> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !id.is_empty() && id.len() <= 64 && id.bytes().all(is_plain) {
        return Ok(id);
    }
    let shown = visible(&id);
    Err(UnreadableApproval(format!("`{shown}` is no id")))
}

fn unreadable(error: &serde_json::Error) -> UnreadableApproval {
    UnreadableApproval(visible(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{ViewBlock, ViewLabel};

    fn approval() -> PendingApproval {
        let mut view = ApprovalView::default();
        view.field(ViewLabel::Command, "touch marker");
        view.block(ViewBlock {
            label: ViewLabel::Script,
            title: ShownLine::new("build.sh"),
            lines: vec![ShownLine::new(&"x".repeat(100)); 10],
            left_out_lines: 0,
            is_diff: false,
        });
        PendingApproval {
            id: "0f".repeat(16),
            short_id: "kmnpz".to_owned(),
            plan_digest: "sha256:aa".to_owned(),
            agent: "main".to_owned(),
            session_key: "agent:main:main".to_owned(),
            host: "gateway".to_owned(),
            command: ShownText {
                text: "touch marker".to_owned(),
                masked: 0,
                spelled_out: 0,
                left_out: 0,
            },
            view,
            cwd: "/work".to_owned(),
            binding: "native".to_owned(),
            binding_reason: "its file is pinned".to_owned(),
            reasons: vec!["nothing allows it".to_owned()],
            always: vec![Entry::for_pattern("touch".to_owned())],
            always_form: AlwaysForm::Exact,
            wider: vec![Wider {
                form: AlwaysForm::Leading(1),
                entries: vec![Entry::for_pattern("touch".to_owned())],
            }],
            not_wider: Vec::new(),
            no_always: None,
            offered: vec![
                ApprovalDecision::AllowOnce,
                ApprovalDecision::AllowAlways,
                ApprovalDecision::Deny,
            ],
            diff: None,
            requester: "process:elsewhere:7:9".to_owned(),
            created_at_ms: 1,
            expires_at_ms: 2,
            ended: None,
            node: Some("lab".to_owned()),
            remote: None,
            deliveries: Vec::new(),
        }
    }

    #[test]
    fn an_inbox_reads_what_the_gateway_knows() {
        let own = approval();
        let read = PendingApproval::of_sent(own.to_send(64 * 1024)).unwrap();
        let sent = |one: &PendingApproval| {
            let mut value = one.to_json();
            value["requester"] = Value::Null;
            value
        };
        assert_eq!(sent(&read), sent(&own));
        assert!(requester_has_ended(&read.requester));
    }

    #[test]
    fn what_does_not_fit_into_a_message_can_only_be_denied() {
        let read = PendingApproval::of_sent(approval().to_send(300)).unwrap();
        assert_eq!(read.offered, [ApprovalDecision::Deny]);
        assert!(read.view.left_out_lines() > 0);
    }

    #[test]
    fn a_process_elsewhere_is_not_looked_for_here() {
        let mut sent = approval().to_send(64 * 1024);
        sent["callerHasEnded"] = false.into();
        let read = PendingApproval::of_sent(sent).unwrap();
        assert!(!requester_has_ended(&read.requester));
    }

    #[test]
    fn texts_of_a_gateway_cannot_draw_on_the_terminal() {
        let mut sent = approval().to_send(64 * 1024);
        sent["command"] = "ls\u{1b}[2J".into();
        let read = PendingApproval::of_sent(sent.clone()).unwrap();
        assert!(!read.command.text.contains('\u{1b}'));
        sent["shortId"] = "a\u{1b}[2J".into();
        assert!(PendingApproval::of_sent(sent).is_err());
    }
}
