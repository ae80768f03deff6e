//! Checks of what separates runs from Interlock itself.

use super::table::checks;
use super::{AuditSubject, FindingSeverity, SecurityFinding};
use crate::separation::{RunSeparation, SeparatedAgents, separate_agents};

/// The command that makes the machine run commands as another account.
const RUN_AS: &str = "interlock gateway install --run-as USER";

pub(super) fn check(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let all = subject.agents();
    let all = all.iter().map(interlock_policy::AgentId::as_str);
    let offered = subject.shield.as_ref().copied().map_err(String::as_str);
    for group in separate_agents(&subject.config, all, offered, subject.user) {
        let SeparatedAgents { agents, separation } = group;
        let what = separation.describe();
        let subjects = format!("runs of {}", agents.join(", "));
        let (check, fix) = match separation {
            RunSeparation::OtherAccount { .. } | RunSeparation::ShieldedUser => continue,
            RunSeparation::ShieldOff => {
                let own = subject.config.agents.list.iter().position(|agent| {
                    agent.tools.exec.shield == Some(interlock_config::Shield::Off)
                        && agents.iter().any(|id| id.eq_ignore_ascii_case(&agent.id))
                });
                let key = match own {
                    Some(index) => format!("'agents.list[{index}].tools.exec.shield'"),
                    None => "tools.exec.shield".to_owned(),
                };
                (checks::SHIELD_OFF, format!("interlock config unset {key}"))
            }
            RunSeparation::ShieldUnavailable { .. } => {
                (checks::SHIELD_UNAVAILABLE, system_fix(subject.user))
            }
            RunSeparation::ShieldedRoot => (checks::SHIELD_ROOT, RUN_AS.to_owned()),
            RunSeparation::Refused { .. } => {
                let by_account = subject
                    .config
                    .exec_for(agents.first().map_or("main", String::as_str))
                    .run_as
                    .is_some();
                if by_account {
                    let fix = "interlock config unset tools.exec.runAs".to_owned();
                    (checks::RUN_AS_UNUSABLE, fix)
                } else {
                    (checks::SHIELD_UNAVAILABLE, system_fix(subject.user))
                }
            }
        };
        findings.push(check.finding(FindingSeverity::Warn, subjects, what, fix));
    }
}

/// The command that enables namespaces, if one of the usual settings blocks them.
fn system_fix(user: u32) -> String {
    if user == 0 {
        return RUN_AS.to_owned();
    }
    let settings = [
        (
            "user.max_user_namespaces",
            "0",
            "sudo sysctl -w user.max_user_namespaces=15000",
        ),
        (
            "kernel.unprivileged_userns_clone",
            "0",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            "kernel.apparmor_restrict_unprivileged_userns",
            "1",
            "sudo interlock sandbox setup",
        ),
    ];
    let closed = settings.iter().find(|(name, closed, _)| {
        let path = format!("/proc/sys/{}", name.replacen('.', "/", 1));
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() == *closed)
    });
    match closed {
        Some((_, _, fix)) => (*fix).to_owned(),
        None => format!("sudo {RUN_AS}"),
    }
}
