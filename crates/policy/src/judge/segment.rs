//! One command: allowlist, then safe bin, then skill, else a miss with its reason.

use interlock_command::{
    Closed, Command, Executable, Lookup, Program, Resolver, in_trusted_dir, is_shell, starts_others,
};

use super::holds::Holds;
use super::shield::Needing;
use super::{Policy, SkillBin};
use crate::allowlist::{Candidate, NearMiss, Objection};
use crate::env;
use crate::safe_bin;
use crate::verdict::{Judged, Reason, SatisfiedBy, UsedEntry};

pub(super) fn judge(
    policy: &Policy,
    command: &Command,
    now_ms: u64,
    needing: Option<&Needing>,
    resolver: &dyn Resolver,
) -> Judged {
    let executable = command.executable();
    let mut entry = None;
    let look = Look {
        policy,
        command,
        now_ms,
        needing,
        resolver,
    };
    let (satisfied_by, reason) = match look.satisfied(&mut entry) {
        Ok((by, reason)) => (Some(by), reason),
        Err(reason) => (None, reason),
    };
    Judged {
        argv: command.argv.clone(),
        span: command.span,
        resolved: executable.map(|executable| executable.found.clone()),
        canonical: executable.map(|executable| executable.canonical.clone()),
        wrappers: command
            .wrappers
            .iter()
            .map(|layer| layer.name.clone())
            .collect(),
        cwd: command.cwd.clone(),
        satisfied_by,
        reason,
        entry,
    }
}

type Satisfied = Result<(SatisfiedBy, Reason), Reason>;

/// A command, and what it is judged by.
struct Look<'a> {
    policy: &'a Policy,
    command: &'a Command,
    now_ms: u64,
    /// What of the line cannot work in the shield: it runs without.
    needing: Option<&'a Needing>,
    resolver: &'a dyn Resolver,
}

impl Look<'_> {
    fn satisfied(&self, used: &mut Option<UsedEntry>) -> Satisfied {
        let command = self.command;
        if let Err(rejection) = env::check_assignments(&command.assignments) {
            return Err(refused_assignment(&rejection));
        }
        let name = command.name();
        let (executable, opaque, through_path) = match &command.program {
            Program::Builtin {
                accepted: Ok(()), ..
            } => {
                return Ok((
                    SatisfiedBy::Builtin,
                    Reason::new("builtin", format!("`{name}` is built into Interlock")),
                ));
            }
            Program::Builtin {
                accepted: Err(why), ..
            } => {
                return Err(Reason::new("builtin-form", (*why).to_owned()));
            }
            Program::Closed { reason, lookup } => {
                if reason.is_shell() {
                    return Err(closed_shell(name, reason));
                }
                let keys = interlock_command::env_assignment_keys(&command.argv);
                let assignments: Vec<_> =
                    keys.into_iter().map(|key| (key, String::new())).collect();
                if let Err(rejection) = env::check_assignments(&assignments) {
                    return Err(refused_assignment(&rejection));
                }
                (
                    found(name, lookup)?,
                    Some(closed_wrapper(name, reason)),
                    !name.contains('/'),
                )
            }
            Program::Script { file, .. } => {
                let executable = found(name, file)?;
                (executable, opaque(name, executable), false)
            }
            Program::File(lookup) => {
                let executable = found(name, lookup)?;
                (executable, opaque(name, executable), !name.contains('/'))
            }
        };
        if is_shell(&executable.canonical) {
            return Err(Reason::new(
                "shell",
                format!("`{name}` is a shell: an entry for it satisfies nothing"),
            ));
        }
        self.by_entry(executable, opaque, through_path, used)
    }

    fn by_entry(
        &self,
        executable: &Executable,
        opaque: Option<Reason>,
        through_path: bool,
        used: &mut Option<UsedEntry>,
    ) -> Satisfied {
        let Self {
            policy, command, ..
        } = *self;
        let name = command.name();
        let candidate = Candidate {
            path_name: through_path.then_some(name),
            found: &executable.found,
            canonical: &executable.canonical,
            protected: executable.protected,
            opaque: opaque.is_some(),
            arguments: &command.argv[1..],
            cwd: &command.cwd,
            now_ms: self.now_ms,
        };
        let holds = Holds::of(command, executable, self.resolver);
        let near = match policy.allowlist.find_with(&candidate, |entry| {
            let objects = self
                .needing
                .is_some_and(|needing| needing.objects_to(entry));
            let objection = objects.then_some(Objection::Shield);
            objection.or_else(|| holds.objection(entry))
        }) {
            Ok(found) => {
                *used = Some(UsedEntry {
                    key: found.entry.use_key(found.origin),
                    resolved: Some(executable.canonical.clone()),
                    held: holds.held(found.entry),
                    shield: found.entry.shield,
                });
                let message = format!("entry `{}`", found.entry.pattern);
                return Ok((
                    SatisfiedBy::Allowlist,
                    Reason::new("allowlist", message).at(found.origin),
                ));
            }
            Err(near) => near,
        };
        if let Some(reason) = opaque {
            return Err(reason);
        }
        let refusal = match by_safe_bin(policy, command, executable) {
            Ok(reason) => return Ok((SatisfiedBy::SafeBin, reason)),
            Err(refusal) => refusal,
        };
        if through_path && self.needing.is_none() && is_skill(policy, name, executable) {
            return Ok((
                SatisfiedBy::Skill,
                Reason::new("skill", format!("a known skill names `{name}`")),
            ));
        }
        Err(near.map(near_miss).or(refusal).unwrap_or_else(|| {
            Reason::new(
                "allowlist-miss",
                format!(
                    "no entry for agent {} matches `{}`",
                    policy.agent, executable.found
                ),
            )
        }))
    }
}

