//! Checks what an entry requires of a command beyond pattern, arguments and directory: the name of
//! the call, the facts of the call, the content of its script, and that nothing is included that
//! the approver did not see.

use std::cell::{OnceCell, RefCell};

use interlock_binding as binding;
use interlock_binding::ProjectScope;
use interlock_binding::{BindingKind, BoundRole};
use interlock_command::Command;
use interlock_programs::{Executable, Resolver, inline};

use super::CommandCaller;
use crate::allowlist::{Allowlist, Objection};
use crate::entry::{BoundContent, Entry, FileContent};
use crate::pattern::path_matches;
use crate::safe_bin::is_interpreter_like;
use crate::verdict::{CheckedFiles, HeldContent};

/// Facts about one command. Each is computed only when an entry needs it.
pub(super) struct Holds<'a> {
    command: &'a Command,
    executable: &'a Executable,
    caller: CommandCaller<'a>,
    allowlist: &'a Allowlist,
    resolver: &'a dyn Resolver,
    script: OnceCell<Option<HeldContent>>,
    /// The paths through which the program lies in the workspace.
    in_workspace: OnceCell<Vec<String>>,
    /// The files of the last entry with `paths` that raised no objection.
    files: RefCell<Option<CheckedFiles>>,
}

impl<'a> Holds<'a> {
    pub(super) fn of(
        command: &'a Command,
        executable: &'a Executable,
        caller: CommandCaller<'a>,
        allowlist: &'a Allowlist,
        resolver: &'a dyn Resolver,
    ) -> Self {
        Self {
            command,
            executable,
            caller,
            allowlist,
            resolver,
            script: OnceCell::new(),
            in_workspace: OnceCell::new(),
            files: RefCell::new(None),
        }
    }

    pub(super) fn objection(&self, entry: &Entry) -> Option<Objection> {
        if let Some(name) = &entry.called_as
            && *name != called_as(self.command)
        {
            return Some(Objection::CalledAs);
        }
        if entry.is_widened() && self.is_unforeseen() {
            return Some(Objection::Unforeseen);
        }
        // Base entries exclude such programs through their `paths`.
        if entry.is_for_name() && !entry.is_base() && self.is_foreign_name(entry) {
            return Some(Objection::InWorkspace);
        }
        if let Some(objection) = self.caller.objection(entry) {
            return Some(objection);
        }
        if let Some(wanted) = &entry.bound_file {
            let is_it = self
                .script()
                .is_some_and(|held| is_same(&held.content, wanted));
            if !is_it {
                return Some(Objection::Content);
            }
        }
        let Some(paths) = entry.paths.as_deref() else {
            return self.bare_repository(entry);
        };
        let workspace = self.caller.workspace;
        let of_base = entry.is_base().then_some(self.executable);
        let checked = super::paths::check(
            paths,
            self.command,
            of_base,
            workspace,
            self.allowlist,
            self.resolver,
        );
        match checked {
            Ok(files) => {
                self.files.replace(Some(files));
                None
            }
            Err(why) => Some(Objection::Paths(why)),
        }
    }

    /// An entry for some git commands, or for a directory, trusts the repository of the project. It
    /// does not trust files of the project that look like a repository, because their settings
    /// could name any program.
    fn bare_repository(&self, entry: &Entry) -> Option<Objection> {
        let is_narrow = entry.args.is_some() || entry.arg_pattern.is_some() || entry.cwd.is_some();
        let is_git = |path: &str| path.rsplit('/').next() == Some("git");
        if !is_narrow || !(is_git(self.command.name()) || is_git(&self.executable.canonical)) {
            return None;
        }
        super::paths::bare_lookalike(&self.command.cwd, self.resolver)
            .map(Objection::BareRepository)
    }

    /// Whether the program lies in the workspace of the call. Agents write there, so the name could
    /// mean a program that the agent put there.
    pub(super) fn is_in_workspace(&self) -> bool {
        !self.places_in_workspace().is_empty()
    }

    fn places_in_workspace(&self) -> &[String] {
        self.in_workspace.get_or_init(|| {
            super::paths::places_in_workspace(self.executable, self.caller.workspace, self.resolver)
        })
    }

