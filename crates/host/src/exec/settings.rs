//! What a plan takes from a request and from the config of its agent.

use interlock_local::AgentScope;
use interlock_plan::{Elevation, PlanShield};

use super::ExecRequest;
use crate::prepare::RunSettings;

impl ExecRequest<'_> {
    /// The settings of a run on the host. Shield, sandbox and elevation follow from the verdict.
    pub(crate) fn run_settings<'a>(
        &'a self,
        scope: &'a AgentScope<'_>,
        path: &'a str,
    ) -> RunSettings<'a> {
        let time_limit = scope.time_limit(self.timeout_seconds);
        let exec = scope.exec();
        RunSettings {
            agent: self.agent,
            session_key: self.session_key,
            account: scope.account().cloned(),
            base_env: self.base_env,
            env: &self.env,
            path,
            path_prepend: exec.path_prepend.as_deref().unwrap_or_default(),
            pty: self.pty,
            stdin: self.stdin,
            timeout_ms: time_limit
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            shield: PlanShield::default(),
            sandbox: None,
            elevated: Elevation::Off,
            retry: None,
        }
    }
}
