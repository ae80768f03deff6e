//! Turns a stage of the plan into a process: sets its environment and working directory, and
//! decides by which name or descriptor the kernel executes the pinned file.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use interlock_plan::{Drift, PinnedFile, PinnedPath, RunPlan, SandboxPlan};
use rustix::process::{Pid, Signal};

use super::Settings;
use super::checked::{Checked, Form, Opened};
use super::condition::against;
use super::error::{StartError, words};
use super::registry::{NotSpawned, Registry, StartedProcess};
use super::streams::Streams;
use super::unsafe_spawn::{CStrings, ChildPlace, ChildProgram, Launch, LaunchAccount};
use crate::sandbox::{FarSide, HostTree, RestrictedRun, RunSandbox};
use crate::shield::RunShield;

/// The shell that runs a script without a `#!` line.
pub(super) const SHELL: &str = "/bin/sh";

/// Starts the stages of one plan.
#[derive(Debug)]
pub(super) struct Launcher {
    checked: Checked,
    env: BTreeMap<String, String>,
    open_files: Option<u64>,
    first_without_memory: bool,
    terminal: Option<Arc<OwnedFd>>,
    confinement: RunConfinement,
    account: Option<Arc<LaunchAccount>>,
}

/// The confinement that the programs of a run are started in.
#[derive(Debug, Default)]
pub(super) struct RunConfinement {
    pub shield: Option<Arc<RunShield>>,
    pub sandbox: Option<(Arc<RunSandbox>, SandboxPlan)>,
    /// Set if the run has no namespaces. Its programs restrict themselves instead.
    pub restricted: Option<Arc<RestrictedRun>>,
    /// Set if the run executes on another machine. Only its client starts here.
    pub far: Option<Arc<FarSide>>,
    /// Set if the programs that a run on the host starts are limited or logged.
    pub tree: Option<Arc<HostTree>>,
}

impl RunConfinement {
    /// Returns the path by which the run sees a file or directory of the host.
    fn path_inside(&self, host_path: String) -> Result<String, StartError> {
        let Some((_, plan)) = &self.sandbox else {
            return Ok(host_path);
        };
        plan.path_inside(&host_path)
            .ok_or_else(|| StartError::Sandbox(format!("{host_path} does not exist inside it")))
    }
}

/// One program to start.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchOrder<'a> {
    pub executable: &'a PinnedFile,
    pub argv: &'a [String],
    /// Variables for this program only.
    pub env: &'a [(String, String)],
    /// Paths that must still lead where they led when the command was judged.
    pub paths: &'a [PinnedPath],
    pub cwd: &'a str,
    pub streams: &'a Streams,
    /// The first process of the same pipeline.
    pub leader: Option<Pid>,
}

/// Why a stage did not start.
#[derive(Debug)]
pub(super) enum LaunchFailure {
    /// The run is being ended.
    Stopped,
    Error(StartError),
}

impl From<StartError> for LaunchFailure {
    fn from(error: StartError) -> Self {
        Self::Error(error)
    }
}

impl From<Drift> for LaunchFailure {
    fn from(drift: Drift) -> Self {
        Self::Error(drift.into())
    }
}

impl Launcher {
    pub fn new(
        plan: &RunPlan,
        (checked, confinement): (Checked, RunConfinement),
        settings: &Settings,
        terminal: Option<Arc<OwnedFd>>,
    ) -> Self {
        Self {
            checked,
            env: match &confinement.far {
                Some(_) => client_environment(plan),
                None => plan.env.clone(),
            },
            open_files: settings.open_files,
            first_without_memory: settings.first_without_memory,
            terminal,
            confinement,
            account: plan.account.as_ref().map(LaunchAccount::new).map(Arc::new),
        }
    }

