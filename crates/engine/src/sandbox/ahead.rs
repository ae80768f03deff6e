//! A sandbox that is made before its run exists, while the process of the last run waits for the
//! next one. It is used only if a sandbox that is made now would be the same: for an equal plan, in
//! the same scope, with no additional host socket in view, and with no new path that would have to
//! be covered.

use std::path::Path;
use std::time::Duration;

use interlock_plan::{SandboxMount, SandboxPlan};

use super::keeper::{NamespaceIds, ScopeNamespaces};
use super::sockets::SocketNames;
use super::{RunSandbox, hold_scope, init, link};

/// How long process 1 may take to check its view again.
const CHECK_TIME: Duration = Duration::from_secs(5);

/// A sandbox without a run. It ends when this is dropped.
#[derive(Debug)]
pub struct SpareSandbox {
    plan: SandboxPlan,
    scope: NamespaceIds,
    sockets: SocketNames,
    sandbox: RunSandbox,
}

impl SpareSandbox {
    /// Makes a sandbox for another run like the last. `None` if that fails, or if the run would
    /// have a layer or a log of its own: the next run then makes its sandbox itself, and reports
    /// what is wrong.
    pub fn make(plan: &SandboxPlan, scope: &ScopeNamespaces) -> Option<Self> {
        let has_layer = |mount: &SandboxMount| matches!(mount, SandboxMount::Overlay { .. });
        if plan.mounts.iter().any(has_layer) || plan.program_log.is_some() {
            return None;
        }
        let (ids, sockets) = (scope.ids().ok()?, SocketNames::read());
        let mut sandbox = RunSandbox::start(plan, None, false, scope).ok()?;
        // As long as there is no run, the owner must be able to remove the scope.
        sandbox.scope = None;
        Some(Self {
            plan: plan.clone(),
            scope: ids,
            sockets,
            sandbox,
        })
    }

    /// Returns the sandbox for a run, if a sandbox that is made now would be the same.
    pub(super) fn take(
        mut self,
        plan: &SandboxPlan,
        scope: &ScopeNamespaces,
    ) -> Option<RunSandbox> {
        // The working directory does not affect what the run sees.
        self.plan.cwd.clone_from(&plan.cwd);
        let is_same = self.plan == *plan
            && scope.ids().is_ok_and(|ids| ids == self.scope)
            && !self.shows_further_sockets();
        if !is_same {
            return None;
        }
        let held = hold_scope(&plan.scope_directory).ok()?;
        link::send(&self.sandbox.link, init::CHECK, &[]).ok()?;
        let (answer, _) = link::receive(&self.sandbox.link, CHECK_TIME).ok()?;
        self.sandbox.scope = Some(held);
        (answer == init::FRESH).then_some(self.sandbox)
    }

    /// Whether the mounts show a new socket, which a sandbox that is made now would cover.
    fn shows_further_sockets(&self) -> bool {
        let further = SocketNames::read().new_since(&self.sockets);
        self.plan.mounts.iter().any(|mount| match mount {
            SandboxMount::Bind { source, .. } => further.below(Path::new(source)).next().is_some(),
            _ => false,
        })
    }
}
