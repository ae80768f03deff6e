//! Determines which paths of an effect are executed or obeyed later. The same tables judge an
//! agent's patches; a run may use a repository, so only the files that are obeyed in there count.

use std::path::PathBuf;

use interlock_approvals::ProtectedFile;
use interlock_patch::{EffectKind, EffectPath, FileAfter, FileBefore, FileChange, RunEffect};
use interlock_plan::LayerRecord;
use interlock_policy::{AgentId, ProtectedPath, RepositoryPath};

use crate::patch_guard::{GuardedPlace, PatchGuard};
use interlock_local::NO_CALLER_CONTEXT;
use interlock_local::{HostError, LocalState};

/// The tables that protect paths of one workspace from the runs of one agent.
pub(crate) struct EffectGuard {
    patch: PatchGuard,
    root: PathBuf,
    /// The owner's own table, relative to the workspace.
    protect: Vec<PathBuf>,
    /// The program that makes this judgment, if it is in the workspace.
    binary: Option<PathBuf>,
}

impl EffectGuard {
    pub(crate) fn load(local: &LocalState, record: &LayerRecord) -> Result<Self, HostError> {
        let root = PathBuf::from(&record.workspace);
        let agent = AgentId::new(&record.agent_id).map_err(|error| HostError::Setup {
            code: "LAYER_UNUSABLE",
            message: error.to_string(),
            remedy: "interlock sandbox discard ID".to_owned(),
        })?;
        let place = GuardedPlace {
            agent: &agent,
            caller: &NO_CALLER_CONTEXT,
            root: &root,
        };
        Ok(Self {
            patch: PatchGuard::load(local, place)?,
            protect: record.protect.iter().map(PathBuf::from).collect(),
            binary: std::env::current_exe().ok(),
            root,
        })
    }

    /// Returns the paths that need an approver.
    pub(crate) fn protected(&self, effect: &RunEffect) -> Vec<ProtectedFile> {
        let protected = effect.paths.iter().filter_map(|path| {
            let reason = self.reason(path)?;
            Some(ProtectedFile {
                path: path.path.display().to_string(),
                reason,
            })
        });
        protected.collect()
    }

    fn reason(&self, path: &EffectPath) -> Option<String> {
        if self.protect.iter().any(|own| path.path.starts_with(own)) {
            return Some("sandbox.protect names it".to_owned());
        }
        let absolute = self.root.join(&path.path);
        if self.binary.as_deref() == Some(absolute.as_path()) {
            return Some("it is the program of Interlock itself".to_owned());
        }
        match RepositoryPath::of(&path.path) {
            RepositoryPath::Outside => {}
            RepositoryPath::Ordinary => return None,
            RepositoryPath::Obeyed(reason) => return Some(reason.to_owned()),
        }
        // A directory is judged by its entries, each of which is a path of the effect. But a link
        // in its place would redirect files that are obeyed.
        let is_directory = path
            .after
            .as_ref()
            .map(|after| after.kind)
            .or(path.before.as_ref().map(|before| before.kind))
            == Some(EffectKind::Directory);
        if is_directory && ProtectedPath::find(&absolute).is_none() {
            return None;
        }
        self.patch.reason(&file_change(path, absolute))
    }
}

/// Describes the change in the form that the tables for patches read.
fn file_change(path: &EffectPath, absolute: PathBuf) -> FileChange {
    FileChange {
        path: absolute,
        shown: path.path.display().to_string(),
        before: path.before.as_ref().map(|before| FileBefore {
            device: before.device,
            inode: before.inode,
            mode: before.mode,
            is_link: before.kind == EffectKind::Link,
            sha256: None,
        }),
        after: path.after.as_ref().map(|after| FileAfter {
            sha256: after.sha256.clone().unwrap_or_default(),
            mode: Some(after.mode),
        }),
    }
}
