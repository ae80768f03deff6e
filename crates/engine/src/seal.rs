//! Files that a program opens by path after they were checked: finds which of them could be
//! exchanged in the meantime, and protects those that can be protected.
//!
//! If only root could change which file a path leads to, but other accounts could change the file's
//! content, the run sees a snapshot of the approved content instead. If another account could
//! change the path, a snapshot would not hold: renaming another file over the path removes the
//! snapshot together with the file that it covers. Such a run is not race-free, and gets no
//! snapshot.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, LazyLock};

use interlock_plan::{
    BoundRole, Drift, Exposure, PinnedFile, PlanProgram, RaceCause, RaceFreedom, RaceRisk, RunPlan,
    hex,
};
use rustix::fs::{Mode, OFlags, Timespec};
use sha2::{Digest as _, Sha256};

use super::checked::{Form, Opened, cannot_read};
use super::error::StartError;
use super::launcher::SHELL;
use super::unsafe_spawn::namespace::{FileSnapshot, MOST_FILES, Namespace};
use crate::shield::RunShield;

/// Largest script that is sealed, which requires reading it as a whole.
const MOST_BYTES: u64 = 16 << 20;

/// Most risks that are listed. An approver reads no more of them.
const MOST_RISKS: usize = 16;

/// The files that a plan leaves to be opened by path.
#[derive(Debug, Default)]
pub(super) struct ByPath<'a> {
    /// Files of which only the content could change.
    exposed: Vec<&'a PinnedFile>,
    /// Files whose path could come to lead to another file.
    risks: Vec<RaceRisk>,
    /// The run has another user than this process, or a view of its own, so it can have no
    /// snapshots.
    has_other_user: bool,
}

/// The result of sealing.
#[derive(Debug, Default)]
pub(super) struct SealedFiles {
    pub view: Option<Arc<Namespace>>,
    /// The files that could be exchanged before they are opened.
    pub risks: Vec<RaceRisk>,
}

/// How a file of the plan is executed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Execution<'a> {
    pub pinned: &'a PinnedFile,
    pub form: Form,
    /// No process can write to the file between the last check and its start.
    pub keeps_content: bool,
}

/// Predicts whether a run of this plan will be race-free, as far as that is known before it starts.
/// The approver sees the prediction before deciding. The start refuses a run that was shown as
/// race-free and is not.
pub fn race_freedom(plan: &RunPlan) -> RaceFreedom {
    let mut executions = Vec::new();
    let mut unreadable = Vec::new();
    for pinned in plan.executables() {
        match Execution::expected(pinned) {
            Some(execution) => executions.push(execution),
            None => unreadable.push(RaceRisk {
                path: pinned.canonical.clone(),
                cause: RaceCause::PathCanChange,
            }),
        }
    }
    let mut by_path = ByPath::of(plan, executions.into_iter());
    by_path.risks.extend(unreadable);
    if by_path.risks.is_empty() && !by_path.can_be_sealed() {
        by_path.expose_content();
    }
    RaceFreedom::from_risks(by_path.risks)
}

/// Whether this user can have the namespaces in which snapshots stand in for files.
static HAS_NAMESPACES: LazyLock<bool> = LazyLock::new(|| Namespace::make(&[], None).is_ok());

impl<'a> ByPath<'a> {
    pub fn of(plan: &'a RunPlan, executions: impl Iterator<Item = Execution<'a>>) -> Self {
        let mut by_path = Self {
            has_other_user: plan.account.is_some() || plan.sandbox.is_some(),
            ..Self::default()
        };
        for execution in executions {
            if let Some(cause) = execution.cause_of_race(plan) {
                by_path.leave_open(&execution.pinned.canonical, cause);
            }
        }
        for pinned in plan.passed_on() {
            by_path.add(pinned, BoundRole::Script);
        }
        for pinned in &plan.libraries {
            by_path.add(pinned, BoundRole::Program);
        }
        if !matches!(plan.program, PlanProgram::Direct { .. }) {
            // The shell enters these directories by their path.
            for directory in &plan.directories {
                if Exposure::of_file(&directory.requested) != Exposure::None {
                    by_path.leave_open(&directory.requested, RaceCause::PathCanChange);
                }
            }
        }
        for program in &plan.unknown_libraries {
            by_path.leave_open(program, RaceCause::LibrariesUnknown);
        }
        let search_path = plan.env.get("PATH").map_or("", String::as_str);
        for bound in &plan.binding.files {
            by_path.add(&bound.file, bound.role);
            if let Some(name) = &bound.looked_up
                && Exposure::of_look_up(name, &bound.file.found, search_path) != Exposure::None
            {
                by_path.leave_open(&bound.file.canonical, RaceCause::PathCanChange);
            }
        }
        for place in &plan.binding.absent {
            if Exposure::of_empty_place(place) != Exposure::None {
                by_path.leave_open(place, RaceCause::CanAppear);
            }
        }
        by_path
    }

