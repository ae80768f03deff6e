//! Judges one command: allowlist, then safe bin, then skill, else a miss with its reason.

use interlock_command::{Closed, Command, Program};
use interlock_programs::{Executable, Lookup, Resolver, in_trusted_dir, is_shell, starts_others};

use super::holds::Holds;
use super::paths;
use super::shield::{Needing, wants_shield};
use super::{CommandCaller, JudgedCall, Policy, SkillBin};
use crate::allowlist::{Candidate, NearMiss, Objection};
use crate::entry::Entry;
use crate::env::{self, Unadmitted};
use crate::safe_bin;
use crate::verdict::{CheckedFiles, EntryNeeds, JudgedCommand, Reason, SatisfiedBy, UsedEntry};

pub(super) fn judge(
    policy: &Policy,
    command: &Command,
    call: JudgedCall<'_>,
    needing: Option<&Needing>,
    resolver: &dyn Resolver,
) -> JudgedCommand {
    let executable = command.executable();
    let mut entry = None;
    let mut near = None;
    let mut files = None;
    let caller = CommandCaller::of_command(call, command);
    let look = SegmentLook {
        policy,
        command,
        caller,
        now_ms: call.now_ms,
        needing,
        resolver,
    };
    let mut found = SegmentFindings {
        used: &mut entry,
        near: &mut near,
        files: &mut files,
    };
    let (satisfied_by, reason) = match look.satisfied(&mut found) {
        Ok((by, reason)) => (Some(by), reason),
        Err(reason) => (None, reason),
    };
    JudgedCommand {
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
        needs: match satisfied_by {
            Some(_) => EntryNeeds::default(),
            None => EntryNeeds {
                by_path: executable.is_some_and(|program| {
                    paths::is_in_workspace(program, call.workspace, resolver)
                }),
                ..caller.needs(near)
            },
        },
        reason,
        entry,
        files,
    }
}

/// Findings about a command, besides whether it is satisfied.
struct SegmentFindings<'a> {
    used: &'a mut Option<UsedEntry>,
    /// The entry that matches except for the facts of the call.
    near: &'a mut Option<Box<Entry>>,
    files: &'a mut Option<CheckedFiles>,
}

type Satisfied = Result<(SatisfiedBy, Reason), Reason>;

/// A command, with everything that it is judged by.
struct SegmentLook<'a> {
    policy: &'a Policy,
    command: &'a Command,
    caller: CommandCaller<'a>,
    now_ms: u64,
    /// A program of the line that cannot work in the shield, so the line runs without it.
    needing: Option<&'a Needing>,
    resolver: &'a dyn Resolver,
}

