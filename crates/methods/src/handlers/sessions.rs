//! `sessions.*`: conversations and their settings.

use std::collections::BTreeMap;

use interlock_dispatch::sessions::{self, Edits, SessionEdit, SettingNotAuthorized};
use interlock_host::{SessionValues, now_ms};
use interlock_sessions::ProcessCaller;
use interlock_store::Author;
use interlock_wire::method::require;
use interlock_wire::params;
use interlock_wire::results::{
    SessionChanged, SessionDirected, SessionEntry, SessionListing, SessionPatched,
};
use interlock_wire::{OperatorScope, WireError};

use super::tools::{config, named};
use super::{Context, broadcast, store_failed, unavailable, work};
use crate::directives::{self, Directive, DirectiveError};
use crate::gateway::Gateway;

/// Sessions in one answer if the caller names no limit.
const LISTED: usize = 200;

/// One session of the list.
#[derive(Debug, Default)]
struct SessionRow {
    agent: String,
    at_ms: u64,
    running: usize,
    values: SessionValues,
}

/// `sessions.list`: sessions that were used or set, or that have undelivered events, the latest
/// first.
pub(super) async fn list(
    context: Context<'_>,
    asked: params::SessionsList,
) -> Result<SessionListing, WireError> {
    work(context, move |gateway| {
        let mut rows: Vec<(String, SessionRow)> = rows(gateway)?.into_iter().collect();
        let since = asked
            .active_minutes
            .map(|minutes| now_ms().saturating_sub(minutes.saturating_mul(60_000)));
        let search = asked.search.as_deref().map(str::to_lowercase);
        rows.retain(|(key, row)| {
            since.is_none_or(|since| row.at_ms >= since)
                && asked
                    .agent_id
                    .as_ref()
                    .is_none_or(|agent| row.agent == *agent)
                && (asked.label.is_none() || row.values.label == asked.label)
                && search
                    .as_ref()
                    .is_none_or(|text| key.to_lowercase().contains(text))
        });
        rows.sort_by(|(a, x), (b, y)| y.at_ms.cmp(&x.at_ms).then_with(|| a.cmp(b)));
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let total = rows.len();
        let page = rows
            .into_iter()
            .skip(asked.offset.map_or(0, size))
            .take(asked.limit.map_or(LISTED, size));
        let sessions: Vec<SessionEntry> = page.map(|(key, row)| entry(key, row)).collect();
        Ok(SessionListing {
            ts: now_ms(),
            path: gateway.dispatcher.host.store().path().display().to_string(),
            count: sessions.len(),
            total,
            sessions,
        })
    })
    .await
}

fn entry(key: String, row: SessionRow) -> SessionEntry {
    SessionEntry {
        settings: sessions::view(&row.values),
        key,
        kind: "direct".to_owned(),
        agent_id: row.agent,
        updated_at: row.at_ms,
        running_processes: row.running,
    }
}

fn rows(gateway: &Gateway) -> Result<BTreeMap<String, SessionRow>, WireError> {
    let mut rows: BTreeMap<String, SessionRow> = BTreeMap::new();
    let stored = gateway.dispatcher.host.sessions();
    for known in stored.map_err(|error| unavailable(&error))? {
        let row = SessionRow {
            agent: known.agent,
            at_ms: u64::try_from(known.at_ms).unwrap_or_default(),
            running: 0,
            values: SessionValues::of(&known.settings),
        };
        rows.insert(known.session_key, row);
    }
    let mut used = gateway.dispatcher.seen.all();
    let process = gateway
        .dispatcher
        .process(ProcessCaller::Operator)
        .and_then(|process| process.indexed());
    // If background sessions cannot be read, the list is still useful without their counts.
    for (session, is_running) in process.unwrap_or_default() {
        let Some(key) = session.session_key else {
            continue;
        };
        if is_running {
            rows.entry(key.clone()).or_default().running += 1;
        }
        used.push((key, session.agent_id, session.started_ms));
    }
    for (key, agent, at_ms) in used {
        let row = rows.entry(key).or_default();
        row.at_ms = row.at_ms.max(at_ms);
        if row.agent.is_empty() {
            row.agent = agent;
        }
    }
    Ok(rows)
}

/// `sessions.patch`.
pub(super) async fn patch(
    context: Context<'_>,
    asked: params::SessionsPatch,
) -> Result<SessionPatched, WireError> {
    let edits = edits(&asked)?;
    let who = context.client.name().to_owned();
    let agent_id = asked.agent_id;
    let (key, values) = work(context, move |gateway| {
        set(gateway, agent_id.as_deref(), &asked.key, edits, None, who)
    })
    .await?;
    changed(context.gateway, &key);
    Ok(SessionPatched {
        ok: true,
        path: context
            .gateway
            .dispatcher
            .host
            .store()
            .path()
            .display()
            .to_string(),
        key,
        entry: sessions::view(&values),
    })
}

