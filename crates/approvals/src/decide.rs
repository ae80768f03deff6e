//! Decisions: who may decide, and what a decision stores.

use interlock_command::display::ShownLine;
use interlock_config::ConfigFile;
use interlock_policy::{ALLOW_ALWAYS, AlwaysForm, Document, Entry};
use interlock_store::{
    Approval, ApprovalAnswer, ApprovalDecision, ApprovalEnd, ApprovalEnding, Author, Change,
    Decided, Delivery, DeliveryState, FallbackAnswer, MAX_DENY_REASON_BYTES, StoreError,
    StoredDocument,
};

use crate::always::AlwaysForms;
use crate::approvals::Approvals;
use crate::clock::now;
use crate::content;
use crate::effect_plan::EFFECT_BINDING;
use crate::error::ApprovalRefusal;
use crate::events::{DenialReason, NotifySettings, queue_denial};
use crate::manifests::allowed_manifests;
use crate::network_plan::{NETWORK_BINDING, NO_USES};
use crate::origin::OutsideRuns;
use crate::patch_plan::{ONCE, PATCH_BINDING};
use crate::pending::stored_plan;
use crate::remote::REMOTE;
use crate::stored_verdict::StoredVerdict;
use interlock_rules::{RulesError, parse_stored};

/// How many approvals one change expires.
const EXPIRE_AT_ONCE: usize = 100;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How many entries decisions may store for one agent. No owner reads a longer document.
const MAX_REMEMBERED: usize = 1000;

/// The author of a decision, and its surface.
#[derive(Debug, Clone, Copy)]
pub struct DecisionBy<'a> {
    /// The approver's name, as other surfaces show it.
    pub decider: &'a str,
    /// Where the approval was shown.
    pub surface: &'a str,
    /// The reason of a denial, which the caller reads. Other decisions have none.
    pub reason: Option<&'a str>,
    /// Whether the surface itself knows that it showed the approval. Then the showing is recorded
    /// together with the decision.
    pub has_shown: bool,
    pub outside: OutsideRuns,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDecision {
    /// The same decision had been made before.
    pub again: bool,
    /// The end that this decision made, if it is the first.
    pub ended: ApprovalEnd,
    /// The entries of `allow-always` as they are now in the document.
    pub entries: Vec<Entry>,
    /// The form that `allow-always` stored.
    pub form: Option<AlwaysForm>,
}

