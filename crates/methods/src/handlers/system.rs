//! The gateway itself: its status, its clients, its log and its audit.

use interlock_approvals::{AuditFilter, AuditHead, AuditKind, AuditRecord, AuditVerification};
use interlock_host::now_ms;
use interlock_wire::params;
use interlock_wire::results::{
    ApprovalCounts, AuditChainHead, AuditChainReport, AuditEntry, AuditPage, ClientPresence,
    GatewayStatus, LogTail, RunCounts, SkillPrograms, SystemEventReceipt,
};
use interlock_wire::{OperatorScope, WireError};
use serde_json::{Value, json};

use super::tools::{config, named};
use super::{Context, approvals_unavailable, presence, unavailable, work};
use crate::gateway::Gateway;

/// Log lines, and their bytes, in one answer if the caller names no limit.
const LOG_LINES: u64 = 500;
const LOG_BYTES: u64 = 250_000;

/// Records in one answer if the caller names no limit.
const RECORDS: u64 = 100;

/// The most records that are searched for one answer. The cursor continues behind them.
const LOOKED_THROUGH: usize = 20_000;

/// `status`.
pub(crate) async fn status(
    context: Context<'_>,
    _params: params::Status,
) -> Result<GatewayStatus, WireError> {
    let is_admin = context.client.scopes.allow(OperatorScope::Admin);
    work(context, move |gateway| {
        let config = config(gateway)?;
        let pending = gateway.dispatcher.host.approvals().pending(0, 1);
        let pending = pending.map_err(|error| approvals_unavailable(&error))?;
        let supervisors = gateway.dispatcher.supervisor.supervisors();
        let serving = supervisors.iter().find(|about| !about.draining);
        let running: usize = supervisors.iter().map(|about| about.running).sum();
        let for_admins = |text: String| is_admin.then_some(text);
        Ok(GatewayStatus {
            version: Some(gateway.version.to_owned()),
            runtime_version: Some(gateway.version.to_owned()),
            pid: std::process::id(),
            ts: now_ms(),
            started_at_ms: Some(gateway.dispatcher.started_at_ms),
            uptime_ms: now_ms().saturating_sub(gateway.dispatcher.started_at_ms),
            clients: gateway.dispatcher.hub.count(),
            agents: config.config().agents.list.len().max(1),
            default_agent_id: Some(config.config().default_agent_id()),
            approvals: ApprovalCounts {
                pending: pending.unexpired,
            },
            runs: RunCounts { running },
            supervisor_pid: serving.map(|about| about.pid),
            config_path: for_admins(gateway.dispatcher.host.config_path().display().to_string()),
            state_dir: for_admins(gateway.dispatcher.host.state_dir().display().to_string()),
            auth_mode: for_admins(gateway.access.mode().to_string()),
        })
    })
    .await
}

/// `system-presence`.
pub(super) fn who_is_there(
    context: Context<'_>,
    _params: params::SystemPresence,
) -> Vec<ClientPresence> {
    presence(context.gateway)
}

/// `system-event`: adds a line to a session, which receives it with its next call. What clients
/// report about themselves is ignored, because their connection already says it.
pub(super) async fn event(
    context: Context<'_>,
    event: params::SystemEvent,
) -> Result<SystemEventReceipt, WireError> {
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let config = config(gateway)?;
        let (agent, session_key) = named(&config, None, event.session_key.as_deref())?;
        let payload = json!({ "who": who, "reason": event.reason, "tags": event.tags });
        let approvals = gateway.dispatcher.host.approvals();
        approvals
            .note(&session_key, agent.as_str(), &event.text, &payload)
            .map_err(|error| WireError::invalid(error.to_string()).with("code", error.code()))?;
        gateway.dispatcher.events.look_now();
        Ok(SystemEventReceipt { ok: true })
    })
    .await
}

/// `skills.bins`: lists the programs that skills use.
pub(super) fn skill_programs(
    context: Context<'_>,
    _params: params::SkillsBins,
) -> Result<SkillPrograms, WireError> {
    let config = context.gateway.dispatcher.host.config();
    let config = config.map_err(|error| unavailable(&error))?;
    let bins = config.config().skills.bins.clone().unwrap_or_default();
    Ok(SkillPrograms { bins })
}

/// `logs.tail`.
pub(crate) fn logs(context: Context<'_>, asked: &params::LogsTail) -> LogTail {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let tail = context.gateway.logs.tail(
        asked.cursor,
        size(asked.limit.unwrap_or(LOG_LINES)),
        size(asked.max_bytes.unwrap_or(LOG_BYTES)),
    );
    LogTail {
        file: "gateway".to_owned(),
        cursor: tail.cursor,
        size: tail.bytes,
        lines: tail.lines,
        truncated: tail.is_truncated,
        reset: tail.is_reset,
    }
}

/// `audit.list`: the newest first.
pub(crate) async fn audit_list(
    context: Context<'_>,
    asked: params::AuditList,
) -> Result<AuditPage, WireError> {
    audit_search(context, asked, String::new()).await
}

/// Lists records that contain a word, given in lower case, anywhere.
pub(crate) async fn audit_search(
    context: Context<'_>,
    asked: params::AuditList,
    word: String,
) -> Result<AuditPage, WireError> {
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
    work(context, move |gateway| {
        list(gateway, &asked, kind, cursor, &word)
    })
    .await
}

