//! The pages of the Control UI.
//!
//! This crate turns values into HTML. It reads no state files, no clock and no network. Everything
//! that an agent wrote is escaped text, never markup, and reaches a page through
//! `command::display`.
//!
//! Read `assets` (the files that a browser loads), `shell` (the one document around all pages),
//! `inbox` and `card` (pending approvals, and one approval whole), then the other pages:
//! `sessions`, `nodes`, `policy` with `draft`, `audit`, `sandbox`, `settings` with `qr`, `health`.

#![forbid(unsafe_code)]

pub mod assets;
mod audit;
mod card;
mod draft;
mod health;
mod inbox;
mod nodes;
mod policy;
mod qr;
mod sandbox;
mod sessions;
mod settings;
mod shell;
mod text;

pub use audit::{AUDIT_KINDS, AuditFacts, audit_page};
pub use card::{AllowedRun, CardFacts, CardFrame, approval_card, ended_card, receipts, run_line};
pub use draft::replay_result;
pub use health::{HealthFacts, HealthFinding, health_page};
pub use inbox::{
    AskableApproval, InboxFacts, InboxRow, RecentDecision, ended_row, inbox_page, inbox_row,
};
pub use maud::Markup;
pub use nodes::{NodesFacts, nodes_page};
pub use policy::{ExplainedCommand, ExplainedLevel, PolicyFacts, ShownCase, policy_page};
pub use qr::{qr_drawing, qr_lines};
pub use sandbox::{SandboxAgent, SandboxFacts, SandboxScopeRow, sandbox_explained, sandbox_page};
pub use sessions::{
    SessionFacts, SessionListFacts, screen_row, session_output, session_page, sessions_page,
};
pub use settings::{SettingsFacts, settings_page};
pub use shell::{CONTENT_SECURITY_POLICY, shell};
pub use text::CommandColors;
