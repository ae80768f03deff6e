//! Proposes rules that would have saved approvals: the narrowest ones that cover what approvers
//! allowed at least twice.
//!
//! Nothing here widens a rule. Each proposed rule is one that *always* would have offered for one
//! of the commands, narrowed to the directory in which the commands ran. The history is judged with
//! the rule to find what else it would allow. A rule that would allow what an approver denied must
//! not be proposed.

use std::collections::{BTreeMap, BTreeSet};

use interlock_policy::{AlwaysForm, Document, Entry, Outcome, quote};
use interlock_rules::{RulesError, document_in_force};
use interlock_store::{AuditKind, Store, lenient_field};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::policy_host::PolicyHost;
use crate::replay::{Direction, HistoryJudge, Past, Replay, ReplayFilter, history, replay};

/// How many approvals a rule must cover.
const FEWEST_APPROVALS: usize = 2;

/// How many records of the history are read.
const MAX_RECORDS: usize = 20_000;

/// The proposed rules.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestions {
    /// How many approved commands would need an approval again.
    pub approvals: usize,
    pub suggestions: Vec<Suggestion>,
    /// How many approvals all rules together would have saved.
    pub prompts_saved: u64,
    /// The reasons why approvals count for no rule, with counts.
    pub left_out: BTreeMap<String, usize>,
}

/// One proposed rule.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// The id, which depends only on the agent and the entry.
    pub id: String,
    pub agent: String,
    pub entry: Entry,
    /// A description of the widest command that the rule allows.
    pub allows: String,
    /// How many approvals include a command that this rule covers.
    pub approvals: usize,
    /// How many approvals this rule would have saved alone. The others need another rule as well.
    pub prompts_saved: u64,
    /// The approved commands, without duplicates.
    pub commands: Vec<String>,
    /// Commands of the history that the rule would also allow, although no approver allowed them.
    pub newly_allowed: Vec<String>,
}

/// One command of an approved line.
struct ApprovedCommand {
    /// The index of the approval.
    approval: usize,
    agent: String,
    line: String,
    /// The rules that would cover it, the narrowest first.
    rules: Vec<SuggestedRule>,
    is_covered: bool,
}

#[derive(Clone)]
struct SuggestedRule {
    rank: RuleRank,
    entry: Entry,
    allows: String,
}

/// How wide a rule is, from narrow to wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleRank {
    Exact,
    Project,
    /// A rule with more leading arguments is narrower.
    Leading(std::cmp::Reverse<usize>),
}

/// The decisions of approvers in a part of the history.
#[derive(Default)]
struct Decisions {
    allowed: Vec<Past>,
    denied: Vec<Past>,
}

/// Proposes rules for commands that approvers allowed in this part of the history. It writes
/// nothing.
pub fn suggest<H: PolicyHost>(host: &H, filter: &ReplayFilter) -> Result<Suggestions, H::Error> {
    let decisions = decisions_of(host.store(), filter)?;
    let (document, _) = document_in_force(host.store())?;
    let mut judge = HistoryJudge::new(host, &document);
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    let mut commands = Vec::new();
    let mut approvals = 0;
    for past in &decisions.allowed {
        let Some(evaluation) = judge.evaluate(past)? else {
            continue;
        };
        if evaluation.verdict.outcome != Outcome::Ask {
            continue;
        }
        let approval = approvals;
        approvals += 1;
        let missed = evaluation.verdict.segments.iter();
        let missed: Vec<_> = missed.filter(|one| one.satisfied_by.is_none()).collect();
        if missed.is_empty() {
            *left_out
                .entry(evaluation.verdict.reason.message)
                .or_default() += 1;
        }
        for judged in missed {
            // Judge each command of a line alone, because a rule is for one command.
            let alone = past.with_command(&judged.argv, &judged.cwd);
            let rules = match judge.evaluate(&alone)? {
                Some(alone) => rules_for(&alone.verdict.remember, &judged.argv, &judged.cwd),
                None => Err("it is no command".to_owned()),
            };
            match rules {
                Ok(rules) => commands.push(ApprovedCommand {
                    approval,
                    agent: past.agent.clone(),
                    line: past.command.clone(),
                    rules,
                    is_covered: false,
                }),
                Err(why) => *left_out.entry(why).or_default() += 1,
            }
        }
    }
    let mut suggestions = Vec::new();
    for suggestion in grouped(&mut commands) {
        match checked(host, suggestion, &document, filter, &decisions)? {
            Ok(suggestion) => suggestions.push(suggestion),
            Err(why) => *left_out.entry(why).or_default() += 1,
        }
    }
    let together = with_entries(&document, &suggestions);
    Ok(Suggestions {
        approvals,
        prompts_saved: replay(host, filter, Some(&together))?.prompts_saved,
        suggestions,
        left_out,
    })
}

