//! A run without namespaces (backend `landlock`), for hosts that can make none. Landlock rules say
//! which files it opens, a filter keeps it from the network and from other processes, and
//! `attributes` handles the file operations that Landlock does not see. The run sees the host's
//! paths as they are.
//!
//! Each program of the run puts all of this on itself as its last step, so that nothing that the
//! plan starts runs without it. Plans whose guarantees would need namespaces are refused when they
//! are made.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use interlock_plan::{MountAccess, SandboxMount, SandboxPlan};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Resource, WaitOptions};

use super::attributes::AttributeGuard;
use super::executables::execution_rules;
use super::space::RunSpace;
use super::unsafe_confine::{
    give_up_capabilities, give_up_held_capabilities, install_filter, restrict_self,
};
use super::unsafe_notify::install_listener;
use super::{NO_CORE_HANDLER, hold_scope};
use crate::error::StartError;
use crate::streams::{Null, Streams, above_standard};
use crate::unsafe_spawn::{self, CStrings, ChildPlace, ChildProgram, Launch};
use interlock_syscalls::{FilterInstruction, MemoryFiles};

/// The oldest Landlock that keeps every promise: since this version, signals cannot cross its
/// border.
const NEEDED: ABI = ABI::V6;

/// The devices that are opened below `/dev`, for reading and writing.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// The restrictions that confine the programs of one run.
#[derive(Debug)]
pub struct RestrictedRun {
    rules: OwnedFd,
    /// Restricts what the programs of the run may execute, if that is limited.
    execution_rules: Option<OwnedFd>,
    guard: AttributeGuard,
    asking: Vec<FilterInstruction>,
    beside: Vec<FilterInstruction>,
    filter: Vec<FilterInstruction>,
    space: Arc<RunSpace>,
    /// Keeps the directory of the scope from being removed.
    _scope: OwnedFd,
}

impl RestrictedRun {
    /// Prepares everything that the programs of a plan put on themselves. This runs nothing.
    pub(crate) fn make(sandbox: &SandboxPlan) -> Result<Arc<Self>, StartError> {
        Self::prepare(sandbox)
            .map(Arc::new)
            .map_err(StartError::Sandbox)
    }

    fn prepare(sandbox: &SandboxPlan) -> Result<Self, String> {
        let no_table = "there is no table of system calls for this architecture";
        let files = match &sandbox.executables {
            Some(_) => MemoryFiles::NeverExecuted,
            None => MemoryFiles::Executable,
        };
        if sandbox.network.is_some() || sandbox.program_log.is_some() || sandbox.overlay().is_some()
        {
            return Err("the plan promises what `landlock` does not hold".to_owned());
        }
        let scope = hold_scope(&sandbox.scope_directory)
            .map_err(|error| format!("{}: {error}", sandbox.scope_directory))?;
        let rules = file_rules(sandbox)?;
        let execution_rules = match &sandbox.executables {
            Some(listed) => Some(execution_rules(listed).map_err(|error| error.to_string())?),
            None => None,
        };
        let guard = AttributeGuard::start(sandbox)
            .map_err(|error| format!("guarding the attributes of files: {error}"))?;
        Ok(Self {
            rules: above_standard(rules).map_err(|error| error.to_string())?,
            execution_rules,
            guard,
            asking: interlock_syscalls::program_about_attributes().ok_or(no_table)?,
            beside: interlock_syscalls::program_without_namespaces().ok_or(no_table)?,
            filter: interlock_syscalls::program(sandbox.unix_sockets, files).ok_or(no_table)?,
            space: Arc::new(RunSpace::new(sandbox, Vec::new())),
            _scope: scope,
        })
    }

    pub(crate) fn space(&self) -> Arc<RunSpace> {
        Arc::clone(&self.space)
    }

    /// Applies the restrictions. The child calls this as its last step before it becomes the
    /// program. This allocates nothing.
    pub(crate) fn become_run(&self, path: &CStr, argv: &CStrings) -> io::Result<()> {
        rustix::process::setrlimit(Resource::Core, NO_CORE_HANDLER)?;
        if rustix::process::geteuid().is_root() {
            give_up_capabilities()?;
        } else {
            give_up_held_capabilities()?;
        }
        restrict_self(self.rules.as_fd())?;
        if let Some(rules) = &self.execution_rules {
            restrict_self(rules.as_fd())?;
        }
        install_listener(&self.asking, self.guard.to_thread(), path, argv)?;
        install_filter(&self.beside)?;
        install_filter(&self.filter)
    }
}

