//! The only evaluator. The run itself, `explain`, `policy test`, the prompts and the audit all use
//! [`Policy::judge`]; nothing else judges.
//!
//! Read it from the top: what the environment forbids, what deny rules forbid, what satisfies each
//! command, the verdict table, and what tightens an allow afterwards.

mod caller;
mod holds;
mod paths;
mod placed;
mod remedy;
mod segment;
mod shape;
mod shield;
mod suggest;

pub(crate) use caller::CommandCaller;
pub(crate) use holds::{called_as, sole_content};
pub(crate) use remedy::BEYOND_ENTRIES;
pub use remedy::quote;
pub use shield::{HostIdentity, VerdictShield};

use std::collections::BTreeMap;

use interlock_binding as binding;
use interlock_command::{Analysis, Odd, Shape, Sight, Source as CommandSource};
use interlock_programs::Resolver;
use interlock_programs::inline;
use serde::{Deserialize, Serialize};

use crate::agent::AgentId;
use crate::allowlist::{Allowlist, Objection};
use crate::deny::{DenyFinding, DenyRules};
use crate::effective::Levels;
use crate::entry::Entry;
use crate::env;
use crate::level::{Ask, Fallback, Security};
use crate::remember::Remember;
use crate::safe_bin::{Profiles, SafeBinView};
use crate::verdict::{
    FallbackOutcome, JudgedCommand, Outcome, Proof, Reason, Transport, UsedEntry, Verdict,
};

/// Everything that decides for one agent on one host, ready for judging.
#[derive(Debug)]
pub struct Policy {
    pub agent: AgentId,
    pub levels: Levels,
    pub allowlist: Allowlist,
    pub deny: DenyRules,
    pub safe_bins: SafeBinView,
    pub profiles: Profiles,
    pub strict_inline_eval: bool,
    pub auto_allow_skills: bool,
    pub skill_bins: Vec<SkillBin>,
    pub host_identity: HostIdentity,
}

/// A program that a known skill names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillBin {
    pub name: String,
    /// Where the gateway found the program. If set, the program must be that file.
    pub path: Option<String>,
}

/// The facts that belong to the call and not to the command.
#[derive(Debug, Clone, Copy)]
pub struct JudgedCall<'a> {
    /// The overrides as the caller sent them.
    pub env: &'a BTreeMap<String, String>,
    pub input: CallerInput,
    /// The directories that `${workspace}` stands for: those that the call is for, or the agent's
    /// own. The caller can never name them together with the command.
    pub workspace: &'a [String],
    pub now_ms: u64,
}

/// How the caller can type into the run. A program that reads commands (a pager, a database shell)
/// is a shell for a caller that can type into it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallerInput {
    /// The caller cannot type: standard input is empty.
    #[default]
    None,
    /// The caller types through a pipe that stays open (`stdin: "pipe"`).
    Pipe,
    /// The caller types through a terminal, which is always writable (`pty`).
    Terminal,
}

impl CallerInput {
    /// Derives the input from whether the call has a terminal and whether its stdin is a pipe.
    pub fn from_call(has_terminal: bool, has_pipe: bool) -> Self {
        match (has_terminal, has_pipe) {
            (true, _) => Self::Terminal,
            (false, true) => Self::Pipe,
            (false, false) => Self::None,
        }
    }

    pub fn is_interactive(self) -> bool {
        self != Self::None
    }
}

