//! Sends the output of sessions to the clients that subscribed to it.
//!
//! The transcript is on the disk, so that for a slow client only its offset is kept here. A client
//! that cannot keep up is moved to the newest output, and learns how much it missed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_connections::Client;
use interlock_dispatch::nodes::remote_runs::is_over;
use interlock_dispatch::nodes::sessions::{self, SessionFailure};
use interlock_sessions::{EndedSession, Process, ProcessCaller};
use interlock_transcript::{Cursor, TranscriptReader};
use interlock_wire::Event;
use interlock_wire::event::{PROCESS_ENDED, PROCESS_OUTPUT};
use interlock_wire::results::{ProcessEnded, ProcessLost, ProcessOutput};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

/// The most subscriptions of one connection, and of all connections. Each takes a thread.
const MOST_OF_ONE: usize = 16;
const MOST: usize = 128;

/// How long one read of a session waits for more output.
const WAIT: Duration = Duration::from_millis(500);

/// How long one read of a session on a node waits for more output.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// The most bytes in one event.
const PIECE: usize = 64 * 1024;

/// Above this number of unsent bytes, the follower waits for the client.
const FULL: usize = 512 * 1024;

/// A client that was waited for and is further behind than this is moved to the newest output.
const BEHIND: u64 = 1024 * 1024;

/// The present subscriptions: connection and session, and the number of the subscription.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    all: Mutex<HashMap<(String, String), u64>>,
    numbers: AtomicU64,
}

/// The limit of subscriptions is reached.
#[derive(Debug)]
pub(crate) struct TooMany;

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), u64>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a new subscription, or `None` if the client already has one.
    fn add(&self, client: &Client, session: &str) -> Result<Option<u64>, TooMany> {
        let mut all = self.lock();
        let key = key(client, session);
        if all.contains_key(&key) {
            return Ok(None);
        }
        let own = all
            .keys()
            .filter(|(connection, _)| *connection == client.connection);
        if all.len() >= MOST || own.count() >= MOST_OF_ONE {
            return Err(TooMany);
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        all.insert(key, number);
        Ok(Some(number))
    }

    /// Returns whether there was such a subscription.
    pub(crate) fn remove(&self, client: &Client, session: &str) -> bool {
        self.lock().remove(&key(client, session)).is_some()
    }

    pub(crate) fn remove_all(&self, client: &Client) {
        self.lock()
            .retain(|(connection, _), _| *connection != client.connection);
    }

    fn has(&self, client: &Client, session: &str, number: u64) -> bool {
        self.lock().get(&key(client, session)) == Some(&number)
    }
}

fn key(client: &Client, session: &str) -> (String, String) {
    (client.connection.clone(), session.to_owned())
}

/// Sends the output of a session from `offset` on, until the session ends or the client
/// unsubscribes. A second subscription to the same session changes nothing.
pub(crate) fn subscribe(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    session: &str,
    offset: u64,
) -> Result<(), TooMany> {
    let Some(number) = gateway.subscriptions.add(client, session)? else {
        return Ok(());
    };
    let follower = SessionFollower {
        gateway: Arc::clone(gateway),
        client: Arc::clone(client),
        session: session.to_owned(),
        number,
        stop: gateway.dispatcher.stop.clone(),
        unfinished: Vec::new(),
    };
    if sessions::is_remote(session) {
        tokio::spawn(async move { follower.follow_elsewhere(offset).await });
        return Ok(());
    }
    tokio::task::spawn_blocking(move || {
        let mut follower = follower;
        if let Err(reason) = follower.follow(offset) {
            follower.tell_lost(&reason);
        }
        if follower.has_place() {
            let all = &follower.gateway.subscriptions;
            all.remove(&follower.client, &follower.session);
        }
    });
    Ok(())
}

struct SessionFollower {
    gateway: Arc<Gateway>,
    client: Arc<Client>,
    session: String,
    number: u64,
    stop: CancellationToken,
    /// The first bytes of a character whose remaining bytes have not come yet.
    unfinished: Vec<u8>,
}

impl SessionFollower {
    /// Whether the subscription still exists and was not replaced by another one.
    fn has_place(&self) -> bool {
        let all = &self.gateway.subscriptions;
        all.has(&self.client, &self.session, self.number)
    }

    fn is_wanted(&self) -> bool {
        self.has_place() && !self.stop.is_cancelled() && !self.client.is_gone()
    }