impl Approvals<'_> {
    /// Records that a surface shows an approval. Without this record, nothing can be decided there.
    pub fn seen(self, id: &str, surface: &str) -> Result<(), RulesError> {
        self.store.record_delivery(id, &seen(surface))?;
        Ok(())
    }

    /// Decides an approval that was shown. `plan_digest` is the digest of the shown plan. The
    /// entries of `allow-always` go to disk together with the decision, or neither does.
    pub fn decide(
        self,
        id: &str,
        plan_digest: &str,
        decision: ApprovalDecision,
        by: DecisionBy<'_>,
    ) -> Result<StoredDecision, ApprovalRefusal> {
        self.decide_in_form(id, plan_digest, decision, AlwaysForm::Exact, by)
    }

    /// Like [`Self::decide`]. `form` chooses the entries that `allow-always` stores and must be a
    /// form that was shown. Success means that they are stored, by this decision or by an equal
    /// earlier one.
    pub fn decide_in_form(
        self,
        id: &str,
        plan_digest: &str,
        decision: ApprovalDecision,
        form: AlwaysForm,
        by: DecisionBy<'_>,
    ) -> Result<StoredDecision, ApprovalRefusal> {
        let author = Author::new(by.decider)?;
        // Without a readable config, a denial uses the default settings for events. `allow-always`
        // needs the config: its entries must get their expiry.
        let config = match decision {
            ApprovalDecision::AllowAlways => Some(self.config()?),
            ApprovalDecision::Deny => self.config().ok(),
            _ => None,
        };
        let reason = by.reason.filter(|_| decision == ApprovalDecision::Deny);
        let reason = reason.and_then(deny_reason);
        let given = GivenDecision {
            plan_digest,
            decision,
            reason: reason.as_deref(),
            form,
            by,
            author: &author,
            config: config.as_deref(),
        };
        match self.give(id, &given) {
            Ok((stored, false)) => Ok(stored),
            Ok((stored, true)) => self.expire(now()).map(|()| stored).map_err(Into::into),
            Err(error) => {
                self.expire(now())?;
                // The fallback may have decided in the meantime.
                match error {
                    ApprovalRefusal::Expired { .. } => {
                        self.give(id, &given).map(|(stored, _)| stored)
                    }
                    error => Err(error),
                }
            }
        }
    }

    /// Stores a decision. Also returns whether undecided approvals are overdue.
    fn give(
        self,
        id: &str,
        decision: &GivenDecision<'_>,
    ) -> Result<(StoredDecision, bool), ApprovalRefusal> {
        let mut contents = None;
        loop {
            let given = self.store.change(|change| {
                let approval = change.asked(id)?;
                // Files are not read while other writers wait.
                if contents.is_none() && decision.keeps_contents(&approval) {
                    return Ok(Err(approval));
                }
                let stored = decision.store(change, &approval)?;
                content::keep(change, contents.as_deref().unwrap_or_default())?;
                let is_any_due = !change.overdue_approvals(now(), 1)?.is_empty();
                Ok::<_, ApprovalRefusal>(Ok((stored, is_any_due)))
            })?;
            match given {
                Ok(given) => return Ok(given),
                Err(approval) => {
                    let request = &approval.request;
                    let kept = self.store.pinned_scripts(&approval.id)?;
                    let verdict = StoredVerdict::of_approval(&approval);
                    let manifests = allowed_manifests(&request.agent, &verdict.binding, &kept);
                    let scripts = content::contents(&stored_plan(&approval)?);
                    contents = Some([scripts, manifests].concat());
                }
            }
        }
    }

    /// Ends approvals that were not decided in time: by `askFallback` where it allows the run,
    /// otherwise as expired. Every access to approvals begins with this function, so its cost
    /// without overdue approvals does not depend on how many are pending.
    pub(crate) fn expire(self, now_ms: i64) -> Result<(), RulesError> {
        let store = self.store;
        while !store.overdue_approvals(now_ms, 1)?.is_empty() {
            self.expire_some(now_ms)?;
        }
        Ok(())
    }

    /// Ends an approval that its caller no longer needs. Decided approvals stay as they are.
    pub fn withdraw(self, id: &str) -> Result<(), ApprovalRefusal> {
        let _ = self.store.withdraw(id, now())?;
        Ok(())
    }

    /// Like [`Self::withdraw`], where the order matters: returns the decision if it came first.
    pub fn withdraw_undecided(self, id: &str) -> Result<Option<ApprovalEnd>, ApprovalRefusal> {
        match self.store.withdraw(id, now())? {
            Decided::Lost { winner } => Ok(Some(winner)),
            Decided::Won | Decided::Same => Ok(None),
        }
    }

    /// Ends some overdue approvals, and queues the events for their sessions in the same change.
    fn expire_some(self, now_ms: i64) -> Result<(), RulesError> {
        Ok(self.store.change(|change| {
            let mut left = 0;
            for id in change.overdue_approvals(now_ms, EXPIRE_AT_ONCE)? {
                if StoredVerdict::of_approval(&change.approval(&id)?)
                    .fallback
                    .allows()
                {
                    let allow = true;
                    let id = &id;
                    let _ = change.decide_by_fallback(&FallbackAnswer { id, allow, now_ms })?;
                } else {
                    left += 1;
                }
            }
            // The approvals that remain overdue are now the first ones.
            for one in &change.expire_due(now_ms, left)? {
                let approval = change.approval(&one.id)?;
                let notify = self.notify_settings(&one.agent);
                queue_denial(
                    change,
                    &approval,
                    DenialReason::of("approval-timeout"),
                    notify,
                )?;
            }
            Ok::<_, StoreError>(())
        })?)
    }

    /// Lets `askFallback` decide at once, for callers that know that no surface can show the
    /// approval. Must not be used while an approver could still decide.
    pub fn fall_back(self, id: &str) -> Result<(), ApprovalRefusal> {
        let store = self.store;
        let approval = store.approval(id)?;
        let fallback = StoredVerdict::of_approval(&approval).fallback;
        let allow = fallback.allows();
        let answer = FallbackAnswer {
            id: &approval.id,
            allow,
            now_ms: now(),
        };
        let notify = self.notify_settings(&approval.request.agent);
        let decided = store.change(|change| {
            let decided = change.decide_by_fallback(&answer)?;
            if decided == Decided::Won && !allow {
                queue_denial(
                    change,
                    &approval,
                    DenialReason::of("fallback-denied"),
                    notify,
                )?;
            }
            Ok::<_, StoreError>(decided)
        })?;
        decided
            .into_result()
            .map_err(interlock_store::StoreError::from)?;
        if allow {
            return Ok(());
        }
        Err(ApprovalRefusal::FallbackDenied {
            short_id: approval.short_id,
            reason: fallback.into_reason(),
        })
    }
}

/// A decision as the approver gave it.
struct GivenDecision<'a> {
    plan_digest: &'a str,
    decision: ApprovalDecision,
    /// The reason as it is stored.
    reason: Option<&'a str>,
    form: AlwaysForm,
    by: DecisionBy<'a>,
    author: &'a Author,
    /// `None` if the config cannot be read or is not needed.
    config: Option<&'a ConfigFile>,
}