fn list(
    gateway: &Gateway,
    asked: &params::AuditList,
    kind: Option<AuditKind>,
    mut cursor: Option<u64>,
    word: &str,
) -> Result<AuditPage, WireError> {
    take_connections(gateway);
    let limit = usize::try_from(asked.limit.unwrap_or(RECORDS)).unwrap_or(usize::MAX);
    let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let is_wanted = |record: &AuditRecord| {
        let fits = |name: &str, wanted: &Option<String>| {
            wanted
                .as_deref()
                .is_none_or(|wanted| record.body.get(name).is_some_and(|value| value == wanted))
        };
        asked
            .before
            .is_none_or(|before| record.time_ms < time(before))
            && fits("sessionKey", &asked.session_key)
            && fits("runId", &asked.run_id)
            && fits("decider", &asked.approver)
            && (word.is_empty() || holds_word(&record.body, word))
    };
    // The store cannot count records by fields that only their bodies contain.
    let is_narrowed = asked.before.is_some()
        || asked.session_key.is_some()
        || asked.run_id.is_some()
        || asked.approver.is_some()
        || !word.is_empty();
    let mut filter = AuditFilter {
        kind,
        agent: asked.agent_id.clone(),
        since_ms: asked.after.map(|after| time(after).saturating_add(1)),
        // One record more than is shown tells where the next page begins. Records that must be
        // searched are read in large pieces.
        limit: (!is_narrowed).then(|| limit.saturating_add(1)),
        ..AuditFilter::default()
    };
    let mut events: Vec<AuditEntry> = Vec::new();
    let mut looked = 0;
    'pages: while looked < LOOKED_THROUGH {
        filter.from_seq = cursor;
        let page = gateway.dispatcher.host.approvals().audit_log(&filter);
        let page = page.map_err(|error| approvals_unavailable(&error))?;
        if page.is_empty() {
            cursor = None;
            break;
        }
        for record in &page {
            if events.len() == limit {
                cursor = Some(record.seq);
                break 'pages;
            }
            looked += 1;
            cursor = record.seq.checked_sub(1).filter(|seq| *seq > 0);
            if is_wanted(record) {
                events.push(view(record));
            }
        }
        if cursor.is_none() {
            break;
        }
    }
    let total = if asked.cursor.is_none() && !is_narrowed {
        let counted = gateway
            .dispatcher
            .host
            .approvals()
            .audit_page(&AuditFilter {
                limit: Some(0),
                ..filter
            });
        Some(
            counted
                .map_err(|error| approvals_unavailable(&error))?
                .total,
        )
    } else {
        None
    };
    Ok(AuditPage {
        events,
        next_cursor: cursor.map(|cursor| cursor.to_string()),
        total,
    })
}

/// Adds the connections of sandboxed runs to the audit before it is read.
fn take_connections(gateway: &Gateway) {
    if let Err(error) = gateway.dispatcher.host.record_connections() {
        tracing::warn!(%error, "connections of sandboxed runs are not in the audit yet");
    }
}

/// Whether a word, given in lower case, stands in a key, a text or a number of a record. A search
/// goes through thousands of records, so this serializes none of them.
fn holds_word(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text_holds(text, word),
        Value::Number(number) => text_holds(&number.to_string(), word),
        Value::Bool(is) => text_holds(if *is { "true" } else { "false" }, word),
        Value::Null => false,
        Value::Array(all) => all.iter().any(|one| holds_word(one, word)),
        Value::Object(fields) => {
            let mut fields = fields.iter();
            fields.any(|(key, value)| text_holds(key, word) || holds_word(value, word))
        }
    }
}

fn text_holds(text: &str, word: &str) -> bool {
    if !text.is_ascii() || !word.is_ascii() {
        return text.to_lowercase().contains(word);
    }
    let mut windows = text.as_bytes().windows(word.len());
    windows.any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

fn view(record: &AuditRecord) -> AuditEntry {
    AuditEntry {
        seq: record.seq,
        time_ms: record.time_ms,
        kind: record.kind.as_str().to_owned(),
        body: record.body.clone(),
        hash: record.hash.to_string(),
    }
}

/// `audit.verify`.
pub(super) async fn audit_verify(
    context: Context<'_>,
    asked: params::AuditVerify,
) -> Result<AuditChainReport, WireError> {
    let head: Option<AuditHead> = match &asked.head {
        None => None,
        Some(text) => Some(text.parse().map_err(|error| {
            WireError::invalid(format!("head: {error}")).with("code", "AUDIT_HEAD_INVALID")
        })?),
    };
    work(context, move |gateway| {
        let verified = gateway
            .dispatcher
            .host
            .approvals()
            .audit_verify(head.as_ref());
        Ok(
            match verified.map_err(|error| approvals_unavailable(&error))? {
                AuditVerification::Intact(head) => AuditChainReport {
                    intact: true,
                    head: Some(head.to_string()),
                    ..AuditChainReport::default()
                },
                AuditVerification::Broken(broken) => AuditChainReport {
                    seq: Some(broken.seq),
                    problem: Some(broken.to_string()),
                    ..AuditChainReport::default()
                },
            },
        )
    })
    .await
}

/// `audit.head`.
pub(crate) async fn audit_head(
    context: Context<'_>,
    _params: params::AuditHead,
) -> Result<AuditChainHead, WireError> {
    work(context, |gateway| {
        take_connections(gateway);
        let head = gateway.dispatcher.host.approvals().audit_head();
        let head = head.map_err(|error| approvals_unavailable(&error))?;
        Ok(AuditChainHead {
            seq: head.seq,
            hash: head.hash.to_string(),
            head: head.to_string(),
        })
    })
    .await
}
