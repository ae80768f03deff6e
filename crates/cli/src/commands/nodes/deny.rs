//! Deny rules of a node.

use interlock_host::{DenyRuleEdit, DenyRuleSelection, LocalHost};
use interlock_policy::{DenyRule, Document, EVERY_AGENT, agent_path};
use serde_json::{Value, json};

use super::NamedNode;
use super::document::known;
use super::remote::{Remote, defaults_list, scope};
use crate::args::StateArguments;
use crate::failure::Failure;

/// The list of a scope.
const DENY: &str = "deny";

/// The document of a node, and the node.
pub fn document(
    state: &StateArguments,
    host: &LocalHost,
    node: &str,
) -> Result<(Document, NamedNode), Failure> {
    let remote = Remote::read(state, host, node)?;
    Ok((known(&remote.file)?, remote.node))
}

/// Adds a rule for an agent or `*`. Also the node.
pub fn add(
    state: &StateArguments,
    host: &LocalHost,
    node: &str,
    agent: &str,
    rule: &DenyRule,
) -> Result<(DenyRuleEdit, NamedNode), Failure> {
    let agent = scope(agent)?;
    rule.check()
        .map_err(|error| Failure::usage("RULE_INVALID", error.to_string()))?;
    let mut remote = Remote::read(state, host, node)?;
    let document = known(&remote.file)?;
    let present = document.agents.get(&agent);
    if present.is_some_and(|scope| scope.deny.iter().any(|other| other.denies_same(rule))) {
        return Ok((DenyRuleEdit::Present, remote.node));
    }
    remote.list(&agent, DENY)?.push(json!(rule));
    let written = remote.write()?;
    let stored = written.agents.get(&agent);
    if !stored.is_some_and(|scope| scope.deny.iter().any(|other| other.denies_same(rule))) {
        // Other programs do not know deny rules, and may drop what they do not know.
        let message = format!("the node {} does not keep deny rules", remote.node.shown());
        return Err(Failure::refused("RULE_NOT_KEPT", message)
            .with_hint("deny rules need a node of Interlock"));
    }
    Ok((DenyRuleEdit::Added, remote.node))
}

/// Removes rules of an agent or `*`, each with where it was written. Also the node.
pub fn remove(
    state: &StateArguments,
    host: &LocalHost,
    node: &str,
    agent: &str,
    which: &DenyRuleSelection,
) -> Result<(Vec<(DenyRule, String)>, NamedNode), Failure> {
    let agent = scope(agent)?;
    let mut remote = Remote::read(state, host, node)?;
    let is_meant = |rule: &Value| {
        let rule: Option<DenyRule> = serde_json::from_value(rule.clone()).ok();
        rule.filter(|rule| which.matches(rule))
    };
    let mut removed: Vec<(DenyRule, String)> = Vec::new();
    let mut take = |rules: &mut Vec<Value>, scope: &str| {
        let gone = rules.extract_if(.., |rule| is_meant(rule).is_some());
        let gone = gone.filter_map(|rule| is_meant(&rule));
        removed.extend(gone.map(|rule| (rule, format!("{scope}.deny"))));
    };
    take(remote.list(&agent, DENY)?, &agent_path(&agent));
    // The defaults hold for every agent, and belong to `*`.
    if agent == EVERY_AGENT
        && let Some(rules) = defaults_list(&mut remote.file, DENY)
    {
        take(rules, "defaults");
    }
    which.check_removed(&agent, &removed)?;
    remote.write()?;
    Ok((removed, remote.node))
}
