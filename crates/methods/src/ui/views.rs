//! Reads the data of each page, through the same functions that answer other clients.

use std::collections::{BTreeMap, BTreeSet};

use interlock_approvals::{AuditFilter, AuditKind, AuditRecord};
use interlock_dispatch::nodes::sessions::is_remote;
use interlock_doctor::audit::audit_host;
use interlock_policy::AgentId;
use interlock_sessions::ProcessCaller;
use interlock_transcript::screen::Picture;
use interlock_web::{
    AuditFacts, HealthFacts, HealthFinding, Markup, NodesFacts, PolicyFacts, SessionFacts,
    SessionListFacts, SettingsFacts,
};
use interlock_wire::params;
use interlock_wire::results::{ProcessEntry, ProcessListing, UiOpened};
use interlock_wire::{OperatorScope, WireError, method};
use serde_json::Value;

use super::open::ViewParams;
use super::screens::{self, SessionPicture};
use super::{explain, screens::plain};
use crate::gateway::Gateway;
use crate::handlers::{
    Context, approvals_unavailable, audit_head, audit_search, config_get, device_list, logs,
    node_explain, node_list, node_pair_list, presence, process_list, process_log, process_perform,
    status, unavailable, work,
};

/// The sessions of one read.
const SESSIONS: u64 = 1_000;

/// The most ended sessions on the page of all sessions.
const MOST_ENDED: usize = 100;

/// The records on one page of the audit.
const RECORDS: u64 = 100;

/// The days in the chart of decisions.
const DAYS: i64 = 30;
const DAY_MS: i64 = 86_400_000;

/// The most decisions that the chart counts. The oldest ones are left out first.
const COUNTED_DECISIONS: usize = 20_000;

/// The most approvers to choose from.
const MOST_APPROVERS: usize = 100;

pub(super) fn page(html: Markup) -> UiOpened {
    UiOpened {
        html: html.into_string(),
        ..UiOpened::default()
    }
}

/// Returns the number of pending approvals.
pub(super) async fn pending(context: Context<'_>) -> Result<u64, WireError> {
    work(context, |gateway| {
        let page = gateway.dispatcher.host.approvals().pending(0, 1);
        Ok(page
            .map_err(|error| approvals_unavailable(&error))?
            .unexpired)
    })
    .await
}

/// Returns one page of the sessions.
async fn session_listing(
    context: Context<'_>,
    wanted: params::ProcessList,
) -> Result<ProcessListing, WireError> {
    let listed = process_list(context, wanted).await?.read();
    listed.map_err(|error| WireError::unavailable(error.to_string()))
}

