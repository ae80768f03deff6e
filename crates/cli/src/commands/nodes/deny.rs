//! Edits the deny rules of a node or of a remote gateway.

use interlock_arguments::StateArguments;
use interlock_console::Failure;
use interlock_host::LocalHost;
use interlock_policy::{DenyRule, Document, EVERY_AGENT, agent_path};
use interlock_rules::{DenyRuleEdit, DenyRuleSelection};
use serde_json::{Value, json};

use super::document::known;
use super::remote::{DocumentAsked, DocumentOwner, Remote, defaults_list, scope};

/// The key of the deny rules in a scope.
const DENY: &str = "deny";

/// Reads the document and its owner.
pub fn document(
    state: &StateArguments,
    host: &LocalHost,
    asked: DocumentAsked<'_>,
) -> Result<(Document, DocumentOwner), Failure> {
    let remote = Remote::read(state, host, asked)?;
    Ok((known(&remote.file)?, remote.owner))
}

/// Adds a rule for an agent or `*`. Also returns the owner of the document.
pub fn add(
    state: &StateArguments,
    host: &LocalHost,
    asked: DocumentAsked<'_>,
    agent: &str,
    rule: &DenyRule,
) -> Result<(DenyRuleEdit, DocumentOwner), Failure> {
    let agent = scope(agent)?;
    rule.check()
        .map_err(|error| Failure::usage("RULE_INVALID", error.to_string()))?;
    let mut remote = Remote::read(state, host, asked)?;
    let document = known(&remote.file)?;
    let present = document.agents.get(&agent);
    if present.is_some_and(|scope| scope.deny.iter().any(|other| other.denies_same(rule))) {
        return Ok((DenyRuleEdit::Present, remote.owner));
    }
    remote.list(&agent, DENY)?.push(json!(rule));
    let written = remote.write()?;
    let stored = written.agents.get(&agent);
    if !stored.is_some_and(|scope| scope.deny.iter().any(|other| other.denies_same(rule))) {
        // A foreign node does not know deny rules, and may have dropped the rule.
        let message = format!("{} does not keep deny rules", remote.owner.shown());
        return Err(Failure::refused("RULE_NOT_KEPT", message)
            .with_hint("deny rules need a node of Interlock"));
    }
    Ok((DenyRuleEdit::Added, remote.owner))
}

/// Removes rules of an agent or `*`, and returns each with where it was written. Also returns the
/// owner of the document.
pub fn remove(
    state: &StateArguments,
    host: &LocalHost,
    asked: DocumentAsked<'_>,
    agent: &str,
    which: &DenyRuleSelection,
) -> Result<(Vec<(DenyRule, String)>, DocumentOwner), Failure> {
    let agent = scope(agent)?;
    let mut remote = Remote::read(state, host, asked)?;
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
    // The defaults apply to every agent, so their rules count as rules of `*`.
    if agent == EVERY_AGENT
        && let Some(rules) = defaults_list(&mut remote.file, DENY)
    {
        take(rules, "defaults");
    }
    which.check_removed(&agent, &removed)?;
    remote.write()?;
    Ok((removed, remote.owner))
}
