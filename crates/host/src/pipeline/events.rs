//! The events of a conversation, after the ends of its background runs are recorded; and the output
//! that events show.

use interlock_approvals::{EVENT_TAIL_CHARS, RunningEvent, last_characters};
use interlock_store::{SessionEvent, WaitingEvents};
use interlock_supervisor::{EndedRun, SupervisorClient, SupervisorPaths};
use interlock_transcript::{Cursor, TranscriptReader};

use super::run_records::RunTicket;
use crate::local::{HostError, LocalHost};

impl LocalHost {
    /// Undelivered events of a conversation, at most so many. This also records the ends of
    /// background runs that are not recorded yet. The events wait until
    /// [`interlock_approvals::Approvals::delivered`].
    pub fn waiting_events(
        &self,
        session_key: &str,
        limit: usize,
        supervisor: &SupervisorClient,
    ) -> Result<WaitingEvents, HostError> {
        self.settle_session(session_key, supervisor)?;
        Ok(self.store().waiting_events(session_key, limit)?)
    }

    /// [`Self::waiting_events`], which are delivered by this: for callers that cannot fail to pass
    /// them on.
    pub fn take_events(
        &self,
        session_key: &str,
        limit: usize,
        supervisor: &SupervisorClient,
    ) -> Result<WaitingEvents, HostError> {
        let events = self.waiting_events(session_key, limit, supervisor)?;
        if !events.is_empty() {
            self.approvals().delivered(session_key, &events)?;
        }
        Ok(events)
    }

    /// Events of one conversation after this id, delivered or not, at most so many. This also
    /// records the ends of background runs that are not recorded yet.
    pub fn events_of(
        &self,
        session_key: &str,
        after: i64,
        limit: usize,
        supervisor: &SupervisorClient,
    ) -> Result<Vec<SessionEvent>, HostError> {
        self.settle_session(session_key, supervisor)?;
        Ok(self.store().events_of(session_key, after, limit)?)
    }

    /// The event that an approved run takes long, to be published when it does; none where the
    /// conversation is not notified of it.
    pub fn running_event(&self, ticket: &RunTicket) -> Option<RunningEvent> {
        if !ticket.is_claimed {
            return None;
        }
        let notify = self.approvals().notify_settings(&ticket.agent);
        RunningEvent::new(self.shared_store(), &ticket.run_id, notify)
    }
}

/// The last characters that a background session wrote; nothing where that cannot be read.
pub(super) fn output_tail(place: &SupervisorPaths, session: &str) -> String {
    // A character has four bytes at most, and a broken one becomes a character for each.
    const BYTES: usize = EVENT_TAIL_CHARS * 4;
    let read = || {
        let spool = TranscriptReader::open(&place.session(session)).ok()?;
        let total = spool.status().ok()?.totals.bytes;
        let from = total.saturating_sub(BYTES as u64);
        let cursor = spool.cursor_at(from).unwrap_or(Cursor::START);
        let batch = spool.read_from(cursor, BYTES).ok()?;
        let bytes: Vec<u8> = batch
            .chunks
            .iter()
            .flat_map(|chunk| chunk.bytes.iter().copied())
            .collect();
        Some(last_characters(&String::from_utf8_lossy(&bytes)))
    };
    read().unwrap_or_default()
}

/// The same of a run whose result is known. A run that was over in no time has nothing on the disk
/// yet.
pub(super) fn ended_tail(ended: &EndedRun, place: &SupervisorPaths, session: &str) -> String {
    if ended.shown.omitted_bytes == 0 {
        last_characters(&ended.shown.text)
    } else {
        output_tail(place, session)
    }
}
