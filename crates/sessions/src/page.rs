//! One page of the sessions that a caller may know of, the newest first, with how many there are in
//! all and where the next page begins.
//!
//! Places in the list are ordered by the start, then by the node, then by the name, so that pages
//! of several machines can be put together: see [`SessionCursor`].

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use interlock_approvals::usual_session_key;
use interlock_host::now_ms;
use interlock_supervisor::IndexedSession;
use interlock_transcript::{SessionRecord, TranscriptStatus};
use serde::{Deserialize, Serialize};

use super::waiting::WaitingLook;
use super::{Process, ProcessCaller, ProcessError, SessionSummary, VisibleSession, instances};

/// Between the name of a session and the beginning of the id of its node.
const NODE_MARK: char = '@';

/// The longest cursor: a time, and the longest name of a session on a node.
const MAX_CURSOR_CHARS: usize = 200;

/// Which sessions are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionListRequest {
    /// The page begins behind this place.
    pub after: Option<SessionCursor>,
    /// The most sessions of a page; without it, all.
    pub limit: Option<usize>,
    /// Only those of this conversation; the others are counted.
    pub conversation: Option<String>,
    /// Only those of this agent, for callers that see several agents.
    pub agent_id: Option<String>,
    /// Only those that no call waits for.
    pub background: bool,
    /// Only those whose id begins so.
    pub prefix: Option<String>,
    /// Names of sessions that are left out.
    pub except: Vec<String>,
}

impl SessionListRequest {
    fn is_of_conversation(&self, agent_id: &str, session_key: Option<&str>) -> bool {
        let Some(wanted) = &self.conversation else {
            return true;
        };
        match session_key {
            Some(own) => own == wanted,
            None => usual_session_key(agent_id) == *wanted,
        }
    }

    /// Whether a session that the caller may know of belongs to the list, apart from its conversation.
    fn names(&self, name: &str, agent_id: &str, background: bool) -> bool {
        (background || !self.background)
            && self.agent_id.as_ref().is_none_or(|agent| agent == agent_id)
            && self
                .prefix
                .as_ref()
                .is_none_or(|prefix| name.starts_with(prefix.as_str()))
            && !self.except.iter().any(|except| except == name)
    }
}

/// A page of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage {
    /// The newest first.
    pub sessions: Vec<SessionSummary>,
    /// How many there are, on all pages; none from a host that has no pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Where the next page begins; none on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// How many sessions of the agent belong to other conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_conversations: Option<u64>,
}

/// A place in a list of sessions. It stays where it is when sessions come and go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionCursor {
    started_ms: u64,
    /// The beginning of the id of the node; nothing for this machine.
    node: String,
    name: String,
}

/// A text is no place in a list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not the nextCursor of a list of sessions")]
pub struct CursorInvalid;

impl SessionCursor {
    /// The place of a session.
    pub fn at(session: &SessionSummary) -> Self {
        Self::of(session.started_at_ms, &session.session_id)
    }

    fn of(started_ms: u64, id: &str) -> Self {
        let (name, node) = id.split_once(NODE_MARK).unwrap_or((id, ""));
        Self {
            started_ms,
            node: node.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The same place among the sessions of one node, as that node counts them.
    #[must_use]
    pub fn on_node(&self, node: &str) -> Self {
        let (started_ms, name) = match node.cmp(self.node.as_str()) {
            std::cmp::Ordering::Equal => (self.started_ms, self.name.clone()),
            // All that began at the same moment come behind the place.
            std::cmp::Ordering::Less => (self.started_ms.saturating_add(1), String::new()),
            std::cmp::Ordering::Greater => (self.started_ms, String::new()),
        };
        Self {
            started_ms,
            node: String::new(),
            name,
        }
    }

    /// Whether a session comes behind this place.
    pub fn is_before(&self, session: &SessionSummary) -> bool {
        Self::at(session) < *self
    }
}

impl fmt::Display for SessionCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.started_ms, self.name)?;
        if !self.node.is_empty() {
            write!(out, "{NODE_MARK}{}", self.node)?;
        }
        Ok(())
    }
}

impl FromStr for SessionCursor {
    type Err = CursorInvalid;

    fn from_str(text: &str) -> Result<Self, CursorInvalid> {
        let (started, id) = text.split_once('.').ok_or(CursorInvalid)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'@');
        if text.len() > MAX_CURSOR_CHARS || !id.bytes().all(is_plain) {
            return Err(CursorInvalid);
        }
        let started_ms = started.parse().map_err(|_| CursorInvalid)?;
        Ok(Self::of(started_ms, id))
    }
}

impl SessionPage {
    /// Pages of several machines as one. Each must begin behind the same place and have as many as
    /// the limit allows.
    pub fn merged(pages: impl IntoIterator<Item = Self>, limit: Option<usize>) -> Self {
        let mut merged = Self::default();
        let mut has_more = false;
        let mut others = 0_u64;
        let mut total = 0_u64;
        for page in pages {
            has_more |= page.next_cursor.is_some();
            others = others.saturating_add(page.other_conversations.unwrap_or(0));
            total = total.saturating_add(page.total.unwrap_or(page.sessions.len() as u64));
            merged.sessions.extend(page.sessions);
        }
        merged.total = Some(total);
        merged.other_conversations = (others > 0).then_some(others);
        merged
            .sessions
            .sort_by_cached_key(|session| Reverse(SessionCursor::at(session)));
        merged.cut(limit.unwrap_or(usize::MAX), has_more);
        merged
    }

