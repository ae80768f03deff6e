//! Results of a command that was denied later. They can be read, with a note that they do not
//! count.

use interlock_approvals::usual_session_key;
use interlock_store::StaleMarks;
use interlock_transcript::{SessionRecord, TranscriptStatus};
use serde::{Deserialize, Deserializer, Serialize};

use super::answer::{LogAnswer, PollAnswer};

/// The note in front of stale results.
const NOTE: &str = "[stale: this command was denied later; do not rely on this output]";

/// Whether a result is stale. A result that is not stale serializes to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Stale {
    #[serde(rename = "stale", skip_serializing_if = "std::ops::Not::not")]
    pub is_stale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// The part that another host reports. The note is always this program's own.
#[derive(Deserialize)]
struct ReportedStale {
    #[serde(default)]
    stale: bool,
}

impl<'de> Deserialize<'de> for Stale {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::when(ReportedStale::deserialize(from)?.stale))
    }
}

impl Stale {
    pub fn when(is_stale: bool) -> Self {
        Self {
            is_stale,
            note: is_stale.then_some(NOTE),
        }
    }

    /// The text, after the note if there is one.
    fn before(self, text: &str) -> String {
        match self.note {
            Some(note) => format!("{note}\n{text}"),
            None => text.to_owned(),
        }
    }
}

impl PollAnswer {
    /// The new output as an agent reads it. Stale output begins with a note.
    pub fn text(&self) -> String {
        self.stale.before(&self.output.text)
    }
}

impl LogAnswer {
    /// The lines as an agent reads them. Stale output begins with a note.
    pub fn text(&self) -> String {
        self.stale.before(&self.text)
    }
}

/// Whether a session ended before its command was denied to the same session key.
pub(super) fn stale(
    marks: &StaleMarks,
    session: &SessionRecord,
    status: &TranscriptStatus,
) -> Stale {
    let Some(ended) = status.ended_ms else {
        return Stale::default();
    };
    let usual = || usual_session_key(&session.agent_id);
    let key = session.session_key.clone().unwrap_or_else(usual);
    let denied = marks.since(&key, &session.command);
    let is_stale = denied.is_some_and(|at| i64::try_from(ended).is_ok_and(|ended| ended <= at));
    Stale::when(is_stale)
}