    /// Starts exactly the file that was checked. An error means that nothing runs.
    pub fn launch(
        &self,
        order: LaunchOrder<'_>,
        registry: &Registry,
    ) -> Result<StartedProcess, LaunchFailure> {
        let Some(opened) = self.checked.executable(order.executable) else {
            let path = &order.executable.canonical;
            return Err(StartError::Invalid(format!("{path} is not in the plan")).into());
        };
        let held = opened.hold()?;
        self.checked.check_binding_again()?;
        order.paths.iter().try_for_each(PinnedPath::check)?;
        let place = self.place(order.leader, registry);
        let prepared = self.prepared((order.cwd, order.streams), order.env, place)?;
        let attempt = |program, argv: CStrings| registry.spawn(&prepared.of(program, argv));

        #[cfg(feature = "race-hook")]
        super::race_hook::reached(super::race_hook::Moment::LastCheckIsOver);
        let path = path_as_called(order, opened);
        let argv = || arguments(order.argv.iter().cloned());
        let by_path = || c_string(&path).map(ChildProgram::Path);
        let spawned = match opened.form {
            // Never by path: either the checked file runs, or nothing does.
            Form::Native => attempt(self.native_program(opened)?, argv()?),
            Form::Script | Form::Binary => attempt(by_path()?, argv()?),
            Form::Text => match attempt(by_path()?, argv()?) {
                Err(NotSpawned::Failed(error)) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                    let rest = order.argv.iter().skip(1).cloned();
                    let argv = arguments(["sh".to_owned(), path.clone()].into_iter().chain(rest))?;
                    attempt(ChildProgram::Path(c_string(SHELL)?), argv)
                }
                other => other,
            },
        };
        let process = spawned.map_err(|error| failure(error, order.cwd, path))?;
        if let Err(drift) = held.check_after_start() {
            let _ = rustix::process::kill_process(process.pid, Signal::KILL);
            registry.wait(&process);
            return Err(drift.into());
        }
        Ok(process)
    }

    /// Starts the shell of a sandbox that shows another system than the host, by its path in there.
    /// This is only for runs in such a sandbox: everywhere else, a path is not proof enough.
    pub fn launch_inside(
        &self,
        shell: &str,
        argv: &[String],
        (cwd, streams): (&str, &Streams),
        registry: &Registry,
    ) -> Result<StartedProcess, LaunchFailure> {
        let shows_image = |(_, plan): &(_, SandboxPlan)| plan.container.is_some();
        if !self.confinement.sandbox.as_ref().is_some_and(shows_image) {
            let why = "the plan names a shell of an image, and the sandbox shows none".to_owned();
            return Err(StartError::Sandbox(why).into());
        }
        self.checked.check_binding_again()?;
        let prepared = self.prepared((cwd, streams), &[], self.place(None, registry))?;
        let program = ChildProgram::Path(c_string(shell)?);
        let spawned = registry.spawn(&prepared.of(program, arguments(argv.iter().cloned())?));
        spawned.map_err(|error| failure(error, cwd, shell.to_owned()))
    }

    /// Prepares everything of a launch except the program.
    fn prepared(
        &self,
        (cwd, streams): (&str, &Streams),
        env: &[(String, String)],
        place: ChildPlace,
    ) -> Result<PreparedLaunch<'_>, StartError> {
        let opened = self.directory(cwd)?;
        let directory = self.confinement.path_inside(present_path(opened, cwd))?;
        Ok(PreparedLaunch {
            launcher: self,
            cwd: Arc::clone(opened),
            directory: c_string(&directory)?,
            envp: Rc::new(self.environment(env)?),
            streams: streams.clone(),
            place,
        })
    }

    /// Returns a native program by its descriptor or, in a sandbox, by the file that the sandbox
    /// shows at the same path.
    fn native_program(&self, opened: &Opened) -> Result<ChildProgram, StartError> {
        let file = Arc::clone(&opened.file);
        if self.confinement.sandbox.is_none() {
            return Ok(ChildProgram::Descriptor(file));
        }
        let path = self
            .confinement
            .path_inside(opened.pinned.canonical.clone())?;
        let path = c_string(&path)?;
        Ok(ChildProgram::Inside { path, file })
    }

    pub fn far_side(&self) -> Option<&FarSide> {
        self.confinement.far.as_deref()
    }

    pub fn is_race_free(&self) -> bool {
        self.checked.is_race_free()
    }

    pub fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    fn place(&self, leader: Option<Pid>, registry: &Registry) -> ChildPlace {
        match &self.terminal {
            None => ChildPlace::Session,
            Some(terminal) if registry.is_dedicated() => ChildPlace::Foreground {
                terminal: Arc::clone(terminal),
                leader,
            },
            Some(terminal) => ChildPlace::SessionWithTerminal(Arc::clone(terminal)),
        }
    }

    /// Returns the directory of a command, as it was opened and checked.
    pub fn directory(&self, path: &str) -> Result<&Arc<OwnedFd>, StartError> {
        self.checked.directory(path).ok_or_else(|| {
            StartError::Invalid(format!("the working directory {path} is not in the plan"))
        })
    }

    /// Returns the directory that `cd target` enters from `from`.
    pub fn entered_directory(&self, from: &str, target: &str) -> Option<&Arc<OwnedFd>> {
        self.checked.entered_directory(from, target)
    }

    /// Builds exactly the environment that the plan says. Nothing is inherited.
    fn environment(&self, own: &[(String, String)]) -> Result<CStrings, StartError> {
        let mut all: BTreeMap<&str, &str> = BTreeMap::new();
        all.extend(
            self.env
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        all.extend(
            own.iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        let strings = all.into_iter().map(|(key, value)| {
            if key.is_empty() || key.contains('=') {
                return Err(StartError::Invalid(format!(
                    "{key:?} cannot be the name of a variable"
                )));
            }
            c_string(&format!("{key}={value}"))
        });
        Ok(CStrings::new(strings.collect::<Result<_, _>>()?))
    }
}

/// The environment of a client on this machine: its own variables, and the type of terminal, which
/// it requests on the far side. The environment of the run does not apply to the client.
fn client_environment(plan: &RunPlan) -> BTreeMap<String, String> {
    let ssh = plan.sandbox.as_ref().and_then(|own| own.ssh.as_ref());
    let mut env = ssh.map(|ssh| ssh.client_env.clone()).unwrap_or_default();
    let terminal = plan.env.get_key_value("TERM");
    env.extend(terminal.map(|(name, value)| (name.clone(), value.clone())));
    env
}

/// A launch that is complete except for its program.
struct PreparedLaunch<'a> {
    launcher: &'a Launcher,
    cwd: Arc<OwnedFd>,
    directory: CString,
    envp: Rc<CStrings>,
    streams: Streams,
    place: ChildPlace,
}