impl Policy {
    /// Judges an analyzed request. The resolver must be the one that the analysis used.
    pub fn judge(
        &self,
        analysis: &Analysis,
        call: JudgedCall<'_>,
        resolver: &dyn Resolver,
    ) -> Verdict {
        let mut facts = self.gather(analysis, call, resolver);
        let (outcome, reason) = self.decide(&facts, self.levels.ask.value());
        // To describe what an approval would bind, odd text is parsed in full, but only if an
        // approver is asked.
        let is_hidden = facts.odd.is_some() || binding::is_hidden(analysis);
        if outcome == Outcome::Ask && is_hidden && facts.sight.is_none() {
            facts.sight = Some(analysis.sight());
        }
        let fallback = (outcome == Outcome::Ask).then(|| self.fall_back(&facts));
        let binding = binding::of(analysis, facts.sight.as_ref(), resolver);
        let remember = if outcome == Outcome::Ask {
            let trusted_dirs = &self.safe_bins.trusted_dirs;
            let segments = &facts.segments;
            Remember::of(analysis, segments, &binding, call, resolver, trusted_dirs)
        } else {
            Remember::nothing("no approver is asked")
        };
        let shield = self.shield_of(&facts, outcome);
        let remember = remember.in_shield(shield);
        let entries = self.used_entries(&mut facts, outcome);
        let remedies = remedy::remedies(self, &facts, (outcome, binding.kind), &reason);
        let suggestion = suggest::suggestion(&facts, outcome, reason.code);
        // A command that changes the verdict is more useful than another spelling of the line.
        let suggestion = suggestion.filter(|_| facts.odd.is_some() || remedies.is_empty());
        Verdict {
            outcome,
            reason,
            transport: transport(analysis, &facts, outcome),
            segments: facts.segments,
            fallback,
            binding,
            remember,
            remedies,
            suggestion,
            entries,
            by_allowlist: outcome.is_allow() && self.levels.security.value() == Security::Allowlist,
            shield,
        }
    }

    /// Decides whether the run gets the shield. Odd text gets it too, unless it visibly starts a
    /// program that cannot work in the shield.
    fn shield_of(&self, facts: &Facts, outcome: Outcome) -> VerdictShield {
        let wants_none = outcome.is_allow()
            && self.levels.security.value() == Security::Allowlist
            && facts.all_satisfied
            && shield::all_unshielded(&facts.segments);
        match self.host_identity {
            HostIdentity::Unshielded if facts.needing.is_some() || wants_none => {
                VerdictShield::Without
            }
            _ => VerdictShield::Usual,
        }
    }

    /// Returns the entries without which the run would not have been allowed.
    fn used_entries(&self, facts: &mut Facts, outcome: Outcome) -> Vec<UsedEntry> {
        if !outcome.is_allow() || self.levels.security.value() != Security::Allowlist {
            return Vec::new();
        }
        if facts.all_satisfied {
            let entries = facts.segments.iter_mut();
            return entries.filter_map(|judged| judged.entry.take()).collect();
        }
        let exact = facts.exact_command.take().into_iter();
        exact
            .map(|exact| UsedEntry {
                key: exact.key,
                resolved: None,
                held: None,
                shield: None,
            })
            .collect()
    }

    /// Collects the facts of the decision. Odd text is described only if a rule needs it.
    fn gather(&self, analysis: &Analysis, call: JudgedCall<'_>, resolver: &dyn Resolver) -> Facts {
        let rejected = env::check_overrides(call.env).err();
        let must_see = !self.deny.is_empty() || self.strict_inline_eval;
        let sight = must_see.then(|| analysis.sight());
        let needing = self.needing_host(analysis, sight.as_ref(), resolver);
        let segments: Vec<JudgedCommand> = analysis
            .commands
            .iter()
            .map(|command| segment::judge(self, command, call, needing.as_ref(), resolver))
            .collect();
        let exact = match &analysis.source {
            CommandSource::Text(text) => {
                let cwd = resolver.directory(".", &analysis.cwd);
                let cwd = cwd.as_deref().unwrap_or(&analysis.cwd);
                let caller = CommandCaller::of_text(call);
                let objection = |entry: &Entry| {
                    let objects = needing.is_some() && shield::wants_shield(entry);
                    let objection = objects.then_some(Objection::Shield);
                    objection.or_else(|| caller.objection(entry))
                };
                self.allowlist
                    .find_command_with(text, cwd, call.now_ms, objection)
            }
            CommandSource::Argv(_) => None,
        };
        let all_satisfied = analysis.shape.odd().is_none()
            && segments.iter().all(|judged| judged.satisfied_by.is_some());
        let finding = match &sight {
            Some(sight) if !self.deny.is_empty() => self.deny.look(sight, &analysis.cwd, resolver),
            _ => DenyFinding::Clear,
        };
        let inline = if self.strict_inline_eval {
            sight.as_ref().and_then(first_inline_code)
        } else {
            None
        };
        Facts {
            env_rejected: rejected.map(|rejection| rejection.to_string()),
            exact_command: exact.map(|found| Exact {
                pattern: found.entry.pattern.clone(),
                key: found.entry.use_key(&found.origin),
                origin: found.origin,
            }),
            all_satisfied,
            odd_kind: analysis.shape.odd().map(|odd| odd.reason),
            odd: match &analysis.shape {
                Shape::Odd(odd) => Some(odd.reason.message()),
                Shape::Plain(_) | Shape::Argv => None,
            },
            segments,
            sight,
            finding,
            inline,
            needing,
        }
    }

