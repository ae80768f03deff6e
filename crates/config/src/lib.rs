//! The config, and the state directory that contains it.
//!
//! Read in this order: `state` (the directory), `json5` (parsing with positions, and edits that
//! keep comments), `schema` (the table of all keys), `types` (the values that the program uses),
//! `layer` (settings of agents over global ones), `exec` (defaults and limits of a run), `file`
//! (loading and editing).

#![forbid(unsafe_code)]

mod chat;
mod choice;
mod diagnostic;
mod excerpt;
mod exec;
mod file;
pub mod json5;
mod layer;
mod nearest;
mod path;
pub mod schema;
mod state;
pub mod types;

pub use chat::{ChatSecret, ChatSwitch};
pub use choice::{
    ChatTargets, ExecEffects, ExecMode, GatewayAuthMode, GatewayBind, Host, Leftovers, PushDetail,
    RemoteDocument, SandboxMode, SandboxScope, Shield, UnboundApprovals,
};
pub use diagnostic::{Diagnostic, Diagnostics, Position};
pub use exec::YIELD_MS;
pub use file::{ConfigError, ConfigFile};
pub use json5::{EditError, Json5Text};
pub use layer::{LayeredSettings, OverruledSandbox};
pub use nearest::nearest;
pub use path::{KeyPath, KeyPathError, PathSegment};
pub use state::{StateDir, StateDirError, StateEnvironment};
pub use types::Config;
