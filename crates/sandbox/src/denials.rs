//! What a sandbox denied to a run, for its result: certain denials, and those that its error texts
//! make probable. Error texts alone prove nothing: a path counts only if the sandbox hides it or
//! makes it read-only and the host does neither. The output is hostile, so every step is bounded.

use std::path::{Component, Path, PathBuf};

use interlock_plan::{MountAccess, MountTable, SandboxMount, SandboxPlan};
use serde::{Deserialize, Serialize};

use crate::binds::BindRules;

/// Most bytes of output that are examined, from the end, because errors are there.
const MAX_BYTES: usize = 64 * 1024;

/// Longest line that can be an error text.
const MAX_LINE: usize = 2_048;

/// Longest name of a program.
const MAX_NAME: usize = 255;

/// Most paths that are looked up on the host.
const MAX_PATHS: usize = 32;

/// Most denials in one result.
const MAX_DENIALS: usize = 8;

/// Texts that programs write if a path does not exist.
const ABSENT: [&str; 5] = [
    "no such file or directory",
    "enoent",
    "not found",
    "does not exist",
    "nonexistent",
];

/// Texts that programs write if a path cannot be written.
const REFUSED: [&str; 5] = [
    "read-only file system",
    "erofs",
    "permission denied",
    "eacces",
    "operation not permitted",
];

/// The subject of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DenialSubject {
    /// A limit of the sandbox was reached.
    Limit,
    /// A program of the command exists on the host, but not in the sandbox.
    Program,
    /// The system call filter ended the run.
    Filter,
    Path,
}

/// How certain it is that the sandbox was the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DenialCertainty {
    Certain,
    Probable,
}

/// Something that the sandbox denied to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxDenial {
    pub kind: DenialSubject,
    pub certainty: DenialCertainty,
    /// The name of the limit or the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The access to the path that the run would have needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<MountAccess>,
    /// The bind with which the run could have continued inside, as `PATH:ro` or `PATH:rw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<String>,
}

impl SandboxDenial {
    fn certain(kind: DenialSubject) -> Self {
        Self {
            kind,
            certainty: DenialCertainty::Certain,
            name: None,
            path: None,
            access: None,
            bind: None,
        }
    }
}

impl std::fmt::Display for SandboxDenial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.as_deref().unwrap_or_default();
        let path = self.path.as_deref().unwrap_or_default();
        match (self.kind, self.access) {
            (DenialSubject::Limit, _) => write!(f, "the limit `{name}` was reached"),
            (DenialSubject::Filter, _) => f.write_str("the filter of system calls ended the run"),
            (DenialSubject::Program, _) => {
                write!(f, "the program {path} is not in the sandbox")
            }
            (DenialSubject::Path, Some(MountAccess::Rw)) => {
                write!(f, "probably: {path} cannot be written in the sandbox")
            }
            (DenialSubject::Path, _) => write!(f, "probably: {path} is not in the sandbox"),
        }
    }
}

/// The facts about a run that has ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndedInside<'a> {
    /// The last part of its output.
    pub output: &'a str,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// The limit that it reached.
    pub limit: Option<&'a str>,
}

/// The parts of this host that may be named.
#[derive(Clone, Copy)]
pub struct DenialPlace<'a> {
    pub home: Option<&'a Path>,
    pub state_dir: &'a Path,
    /// Returns the path of a program on the host, by its name.
    pub find_program: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for DenialPlace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DenialPlace").finish_non_exhaustive()
    }
}

