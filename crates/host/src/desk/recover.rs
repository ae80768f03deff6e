//! After a crash: what became of runs that were claimed and have no outcome.

use interlock_run::spool::Outcome;
use interlock_run::supervisor::{Client, Listed, State};
use interlock_store::{AuditFilter, AuditKind, AuditOrder, Claim};
use serde_json::{Value, json};

use super::process::lives;
use super::{Desk, now};
use crate::local::HostError;

/// What was found out about one claim. None of them is run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub run_id: String,
    /// `None`: unknown.
    pub outcome: Option<Value>,
}

impl Desk<'_> {
    /// Gives an outcome to claims whose process is gone: that of their session where there is one,
    /// else *unknown*. Those that still run, or whose process lives, are left alone.
    pub fn recover(self, supervisor: &Client) -> Result<Vec<Recovered>, HostError> {
        let store = self.host.store();
        let claims = store.unfinished_claims()?.into_iter();
        let orphans: Vec<Claim> = claims.filter(|claim| !lives(&claim.claimer)).collect();
        if orphans.is_empty() {
            return Ok(Vec::new());
        }
        let sessions = supervisor.list();
        let mut recovered = Vec::new();
        for claim in orphans {
            let session = self.background_session(&claim)?;
            let session = session.and_then(|name| {
                let mut sessions = sessions.iter();
                sessions.find(|listed| listed.session.name == name)
            });
            let outcome = match session.map(|listed| listed.state) {
                Some(State::Running) => continue,
                Some(State::Ended) => session.map(outcome),
                Some(State::Lost) | None => None,
            };
            match &outcome {
                Some(outcome) => store.finish_claim(&claim.id, outcome, now())?,
                None => store.mark_unknown(&claim.id, now())?,
            }
            recovered.push(Recovered {
                run_id: claim.id,
                outcome,
            });
        }
        Ok(recovered)
    }

    /// Forgets approvals, claims and grants that are over for a day. The audit keeps its records.
    pub fn forget_old(self) -> Result<(), HostError> {
        self.host.store().purge(now())?;
        self.host.forget_uses()
    }

    /// The session that a claimed run went to the background as, if it was recorded.
    fn background_session(self, claim: &Claim) -> Result<Option<String>, HostError> {
        let mut from_seq = None;
        loop {
            let page = self.host.store().audit_log(&AuditFilter {
                kind: Some(AuditKind::RunStarted),
                agent: Some(claim.agent.clone()),
                since_ms: Some(claim.claimed_at_ms),
                from_seq,
                order: AuditOrder::OldestFirst,
                limit: None,
            })?;
            let found = page.iter().find_map(|record| {
                let is_it = record.body["runId"] == claim.id.as_str();
                is_it.then(|| record.body["session"].as_str()).flatten()
            });
            if let Some(name) = found {
                return Ok(Some(name.to_owned()));
            }
            match page.last() {
                Some(last) if page.len() == interlock_store::MAX_PAGE => {
                    from_seq = Some(last.seq + 1);
                }
                _ => return Ok(None),
            }
        }
    }
}

fn outcome(listed: &Listed) -> Value {
    let mut value = match listed.status.outcome {
        Outcome::Exited { code } => json!({ "exitCode": code, "status": "exited" }),
        Outcome::Signalled { signal } => json!({ "signal": signal, "status": "signaled" }),
        Outcome::TimedOut { .. } => json!({ "status": "timed-out" }),
        Outcome::Running | Outcome::Lost => json!({ "status": "lost" }),
    };
    value["session"] = listed.session.name.as_str().into();
    value
}
