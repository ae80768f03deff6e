//! The only function that starts a process for a caller, and the opened plan that it takes.

use std::sync::Arc;

use interlock_plan::{PlanShield, RaceFreedom, RunPlan, SandboxBackend};

use crate::authorization::{Authorization, AuthorizationKey};
use crate::begin;
use crate::checked::Checked;
use crate::error::StartError;
use crate::launcher::RunConfinement;
use crate::output_sink::OutputSink;
#[cfg(feature = "race-hook")]
use crate::race_hook;
use crate::run::Run;
use crate::sandbox::{FarSide, HostTree, RestrictedRun, RunSandbox, ScopeNamespaces, SpareSandbox};
use crate::settings::Settings;
use crate::shield::RunShield;
use crate::tree;

/// Starts a plan. There is no other function that starts a process for a caller.
///
/// Nothing runs unless all of this holds: the authorization is for exactly this plan; the working
/// directory and every pinned file were opened and found unchanged; nothing is opened a second
/// time, if the settings require that; the first command could be executed. An error means that
/// nothing ran.
pub fn start(
    OpenedPlan {
        plan,
        checked,
        shield,
        scope,
        spare,
    }: OpenedPlan,
    authorization: &Authorization,
    key: &AuthorizationKey,
    settings: &Settings,
    sink: impl OutputSink,
) -> Result<Run, StartError> {
    key.verify(authorization, &plan.digest())?;
    let (plan, checked) = (&plan, checked?);
    #[cfg(feature = "race-hook")]
    race_hook::reached(race_hook::Moment::FilesAreOpen);
    // An approver who saw a race-free run has approved only a race-free run.
    let must_be_race_free =
        settings.require_race_free || plan.race_freedom == Some(RaceFreedom::RaceFree);
    if must_be_race_free && let Some(risk) = checked.race_risk() {
        let risk = risk.clone();
        return Err(StartError::RaceNotExcluded { risk });
    }
    {
        let _as_the_run = plan.assume_account()?;
        checked.check_directories_again()?;
    }
    // The run gets exactly the shield and sandbox that the plan says, no more and no less.
    if plan.shield.is_shielded() != shield.is_some() {
        return Err(StartError::Shield(format!(
            "the plan says \"{}\", and the process of the run has {} namespaces for it",
            plan.shield,
            if shield.is_some() { "" } else { "no" }
        )));
    }
    let dedicated = tree::claim_process(shield.as_ref())?;
    let confinement = match confine(plan, (shield, scope, spare), dedicated, settings) {
        Ok(confinement) => confinement,
        Err(error) => {
            if dedicated {
                tree::release_process();
            }
            return Err(error);
        }
    };
    let checked = (checked, confinement);
    let started = begin::begin(plan, checked, dedicated, settings, Arc::new(sink));
    if started.is_err() && dedicated {
        tree::release_process();
    }
    started
}

/// Makes the sandbox that the plan asks for. If the plan asks for one and it cannot be made,
/// nothing runs.
fn confine(
    plan: &RunPlan,
    (shield, scope, spare): (
        Option<Arc<RunShield>>,
        Option<ScopeNamespaces>,
        Option<SpareSandbox>,
    ),
    dedicated: bool,
    settings: &Settings,
) -> Result<RunConfinement, StartError> {
    let is_marked = plan.shield == PlanShield::Sandbox;
    let Some(value) = &plan.sandbox else {
        if is_marked {
            let why = "the plan says that there is one, and not which".to_owned();
            return Err(StartError::Sandbox(why));
        }
        return Ok(RunConfinement {
            shield,
            tree: plan.tree.as_ref().map(HostTree::make).transpose()?,
            ..RunConfinement::default()
        });
    };
    if plan.tree.is_some() {
        let why = "the plan holds the programs of a run on the host, too".to_owned();
        return Err(StartError::Sandbox(why));
    }
    if !is_marked || shield.is_some() {
        let why = "the plan says that there is a shield, too".to_owned();
        return Err(StartError::Sandbox(why));
    }
    if !dedicated {
        let why = "a sandboxed run needs a process of its own".to_owned();
        return Err(StartError::Sandbox(why));
    }
    if value.backend == SandboxBackend::Landlock {
        return Ok(RunConfinement {
            restricted: Some(RestrictedRun::make(value)?),
            ..RunConfinement::default()
        });
    }
    let Some(scope) = scope else {
        let why = "the process of the run has no namespaces of its scope".to_owned();
        return Err(StartError::Sandbox(why));
    };
    if let Some(ssh) = &value.ssh {
        return Ok(RunConfinement {
            far: Some(FarSide::of(ssh, value, settings.run_id.as_deref())?),
            ..RunConfinement::default()
        });
    }
    let sandbox = RunSandbox::make(plan, value, (&scope, spare), settings.run_id.as_deref())?;
    tree::claim_sandbox(&sandbox);
    Ok(RunConfinement {
        sandbox: Some((sandbox, value.clone())),
        ..RunConfinement::default()
    })
}

/// A plan whose files were opened and compared with it. It may be opened long before it may run,
/// because each file is checked again right before it is executed.
#[derive(Debug)]
pub struct OpenedPlan {
    plan: RunPlan,
    /// The result of the check, which only a caller with an authorization for the plan learns.
    checked: Result<Checked, StartError>,
    shield: Option<Arc<RunShield>>,
    scope: Option<ScopeNamespaces>,
    spare: Option<SpareSandbox>,
}

impl OpenedPlan {
    /// Opens a plan that runs without a shield.
    pub fn open(plan: RunPlan) -> Self {
        Self::open_in(plan, None)
    }

    /// Opens a plan that runs in these namespaces.
    pub fn open_in(plan: RunPlan, shield: Option<Arc<RunShield>>) -> Self {
        let checked = Checked::open(&plan, shield.as_deref());
        Self {
            plan,
            checked,
            shield,
            scope: None,
            spare: None,
        }
    }

    /// Sets the namespaces that a sandboxed run shares with the other runs of its scope.
    #[must_use]
    pub fn in_scope(mut self, scope: Option<ScopeNamespaces>) -> Self {
        self.scope = scope;
        self
    }

    /// Offers a sandbox that was made ahead. It is used only if it matches the plan.
    #[must_use]
    pub fn with_spare(mut self, spare: Option<SpareSandbox>) -> Self {
        self.spare = spare;
        self
    }

    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }
}
