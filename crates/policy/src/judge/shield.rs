//! Decides about the shield: which lines cannot run in it, and which may run without it.

use interlock_command::{Analysis, Sight, Source as CommandSource};
use interlock_programs::{Resolver, host_identity, may_need_host_identity};

use super::Policy;
use crate::entry::{Entry, EntryShield};
use crate::verdict::{JudgedCommand, Reason, SatisfiedBy};

/// How this host treats programs that cannot work in a user namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostIdentity {
    /// Runs of this host have no user namespace, so these programs work like all others.
    #[default]
    Works,
    /// These programs run without the shield if an entry says so or an approver allows it.
    Unshielded,
    /// These programs do not run, because `tools.exec.shield` is `on`.
    Refused,
}

/// Whether the run that the verdict is about has a shield.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VerdictShield {
    /// The run has the shield that the host gives to every run.
    #[default]
    Usual,
    Without,
}

impl VerdictShield {
    pub fn is_usual(self) -> bool {
        self == Self::Usual
    }
}

/// A command that cannot work in a user namespace.
#[derive(Debug)]
pub(super) struct Needing {
    pub command: String,
    pub why: &'static str,
}

impl Policy {
    /// Returns the first command, seen anywhere in the request, that cannot work in the shield.
    pub(super) fn needing_host(
        &self,
        analysis: &Analysis,
        sight: Option<&Sight>,
        resolver: &dyn Resolver,
    ) -> Option<Needing> {
        if self.host_identity == HostIdentity::Works {
            return None;
        }
        let may_need = match &analysis.source {
            CommandSource::Text(text) => may_need_host_identity(text),
            CommandSource::Argv(argv) => argv.iter().any(|word| may_need_host_identity(word)),
        };
        if !may_need {
            return None;
        }
        let looked;
        let sight = match sight {
            Some(sight) => sight,
            None => {
                looked = analysis.sight();
                &looked
            }
        };
        sight.commands.iter().find_map(|seen| {
            let why = host_identity(&seen.argv, seen.cwd.as_deref(), resolver)?;
            let command = seen.argv.first()?.clone();
            Some(Needing { command, why })
        })
    }
}

/// Whether an entry says for every command that it runs without the shield. The owner then wants
/// this, for example for programs that must see the processes of the host.
pub(super) fn all_unshielded(segments: &[JudgedCommand]) -> bool {
    let mut has_entry = false;
    segments.iter().all(|judged| match judged.satisfied_by {
        Some(SatisfiedBy::Allowlist) => {
            has_entry = true;
            let entry = judged.entry.as_ref();
            entry.is_some_and(|entry| entry.shield == Some(EntryShield::Off))
        }
        Some(SatisfiedBy::Builtin | SatisfiedBy::SafeBin) => true,
        Some(SatisfiedBy::Skill) | None => false,
    }) && has_entry
}

/// Whether the entry requires the shield. Without the shield, an entry satisfies a command only if
/// it says so. Skills never satisfy such a command; builtins and safe bins access nothing that the
/// shield hides.
pub(super) fn wants_shield(entry: &Entry) -> bool {
    entry.shield != Some(EntryShield::Off)
}

impl Needing {
    pub fn refusal(&self) -> Reason {
        let Self { command, why } = self;
        let message = format!(
            "`{command}` {why}, and tools.exec.shield is `on`: the owner can set it to `auto`, or run the gateway under an account of its own"
        );
        Reason::new("shield-setuid", message).at("tools.exec.shield")
    }
}
