//! Connections that hear of approvals, events and presence, whatever they are made of.

mod client;
mod hub;
mod outbox;
mod page_topics;
mod read_approvals;

use interlock_wire::Event;
use serde::Serialize;

pub use client::{Client, KnownClient, remote_ip};
pub use hub::Hub;
pub use outbox::{Outbox, OutboxSocket, Outgoing, SENT_TOGETHER, close_frame};
pub use page_topics::{APPROVALS, PageTopics, send_patch};

use crate::dispatcher::Dispatcher;

/// Sends an event to every client that may receive it.
pub fn broadcast(dispatcher: &Dispatcher, name: &str, payload: &impl Serialize) {
    if let Ok(event) = Event::new(name, payload) {
        let event = event.with_state_version(dispatcher.state_version());
        dispatcher.hub.broadcast(&event);
    }
}
