//! Undelivered events of the conversation: ends and denials of runs that no call waited for. The
//! next call delivers them.

use interlock_approvals::{WaitingEvents, usual_session_key};
use interlock_console::output::{self, Paint};
use interlock_host::LocalHost;
use interlock_policy::AgentId;
use interlock_supervisor::SupervisorClient;
use serde_json::{Value, json};

/// The most events that one call delivers. The rest wait for the next call.
const AT_ONCE: usize = 20;

/// The events that this call delivers: as text on stderr at once, or as JSON within the result.
/// Events stay undelivered until they are printed, so that a call that fails loses none.
pub struct UndeliveredEvents<'a> {
    host: &'a LocalHost,
    session_key: String,
    events: WaitingEvents,
}

impl<'a> UndeliveredEvents<'a> {
    /// Reads the waiting events. Events that cannot be read must not stop the command from running.
    pub fn begin(
        host: &'a LocalHost,
        client: &SupervisorClient,
        agent: &AgentId,
        json: bool,
    ) -> Self {
        let session_key = usual_session_key(agent.as_str());
        let waiting = host.waiting_events(&session_key, AT_ONCE, client);
        let undelivered = Self {
            host,
            session_key,
            events: waiting.unwrap_or_default(),
        };
        if !json && !undelivered.is_empty() {
            undelivered.show();
            undelivered.mark_delivered();
        }
        undelivered
    }

    fn is_empty(&self) -> bool {
        self.events.events.is_empty() && self.events.dropped == 0
    }

    fn show(&self) {
        let paint = Paint::stderr();
        for event in &self.events.events {
            for line in event.text.lines() {
                output::note(&paint.dim(&format!("interlock: {}", output::visible(line))));
            }
        }
        if self.events.dropped > 0 {
            let dropped = self.events.dropped;
            output::note(&paint.dim(&format!("interlock: {dropped} older events were dropped")));
        }
    }

    /// Prints a JSON result that includes the events.
    pub fn print(&self, mut result: Value) {
        if self.is_empty() {
            output::print_json(&result);
            return;
        }
        let event = |event: &interlock_approvals::SessionEvent| {
            json!({
                "createdAtMs": event.created_at_ms,
                "id": event.id,
                "kind": event.kind.as_str(),
                "payload": event.payload,
                "runId": event.run_id,
                "text": event.text,
            })
        };
        result["events"] = self.events.events.iter().map(event).collect();
        if self.events.dropped > 0 {
            result["eventsDropped"] = self.events.dropped.into();
        }
        output::print_json(&result);
        self.mark_delivered();
    }

    /// Marks the events as delivered. If that fails, they are delivered again: twice is better than
    /// never.
    fn mark_delivered(&self) {
        let _ = self
            .host
            .approvals()
            .delivered(&self.session_key, &self.events);
    }
}