impl SegmentLook<'_> {
    fn satisfied(&self, out: &mut SegmentFindings<'_>) -> Satisfied {
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
                let keys = interlock_programs::env_wrapper::assignment_keys(&command.argv);
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
        self.by_entry(executable, opaque, through_path, out)
            .map_err(|miss| {
                *out.near = miss.near;
                miss.reason
            })
    }

    fn by_entry(
        &self,
        executable: &Executable,
        opaque: Option<Reason>,
        through_path: bool,
        out: &mut SegmentFindings<'_>,
    ) -> Result<(SatisfiedBy, Reason), Miss> {
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
        let holds = Holds::of(
            command,
            executable,
            self.caller,
            &policy.allowlist,
            self.resolver,
        );
        let near = match policy.allowlist.find_with(&candidate, |entry| {
            let objects = self.needing.is_some() && wants_shield(entry);
            let objection = objects.then_some(Objection::Shield);
            objection.or_else(|| holds.objection(entry))
        }) {
            Ok(found) => {
                *out.files = holds.files(found.entry);
                *out.used = Some(UsedEntry {
                    key: found.entry.use_key(&found.origin),
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
        let near = near.map(Miss::near);
        if let Some(reason) = opaque {
            // An entry that lists the arguments and lacks only a fact of the call is more
            // informative.
            let near = near.filter(|miss| miss.near.is_some());
            return Err(near.unwrap_or_else(|| reason.into()));
        }
        // Safe bins and skills have no entry, so only the harmless table admits variables.
        let unadmitted = self.caller.env.unadmitted(None);
        let refusal = match (by_safe_bin(policy, command, executable), &unadmitted) {
            (Ok(reason), None) => return Ok((SatisfiedBy::SafeBin, reason)),
            (Ok(_), Some(unadmitted)) => Some(without_entry(name, unadmitted, "a safe bin")),
            (Err(refusal), _) => refusal,
        };
        // A skill's name never means a program in the workspace, where the agent could have put it.
        let is_skill = self.needing.is_none()
            && is_skill(policy, name, executable)
            && !holds.is_in_workspace();
        let skill_refusal = if through_path && is_skill {
            if self.caller.input.is_interactive() {
                Some(Reason::new(
                    "skill-interactive",
                    format!(
                        "a known skill names `{name}`, but the caller can type into this run: leave out `pty` and `stdin`"
                    ),
                ))
            } else if let Some(unadmitted) = &unadmitted {
                Some(without_entry(name, unadmitted, "a skill"))
            } else {
                let message = format!("a known skill names `{name}`");
                return Ok((SatisfiedBy::Skill, Reason::new("skill", message)));
            }
        } else {
            None
        };
        let refusal = skill_refusal.or(refusal).map(Miss::from);
        Err(near.or(refusal).unwrap_or_else(|| {
            let message = format!(
                "no entry for agent {} matches `{}`",
                policy.agent, executable.found
            );
            Reason::new("allowlist-miss", message).into()
        }))
    }
}

/// Why a command is not satisfied.
struct Miss {
    reason: Reason,
    /// The entry that matches except for the facts of the call.
    near: Option<Box<Entry>>,
}

impl From<Reason> for Miss {
    fn from(reason: Reason) -> Self {
        Self { reason, near: None }
    }
}

/// The reason for a program that needs no entry, called with a variable that only an entry can
/// admit.
fn without_entry(name: &str, unadmitted: &Unadmitted, what: &str) -> Reason {
    let message = format!(
        "{}, and `{name}` as {what} has no entry",
        unlisted(unadmitted)
    );
    Reason::new("env-unlisted", message)
}

fn unlisted(unadmitted: &Unadmitted) -> String {
    let Unadmitted {
        name,
        is_other_value,
    } = unadmitted;
    if *is_other_value {
        format!("this value of `{name}` is not in the table of harmless variables")
    } else {
        format!("`{name}` is not in the table of harmless variables")
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

/// Checks the name as written and the real name of the file. A multi-call binary is judged by the
/// name it was called with.
fn opaque(name: &str, executable: &Executable) -> Option<Reason> {
    let why = starts_others(name, executable)?;
    Some(Reason::new(
        "opaque",
        format!("`{name}` {why}: only an entry with `args` satisfies it"),
    ))
}

/// Returns `Err(Some(_))` for a safe bin that is not used like one.
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

impl Miss {
    /// Turns the entry that came closest into the reason of the miss.
    fn near(near: NearMiss) -> Self {
        let (code, message, origin) = match near {
            NearMiss::Expired { origin } => ("entry-expired", "the entry has expired", origin),
            NearMiss::Arguments { origin } => {
                ("entry-arguments", "the entry wants other arguments", origin)
            }
            NearMiss::BaseArguments { origin, allows } => {
                let message = format!("of this program the base allows only: {allows}");
                return Reason::new("entry-arguments", message).at(origin).into();
            }
            NearMiss::Cwd { origin } => (
                "entry-cwd",
                "the entry is for another working directory",
                origin,
            ),
            NearMiss::Opaque { origin } => {
                ("opaque", "the entry does not list the arguments", origin)
            }
            NearMiss::Unprotected { origin } => (
                "entry-unprotected",
                "the entry names the path as found, but an account besides root could redirect that path",
                origin,
            ),
            NearMiss::Inert { origin } => (
                "entry-inert",
                "the remembered entry binds no arguments, so it satisfies nothing",
                origin,
            ),
            NearMiss::Objected {
                origin,
                objection,
                entry,
            } => return Self::objected(origin, &objection, entry),
        };
        Reason::new(code, message).at(origin).into()
    }

    fn objected(origin: String, objection: &Objection, entry: Box<Entry>) -> Self {
        let (code, message) = match objection {
            Objection::CalledAs => ("entry-name", "the entry is for another name"),
            Objection::Content => (
                "entry-content",
                "the entry is for other content of what runs, or it cannot be read",
            ),
            Objection::Unforeseen => (
                "entry-unforeseen",
                "the remembered entry covers no inline code, and no options or paths that start programs or lead out of the project",
            ),
            Objection::Shield => (
                "entry-shield",
                "the line runs without the shield, and the entry does not say `shield: \"off\"`",
            ),
            Objection::OtherEnv => (
                "entry-env",
                "the remembered entry is for other environment values",
            ),
            Objection::OtherInput => (
                "entry-input",
                "the entry is for a run with another terminal or standard input",
            ),
            Objection::Interactive => (
                "entry-interactive",
                "the caller can type into the program, and the entry is not `interactive`: leave out \
                 `pty` and `stdin`, or set the field",
            ),
            Objection::InWorkspace => (
                "entry-workspace",
                "the entry names a program by its name, and the program found by that name lies in the workspace, \
                 where agents write: only an entry with its path satisfies it",
            ),
            Objection::Paths(why) => {
                return Reason::new("entry-paths", why.clone()).at(origin).into();
            }
            Objection::BareRepository(directory) => {
                let message = format!(
                    "git takes `{directory}` for a repository by the files in it, and obeys the settings \
                     there: run git in another directory, or approve it"
                );
                return Reason::new("entry-repository", message).at(origin).into();
            }
            Objection::Env(unadmitted) => {
                let message = format!(
                    "{}, and the `env` of the entry does not admit it",
                    unlisted(unadmitted)
                );
                return Self {
                    reason: Reason::new("env-unlisted", message).at(origin),
                    near: Some(entry),
                };
            }
        };
        Self {
            reason: Reason::new(code, message).at(origin),
            near: matches!(objection, Objection::Interactive | Objection::Shield).then_some(entry),
        }
    }
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
