//! Decides which shield a run of this host gets, by the config, by what the system offers, and by
//! the verdict.

use interlock_config::Shield;
use interlock_config::types::ExecConfig;
use interlock_engine::shield::{ShieldKind, ShieldUnavailable, probe_shield};
use interlock_plan::PlanShield;
use interlock_policy::{HostIdentity, VerdictShield};

/// `tools.exec.shield` is `on`, and this system has none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tools.exec.shield is `on`, and this system offers no shield: {0}")]
pub struct ShieldMissing(ShieldUnavailable);

impl ShieldMissing {
    pub fn code(&self) -> &'static str {
        "SHIELD_UNAVAILABLE"
    }

    pub fn remedy(&self) -> String {
        "let the system offer user namespaces to this account, or have the owner set tools.exec.shield to \"auto\": runs are then guarded only"
            .to_owned()
    }
}

/// How programs run that cannot work in a user namespace.
pub(crate) fn host_identity(exec: &ExecConfig) -> HostIdentity {
    match (exec.shield(), probe_shield()) {
        (Shield::Auto, Ok(ShieldKind::User)) => HostIdentity::Unshielded,
        (Shield::On, Ok(ShieldKind::User)) => HostIdentity::Refused,
        (Shield::Off, _) | (_, Ok(ShieldKind::Root) | Err(_)) => HostIdentity::Works,
    }
}

/// The shield of the plan of a judged command.
pub fn plan_shield(exec: &ExecConfig, verdict: VerdictShield) -> Result<PlanShield, ShieldMissing> {
    match (exec.shield(), probe_shield(), verdict) {
        (Shield::Off, _, _) => Ok(PlanShield::Off),
        (Shield::On, Err(reason), _) => Err(ShieldMissing(reason)),
        (Shield::Auto, Err(_), _) => Ok(PlanShield::Unavailable),
        (_, Ok(ShieldKind::Root), _) => Ok(PlanShield::Root),
        (_, Ok(ShieldKind::User), VerdictShield::Without) => Ok(PlanShield::Without),
        (_, Ok(ShieldKind::User), VerdictShield::Usual) => Ok(PlanShield::User),
    }
}

/// Why runs are not shielded although the config does not turn the shield off, or `None` if they
/// are.
pub fn guard_only(exec: &ExecConfig) -> Option<String> {
    match (exec.shield(), probe_shield()) {
        (Shield::Auto | Shield::On, Err(reason)) => Some(reason.to_string()),
        _ => None,
    }
}