    /// Whether the name of the entry leads to a program in the workspace that the entry does not
    /// trust. An entry for the directory of a project trusts the project's files if they decide
    /// what runs, and so also a program among them, such as `pytest` of a virtual environment.
    fn is_foreign_name(&self, entry: &Entry) -> bool {
        let places = self.places_in_workspace();
        if places.is_empty() {
            return false;
        }
        let home = self.resolver.home();
        let is_trusted = |place: &String| {
            let directory = entry.cwd.as_deref();
            directory.is_some_and(|directory| path_matches(directory, place, home.as_deref()))
        };
        !(places.iter().all(is_trusted) && self.runs_project_code())
    }

    /// Whether files of the project decide what the command does, judged by the words of the
    /// command: the project's own settings and tests, or a script that is given to an interpreter.
    fn runs_project_code(&self) -> bool {
        let binding = binding::of_command(self.command, self.resolver);
        let is_given_script = is_interpreter_like(self.command.name())
            && binding.files.iter().any(|bound| {
                bound.role == BoundRole::Script && bound.operand.is_some_and(|at| at > 0)
            });
        binding.kind == BindingKind::Project || is_given_script
    }

    /// Returns the files by which the satisfying entry was judged.
    pub(super) fn files(&self, entry: &Entry) -> Option<CheckedFiles> {
        entry.paths.as_ref()?;
        self.files.take()
    }

    /// Returns the content that a run by this entry must pin.
    pub(super) fn held(&self, entry: &Entry) -> Option<HeldContent> {
        entry.bound_file.as_ref()?;
        self.script().cloned()
    }

    fn script(&self) -> Option<&HeldContent> {
        self.script
            .get_or_init(|| sole_content(self.command, self.resolver))
            .as_ref()
    }

    /// Whether the command passes something that the approver did not see. The check uses the name
    /// of the call and the real name of the file. If files of a project decide, the table of such
    /// programs says what may follow the approved words.
    fn is_unforeseen(&self) -> bool {
        let binding = binding::of_command(self.command, self.resolver);
        if !binding.projects.is_empty() {
            let mut runs = binding.projects.iter();
            let is_covered = runs.all(|run| matches!(run.scope, ProjectScope::Leading(_)));
            return binding.kind != BindingKind::Project || !is_covered;
        }
        let mut argv = self.command.argv.to_vec();
        if inline::detect_through_carriers(&argv).is_some() {
            return true;
        }
        argv[0].clone_from(&self.executable.canonical);
        inline::detect_through_carriers(&argv).is_some()
    }
}

/// Returns the one file that decides what a command runs, with its present content: its script, or
/// the native program itself. Returns `None` if more than one file decides, or if a content cannot
/// be read.
pub(crate) fn sole_content(command: &Command, resolver: &dyn Resolver) -> Option<HeldContent> {
    let executable = command.executable()?;
    let mut binding = binding::of_command(command, resolver);
    // The project's files are trusted as they are, but the program is not.
    if binding.kind == BindingKind::Project {
        binding = binding::of_program(command, resolver);
    }
    let sole = match binding.sole_script() {
        Some(script) => &script.file,
        None if binding.kind == BindingKind::Native => executable,
        None => return None,
    };
    let content = |file: &Executable| {
        Some(FileContent {
            path: file.canonical.clone(),
            sha256: resolver.content_sha256(file)?,
        })
    };
    let FileContent { path, sha256 } = content(sole)?;
    let mut also: Vec<FileContent> = Vec::new();
    let others = binding.files.iter().map(|bound| &bound.file);
    for file in others.chain([executable]) {
        let is_known = file.canonical == path || also.iter().any(|one| one.path == file.canonical);
        if file.mutable && !is_known {
            also.push(content(file)?);
        }
    }
    let interpreters = binding.files.iter();
    let interpreters = interpreters.filter(|bound| bound.role == BoundRole::Interpreter);
    let interpreters = interpreters
        .map(|bound| bound.file.canonical.clone())
        .collect();
    let content = BoundContent {
        path,
        sha256,
        interpreters,
        also,
    };
    Some(HeldContent { binding, content })
}

/// Returns the last component of the name that the program is started with.
pub(crate) fn called_as(command: &Command) -> &str {
    let name = command.name();
    name.rsplit('/').next().unwrap_or(name)
}

fn is_same(content: &BoundContent, wanted: &BoundContent) -> bool {
    content.path == wanted.path
        && content.sha256.eq_ignore_ascii_case(&wanted.sha256)
        && (wanted.interpreters.is_empty() || content.interpreters == wanted.interpreters)
        && wanted
            .also
            .iter()
            .all(|one| content.also.iter().any(|now| now.is_same(one)))
}
