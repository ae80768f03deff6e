//! Runs that a remote gateway ordered here, as the gateway handles them: by its own run ids, in the
//! foreground too, and from the offset where it stopped reading.

use std::path::Path;
use std::time::{Duration, Instant};

use interlock_approvals::forwarded_run_id;
use interlock_engine::RunStatus;
use interlock_plan::hex;
use interlock_supervisor::{EndedRun, SessionState, StartedRun};
use interlock_transcript::{SessionOutcome, ShownOutput, TextPiece, TranscriptReader};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::answer::EndedSession;
use super::{MAX_POLL_WAIT, Process, ProcessError, not_found};

/// The digest that identifies a gateway's sessions. The gateway presents the secret; only the
/// digest is stored.
pub fn owner_digest(secret: &str) -> String {
    let digest = Sha256::digest(format!("interlock owner\n{secret}"));
    hex(&digest[..16])
}

/// The state of a run, and its output since the last call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Followed {
    /// Two words, on the machine that it runs on.
    pub session_id: String,
    pub command: String,
    pub cwd: String,
    #[serde(default)]
    pub pid: Option<i32>,
    pub race_free: bool,
    pub started_at_ms: u64,
    pub standing: EndedSession,
    #[serde(default)]
    pub ended_at_ms: Option<u64>,
    /// `None` if the caller asked for no output.
    #[serde(default)]
    pub piece: Option<TextPiece>,
    /// The beginning and end of all output, if the caller asked for it and the run has ended.
    #[serde(default)]
    pub shown: Option<ShownOutput>,
}

impl Followed {
    /// The result of a run whose end was awaited, if the result contains all of its output and that
    /// output fits into `max_chars`. `directory` is the directory of its transcript.
    pub fn of_result(
        started: &StartedRun,
        result: &EndedRun,
        directory: &Path,
        max_chars: usize,
    ) -> Option<Self> {
        let is_whole = result.shown.omitted_bytes == 0 && result.fault.is_none();
        if !is_whole || result.shown.text.len() > max_chars {
            return None;
        }
        let (session, outcome) = (&started.session, &result.outcome);
        let ended = match outcome.status {
            RunStatus::Exited(code) => SessionOutcome::Exited { code },
            RunStatus::Signaled(signal) => SessionOutcome::Signalled { signal },
            RunStatus::TimedOut => SessionOutcome::TimedOut { signal: None },
        };
        let took = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
        Some(Self {
            session_id: session.name.clone(),
            command: session.command.clone(),
            cwd: session.cwd.clone(),
            pid: session.pid,
            race_free: session.race_free,
            started_at_ms: started.started_ms,
            standing: EndedSession::of(ended, result.out_of_memory, directory),
            ended_at_ms: Some(started.started_ms.saturating_add(took)),
            piece: None,
            shown: Some(result.shown.clone()),
        })
    }
}

impl Process {
    /// The name of a run's session. `near` is its last known name.
    pub fn of_run(&self, run_id: &str, near: Option<&str>) -> Result<String, ProcessError> {
        let id = forwarded_run_id(run_id);
        let is_it = |found: &Option<String>| found.as_deref() == Some(id.as_str());
        if let Some(near) = near
            && let Ok(known) = self.known(near)
            && is_it(&known.session.run_id)
        {
            return Ok(known.session.name);
        }
        self.supervisors()?;
        interlock_supervisor::list(self.client.place(), &[])
            .into_iter()
            .map(|listed| listed.session)
            .find(|session| is_it(&session.run_id) && self.sees(session))
            .map(|session| session.name)
            .ok_or_else(|| not_found(run_id))
    }

    /// Waits up to `wait` for output after `from`, or for the end if `from` is `None`. When the
    /// returned state is final, all output was already readable.
    pub fn follow(
        &self,
        id: &str,
        from: Option<u64>,
        wait: Duration,
        max_bytes: usize,
    ) -> Result<Followed, ProcessError> {
        let until = Instant::now() + wait.min(MAX_POLL_WAIT);
        let before = self.known(id)?;
        let spool = TranscriptReader::open(&self.directory(&before.session))?;
        let mut seen = from.unwrap_or(u64::MAX);
        loop {
            let waited = self.wait_for_more(&before, seen, until)?;
            let known = self.known(id)?;
            let piece = match from {
                Some(offset) => Some(spool.text_from(offset, max_bytes)?),
                None => None,
            };
            let has_news = piece.as_ref().is_some_and(|piece| !piece.is_empty());
            if let (false, SessionState::Running, Some(total)) = (has_news, known.state, waited) {
                // Either the chunk ends inside a character, or the wait continues.
                seen = seen.max(total);
                continue;
            }
            let standing = self.ended(&known);
            return Ok(Followed {
                session_id: known.id(),
                command: known.session.command.clone(),
                cwd: known.session.cwd.clone(),
                pid: known.session.pid,
                race_free: known.session.race_free,
                started_at_ms: known.status.started_ms,
                standing,
                ended_at_ms: known.status.ended_ms,
                piece,
                shown: None,
            });
        }
    }

    /// The beginning and end of a session's output.
    pub fn shown(&self, id: &str, max_chars: usize) -> Result<ShownOutput, ProcessError> {
        Ok(self.transcript(id)?.head_and_tail(max_chars)?)
    }

    /// Ends a run that the gateway no longer needs, and all its processes. An ended run stays as it
    /// is.
    pub fn cancel(&self, id: &str) -> Result<(), ProcessError> {
        match self.kill(id, Some(Signal::TERM)) {
            Ok(_) | Err(ProcessError::Finished { .. } | ProcessError::Lost { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
