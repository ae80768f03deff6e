//! `interlock deny`: rules that override everything that allows a command.

use std::process::ExitCode;

use interlock_arguments::{
    DenyAddArguments, DenyCommand, DenyListArguments, DenyRemoveArguments, DenyTerms,
    StateArguments,
};
use interlock_client::{known_scope, open, outside_runs};
use interlock_console::output::{self, line};
use interlock_console::{CommandOutcome, Failure, rule_terms};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, DenyRule, Document, EVERY_AGENT, agent_path};
use interlock_rules::{DenyRuleEdit, DenyRuleSelection};
use serde_json::{Value, json};

use super::approvals::{of_owner, scope_name, with_owner};
use super::nodes;
use super::nodes::DocumentAsked;

pub fn run(state: &StateArguments, command: DenyCommand) -> CommandOutcome {
    let host = open(state)?;
    match command {
        DenyCommand::List(arguments) => list(state, &host, &arguments),
        DenyCommand::Add(arguments) => {
            outside_runs(host.state_dir())?;
            add(state, &host, arguments)
        }
        DenyCommand::Remove(arguments) => {
            outside_runs(host.state_dir())?;
            remove(state, &host, arguments)
        }
    }
}

fn rule(pattern: String, terms: DenyTerms, reason: Option<String>) -> DenyRule {
    DenyRule {
        pattern,
        args: (!terms.args.is_empty()).then_some(terms.args),
        arg_pattern: terms.arg_pattern,
        reason,
    }
}

fn shown(rule: &DenyRule) -> String {
    format!("{} ({})", line(&rule.pattern), line(&rule_terms(rule)))
}

fn add(state: &StateArguments, host: &LocalHost, arguments: DenyAddArguments) -> CommandOutcome {
    let rule = rule(arguments.pattern, arguments.terms, arguments.reason);
    let (edit, owner) = match DocumentAsked::of(state, host, &arguments.place)? {
        None => {
            let agent = known_scope(host, &arguments.agent)?;
            (host.rules().add_deny_rule(&agent, &rule)?, None)
        }
        Some(asked) => {
            let (edit, owner) = nodes::deny::add(state, host, asked, &arguments.agent, &rule)?;
            (edit, Some(owner))
        }
    };
    let agent = scope_name(&arguments.agent);
    if arguments.json {
        let added = edit == DenyRuleEdit::Added;
        let result = json!({ "added": added, "agent": agent, "rule": rule });
        output::print_json(&with_owner(result, owner.as_ref()));
        return Ok(ExitCode::SUCCESS);
    }
    let list = format!("{}.deny{}", agent_path(&agent), of_owner(owner.as_ref()));
    output::print(&match edit {
        DenyRuleEdit::Added => format!("added {} to {list}\n", shown(&rule)),
        DenyRuleEdit::Present => format!("{} is already in {list}\n", shown(&rule)),
    });
    Ok(ExitCode::SUCCESS)
}

fn remove(
    state: &StateArguments,
    host: &LocalHost,
    arguments: DenyRemoveArguments,
) -> CommandOutcome {
    let pattern = arguments.pattern;
    let has_terms = !arguments.terms.args.is_empty() || arguments.terms.arg_pattern.is_some();
    let which = match (arguments.all, has_terms) {
        (true, _) => DenyRuleSelection::Every { pattern },
        (false, true) => DenyRuleSelection::Same(rule(pattern, arguments.terms, None)),
        (false, false) => DenyRuleSelection::Only { pattern },
    };
    let (removed, owner) = match DocumentAsked::of(state, host, &arguments.place)? {
        None => {
            let agent = known_scope(host, &arguments.agent)?;
            (host.rules().remove_deny_rules(&agent, &which)?, None)
        }
        Some(asked) => {
            let agent = &arguments.agent;
            let (removed, owner) = nodes::deny::remove(state, host, asked, agent, &which)?;
            (removed, Some(owner))
        }
    };
    if arguments.json {
        let rules: Vec<&DenyRule> = removed.iter().map(|(rule, _)| rule).collect();
        let result = json!({ "removed": rules, "agent": scope_name(&arguments.agent) });
        output::print_json(&with_owner(result, owner.as_ref()));
        return Ok(ExitCode::SUCCESS);
    }
    for (rule, origin) in &removed {
        let owner = of_owner(owner.as_ref());
        output::print(&format!("removed {} from {origin}{owner}\n", shown(rule)));
    }
    Ok(ExitCode::SUCCESS)
}

fn list(state: &StateArguments, host: &LocalHost, arguments: &DenyListArguments) -> CommandOutcome {
    let (document, owner) = match DocumentAsked::of(state, host, &arguments.place)? {
        None => (host.document()?.0, None),
        Some(asked) => {
            let (document, owner) = nodes::deny::document(state, host, asked)?;
            (document, Some(owner))
        }
    };
    let named = arguments
        .agent
        .as_deref()
        .filter(|name| *name != EVERY_AGENT);
    let rules = match named {
        Some(name) => {
            let agent = match &owner {
                None => interlock_client::known_agent(host, name)?,
                Some(_) => interlock_client::agent_id(name)?,
            };
            interlock_policy::deny_rules(&document, &agent)
        }
        None => all_rules(&document)?,
    };
    if arguments.json {
        let rules: Vec<Value> = rules
            .iter()
            .map(|(rule, origin)| json!({ "rule": rule, "origin": origin }))
            .collect();
        output::print_json(&with_owner(json!({ "rules": rules }), owner.as_ref()));
        return Ok(ExitCode::SUCCESS);
    }
    if rules.is_empty() {
        output::note("no deny rules; to add one: interlock deny add PROGRAM");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = rules
        .into_iter()
        .map(|(rule, origin)| {
            let reason = rule.reason.as_deref().map(line).unwrap_or_default();
            vec![
                line(&rule.pattern),
                line(&rule_terms(&rule)),
                origin,
                reason,
            ]
        })
        .collect();
    output::print(&output::table(&rows, ""));
    Ok(ExitCode::SUCCESS)
}

/// The rules of all scopes, without duplicates.
fn all_rules(document: &Document) -> Result<Vec<(DenyRule, String)>, Failure> {
    let mut all: Vec<(DenyRule, String)> = Vec::new();
    let named = document.agents.keys().filter(|name| *name != EVERY_AGENT);
    for name in named.map(String::as_str).chain([AgentId::MAIN]) {
        for rule in interlock_policy::deny_rules(document, &interlock_client::agent_id(name)?) {
            if !all.contains(&rule) {
                all.push(rule);
            }
        }
    }
    Ok(all)
}
