//! Turns a judged request into the plan that pins what will run.

mod actions;
mod judged;
mod sandbox;
mod shell;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use interlock_command::{Analysis, Command, Program, Source};
use interlock_plan::{
    BoundRole, Drift, Elevation, LoadedFiles, PinnedDirectory, PinnedFile, PlanBinding,
    PlanProgram, PlanRetry, PlanShield, PlanStdin, PtySize, RunAccount, RunPlan,
};
use interlock_policy::{AgentId, Outcome, Transport, Verdict, env};
use interlock_programs::Executable;
use interlock_programs::builtins::Builtin;
use interlock_sandbox::PreparedSandbox;

use crate::account::environment_of;
use crate::executables::{HostTreeRules, TreeUnavailable};

use actions::{Judgement, pipelines};
pub(crate) use judged::{Allowed, PreparedRun};
pub(crate) use sandbox::{SANDBOX_PATH, SANDBOX_SHELL};
pub use shell::{ShellError, choose_shell};

/// The settings of a run besides its command.
#[derive(Debug, Clone)]
pub struct RunSettings<'a> {
    pub agent: &'a AgentId,
    pub session_key: Option<&'a str>,
    /// The user of the run, if it differs from the user of this process.
    pub account: Option<RunAccount>,
    /// The service's own environment.
    pub base_env: &'a BTreeMap<String, String>,
    /// The call's overrides.
    pub env: &'a BTreeMap<String, String>,
    pub path: &'a str,
    /// `tools.exec.pathPrepend`
    pub path_prepend: &'a [String],
    pub pty: Option<PtySize>,
    pub stdin: PlanStdin,
    pub timeout_ms: Option<u64>,
    pub shield: PlanShield,
    /// Where the run is confined; `None` outside of a sandbox.
    pub sandbox: Option<&'a PreparedSandbox>,
    /// How far the run leaves the sandbox of its conversation.
    pub elevated: Elevation,
    /// The sandboxed run that this run repeats outside of the sandbox.
    pub retry: Option<PlanRetry>,
    /// Which programs it starts, where the owner limits or logs them.
    pub tree: Option<&'a HostTreeRules>,
}

impl<'a> RunSettings<'a> {
    /// The same settings in a sandbox, which ends the run after `limit`.
    pub(crate) fn inside(self, sandbox: &'a PreparedSandbox, limit: Option<Duration>) -> Self {
        Self {
            sandbox: Some(sandbox),
            timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            ..self
        }
    }
}

/// Why no plan can be made. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Drift(#[from] Drift),
    #[error("`{name}`: {missing}")]
    Missing { name: String, missing: String },
    #[error("{0}")]
    Environment(String),
    #[error(transparent)]
    Shell(#[from] ShellError),
    #[error(transparent)]
    Tree(#[from] TreeUnavailable),
}

impl PrepareError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Drift(Drift::TooLarge(_)) => "BIND_TOO_LARGE",
            Self::Drift(_) => "PLAN_UNREADABLE",
            Self::Missing { .. } => "COMMAND_NOT_FOUND",
            Self::Environment(_) => "ENV_REJECTED",
            Self::Shell(_) => "SHELL_UNUSABLE",
            Self::Tree(_) => "TREE_UNAVAILABLE",
        }
    }
}

/// Variables of every run, so that programs can tell where they run.
const MARKS: [(&str, &str); 3] = [
    ("OPENCLAW_CLI", "1"),
    ("OPENCLAW_SHELL", "exec"),
    ("INTERLOCK_SHELL", "exec"),
];

/// Variables for runs without a terminal that the allowlist allows: an allowlisted program may
/// start a pager, and a pager executes commands that are typed into it.
const PAGERS_OFF: [(&str, &str); 5] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGERSECURE", "1"),
    ("LESSSECURE", "1"),
];

/// Makes the plan for a judged request. The plan itself does not say whether it may run.
pub fn prepare(
    analysis: &Analysis,
    verdict: &Verdict,
    settings: &RunSettings<'_>,
) -> Result<RunPlan, PrepareError> {
    let mut plan = prepare_by(analysis, verdict, settings, PinnedFile::of)?;
    bind_libraries(&mut plan)?;
    check_held(verdict, &plan)?;
    if let Some(tree) = settings.tree.filter(|_| plan.sandbox.is_none()) {
        plan.tree = Some(tree.for_plan(&plan)?);
    }
    if verdict.outcome == Outcome::Ask {
        plan.race_freedom = Some(interlock_engine::race_freedom(&plan));
    }
    Ok(plan)
}

