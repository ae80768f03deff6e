//! Assembles a policy from documents.

use std::collections::BTreeMap;

use crate::agent::AgentId;
use crate::allowlist::{Allowlist, EntryLists};
use crate::deny::DenyRules;
use crate::effective::Levels;
use crate::entry::{DenyRule, EntryError};
use crate::judge::{HostIdentity, Policy, SkillBin};
use crate::safe_bin::{Profiles, SafeBinProfile, SafeBinView};

/// All parts of a policy, still in the form of documents.
#[derive(Debug, Default)]
pub struct PolicyParts {
    pub agent: AgentId,
    /// `None` means the defaults of an unset policy.
    pub levels: Option<Levels>,
    /// The entries, with their origins.
    pub entries: EntryLists,
    pub deny: Vec<(DenyRule, String)>,
    /// `None` means the built-in safe programs.
    pub safe_bins: Option<Vec<String>>,
    pub safe_bin_trusted_dirs: Vec<String>,
    pub safe_bin_profiles: BTreeMap<String, SafeBinProfile>,
    pub strict_inline_eval: bool,
    pub auto_allow_skills: bool,
    pub skill_bins: Vec<SkillBin>,
    pub host_identity: HostIdentity,
}

/// A deny rule does not compile. Assembling fails, because a policy without the rule would have a
/// hole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {error}")]
pub struct PolicyError {
    pub origin: String,
    pub error: EntryError,
}

impl PolicyParts {
    /// Assembles the policy; `home` replaces `~` in patterns.
    pub fn assemble(self, home: Option<&str>) -> Result<Policy, PolicyError> {
        let deny = DenyRules::new(self.deny, home)
            .map_err(|(origin, error)| PolicyError { origin, error })?;
        let profiles = Profiles::with_custom(&self.safe_bin_profiles);
        let safe_bins = SafeBinView::new(
            self.safe_bins.as_deref(),
            &self.safe_bin_trusted_dirs,
            &profiles,
        );
        Ok(Policy {
            agent: self.agent,
            levels: self.levels.unwrap_or_else(|| Levels::join(&[])),
            allowlist: Allowlist::new(self.entries, home),
            deny,
            safe_bins,
            profiles,
            strict_inline_eval: self.strict_inline_eval,
            auto_allow_skills: self.auto_allow_skills,
            skill_bins: self.skill_bins,
            host_identity: self.host_identity,
        })
    }
}
