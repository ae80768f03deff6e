//! Questions to the person at a client, if the operator trusts the client program to show them.
//!
//! The connection that asks never decides. The person to whom the client shows the prompt decides,
//! on a separate surface with a name that says so.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use interlock_approvals::{
    ApprovalDecision, ApprovalRefusal, DecisionBy, OutsideRuns, PendingApproval, ViewLabel,
    ViewPart,
};
use interlock_command::display::ShownLine;
use interlock_dispatch::Dispatcher;
use interlock_dispatch::tools::Asker;
use interlock_dispatch::work::{CallError, blocking};
use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientResult, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema,
    Implementation, RequestId, ServerRequest,
};
use rmcp::{Peer, RoleServer};

/// The only field of the form.
const FIELD: &str = "decision";

/// How much of a client's self-chosen name is shown.
const NAME_CHARS: usize = 80;

/// The part of a message that clients always show on a terminal of normal size. Claude Code shows
/// three lines and cuts each at the width of the terminal; Codex shows as much as fits above its
/// choices. Neither says how to see the rest, and both accept an answer without it.
const SHOWN_LINES: usize = 3;
const SHOWN_COLUMNS: usize = 72;

/// Whether a client can show a form. Elicitation without modes means forms.
pub fn shows_forms(capabilities: Option<&ClientCapabilities>) -> bool {
    let elicitation = capabilities.and_then(|all| all.elicitation.as_ref());
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// The person at a client.
#[derive(Debug, Clone)]
pub(super) struct ElicitPerson {
    pub(super) dispatcher: Arc<Dispatcher>,
    /// The surface of the question, as deliveries record it.
    pub(super) surface: String,
    /// The decider's name, as other surfaces show it.
    pub(super) decider: String,
    pub(super) offers: Offers,
}

/// The decisions that a form offers. None of them outlasts the client's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offers {
    /// For a client without a session.
    Once,
    Session,
}

impl Offers {
    fn rows(self) -> &'static [ApprovalDecision] {
        const ROWS: [ApprovalDecision; 3] = [
            ApprovalDecision::AllowOnce,
            ApprovalDecision::Deny,
            ApprovalDecision::AllowSession,
        ];
        match self {
            Self::Once => &ROWS[..2],
            Self::Session => &ROWS,
        }
    }
}

impl ElicitPerson {
    pub(super) fn new(
        dispatcher: &Arc<Dispatcher>,
        surface: String,
        client: Option<&Implementation>,
        offers: Offers,
    ) -> Self {
        let visible = |text: &str| -> String {
            let shown = text.chars().filter(|character| {
                character.is_alphanumeric() || matches!(character, ' ' | '-' | '_' | '.')
            });
            shown.take(NAME_CHARS).collect()
        };
        let decider = match client {
            Some(client) => format!(
                "elicitation by {} {}",
                visible(&client.name),
                visible(&client.version)
            ),
            None => "elicitation by an unnamed client".to_owned(),
        };
        Self {
            dispatcher: Arc::clone(dispatcher),
            surface,
            decider,
            offers,
        }
    }

    /// Records that the question is shown here. Without this record, nothing can be decided here.
    pub(super) async fn shown(&self, approval: &PendingApproval) -> Result<(), CallError> {
        let (person, id) = (self.clone(), approval.id.clone());
        let seen = blocking(move || {
            person
                .dispatcher
                .host
                .approvals()
                .seen(&id, &person.surface)
        })
        .await?;
        Ok(seen?)
    }

    /// Records the answer. Not every answer is a decision, and another approver may have decided
    /// first.
    pub(super) async fn answered(
        &self,
        id: &str,
        plan_digest: &str,
        answer: &ElicitResult,
    ) -> Result<(), CallError> {
        let Some(decision) = decision(answer, self.offers) else {
            return Ok(());
        };
        let (person, id, plan_digest) = (self.clone(), id.to_owned(), plan_digest.to_owned());
        let decided = blocking(move || person.decide(&id, &plan_digest, decision)).await?;
        self.dispatcher.approvals.look_now();
        if let Err(error) = decided {
            // The caller that waits for the approval reads its outcome.
            tracing::info!(%error, surface = self.surface, "an elicited answer did not count");
        }
        Ok(())
    }

