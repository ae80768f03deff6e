//! One page of the sessions that a caller may see, the newest first, with the total number and the
//! beginning of the next page.
//!
//! Sessions are ordered by start, then by node, then by name, so that pages of several machines can
//! be merged: see [`SessionCursor`].

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

/// Separates the name of a session from the beginning of its node's id.
const NODE_MARK: char = '@';

/// The longest cursor: a time, and the longest name of a session on a node.
const MAX_CURSOR_CHARS: usize = 200;

/// The filters and limits of a list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionListRequest {
    /// The page begins after this position.
    pub after: Option<SessionCursor>,
    /// The largest number of sessions on a page; `None` means all.
    pub limit: Option<usize>,
    /// Only sessions of this conversation. The others are counted.
    pub conversation: Option<String>,
    /// Only sessions of this agent, for callers that see several agents.
    pub agent_id: Option<String>,
    /// Only sessions that no call waits for.
    pub background: bool,
    /// Only sessions whose id has this prefix.
    pub prefix: Option<String>,
    /// The names of sessions to leave out.
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

    /// Whether a visible session belongs to the list, apart from its conversation.
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
    /// The number of sessions on all pages; `None` from a host without pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The beginning of the next page; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The number of the agent's sessions in other conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_conversations: Option<u64>,
}

/// A position in a list of sessions. It stays valid when sessions begin and end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionCursor {
    started_ms: u64,
    /// The beginning of the node's id; empty for this machine.
    node: String,
    name: String,
}

/// The error for a text that is not a position in a list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not the nextCursor of a list of sessions")]
pub struct CursorInvalid;

impl SessionCursor {
    /// The position of a session.
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

    /// The same position among the sessions of one node, as that node counts them.
    #[must_use]
    pub fn on_node(&self, node: &str) -> Self {
        let (started_ms, name) = match node.cmp(self.node.as_str()) {
            std::cmp::Ordering::Equal => (self.started_ms, self.name.clone()),
            // All sessions of this node with the same start come after the position.
            std::cmp::Ordering::Less => (self.started_ms.saturating_add(1), String::new()),
            std::cmp::Ordering::Greater => (self.started_ms, String::new()),
        };
        Self {
            started_ms,
            node: String::new(),
            name,
        }
    }

    /// Whether a session comes after this position.
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
    /// Merges pages of several machines. Each page must begin after the same position and be as
    /// long as the limit allows.
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

    /// Keeps the first sessions. `has_more` says that further sessions already follow the page.
    fn cut(&mut self, limit: usize, has_more: bool) {
        let has_more = has_more || self.sessions.len() > limit;
        self.sessions.truncate(limit);
        let last = self.sessions.last().filter(|_| has_more);
        self.next_cursor = last.map(|last| SessionCursor::at(last).to_string());
    }

    /// Keeps only the first sessions of a page; the next page begins after them.
    pub fn truncate(&mut self, limit: usize) {
        let has_more = self.next_cursor.is_some();
        self.cut(limit, has_more);
    }

    /// Makes one page from a whole list, as the request demands.
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
            // Another session may have got this name since the index was made.
            .filter(|(session, _)| self.sees(session))
            .collect();
        // The files must be read before the supervisors are asked. Otherwise a session that a new
        // supervisor has just started would appear lost.
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

    /// The indexed facts of each session, without reading its files, the newest first, and whether
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

    /// Whether the caller may see a session of this agent and owner.
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
