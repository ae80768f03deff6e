//! Checks whether the files that a command names lie beneath the `paths` of an entry.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use interlock_command::Command;
use interlock_programs::{
    Destination, DestinationKind, Executable, FileKind, FileOperand, ObeyedName, OperandKind,
    RefusedArgument, Resolver, file_placement, file_use, has_row,
};

use crate::allowlist::Allowlist;
use crate::path_rule::{PathRules, WORKSPACE};
use crate::protected::ProtectedPath;
use crate::verdict::{CheckedFiles, CheckedPath};

/// The most paths of one command that are followed.
const MAX_PATHS: usize = 8192;

/// Every program may use this file: it is always empty.
const NULL: &str = "/dev/null";

/// File systems that show processes and devices. No workspace lies there.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Returns where each path of the command leads if all of them are covered, else a message that
/// says why not. A program of the base must not lie where its entry lets agents work, because
/// agents write files there.
pub(super) fn check(
    patterns: &[String],
    command: &Command,
    of_base: Option<&Executable>,
    workspace: &[String],
    allowlist: &Allowlist,
    resolver: &dyn Resolver,
) -> Result<CheckedFiles, String> {
    let used = file_use(&command.argv).map_err(|refused| refusal(command, &refused))?;
    if used.operands.len() > MAX_PATHS {
        return Err(format!("it names more than {MAX_PATHS} files"));
    }
    let home = resolver.home();
    let home = home.map(|home| resolver.directory(&home, "/").unwrap_or(home));
    let wants_workspace = patterns.iter().any(|text| text.starts_with(WORKSPACE));
    let workspace = if wants_workspace {
        usable_workspaces(workspace, home.as_deref(), resolver)?
    } else {
        Vec::new()
    };
    let rules = PathRules::new(patterns, &workspace, home.as_deref());
    let mut look = PathLook {
        rules,
        cwd: command.cwd.clone(),
        resolver,
        obeyed: RefCell::default(),
    };
    if let Some(program) = of_base {
        look.outside(program)?;
        if used.only_version {
            is_itself(command.name(), program)?;
        }
    }
    let is_unknown = !has_row(command.name());
    let mut checked = CheckedFiles {
        environment: used.environment,
        ..CheckedFiles::default()
    };
    let mut moved_to = None;
    if let Some(directory) = used.directory {
        let shown = shown(command, &directory);
        let end = look.covered(directory.path, &shown)?;
        look.cwd.clone_from(&end.canonical);
        moved_to = Some(end.canonical.clone());
        checked.add(end);
    }
    for operand in used.operands.iter().filter(|operand| operand.path != NULL) {
        let shown = shown(command, operand);
        let end = look.covered(operand.path, &shown)?;
        // An unknown program may write to the files that it is given.
        if is_unknown && let Some(why) = look.obeyed(&end.canonical) {
            return Err(format!("{shown} is a protected path: {why}"));
        }
        if operand.wants == OperandKind::NotDirectory && end.kind == DestinationKind::Directory {
            return Err(format!(
                "{shown} is a directory, and links in it would be followed: add --no-dereference"
            ));
        }
        checked.add(end);
    }
    look.cwd.clone_from(&command.cwd);
    if let Some(placement) = file_placement(&command.argv) {
        look.placed(&placement, command.name(), allowlist, &mut checked)?;
    }
    // The expansion of a pattern is a list of files, even for programs that only print it.
    let words = command.argv.iter().zip(&command.literal).enumerate();
    for (index, (word, _)) in words.skip(1).filter(|(_, (_, literal))| !**literal) {
        let shown = format!("argument {index} of `{}`, `{word}`,", command.name());
        checked.add(look.covered(word, &shown)?);
    }
    if used.reads_cwd {
        look.covered(".", "the working directory")?;
    }
    if used.reads_repository {
        look.cwd = moved_to.unwrap_or(look.cwd);
        look.repository(&mut checked)?;
    }
    Ok(checked)
}