/// Judges the history with the rule. Returns the rule with its effect, or the reason why it is not
/// proposed.
fn checked<H: PolicyHost>(
    host: &H,
    mut suggestion: Suggestion,
    document: &Document,
    filter: &ReplayFilter,
    decisions: &Decisions,
) -> Result<Result<Suggestion, String>, H::Error> {
    let proposed = with_entries(document, std::slice::from_ref(&suggestion));
    // Check every denial here, because the replay below may cover only a part of the history.
    let (mut before, mut after) = (
        HistoryJudge::new(host, document),
        HistoryJudge::new(host, &proposed),
    );
    for denied in &decisions.denied {
        if !before.allows(denied)? && after.allows(denied)? {
            return Ok(Err(format!(
                "a rule for {} would allow what an approver denied",
                suggestion.allows
            )));
        }
    }
    let replayed: Replay = replay(host, filter, Some(&proposed))?;
    suggestion.prompts_saved = replayed.prompts_saved;
    for change in &replayed.changes {
        if change.direction != Direction::Looser || change.after != "allow" {
            continue;
        }
        let is_approved = suggestion.commands.contains(&change.command);
        if !is_approved && !suggestion.newly_allowed.contains(&change.command) {
            suggestion.newly_allowed.push(change.command.clone());
        }
    }
    Ok(Ok(suggestion))
}

/// The body of the audit record of a prompt.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PromptBody {
    #[serde(deserialize_with = "lenient_field")]
    agent: String,
    #[serde(deserialize_with = "lenient_field")]
    approval_id: String,
    /// Null if this host runs the command.
    node: Value,
    #[serde(deserialize_with = "lenient_field")]
    preview: String,
}

/// The body of the audit record of a decision.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DecisionBody {
    #[serde(deserialize_with = "lenient_field")]
    approval_id: String,
    #[serde(deserialize_with = "lenient_field")]
    decider: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    decision: String,
}

/// The commands that approvers allowed and denied. Commands in which the audit hides a secret are
/// in neither list.
fn decisions_of(store: &Store, filter: &ReplayFilter) -> Result<Decisions, RulesError> {
    let mut asked: BTreeMap<(String, String), Past> = BTreeMap::new();
    let mut waiting: BTreeMap<String, Past> = BTreeMap::new();
    let mut decisions = Decisions::default();
    for record in history(store, filter, None, MAX_RECORDS)? {
        let body = &record.body;
        match record.kind {
            AuditKind::Verdict => {
                if let Ok(past) = Past::read(body)
                    && past.verdict == "ask"
                {
                    asked.insert((past.agent.clone(), past.command.clone()), past);
                }
            }
            AuditKind::Prompt => {
                // A command on a node is judged by the node's own document.
                let prompt = PromptBody::deserialize(body).unwrap_or_default();
                let is_local = prompt.node.is_null();
                let past = asked.get(&(prompt.agent, prompt.preview));
                if let Some(past) = past.filter(|_| is_local) {
                    waiting.insert(prompt.approval_id, past.clone());
                }
            }
            AuditKind::Decision => {
                // Only decisions of approvers count, not fallbacks and expiries.
                let decision = DecisionBody::deserialize(body).unwrap_or_default();
                let is_by_approver = decision.decider.is_some();
                let past = waiting.remove(&decision.approval_id);
                let Some(past) = past.filter(|_| is_by_approver) else {
                    continue;
                };
                if decision.decision.starts_with("allow") {
                    decisions.allowed.push(past);
                } else {
                    decisions.denied.push(past);
                }
            }
            _ => {}
        }
    }
    Ok(decisions)
}

