//! Assembles the policy of an agent from the config and the document.

use interlock_config::{Config, types};
use interlock_policy::{
    AgentId, Ask, Document, HostIdentity, Policy, PolicyError, PolicyParts, SkillBin,
    auto_allow_skills, deny_rules, entries, safe_bin,
};

use crate::layers::levels;

/// The policy of an agent, from the config, the document and the call. `host_identity` says how
/// programs run that cannot work in the shield of this system.
pub fn policy(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    call_ask: Option<Ask>,
    host_identity: HostIdentity,
    home: Option<&str>,
) -> Result<Policy, PolicyError> {
    let levels = levels(config, document, agent, call_ask);
    PolicyParts {
        levels: Some(levels),
        ..policy_parts(config, document, agent, &[], host_identity)
    }
    .assemble(home)
}

/// The parts of a policy without its levels. A node gets the programs of skills (`skills`) from its
/// gateway.
pub fn policy_parts(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    skills: &[String],
    host_identity: HostIdentity,
) -> PolicyParts {
    let exec = config.exec_for(agent.as_str());
    PolicyParts {
        agent: agent.clone(),
        levels: None,
        entries: entries(document, agent).into_iter().collect(),
        deny: deny_rules(document, agent),
        safe_bins: exec.safe_bins.clone(),
        safe_bin_trusted_dirs: exec.safe_bin_trusted_dirs.clone().unwrap_or_default(),
        safe_bin_profiles: exec
            .safe_bin_profiles
            .iter()
            .map(|(name, profile)| (name.clone(), safe_bin_profile(profile)))
            .collect(),
        strict_inline_eval: exec.strict_inline_eval.unwrap_or(false),
        auto_allow_skills: auto_allow_skills(document, agent),
        skill_bins: skill_bins(config, skills),
        host_identity,
    }
}

fn skill_bins(config: &Config, of_gateway: &[String]) -> Vec<SkillBin> {
    let names = config.skills.bins.iter().flatten().chain(of_gateway);
    let bin = |name: &String| SkillBin {
        name: name.clone(),
        path: None,
    };
    names.map(bin).collect()
}

fn safe_bin_profile(profile: &types::SafeBinProfile) -> safe_bin::SafeBinProfile {
    let count =
        |value: Option<u64>| value.map(|value| usize::try_from(value).unwrap_or(usize::MAX));
    safe_bin::SafeBinProfile {
        min_positional: count(profile.min_positional),
        max_positional: count(profile.max_positional),
        allowed_value_flags: profile.allowed_value_flags.clone().unwrap_or_default(),
        allowed_flags: profile.allowed_flags.clone().unwrap_or_default(),
        denied_flags: profile.denied_flags.clone().unwrap_or_default(),
    }
}
