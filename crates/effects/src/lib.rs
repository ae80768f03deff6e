//! Handles the files that runs and patches change: which changes need an approver, and how those of
//! a run under `cow` get into the workspace.
//!
//! Read `run_effects` ([`RunEffects`]: a run's changes, committed all or nothing),
//! `effect_approval` (changes that an approver decides about), `effect_guard` with `patch_guard`
//! and `named` (which files are executed or obeyed later), `facts` (what an approver reads of a
//! preview), then `owner` (what the owner does with kept changes) and `report`.

#![forbid(unsafe_code)]

mod audit_list;
mod effect_approval;
mod effect_guard;
mod facts;
mod last_output;
mod named;
mod owner;
mod patch_guard;
mod report;
mod run_effects;

pub use audit_list::shorten_list;
pub use last_output::last_output;
pub use patch_guard::{GuardedPlace, PatchGuard};
pub use report::{EffectReport, EffectState, LayerDescription, LayerError};
pub use run_effects::RunEffects;