/// The rules that *always* would offer for this command, the narrowest first, each limited to the
/// directory in which the command ran.
fn rules_for(
    remember: &interlock_policy::Remember,
    argv: &[String],
    cwd: &str,
) -> Result<Vec<SuggestedRule>, String> {
    if let Some(why) = &remember.nothing_because {
        return Err(why.clone());
    }
    let [entry] = remember.entries.as_slice() else {
        return Err("several rules would be needed".to_owned());
    };
    let words = |count: usize| {
        let words: Vec<String> = argv
            .iter()
            .take(count + 1)
            .map(|word| quote(word))
            .collect();
        words.join(" ")
    };
    let mut rules = vec![if remember.form == AlwaysForm::Project {
        let leading = entry
            .args
            .as_ref()
            .map_or(0, |args| args.len().saturating_sub(1));
        SuggestedRule {
            rank: RuleRank::Project,
            allows: format!(
                "`{}` with any further arguments in the project {}",
                words(leading),
                entry.cwd.as_deref().unwrap_or(cwd)
            ),
            entry: entry.clone(),
        }
    } else {
        SuggestedRule {
            rank: RuleRank::Exact,
            allows: format!("exactly `{}` in {cwd}", words(argv.len())),
            entry: entry.clone(),
        }
    }];
    // A directory with pattern characters in its name would also match other directories.
    let is_plain = !cwd.contains(['*', '?', '[', '{']);
    for wider in remember.wider.iter().filter(|_| is_plain) {
        let (AlwaysForm::Leading(count), [entry]) = (wider.form, wider.entries.as_slice()) else {
            continue;
        };
        rules.push(SuggestedRule {
            rank: RuleRank::Leading(std::cmp::Reverse(count)),
            allows: format!("`{}` with any further arguments in {cwd}", words(count)),
            entry: Entry {
                cwd: Some(cwd.to_owned()),
                ..entry.clone()
            },
        });
    }
    rules.sort_by_key(|rule| rule.rank);
    Ok(rules)
}

/// The narrowest rules of which each covers commands of at least two approvals that no narrower
/// rule covers.
fn grouped(commands: &mut [ApprovedCommand]) -> Vec<Suggestion> {
    let mut ranks: Vec<RuleRank> = commands
        .iter()
        .flat_map(|command| command.rules.iter().map(|rule| rule.rank))
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut suggestions = Vec::new();
    for rank in ranks {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, command) in commands.iter().enumerate() {
            let rule = command.rules.iter().find(|rule| rule.rank == rank);
            if let Some(rule) = rule.filter(|_| !command.is_covered) {
                let key = rule_id(&command.agent, &rule.entry);
                groups.entry(key).or_default().push(index);
            }
        }
        for (id, members) in groups {
            let approvals: BTreeSet<usize> = members
                .iter()
                .map(|index| commands[*index].approval)
                .collect();
            if approvals.len() < FEWEST_APPROVALS {
                continue;
            }
            let first = &commands[members[0]];
            let Some(rule) = first.rules.iter().find(|rule| rule.rank == rank).cloned() else {
                continue;
            };
            let agent = first.agent.clone();
            let lines: BTreeSet<&str> = members
                .iter()
                .map(|index| commands[*index].line.as_str())
                .collect();
            suggestions.push(Suggestion {
                agent,
                entry: Entry {
                    note: Some(format!("suggested by {} approvals", approvals.len())),
                    ..rule.entry
                },
                allows: rule.allows,
                approvals: approvals.len(),
                prompts_saved: 0,
                commands: lines.into_iter().map(str::to_owned).collect(),
                newly_allowed: Vec::new(),
                id,
            });
            for index in members {
                commands[index].is_covered = true;
            }
        }
    }
    suggestions.sort_by_key(|suggestion| std::cmp::Reverse(suggestion.approvals));
    suggestions
}

/// The document with these rules added.
fn with_entries(document: &Document, suggestions: &[Suggestion]) -> Document {
    let mut proposed = document.clone();
    for suggestion in suggestions {
        let scope = proposed.agents.entry(suggestion.agent.clone()).or_default();
        scope.allowlist.push(suggestion.entry.clone());
    }
    proposed
}

/// A short name for the rule of an agent.
fn rule_id(agent: &str, entry: &Entry) -> String {
    let text = serde_json::to_string(&(agent, entry)).unwrap_or_default();
    let digest = Sha256::digest(text.as_bytes());
    let digest = digest.first_chunk().copied().unwrap_or_default();
    format!("{:08x}", u32::from_be_bytes(digest))
}
