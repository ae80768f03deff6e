//! The events of a conversation, once the ends of its background runs are recorded, and the output
//! that events show.

use interlock_approvals::{EVENT_TAIL_CHARS, RunningEvent, last_characters};
use interlock_store::{SessionEvent, WaitingEvents};
use interlock_supervisor::{EndedRun, SupervisorClient, SupervisorPaths};
use interlock_transcript::{Cursor, TranscriptReader};

use super::run_records::RunTicket;
use crate::local::{HostError, LocalHost};

impl LocalHost {
    /// Up to `limit` undelivered events of a conversation. Ends of background runs that are not
    /// recorded yet are recorded first. The events stay undelivered until
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

    /// Like [`Self::waiting_events`], but marks the events as delivered. For callers that cannot
    /// fail to pass them on.
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

    /// Up to `limit` events of a conversation with ids above `after`, delivered or not. Ends of
    /// background runs that are not recorded yet are recorded first.
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

    /// The event that an approved run takes long, to be published when it does; `None` if the
    /// conversation is not notified of long runs.
    pub fn running_event(&self, ticket: &RunTicket) -> Option<RunningEvent> {
        if !ticket.is_claimed {
            return None;
        }
        let notify = self.approvals().notify_settings(&ticket.agent);
        RunningEvent::new(self.shared_store(), &ticket.run_id, notify)
    }
}

/// The last characters that a background session wrote; empty if they cannot be read.
pub(super) fn output_tail(place: &SupervisorPaths, session: &str) -> String {
    // A character has at most four bytes, and each broken byte becomes one character.
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

/// The last characters of a run whose result is known. The transcript of a very short run is not on
/// disk yet, so the result comes first.
pub(super) fn ended_tail(ended: &EndedRun, place: &SupervisorPaths, session: &str) -> String {
    if ended.shown.omitted_bytes == 0 {
        last_characters(&ended.shown.text)
    } else {
        output_tail(place, session)
    }
}
