//! Rules that would have saved approvals: the narrowest ones that cover what approvers allowed at least
//! twice.
//!
//! Nothing here widens by itself. A rule is one that *always* would have offered for one of the
//! commands, narrowed to the directory they ran in; what else of the history it would allow is found
//! by judging the history with it, and a rule that would allow what an approver denied is left out.

use std::collections::{BTreeMap, BTreeSet};

use interlock_policy::{AlwaysForm, Document, Entry, Outcome, quote};
use interlock_rules::{RulesError, document_in_force};
use interlock_store::{AuditKind, Store, lenient_field};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::policy_host::PolicyHost;
use crate::replay::{Direction, HistoryJudge, Past, Replay, ReplayFilter, history, replay};

/// So many approvals make a habit.
const FEWEST_APPROVALS: usize = 2;

/// More of the history is not read.
const MAX_RECORDS: usize = 20_000;

/// What could be allowed from now on.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestions {
    /// Commands that an approver allowed and that would be asked about again.
    pub approvals: usize,
    pub suggestions: Vec<Suggestion>,
    /// What all of them together would have saved.
    pub prompts_saved: u64,
    /// Why approvals count for no rule, and how many.
    pub left_out: BTreeMap<String, usize>,
}

/// One rule.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// Stays the same as long as the rule does.
    pub id: String,
    pub agent: String,
    pub entry: Entry,
    /// The widest command that it allows, in words.
    pub allows: String,
    /// Approvals that a command of this rule took part in.
    pub approvals: usize,
    /// Those that this rule saves alone; the others need another rule as well.
    pub prompts_saved: u64,
    /// The commands that were approved, each once.
    pub commands: Vec<String>,
    /// Commands of the history that it would allow, too, and that no approver allowed.
    pub newly_allowed: Vec<String>,
}

/// One command of a line that an approver allowed.
struct ApprovedCommand {
    /// The approval that it belongs to.
    approval: usize,
    agent: String,
    line: String,
    /// The rules that would satisfy it, the narrowest first.
    rules: Vec<SuggestedRule>,
    is_covered: bool,
}

#[derive(Clone)]
struct SuggestedRule {
    rank: RuleRank,
    entry: Entry,
    allows: String,
}

/// From narrow to wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleRank {
    Exact,
    Project,
    /// More leading arguments come first.
    Leading(std::cmp::Reverse<usize>),
}

/// What approvers said in a part of the history.
#[derive(Default)]
struct Decisions {
    allowed: Vec<Past>,
    denied: Vec<Past>,
}

/// Proposes rules for what approvers allowed in this part of the history. Writes nothing.
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
            // By itself: a rule for one command of a line is a rule for that command.
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

/// What the rule would change in the history, or why it is not proposed.
fn checked<H: PolicyHost>(
    host: &H,
    mut suggestion: Suggestion,
    document: &Document,
    filter: &ReplayFilter,
    decisions: &Decisions,
) -> Result<Result<Suggestion, String>, H::Error> {
    let proposed = with_entries(document, std::slice::from_ref(&suggestion));
    // Each denial by itself: the replay below may look at a part of the history only.
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
    /// Null where this host runs it.
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

/// The commands that approvers allowed, and those that they denied. Commands of which the audit hides
/// a secret are in neither.
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
                // What runs on a node is decided by the node's own document.
                let prompt = PromptBody::deserialize(body).unwrap_or_default();
                let is_local = prompt.node.is_null();
                let past = asked.get(&(prompt.agent, prompt.preview));
                if let Some(past) = past.filter(|_| is_local) {
                    waiting.insert(prompt.approval_id, past.clone());
                }
            }
            AuditKind::Decision => {
                // A person decided; a fallback or an expiry says nothing about habits.
                let decision = DecisionBody::deserialize(body).unwrap_or_default();
                let is_persons = decision.decider.is_some();
                let past = waiting.remove(&decision.approval_id);
                let Some(past) = past.filter(|_| is_persons) else {
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

/// The rules that *always* would offer for this command, the narrowest first, each for the directory
/// that it ran in.
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
    // A directory with pattern characters in its name would stand for others, too.
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

/// The narrowest rules that each cover commands of at least two approvals which no narrower one covers.
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

/// The document with these rules in it.
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
