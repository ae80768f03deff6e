//! What a gateway may ask for. Each file is one command.

mod approvals;
mod call;
mod prepare;
mod run;
mod which;

pub(crate) use approvals::{get as approvals_get, set as approvals_set};
pub(crate) use prepare::prepare;
pub(crate) use run::run;
pub(crate) use which::which;
