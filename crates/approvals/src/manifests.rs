//! The files of a project that decide what a run does, as an approver reads them: their names,
//! their contents, and their changes since the same program was last allowed in the same project.
//! This is for display only: such a run trusts the project's files as they are when it runs.

use std::fs::File;
use std::io::Read as _;

use interlock_plan::hex;
use interlock_policy::Verdict;
use interlock_store::{ApprovedContent, MAX_CONTENT_BYTES, PinnedScript, StoreError};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use crate::approvals::Approvals;
use crate::clock::now;
use crate::content::{ScriptDiff, difference};
use crate::stored_verdict::{StoredBinding, StoredProjectRun};
use crate::view::{ApprovalView, ViewLabel};

/// The limit for all manifests of an approval together.
const MAX_KEPT_BYTES: usize = 512 * 1024;
/// Further manifests of a project are not read.
const MAX_MANIFESTS: usize = 24;
/// How many digits of a hash an approver sees.
const SHOWN_DIGITS: usize = 16;
/// A longer key is not stored.
const MAX_KEY_BYTES: usize = 4096;

/// A manifest, compared with its content when its program was last allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestState {
    path: String,
    bytes: usize,
    sha256: String,
    before: Before,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Before {
    /// The program was not allowed here before.
    Unknown,
    Same,
    Changed(ScriptDiff),
}

/// The manifests that an approval keeps, so that its approvers and the next prompt can read them.
/// Files outside of the project are not read: a link must not show an unrelated file to an
/// approver.
pub fn read_manifests(verdict: &Verdict) -> Vec<PinnedScript> {
    let mut kept: Vec<PinnedScript> = Vec::new();
    let mut left = MAX_KEPT_BYTES;
    for run in &verdict.binding.projects {
        let Some(root) = &run.root else {
            continue;
        };
        for path in run.manifests.iter().take(MAX_MANIFESTS) {
            let is_known = kept.iter().any(|one| one.path == *path);
            if is_known || !is_beneath(path, root) {
                continue;
            }
            let Some(content) = read(path, left.min(MAX_CONTENT_BYTES)) else {
                continue;
            };
            left = left.saturating_sub(content.len());
            kept.push(PinnedScript {
                path: path.clone(),
                sha256: hex(&Sha256::digest(&content)),
                content,
            });
        }
    }
    kept
}

fn is_beneath(path: &str, root: &str) -> bool {
    let root = root.trim_end_matches('/');
    path.strip_prefix(root)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn read(path: &str, most: usize) -> Option<Vec<u8>> {
    // A FIFO or device that replaced the file must not block the reader.
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= most).then_some(bytes)
}

/// The key under which the content is stored. It contains the program, because the same file means
/// something else to another program.
fn key(program: &str, path: &str) -> Option<String> {
    let key = format!("project {program} {path}");
    (key.len() <= MAX_KEY_BYTES).then_some(key)
}

impl Approvals<'_> {
    /// Compares the manifests kept with an approval with the content that was last allowed to the
    /// agent.
    pub(crate) fn manifests(
        self,
        agent: &str,
        binding: &StoredBinding,
        kept: &[PinnedScript],
    ) -> Result<Vec<ManifestState>, StoreError> {
        let mut states: Vec<ManifestState> = Vec::new();
        for run in &binding.projects {
            for path in &run.manifests {
                let Some(now) = kept.iter().find(|one| one.path == *path) else {
                    continue;
                };
                if states.iter().any(|known| known.path == *path) {
                    continue;
                }
                let key = key(&run.program, path);
                let last = match &key {
                    Some(key) => self.store.approved_content(agent, key)?,
                    None => None,
                };
                let before = match last {
                    None => Before::Unknown,
                    Some(last) if last.sha256 == now.sha256 => Before::Same,
                    Some(last) => {
                        let text = String::from_utf8_lossy(&now.content);
                        Before::Changed(difference(path, &last.content, &text))
                    }
                };
                states.push(ManifestState {
                    path: path.clone(),
                    bytes: now.content.len(),
                    sha256: now.sha256.clone(),
                    before,
                });
            }
        }
        Ok(states)
    }
}

