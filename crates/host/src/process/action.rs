//! All actions of the tool as one value, for callers that get them as data.

use std::time::Duration;

use interlock_run::keys::Bracketed;
use interlock_run::spool::LineRange;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{Ended, KeysSent, Log, Polled, Removed, Screen, Summary, Written};
use super::{Keys, PollFrom, Process, ProcessError, signal_named};

/// What is to be done. A session is named in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    List,
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
        keys: Keys,
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
        /// A name or a number; none ends the session.
        signal: Option<String>,
    },
    Clear {
        session_id: String,
    },
    Remove {
        session_id: String,
    },
}

/// What came of it. Serializes as the value inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    List {
        sessions: Vec<Summary>,
    },
    Poll(Polled),
    Log(Log),
    Written(Written),
    Keys(KeysSent),
    Screen(Screen),
    #[serde(rename_all = "camelCase")]
    Killed {
        session_id: String,
        #[serde(flatten)]
        ended: Ended,
    },
    Removed(Removed),
}

impl Action {
    /// The session that it is about; none for a list.
    pub fn session_id(&self) -> Option<&str> {
        match self {
            Self::List => None,
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

impl Answer {
    /// The answer that another host gave to this action, if it is one.
    pub fn of_json(action: &Action, value: Value) -> Result<Self, serde_json::Error> {
        Ok(match action {
            Action::List => {
                let Sessions { sessions } = serde_json::from_value(value)?;
                Self::List { sessions }
            }
            Action::Poll { .. } => Self::Poll(serde_json::from_value(value)?),
            Action::Log { .. } => Self::Log(serde_json::from_value(value)?),
            Action::Write { .. } | Action::Submit { .. } | Action::Paste { .. } => {
                Self::Written(serde_json::from_value(value)?)
            }
            Action::SendKeys { .. } => Self::Keys(serde_json::from_value(value)?),
            Action::Screen { .. } => Self::Screen(serde_json::from_value(value)?),
            Action::Kill { .. } => {
                let session_id = action.session_id().unwrap_or_default().to_owned();
                let ended = serde_json::from_value(value)?;
                Self::Killed { session_id, ended }
            }
            Action::Clear { .. } | Action::Remove { .. } => {
                Self::Removed(serde_json::from_value(value)?)
            }
        })
    }

    /// Calls the one session that it is about by another name.
    pub fn rename(&mut self, name: &str) {
        let id = match self {
            Self::List { .. } => return,
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

#[derive(Deserialize)]
struct Sessions {
    sessions: Vec<Summary>,
}

impl Process {
    pub fn perform(&self, action: Action) -> Result<Answer, ProcessError> {
        Ok(match action {
            Action::List => Answer::List {
                sessions: self.list()?,
            },
            Action::Poll {
                session_id,
                timeout,
            } => Answer::Poll(self.poll(&session_id, PollFrom::LastPoll, timeout)?),
            Action::Log { session_id, range } => Answer::Log(self.log(&session_id, range)?),
            Action::Write {
                session_id,
                data,
                eof,
            } => Answer::Written(self.write(&session_id, data.as_bytes(), eof)?),
            Action::SendKeys { session_id, keys } => {
                Answer::Keys(self.send_keys(&session_id, keys)?)
            }
            Action::Submit { session_id } => Answer::Written(self.submit(&session_id)?),
            Action::Paste {
                session_id,
                text,
                bracketed,
            } => Answer::Written(self.paste(&session_id, &text, bracketed)?),
            Action::Screen { session_id } => Answer::Screen(self.screen(&session_id)?),
            Action::Kill { session_id, signal } => {
                let signal = signal.as_deref().map(signal_named).transpose()?;
                let ended = self.kill(&session_id, signal)?;
                Answer::Killed { session_id, ended }
            }
            Action::Clear { session_id } => Answer::Removed(self.clear(&session_id)?),
            Action::Remove { session_id } => Answer::Removed(self.remove(&session_id)?),
        })
    }
}