    fn decide(
        &self,
        id: &str,
        plan_digest: &str,
        decision: ApprovalDecision,
    ) -> Result<(), ApprovalRefusal> {
        let by = DecisionBy {
            decider: &self.decider,
            surface: &self.surface,
            // A field for the reason would leave less room for the command on the client's screen.
            reason: None,
            has_shown: true,
            outside: OutsideRuns::this_process(&self.dispatcher.supervisor)?,
        };
        let approvals = self.dispatcher.host.approvals();
        approvals.decide(id, plan_digest, decision, by).map(|_| ())
    }
}

/// The decision in a person's answer. Declining denies. Closing the prompt, or an answer outside of
/// the offered ones, leaves the decision to other surfaces.
fn decision(answer: &ElicitResult, offers: Offers) -> Option<ApprovalDecision> {
    match answer.action {
        ElicitationAction::Decline => Some(ApprovalDecision::Deny),
        ElicitationAction::Accept => {
            let chosen = answer.content.as_ref()?.get(FIELD)?.as_str()?;
            let mut rows = offers.rows().iter();
            rows.find(|decision| decision.as_str() == chosen).copied()
        }
        _ => None,
    }
}

/// The question as a form. `None` if clients would not show the whole command and its directory:
/// then clients are not asked.
pub(super) fn form(approval: &PendingApproval, offers: Offers) -> Option<ElicitRequestParams> {
    let message = message(approval)?;
    let choices = offers
        .rows()
        .iter()
        .filter(|decision| approval.offers(**decision))
        .map(|decision| decision.as_str().to_owned())
        .collect();
    let choice = EnumSchema::builder(choices)
        .title("Decision")
        .description("What becomes of the command")
        .build();
    Some(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: ElicitationSchema::builder()
            .required_enum_schema(FIELD, choice)
            .build()
            .unwrap_or_else(|_| ElicitationSchema::new(std::collections::BTreeMap::new())),
    })
}

/// Whether clients show everything that the decision depends on.
pub(super) fn is_shown_whole(approval: &PendingApproval) -> bool {
    head(approval).is_some()
}

/// The lines that every client shows: the whole command with invisible characters spelled out, its
/// directory, its environment, and whether the caller can type into it. A script's content does not
/// fit into these lines, so clients are not asked about scripts.
fn head(approval: &PendingApproval) -> Option<Vec<String>> {
    let view = &approval.view;
    let is_text = |part: &ViewPart| match part {
        ViewPart::Block(block) => block.label != ViewLabel::Command,
        ViewPart::Field(field) => field.label == ViewLabel::Script,
    };
    if approval.command.left_out > 0 || view.parts.iter().any(is_text) {
        return None;
    }
    let mut head = rows(&format!("Run: {}", approval.command.text));
    let cwd = ShownLine::new(&approval.cwd);
    head.extend(rows(&format!("in {cwd}")));
    let env: Vec<&str> = view.values(ViewLabel::Env).map(ShownLine::as_str).collect();
    if !env.is_empty() {
        head.extend(rows(&format!("with {}", env.join(" "))));
    }
    for label in [ViewLabel::Terminal, ViewLabel::Stdin] {
        for value in view.values(label) {
            head.extend(rows(&format!("{} {value}", label.as_str())));
        }
    }
    (head.len() <= SHOWN_LINES).then_some(head)
}

/// Breaks a text into lines that no client cuts. Characters outside of ASCII count as two columns.
fn rows(text: &str) -> Vec<String> {
    let (mut rows, mut row, mut columns) = (Vec::new(), String::new(), 0);
    for character in text.chars() {
        let width = if character.is_ascii() { 1 } else { 2 };
        if columns + width > SHOWN_COLUMNS {
            rows.push(std::mem::take(&mut row));
            columns = 0;
        }
        row.push(character);
        columns += width;
    }
    rows.push(row);
    rows
}

/// The message: first the lines that the decision depends on, then the rest of the view.
fn message(approval: &PendingApproval) -> Option<String> {
    let mut lines = head(approval)?;
    let in_head = [
        ViewLabel::Command,
        ViewLabel::Env,
        ViewLabel::Terminal,
        ViewLabel::Stdin,
    ];
    for part in &approval.view.parts {
        if let ViewPart::Field(field) = part
            && !in_head.contains(&field.label)
        {
            lines.push(format!("{}: {}", field.label.as_str(), field.value));
        }
    }
    if approval.view.masked_secrets > 0 {
        lines.push("what looks like a secret is masked".to_owned());
    }
    lines.push(format!("approval {}", approval.short_id));
    Some(lines.join("\n"))
}

