//! Webhooks: a signed call for every approval and its end. The owner's program may decide by a call
//! back, which is signed with another secret.

use std::time::Duration;

use serde::Deserialize;

use crate::channel::{ChatChannel, ChatFailure, ChatFuture, MessageEdit, MessageRef, NewMessage};
use crate::http::{ServiceAccount, ServiceCall};
use crate::message::{ChatMessage, ChatSubject};
use crate::settings::AccountSetup;
use crate::signature::{ID_HEADER, SIGNATURE_HEADER, TIME_HEADER, sign};

/// The largest call.
const MOST_BYTES: usize = 1024 * 1024;

/// The decision of a program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookAnswer {
    pub id: String,
    /// The digest of the plan that was sent.
    pub digest: String,
    pub decision: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// One address.
#[derive(Debug)]
pub(crate) struct WebhookTarget(ServiceAccount);

impl WebhookTarget {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self(ServiceAccount::new(setup))
    }

    async fn send_signed(&self, message: &ChatMessage, key: &str) -> Result<(), ChatFailure> {
        let body = match &message.subject {
            Some(subject) => body(message, subject),
            None => serde_json::json!({ "type": "test", "title": message.title }).to_string(),
        };
        let time = interlock_approvals::clock::now().to_string();
        let signature = sign(&self.0.token, &time, key, body.as_bytes());
        let path = if self.0.address.base().is_empty() {
            "/"
        } else {
            ""
        };
        let call = ServiceCall::post_text(path, body)
            .header(ID_HEADER, key.to_owned())
            .header(TIME_HEADER, time)
            .header(SIGNATURE_HEADER, signature);
        self.0.call_plainly(call).await?;
        Ok(())
    }
}

/// Returns the approval with the text that people read elsewhere.
fn body(message: &ChatMessage, subject: &ChatSubject) -> String {
    let mut body = subject.body.clone();
    body["digest"] = subject.plan_digest.clone().into();
    body["title"] = message.title.clone().into();
    body["text"] = message.block.clone().into();
    body["link"] = message.link.clone().into();
    body.to_string()
}

impl ChatChannel for WebhookTarget {
    fn fits(&self, message: &ChatMessage) -> bool {
        message
            .subject
            .as_ref()
            .is_none_or(|subject| body(message, subject).len() <= MOST_BYTES)
    }

    /// A program needs no pause between messages. If it does, it asks for one.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef> {
        Box::pin(async move {
            self.send_signed(new.message, new.key).await?;
            Ok(MessageRef {
                chat: new.target.name.clone(),
                message: new.key.to_owned(),
            })
        })
    }

    fn edit<'a>(&'a self, edit: MessageEdit<'a>) -> ChatFuture<'a, ()> {
        Box::pin(self.send_signed(edit.message, edit.key))
    }

    fn whoami(&self) -> ChatFuture<'_, String> {
        Box::pin(async { Ok("a webhook".to_owned()) })
    }
}