    /// Keeps the first ones. `has_more` says that there are others behind the page already.
    fn cut(&mut self, limit: usize, has_more: bool) {
        let has_more = has_more || self.sessions.len() > limit;
        self.sessions.truncate(limit);
        let last = self.sessions.last().filter(|_| has_more);
        self.next_cursor = last.map(|last| SessionCursor::at(last).to_string());
    }

    /// Keeps only the first ones of a page; the next page begins behind them.
    pub fn truncate(&mut self, limit: usize) {
        let has_more = self.next_cursor.is_some();
        self.cut(limit, has_more);
    }

    /// Makes one page of a whole list, by the request.
    pub fn of_whole(mut sessions: Vec<SessionSummary>, request: &SessionListRequest) -> Self {
        sessions.retain(|one| request.names(&one.session_id, &one.agent_id, one.background));
        let all = sessions.len();
        sessions
            .retain(|one| request.is_of_conversation(&one.agent_id, one.session_key.as_deref()));
        let total = sessions.len();
        if let Some(after) = &request.after {
            sessions.retain(|one| after.is_before(one));
        }
        let mut page = Self::merged(
            [Self {
                sessions,
                ..Self::default()
            }],
            request.limit,
        );
        page.total = Some(total as u64);
        page.other_conversations = (all > total).then_some((all - total) as u64);
        page
    }
}

impl Process {
    /// One page of running and finished sessions, the newest first.
    pub fn page(&self, request: &SessionListRequest) -> Result<SessionPage, ProcessError> {
        let index = self.client.session_index();
        let mut all = 0_u64;
        let mut total = 0_u64;
        let mut wanted = Vec::new();
        let limit = request.limit.unwrap_or(usize::MAX);
        let mut has_more = false;
        for one in index.iter() {
            if !self.sees_indexed(one) || !request.names(&one.name, &one.agent_id, one.background) {
                continue;
            }
            all += 1;
            if !request.is_of_conversation(&one.agent_id, one.session_key.as_deref()) {
                continue;
            }
            total += 1;
            let is_behind = request.after.as_ref().is_none_or(|after| {
                let place = (one.started_ms, "", one.name.as_str());
                place < (after.started_ms, after.node.as_str(), after.name.as_str())
            });
            if is_behind && wanted.len() < limit {
                wanted.push(one);
            } else if is_behind {
                has_more = true;
            }
        }
        let next_cursor = wanted.last().filter(|_| has_more).map(|last| {
            let place = SessionCursor::of(last.started_ms, &last.name);
            place.to_string()
        });
        let found: Vec<(SessionRecord, TranscriptStatus)> = wanted
            .into_iter()
            .filter_map(|one| {
                let place = self.client.place().session(&one.name);
                let status = TranscriptStatus::read(&place).ok()?;
                Some((status.session.clone()?, status))
            })
            // The name may have been given to another session since the index was made.
            .filter(|(session, _)| self.sees(session))
            .collect();
        // Asked after the files were read: what a new supervisor has just started is not lost.
        let supervisors = self.supervisors()?;
        let living = instances(&supervisors);
        let marks = self.marks()?;
        let look = WaitingLook::new(self.client.place(), &supervisors, now_ms());
        let sessions = found.into_iter().map(|(session, status)| {
            let known = VisibleSession::new(session, status, &living);
            self.summary(&known, &look, &marks)
        });
        Ok(SessionPage {
            sessions: sessions.collect(),
            total: Some(total),
            next_cursor,
            other_conversations: (all > total).then_some(all - total),
        })
    }

    /// All sessions, the newest first.
    pub fn list(&self) -> Result<Vec<SessionSummary>, ProcessError> {
        Ok(self.page(&SessionListRequest::default())?.sessions)
    }

    /// What is known of each session without another look at its files, the newest first, and whether
    /// it runs.
    pub fn indexed(&self) -> Result<Vec<(IndexedSession, bool)>, ProcessError> {
        let index = self.client.session_index();
        let living = instances(&self.supervisors()?);
        let seen = index.iter().filter(|one| self.sees_indexed(one));
        let described = seen.map(|one| {
            let is_running = !one.is_final && living.contains(&one.supervisor);
            (one.as_ref().clone(), is_running)
        });
        Ok(described.collect())
    }

    fn sees_indexed(&self, session: &IndexedSession) -> bool {
        self.sees_as(
            &session.agent_id,
            session.owner.as_deref(),
            session.background,
        )
    }

    /// Whether the caller may know of a session of this agent and owner.
    pub(super) fn sees_as(&self, agent_id: &str, owner: Option<&str>, background: bool) -> bool {
        let is_of = |agent: &interlock_policy::AgentId| background && agent_id == agent.as_str();
        match &self.caller {
            ProcessCaller::Operator => true,
            ProcessCaller::Agent { agent, .. } => owner.is_none() && is_of(agent),
            ProcessCaller::Gateway {
                owner: own, agent, ..
            } => owner == Some(own.as_str()) && agent.as_ref().is_none_or(is_of),
        }
    }
}
