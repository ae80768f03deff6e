//! The facts about a plan for a foreign gateway of the newer release: the levels of this machine,
//! the entries that *always* would store, and the rules under which the plan was made.

use interlock_host::PreparedPlan;
use interlock_policy::{ALLOW_ALWAYS, AgentId, auto_allow_skills, entries};
use interlock_wire::WireError;
use interlock_wire::node::{
    AllowAlwaysCoverage, CoveredPattern, MAX_SNAPSHOT_RULES, PlanExecPolicy, PlanPolicyRule,
    PlanPolicySnapshot,
};

use crate::serve::NodeService;

/// The policy facts that accompany a plan.
pub(super) struct PlanPolicy {
    pub(super) exec_policy: PlanExecPolicy,
    pub(super) coverage: AllowAlwaysCoverage,
    /// `None` if there are too many rules.
    pub(super) snapshot: Option<PlanPolicySnapshot>,
}

impl PlanPolicy {
    pub(super) fn of(
        service: &NodeService,
        agent: &AgentId,
        prepared: &PreparedPlan,
    ) -> Result<Self, WireError> {
        let unavailable =
            |error: interlock_host::HostError| WireError::unavailable(error.to_string());
        let levels = service.host.levels(agent, None).map_err(unavailable)?;
        let (document, _) = service.host.document().map_err(unavailable)?;
        let exec_policy = PlanExecPolicy {
            security: levels.security.value().to_string(),
            ask: levels.ask.value().to_string(),
        };
        let patterns: Vec<CoveredPattern> = prepared
            .notes()
            .always()
            .iter()
            .map(|entry| CoveredPattern {
                pattern: entry.pattern.clone(),
                arg_pattern: entry.arg_pattern.clone(),
            })
            .collect();
        let entries = entries(&document, agent);
        let rules = entries.iter().map(|(entry, _)| PlanPolicyRule {
            pattern: entry.pattern.clone(),
            arg_pattern: entry.arg_pattern.clone(),
            source: entry.source.clone().filter(|source| source == ALLOW_ALWAYS),
        });
        let snapshot = (entries.len() <= MAX_SNAPSHOT_RULES).then(|| {
            let snapshot = PlanPolicySnapshot {
                security: exec_policy.security.clone(),
                ask: exec_policy.ask.clone(),
                ask_fallback: levels.ask_fallback.value().to_string(),
                auto_allow_skills: auto_allow_skills(&document, agent),
                allowlist_rules: Vec::new(),
            };
            snapshot.with_rules(rules.collect())
        });
        Ok(Self {
            exec_policy,
            coverage: AllowAlwaysCoverage {
                complete: !patterns.is_empty(),
                patterns,
            },
            snapshot,
        })
    }
}