/// Binds the files that the system loads into the plan's programs from places other than its own.
fn bind_libraries(plan: &mut RunPlan) -> Result<(), Drift> {
    let started = plan.executables().into_iter().chain(plan.passed_on());
    let bound = plan.binding.files.iter();
    let bound =
        bound.filter(|bound| matches!(bound.role, BoundRole::Interpreter | BoundRole::Program));
    let mut programs: Vec<String> = Vec::new();
    for file in started.chain(bound.map(|bound| &bound.file)) {
        if !programs.contains(&file.canonical) {
            programs.push(file.canonical.clone());
        }
    }
    for program in programs {
        let loaded = LoadedFiles::of(&program)?;
        for file in loaded.files {
            if !plan.libraries.contains(&file) {
                plan.libraries.push(file);
            }
        }
        for place in loaded.absent {
            if !plan.binding.absent.contains(&place) {
                plan.binding.absent.push(place);
            }
        }
        if loaded.is_unknown {
            plan.unknown_libraries.push(program);
        }
    }
    Ok(())
}

/// Checks that the plan pins every file that an entry holds by content: the judged content is what
/// runs.
fn check_held(verdict: &Verdict, plan: &RunPlan) -> Result<(), Drift> {
    let held = verdict.entries.iter().filter_map(|used| used.held.as_ref());
    for (path, sha256) in held.flat_map(|held| held.content.files()) {
        if !plan.holds_content(path, sha256) {
            return Err(Drift::Changed(path.to_owned()));
        }
    }
    Ok(())
}

/// Like [`prepare`], but pins executables only by path and file marks. Such a plan is for
/// comparison, not for running.
pub(crate) fn look_up(
    analysis: &Analysis,
    verdict: &Verdict,
    settings: &RunSettings<'_>,
) -> Result<RunPlan, PrepareError> {
    prepare_by(analysis, verdict, settings, |executable| {
        PinnedFile::of(&Executable {
            mutable: false,
            ..executable.clone()
        })
    })
}

/// A function that pins an executable.
type Pin = fn(&Executable) -> Result<PinnedFile, Drift>;

fn prepare_by(
    analysis: &Analysis,
    verdict: &Verdict,
    settings: &RunSettings<'_>,
    pin: Pin,
) -> Result<RunPlan, PrepareError> {
    let environment = environment(settings)?;
    let command = command_text(&analysis.source);
    let program = match verdict.transport {
        Transport::Direct => PlanProgram::Direct {
            pipelines: pipelines(&analysis.tree, &Judgement { analysis, verdict }, pin)?,
        },
        Transport::Shell
            if let Some(sandbox) = settings.sandbox
                && sandbox.plan.shows_other_system() =>
        {
            PlanProgram::Inside {
                shell: SANDBOX_SHELL.to_owned(),
                options: vec!["-l".to_owned()],
                text: sandbox::text_inside(settings, sandbox, &command),
            }
        }
        Transport::Shell if let Some(sandbox) = settings.sandbox => PlanProgram::Shell {
            options: sandbox::shell_options(verdict),
            shell: pin(&sandbox::sandbox_shell()?)?,
            text: sandbox::text_inside(settings, sandbox, &command),
        },
        Transport::Shell => {
            let shell = match &settings.account {
                Some(account) => Some(&account.shell),
                None => settings.base_env.get("SHELL"),
            };
            let shell = choose_shell(shell, settings.path)?;
            PlanProgram::Shell {
                options: shell::options(&shell.canonical),
                shell: pin(&shell)?,
                text: command.clone(),
            }
        }
    };
    let cwd = PinnedDirectory::of(&analysis.cwd)?;
    let directories = match verdict.transport {
        Transport::Direct => entered_directories(&cwd, &analysis.commands)?,
        Transport::Shell if verdict.outcome == Outcome::Ask => directories_of_text(analysis, &cwd),
        Transport::Shell => Vec::new(),
    };
    let mut plan = RunPlan {
        agent_id: settings.agent.to_string(),
        session_key: settings.session_key.map(str::to_owned),
        account: settings
            .account
            .as_ref()
            .map(|account| account.identity.clone()),
        command,
        program,
        cwd,
        directories,
        libraries: Vec::new(),
        unknown_libraries: Vec::new(),
        binding: binding(verdict)?,
        overrides: overrides(settings, &environment),
        env: environment,
        pty: settings.pty,
        stdin: settings.stdin,
        timeout_ms: settings.timeout_ms,
        race_freedom: None,
        shield: settings.shield,
        sandbox: settings.sandbox.map(|sandbox| sandbox.plan.clone()),
        elevated: settings.elevated,
        retry: settings.retry.clone(),
        tree: None,
    };
    if verdict.by_allowlist {
        turn_pagers_off(&mut plan);
    }
    Ok(plan)
}

/// Keeps pagers from starting in a run without a terminal that the allowlist allows. Variables that
/// are already set stay.
pub(crate) fn turn_pagers_off(plan: &mut RunPlan) {
    if plan.pty.is_some() {
        return;
    }
    for (name, value) in PAGERS_OFF {
        let variable = plan.env.entry(name.to_owned());
        variable.or_insert_with(|| value.to_owned());
    }
}