    fn follow(&mut self, offset: u64) -> Result<(), String> {
        let process = self
            .gateway
            .dispatcher
            .process(ProcessCaller::Operator)
            .map_err(|error| error.to_string())?;
        let spool = process
            .transcript(&self.session)
            .map_err(|error| error.to_string())?;
        let link = self
            .gateway
            .dispatcher
            .supervisor
            .session(&self.session)
            .ok();
        let mut cursor = spool.cursor_at(offset).map_err(|error| error.to_string())?;
        while self.is_wanted() {
            // The state must be asked for before the last read, so that the read misses nothing.
            let waited = link.as_ref().map(|link| link.wait(cursor.offset, WAIT));
            // Without its supervisor, a session does not continue.
            let is_over = !matches!(waited, Some(Ok(now)) if !now.ended);
            cursor = self.catch_up(&spool, cursor, is_over)?;
            if is_over && self.is_wanted() {
                self.tell_end(&process, cursor);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Follows a session on a node. Its transcript is read there from the last offset on, also
    /// after the node was disconnected.
    async fn follow_elsewhere(self, mut offset: u64) {
        while self.is_wanted() {
            let read =
                sessions::read(&self.gateway.dispatcher, &self.session, offset, ELSEWHERE).await;
            let followed = match read {
                Ok(followed) => followed,
                // The session continues on the node, and is read again when the node is back.
                Err(SessionFailure::NotConnected(_)) => {
                    tokio::time::sleep(WAIT).await;
                    continue;
                }
                Err(error) => {
                    self.tell_lost(&error.to_string());
                    break;
                }
            };
            let piece = followed.piece.unwrap_or_default();
            // A node can only move the offset forward.
            let next = offset.max(piece.next_offset);
            let is_last = next == offset;
            if !piece.is_empty() {
                self.tell(
                    PROCESS_OUTPUT,
                    &ProcessOutput {
                        session_id: self.session.clone(),
                        offset: piece.offset,
                        next_offset: next,
                        text: piece.text,
                        missed_bytes: piece.missed_bytes,
                    },
                );
            }
            offset = next;
            if is_last && is_over(&followed.standing) {
                self.tell(PROCESS_ENDED, &self.ended(Some(&followed.standing), offset));
                break;
            }
            while self.client.buffered_bytes() > FULL && self.is_wanted() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        if self.has_place() {
            let all = &self.gateway.subscriptions;
            all.remove(&self.client, &self.session);
        }
    }

    /// Sends all output that is available now.
    fn catch_up(
        &mut self,
        spool: &TranscriptReader,
        mut cursor: Cursor,
        is_over: bool,
    ) -> Result<Cursor, String> {
        let failed = |error: interlock_transcript::TranscriptError| error.to_string();
        while self.is_wanted() {
            let mut missed = 0;
            if self.wait_for_room() {
                let end = spool.cursor_at(u64::MAX).map_err(failed)?;
                if end.offset.saturating_sub(cursor.offset) > BEHIND {
                    let newest = end.offset.saturating_sub(PIECE as u64);
                    missed = newest - cursor.offset;
                    cursor = spool.cursor_at(newest).map_err(failed)?;
                    self.unfinished.clear();
                }
            }
            let batch = spool.read_from(cursor, PIECE).map_err(failed)?;
            let from = cursor.offset + batch.gap.bytes;
            missed += batch.gap.bytes;
            if batch.gap.bytes > 0 {
                self.unfinished.clear();
            }
            let is_last = batch.next == cursor;
            let bytes = batch.chunks.iter().flat_map(|chunk| chunk.bytes.iter());
            let text = self.text(bytes.copied().collect(), is_last && is_over);
            if !text.is_empty() || missed > 0 {
                let event = ProcessOutput {
                    session_id: self.session.clone(),
                    offset: from,
                    next_offset: batch.next.offset,
                    text,
                    missed_bytes: missed,
                };
                self.tell(PROCESS_OUTPUT, &event);
            }
            cursor = batch.next;
            if is_last {
                return Ok(cursor);
            }
        }
        Ok(cursor)
    }

    /// Waits while many bytes on their way to the client are unsent. Returns whether it waited.
    fn wait_for_room(&self) -> bool {
        let mut waited = false;
        while self.client.buffered_bytes() > FULL && self.is_wanted() {
            waited = true;
            std::thread::sleep(Duration::from_millis(20));
        }
        waited
    }

    /// Converts bytes to text. An incomplete character is kept for the next call.
    fn text(&mut self, new: Vec<u8>, is_last: bool) -> String {
        let mut bytes = std::mem::take(&mut self.unfinished);
        bytes.extend(new);
        if !is_last {
            self.unfinished = bytes.split_off(bytes.len() - unfinished(&bytes));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn tell_end(&self, process: &Process, cursor: Cursor) {
        // If a caller waited for the result and took it, the session is already forgotten.
        let summary = process.look(&self.session).ok();
        let standing = summary.as_ref().map(|summary| &summary.ended);
        self.tell(PROCESS_ENDED, &self.ended(standing, cursor.offset));
    }

    fn ended(&self, standing: Option<&EndedSession>, next_offset: u64) -> ProcessEnded {
        ProcessEnded {
            session_id: self.session.clone(),
            status: standing.map(|ended| ended.status.as_str().to_owned()),
            exit_code: standing.and_then(|ended| ended.exit_code.map(i64::from)),
            signal: standing.and_then(|ended| ended.signal.map(i64::from)),
            timed_out: Some(standing.is_some_and(|ended| ended.timed_out)),
            next_offset: Some(next_offset),
            reason: None,
        }
    }

    fn tell_lost(&self, reason: &str) {
        let event = ProcessLost {
            session_id: self.session.clone(),
            status: "lost".to_owned(),
            reason: reason.to_owned(),
        };
        self.tell(PROCESS_ENDED, &event);
    }

    fn tell(&self, name: &str, payload: &impl Serialize) {
        if let Ok(event) = Event::new(name, payload) {
            self.client.tell(&event);
        }
    }
}

/// Returns how many bytes at the end begin an incomplete character: at most three.
fn unfinished(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for start in from..bytes.len() {
        let needed = match bytes[start] {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => continue,
        };
        let there = bytes.len() - start;
        if there < needed && bytes[start + 1..].iter().all(|byte| byte & 0xC0 == 0x80) {
            return there;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::unfinished;

    #[test]
    fn only_a_character_that_is_not_whole_is_kept_back() {
        for (bytes, expected) in [
            (b"".as_slice(), 0),
            (b"abc", 0),
            ("ä".as_bytes(), 0),
            (&"ä".as_bytes()[..1], 1),
            (&"x€".as_bytes()[..3], 2),
            (&"🦀".as_bytes()[..3], 3),
            ("🦀".as_bytes(), 0),
            (b"\x80\x80\x80", 0),
            (b"\xE2a", 0),
            (b"\xFF", 0),
        ] {
            assert_eq!(unfinished(bytes), expected, "{bytes:?}");
        }
    }
}