impl DenialPlace<'_> {
    /// Whether the owner could bind a path, or already shows it.
    fn may_be_shown(self, plan: &SandboxPlan, path: &Path) -> bool {
        self.by_bind_rules(plan, |rules| rules.may_show(path))
    }

    /// Returns the bind of a path to the same path, if the rules allow it.
    fn bind_of(self, plan: &SandboxPlan, path: &str, access: MountAccess) -> Option<String> {
        let bind = format!("{path}:{path}:{}", access.as_str());
        let is_bind = self.by_bind_rules(plan, |rules| rules.check(&bind).is_ok());
        is_bind.then(|| format!("{path}:{}", access.as_str()))
    }

    fn by_bind_rules<T>(self, plan: &SandboxPlan, ask: impl FnOnce(BindRules<'_>) -> T) -> T {
        let state_dir = self.state_dir;
        let state_dir = std::fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        let mut own = MountTable::read().other_paths(&state_dir);
        own.push(state_dir);
        ask(BindRules {
            home: self.home,
            own: &own,
            workspace: Path::new(&plan.workspace),
        })
    }
}

/// The signal for a system call that the filter does not let a process survive.
const SIGSYS: i32 = 31;

/// The exit code of a shell that did not find a program.
const NOT_FOUND: i32 = 127;

/// Returns what the sandbox denied to a run.
pub fn denials_of(
    plan: &SandboxPlan,
    ended: EndedInside<'_>,
    place: DenialPlace<'_>,
) -> Vec<SandboxDenial> {
    let mut denials = Vec::new();
    if let Some(limit) = ended.limit {
        denials.push(SandboxDenial {
            name: Some(limit.to_owned()),
            ..SandboxDenial::certain(DenialSubject::Limit)
        });
    }
    if ended.signal == Some(SIGSYS) {
        denials.push(SandboxDenial::certain(DenialSubject::Filter));
    }
    if plan.shows_other_system() {
        // An image or another machine may lack files without anything being denied.
        return denials;
    }
    if ended.exit_code == Some(NOT_FOUND) {
        denials.extend(denied_program(plan, ended.output, place));
    }
    add_paths(plan, ended.output, place, &mut denials);
    denials.truncate(MAX_DENIALS);
    denials
}

/// Returns the program that the shell did not find, if the host has it and the sandbox does not
/// show it.
fn denied_program(
    plan: &SandboxPlan,
    output: &str,
    place: DenialPlace<'_>,
) -> Option<SandboxDenial> {
    let said = last_lines(output).find_map(|line| {
        let said = line.strip_suffix(": not found");
        said.or_else(|| line.strip_suffix(": command not found"))
    })?;
    let name = said.rsplit(": ").next().unwrap_or(said);
    if name.is_empty() || name.len() > MAX_NAME || name.contains('/') {
        return None;
    }
    let path = (place.find_program)(name)?;
    let is_named = place.may_be_shown(plan, Path::new(&path));
    let is_hidden = view_of(plan, Path::new(&path)) == PathView::Hidden;
    (is_hidden && is_named).then(|| SandboxDenial {
        bind: place.bind_of(plan, &path, MountAccess::Ro),
        name: Some(name.to_owned()),
        path: Some(path),
        access: Some(MountAccess::Ro),
        ..SandboxDenial::certain(DenialSubject::Program)
    })
}

/// Returns the last lines that are short enough to be error texts, starting from the end.
fn last_lines(output: &str) -> impl Iterator<Item = &str> {
    let from = output.len().saturating_sub(MAX_BYTES);
    let from = output.ceil_char_boundary(from);
    let lines = output[from..].lines().rev();
    lines.filter(|line| line.len() <= MAX_LINE)
}

/// Adds each path that error texts name, once.
fn add_paths(
    plan: &SandboxPlan,
    output: &str,
    place: DenialPlace<'_>,
    denials: &mut Vec<SandboxDenial>,
) {
    let mut looked: Vec<&str> = Vec::new();
    for line in last_lines(output) {
        let lower = line.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let (is_absent, is_refused) = (says(&ABSENT), says(&REFUSED));
        if !is_absent && !is_refused {
            continue;
        }
        for path in named_paths(line) {
            if looked.len() >= MAX_PATHS || denials.len() >= MAX_DENIALS {
                return;
            }
            if looked.contains(&path) {
                continue;
            }
            looked.push(path);
            let Some(denial) = denied_path(plan, Path::new(path), is_refused, place) else {
                continue;
            };
            if !denials.iter().any(|known| known.path == denial.path) {
                denials.push(denial);
            }
        }
    }
}

