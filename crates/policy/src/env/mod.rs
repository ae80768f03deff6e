//! Decides which environment variables a run may get, and from where.
//!
//! Variables can make an innocent program load other code, read another config or talk to another
//! server. One table of classes ([`CLASSES`]) therefore judges them, and gives a reason for each
//! class.
//!
//! Read `table` first (the data), then `overrides` (what a caller may set), `harmless` and
//! `admission` (which of those values pass an allowlist), `inherited` (what the service passes on
//! from its own environment), `host` (both together) and `sandbox`.

mod admission;
mod harmless;
mod host;
mod inherited;
mod overrides;
mod rejection;
mod sandbox;
mod table;

pub(crate) use admission::{CallerEnv, check_items};
pub use admission::{EnvItemError, Unadmitted};
pub use harmless::{HARMLESS, HarmlessRow, HarmlessValues, has_harmless_values, is_harmless};
pub use host::{HostEnv, host_exec};
pub use inherited::inherited;
pub use overrides::{
    EnvRefusal, OverrideAction, check_assignments, check_override, check_overrides,
    for_shell_wrapper,
};
pub use rejection::{EnvRejection, EnvSource};
pub use sandbox::{SandboxEnv, for_sandbox};
pub use table::{CLASSES, EnvClass, EnvScope, classify, scope};
