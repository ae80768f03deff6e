//! Which programs a run on the host may start, where the owner limits or logs them (`tools.exec.tree`).

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use serde::{Deserialize, Serialize};

use crate::sandbox::{ProgramLogRules, SandboxTree};

/// Whether a file makes a program that starts from it more than the one that starts it: by set-user-id,
/// set-group-id or capabilities. In doubt it does.
pub fn gains_privileges(path: &str) -> bool {
    const SET_ID: u32 = 0o6000;
    let mode = std::fs::metadata(path).map(|found| found.mode());
    let is_plain = mode.is_ok_and(|mode| mode & SET_ID == 0);
    !is_plain || rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 0]).is_ok()
}

/// Whether the kernel leaves it to a shell to start a file: it is neither native nor names an interpreter.
pub fn is_left_to_shell(path: &str) -> bool {
    let mut head = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut head));
    read.is_ok_and(|length| {
        let head = head.get(..length).unwrap_or_default();
        !head.starts_with(b"\x7fELF") && !head.starts_with(b"#!")
    })
}

/// What holds for every program that a run on the host starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanTree {
    /// Each is recorded, and these are refused.
    Log { rules: ProgramLogRules },
    /// These files alone are executed, and files in directories among them; held by the kernel.
    Enforce { executables: Vec<String> },
}

impl PlanTree {
    /// The level of the config that it comes from.
    pub fn level(&self) -> SandboxTree {
        match self {
            Self::Log { .. } => SandboxTree::Log,
            Self::Enforce { .. } => SandboxTree::Enforce,
        }
    }

    /// What prompts say.
    pub fn words(&self) -> String {
        match self {
            Self::Log { .. } => "those that it starts are logged (tools.exec.tree)".to_owned(),
            Self::Enforce { executables } => format!(
                "it starts only the {} files and directories that the plan lists (tools.exec.tree)",
                executables.len()
            ),
        }
    }
}