impl GivenDecision<'_> {
    /// Whether the shown content of scripts is remembered. Runs of other hosts and patches have
    /// none.
    fn keeps_contents(&self, approval: &Approval) -> bool {
        let binding = approval.request.binding.as_str();
        self.decision != ApprovalDecision::Deny
            && ![REMOTE, PATCH_BINDING, EFFECT_BINDING, NETWORK_BINDING].contains(&binding)
    }

    fn store(
        &self,
        change: &Change<'_>,
        approval: &Approval,
    ) -> Result<StoredDecision, ApprovalRefusal> {
        let (decision, by) = (self.decision, self.by);
        let form = AlwaysForms::read(approval.request.always.as_ref()).chosen(self.form);
        check_offered(approval, decision, form)?;
        let is_always = decision == ApprovalDecision::AllowAlways;
        let now = now();
        let answer = ApprovalAnswer {
            id: &approval.id,
            decision,
            decider: by.decider,
            surface: by.surface,
            reason: self.reason,
            plan_digest: Some(self.plan_digest),
            now_ms: now,
        };
        let said = is_always.then(|| form.to_string());
        let decided = change.decide_with(&answer, said.as_deref(), by.has_shown)?;
        let again = decided == Decided::Same;
        decided.into_result().map_err(StoreError::from)?;
        let agent = &approval.request.agent;
        let exec = self.config.map(|config| config.config().exec_for(agent));
        let days = exec.as_ref().and_then(|exec| exec.grant_expiry_days);
        if decision == ApprovalDecision::Deny && !again {
            let why = DenialReason {
                code: "user-denied",
                words: self.reason,
            };
            queue_denial(change, approval, why, NotifySettings::of(exec))?;
        }
        let is_host = approval.request.binding == NETWORK_BINDING;
        if is_host && is_always && !again {
            // An entry of the config would make another sandbox, with an empty home.
            let until = expiry(days).map(|until| i64::try_from(until).unwrap_or(i64::MAX));
            change.grant_every_session(&approval.id, by.decider, now, until)?;
        }
        let is_local = approval.request.binding != REMOTE && !is_host;
        let entries = match (is_always && is_local, again) {
            (false, _) => Vec::new(),
            (true, false) => store_entries(change, approval, form, self.author, expiry(days))?,
            (true, true) => stored_before(change, approval, form)?,
        };
        let ended = ApprovalEnd {
            ending: ApprovalEnding::Decision(decision),
            decider: Some(by.decider.to_owned()),
            reason: self.reason.map(str::to_owned),
            at_ms: now,
        };
        Ok(StoredDecision {
            again,
            ended,
            entries,
            form: is_always.then_some(form),
        })
    }
}

/// The approver's words as they are stored and shown: on one line, without characters that control
/// a terminal, and cut to the limit. `None` if nothing remains.
fn deny_reason(words: &str) -> Option<String> {
    let shown = ShownLine::new(&words.trim().replace(['\n', '\r'], " "));
    let shown = shown.as_str();
    let mut length = shown.len().min(MAX_DENY_REASON_BYTES);
    while !shown.is_char_boundary(length) {
        length -= 1;
    }
    let kept = shown[..length].trim_end();
    (!kept.is_empty()).then(|| kept.to_owned())
}

/// The expiry of a remembered approval, if the config sets one.
fn expiry(days: Option<u64>) -> Option<u64> {
    days.map(|days| {
        let now = u64::try_from(now()).unwrap_or_default();
        now.saturating_add(days.saturating_mul(DAY_MS))
    })
}

fn seen(surface: &str) -> Delivery {
    Delivery {
        surface: surface.to_owned(),
        state: DeliveryState::Seen,
        at_ms: now(),
        detail: None,
    }
}