impl PreparedLaunch<'_> {
    fn of(&self, program: ChildProgram, argv: CStrings) -> Launch {
        let Launcher {
            checked,
            confinement,
            ..
        } = self.launcher;
        Launch {
            program,
            argv,
            envp: Rc::clone(&self.envp),
            cwd: Arc::clone(&self.cwd),
            view: checked.view().map(Arc::clone),
            shield: confinement.shield.clone(),
            sandbox: confinement.sandbox.as_ref().map(|(own, _)| Arc::clone(own)),
            restricted: confinement.restricted.clone(),
            tree: confinement.tree.clone(),
            account: self.launcher.account.clone(),
            directory: self.directory.clone(),
            streams: self.streams.clone(),
            place: self.place.clone(),
            open_files: self.launcher.open_files,
            first_without_memory: self.launcher.first_without_memory,
        }
    }
}

/// Translates the failure to spawn a requested program.
fn failure(error: NotSpawned, cwd: &str, path: String) -> LaunchFailure {
    LaunchFailure::Error(match error {
        NotSpawned::Stopped => return LaunchFailure::Stopped,
        NotSpawned::Unshielded(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("the working directory {cwd} does not exist inside it");
            StartError::Shield(why)
        }
        NotSpawned::Unshielded(error) => StartError::Shield(words(&error)),
        NotSpawned::Unconfined(error) => StartError::Sandbox(words(&error)),
        NotSpawned::Unheld(error) => StartError::Tree(words(&error)),
        NotSpawned::Failed(source) => StartError::Execute { path, source },
    })
}

/// Returns where an opened directory is now. A shielded run opens it again, inside its own view.
fn present_path(directory: &OwnedFd, path: &str) -> String {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let present = std::fs::read_link(link).ok();
    let present = present.and_then(|present| present.into_os_string().into_string().ok());
    present.unwrap_or_else(|| path.to_owned())
}

/// The exit status that shells report for a command that did not start.
pub(super) fn exit_status(error: &StartError) -> i32 {
    let missing = match error {
        StartError::Drift(Drift::Gone(_)) => true,
        StartError::Execute { source, .. } => source.kind() == io::ErrorKind::NotFound,
        _ => false,
    };
    if missing { 127 } else { 126 }
}

/// Describes the error without its path, which the message already begins with.
pub(super) fn reason(error: &StartError) -> String {
    match error {
        StartError::Execute { source, .. } => words(source),
        other => other.to_string(),
    }
}

/// Returns the path that a script sees as its `$0`: the name as written, if that name leads to the
/// checked file.
fn path_as_called(order: LaunchOrder<'_>, opened: &Opened) -> String {
    let found = &opened.pinned.found;
    match order.argv.first() {
        Some(name)
            if name.contains('/') && against(order.cwd, name).replace("/./", "/") == *found =>
        {
            name.clone()
        }
        _ => found.clone(),
    }
}

fn arguments(argv: impl Iterator<Item = String>) -> Result<CStrings, StartError> {
    let strings: Vec<CString> = argv
        .map(|argument| c_string(&argument))
        .collect::<Result<_, _>>()?;
    if strings.is_empty() {
        return Err(StartError::Invalid("a command without a name".to_owned()));
    }
    Ok(CStrings::new(strings))
}

fn c_string(text: &str) -> Result<CString, StartError> {
    CString::new(text)
        .map_err(|_| StartError::Invalid("a NUL cannot be handed to a program".to_owned()))
}