fn shown(command: &Command, operand: &FileOperand<'_>) -> String {
    let FileOperand { index, path, .. } = operand;
    format!("argument {index} of `{}`, `{path}`,", command.name())
}

/// Checks that the program really is the one with that name. A script, or a link to a program of
/// another name, may choose another program by files of the directory, as the shims of version
/// managers do.
fn is_itself(name: &str, program: &Executable) -> Result<(), String> {
    let file = program.canonical.rsplit('/').next().unwrap_or_default();
    if program.kind == FileKind::Native && file.contains(name) {
        return Ok(());
    }
    Err(format!(
        "the program is `{}`, which may start another one that files of the directory name: the base \
         covers the version of `{name}` itself",
        program.canonical
    ))
}

fn refusal(command: &Command, refused: &RefusedArgument) -> String {
    let RefusedArgument { index, why } = refused;
    let name = command.name();
    match command.argv.get(*index).filter(|_| *index > 0) {
        Some(word) => {
            format!(
                "argument {index} of `{name}`, `{word}`, is not covered by an entry with `paths`: {why}"
            )
        }
        None => format!("`{name}` is not covered by an entry with `paths`: {why}"),
    }
}

/// Returns the canonical directories that may be the workspace, or a message that says why there
/// are none.
fn usable_workspaces(
    directories: &[String],
    home: Option<&str>,
    resolver: &dyn Resolver,
) -> Result<Vec<String>, String> {
    let found = directories.iter();
    let found: Vec<String> = found
        .filter_map(|directory| resolver.directory(directory, "/"))
        .collect();
    let Some(first) = found.first().cloned() else {
        return Err(format!(
            "this call has no workspace that `{WORKSPACE}` could stand for"
        ));
    };
    let narrow = found.into_iter();
    let narrow: Vec<String> = narrow
        .filter(|directory| !is_too_wide(directory, home))
        .collect();
    if narrow.is_empty() {
        return Err(format!(
            "the workspace of this call is `{first}`, which holds more than a project: start in the \
             directory of a project, or set agents.list[].workspace"
        ));
    }
    Ok(narrow)
}

