//! The environment of a run on a host: the inherited part joined with the overrides.

use std::collections::BTreeMap;

use super::inherited::inherited;
use super::overrides::sort_out;
use super::rejection::{EnvRejection, EnvSource};

/// A joined environment. To run a command, use [`HostEnv::accept`], which returns the environment
/// only if nothing was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct HostEnv {
    env: BTreeMap<String, String>,
    rejection: Option<EnvRejection>,
}

impl HostEnv {
    /// Returns the environment of the run.
    pub fn accept(self) -> Result<BTreeMap<String, String>, EnvRejection> {
        self.rejection.map_or(Ok(self.env), Err)
    }

    /// Returns the environment without the refused keys. It is for explanations, not for runs.
    pub fn remaining(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub fn rejection(&self) -> Option<&EnvRejection> {
        self.rejection.as_ref()
    }
}

/// Joins the service's own environment with the overrides of a call. An accepted override wins.
pub fn host_exec(base: &BTreeMap<String, String>, overrides: &BTreeMap<String, String>) -> HostEnv {
    let mut env = inherited(base);
    let pairs = overrides.iter().map(|(key, value)| (key.as_str(), value));
    let (accepted, rejection) = sort_out(EnvSource::Override, pairs);
    env.extend(accepted);
    HostEnv { env, rejection }
}
