//! The layers of runs under `cow`, from the end of a run until they are committed or discarded.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interlock_plan::LayerRecord;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::removal::remove_tree;
use crate::scope::ScopeStore;

/// The name of the layers' directory in the directory of a scope.
pub(crate) const LAYERS: &str = "layers";

/// The file that tells the owner why a layer is kept.
const KEPT: &str = "kept.json";

/// The file with what an approver reads of a preview in addition to its changes.
const RUN: &str = "run.json";

/// The mark of a layer whose changes are in the workspace, and which only needs to be removed.
const COMMITTED: &str = "committed";

/// Pause between two checks of a layer that is in use.
const PAUSE: Duration = Duration::from_millis(5);

/// The layer of one run.
#[derive(Debug, Clone)]
pub struct RunLayerState {
    pub record: LayerRecord,
    pub directory: PathBuf,
    /// Why the layer was not committed when its run ended.
    pub kept: Option<KeptLayer>,
}

/// Why a layer waits for its owner or an approver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptLayer {
    pub code: String,
    pub reason: String,
    /// The approval that the layer waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    pub kept_at_ms: i64,
}

/// A held layer, which no other process commits or removes meanwhile.
#[derive(Debug)]
pub struct HeldLayer {
    pub layer: RunLayerState,
    _lock: OwnedFd,
}

impl ScopeStore {
    /// Returns every layer that is neither committed nor removed, oldest first.
    pub fn layers(&self) -> Vec<RunLayerState> {
        let mut layers: Vec<RunLayerState> = Vec::new();
        for scope in self.directories() {
            for directory in entries(&scope.join(LAYERS)) {
                if let Ok(layer) = RunLayerState::read(&directory) {
                    layers.push(layer);
                }
            }
        }
        layers.sort_by_key(|layer| layer.record.started_ns);
        layers
    }

    /// Returns the layer of a run, by its ID or a unique prefix of it.
    pub fn layer(&self, run_id: &str) -> Option<RunLayerState> {
        let is_meant = |layer: &RunLayerState| layer.record.run_id.starts_with(run_id);
        let mut found = self.layers().into_iter().filter(is_meant);
        let first = found.next().filter(|_| !run_id.is_empty())?;
        let is_only = first.record.run_id == run_id || found.next().is_none();
        is_only.then_some(first)
    }

    /// Returns the layer of exactly this run.
    pub fn layer_of_run(&self, run_id: &str) -> Option<RunLayerState> {
        self.directories().into_iter().find_map(|scope| {
            let directory = interlock_plan::layer_directory(&scope, run_id)?;
            RunLayerState::read(&directory).ok()
        })
    }

    /// Removes what commits and trials left behind.
    pub fn sweep_layers(&self) {
        for scope in self.directories() {
            for directory in entries(&scope.join(LAYERS)) {
                let is_over = directory.join(COMMITTED).exists();
                if is_over && let Ok(Some(_lock)) = lock(&directory, Duration::ZERO) {
                    let _ = remove(&directory);
                }
            }
        }
    }
}

impl RunLayerState {
    fn read(directory: &Path) -> io::Result<Self> {
        if directory.join(COMMITTED).exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let record = std::fs::read(directory.join(LayerRecord::FILE))?;
        let record: LayerRecord = serde_json::from_slice(&record)?;
        let kept = match std::fs::read(directory.join(KEPT)) {
            Ok(text) => Some(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            record,
            directory: directory.to_owned(),
            kept,
        })
    }

    /// Whether a process saw that the run and everything that it started is gone.
    pub fn is_ended(&self) -> bool {
        self.directory.join(LayerRecord::ENDED).exists()
    }

    pub fn upper(&self) -> PathBuf {
        self.directory.join(LayerRecord::UPPER)
    }

    /// Returns how a preview ended, and what it wrote and started, if that was recorded.
    pub fn run_facts(&self) -> Option<Vec<u8>> {
        std::fs::read(self.directory.join(RUN)).ok()
    }

    /// Returns the path of the mark that a commit makes.
    pub fn committed_mark(&self) -> PathBuf {
        self.directory.join(COMMITTED)
    }

    /// Waits up to `patience` until the run is gone and no other process holds the layer. Returns
    /// `None` if another process still holds it, or if the layer has been committed or removed.
    pub fn hold(&self, patience: Duration) -> io::Result<Option<HeldLayer>> {
        let Some(lock) = lock(&self.directory, patience)? else {
            return Ok(None);
        };
        match Self::read(&self.directory) {
            Ok(layer) => Ok(Some(HeldLayer { layer, _lock: lock })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl HeldLayer {
    /// Records why the layer stays.
    pub fn keep(&mut self, kept: KeptLayer) -> io::Result<()> {
        self.write(KEPT, &serde_json::to_vec(&kept)?)?;
        self.layer.kept = Some(kept);
        Ok(())
    }

    /// Records how a preview ended, and what it wrote and started.
    pub fn note_run(&self, facts: &[u8]) -> io::Result<()> {
        self.write(RUN, facts)
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.layer.directory.join(name);
        let new = path.with_extension("new");
        std::fs::write(&new, content)?;
        File::open(&new)?.sync_all()?;
        std::fs::rename(new, path)
    }

    /// Removes the layer with everything that the run changed.
    pub fn remove(self) -> io::Result<()> {
        remove(&self.layer.directory)
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    // The record goes first: without it, the rest cannot be committed.
    match std::fs::remove_file(directory.join(LayerRecord::FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    remove_tree(directory)
}

fn lock(directory: &Path, patience: Duration) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(directory, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let until = Instant::now() + patience;
    loop {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(opened)),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the subdirectories of a directory, or none if it does not exist.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(directory).into_iter().flatten().flatten();
    list.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
