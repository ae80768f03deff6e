//! The commands of a gateway. Each file holds one command.

mod approvals;
mod call;
mod explain;
mod foreign_document;
mod ordered;
mod plan_policy;
mod policy;
mod prepare;
mod prepared;
mod run;
mod sessions;
mod which;

pub(crate) use approvals::{get as approvals_get, set as approvals_set};
pub(crate) use explain::explain;
pub(crate) use ordered::{end, order, read};
pub(crate) use policy::policy;
pub(crate) use prepare::prepare;
pub(crate) use prepared::PreparedCommands;
pub(crate) use run::{NodeRunEnd, WaitedRun, run};
pub(crate) use sessions::process;
pub(crate) use which::which;