fn refused_assignment(rejection: &env::EnvRejection) -> Reason {
    let blocked = rejection
        .reasons()
        .map(|(key, class)| format!("{key}: {}", class.reason));
    let invalid = rejection
        .invalid_keys()
        .map(|key| format!("{key}: not a portable name"));
    let why: Vec<String> = blocked.chain(invalid).collect();
    let message = format!("a leading assignment is refused ({})", why.join("; "));
    Reason::new("env-assignment", message)
}

fn found<'a>(name: &str, lookup: &'a Lookup) -> Result<&'a Executable, Reason> {
    match lookup {
        Lookup::Found(executable) => Ok(executable),
        Lookup::Missing(missing) => Err(Reason::new("not-found", format!("`{name}`: {missing}"))),
    }
}

/// By the name as written and by what the file is really called; a multi-call binary goes by the
/// name it was called with.
fn opaque(name: &str, executable: &Executable) -> Option<Reason> {
    let why = starts_others(name, executable)?;
    Some(Reason::new(
        "opaque",
        format!("`{name}` {why}: only an entry with `args` satisfies it"),
    ))
}

/// `Err(Some(_))`: it is a safe bin, but not used like one.
fn by_safe_bin(
    policy: &Policy,
    command: &Command,
    executable: &Executable,
) -> Result<Reason, Option<Reason>> {
    if !matches!(command.program, Program::File(_)) {
        return Err(None);
    }
    let name = command.name().rsplit('/').next().unwrap_or_default();
    if !policy.safe_bins.contains(name) {
        return Err(None);
    }
    let dirs = &policy.safe_bins.trusted_dirs;
    if !in_trusted_dir(&executable.found, &executable.canonical, name, dirs) {
        let message = format!(
            "`{name}` is a safe bin, but `{}` is not in a trusted directory",
            executable.found
        );
        return Err(Some(
            Reason::new("safe-bin-untrusted", message).at("tools.exec.safeBinTrustedDirs"),
        ));
    }
    match safe_bin::check(name, &command.argv, &command.literal, &policy.profiles) {
        Ok(()) => Ok(
            Reason::new("safe-bin", format!("`{name}` is a safe bin")).at("tools.exec.safeBins")
        ),
        Err(refusal) => Err(Some(Reason::new("safe-bin-arguments", refusal.to_string()))),
    }
}

fn is_skill(policy: &Policy, name: &str, executable: &Executable) -> bool {
    let matches = |skill: &SkillBin| {
        skill.name == name
            && skill
                .path
                .as_ref()
                .is_none_or(|path| *path == executable.canonical)
    };
    policy.auto_allow_skills && policy.skill_bins.iter().any(matches)
}

fn near_miss(near: NearMiss) -> Reason {
    let (code, message, origin) = match near {
        NearMiss::Expired { origin } => ("entry-expired", "the entry has expired", origin),
        NearMiss::Arguments { origin } => {
            ("entry-arguments", "the entry wants other arguments", origin)
        }
        NearMiss::Cwd { origin } => (
            "entry-cwd",
            "the entry is for another working directory",
            origin,
        ),
        NearMiss::Opaque { origin } => ("opaque", "the entry does not list the arguments", origin),
        NearMiss::Unprotected { origin } => (
            "entry-unprotected",
            "the entry names the path as found, but somebody besides root could redirect that path",
            origin,
        ),
        NearMiss::Inert { origin } => (
            "entry-inert",
            "the remembered entry binds no arguments, so it satisfies nothing",
            origin,
        ),
        NearMiss::Objected { origin, objection } => {
            let (code, message) = match objection {
                Objection::CalledAs => ("entry-name", "the entry is for another name"),
                Objection::Content => (
                    "entry-content",
                    "the entry is for other content of the script, or it cannot be read",
                ),
                Objection::Shield => (
                    "entry-shield",
                    "the line runs without the shield, and the entry does not say `shield: \"off\"`",
                ),
                Objection::Unforeseen => (
                    "entry-unforeseen",
                    "the remembered entry covers no inline code and no options that start programs",
                ),
            };
            (code, message, origin)
        }
    };
    Reason::new(code, message).at(origin)
}

fn closed_shell(name: &str, closed: &Closed) -> Reason {
    match closed {
        Closed::ShellText(odd) => Reason::new(
            "shell-text",
            format!(
                "the text behind `{name} -c` is not plain: {}",
                odd.reason.message()
            ),
        ),
        Closed::UntrustedShell => Reason::new(
            "shell-untrusted",
            format!("`{name}` is a shell outside of the trusted directories"),
        ),
        Closed::Shell(why) | Closed::ShellOptions(why) => {
            Reason::new("shell", format!("`{name}`: {why}"))
        }
        Closed::Wrapper | Closed::UntrustedWrapper => closed_wrapper(name, closed),
    }
}

fn closed_wrapper(name: &str, closed: &Closed) -> Reason {
    let message = match closed {
        Closed::UntrustedWrapper => {
            format!("`{name}` starts another program and is not in a trusted directory")
        }
        _ => format!(
            "`{name}` starts another program in a way that is not looked through: only an entry with `args` satisfies it"
        ),
    };
    Reason::new("wrapper", message)
}
