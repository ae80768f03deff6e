//! A sandbox that is made before the run that it is for, while the process of the last run waits for the
//! next one. It is used only where it is what would be made now: for an equal plan, in the same scope, with
//! no further socket of the host in view, and with nothing there that was not there to be covered.

use std::path::Path;
use std::time::Duration;

use interlock_plan::{SandboxMount, SandboxPlan};

use super::keeper::{NamespaceIds, ScopeNamespaces};
use super::sockets::SocketNames;
use super::{RunSandbox, hold_scope, init, link};

/// How long process 1 may take to look at its view once more.
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
    /// Makes one for a further run like the last. `None` where it cannot be made, or where the run would
    /// have a layer or a log of its own: the next run then makes its sandbox itself, and says what is wrong.
    pub fn make(plan: &SandboxPlan, scope: &ScopeNamespaces) -> Option<Self> {
        let has_layer = |mount: &SandboxMount| matches!(mount, SandboxMount::Overlay { .. });
        if plan.mounts.iter().any(has_layer) || plan.program_log.is_some() {
            return None;
        }
        let (ids, sockets) = (scope.ids().ok()?, SocketNames::read());
        let mut sandbox = RunSandbox::start(plan, None, false, scope).ok()?;
        // Without a run, nothing keeps the owner from removing the scope.
        sandbox.scope = None;
        Some(Self {
            plan: plan.clone(),
            scope: ids,
            sockets,
            sandbox,
        })
    }

    /// The sandbox of a run, if it is what would be made for it now.
    pub(super) fn take(
        mut self,
        plan: &SandboxPlan,
        scope: &ScopeNamespaces,
    ) -> Option<RunSandbox> {
        // Where the run begins is not a part of what it sees.
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

    /// Whether a socket came that its mounts show, which one made now would cover.
    fn shows_further_sockets(&self) -> bool {
        let further = SocketNames::read().new_since(&self.sockets);
        self.plan.mounts.iter().any(|mount| match mount {
            SandboxMount::Bind { source, .. } => further.below(Path::new(source)).next().is_some(),
            _ => false,
        })
    }
}