/// Whether the directory contains the whole home directory, or belongs to the kernel. If the home
/// directory is unknown, every directory is too wide.
fn is_too_wide(directory: &str, home: Option<&str>) -> bool {
    let is_beneath = |path: &str, root: &str| {
        let rest = path.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut kernel = KERNEL.iter();
    directory == "/"
        || home.is_none_or(|home| is_beneath(home, directory))
        || kernel.any(|root| is_beneath(directory, root))
}

/// Whether a program lies in the workspace of the call, where agents write.
pub(super) fn is_in_workspace(
    program: &Executable,
    workspace: &[String],
    resolver: &dyn Resolver,
) -> bool {
    !places_in_workspace(program, workspace, resolver).is_empty()
}

/// Returns the paths through which a program lies in the workspace of the call: its canonical path,
/// and its name in the directory where it was found. A workspace that contains the home directory
/// does not count.
pub(super) fn places_in_workspace(
    program: &Executable,
    workspace: &[String],
    resolver: &dyn Resolver,
) -> Vec<String> {
    let mut places = vec![program.canonical.clone()];
    if program.found != program.canonical {
        let name = program.found.rsplit('/').next().unwrap_or_default();
        let directory = parent(&program.found).unwrap_or("/");
        let directory = resolver.directory(directory, "/");
        let directory = directory.as_deref().map(|path| path.trim_end_matches('/'));
        places.extend(directory.map(|directory| format!("{directory}/{name}")));
    }
    let directories = workspace.iter();
    let directories: Vec<String> = directories
        .filter_map(|directory| resolver.directory(directory, "/"))
        .collect();
    let is_in = |place: &String, directory: &String| {
        let rest = place.strip_prefix(directory.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    places.retain(|place| directories.iter().any(|directory| is_in(place, directory)));
    if places.is_empty() {
        return places;
    }
    let home = resolver.home();
    let home = home.map(|home| resolver.directory(&home, "/").unwrap_or(home));
    let narrow = directories.iter();
    let narrow: Vec<&String> = narrow
        .filter(|directory| !is_too_wide(directory, home.as_deref()))
        .collect();
    places.retain(|place| narrow.iter().any(|directory| is_in(place, directory)));
    places
}

pub(super) struct PathLook<'a> {
    pub(super) rules: PathRules,
    /// The directory where relative paths begin.
    pub(super) cwd: String,
    pub(super) resolver: &'a dyn Resolver,
    /// The files that git obeys according to the configs at and above each directory.
    obeyed: RefCell<HashMap<String, Rc<Vec<ObeyedName>>>>,
}

impl PathLook<'_> {
    /// Returns why another program obeys the file at a canonical path, if one does.
    pub(super) fn obeyed(&self, canonical: &str) -> Option<String> {
        if let Some(row) = ProtectedPath::find(Path::new(canonical)) {
            return Some(row.reason.to_owned());
        }
        let named = self.obeyed_at(canonical);
        let found = named.iter().find(|name| {
            let rest = canonical.strip_prefix(&*name.path);
            rest.is_some_and(|rest| rest.is_empty() || (name.is_tree && rest.starts_with('/')))
        });
        found.map(|name| name.reason.clone())
    }

    /// Returns the files that settings name, as far as they may concern this path.
    pub(super) fn obeyed_at(&self, canonical: &str) -> Rc<Vec<ObeyedName>> {
        let directory = parent(canonical).unwrap_or("/");
        let mut known = self.obeyed.borrow_mut();
        let named = known
            .entry(directory.to_owned())
            .or_insert_with(|| Rc::new(self.resolver.git_obeys(directory)));
        Rc::clone(named)
    }

    /// Fails if the program, or the directory where it was found, lies beneath the patterns.
    fn outside(&self, program: &Executable) -> Result<(), String> {
        let directory = parent(&program.found).unwrap_or("/");
        let directory = self.resolver.directory(directory, "/");
        let mut places = [Some(&program.canonical), directory.as_ref()]
            .into_iter()
            .flatten();
        if places.any(|place| self.rules.cover(place)) {
            let found = &program.found;
            return Err(format!(
                "the program is `{found}`, which lies in the workspace: the base covers none of those"
            ));
        }
        Ok(())
    }

    /// Returns where a path leads if the patterns cover that destination.
    pub(super) fn covered(&self, path: &str, shown: &str) -> Result<Destination, String> {
        let end = self.resolver.destination(path, &self.cwd);
        let Some(end) = end else {
            return Err(format!("where {shown} leads cannot be followed"));
        };
        if self.rules.cover(&end.canonical) {
            return Ok(end);
        }
        Err(format!(
            "{shown} leads to `{}`, outside of the entry's `paths`",
            end.canonical
        ))
    }

    /// Checks that the patterns also cover the repository that git finds from the working directory
    /// upwards. A `.git` file points elsewhere. Such a file counts only in a worktree that its
    /// repository names as its own.
    fn repository(&self, checked: &mut CheckedFiles) -> Result<(), String> {
        let mut directory = self.covered(".", "the working directory")?.canonical;
        loop {
            let at = |name: &str| self.resolver.destination(name, &directory);
            let kind = |name: &str| at(name).map(|end| end.kind);
            let end = at(".git").ok_or_else(|| format!("`{directory}/.git` cannot be followed"))?;
            let is_repository = |prefix: &str| {
                kind(&format!("{prefix}HEAD")) == Some(DestinationKind::File)
                    && kind(&format!("{prefix}objects")) == Some(DestinationKind::Directory)
                    && kind(&format!("{prefix}refs")) == Some(DestinationKind::Directory)
            };
            match end.kind {
                DestinationKind::Directory if is_repository(".git/") => {
                    if !self.rules.cover(&end.canonical) {
                        return Err(format!(
                            "the repository is `{}`, outside of the entry's `paths`",
                            end.canonical
                        ));
                    }
                    checked.add(end);
                    checked.stop_above(&directory);
                    return Ok(());
                }
                DestinationKind::File => {
                    self.worktree(&directory, end, checked)?;
                    checked.stop_above(&directory);
                    return Ok(());
                }
                DestinationKind::Directory | DestinationKind::Missing => {}
            }
            if looks_bare(&directory, self.resolver) {
                return Err(format!("`{directory}` looks like a bare repository"));
            }
            let above = parent(&directory).filter(|above| self.rules.cover(above));
            let Some(above) = above.map(str::to_owned) else {
                return Err("no repository lies beneath the entry's `paths`".to_owned());
            };
            directory = above;
        }
    }
}

impl PathLook<'_> {
    /// Checks the repository of a linked worktree. The repository may lie elsewhere, because its
    /// owner created this worktree.
    fn worktree(
        &self,
        directory: &str,
        git_file: Destination,
        checked: &mut CheckedFiles,
    ) -> Result<(), String> {
        let own = format!("{}/.git", directory.trim_end_matches('/'));
        let refused = || {
            format!(
                "`{own}` is a file, and not that of a worktree which its repository names: it may point at any \
                 repository"
            )
        };
        let is_own = git_file.canonical == own;
        let found = self.resolver.git_worktree(&own).filter(|_| is_own);
        let found = found.ok_or_else(refused)?;
        checked.add(git_file);
        for path in [found.directory, found.repository] {
            let end = self.resolver.destination(&path, "/");
            let end = end
                .filter(|end| end.canonical == path)
                .ok_or_else(refused)?;
            checked.add(end);
        }
        Ok(())
    }
}