/// Shows every running session, however old it is, and the newest of those that have ended.
pub(super) async fn sessions(context: Context<'_>) -> Result<UiOpened, WireError> {
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    let (mut total_ended, mut cursor) = (0, None);
    loop {
        let wanted = params::ProcessList {
            limit: Some(SESSIONS),
            cursor,
            ..params::ProcessList::default()
        };
        let listing = session_listing(context, wanted).await?;
        for session in listing.sessions {
            if session.standing.status == "running" {
                running.push(session);
                continue;
            }
            total_ended += 1;
            if ended.len() < MOST_ENDED {
                ended.push(session);
            }
        }
        cursor = listing.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(page(interlock_web::sessions_page(&SessionListFacts {
        running: &running,
        ended: &ended,
        total_ended,
    })))
}

pub(super) async fn session(
    context: Context<'_>,
    wanted: &ViewParams,
) -> Result<UiOpened, WireError> {
    let id = wanted.required("id")?.to_owned();
    let wanted = params::ProcessList {
        prefix: Some(id.clone()),
        limit: Some(SESSIONS),
        ..params::ProcessList::default()
    };
    let listing = session_listing(context, wanted).await?;
    let mut sessions = listing.sessions.into_iter();
    let session = sessions.find(|one| one.standing.session_id == id);
    let session = session.ok_or_else(|| {
        WireError::invalid("there is no such session").with("code", "SESSION_NOT_FOUND")
    })?;
    let picture = if is_remote(&id) {
        remote_picture(context, &session).await?
    } else {
        let id = id.clone();
        work(context, move |gateway| {
            let process = gateway.dispatcher.process(ProcessCaller::Operator);
            let read = process.and_then(|process| screens::picture(gateway, &process, &id));
            read.map_err(|error| {
                WireError::unavailable(error.to_string()).with("code", error.code())
            })
        })
        .await?
    };
    let is_running = session.standing.status == "running";
    let facts = SessionFacts {
        session: &session,
        screen: match &picture {
            SessionPicture::Screen(rows) => Some(rows),
            SessionPicture::Output(_) => None,
        },
        output: match &picture {
            SessionPicture::Output(text) => Some(text),
            SessionPicture::Screen(_) => None,
        },
        may_write: context.client.scopes.allow(OperatorScope::Write),
        may_fit: !is_remote(&id),
    };
    let opened = page(interlock_web::session_page(&facts));
    if is_running && !is_remote(&id) {
        screens::watch(context.gateway, context.client, &id, picture);
    }
    Ok(opened)
}

/// Returns the picture of a session on a node, as the node shows it now.
async fn remote_picture(
    context: Context<'_>,
    session: &ProcessEntry,
) -> Result<SessionPicture, WireError> {
    let id = &session.standing.session_id;
    if session.pty {
        let asked = params::ProcessPerform::on_session("screen", id);
        let answer = process_perform(context, asked).await?.into_json();
        let picture = answer.get("picture").unwrap_or(&answer);
        let picture: Result<Picture, _> = serde_json::from_value(picture.clone());
        if let Ok(picture) = picture {
            return Ok(SessionPicture::Screen(plain(&picture)));
        }
    }
    let asked = params::ProcessLog {
        session_id: id.clone(),
        limit: Some(400),
        ..params::ProcessLog::default()
    };
    let answer = process_log(context, asked).await?;
    Ok(SessionPicture::Output(screens::visible(
        answer.text("text").unwrap_or_default(),
    )))
}

pub(super) async fn nodes(context: Context<'_>) -> Result<UiOpened, WireError> {
    let listing = node_list(context, params::NodeList::default()).await?;
    let scopes = &context.client.scopes;
    let may_pair = scopes.allow(OperatorScope::Pairing);
    let (devices, waiting) = if may_pair {
        let devices = device_list(context, params::DevicePairList::default()).await?;
        let nodes = node_pair_list(context, params::NodePairList::default()).await?;
        (devices, nodes)
    } else {
        Default::default()
    };
    Ok(page(interlock_web::nodes_page(&NodesFacts {
        nodes: &listing.nodes,
        total: listing.total,
        waiting_devices: &devices.pending,
        waiting_nodes: &waiting.pending,
        devices: &devices.paired,
        own_device: context.client.device.as_deref(),
        may_pair,
        may_administer: scopes.allow(OperatorScope::Admin),
    })))
}

/// Returns the agents that the config names, and `main`.
pub(super) fn agents(gateway: &Gateway) -> Result<Vec<String>, WireError> {
    let config = gateway
        .dispatcher
        .host
        .config()
        .map_err(|error| unavailable(&error))?;
    let listed = config.config().agents.list.iter();
    let mut names: Vec<String> = listed.map(|agent| agent.id.clone()).collect();
    if !names.iter().any(|name| name == AgentId::MAIN) {
        names.insert(0, AgentId::MAIN.to_owned());
    }
    Ok(names)
}

pub(super) async fn policy(
    context: Context<'_>,
    wanted: &ViewParams,
) -> Result<UiOpened, WireError> {
    let command = wanted.text("command").unwrap_or_default().to_owned();
    let name = wanted.text("agent").map(str::to_owned);
    let name = name.unwrap_or_else(|| context.gateway.dispatcher.default_agent());
    let node = wanted.text("node").map(str::to_owned);
    let cases = wanted.text("cases").map(str::to_owned);
    let draft = wanted.text("draft").map(str::to_owned);
    let may_run_cases = context.client.scopes.allow(OperatorScope::Admin);
    if cases.is_some() {
        method::require(OperatorScope::Admin, &context.client.scopes)?;
    }
    if !command.is_empty() {
        // Explaining a command reads the file system, so it needs the write scope.
        method::require(OperatorScope::Write, &context.client.scopes)?;
    }
    let listing = node_list(context, params::NodeList::default()).await?;
    let nodes: Vec<(String, String)> = listing
        .nodes
        .iter()
        .filter(|node| node.connected && node.caps.iter().any(|cap| cap == "interlock"))
        .map(|node| {
            let name = node.display_name.clone();
            (
                node.node_id.clone(),
                name.unwrap_or_else(|| node.node_id.clone()),
            )
        })
        .collect();
    let mut problem = None;
    let mut by_node = None;
    if let (Some(node), false) = (&node, command.is_empty()) {
        let asked = params::NodeExplain {
            node_id: node.clone(),
            command: vec!["/bin/sh".to_owned(), "-lc".to_owned(), command.clone()],
            agent_id: Some(name.clone()),
            ..params::NodeExplain::default()
        };
        let told = node_explain(context, asked).await;
        match told.map(|told| told.read()) {
            Ok(Ok(told)) => by_node = Some(told),
            Ok(Err(error)) => problem = Some(error.to_string()),
            Err(error) => problem = Some(error.message),
        }
    }
    work(context, move |gateway| {
        let agents = agents(gateway)?;
        let agent =
            AgentId::new(&name).map_err(|error| WireError::invalid(format!("agent: {error}")))?;
        let levels = gateway.dispatcher.host.levels(&agent, None);
        let levels = levels.map_err(|error| unavailable(&error))?;
        let levels = explain::levels(&levels);
        let mut problem = problem;
        let mut explained = None;
        if node.is_none() && !command.is_empty() {
            match explain::explain(gateway, &agent, &command) {
                Ok(found) => explained = Some(found),
                Err(error) => problem = Some(error),
            }
        }
        let (explained, cwd) = explained.unzip();
        let cases = cases.map(|cases| explain::judge_cases(gateway, &cases, draft.as_deref()));
        let cases = cases.as_ref().map(|judged| match judged {
            Ok(judged) => Ok(judged.as_slice()),
            Err(problem) => Err(problem.as_str()),
        });
        Ok(page(interlock_web::policy_page(&PolicyFacts {
            agents: &agents,
            agent: &name,
            nodes: &nodes,
            node: node.as_deref(),
            command: &command,
            cwd: cwd.as_deref().unwrap_or_default(),
            levels: &levels,
            explained: explained.as_ref(),
            by_node: by_node.as_ref(),
            problem: problem.as_deref(),
            may_run_cases,
            cases,
        })))
    })
    .await
}

pub(super) async fn audit(
    context: Context<'_>,
    wanted: &ViewParams,
) -> Result<UiOpened, WireError> {
    let own = |name: &str| wanted.text(name).map(str::to_owned);
    let text = wanted.text("text").unwrap_or_default().to_lowercase();
    let asked = params::AuditList {
        kind: own("kind"),
        agent_id: own("agent"),
        approver: own("approver"),
        cursor: own("cursor"),
        limit: Some(RECORDS),
        ..params::AuditList::default()
    };
    let found = audit_search(context, asked, text).await?;
    let head = audit_head(context, params::AuditHead::default()).await?;
    let read = |gateway: &Gateway| Ok((agents(gateway)?, recent_decisions(gateway)?));
    let (agents, recent) = work(context, read).await?;
    let mut approvers = recent.approvers;
    approvers.extend(own("approver"));
    let kinds = AuditKind::ALL.map(AuditKind::as_str);
    Ok(page(interlock_web::audit_page(&AuditFacts {
        records: &found.events,
        total: found.total,
        next_cursor: found.next_cursor.as_deref(),
        kinds: &kinds,
        kind: wanted.text("kind").unwrap_or_default(),
        agent: wanted.text("agent").unwrap_or_default(),
        agents: &agents,
        text: wanted.text("text").unwrap_or_default(),
        head: &head.head,
        approver: wanted.text("approver").unwrap_or_default(),
        approvers: &approvers.into_iter().collect::<Vec<_>>(),
        days: &recent.days,
    })))
}

/// The decisions of the last days.
struct RecentDecisions {
    /// Allowed and denied decisions per day, the oldest day first.
    days: Vec<(String, u64, u64)>,
    /// The approvers who decided.
    approvers: BTreeSet<String>,
}

fn recent_decisions(gateway: &Gateway) -> Result<RecentDecisions, WireError> {
    let now = i64::try_from(interlock_host::now_ms()).unwrap_or(i64::MAX);
    let today = now / DAY_MS;
    let first = today - DAYS + 1;
    let mut counts: BTreeMap<i64, (u64, u64)> = (first..=today).map(|day| (day, (0, 0))).collect();
    let mut approvers = BTreeSet::new();
    let mut filter = AuditFilter {
        kind: Some(AuditKind::Decision),
        since_ms: Some(first * DAY_MS),
        ..AuditFilter::default()
    };
    let mut counted = 0;
    while counted < COUNTED_DECISIONS {
        let page = gateway.dispatcher.host.approvals().audit_log(&filter);
        let page = page.map_err(|error| approvals_unavailable(&error))?;
        let Some(last) = page.last() else { break };
        filter.from_seq = last.seq.checked_sub(1);
        counted += page.len();
        for record in &page {
            count_decision(record, &mut counts);
            let decider = record.body.get("decider").and_then(Value::as_str);
            if approvers.len() < MOST_APPROVERS {
                approvers.extend(decider.map(str::to_owned));
            }
        }
        if filter.from_seq.is_none_or(|seq| seq == 0) {
            break;
        }
    }
    let label = |day: i64| match today - day {
        0 => "today".to_owned(),
        1 => "yesterday".to_owned(),
        days => format!("{days} days ago"),
    };
    let days = counts.into_iter();
    let days = days.map(|(day, (allowed, denied))| (label(day), allowed, denied));
    Ok(RecentDecisions {
        days: days.collect(),
        approvers,
    })
}

fn count_decision(record: &AuditRecord, counts: &mut BTreeMap<i64, (u64, u64)>) {
    let word = record.body.get("decision");
    let word = word.or_else(|| record.body.get("ending"));
    let word = word.and_then(Value::as_str).unwrap_or_default();
    let Some((allowed, denied)) = counts.get_mut(&(record.time_ms / DAY_MS)) else {
        return;
    };
    match word {
        "deny" | "fallback-deny" => *denied += 1,
        word if word.starts_with("allow") || word == "lease" || word == "fallback-allow" => {
            *allowed += 1;
        }
        _ => {}
    }
}

pub(super) async fn settings(context: Context<'_>) -> Result<UiOpened, WireError> {
    let config = config_get(context, params::ConfigGet::default()).await?;
    Ok(page(interlock_web::settings_page(&SettingsFacts {
        config: &config,
        may_administer: context.client.scopes.allow(OperatorScope::Admin),
        may_pair: context.client.scopes.allow(OperatorScope::Pairing),
    })))
}

pub(super) async fn health(context: Context<'_>) -> Result<UiOpened, WireError> {
    let status = status(context, params::Status::default()).await?;
    let config = config_get(context, params::ConfigGet::default()).await?;
    let asked = params::LogsTail {
        limit: Some(200),
        ..params::LogsTail::default()
    };
    let log = logs(context, &asked);
    let may_audit = context.client.scopes.allow(OperatorScope::Admin);
    let (shield, findings, free_bytes) = work(context, move |gateway| {
        let config = gateway
            .dispatcher
            .host
            .config()
            .map_err(|error| unavailable(&error))?;
        let exec = config.config().exec_for(AgentId::MAIN);
        let shield = interlock_host::plan_shield(&exec, interlock_policy::VerdictShield::Usual);
        let shield = match shield {
            Ok(shield) => shield.words().to_owned(),
            Err(missing) => missing.to_string(),
        };
        let found = may_audit.then(|| findings(gateway));
        let room = rustix::fs::statvfs(gateway.dispatcher.host.state_dir());
        let free = room
            .ok()
            .map(|room| room.f_bavail.saturating_mul(room.f_frsize));
        Ok((shield, found, free))
    })
    .await?;
    Ok(page(interlock_web::health_page(&HealthFacts {
        status: &status,
        clients: &presence(context.gateway),
        issues: &config.issues,
        log: &log.lines,
        shield: &shield,
        findings: findings.as_deref(),
        free_bytes,
    })))
}

/// Returns the findings of the security audit, as on the command line.
fn findings(gateway: &Gateway) -> Vec<HealthFinding> {
    let found = audit_host(&gateway.dispatcher.host).into_iter();
    let found = found.map(|finding| HealthFinding {
        severity: finding.severity.as_str(),
        subject: finding.subject,
        what: finding.what,
        fix: finding.fix,
    });
    found.collect()
}