/// Runs a shell that does nothing under the rules of a plan. The error says which step failed, and
/// why. The calling process must have no other children.
pub(super) fn try_restricted(sandbox: &SandboxPlan) -> Result<(), String> {
    let run = RestrictedRun::prepare(sandbox)?;
    let words = |error: io::Error| format!("starting a program under its rules: {error}");
    let path = OFlags::PATH | OFlags::CLOEXEC;
    let open = |name: &str| -> io::Result<OwnedFd> {
        above_standard(rustix::fs::open(name, path, Mode::empty())?)
    };
    let null = Null::open().map_err(words)?;
    let launch = Launch {
        program: ChildProgram::Descriptor(Arc::new(open("/bin/sh").map_err(words)?)),
        argv: CStrings::new(["sh", "-c", ":"].map(word).to_vec()),
        envp: Rc::new(CStrings::new(Vec::new())),
        cwd: Arc::new(open("/").map_err(words)?),
        view: None,
        shield: None,
        sandbox: None,
        restricted: Some(Arc::new(run)),
        tree: None,
        account: None,
        directory: c"/".to_owned(),
        streams: Streams {
            stdin: Null::for_reading().map_err(words)?,
            stdout: Arc::clone(&null.write),
            stderr: null.write,
        },
        place: ChildPlace::Session,
        open_files: None,
        first_without_memory: false,
    };
    let started = unsafe_spawn::spawn(&launch).map_err(|error| {
        words(match error {
            unsafe_spawn::SpawnError::Shield(error)
            | unsafe_spawn::SpawnError::Sandbox(error)
            | unsafe_spawn::SpawnError::Tree(error)
            | unsafe_spawn::SpawnError::Execute(error) => error,
        })
    })?;
    match rustix::process::waitpid(Some(started), WaitOptions::empty()) {
        // With `tree: enforce` and a plan without a command, the shell may not be executed.
        Ok(Some((_, status))) if status.exit_status() == Some(0) => Ok(()),
        Ok(_) => Err("a program under its rules does not run".to_owned()),
        Err(error) => Err(words(error.into())),
    }
}

fn word(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Returns the rules as a descriptor. They grant what the plan lists, and nothing else.
fn file_rules(sandbox: &SandboxPlan) -> Result<OwnedFd, String> {
    let mut rules = new_rules().map_err(|error| {
        format!(
            "this kernel's Landlock is too old for the backend `landlock`, or switched off: ABI 6 (Linux 6.12) is needed, with rules for files, TCP and signals ({error})"
        )
    })?;
    let failed = |path: &str, why: &dyn std::fmt::Display| format!("granting {path}: {why}");
    let files = AccessFs::from_file(NEEDED);
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    // All rights except those for making devices, which no run does.
    let write = AccessFs::from_all(NEEDED)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    for mount in &sandbox.mounts {
        match mount {
            SandboxMount::Bind {
                source,
                target,
                device,
                inode,
                access,
                owner: None,
                ..
            } if source == target => {
                let (place, kind) =
                    open_checked(source, (*device, *inode)).map_err(|why| failed(source, &why))?;
                let granted = match access {
                    MountAccess::Ro => read,
                    MountAccess::Rw => write,
                };
                let granted = match kind {
                    FileType::Directory => granted,
                    _ => granted & files,
                };
                rules = grant(rules, &place, granted).map_err(|why| failed(source, &why))?;
            }
            SandboxMount::Devices => {
                for device in DEVICES {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    if let Ok(place) = rustix::fs::open(device, flags, Mode::empty()) {
                        let granted = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
                        rules =
                            grant(rules, &place, granted).map_err(|why| failed(device, &why))?;
                    }
                }
            }
            other => {
                return Err(failed(
                    other.target(),
                    &"only what lies there can be granted",
                ));
            }
        }
    }
    let rules: Option<OwnedFd> = rules.into();
    rules.ok_or_else(|| "this kernel has no Landlock".to_owned())
}

fn new_rules() -> Result<RulesetCreated, landlock::RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))?
        .handle_access(AccessNet::from_all(NEEDED))?
        .scope(Scope::from_all(NEEDED))?
        .create()
}

fn grant(
    rules: RulesetCreated,
    place: &OwnedFd,
    granted: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    rules.add_rule(PathBeneath::new(place.as_fd(), granted))
}

/// Opens the file or directory with the checked device and inode, and returns its type.
fn open_checked(path: &str, checked: (u64, u64)) -> io::Result<(OwnedFd, FileType)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&place)?;
    if (found.st_dev, found.st_ino) != checked {
        return Err(io::Error::other("it is another one than was checked"));
    }
    Ok((place, FileType::from_raw_mode(found.st_mode)))
}
