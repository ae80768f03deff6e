//! Where do approvals go besides pages and terminals, and what comes back? Chats, topics and webhooks.
//!
//! Read in this order: `channel` (what every platform has to do), `message` (what is shown), `rights` (what may
//! be decided there), `typed` (what an approver can type), `settings` (accounts, targets and
//! approvers by the config in force), `desk` (what the gateway offers), `answer` (which answers count),
//! `outbox` (sending, editing, retries), `service` (the tasks); then the platforms: `matrix`, `telegram`,
//! `slack`, `discord`, `ntfy` and `webhook`, over `http`, `socket` and
//! `address`, in one `rhythm`.
//!
//! Nothing here judges a command, and nothing here allows one: a decision that counts goes to the same
//! function that every other surface calls.

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
