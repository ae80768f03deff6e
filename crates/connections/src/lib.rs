//! The clients that are connected to the gateway, and what is sent to them.
//!
//! Read `client` ([`Client`]: its identity, and what it was shown), `hub` ([`Hub`]: all clients),
//! `outbox` (messages that wait to be sent, and the thread that sends them), `page_topics` (the
//! pages that a browser has open), then `read_approvals` (what a program has read lately). The
//! gateway owns the sockets.

#![forbid(unsafe_code)]

mod client;
mod hub;
mod outbox;
mod page_topics;
mod read_approvals;

pub use client::{Client, KnownClient, remote_ip};
pub use hub::Hub;
pub use outbox::{Outbox, OutboxSocket, Outgoing, SENT_TOGETHER, close_frame};
pub use page_topics::{APPROVALS, PageTopics, send_patch};