    /// Applies the verdict table, then what tightens an allow.
    fn decide(&self, facts: &Facts, ask: Ask) -> (Outcome, Reason) {
        if let Some(message) = &facts.env_rejected {
            return (Outcome::Deny, Reason::new("env-rejected", message));
        }
        if let DenyFinding::Denied(denied) = &facts.finding {
            let why = denied
                .reason
                .as_ref()
                .map_or(String::new(), |reason| format!(": {reason}"));
            let message = format!(
                "deny rule `{}` matches `{}`{why}",
                denied.pattern, denied.command
            );
            return (
                Outcome::Deny,
                Reason::new("deny-rule", message).at(&denied.origin),
            );
        }
        if self.host_identity == HostIdentity::Refused
            && let Some(needing) = &facts.needing
        {
            return (Outcome::Deny, needing.refusal());
        }
        let security = &self.levels.security;
        let (outcome, reason) = match (security.value(), ask) {
            (Security::Deny, _) => (
                Outcome::Deny,
                Reason::new("security-deny", "security is `deny`: nothing runs")
                    .at(&security.effective.path),
            ),
            (_, Ask::Always) => (
                Outcome::Ask,
                Reason::new(
                    "ask-always",
                    "ask is `always`: every command is shown to a human",
                )
                .at(&self.levels.ask.effective.path),
            ),
            (Security::Full, _) => (
                Outcome::Allow(Proof(())),
                Reason::new("full", "security is `full`: everything runs")
                    .at(&security.effective.path),
            ),
            (Security::Allowlist, ask) => Self::by_allowlist(facts, ask),
        };
        match outcome {
            Outcome::Allow(_) => Self::tighten(facts, ask).unwrap_or((outcome, reason)),
            Outcome::Ask | Outcome::Deny => (outcome, reason),
        }
    }

    fn by_allowlist(facts: &Facts, ask: Ask) -> (Outcome, Reason) {
        if facts.all_satisfied {
            let reason = match facts.segments.as_slice() {
                [only] => only.reason.clone(),
                several => Reason::new(
                    "allowlist",
                    format!("all {} commands are satisfied", several.len()),
                ),
            };
            return (Outcome::Allow(Proof(())), reason);
        }
        if let Some(Exact {
            pattern, origin, ..
        }) = &facts.exact_command
        {
            let reason = Reason::new(
                "exact-command",
                format!("exactly this command was allowed (`{pattern}`)"),
            );
            return (Outcome::Allow(Proof(())), reason.at(origin));
        }
        let outcome = match ask {
            Ask::Off => Outcome::Deny,
            Ask::OnMiss | Ask::Always => Outcome::Ask,
        };
        let reason = match facts.odd {
            Some(message) => {
                Reason::new("not-plain", format!("the command is not plain: {message}"))
            }
            None => facts
                .segments
                .iter()
                .find(|judged| judged.satisfied_by.is_none())
                .map_or_else(
                    || Reason::new("allowlist-miss", "allowlist miss"),
                    |judged| judged.reason.clone(),
                ),
        };
        (outcome, reason)
    }

