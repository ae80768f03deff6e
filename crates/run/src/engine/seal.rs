//! Files that a program opens by path after they were checked: which of them could be another by
//! then, and which can be kept from it.
//!
//! Where nobody but root could change which file a path leads to, but its content, the run sees a
//! snapshot of the approved content in its place. Where somebody could, a snapshot would hold
//! nothing: whoever renames another file over the path takes the snapshot away with the file that
//! it covers, so such a run is not race-free, and is left alone.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use interlock_plan::{Drift, Exposure, Pinned, Role, RunPlan};
use rustix::fs::{Mode, OFlags, Timespec};
use sha2::{Digest as _, Sha256};

use super::checked::{Form, Opened, cannot_read, hex};
use super::error::StartError;
use super::launcher::SHELL;
use super::unsafe_spawn::namespace::{MOST_FILES, Namespace, Snapshot};
use crate::shield::RunShield;

/// A script is read as a whole to be sealed. Larger ones are not.
const MOST_BYTES: u64 = 16 << 20;

/// What a plan leaves to be opened by path.
#[derive(Debug, Default)]
pub(super) struct ByPath<'a> {
    /// Could change in their content only.
    exposed: Vec<&'a Pinned>,
    /// The first that could become another file.
    open: Option<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    pub view: Option<Arc<Namespace>>,
    /// The first file that could still be another one when it is opened.
    pub open: Option<String>,
}

impl<'a> ByPath<'a> {
    pub fn of(plan: &'a RunPlan, executables: &[Opened]) -> Self {
        let mut by_path = Self::default();
        for opened in executables {
            if !holds(plan, opened) {
                by_path.leave_open(&opened.pinned.canonical);
            }
        }
        for pinned in plan.passed_on() {
            by_path.add(pinned, Role::Script);
        }
        let search_path = plan.env.get("PATH").map_or("", String::as_str);
        for bound in &plan.binding.files {
            by_path.add(&bound.file, bound.role);
            if let Some(name) = &bound.looked_up
                && Exposure::of_look_up(name, &bound.file.found, search_path) != Exposure::None
            {
                by_path.leave_open(&bound.file.canonical);
            }
        }
        for place in &plan.binding.absent {
            if Exposure::of_empty_place(place) != Exposure::None {
                by_path.leave_open(place);
            }
        }
        by_path
    }

    fn add(&mut self, pinned: &'a Pinned, role: Role) {
        let is_text = matches!(role, Role::Script | Role::Settings);
        match Exposure::of_file(&pinned.found) {
            Exposure::None => {}
            Exposure::Content
                if is_text && pinned.sha256.is_some() && pinned.size <= MOST_BYTES =>
            {
                let is_other = |other: &&Pinned| other.canonical != pinned.canonical;
                if self.exposed.iter().all(is_other) {
                    self.exposed.push(pinned);
                }
            }
            Exposure::Content | Exposure::Way => self.leave_open(&pinned.canonical),
        }
    }

    fn leave_open(&mut self, path: &str) {
        self.open.get_or_insert_with(|| path.to_owned());
    }

    /// Seals what is exposed, if nothing else is left open: half of a promise is none.
    pub fn seal(self, shield: Option<&RunShield>) -> Result<Sealed, StartError> {
        let Some(first) = self.exposed.first().filter(|_| self.open.is_none()) else {
            return Ok(Sealed {
                view: None,
                open: self.open,
            });
        };
        let first = first.canonical.clone();
        if self.exposed.len() > MOST_FILES {
            return Ok(Sealed {
                view: None,
                open: Some(first),
            });
        }
        let snapshots: Result<Vec<Snapshot>, StartError> =
            self.exposed.into_iter().map(snapshot).collect();
        match Namespace::make(&snapshots?, shield) {
            Ok(view) => Ok(Sealed {
                view: Some(Arc::new(view)),
                open: None,
            }),
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                Err(Drift::Replaced(first).into())
            }
            // No user namespaces here, or none left.
            Err(_) => Ok(Sealed {
                view: None,
                open: Some(first),
            }),
        }
    }
}

/// A native program runs from its descriptor. A script has to be among the bound files, as its
/// interpreter then is.
fn holds(plan: &RunPlan, opened: &Opened) -> bool {
    let canonical = &opened.pinned.canonical;
    let is_bound = || {
        let mut files = plan.binding.files.iter();
        files.any(|bound| bound.file.canonical == *canonical)
    };
    match opened.form {
        Form::Native => opened.keeps_content(),
        Form::Script => is_bound(),
        Form::Text => is_bound() && Exposure::of_file(SHELL) == Exposure::None,
        Form::Binary => false,
    }
}

/// Reads a file once, and compares exactly what was read with the plan.
fn snapshot(pinned: &Pinned) -> Result<Snapshot, StartError> {
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
    Ok(Snapshot {
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

/// The snapshot belongs to the running user, who could read the file, and execute it if anybody
/// could: that was checked.
fn snapshot_mode(mode: u32) -> u32 {
    let execute = if mode & 0o111 == 0 { 0 } else { 0o100 };
    mode & 0o777 | 0o400 | execute
}
