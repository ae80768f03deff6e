//! The gateway itself: how it is, who is there, what it logs, what it has put down.

use interlock_host::{AuditFilter, AuditHead, AuditKind, AuditRecord, AuditVerification, now_ms};
use interlock_wire::params;
use interlock_wire::{OperatorScope, Request, WireError};
use serde_json::{Value, json};

use super::tools::{config, named};
use super::{Context, MethodAnswer, presence, read, unavailable, work};
use crate::gateway::Gateway;

/// Log lines, and bytes of them, where the caller does not say.
const LOG_LINES: u64 = 500;
const LOG_BYTES: u64 = 250_000;

/// Records in one answer, where the caller does not say.
const RECORDS: u64 = 100;

/// Records that are looked through for one answer; the cursor goes on behind them.
const LOOKED_THROUGH: usize = 20_000;

/// `status`.
pub(super) async fn status(context: Context<'_>, request: &Request) -> MethodAnswer {
    read::<params::Status>(request)?;
    let is_admin = context.client.scopes.allow(OperatorScope::Admin);
    work(context, move |gateway| {
        let config = config(gateway)?;
        let pending = gateway.host.desk().pending(0, 1);
        let pending = pending.map_err(|error| unavailable(&error))?;
        let supervisors = gateway.supervisor.supervisors();
        let serving = supervisors.iter().find(|about| !about.draining);
        let running: usize = supervisors.iter().map(|about| about.running).sum();
        let mut status = json!({
            "version": gateway.version,
            "runtimeVersion": gateway.version,
            "pid": std::process::id(),
            "ts": now_ms(),
            "startedAtMs": gateway.started_at_ms,
            "uptimeMs": now_ms().saturating_sub(gateway.started_at_ms),
            "clients": gateway.hub.count(),
            "agents": config.config().agents.list.len().max(1),
            "defaultAgentId": config.config().default_agent_id(),
            "approvals": { "pending": pending.unexpired },
            "runs": { "running": running },
            "supervisorPid": serving.map(|about| about.pid),
        });
        if is_admin {
            status["configPath"] = gateway.host.config_path().display().to_string().into();
            status["stateDir"] = gateway.host.state_dir().display().to_string().into();
            status["authMode"] = gateway.access.mode().to_string().into();
        }
        Ok(status)
    })
    .await
}

/// `system-presence`.
pub(super) fn who_is_there(context: Context<'_>, request: &Request) -> MethodAnswer {
    read::<params::SystemPresence>(request)?;
    Ok(presence(context.gateway).into())
}

/// `system-event`: a line for a session, which gets it with its next call. Facts that clients send
/// about themselves are known from their connection.
pub(super) async fn event(context: Context<'_>, request: &Request) -> MethodAnswer {
    let event: params::SystemEvent = read(request)?;
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let config = config(gateway)?;
        let (agent, session_key) = named(&config, None, event.session_key.as_deref())?;
        let payload = json!({ "who": who, "reason": event.reason, "tags": event.tags });
        let desk = gateway.host.desk();
        desk.note(&session_key, agent.as_str(), &event.text, &payload)
            .map_err(|error| WireError::invalid(error.to_string()).with("code", error.code()))?;
        gateway.events.look_now();
        Ok(json!({ "ok": true }))
    })
    .await
}

/// `skills.bins`: the programs that skills use.
pub(super) fn skill_programs(context: Context<'_>, request: &Request) -> MethodAnswer {
    read::<params::SkillsBins>(request)?;
    let config = context.gateway.host.config();
    let config = config.map_err(|error| unavailable(&error))?;
    let bins = config.config().skills.bins.clone().unwrap_or_default();
    Ok(json!({ "bins": bins }))
}

/// `logs.tail`.
pub(super) fn logs(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::LogsTail = read(request)?;
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let tail = context.gateway.logs.tail(
        asked.cursor,
        size(asked.limit.unwrap_or(LOG_LINES)),
        size(asked.max_bytes.unwrap_or(LOG_BYTES)),
    );
    Ok(json!({
        "file": "gateway",
        "cursor": tail.cursor,
        "size": tail.bytes,
        "lines": tail.lines,
        "truncated": tail.is_truncated,
        "reset": tail.is_reset,
    }))
}

