//! What is known of a session besides its output: who started what, and how it can be used.

use interlock_plan::{PlanShield, SandboxTree, StartedPrograms};
use serde::{Deserialize, Serialize};

/// The facts of one background session. They lie in its `status.json`, so that a later reader,
/// after a crash too, knows whose session it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionRecord {
    pub id: String,
    /// The id of the run, as its caller knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Two words; also the name of its directory.
    pub name: String,
    /// Verb and target, for people.
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
    /// The process that serves it. All processes of the run descend from this one, however they
    /// detach themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shim: Option<i32>,
    pub pty: bool,
    /// Input can be written to it.
    pub writable: bool,
    /// The inode of the pipe that its input goes through, where that is a pipe: the process that
    /// holds the other end is closed to other processes of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_pipe: Option<u64>,
    pub race_free: bool,
    /// What keeps it away from Interlock itself; none in records of versions without shields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shield: Option<PlanShield>,
    /// How the programs are held that a run on the host starts, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SandboxTree>,
    /// The session is in the background: no call waits for its result any more.
    pub background: bool,
    /// How long it is kept after its end.
    pub cleanup_ms: u64,
    /// Which supervisor it belongs to, one value for each time that one is started.
    pub supervisor: String,
    /// It ran out of its memory limit.
    #[serde(default)]
    pub out_of_memory: bool,
    /// Protected paths that appeared or changed in its workspace, where it could write to that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_created: Vec<String>,
    /// The programs that it started, where its sandbox logs them; since its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<StartedPrograms>,
}
