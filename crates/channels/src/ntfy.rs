//! ntfy: a notification with *Review* and *Deny*. ntfy cannot identify who taps, so nothing can be
//! allowed with it unless the owner enables that.

use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_store::ApprovalDecision;
use interlock_wire::Secret;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::channel::{ChatChannel, ChatFuture, ChatTap, MessageRef, NewMessage};
use crate::http::{ServiceAccount, ServiceCall};
use crate::message::ChatMessage;
use crate::settings::AccountSetup;

/// The longest message. The server stores longer ones as attachments.
const MOST_BYTES: usize = 4096;

/// The path at which tickets are redeemed, below the address of the pages.
pub const NTFY_TICKET_PATH: &str = "hooks/ticket/";

/// Makes and checks tickets. Each stands for one decision about one approval.
#[derive(Debug, Clone)]
pub struct NtfyTickets(Secret);

impl NtfyTickets {
    pub fn new(key: Secret) -> Self {
        Self(key)
    }

    fn ticket(&self, id: &str, plan_digest: &str, decision: ApprovalDecision) -> String {
        let word = decision.as_str();
        format!("{word}.{id}.{}", self.seal(id, plan_digest, word))
    }

    fn seal(&self, id: &str, plan_digest: &str, word: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.expose().as_bytes())
            .unwrap_or_else(|_| unreachable!("a key of any length will do"));
        mac.update(b"interlock ntfy ticket v1|");
        mac.update(format!("{id}|{plan_digest}|{word}").as_bytes());
        let bytes = mac.finalize().into_bytes();
        bytes.iter().fold(String::new(), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        })
    }

    /// Returns the approval and the decision that a ticket names, without checking the ticket.
    pub fn read(ticket: &str) -> Option<(&str, ApprovalDecision)> {
        let mut parts = ticket.split('.');
        let (word, id, _seal) = (parts.next()?, parts.next()?, parts.next()?);
        let decision = ApprovalDecision::from_word(word, None)?;
        let is_known = matches!(
            decision,
            ApprovalDecision::AllowOnce | ApprovalDecision::Deny
        );
        (parts.next().is_none() && is_known).then_some((id, decision))
    }

    /// Whether this gateway made the ticket for this plan.
    pub fn is_good(&self, ticket: &str, plan_digest: &str) -> bool {
        let Some((id, decision)) = Self::read(ticket) else {
            return false;
        };
        Secret::new(self.ticket(id, plan_digest, decision)).matches(ticket)
    }
}

/// One topic.
#[derive(Debug)]
pub(crate) struct NtfyTopic {
    account: ServiceAccount,
    topic: String,
    tickets: NtfyTickets,
}

impl NtfyTopic {
    pub(crate) fn new(setup: &AccountSetup, tickets: NtfyTickets) -> Self {
        Self {
            account: ServiceAccount::new(setup),
            topic: setup.topic.clone().unwrap_or_default(),
            tickets,
        }
    }

    fn body(&self, message: &ChatMessage) -> Value {
        let mut actions = Vec::new();
        if let (Some(link), Some(subject)) = (&message.link, &message.subject) {
            let base = link.strip_suffix(&format!("approve/{}", subject.id));
            let redeemed = |decision, label: &str| {
                let ticket = self
                    .tickets
                    .ticket(&subject.id, &subject.plan_digest, decision);
                let base = base.unwrap_or_default();
                json!({
                    "action": "http", "label": label, "method": "POST", "clear": true,
                    "url": format!("{base}{NTFY_TICKET_PATH}{ticket}"),
                })
            };
            actions.push(json!({ "action": "view", "label": "Review", "url": link }));
            for button in message.buttons.iter().filter(|_| base.is_some()) {
                match button.tap {
                    ChatTap::Deny => {
                        actions.push(redeemed(ApprovalDecision::Deny, "Deny"));
                    }
                    ChatTap::AllowOnce => {
                        actions.push(redeemed(ApprovalDecision::AllowOnce, "Allow once"));
                    }
                    ChatTap::AllowAlways => {}
                }
            }
        }
        json!({
            "topic": self.topic,
            "title": message.title,
            "message": shown(message),
            "priority": 4,
            "actions": actions,
        })
    }
}

/// Returns the text below the title. It omits decisions to type, because ntfy receives none.
fn shown(message: &ChatMessage) -> String {
    match message.note.split_once(" · ") {
        Some((_, why)) => format!("{}\n{why}", message.block),
        None => message.block.clone(),
    }
}

impl ChatChannel for NtfyTopic {
    fn fits(&self, message: &ChatMessage) -> bool {
        shown(message).len() <= MOST_BYTES && message.title.len() <= 250
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef> {
        Box::pin(async move {
            let account = &self.account;
            let mut call = ServiceCall::post("/", &self.body(new.message));
            if !account.token.is_empty() {
                call = call.bearer(&account.token);
            }
            let reply = account.call_plainly(call).await?;
            let id = reply["id"].as_str().unwrap_or("sent");
            Ok(MessageRef {
                chat: self.topic.clone(),
                message: id.to_owned(),
            })
        })
    }

    fn whoami(&self) -> ChatFuture<'_, String> {
        Box::pin(async move { Ok(format!("topic {}", self.topic)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_its_approval_plan_and_decision() {
        let tickets = NtfyTickets::new(Secret::new("k"));
        let deny = tickets.ticket("a-1", "d", ApprovalDecision::Deny);
        assert_eq!(
            NtfyTickets::read(&deny),
            Some(("a-1", ApprovalDecision::Deny))
        );
        assert!(tickets.is_good(&deny, "d"));
        assert!(!tickets.is_good(&deny, "other"));
        assert!(!tickets.is_good(&deny.replace("deny", "allow-once"), "d"));
        assert!(!tickets.is_good(&deny.replace("a-1", "a-2"), "d"));
        assert!(!NtfyTickets::new(Secret::new("l")).is_good(&deny, "d"));
        for bad in [
            "",
            "deny",
            "deny.a",
            "allow-always.a.b",
            "deny.a.b.c",
            "x.y.z",
        ] {
            assert_eq!(NtfyTickets::read(bad), None, "{bad}");
        }
    }
}
