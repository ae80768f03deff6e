//! Answers `netd`, which asks whether a run may reach a host name. A standing grant or an earlier
//! decision for the run gives the answer. Otherwise an approver is asked, and the connection waits.
//!
//! Every process that starts runs answers, so that grants hold without a gateway too. These
//! processes share the store: the approval for a run, a name and a port has the same id, no matter
//! which process asks.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalDecision, ApprovalEnding, ApprovalRefusal, ApprovalSettings, EXPIRES_AFTER_MS,
    NETWORK_BINDING, NetworkPlan, THIS_HOST, network_plan_of, usual_session_key,
};
use interlock_engine::sandbox::{MOST_QUESTION_BYTES, NetworkAnswer, NetworkQuestion};
use interlock_plan::HostName;
use interlock_store::{ApprovalRequest, EVERY_SESSION, Grant, StoreError};
use interlock_supervisor::{InnerConnection, SessionState, SupervisorClient, run_of_connection};
use interlock_transcript::SessionRecord;
use serde_json::json;

use crate::local::{HostError, LocalHost};

/// How many names of one agent may wait for an approver at once.
const MOST_WAITING: usize = 8;

/// How many questions one process answers at once.
const MOST_QUESTIONS: usize = 128;

/// How often a waiting question checks that its run is still running.
const LOOK: Duration = Duration::from_millis(500);

/// A process that answers the questions of `netd`.
pub trait NetworkAsker: Send + Sync + 'static {
    fn host(&self) -> &LocalHost;

    fn supervisor(&self) -> &SupervisorClient;

    /// Whether this process reaches an approver. A process that does not still reports earlier
    /// decisions.
    fn can_ask(&self) -> bool;

    /// Called after an approval was stored; a connection waits for it.
    fn has_asked(&self, plan: &NetworkPlan, short_id: &str);
}

/// The connections to the supervisors, one each, on which `netd` asks.
#[derive(Debug, Default)]
pub struct NetworkLinks {
    linked: Mutex<HashSet<String>>,
    answering: AtomicUsize,
}

impl NetworkLinks {
    /// Connects with every supervisor that this process is not connected with. Never starts a
    /// supervisor, and is cheap where there is none.
    pub fn link(self: &Arc<Self>, asker: &Arc<impl NetworkAsker>) {
        for version in asker.supervisor().versions() {
            if !self.lock().insert(version.clone()) {
                continue;
            }
            let Ok(stream) = asker.supervisor().answer_networks(&version) else {
                self.lock().remove(&version);
                continue;
            };
            let (links, asker) = (Arc::clone(self), Arc::clone(asker));
            std::thread::spawn(move || {
                links.answer_all(&asker, &stream);
                links.lock().remove(&version);
            });
        }
    }