/// The manifest contents to store when their run is allowed.
pub(crate) fn allowed_manifests(
    agent: &str,
    binding: &StoredBinding,
    kept: &[PinnedScript],
) -> Vec<ApprovedContent> {
    let mut contents = Vec::new();
    for run in &binding.projects {
        for path in &run.manifests {
            let shown = kept.iter().find(|one| one.path == *path);
            let Some((shown, key)) = shown.zip(key(&run.program, path)) else {
                continue;
            };
            contents.push(ApprovedContent {
                agent: agent.to_owned(),
                path: key,
                sha256: shown.sha256.clone(),
                content: String::from_utf8_lossy(&shown.content).into_owned(),
                approved_at_ms: now(),
            });
        }
    }
    contents
}

/// The differences of all manifests as one.
pub(crate) fn manifest_diff(states: &[ManifestState]) -> Option<ScriptDiff> {
    let changed = states.iter().filter_map(|state| match &state.before {
        Before::Changed(diff) => Some(diff.clone()),
        Before::Unknown | Before::Same => None,
    });
    changed.reduce(|first, second| first.join(&second))
}

/// Adds a warning for each run of project code besides the binding, and a field for each manifest.
pub(crate) fn add_projects(
    view: &mut ApprovalView,
    binding: &StoredBinding,
    states: &[ManifestState],
) {
    let StoredBinding {
        kind,
        reason,
        projects,
        notes,
    } = binding;
    for run in projects {
        // The binding's reason already contains the first sentence.
        if kind != "project" || run.sentence != *reason {
            view.warning(ViewLabel::Binding, &run.sentence);
        }
    }
    for note in notes {
        view.field(ViewLabel::Binding, note);
    }
    let mut named: Vec<&str> = Vec::new();
    for run in projects {
        for path in &run.manifests {
            if named.contains(&path.as_str()) {
                continue;
            }
            named.push(path);
            match states.iter().find(|state| state.path == *path) {
                Some(state) => add_manifest(view, run, state),
                None => view.field(
                    ViewLabel::Manifest,
                    &format!("{path}: too long, or not in the project, so it is not compared"),
                ),
            }
        }
        if let (true, Some(root)) = (run.manifests.is_empty(), &run.root) {
            let text = format!(
                "{root} has none of the customary files for `{}`",
                run.program
            );
            view.field(ViewLabel::Manifest, &text);
        }
    }
}

fn add_manifest(view: &mut ApprovalView, run: &StoredProjectRun, state: &ManifestState) {
    let hash = state.sha256.get(..SHOWN_DIGITS).unwrap_or(&state.sha256);
    let what = format!("{}, {} bytes, sha256 {hash}…", state.path, state.bytes);
    let program = &run.program;
    match &state.before {
        Before::Unknown => view.field(
            ViewLabel::Manifest,
            &format!("{what}: `{program}` was not allowed here before"),
        ),
        Before::Same => view.field(
            ViewLabel::Manifest,
            &format!("{what}: unchanged since `{program}` was last allowed here"),
        ),
        Before::Changed(diff) => view.warning(
            ViewLabel::Manifest,
            &format!(
                "{what}: CHANGED since `{program}` was last allowed here, {} lines added, {} removed",
                diff.added, diff.removed
            ),
        ),
    }
}

/// Adds the names of manifests without a comparison, for a host that stores no decisions of its
/// own.
pub fn add_manifest_names(view: &mut ApprovalView, verdict: &Verdict) {
    let mut named: Vec<&str> = Vec::new();
    for run in &verdict.binding.projects {
        view.warning(ViewLabel::Manifest, &run.sentence);
        for path in &run.manifests {
            if !named.contains(&path.as_str()) {
                named.push(path);
                view.field(ViewLabel::Manifest, path);
            }
        }
    }
}
