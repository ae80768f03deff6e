//! What separates a run from Interlock itself, with the terms of SECURITY.md.

use std::collections::BTreeMap;

use interlock_config::types::ExecConfig;
use interlock_config::{Config, Shield};
use interlock_engine::shield::ShieldKind;
use interlock_plan::RunAccount;

/// Agents whose runs are separated from Interlock in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeparatedAgents {
    pub agents: Vec<String>,
    pub separation: RunSeparation,
}

/// Groups agents by what separates their runs from Interlock.
pub fn separate_agents<'a>(
    config: &Config,
    agents: impl IntoIterator<Item = &'a str>,
    shield: Result<ShieldKind, &str>,
    user: u32,
) -> Vec<SeparatedAgents> {
    let mut groups: BTreeMap<String, SeparatedAgents> = BTreeMap::new();
    for agent in agents {
        let separation = RunSeparation::of(&config.exec_for(agent), shield, user);
        let group = groups
            .entry(separation.describe())
            .or_insert_with(|| SeparatedAgents {
                agents: Vec::new(),
                separation,
            });
        group.agents.push(agent.to_owned());
    }
    groups.into_values().collect()
}

/// What keeps the runs of an agent from Interlock's files, sockets and processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunSeparation {
    /// Runs use another account.
    OtherAccount { user: String },
    /// Runs are shielded and belong to an ordinary user.
    ShieldedUser,
    /// Runs are shielded but belong to root, which can undo the shield.
    ShieldedRoot,
    /// Runs are not shielded, because the config turns the shield off.
    ShieldOff,
    /// Runs are not shielded, because the system offers no shield, for this reason.
    ShieldUnavailable { reason: String },
    /// Nothing runs: `tools.exec.shield` is `on` without a shield, or the account of runs cannot be
    /// used.
    Refused { reason: String },
}

impl RunSeparation {
    /// Computes the separation. `shield` is the shield of the system, or why it offers none.
    pub fn of(exec: &ExecConfig, shield: Result<ShieldKind, &str>, user: u32) -> Self {
        if let Some(name) = &exec.run_as {
            match RunAccount::named(name) {
                Ok(account) if account.identity.uid != user => {
                    return Self::OtherAccount { user: name.clone() };
                }
                Ok(_) => {}
                Err(error) => {
                    return Self::Refused {
                        reason: error.to_string(),
                    };
                }
            }
        }
        match (exec.shield(), shield) {
            (Shield::Off, _) => Self::ShieldOff,
            (_, Ok(ShieldKind::User)) => Self::ShieldedUser,
            (_, Ok(ShieldKind::Root)) => Self::ShieldedRoot,
            (Shield::Auto, Err(reason)) => Self::ShieldUnavailable {
                reason: reason.to_owned(),
            },
            (Shield::On, Err(reason)) => Self::Refused {
                reason: format!(
                    "tools.exec.shield is `on`, and the system offers no shield: {reason}"
                ),
            },
        }
    }

    /// One word for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::OtherAccount { .. } => "wall",
            Self::ShieldedUser => "shield",
            Self::ShieldedRoot | Self::ShieldOff | Self::ShieldUnavailable { .. } => "guard-only",
            Self::Refused { .. } => "nothing-runs",
        }
    }

    /// Describes the separation and its reason.
    pub fn describe(&self) -> String {
        match self {
            Self::OtherAccount { user } => format!("a wall: runs have the account {user}"),
            Self::ShieldedUser => "shielded: a wall for Interlock's files, sockets and processes, \
                 not for the other files and programs of this user"
                .to_owned(),
            Self::ShieldedRoot => {
                "guard only: runs are shielded, but they are root, and root can undo the shield"
                    .to_owned()
            }
            Self::ShieldOff => {
                "guard only: tools.exec.shield is `off`, so a run can read, write and trace what its user can"
                    .to_owned()
            }
            Self::ShieldUnavailable { reason } => format!(
                "guard only: this system offers no shield ({reason}), so a run can read, write and trace what its user can"
            ),
            Self::Refused { reason } => format!("nothing runs: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_table_has_its_word() {
        let exec = |shield| ExecConfig {
            shield,
            ..ExecConfig::default()
        };
        let of = |shield, offered| RunSeparation::of(&exec(shield), offered, 1000).word();
        assert_eq!(of(None, Ok(ShieldKind::User)), "shield");
        assert_eq!(of(None, Ok(ShieldKind::Root)), "guard-only");
        assert_eq!(of(None, Err("none")), "guard-only");
        assert_eq!(of(Some(Shield::On), Err("none")), "nothing-runs");
        assert_eq!(of(Some(Shield::On), Ok(ShieldKind::User)), "shield");
        assert_eq!(of(Some(Shield::Off), Ok(ShieldKind::User)), "guard-only");
        let unknown = ExecConfig {
            run_as: Some("no-such-user-here".to_owned()),
            ..ExecConfig::default()
        };
        let of_unknown = RunSeparation::of(&unknown, Ok(ShieldKind::Root), 0);
        assert_eq!(of_unknown.word(), "nothing-runs");
    }
}
