//! Requests to the process of a running session, which may end at any moment.

use std::time::{Duration, Instant};

use interlock_supervisor::{ClientError, SessionLink, SessionState};

use super::{Process, ProcessError, VisibleSession};

/// How long a session that stopped answering may take to record its end.
const SETTLING: Duration = Duration::from_secs(2);

impl Process {
    /// Sends a request to the running session.
    pub(super) fn with_link<T>(
        &self,
        known: &VisibleSession,
        ask: impl FnOnce(&SessionLink) -> Result<T, ClientError>,
    ) -> Result<T, ProcessError> {
        let link = self.link(known)?;
        match ask(&link) {
            Err(ClientError::StillThere(processes)) => Err(ProcessError::StillRunning {
                id: known.id(),
                processes,
            }),
            Err(ClientError::Refused(refusal)) if refusal.code == "STDIN_CLOSED" => {
                Err(ProcessError::StdinClosed { id: known.id() })
            }
            Err(error @ (ClientError::Lost | ClientError::Connection(_))) => {
                Err(self.settled(known).unwrap_or_else(|| error.into()))
            }
            outcome => Ok(outcome?),
        }
    }

    pub(super) fn link(&self, known: &VisibleSession) -> Result<SessionLink, ProcessError> {
        match self.client.session(&known.session.name) {
            Err(ClientError::Refused(refusal)) if refusal.code == "SESSION_NOT_RUNNING" => {
                let lost = || ProcessError::Lost { id: known.id() };
                Err(self.settled(known).unwrap_or_else(lost))
            }
            outcome => Ok(outcome?),
        }
    }

    /// The recorded reason why a session no longer answers.
    fn settled(&self, known: &VisibleSession) -> Option<ProcessError> {
        let until = Instant::now() + SETTLING;
        loop {
            match self.known(&known.session.name) {
                Ok(now) if now.state == SessionState::Running => {}
                Ok(now) => return Some(self.not_running(&now)),
                Err(error) => return Some(error),
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until there are more than `seen` bytes, and returns their number. `None` if there is
    /// nothing left to wait for.
    pub(super) fn wait_for_more(
        &self,
        known: &VisibleSession,
        seen: u64,
        until: Instant,
    ) -> Result<Option<u64>, ProcessError> {
        let left = until.saturating_duration_since(Instant::now());
        if known.state != SessionState::Running || left.is_zero() {
            return Ok(None);
        }
        match self.with_link(known, |link| link.wait(seen, left)) {
            Ok(standing) => Ok((!standing.ended).then_some(standing.total_bytes)),
            // The session's files contain its end.
            Err(ProcessError::Finished { .. } | ProcessError::Lost { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
