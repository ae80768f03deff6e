//! The environment of a run on a host: inherited part and overrides together.

use std::collections::BTreeMap;

use super::inherited::inherited;
use super::overrides::sort_out;
use super::rejection::{EnvRejection, EnvSource};

/// The outcome of joining both. To run something, take it with [`HostEnv::accept`], which hands
/// the environment out only if nothing was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct HostEnv {
    env: BTreeMap<String, String>,
    rejection: Option<EnvRejection>,
}

impl HostEnv {
    /// The environment to run with.
    pub fn accept(self) -> Result<BTreeMap<String, String>, EnvRejection> {
        self.rejection.map_or(Ok(self.env), Err)
    }

    /// What remains after refused keys are left out; for explanations, not for running.
    pub fn remaining(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub fn rejection(&self) -> Option<&EnvRejection> {
        self.rejection.as_ref()
    }
}

/// Joins the service's own environment with the overrides of a call; an accepted override wins.
pub fn host_exec(base: &BTreeMap<String, String>, overrides: &BTreeMap<String, String>) -> HostEnv {
    let mut env = inherited(base);
    let pairs = overrides.iter().map(|(key, value)| (key.as_str(), value));
    let (accepted, rejection) = sort_out(EnvSource::Override, pairs);
    env.extend(accepted);
    HostEnv { env, rejection }
}
