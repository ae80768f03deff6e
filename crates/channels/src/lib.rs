//! Sends approvals to chats, topics and webhooks, and receives the decisions from there.
//!
//! Read in this order: `channel` (the interface of every platform), `message` (what a message
//! shows), `rights` (which decisions a channel may take), `typed` (what an approver can type),
//! `settings` (accounts, targets and approvers by the config in force), `desk` (what the gateway
//! offers), `answer` (which answers count), `outbox` (sending, editing, retries), `service` (the
//! tasks). Then read the platforms: `matrix`, `telegram`, `slack`, `discord`, `ntfy` and `webhook`.
//! They use `http`, `socket` and `address`, and wake together by `rhythm`.
//!
//! This crate neither judges nor allows a command. A decision that counts goes to the same function
//! that every other surface calls.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod channel;
mod desk;
mod direct;
mod discord;
mod http;
mod matrix;
mod message;
mod ntfy;
mod outbox;
mod rhythm;
mod rights;
mod service;
mod settings;
mod signature;
mod slack;
mod socket;
mod telegram;
mod typed;
mod webhook;

pub use address::{AddressRefusal, ServiceAddress, is_private_address};
pub use channel::{
    ChannelKind, ChatChannel, ChatFailure, ChatPlace, ChatTap, ChatUpdate, ChatUpdates,
    MessageEdit, MessageRef, NewMessage, ReadFrom, TappedMessage,
};
pub use desk::{ApprovalDesk, ChatDecision};
pub use message::{ChatButton, ChatMessage};
pub use ntfy::{NTFY_TICKET_PATH, NtfyTickets};
pub use rights::chat_offers;
pub use service::{ChatService, TestedTarget, open_channel};
pub use settings::{AccountSetup, ChatSetup, ChatTarget, secret_variables, webhook_secret};
pub use signature::{SIGNATURE_HEADER, SignatureRefusal, SignedCall, sign};
pub use webhook::WebhookAnswer;