    /// Answers questions until the supervisor is gone.
    fn answer_all(self: &Arc<Self>, asker: &Arc<impl NetworkAsker>, stream: &UnixStream) {
        let Ok(writer) = stream.try_clone() else {
            return;
        };
        let writer = Arc::new(Mutex::new(writer));
        let mut lines = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut lines).take(MOST_QUESTION_BYTES as u64);
            match bounded.read_until(b'\n', &mut line) {
                Ok(length) if length > 0 => {}
                _ => return,
            }
            let Ok(question) = serde_json::from_slice::<NetworkQuestion>(&line) else {
                continue;
            };
            if self.answering.fetch_add(1, Ordering::Relaxed) >= MOST_QUESTIONS {
                self.answering.fetch_sub(1, Ordering::Relaxed);
                tell(
                    &writer,
                    &refused(&question, None, "too many connections wait"),
                );
                continue;
            }
            let (all, asker, writer) = (Arc::clone(self), Arc::clone(asker), Arc::clone(&writer));
            std::thread::spawn(move || {
                let answer = answer(&*asker, &question);
                tell(&writer, &answer);
                all.answering.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends an answer in a single write, so that two answers do not mix.
fn tell(writer: &Mutex<UnixStream>, answer: &NetworkAnswer) {
    let Ok(mut line) = serde_json::to_vec(answer) else {
        return;
    };
    line.push(b'\n');
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    // A failed write means that the supervisor and its connection are gone.
    let _ = writer.write_all(&line);
}

fn refused(question: &NetworkQuestion, run_id: Option<&str>, why: &str) -> NetworkAnswer {
    NetworkAnswer {
        id: question.id.clone(),
        allowed: false,
        reason: format!("not in network.allow, and {why}"),
        run_id: run_id.map(str::to_owned),
        cannot_ask: false,
    }
}

fn answer(asker: &impl NetworkAsker, question: &NetworkQuestion) -> NetworkAnswer {
    let until = Instant::now() + Duration::from_millis(question.wait_ms);
    // Only the canonical form of the name is decided and stored, so that it cannot be read as
    // another name.
    let is_name = question.host.parse::<HostName>();
    if !is_name.is_ok_and(|name| name.as_str() == question.host) {
        return refused(question, None, "it is no name");
    }
    let connection = InnerConnection {
        namespace: question.namespace,
        from: question.from,
        to: question.to,
    };
    let place = asker.supervisor().place();
    let Some(session) = run_of_connection(place, &connection) else {
        let why = "no single run could be found that made the connection";
        return refused(question, None, why);
    };
    let plan = plan_of(&session, question);
    let decided = decide(asker, &plan, &session, until);
    let run_id = Some(plan.run_id.clone());
    match decided {
        Ok(HostDecision::Allowed(by)) => NetworkAnswer {
            id: question.id.clone(),
            allowed: true,
            reason: by,
            run_id,
            cannot_ask: false,
        },
        Ok(HostDecision::Refused(why)) => refused(question, Some(&plan.run_id), &why),
        Ok(HostDecision::CannotAsk) => NetworkAnswer {
            cannot_ask: true,
            ..refused(
                question,
                Some(&plan.run_id),
                "no gateway runs that could ask",
            )
        },
        // An allowance that cannot be looked up allows nothing.
        Err(error) => refused(question, Some(&plan.run_id), &error.to_string()),
    }
}

fn plan_of(session: &SessionRecord, question: &NetworkQuestion) -> NetworkPlan {
    let agent_id = session.agent_id.clone();
    let session_key = session.session_key.clone();
    NetworkPlan {
        session_key: session_key.unwrap_or_else(|| usual_session_key(&agent_id)),
        agent_id,
        run_id: session.run_id.clone().unwrap_or_else(|| session.id.clone()),
        session: session.name.clone(),
        command: session.command.clone(),
        cwd: session.cwd.clone(),
        scope: question.scope.clone(),
        host: question.host.clone(),
        port: question.port,
    }
}

/// The decision about a host for a run.
enum HostDecision {
    /// Who allowed it, and for how long.
    Allowed(String),
    Refused(String),
    /// No decision exists, and this process reaches no approver.
    CannotAsk,
}

fn decide(
    asker: &impl NetworkAsker,
    plan: &NetworkPlan,
    session: &SessionRecord,
    until: Instant,
) -> Result<HostDecision, ApprovalRefusal> {
    let host = asker.host();
    if let Some(decision) = host.decided_host(plan)? {
        return Ok(decision);
    }
    if !asker.can_ask() {
        return Ok(HostDecision::CannotAsk);
    }
    let short_id = match host.ask_for_host(plan)? {
        AskedHost::New(short_id) => {
            asker.has_asked(plan, &short_id);
            short_id
        }
        AskedHost::Before(short_id) => short_id,
        AskedHost::TooMany => {
            let why = format!("{MOST_WAITING} names of this agent wait for an approver already");
            return Ok(HostDecision::Refused(why));
        }
    };
    let id = plan.approval_id();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        host.approvals().wait(&id, left.min(LOOK))?;
        if let Some(decision) = host.decided_host(plan)? {
            return Ok(decision);
        }
        if !is_running(asker.supervisor(), session) {
            host.approvals().withdraw(&id)?;
            return Ok(HostDecision::Refused("the run has ended".to_owned()));
        }
        if left.is_zero() {
            let why = format!("no approver decided in time; {short_id} still waits for a decision");
            return Ok(HostDecision::Refused(why));
        }
    }
}

fn is_running(supervisor: &SupervisorClient, session: &SessionRecord) -> bool {
    let all = supervisor.list();
    let mut own = all.iter().filter(|one| one.session.id == session.id);
    own.any(|one| one.state == SessionState::Running)
}

/// The result of asking an approver.
enum AskedHost {
    New(String),
    Before(String),
    TooMany,
}

impl LocalHost {
    /// The decision about a host for a run; `None` while there is none. `allow-once` holds for the
    /// run that asked. Wider decisions are grants and hold as long as the grant.
    fn decided_host(&self, plan: &NetworkPlan) -> Result<Option<HostDecision>, ApprovalRefusal> {
        let digest = plan.content_digest();
        let grant = self
            .store()
            .standing_grant(&plan.grant_key(&digest), now())?;
        if let Some(grant) = grant {
            return Ok(Some(HostDecision::Allowed(grant_words(&grant))));
        }
        let id = plan.approval_id();
        if !self.store().knows_approval(&id)? {
            return Ok(None);
        }
        Ok(self.store().sealed_end(&id)?.map(|ending| match ending {
            ApprovalEnding::Decision(ApprovalDecision::AllowOnce) => {
                HostDecision::Allowed("allow-once, for this run".to_owned())
            }
            ApprovalEnding::Decision(ApprovalDecision::Deny) => {
                HostDecision::Refused("an approver denied it for this run".to_owned())
            }
            ApprovalEnding::Decision(_) => {
                HostDecision::Refused("what allowed it has expired or was revoked".to_owned())
            }
            _ => HostDecision::Refused("no approver decided for this run".to_owned()),
        }))
    }

    /// Stores the approval for a run, a name and a port, unless it exists.
    fn ask_for_host(&self, plan: &NetworkPlan) -> Result<AskedHost, ApprovalRefusal> {
        let id = plan.approval_id();
        let digest = plan.digest().ok_or_else(|| ApprovalRefusal::Drift {
            what: "the run cannot be named".to_owned(),
        })?;
        let config = ApprovalSettings::config(&**self)?;
        let most = config.config().exec_for(&plan.agent_id).most_pending();
        let now = now();
        let asked = self.store().change(|change| {
            if change.has_approval(&id)? {
                return Ok(AskedHost::Before(change.asked(&id)?.short_id));
            }
            let waiting = change.count_pending_of_kind(&plan.agent_id, NETWORK_BINDING, now)?;
            if waiting >= MOST_WAITING {
                return Ok(AskedHost::TooMany);
            }
            change.check_pending(&plan.agent_id, most, now)?;
            let created = change.create_approval_as(
                &id,
                &ApprovalRequest {
                    plan: serde_json::to_string(plan).unwrap_or_default(),
                    plan_digest: digest.clone(),
                    content_digest: plan.content_digest(),
                    verdict: plan.stored_verdict().to_value(),
                    binding: NETWORK_BINDING.to_owned(),
                    preview: plan.title(),
                    agent: plan.agent_id.clone(),
                    session_key: plan.session_key.clone(),
                    host: THIS_HOST.to_owned(),
                    node: None,
                    requester: format!("run {}", plan.session),
                    created_at_ms: now,
                    expires_at_ms: now.saturating_add(EXPIRES_AFTER_MS),
                    // Allowing always is offered, and is stored as a grant.
                    always: Some(json!({ "exact": [] })),
                },
            )?;
            Ok::<_, StoreError>(AskedHost::New(created.short_id))
        });
        Ok(asked?)
    }

    /// Withdraws the approvals of hosts whose runs have ended: nothing waits for them any more.
    pub fn withdraw_ended_hosts(&self, supervisor: &SupervisorClient) -> Result<(), HostError> {
        let pending = self.store().pending_of_kind(NETWORK_BINDING)?;
        if pending.is_empty() {
            return Ok(());
        }
        let sessions = supervisor.list();
        for id in pending {
            let approval = self.store().approval(&id)?;
            let is_running = network_plan_of(&approval).is_some_and(|plan| {
                let mut running = sessions
                    .iter()
                    .filter(|one| one.state == SessionState::Running);
                running.any(|one| one.session.name == plan.session)
            });
            if !is_running {
                let _ = self.store().withdraw(&id, now())?;
            }
        }
        Ok(())
    }

    /// The hosts beyond the config that approvers allowed for runs of an agent.
    pub fn granted_hosts(&self, agent: &str) -> Result<Vec<Grant>, HostError> {
        let is_host = |grant: &Grant| {
            let approval = self.store().approval(&grant.approval_id);
            approval.is_ok_and(|approval| network_plan_of(&approval).is_some())
        };
        let grants = self.store().grants(now())?.into_iter();
        let own = grants.filter(|grant| grant.agent == agent);
        Ok(own.filter(is_host).collect())
    }
}

fn grant_words(grant: &Grant) -> String {
    let for_what = match (grant.session_key.as_str(), grant.expires_at_ms) {
        (EVERY_SESSION, _) => "always, for every conversation of its agent",
        _ => "for this conversation, for a time",
    };
    format!("{for_what}, by {} ({})", grant.decider, grant.id)
}