    fn add(&mut self, pinned: &'a PinnedFile, role: BoundRole) {
        let is_text = matches!(role, BoundRole::Script | BoundRole::Settings);
        match Exposure::of_file(&pinned.found) {
            Exposure::None => {}
            Exposure::Content
                if is_text && pinned.sha256.is_some() && pinned.size <= MOST_BYTES =>
            {
                let is_other = |other: &&PinnedFile| other.canonical != pinned.canonical;
                if self.exposed.iter().all(is_other) {
                    self.exposed.push(pinned);
                }
            }
            Exposure::Content => self.leave_open(&pinned.canonical, RaceCause::ContentCanChange),
            Exposure::Way => self.leave_open(&pinned.canonical, RaceCause::PathCanChange),
        }
    }

    fn leave_open(&mut self, path: &str, cause: RaceCause) {
        let is_known = self.risks.iter().any(|risk| risk.path == path);
        if !is_known && self.risks.len() < MOST_RISKS {
            let path = path.to_owned();
            self.risks.push(RaceRisk { path, cause });
        }
    }

    fn can_be_sealed(&self) -> bool {
        let can_seal = self.exposed.len() <= MOST_FILES && !self.has_other_user && *HAS_NAMESPACES;
        self.exposed.is_empty() || can_seal
    }

    /// Turns exposed files into risks, because no snapshot can stand in for them.
    fn expose_content(&mut self) {
        for pinned in std::mem::take(&mut self.exposed) {
            self.leave_open(&pinned.canonical, RaceCause::ContentCanChange);
        }
    }

    /// Seals the exposed files, unless other risks remain: sealing only some files would not make
    /// the run race-free.
    pub fn seal(mut self, shield: Option<&RunShield>) -> Result<SealedFiles, StartError> {
        if !self.risks.is_empty() || self.exposed.is_empty() {
            return Ok(SealedFiles {
                view: None,
                risks: self.risks,
            });
        }
        if self.exposed.len() <= MOST_FILES && !self.has_other_user {
            let first = self.exposed[0].canonical.clone();
            let snapshots: Result<Vec<FileSnapshot>, StartError> =
                self.exposed.iter().copied().map(snapshot).collect();
            match Namespace::make(&snapshots?, shield) {
                Ok(view) => {
                    return Ok(SealedFiles {
                        view: Some(Arc::new(view)),
                        risks: Vec::new(),
                    });
                }
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                    return Err(Drift::Replaced(first).into());
                }
                // User namespaces are not available here, or their number is exhausted.
                Err(_) => {}
            }
        }
        self.expose_content();
        Ok(SealedFiles {
            view: None,
            risks: self.risks,
        })
    }
}

impl<'a> Execution<'a> {
    /// Describes the execution as the start will find it, without reading the file's content.
    fn expected(pinned: &'a PinnedFile) -> Option<Self> {
        let (form, keeps_content) = Opened::outlook(pinned).ok()?;
        Some(Self {
            pinned,
            form,
            keeps_content,
        })
    }

    /// Why the file could be exchanged, if it could. A native program runs from its descriptor. A
    /// script must be among the bound files, because its interpreter opens it by path.
    fn cause_of_race(&self, plan: &RunPlan) -> Option<RaceCause> {
        let canonical = &self.pinned.canonical;
        let is_bound = || {
            let mut files = plan.binding.files.iter();
            files.any(|bound| bound.file.canonical == *canonical)
        };
        match self.form {
            Form::Native => (!self.keeps_content).then_some(RaceCause::NoLease),
            Form::Script => (!is_bound()).then_some(RaceCause::PathCanChange),
            Form::Text => {
                let is_held = is_bound() && Exposure::of_file(SHELL) == Exposure::None;
                (!is_held).then_some(RaceCause::PathCanChange)
            }
            Form::Binary => Some(RaceCause::UnknownFormat),
        }
    }
}

/// Reads a file once, and compares exactly the bytes that it read with the plan.
fn snapshot(pinned: &PinnedFile) -> Result<FileSnapshot, StartError> {
    let path = pinned.canonical.as_str();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let read = || -> io::Result<(std::fs::Metadata, Vec<u8>)> {
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        let mut content = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut content)?;
        Ok((metadata, content))
    };
    let (metadata, content) = read().map_err(|error| cannot_read(path, error))?;
    pinned.check_metadata(&metadata)?;
    if pinned.sha256 != Some(hex(&Sha256::digest(&content))) {
        return Err(Drift::Changed(path.to_owned()).into());
    }
    let text = |text: &str| {
        CString::new(text).map_err(|_| StartError::Invalid("a path with a NUL".to_owned()))
    };
    Ok(FileSnapshot {
        found: text(&pinned.found)?,
        canonical: text(path)?,
        device: metadata.dev(),
        inode: metadata.ino(),
        content,
        mode: snapshot_mode(metadata.mode()),
        modified: Timespec {
            tv_sec: metadata.mtime(),
            tv_nsec: metadata.mtime_nsec(),
        },
    })
}

/// Returns the mode of the snapshot. The snapshot belongs to the running user, who could read the
/// file, and could execute it if any user could; both were checked.
fn snapshot_mode(mode: u32) -> u32 {
    let execute = if mode & 0o111 == 0 { 0 } else { 0o100 };
    mode & 0o777 | 0o400 | execute
}
