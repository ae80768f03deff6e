//! The owner's actions on kept changes of runs: look, commit, discard.

use std::time::Duration;

use interlock_approvals::{EffectDiff, OutsideRuns, process_name};
use interlock_patch::{EffectHashes, describe_effect};
use interlock_sandbox::{HeldLayer, RunLayerState};

use crate::report::{EffectReport, EffectState, LayerDescription, LayerError};
use crate::run_effects::{CommittedBy, RunEffects};

impl RunEffects<'_> {
    /// Returns the layers that wait for their owner or an approver.
    pub fn kept_layers(&self) -> Vec<RunLayerState> {
        self.scopes().layers()
    }

    /// Describes what a run changed, and why that is not in the workspace.
    pub fn describe_layer(&self, id: &str) -> Result<LayerDescription, LayerError> {
        let held = self.held_layer(id)?;
        let (source, guard) = self.effect_source(&held.layer)?;
        let effect = describe_effect(&source, &self.effect_target(), EffectHashes::None)?;
        let protected = guard.protected(&effect);
        let diff = EffectDiff::new(&source, &effect, &protected);
        let run_id = &held.layer.record.run_id;
        let mut report =
            EffectReport::of_effect(run_id, EffectState::Kept, &effect).with_protected(&protected);
        if let Some(kept) = &held.layer.kept {
            report.message = Some(format!("{}: {}", kept.code, kept.reason));
            report.approval_id.clone_from(&kept.approval_id);
        }
        let is_preview = held.layer.record.is_preview;
        Ok(LayerDescription {
            facts: is_preview.then(|| Self::preview_facts(&held.layer)),
            layer: held.layer.clone(),
            report,
            diff,
        })
    }

    /// Commits the changes of a run on behalf of its owner, including protected paths. Only a
    /// process outside every run may do this.
    pub fn commit_layer(&self, id: &str, _: OutsideRuns) -> Result<EffectReport, LayerError> {
        let held = self.held_layer(id)?;
        self.withdraw_approval(&held.layer);
        Ok(self.commit(held, &CommittedBy::Owner, process_name()))
    }

    /// Discards the changes of a run.
    pub fn discard_layer(&self, id: &str, _: OutsideRuns) -> Result<EffectReport, LayerError> {
        let held = self.held_layer(id)?;
        self.withdraw_approval(&held.layer);
        self.record_effect(&held.layer, "discarded", None, None, None);
        let run_id = held.layer.record.run_id.clone();
        held.remove().map_err(|source| LayerError::File {
            what: "the layer cannot be removed",
            source,
        })?;
        Ok(EffectReport::new(&run_id, EffectState::Discarded))
    }

    /// Withdraws the approval of a layer, because the owner's action decides about it.
    fn withdraw_approval(&self, layer: &RunLayerState) {
        let approval = layer
            .kept
            .as_ref()
            .and_then(|kept| kept.approval_id.as_deref());
        if let Some(approval) = approval {
            let _ = self.local.approvals().withdraw(approval);
        }
    }

    fn held_layer(&self, id: &str) -> Result<HeldLayer, LayerError> {
        let layer = self.scopes().layer(id);
        let layer = layer.ok_or_else(|| LayerError::Unknown(id.to_owned()))?;
        let held = layer
            .hold(Duration::ZERO)
            .map_err(|source| LayerError::File {
                what: "the layer cannot be opened",
                source,
            })?;
        held.ok_or_else(|| LayerError::Busy(layer.record.run_id.clone()))
    }
}