/// `audit.list`: the newest first.
pub(super) async fn audit_list(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::AuditList = read(request)?;
    let kind = match &asked.kind {
        None => None,
        Some(word) => Some(AuditKind::from_word(word).ok_or_else(|| {
            let words: Vec<&str> = AuditKind::ALL.iter().map(|kind| kind.as_str()).collect();
            WireError::invalid(format!("kind: `{word}` is not one of {}", words.join(", ")))
        })?),
    };
    let not_cursor = |_| WireError::invalid("cursor: it does not come from audit.list");
    let cursor: Option<u64> = asked
        .cursor
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(not_cursor)?;
    work(context, move |gateway| list(gateway, &asked, kind, cursor)).await
}

fn list(
    gateway: &Gateway,
    asked: &params::AuditList,
    kind: Option<AuditKind>,
    mut cursor: Option<u64>,
) -> MethodAnswer {
    let limit = usize::try_from(asked.limit.unwrap_or(RECORDS)).unwrap_or(usize::MAX);
    let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let is_wanted = |record: &AuditRecord| {
        let fits = |name: &str, wanted: &Option<String>| {
            wanted
                .as_deref()
                .is_none_or(|wanted| record.body[name] == wanted)
        };
        asked
            .before
            .is_none_or(|before| record.time_ms < time(before))
            && fits("sessionKey", &asked.session_key)
            && fits("runId", &asked.run_id)
    };
    // The store cannot count records by what only their bodies say.
    let is_narrowed =
        asked.before.is_some() || asked.session_key.is_some() || asked.run_id.is_some();
    let mut filter = AuditFilter {
        kind,
        agent: asked.agent_id.clone(),
        since_ms: asked.after.map(|after| time(after).saturating_add(1)),
        ..AuditFilter::default()
    };
    let mut records: Vec<Value> = Vec::new();
    let mut looked = 0;
    'pages: while looked < LOOKED_THROUGH {
        filter.from_seq = cursor;
        let page = gateway.host.desk().audit_log(&filter);
        let page = page.map_err(|error| unavailable(&error))?;
        if page.is_empty() {
            cursor = None;
            break;
        }
        for record in &page {
            if records.len() == limit {
                cursor = Some(record.seq);
                break 'pages;
            }
            looked += 1;
            cursor = record.seq.checked_sub(1).filter(|seq| *seq > 0);
            if is_wanted(record) {
                records.push(view(record));
            }
        }
        if cursor.is_none() {
            break;
        }
    }
    let mut answer = json!({
        "events": records,
        "nextCursor": cursor.map(|cursor| cursor.to_string()),
    });
    if asked.cursor.is_none() && !is_narrowed {
        let counted = gateway.host.desk().audit_page(&AuditFilter {
            limit: Some(0),
            ..filter
        });
        answer["total"] = counted.map_err(|error| unavailable(&error))?.total.into();
    }
    Ok(answer)
}

fn view(record: &AuditRecord) -> Value {
    json!({
        "seq": record.seq,
        "timeMs": record.time_ms,
        "kind": record.kind.as_str(),
        "body": record.body,
        "hash": record.hash.to_string(),
    })
}

/// `audit.verify`.
pub(super) async fn audit_verify(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::AuditVerify = read(request)?;
    let head: Option<AuditHead> = match &asked.head {
        None => None,
        Some(text) => Some(text.parse().map_err(|error| {
            WireError::invalid(format!("head: {error}")).with("code", "AUDIT_HEAD_INVALID")
        })?),
    };
    work(context, move |gateway| {
        let verified = gateway.host.desk().audit_verify(head.as_ref());
        Ok(match verified.map_err(|error| unavailable(&error))? {
            AuditVerification::Intact(head) => json!({ "intact": true, "head": head.to_string() }),
            AuditVerification::Broken(broken) => json!({
                "intact": false,
                "seq": broken.seq,
                "problem": broken.to_string(),
            }),
        })
    })
    .await
}

/// `audit.head`.
pub(super) async fn audit_head(context: Context<'_>, request: &Request) -> MethodAnswer {
    read::<params::AuditHead>(request)?;
    work(context, |gateway| {
        let head = gateway.host.desk().audit_head();
        let head = head.map_err(|error| unavailable(&error))?;
        Ok(json!({ "seq": head.seq, "hash": head.hash.to_string(), "head": head.to_string() }))
    })
    .await
}
