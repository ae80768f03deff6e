//! apply_patch: parse, check and apply patches, all or nothing.
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/greet.rs
//! @@ fn greet() {
//! -    println!("hello");
//! +    println!("hello, world");
//! *** Add File: docs/greet.md
//! +# Greeting
//! *** Delete File: old.txt
//! *** End Patch
//! ```
//!
//! ```no_run
//! use interlock_patch::{ApplyOptions, Patch, ReservedPaths, apply, recover};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = ApplyOptions {
//!     root: "/home/me/project".into(),
//!     workspace_only: true,
//!     journal_dir: "/home/me/.local/state/interlock/patches".into(),
//!     reserved: ReservedPaths::default(),
//! };
//! recover(&options.journal_dir)?; // once, at start
//! let patch = Patch::parse("*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch")?;
//! let summary = apply(&patch, &options)?;
//! assert_eq!(summary.added[0].path, "a.txt");
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **All or nothing**, across files and across a crash: every file is old, or every file is new.
//!   See [`apply`] and [`recover`].
//! - **Nothing outside of the workspace** is read or written while `workspace_only` is on, whatever
//!   links say and whichever directories another process swaps meanwhile. Paths are first resolved
//!   as text, so that the patch is applied to exactly the paths that a policy saw in
//!   [`Patch::target_paths`].
//! - **No other change is lost**: a file that changes between being read and being replaced stops
//!   the patch. If undoing would overwrite what another process wrote meanwhile, both versions
//!   stay, and a [`Conflict`] names them.
//! - Permission bits are kept, and, where possible, owner, access list and user attributes. The
//!   set-user and set-group bits are not kept, as when a file is written in place. A file that the
//!   user may not write is not replaced.
//! - Patches of one workspace run one after the other if they use the same journal directory.
//!
//! # Choices where tools differ
//!
//! | question | here |
//! | --- | --- |
//! | adding a file that exists | refused; delete it earlier in the same patch to replace it |
//! | renaming onto a file that exists | refused, likewise |
//! | a missing final newline | stays missing; a present one stays |
//! | line ending of a changed line | that of the line it replaces; an added line takes its neighbour's |
//! | context that matches only by tolerance | the file's own line is kept, not the patch's spelling of it |
//! | only additions below a `@@ line` | after that line; without one, at the end of the file |
//! | a repeated header as first context line | means the header's own line |
//! | `*** Update File:` with only `*** Move to:` | a plain rename |
//! | updating a link | refused in a limited workspace; without the limit the file it leads to is changed |
//! | deleting a link | removes the link |
//! | updating a file with several hard links | refused in a limited workspace; without the limit it gets its own copy |
//! | empty lines between operations, and after a hunk | layout, unless they match the file |
//! | files that are not UTF-8 | their other lines can be changed |
//!
//! # Reading order
//!
//! 1. `patch`, `parse`: what a patch says
//! 2. `lines`, `matcher`, `edit`, `nearest`: one file and its hunks
//! 3. `workspace`, `paths`, `tree`, `found`, `reserved`: which files can be reached, and how
//! 4. `plan`, `changes`, `preview`, `summary`: what will happen
//! 5. `journal`, `commit`, `undo`, `recover`: making it happen as a whole
//! 6. `apply`: all of it in one function
//! 7. `layer`, `effect`, `effect_scan`, `effect_commit`, `effect_error`: what a run did in a layer
//!    over the workspace, and committing that with the same journal

#![forbid(unsafe_code)]

mod apply;
mod changes;
mod commit;
mod edit;
mod effect;
mod effect_commit;
mod effect_error;
mod effect_scan;
mod error;
mod found;
mod journal;
mod layer;
mod lines;
mod matcher;
mod nearest;
mod parse;
mod patch;
mod path_text;
mod paths;
mod plan;
mod preview;
mod recover;
mod reserved;
mod summary;
mod tree;
mod undo;
mod workspace;

pub use apply::{apply, apply_judged, check, check_judged};
pub use effect::{
    EffectAfter, EffectBefore, EffectChange, EffectHashes, EffectKind, EffectPath, EffectSource,
    MAX_EFFECT_BYTES, MAX_EFFECT_PATHS, RunEffect,
};
pub use effect_commit::{EffectTarget, commit_effect, describe_effect};
pub use effect_error::EffectError;
pub use error::ApplyError;
pub use nearest::Nearest;
pub use parse::{MAX_PATCH_BYTES, ParseError};
pub use patch::{Hunk, HunkLine, Operation, Patch};
pub use preview::{FileAfter, FileBefore, FileChange, Preview};
pub use recover::{FailedRecovery, RecoveredPatch, RecoveryOutcome, RecoveryReport, recover};
pub use reserved::ReservedPaths;
pub use summary::{FileSummary, Hashes, MoveSummary, PatchSummary, sha256};
pub use undo::Conflict;
pub use workspace::ApplyOptions;

/// Hooks for tests that stop a patch, or make it fail, at a chosen step. They are not part of the
/// interface.
#[doc(hidden)]
pub mod observed {
    pub use crate::apply::apply_observed;
    pub use crate::commit::{CommitStep, Observer};
    pub use crate::effect_commit::commit_effect_observed;
    pub use crate::recover::recover_observed;
}