fn check_offered(
    approval: &Approval,
    decision: ApprovalDecision,
    form: AlwaysForm,
) -> Result<(), ApprovalRefusal> {
    let not_offered = |choice: &str, why: &str| {
        Err(ApprovalRefusal::NotOffered {
            short_id: approval.short_id.clone(),
            choice: choice.to_owned(),
            why: why.to_owned(),
        })
    };
    let word = decision.as_str();
    match decision {
        ApprovalDecision::AllowSession | ApprovalDecision::Lease(_)
            if approval.request.binding == "unbound" =>
        {
            not_offered(
                word,
                "nothing of it can be pinned, so it is allowed once at most",
            )
        }
        ApprovalDecision::AllowSession | ApprovalDecision::Lease(_)
            if [PATCH_BINDING, EFFECT_BINDING].contains(&approval.request.binding.as_str()) =>
        {
            not_offered(word, ONCE)
        }
        ApprovalDecision::Lease(lease)
            if approval.request.binding == NETWORK_BINDING && lease.max_uses.is_some() =>
        {
            not_offered(word, NO_USES)
        }
        ApprovalDecision::AllowAlways if approval.request.binding == NETWORK_BINDING => {
            if form == AlwaysForm::Exact {
                return Ok(());
            }
            not_offered(&format!("{word} as `{form}`"), "a host has no wider form")
        }
        ApprovalDecision::AllowSession
        | ApprovalDecision::Lease(_)
        | ApprovalDecision::AllowAlways
            if stored_plan(approval).is_ok_and(|plan| plan.retry.is_some()) =>
        {
            not_offered(word, "a run leaves its sandbox for one justification once")
        }
        ApprovalDecision::AllowSession | ApprovalDecision::Lease(_)
            if approval.request.binding == REMOTE =>
        {
            not_offered(word, "another host keeps no such promise")
        }
        // The other host decides what it stores.
        ApprovalDecision::AllowAlways if approval.request.binding == REMOTE => {
            match approval.request.always {
                Some(_) => Ok(()),
                None => not_offered(word, "the policy of that host asks every time"),
            }
        }
        ApprovalDecision::AllowAlways => {
            let always = AlwaysForms::read(approval.request.always.as_ref());
            if always.exact.is_empty() {
                let why = StoredVerdict::of_approval(approval).no_always;
                let why = why.as_deref().unwrap_or("nothing could be stored");
                return not_offered(word, why);
            }
            if always.entries(form).is_empty() {
                let why = always.why_not(form);
                let why = why.unwrap_or("it is none of the forms that were shown");
                return not_offered(&format!("{word} as `{form}`"), why);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Adds the shown entries, and nothing else, to the agent's own list.
fn store_entries(
    change: &Change<'_>,
    approval: &Approval,
    form: AlwaysForm,
    author: &Author,
    expires_at: Option<u64>,
) -> Result<Vec<Entry>, ApprovalRefusal> {
    let (stored, mut document) = present_document(change)?;
    let scope = document
        .agents
        .entry(approval.request.agent.clone())
        .or_default();
    let mut result = Vec::new();
    for entry in AlwaysForms::read(approval.request.always.as_ref()).entries(form) {
        let same = |other: &&Entry| other.has_terms_of(entry);
        if let Some(present) = scope.allowlist.iter().find(same) {
            result.push(present.clone());
            continue;
        }
        let entry = Entry {
            id: Some(uuid::Uuid::new_v4().to_string()),
            command_text: Some(approval.request.preview.clone()),
            expires_at,
            ..entry.clone()
        };
        check_remembered(&approval.request.agent, &scope.allowlist)?;
        scope.allowlist.push(entry.clone());
        result.push(entry);
    }
    let hash = stored.as_ref().map(|stored| stored.hash.as_str());
    change.replace_document_as(author, hash, &document.to_json())?;
    Ok(result)
}

/// Checks that a decision may store one more entry.
pub fn check_remembered(agent: &str, allowlist: &[Entry]) -> Result<(), ApprovalRefusal> {
    let is_remembered = |entry: &&Entry| entry.source.as_deref() == Some(ALLOW_ALWAYS);
    if allowlist.iter().filter(is_remembered).count() < MAX_REMEMBERED {
        return Ok(());
    }
    Err(ApprovalRefusal::TooManyEntries {
        agent: agent.to_owned(),
        most: MAX_REMEMBERED,
    })
}

/// The entries that the same decision stored earlier. They may be missing: the earlier decision may
/// have been for another form, and entries may have been removed since.
fn stored_before(
    change: &Change<'_>,
    approval: &Approval,
    form: AlwaysForm,
) -> Result<Vec<Entry>, ApprovalRefusal> {
    let (_, document) = present_document(change)?;
    let scope = document.agents.get(&approval.request.agent);
    let list = scope.map_or(&[][..], |scope| &scope.allowlist);
    let always = AlwaysForms::read(approval.request.always.as_ref());
    let wanted = always.entries(form).iter().map(|entry| {
        let mut list = list.iter();
        list.find(|other| {
            let timeless = Entry {
                expires_at: None,
                ..(*other).clone()
            };
            timeless.has_terms_of(entry)
        })
        .cloned()
    });
    wanted
        .collect::<Option<Vec<Entry>>>()
        .ok_or_else(|| ApprovalRefusal::NothingStored {
            short_id: approval.short_id.clone(),
            form: form.to_string(),
        })
}

fn present_document(
    change: &Change<'_>,
) -> Result<(Option<StoredDocument>, Document), ApprovalRefusal> {
    let stored = change.document()?;
    let document = match &stored {
        Some(stored) => parse_stored(stored)?,
        None => Document::cautious(),
    };
    Ok((stored, document))
}