/// Returns the directory that git takes for a repository because of the files in it, such as files
/// of a clone. Git would obey the settings in those files. Returns `None` if git finds a `.git`
/// first, or nothing.
pub(super) fn bare_lookalike(cwd: &str, resolver: &dyn Resolver) -> Option<String> {
    let mut directory = cwd;
    loop {
        let git = resolver.destination(".git", directory)?;
        let own = format!("{}/.git", directory.trim_end_matches('/'));
        if git.kind == DestinationKind::File || looks_bare(&own, resolver) {
            return None;
        }
        if looks_bare(directory, resolver) {
            return Some(directory.to_owned());
        }
        directory = parent(directory)?;
    }
}

/// Whether git takes a directory for a repository: it holds a `HEAD`, which may be a dangling link,
/// and objects, which may also be in another directory.
fn looks_bare(directory: &str, resolver: &dyn Resolver) -> bool {
    let is_there = |name: &str| {
        let own = format!("{}/{name}", directory.trim_end_matches('/'));
        let end = resolver.destination(&own, "/");
        end.is_none_or(|end| end.kind != DestinationKind::Missing || end.canonical != own)
    };
    is_there("HEAD") && (is_there("objects") || is_there("commondir"))
}

pub(super) fn parent(directory: &str) -> Option<&str> {
    let (above, name) = directory.rsplit_once('/')?;
    (!name.is_empty()).then_some(if above.is_empty() { "/" } else { above })
}

impl CheckedFiles {
    /// Keeps git from looking for a repository above the one found in this directory.
    fn stop_above(&mut self, directory: &str) {
        let above = parent(directory).unwrap_or("/").to_owned();
        let ceiling = ("GIT_CEILING_DIRECTORIES".to_owned(), above);
        self.environment.push(ceiling);
    }

    pub(super) fn add(&mut self, end: Destination) {
        let path = CheckedPath {
            found: end.found,
            canonical: end.canonical,
        };
        if !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }
}
