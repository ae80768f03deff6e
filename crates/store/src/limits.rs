//! The size limits of all input. Longer input is refused before anything is written.

use crate::error::StoreError;

/// The limit of one kind of input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputLimit {
    what: &'static str,
    most: usize,
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The plan of a pending approval, in bytes.
pub const MAX_PLAN_BYTES: usize = 8 * MIB;

/// The preview of a pending approval, in bytes: the most that a request may hold.
pub const MAX_PREVIEW_BYTES: usize = 256 * KIB;

/// The body of an audit record, in bytes. Every preview fits, even if JSON must escape much of it.
pub const MAX_AUDIT_BODY_BYTES: usize = 2 * MIB;

/// Names of agents, sessions, hosts, connections and people, in bytes.
pub const MAX_NAME_BYTES: usize = KIB;

/// The text of an event, and likewise its payload, in bytes.
pub const MAX_EVENT_BYTES: usize = 64 * KIB;

/// The events that are kept for one session. The oldest beyond that are dropped, delivered ones
/// first.
pub const MAX_SESSION_EVENTS: usize = 1000;

/// Events that are kept for all sessions together.
pub const MAX_EVENTS: usize = 50_000;

/// A page of a list, in records.
pub const MAX_PAGE: usize = 1000;

/// The deliveries of one approval: enough for three states on more surfaces than a gateway serves.
pub const MAX_DELIVERIES: usize = 4096;

/// The grants and leases of one agent that are in force.
pub const MAX_GRANTS: usize = 1000;

/// The reason for a denial, in bytes: a few sentences.
pub const MAX_DENY_REASON_BYTES: usize = 2 * KIB;

/// The longest duration of a lease, in days.
pub const MAX_LEASE_DAYS: u64 = 30;

/// The content of an allowed script, in bytes. Longer scripts are not kept.
pub const MAX_CONTENT_BYTES: usize = 256 * KIB;

pub(crate) const PLAN: InputLimit = limit("plan", MAX_PLAN_BYTES);
pub(crate) const PREVIEW: InputLimit = limit("preview", MAX_PREVIEW_BYTES);
pub(crate) const VERDICT: InputLimit = limit("verdict", MIB);
pub(crate) const ALWAYS: InputLimit = limit("entries that always would store", MIB);
/// The outcome is part of the audit record of the run's end, beside four names.
pub(crate) const OUTCOME: InputLimit = limit("outcome of the run", MIB);
pub(crate) const AUDIT_BODY: InputLimit = limit("body of the audit record", MAX_AUDIT_BODY_BYTES);
pub(crate) const DELIVERY_DETAIL: InputLimit = limit("detail of the delivery", 4 * KIB);
pub(crate) const PLAN_DIGEST: InputLimit = limit("digest of the plan", 128);
pub(crate) const CONTENT_DIGEST: InputLimit = limit("digest of the plan's content", 128);
pub(crate) const BINDING: InputLimit = limit("binding kind", 32);
pub(crate) const SCRIPT: InputLimit = limit("content of the script", MAX_CONTENT_BYTES);
pub(crate) const SCRIPT_PATH: InputLimit = limit("path of the script", 4 * KIB);
pub(crate) const SCRIPT_DIGEST: InputLimit = limit("digest of the script", 128);
pub(crate) const AGENT: InputLimit = limit("agent", MAX_NAME_BYTES);
pub(crate) const SESSION_KEY: InputLimit = limit("session key", MAX_NAME_BYTES);
pub(crate) const HOST: InputLimit = limit("host", MAX_NAME_BYTES);
pub(crate) const NODE: InputLimit = limit("node", MAX_NAME_BYTES);
/// Ids of this program have 36 characters. Ids that clients choose may be longer.
pub const MAX_APPROVAL_ID_BYTES: usize = 128;
pub(crate) const APPROVAL_ID: InputLimit = limit("approval id", MAX_APPROVAL_ID_BYTES);
pub(crate) const REQUESTER: InputLimit = limit("requester", MAX_NAME_BYTES);
pub(crate) const SURFACE: InputLimit = limit("surface", MAX_NAME_BYTES);
pub(crate) const DECIDER: InputLimit = limit("decider", MAX_NAME_BYTES);
pub(crate) const DENY_REASON: InputLimit = limit("reason of the denial", MAX_DENY_REASON_BYTES);
pub(crate) const CLAIMER: InputLimit = limit("claimer", MAX_NAME_BYTES);
pub(crate) const WAITER: InputLimit = limit("waiter", MAX_NAME_BYTES);
pub(crate) const RUN_ID: InputLimit = limit("id of the run", MAX_NAME_BYTES);
pub(crate) const SESSION_NAME: InputLimit = limit("name of the session", MAX_NAME_BYTES);
pub(crate) const RUN_SANDBOX: InputLimit = limit("sandbox of the run", 16 * KIB);
pub(crate) const RUN_COMMAND: InputLimit = limit("command of the run", MAX_PREVIEW_BYTES);
pub(crate) const EVENT_TEXT: InputLimit = limit("text of the event", MAX_EVENT_BYTES);
pub(crate) const EVENT_PAYLOAD: InputLimit = limit("payload of the event", MAX_EVENT_BYTES);
pub(crate) const AUTHOR: InputLimit = limit("author", MAX_NAME_BYTES);

pub(crate) const SESSION_SETTING: InputLimit = limit("setting of the session", MAX_NAME_BYTES);
pub(crate) const ENTRY: InputLimit = limit("name of the entry", MAX_NAME_BYTES);

pub(crate) const CHAT_PLACE: InputLimit = limit("place of the chat message", MAX_NAME_BYTES);
pub(crate) const CHAT_CURSOR: InputLimit = limit("place in the chat", 8 * KIB);

const fn limit(what: &'static str, most: usize) -> InputLimit {
    InputLimit { what, most }
}

impl InputLimit {
    /// Checks a text. An empty text is refused too: a missing name or digest must never compare
    /// equal to another missing one.
    pub(crate) fn check(self, text: &str) -> Result<(), StoreError> {
        if text.is_empty() {
            return Err(StoreError::InputEmpty { what: self.what });
        }
        if text.len() > self.most {
            return Err(StoreError::InputTooLarge {
                what: self.what,
                bytes: text.len(),
                most: self.most,
            });
        }
        Ok(())
    }

    /// Checks the length of input that may be empty and is not text.
    pub(crate) fn check_bytes(self, bytes: usize) -> Result<(), StoreError> {
        if bytes > self.most {
            return Err(StoreError::InputTooLarge {
                what: self.what,
                bytes,
                most: self.most,
            });
        }
        Ok(())
    }

    pub(crate) fn check_if_any(self, text: Option<&str>) -> Result<(), StoreError> {
        text.map_or(Ok(()), |text| self.check(text))
    }
}
