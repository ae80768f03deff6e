//! The layer of a run under `cow`: a directory of its scope that holds the run's changes until they
//! are committed or discarded.
//!
//! ```text
//! SCOPE/layers/RUN/layer.json   this record, written before the run starts
//!                  overlay/upper  what the run changed, as overlayfs keeps it
//!                  overlay/work   overlayfs's own
//!                  run.json     how a preview ended, what it wrote and started
//!                  ended        the run and everything that it started is gone
//! ```

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{MountOwner, SandboxEffects, SandboxMount, SandboxPlan};
use crate::run_plan::RunPlan;

/// The facts that any process needs to commit a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LayerRecord {
    pub run_id: String,
    pub agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    pub command: String,
    pub plan_digest: String,
    /// The directory under the layer. It must still be the same when the layer is committed.
    pub workspace: String,
    pub device: u64,
    pub inode: u64,
    /// The owner of new files, where Interlock runs as root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<MountOwner>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Whether the run is a preview: an approver decides about all of its changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_preview: bool,
    /// The name of the scope, as in records of its network.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope_id: String,
    /// The clock of file times before the run could see anything. A file of the workspace with a
    /// later change is not the file that the run began with.
    pub started_ns: i64,
    /// How far that clock is ahead of the time since boot. It reveals that the clock was set back,
    /// which would make later changes look earlier.
    pub clock_ahead_ns: i64,
}

impl LayerRecord {
    pub const FILE: &'static str = "layer.json";
    /// The directory that the sandbox mounts. It belongs to the user of the run.
    pub const OVERLAY: &'static str = "overlay";
    pub const UPPER: &'static str = "overlay/upper";
    pub const WORK: &'static str = "overlay/work";
    pub const ENDED: &'static str = "ended";

    /// The record of a starting run; `None` for a run without a layer.
    pub fn new(plan: &RunPlan, run_id: &str, started_ns: i64, clock_ahead_ns: i64) -> Option<Self> {
        let sandbox = plan.sandbox.as_ref()?;
        let SandboxMount::Overlay {
            source,
            device,
            inode,
            owner,
            ..
        } = sandbox.overlay()?
        else {
            return None;
        };
        Some(Self {
            run_id: run_id.to_owned(),
            agent_id: plan.agent_id.clone(),
            session_key: plan.session_key.clone(),
            command: plan.command.clone(),
            plan_digest: plan.digest().as_str().to_owned(),
            workspace: source.clone(),
            device: *device,
            inode: *inode,
            owner: *owner,
            protect: sandbox.protect.clone(),
            is_preview: sandbox.effects == SandboxEffects::Preview,
            scope_id: sandbox.scope_id.clone(),
            started_ns,
            clock_ahead_ns,
        })
    }
}

/// The directory of the layers in a scope.
const LAYERS: &str = "layers";

/// The directory of a run's layer in its scope. `None` for an id that is not a plain name.
pub fn layer_directory(scope: &Path, run_id: &str) -> Option<PathBuf> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_name = !run_id.is_empty() && run_id.len() <= 128 && run_id.bytes().all(is_plain);
    is_name.then(|| scope.join(LAYERS).join(run_id))
}

impl SandboxPlan {
    /// The directory of a run's layer.
    pub fn layer_of(&self, run_id: &str) -> Option<PathBuf> {
        layer_directory(Path::new(&self.scope_directory), run_id)
    }
}
