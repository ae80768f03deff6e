//! All actions of the tool as one value, for callers that receive them as data.

use std::time::Duration;

use interlock_transcript::LineRange;
use interlock_transcript::keys::Bracketed;
use serde::Serialize;
use serde_json::Value;

use super::answer::{
    EndedSession, KeysSent, LogAnswer, PollAnswer, RemovedSession, ScreenAnswer, Written,
};
use super::page::{SessionListRequest, SessionPage};
use super::{KeysInput, PollFrom, Process, ProcessError, signal_named};

/// One action of the tool. It names its session in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionAction {
    List(SessionListRequest),
    Poll {
        session_id: String,
        timeout: Duration,
    },
    Log {
        session_id: String,
        range: LineRange,
    },
    Write {
        session_id: String,
        data: String,
        eof: bool,
    },
    SendKeys {
        session_id: String,
        keys: KeysInput,
    },
    Submit {
        session_id: String,
    },
    Paste {
        session_id: String,
        text: String,
        bracketed: Bracketed,
    },
    Screen {
        session_id: String,
    },
    Kill {
        session_id: String,
        /// The name or number of a signal; `None` ends the session.
        signal: Option<String>,
    },
    Clear {
        session_id: String,
    },
    Remove {
        session_id: String,
    },
}

/// The result of an action. Serializes as the value inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ProcessAnswer {
    List(SessionPage),
    Poll(PollAnswer),
    Log(LogAnswer),
    Written(Written),
    Keys(KeysSent),
    Screen(ScreenAnswer),
    #[serde(rename_all = "camelCase")]
    Killed {
        session_id: String,
        #[serde(flatten)]
        ended: EndedSession,
    },
    Removed(RemovedSession),
}

impl SessionAction {
    /// The session of the action; `None` for a list.
    pub fn session_id(&self) -> Option<&str> {
        match self {
            Self::List(_) => None,
            Self::Poll { session_id, .. }
            | Self::Log { session_id, .. }
            | Self::Write { session_id, .. }
            | Self::SendKeys { session_id, .. }
            | Self::Submit { session_id }
            | Self::Paste { session_id, .. }
            | Self::Screen { session_id }
            | Self::Kill { session_id, .. }
            | Self::Clear { session_id }
            | Self::Remove { session_id } => Some(session_id),
        }
    }
}

impl ProcessAnswer {
    /// Reads another host's answer to this action.
    pub fn of_json(action: &SessionAction, value: Value) -> Result<Self, serde_json::Error> {
        Ok(match action {
            SessionAction::List(_) => Self::List(serde_json::from_value(value)?),
            SessionAction::Poll { .. } => Self::Poll(serde_json::from_value(value)?),
            SessionAction::Log { .. } => Self::Log(serde_json::from_value(value)?),
            SessionAction::Write { .. }
            | SessionAction::Submit { .. }
            | SessionAction::Paste { .. } => Self::Written(serde_json::from_value(value)?),
            SessionAction::SendKeys { .. } => Self::Keys(serde_json::from_value(value)?),
            SessionAction::Screen { .. } => Self::Screen(serde_json::from_value(value)?),
            SessionAction::Kill { .. } => {
                let session_id = action.session_id().unwrap_or_default().to_owned();
                let ended = serde_json::from_value(value)?;
                Self::Killed { session_id, ended }
            }
            SessionAction::Clear { .. } | SessionAction::Remove { .. } => {
                Self::Removed(serde_json::from_value(value)?)
            }
        })
    }

    /// Replaces the id of the answer's session. A list has none.
    pub fn rename(&mut self, name: &str) {
        let id = match self {
            Self::List(_) => return,
            Self::Poll(polled) => &mut polled.session_id,
            Self::Log(log) => &mut log.session_id,
            Self::Written(written) => &mut written.session_id,
            Self::Keys(sent) => &mut sent.session_id,
            Self::Screen(screen) => &mut screen.session_id,
            Self::Killed { session_id, .. } => session_id,
            Self::Removed(removed) => &mut removed.session_id,
        };
        name.clone_into(id);
    }
}

impl Process {
    pub fn perform(&self, action: SessionAction) -> Result<ProcessAnswer, ProcessError> {
        Ok(match action {
            SessionAction::List(request) => ProcessAnswer::List(self.page(&request)?),
            SessionAction::Poll {
                session_id,
                timeout,
            } => ProcessAnswer::Poll(self.poll(&session_id, PollFrom::LastPoll, timeout)?),
            SessionAction::Log { session_id, range } => {
                ProcessAnswer::Log(self.log(&session_id, range)?)
            }
            SessionAction::Write {
                session_id,
                data,
                eof,
            } => ProcessAnswer::Written(self.write(&session_id, data.as_bytes(), eof)?),
            SessionAction::SendKeys { session_id, keys } => {
                ProcessAnswer::Keys(self.send_keys(&session_id, keys)?)
            }
            SessionAction::Submit { session_id } => {
                ProcessAnswer::Written(self.submit(&session_id)?)
            }
            SessionAction::Paste {
                session_id,
                text,
                bracketed,
            } => ProcessAnswer::Written(self.paste(&session_id, &text, bracketed)?),
            SessionAction::Screen { session_id } => {
                ProcessAnswer::Screen(self.screen(&session_id)?)
            }
            SessionAction::Kill { session_id, signal } => {
                let signal = signal.as_deref().map(signal_named).transpose()?;
                let ended = self.kill(&session_id, signal)?;
                ProcessAnswer::Killed { session_id, ended }
            }
            SessionAction::Clear { session_id } => ProcessAnswer::Removed(self.clear(&session_id)?),
            SessionAction::Remove { session_id } => {
                ProcessAnswer::Removed(self.remove(&session_id)?)
            }
        })
    }
}