    /// Turns an allow into an approval, or into a denial if `ask` is `off`.
    fn tighten(facts: &Facts, ask: Ask) -> Option<(Outcome, Reason)> {
        if let DenyFinding::Unseen(reason) = facts.finding {
            let outcome = if ask == Ask::Off {
                Outcome::Deny
            } else {
                Outcome::Ask
            };
            let message = format!("deny rules are set and not every word can be seen: {reason}");
            return Some((outcome, Reason::new("unseen-words", message)));
        }
        let inline = facts.inline.as_ref()?;
        let reason = Reason::new(
            "inline-code",
            format!("{} needs an approval of its own ({})", inline.0, inline.1),
        );
        Some((Outcome::Ask, reason.at("tools.exec.strictInlineEval")))
    }

    /// Decides what happens if no approver can be asked. The decision uses the verdict without the
    /// caller's own `ask`, so that a caller cannot reach a looser fallback by a stricter `ask`.
    fn fall_back(&self, facts: &Facts) -> FallbackOutcome {
        let fallback = self.levels.ask_fallback.value();
        let (without_call, _) = self.decide(facts, self.levels.ask_without_caller());
        let (allow, reason) = if without_call == Outcome::Deny {
            (false, "without the call's own `ask` it would be denied")
        } else if facts.inline.is_some() {
            (false, "inline code wants a human")
        } else if matches!(facts.finding, DenyFinding::Unseen(_)) {
            (false, "not every word can be seen")
        } else {
            match fallback {
                Fallback::Deny => (false, "askFallback is `deny`"),
                Fallback::Allowlist if facts.all_satisfied => (
                    true,
                    "askFallback is `allowlist` and every command is satisfied",
                ),
                Fallback::Allowlist => (
                    false,
                    "askFallback is `allowlist` and a command is not satisfied",
                ),
                Fallback::Full => (true, "askFallback is `full`"),
            }
        };
        FallbackOutcome {
            ask_fallback: fallback,
            allow,
            reason: reason.to_owned(),
        }
    }
}

/// The facts that a decision rests on.
pub(crate) struct Facts {
    env_rejected: Option<String>,
    exact_command: Option<Exact>,
    all_satisfied: bool,
    odd: Option<&'static str>,
    odd_kind: Option<Odd>,
    pub(crate) segments: Vec<JudgedCommand>,
    sight: Option<Sight>,
    finding: DenyFinding,
    /// The label of the inline code, and why it matters.
    inline: Option<(String, &'static str)>,
    /// A program of the line that cannot work in the shield of this host.
    needing: Option<shield::Needing>,
}

/// A grant for exactly this text.
struct Exact {
    pattern: String,
    origin: String,
    key: String,
}

impl Facts {
    /// Whether the request is refused for a reason that no entry outweighs.
    fn is_refused(&self) -> bool {
        self.env_rejected.is_some() || matches!(self.finding, DenyFinding::Denied(_))
    }
}

/// Finds inline code. Under strict inline evaluation, text that cannot be seen counts as inline
/// code.
fn first_inline_code(sight: &Sight) -> Option<(String, &'static str)> {
    let hit = sight
        .commands
        .iter()
        .find_map(|seen| inline::detect_through_carriers(&seen.argv));
    match hit {
        Some(hit) => Some((hit.label(), hit.reason)),
        None => sight
            .unseen
            .map(|reason| ("text that cannot be seen".to_owned(), reason)),
    }
}

/// A plain line that the allowlist satisfies, or that a human approves, runs directly.
fn transport(analysis: &Analysis, facts: &Facts, outcome: Outcome) -> Transport {
    match (&analysis.source, &analysis.shape) {
        (CommandSource::Argv(_), _) => Transport::Direct,
        (_, Shape::Odd(_)) => Transport::Shell,
        _ if analysis.shell_builtin().is_some() => Transport::Shell,
        _ if outcome.is_allow() && !facts.all_satisfied => Transport::Shell,
        _ => Transport::Direct,
    }
}
