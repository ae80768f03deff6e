//! Webhooks: a signed call for every approval and its end; a program of the owner's may decide by a call
//! back, signed with another secret.

use std::time::Duration;

use futures_util::future::BoxFuture;
use interlock_wire::Secret;
use serde::Deserialize;

use crate::address::ServiceAddress;
use crate::channel::{ChatChannel, ChatFailure, MessageRef};
use crate::http::post;
use crate::message::{ChatMessage, ChatSubject};
use crate::settings::{AccountSetup, ChatTarget};
use crate::signature::{ID_HEADER, SIGNATURE_HEADER, TIME_HEADER, sign};

/// The largest call.
const MOST_BYTES: usize = 1024 * 1024;

/// What a program decided.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookAnswer {
    pub id: String,
    /// Of the plan that was sent.
    pub digest: String,
    pub decision: String,
    #[serde(default)]
    pub reason: Option<String>,
}

/// One address.
#[derive(Debug)]
pub(crate) struct WebhookTarget {
    address: ServiceAddress,
    secret: Secret,
}

impl WebhookTarget {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self {
            address: setup.address.clone(),
            secret: setup.token.clone(),
        }
    }

    async fn send_signed(&self, message: &ChatMessage, key: &str) -> Result<(), ChatFailure> {
        let body = match &message.subject {
            Some(subject) => body(message, subject),
            None => serde_json::json!({ "type": "test", "title": message.title }).to_string(),
        };
        let time = interlock_approvals::clock::now().to_string();
        let signature = sign(&self.secret, &time, key, body.as_bytes());
        let headers = [
            (ID_HEADER, key.to_owned()),
            (TIME_HEADER, time),
            (SIGNATURE_HEADER, signature),
        ];
        let path = if self.address.base().is_empty() {
            "/"
        } else {
            ""
        };
        post(&self.address, path, &headers, body, &self.secret).await?;
        Ok(())
    }
}

/// The approval, with the text that people read elsewhere.
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

    /// A program takes as much as it is sent; it asks for a pause itself.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    fn send<'a>(
        &'a self,
        target: &'a ChatTarget,
        message: &'a ChatMessage,
        key: &'a str,
    ) -> BoxFuture<'a, Result<MessageRef, ChatFailure>> {
        Box::pin(async move {
            self.send_signed(message, key).await?;
            Ok(MessageRef {
                chat: target.name.clone(),
                message: key.to_owned(),
            })
        })
    }

    fn edit<'a>(
        &'a self,
        _at: &'a MessageRef,
        message: &'a ChatMessage,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), ChatFailure>> {
        Box::pin(self.send_signed(message, key))
    }

    fn whoami(&self) -> BoxFuture<'_, Result<String, ChatFailure>> {
        Box::pin(async { Ok("a webhook".to_owned()) })
    }
}
