//! The facts about a session besides its output: who started which command, and how the session can
//! be used.

use interlock_plan::{PlanShield, SandboxTree, StartedPrograms};
use serde::{Deserialize, Serialize};

/// The facts about one background session. They are in its `status.json`, so that later readers,
/// even after a crash, know its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionRecord {
    pub id: String,
    /// The id of the run, as its caller knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Two words, which are also the name of its directory.
    pub name: String,
    /// A verb and its target, for people.
    pub title: String,
    pub agent_id: String,
    /// The remote caller that ordered the session, as a digest of a secret of that caller. `None`
    /// for a caller on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    pub command: String,
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The process that serves the session. All processes of the run descend from it, no matter how
    /// they detach themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shim: Option<i32>,
    pub pty: bool,
    /// Whether input can be written to the session.
    pub writable: bool,
    /// The inode of the pipe for the session's input, if there is one. The process that holds the
    /// other end is closed to other processes of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_pipe: Option<u64>,
    pub race_free: bool,
    /// The shield that keeps the run away from Interlock; `None` in records of versions without
    /// shields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shield: Option<PlanShield>,
    /// How the programs that a run on the host starts are limited or logged, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SandboxTree>,
    /// Whether the session is in the background: no call waits for its result.
    pub background: bool,
    /// How long the session is kept after its end.
    pub cleanup_ms: u64,
    /// The supervisor of the session. Every start of a supervisor has its own value.
    pub supervisor: String,
    /// Whether the run exceeded its memory limit.
    #[serde(default)]
    pub out_of_memory: bool,
    /// Protected paths that appeared or changed in its workspace, if the run could write to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_created: Vec<String>,
    /// The programs that the run started, if its sandbox logs them. Set at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<StartedPrograms>,
}