/// The directories that the `cd` commands of a shell text enter, as far as they can be seen. The
/// shell enters them by path, so the plan only checks them, and a superfluous one does no harm.
fn directories_of_text(analysis: &Analysis, cwd: &PinnedDirectory) -> Vec<PinnedDirectory> {
    let mut directories: Vec<PinnedDirectory> = Vec::new();
    let mut here = Some(cwd.canonical.clone());
    // Builtins of a line whose words are known do not appear in `sight`.
    let known = analysis.commands.iter().map(|command| &command.argv);
    let sight = analysis.sight();
    for argv in known.chain(sight.commands.iter().map(|seen| &seen.argv)) {
        let target = match &argv[..] {
            [name, target] if name == "cd" => target,
            [name, dashes, target] if name == "cd" && dashes == "--" => target,
            _ => continue,
        };
        let from = here
            .take()
            .or_else(|| target.starts_with('/').then(|| "/".to_owned()));
        let Some(entered) = from.and_then(|from| PinnedDirectory::entered(&from, target).ok())
        else {
            continue;
        };
        here = Some(entered.canonical.clone());
        if !directories.contains(&entered) && directories.len() < MAX_TEXT_DIRECTORIES {
            directories.push(entered);
        }
    }
    directories
}

/// At most this many directories of a text are pinned.
const MAX_TEXT_DIRECTORIES: usize = 64;

/// The names of the call's variables that the rules left in the environment of the run.
fn overrides(settings: &RunSettings<'_>, environment: &BTreeMap<String, String>) -> Vec<String> {
    let kept = settings
        .env
        .keys()
        .filter(|name| environment.contains_key(*name));
    kept.cloned().collect()
}

/// The directories that the `cd` commands of a line enter. Each command must run in one of them, or
/// in the working directory, as it was judged. A path that leads elsewhere by now is drift.
fn entered_directories(
    cwd: &PinnedDirectory,
    commands: &[Command],
) -> Result<Vec<PinnedDirectory>, Drift> {
    let mut directories: Vec<PinnedDirectory> = Vec::new();
    for command in commands {
        let is_cd = matches!(
            command.program,
            Program::Builtin {
                builtin: Builtin::Cd,
                accepted: Ok(()),
            }
        );
        if let (true, Some(target)) = (is_cd, command.argv.last()) {
            let entered = PinnedDirectory::entered(&command.cwd, target)?;
            if !directories.contains(&entered) {
                directories.push(entered);
            }
        }
    }
    for command in commands {
        let mut pinned = std::iter::once(cwd).chain(&directories);
        if !pinned.any(|directory| directory.canonical == command.cwd) {
            return Err(Drift::Replaced(command.cwd.clone()));
        }
    }
    Ok(directories)
}

/// The command as people read it and as the plan names it.
pub(crate) fn command_text(source: &Source) -> String {
    match source {
        Source::Text(text) => text.clone(),
        Source::Argv(argv) => {
            let words: Vec<String> = argv
                .iter()
                .map(|word| interlock_policy::quote(word))
                .collect();
            words.join(" ")
        }
    }
}

/// Where an approver is asked, the approval is for the content of the bound files. A command that
/// the policy itself allows is allowed regardless of that content, and earlier commands of a line
/// may write these files. Scripts that an entry holds by content are the exception.
fn binding(verdict: &Verdict) -> Result<PlanBinding, Drift> {
    if verdict.outcome == Outcome::Ask {
        return PlanBinding::pin(&verdict.binding);
    }
    let mut binding = PlanBinding::of_kind(verdict.binding.kind);
    for held in verdict.entries.iter().filter_map(|used| used.held.as_ref()) {
        let pinned = PlanBinding::pin(&held.binding)?;
        for bound in pinned.files {
            if !binding.files.contains(&bound) {
                binding.files.push(bound);
            }
        }
    }
    Ok(binding)
}

/// Variables with the secrets of Interlock's own servers and commands. No run has any use for them.
const SECRETS: [&str; 4] = [
    "INTERLOCK_GATEWAY_TOKEN",
    "OPENCLAW_GATEWAY_TOKEN",
    "INTERLOCK_GATEWAY_PASSWORD",
    "OPENCLAW_GATEWAY_PASSWORD",
];

/// Tells the first start of Interlock what to write. It means nothing to a run.
const STARTER: &str = "INTERLOCK_BASE";

/// The whole environment of a run: inheritable variables, then the call's overrides within the
/// rules, then PATH and the marks.
pub(crate) fn environment(
    settings: &RunSettings<'_>,
) -> Result<BTreeMap<String, String>, PrepareError> {
    if let Some(sandbox) = settings.sandbox {
        return sandbox::environment_inside(settings, sandbox);
    }
    let base = match &settings.account {
        Some(account) => Cow::Owned(environment_of(settings.base_env, account)),
        None => Cow::Borrowed(settings.base_env),
    };
    let composed = env::host_exec(&base, settings.env).accept();
    let mut environment = composed.map_err(|error| PrepareError::Environment(error.to_string()))?;
    environment.retain(|name, _| name != STARTER && !SECRETS.contains(&name.as_str()));
    environment.insert("PATH".to_owned(), settings.path.to_owned());
    // A terminal type that the call sets stays the one that was judged and shown.
    if settings.pty.is_some() && !settings.env.contains_key("TERM") {
        environment.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    environment.extend(MARKS.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Ok(environment)
}