/// `sessions.directive`. A change needs the same rights as by `sessions.patch`. If the directive
/// was typed in a channel, its sender must also be one of the owners.
pub(super) async fn directive(
    context: Context<'_>,
    asked: params::SessionsDirective,
) -> Result<SessionDirected, WireError> {
    let edits = match directives::parse(&asked.text).map_err(|error| bad(&error))? {
        Directive::Show => None,
        Directive::Change(edits) => Some(edits),
    };
    if edits.is_some() {
        require(OperatorScope::Admin, &context.client.scopes)?;
    }
    let who = match &asked.sender {
        Some(sender) => format!("{sender} by {}", context.client.name()),
        None => context.client.name().to_owned(),
    };
    let is_change = edits.is_some();
    let (key, values) = work(context, move |gateway| {
        let sender = asked.sender.as_deref();
        let edits = edits.unwrap_or_default();
        set(gateway, None, &asked.session_key, edits, sender, who)
    })
    .await?;
    if is_change {
        changed(context.gateway, &key);
    }
    Ok(SessionDirected {
        ok: true,
        key,
        text: sessions::text(&values),
        entry: sessions::view(&values),
    })
}

/// Applies a directive of a sender in a chat, named `CHANNEL:ID`. The answer is for people.
pub(crate) fn direct_session(
    gateway: &Gateway,
    sender: &str,
    session_key: &str,
    text: &str,
) -> Result<String, WireError> {
    let edits = match directives::parse(text).map_err(|error| bad(&error))? {
        Directive::Show => None,
        Directive::Change(edits) => Some(edits),
    };
    let is_change = edits.is_some();
    let edits = edits.unwrap_or_default();
    let who = sender.to_owned();
    let (key, values) = set(gateway, None, session_key, edits, Some(sender), who)?;
    if is_change {
        changed(gateway, &key);
    }
    Ok(format!("{key} {}", sessions::text(&values)))
}

/// Changes a session if the caller may.
fn set(
    gateway: &Gateway,
    agent_id: Option<&str>,
    key: &str,
    edits: Edits,
    sender: Option<&str>,
    who: String,
) -> Result<(String, SessionValues), WireError> {
    let config = config(gateway)?;
    let (agent, key) = named(&config, agent_id, Some(key))?;
    sessions::authorize(config.config(), &agent, &edits, sender)
        .map_err(|error| not_authorized(&error))?;
    let author = Author::new(who).map_err(store_failed)?;
    let values = gateway
        .dispatcher
        .host
        .change_session(&key, agent.as_str(), &author, |values| edits.apply(values))
        .map_err(|error| unavailable(&error))?;
    Ok((key, values))
}

fn changed(gateway: &Gateway, key: &str) {
    let event = SessionChanged {
        session_key: key.to_owned(),
        reason: "patch".to_owned(),
        ts: now_ms(),
    };
    broadcast(&gateway.dispatcher, "sessions.changed", &event);
}

fn edits(asked: &params::SessionsPatch) -> Result<Edits, WireError> {
    fn edit<T>(
        asked: Option<&Option<String>>,
        read: impl Fn(&str) -> Result<SessionEdit<T>, DirectiveError>,
    ) -> Result<SessionEdit<T>, WireError> {
        match asked {
            None => Ok(SessionEdit::Keep),
            Some(None) => Ok(SessionEdit::Clear),
            Some(Some(word)) => read(word).map_err(|error| bad(&error)),
        }
    }
    Ok(Edits {
        label: edit(asked.label.as_ref(), |text| {
            Ok(SessionEdit::Set(text.to_owned()))
        })?,
        host: edit(asked.exec_host.as_ref(), directives::host)?,
        security: edit(asked.exec_security.as_ref(), directives::security)?,
        ask: edit(asked.exec_ask.as_ref(), directives::ask)?,
        node: edit(asked.exec_node.as_ref(), directives::node)?,
        elevated: edit(asked.elevated_level.as_ref(), directives::elevation)?,
    })
}

fn bad(error: &DirectiveError) -> WireError {
    WireError::invalid(error.to_string()).with("code", "DIRECTIVE_INVALID")
}

fn not_authorized(error: &SettingNotAuthorized) -> WireError {
    WireError::invalid(error.to_string()).with("code", "NOT_AUTHORIZED")
}
