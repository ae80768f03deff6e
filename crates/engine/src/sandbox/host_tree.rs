//! Limits or logs which programs a run on the host starts (`tools.exec.tree`), with the same means
//! as in a sandbox: Landlock rules (`enforce`), or a kernel that asks before each start (`log`).
//!
//! Each program of the plan puts this on itself as its last step, with `no_new_privs`: neither
//! rules nor filters could hold a process that gains privileges. The plan lists no program that
//! needs privileges.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use interlock_plan::{PlanTree, StartedPrograms};
use interlock_syscalls::{FilterInstruction, MemoryFiles};

use super::executables::execution_rules;
use super::program_log::ProgramLog;
use super::unsafe_confine::{install_filter, restrict_self};
use super::unsafe_notify::install_listener;
use crate::error::StartError;
use crate::streams::above_standard;
use crate::unsafe_spawn::CStrings;

/// The restrictions that the programs of one run put on themselves.
#[derive(Debug)]
pub struct HostTree {
    execution_rules: Option<OwnedFd>,
    program_log: Option<(ProgramLog, Vec<FilterInstruction>)>,
    beside: Vec<FilterInstruction>,
}

impl HostTree {
    /// Prepares the restrictions. This runs nothing.
    pub(crate) fn make(tree: &PlanTree) -> Result<Arc<Self>, StartError> {
        Self::prepare(tree).map(Arc::new).map_err(StartError::Tree)
    }

    fn prepare(tree: &PlanTree) -> Result<Self, String> {
        let no_table = "there is no table of system calls for this architecture";
        let (execution_rules, program_log, files) = match tree {
            PlanTree::Enforce { executables } => {
                let rules = execution_rules(executables).and_then(above_standard);
                let rules = rules.map_err(|error| format!("the rules of Landlock: {error}"))?;
                (Some(rules), None, MemoryFiles::NeverExecuted)
            }
            PlanTree::Log { rules } => {
                let log = ProgramLog::start(rules)
                    .map_err(|error| format!("starting the log of programs: {error}"))?;
                let filter = interlock_syscalls::program_about_execution().ok_or(no_table)?;
                (None, Some((log, filter)), MemoryFiles::Executable)
            }
        };
        Ok(Self {
            execution_rules,
            program_log,
            beside: interlock_syscalls::program_beside_host_tree(files).ok_or(no_table)?,
        })
    }

    /// Returns the programs that the run has started so far, if they are logged.
    pub(crate) fn programs(&self) -> Option<StartedPrograms> {
        let (log, _) = self.program_log.as_ref()?;
        Some(log.programs())
    }

    /// Applies the restrictions. The child calls this as its last step before it becomes the
    /// program. This allocates nothing.
    pub(crate) fn become_run(&self, path: &CStr, argv: &CStrings) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        if let Some(rules) = &self.execution_rules {
            restrict_self(rules.as_fd())?;
        }
        if let Some((log, filter)) = &self.program_log {
            install_listener(filter, log.to_thread(), path, argv)?;
        }
        install_filter(&self.beside)
    }
}

/// Checks whether this kernel can restrict which files a run executes. The error says what it
/// lacks.
pub fn probe_execution_rules() -> io::Result<()> {
    execution_rules(&[]).map(drop)
}