/// A client of a protocol version in which servers may ask.
#[derive(Debug, Clone)]
pub(super) struct ElicitClient {
    pub(super) person: ElicitPerson,
    pub(super) peer: Peer<RoleServer>,
}

impl Asker for ElicitClient {
    fn ask(&self, approval: PendingApproval) -> BoxFuture<'static, ()> {
        let client = self.clone();
        async move { client.elicit(&approval).await.unwrap_or_default() }.boxed()
    }
}

impl ElicitClient {
    /// Asks the client. `None` if the question is not for clients, or the client or the store is
    /// gone: then other surfaces decide.
    async fn elicit(&self, approval: &PendingApproval) -> Option<()> {
        let form = form(approval, self.person.offers)?;
        self.person.shown(approval).await.ok()?;
        let answer = ask(&self.peer, form).await?;
        let digest = &approval.plan_digest;
        let recorded = self.person.answered(&approval.id, digest, &answer).await;
        recorded.ok()
    }
}

/// Shows a form to the person at a client of a protocol version in which servers may ask. `None` if
/// the client is gone or gives no answer. If the call ends first, the form is withdrawn.
pub async fn ask(peer: &Peer<RoleServer>, form: ElicitRequestParams) -> Option<ElicitResult> {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
    let options = rmcp::service::PeerRequestOptions::no_options();
    let mut sent = peer.send_cancellable_request(request, options).await.ok()?;
    let mut open = OpenPrompt(Some((peer.clone(), sent.id.clone())));
    let answer = (&mut sent.rx).await;
    open.0 = None;
    match answer.ok()?.ok()? {
        ClientResult::ElicitResult(answer) => Some(answer),
        _ => None,
    }
}

/// A prompt at a client. Dropping it withdraws the prompt if it is still unanswered.
struct OpenPrompt(Option<(Peer<RoleServer>, RequestId)>);

impl Drop for OpenPrompt {
    fn drop(&mut self) {
        if let Some((peer, id)) = self.0.take() {
            tokio::spawn(async move {
                let reason = "answered elsewhere, or not waited for any more".to_owned();
                let cancelled = CancelledNotificationParam::new(Some(id), Some(reason));
                let _ = peer.notify_cancelled(cancelled).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_comes_whole_in_rows_that_no_client_cuts() {
        for (text, lengths) in [
            (String::new(), vec![0]),
            ("x".repeat(72), vec![72]),
            ("x".repeat(73), vec![72, 1]),
            ("語".repeat(37), vec![36, 1]),
        ] {
            let rows = rows(&text);
            let shown: Vec<usize> = rows.iter().map(|row| row.chars().count()).collect();
            assert_eq!(shown, lengths, "{text}");
            assert_eq!(rows.concat(), text);
        }
    }

    #[test]
    fn only_a_clear_answer_decides() {
        let accepted = |content| ElicitResult::new(ElicitationAction::Accept).with_content(content);
        let rows = [
            (
                accepted(json!({ "decision": "allow-once" })),
                Some(ApprovalDecision::AllowOnce),
            ),
            (
                accepted(json!({ "decision": "allow-session" })),
                Some(ApprovalDecision::AllowSession),
            ),
            (
                accepted(json!({ "decision": "deny" })),
                Some(ApprovalDecision::Deny),
            ),
            (accepted(json!({ "decision": "allow-always" })), None),
            (accepted(json!({ "decision": true })), None),
            (accepted(json!({})), None),
            (accepted(json!("allow-once")), None),
            (ElicitResult::new(ElicitationAction::Accept), None),
            (
                ElicitResult::new(ElicitationAction::Decline),
                Some(ApprovalDecision::Deny),
            ),
            (ElicitResult::new(ElicitationAction::Cancel), None),
        ];
        for (answer, expected) in rows {
            assert_eq!(decision(&answer, Offers::Session), expected, "{answer:?}");
            let without = expected.filter(|decision| *decision != ApprovalDecision::AllowSession);
            assert_eq!(decision(&answer, Offers::Once), without, "{answer:?}");
        }
    }
}