/// Returns the absolute paths in a line, as programs write them.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    let is_end =
        |letter: char| letter.is_whitespace() || "'\"`\u{2018}\u{2019}()[]<>,;:=".contains(letter);
    // The program that reports the error is named first, and is not the subject of the error.
    let speaker = line.split_once(": ").map_or("", |(speaker, _)| speaker);
    let is_speaker = !speaker.contains(char::is_whitespace);
    let said = if is_speaker {
        &line[speaker.len()..]
    } else {
        line
    };
    said.split(is_end)
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.len() > 1 && word.starts_with('/') && !word.contains('\0'))
}

/// Returns the denial of one path: the sandbox hides it or makes it read-only, and the host does
/// not.
fn denied_path(
    plan: &SandboxPlan,
    path: &Path,
    is_write: bool,
    place: DenialPlace<'_>,
) -> Option<SandboxDenial> {
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let view = view_of(plan, path);
    let could_be = match view {
        PathView::Hidden => true,
        PathView::Seen(access) => is_write && access == MountAccess::Ro,
    };
    if !is_plain || !could_be {
        return None;
    }
    let (path, access) = if is_write {
        (writable_on_host(path)?, MountAccess::Rw)
    } else {
        std::fs::symlink_metadata(path).ok()?;
        (path.to_owned(), MountAccess::Ro)
    };
    let real = std::fs::canonicalize(&path).ok()?;
    // A run must not find out about paths that no bind may show, by asking for them.
    if !place.may_be_shown(plan, &path) || !place.may_be_shown(plan, &real) {
        return None;
    }
    Some(SandboxDenial {
        kind: DenialSubject::Path,
        certainty: DenialCertainty::Probable,
        name: None,
        bind: place.bind_of(plan, path.to_str()?, access),
        path: Some(path.to_str()?.to_owned()),
        access: Some(access),
    })
}

/// Returns the path itself, or the directory in which it would be created, if this host can write
/// there.
fn writable_on_host(path: &Path) -> Option<PathBuf> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(_) => path,
        Err(_) => path.parent()?,
    };
    let may = rustix::fs::access(there, rustix::fs::Access::WRITE_OK);
    may.is_ok().then(|| there.to_owned())
}

/// The access that a run has to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathView {
    /// The run sees nothing there, or something of its own.
    Hidden,
    Seen(MountAccess),
}

/// Most links at the top of the view that are followed.
const MAX_LINKS: usize = 4;

/// Determines the access by the last mount that reaches the path.
fn view_of(plan: &SandboxPlan, path: &Path) -> PathView {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let reaching = plan.mounts.iter().enumerate().filter(|(_, mount)| {
            let target = Path::new(mount.target());
            path.starts_with(target)
        });
        let nearest = reaching.max_by_key(|(index, mount)| (mount.target().len(), *index));
        let Some((_, mount)) = nearest else {
            return PathView::Hidden;
        };
        match mount {
            // Another directory at this path, such as a private home, does not show the host's own.
            SandboxMount::Bind {
                access,
                source,
                target,
                ..
            } if source == target => return PathView::Seen(*access),
            SandboxMount::Hold { access, .. } => return PathView::Seen(*access),
            SandboxMount::Overlay { .. } | SandboxMount::Cache { .. } => {
                return PathView::Seen(MountAccess::Rw);
            }
            SandboxMount::Link { target, to } => {
                let Ok(rest) = path.strip_prefix(target) else {
                    return PathView::Hidden;
                };
                path = Path::new("/").join(to).join(rest);
            }
            _ => return PathView::Hidden,
        }
    }
    PathView::Hidden
}

#[cfg(test)]
mod tests;
