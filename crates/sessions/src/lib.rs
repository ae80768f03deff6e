//! Background sessions for one caller: the `process` tool.
//!
//! Sessions are directories. Readers use their files; only actions that need the running program go
//! to its process.
//!
//! Read [`Process`] (which caller sees which sessions, and each action), then `parameters` (the
//! JSON of a call), `page` (lists), `answer` (results), `ordered` (runs that a gateway ordered),
//! `polls` (the cursors of pollers), `waiting` (whether a session waits for input), `stale`
//! (results that no longer count).

#![forbid(unsafe_code)]

mod action;
mod answer;
mod error;
mod input;
mod link;
mod ordered;
mod page;
mod parameters;
mod polls;
mod replay;
mod signal;
mod stale;
mod waiting;

pub use action::{ProcessAnswer, SessionAction};
pub use answer::{
    EndedSession, KeysSent, LogAnswer, PollAnswer, RemovedSession, ScreenAnswer, SessionStatus,
    SessionSummary, Written,
};
pub use error::ProcessError;
pub use input::{KeysInput, MAX_INPUT_BYTES, MAX_KEYS_BYTES};
pub use ordered::{Followed, owner_digest};
pub use page::{CursorInvalid, SessionCursor, SessionListRequest, SessionPage};
pub use parameters::{ProcessAction, ProcessParameters};
pub use signal::{name_of as signal_name, signal_named};
pub use stale::Stale;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_approvals::NotifySettings;
use interlock_host::{HostError, LocalHost, now_ms, settle_background_run, tool_levels};
use interlock_plan::PtySize;
use interlock_policy::{AgentId, check_tool};
use interlock_store::{StaleMarks, Store};
use interlock_supervisor::{About, SessionLink, SessionState, SupervisorClient, names};
use interlock_transcript::{
    Cursor, DEFAULT_POLL_CHARS, LineRange, SessionRecord, TranscriptReader, TranscriptStatus,
};
use rustix::process::Signal;

/// The longest wait of a poll.
pub const MAX_POLL_WAIT: Duration = Duration::from_secs(30);

/// The size of one page of a log, unless the config sets it.
const PAGE_BYTES: usize = 200_000;

/// The caller of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessCaller {
    /// An agent sees its own background sessions. Sessions of other agents and of remote gateways
    /// do not exist for it. Its polls are remembered by session key.
    Agent { agent: AgentId, session_key: String },
    /// An operator sees every session and reads by offset, so that no caller's poll misses output.
    Operator,
    /// A remote gateway sees only the runs that it ordered here, which a digest of its secret
    /// identifies. With `agent`, it sees that agent's background sessions among them.
    Gateway {
        owner: String,
        agent: Option<AgentId>,
        session_key: String,
    },
}

/// Where a poll begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollFrom {
    /// Where this caller's last poll ended. An operator has no polls and reads from the start.
    LastPoll,
    /// After this byte. Moves no cursor.
    Offset(u64),
}

/// The tool for one caller.
#[derive(Debug, Clone)]
pub struct Process {
    store: Arc<Store>,
    config: PathBuf,
    client: SupervisorClient,
    caller: ProcessCaller,
    page_bytes: usize,
}

/// A session that the caller may see.
#[derive(Debug)]
struct VisibleSession {
    session: SessionRecord,
    status: TranscriptStatus,
    state: SessionState,
}

impl VisibleSession {
    fn new(session: SessionRecord, status: TranscriptStatus, living: &[String]) -> Self {
        Self {
            state: SessionState::of(&session, &status, living),
            session,
            status,
        }
    }

    fn id(&self) -> String {
        self.session.name.clone()
    }
}

impl Process {
    /// Opens the tool, if the tool policy permits it to this caller.
    pub fn open(
        host: &LocalHost,
        caller: ProcessCaller,
        supervisor: SupervisorClient,
    ) -> Result<Self, ProcessError> {
        let mut page_bytes = PAGE_BYTES;
        let agent = match &caller {
            ProcessCaller::Agent { agent, .. } => Some(agent),
            ProcessCaller::Gateway { agent, .. } => agent.as_ref(),
            ProcessCaller::Operator => None,
        };
        if let Some(agent) = agent {
            let config = host.config()?;
            check_tool("process", &tool_levels(config.config(), agent))?;
            let chars = config.config().exec_for(agent.as_str()).max_output_chars;
            if let Some(chars) = chars.and_then(|chars| usize::try_from(chars).ok()) {
                page_bytes = chars;
            }
        }
        Ok(Self {
            store: Arc::clone(host.store()),
            config: host.config_path().to_owned(),
            client: supervisor,
            caller,
            page_bytes,
        })
    }

    pub fn client(&self) -> &SupervisorClient {
        &self.client
    }

    /// Completes the beginning of a session id, if it is unique. For people; programs name sessions
    /// in full.
    pub fn resolve(&self, text: &str) -> Result<String, ProcessError> {
        match self.known(text) {
            Err(ProcessError::NotFound { .. }) => {}
            known => return Ok(known?.session.name),
        }
        let request = SessionListRequest {
            prefix: Some(text.to_owned()),
            ..SessionListRequest::default()
        };
        let mut matching: Vec<String> = match text {
            "" => Vec::new(),
            _ => self
                .page(&request)?
                .sessions
                .into_iter()
                .rev()
                .map(|summary| summary.session_id)
                .collect(),
        };
        match matching.len() {
            0 => Err(not_found(text)),
            1 => Ok(matching.swap_remove(0)),
            _ => Err(ProcessError::Ambiguous {
                text: text.to_owned(),
                candidates: matching,
            }),
        }
    }

    /// The description and state of one session.
    pub fn look(&self, id: &str) -> Result<SessionSummary, ProcessError> {
        let (known, supervisors) = self.known_to_supervisors(id)?;
        let look = waiting::WaitingLook::new(self.client.place(), &supervisors, now_ms());
        Ok(self.summary(&known, &look, &self.marks()?))
    }

    /// Returns new output and the state of the session. Waits up to `timeout` for output or the
    /// end.
    pub fn poll(
        &self,
        id: &str,
        from: PollFrom,
        timeout: Duration,
    ) -> Result<PollAnswer, ProcessError> {
        let known = self.known(id)?;
        let directory = self.directory(&known.session);
        let spool = TranscriptReader::open(&directory)?;
        let until = Instant::now() + timeout.min(MAX_POLL_WAIT);
        let reader = match (&self.caller, from) {
            (
                ProcessCaller::Agent { session_key, .. }
                | ProcessCaller::Gateway {
                    session_key,
                    agent: Some(_),
                    ..
                },
                PollFrom::LastPoll,
            ) => Some(session_key.as_str()),
            _ => None,
        };
        let start = match (reader, from) {
            (Some(reader), _) => polls::cursor(&directory, reader)?,
            (None, PollFrom::Offset(offset)) => spool.cursor_at(offset)?,
            (None, PollFrom::LastPoll) => Cursor::START,
        };
        let mut seen = start.offset;
        loop {
            let waited = self.wait_for_more(&known, seen, until)?;
            let (shown, next, status) = match reader {
                Some(reader) => polls::poll(&directory, reader, &spool)?,
                None => {
                    let status = spool.status()?;
                    let (shown, next) = spool.new_since(start, DEFAULT_POLL_CHARS)?;
                    (shown, next, status)
                }
            };
            let nothing = shown.total_bytes == 0 && !status.outcome.is_final();
            if let (true, Some(total)) = (nothing, waited) {
                // Either the chunk ends inside a character, or another poller with the same key
                // read first.
                seen = total;
                continue;
            }
            return Ok(PollAnswer {
                session_id: known.id(),
                name: known.session.title.clone(),
                stale: stale::stale(&self.marks()?, &known.session, &status),
                ended: self.ended_now(&VisibleSession { status, ..known })?,
                output: shown,
                next_offset: next.offset,
            });
        }
    }

    /// Lines of the transcript.
    pub fn log(&self, id: &str, range: LineRange) -> Result<LogAnswer, ProcessError> {
        let known = self.known(id)?;
        let spool = TranscriptReader::open(&self.directory(&known.session))?;
        let page = spool.by_lines(range, self.page_bytes)?;
        Ok(LogAnswer {
            session_id: known.id(),
            name: known.session.title.clone(),
            stale: stale::stale(&self.marks()?, &known.session, &known.status),
            ended: self.ended(&known),
            text: page.text,
            offset: page.first_line,
            next_offset: page.next_line,
            total_lines: page.total_lines,
            omitted_bytes: page.omitted.bytes,
            omitted_lines: page.omitted.lines,
        })
    }

    /// The terminal as a person would see it. For an ended session, its last picture.
    pub fn screen(&self, id: &str) -> Result<ScreenAnswer, ProcessError> {
        let known = self.known(id)?;
        if !known.session.pty {
            return Err(ProcessError::NoTerminal { id: known.id() });
        }
        let picture = match known.state {
            SessionState::Running => match self.with_link(&known, SessionLink::screen) {
                Err(ProcessError::Finished { .. } | ProcessError::Lost { .. }) => None,
                picture => Some(picture?),
            },
            SessionState::Ended | SessionState::Lost => None,
        };
        let picture = match picture {
            Some(picture) => picture,
            None => replay::last_picture(&self.directory(&known.session))?,
        };
        Ok(ScreenAnswer {
            session_id: known.id(),
            name: known.session.title.clone(),
            ended: self.ended_now(&known)?,
            picture,
        })
    }

    /// Without a signal, or with TERM or KILL, ends the whole tree and returns when it is gone. Any
    /// other signal goes to the foreground process.
    pub fn kill(&self, id: &str, signal: Option<Signal>) -> Result<EndedSession, ProcessError> {
        let known = self.known(id)?;
        let signal = signal.unwrap_or(Signal::TERM);
        let ends = signal == Signal::TERM || signal == Signal::KILL;
        match known.state {
            SessionState::Running => {}
            // Its last output may still be on its way. The caller that ends the session wants it
            // gone.
            SessionState::Ended if ends && self.client.session(&known.session.name).is_ok() => {}
            SessionState::Ended | SessionState::Lost => return Err(self.not_running(&known)),
        }
        let directory = self.directory(&known.session);
        if ends && known.state == SessionState::Running {
            answer::mark_killed(&directory);
        }
        match self.with_link(&known, |link| link.kill(signal)) {
            // The session just ended by itself, as the caller wanted.
            Err(ProcessError::Finished { .. }) if ends => answer::unmark_killed(&directory),
            outcome => outcome?,
        }
        match self.known(id) {
            // The caller that waited for the session's result got it, and the session was then
            // forgotten.
            Err(ProcessError::NotFound { .. }) if ends => Ok(EndedSession::killed()),
            known => Ok(self.ended(&known?)),
        }
    }

    /// Forgets an ended session, including its transcript.
    pub fn clear(&self, id: &str) -> Result<RemovedSession, ProcessError> {
        let known = self.known(id)?;
        if known.state == SessionState::Running {
            return Err(ProcessError::Running { id: known.id() });
        }
        self.forget(&known)
    }

    /// Ends a running session, then forgets it.
    pub fn remove(&self, id: &str) -> Result<RemovedSession, ProcessError> {
        let known = self.known(id)?;
        match self.kill(id, None) {
            Ok(_) | Err(ProcessError::Finished { .. } | ProcessError::Lost { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.known(id) {
            // As in `kill`, the session may already be forgotten.
            Err(ProcessError::NotFound { .. }) => Ok(RemovedSession {
                session_id: known.id(),
                removed: true,
            }),
            known => self.forget(&known?),
        }
    }

    /// Resizes the terminal of a session.
    pub fn resize(&self, id: &str, size: PtySize) -> Result<(), ProcessError> {
        let known = self.running(id)?;
        if !known.session.pty {
            return Err(ProcessError::NoTerminal { id: known.id() });
        }
        self.with_link(&known, |link| link.resize(size))?;
        replay::note_size(&self.directory(&known.session), size);
        Ok(())
    }

    /// A connection to a running session.
    pub fn connect(&self, id: &str) -> Result<SessionLink, ProcessError> {
        self.link(&self.running(id)?)
    }

    /// The reader of a session's transcript.
    pub fn transcript(&self, id: &str) -> Result<TranscriptReader, ProcessError> {
        Ok(TranscriptReader::open(
            &self.directory(&self.known(id)?.session),
        )?)
    }

    fn marks(&self) -> Result<StaleMarks, ProcessError> {
        Ok(self.store.stale_marks().map_err(HostError::from)?)
    }

    fn forget(&self, known: &VisibleSession) -> Result<RemovedSession, ProcessError> {
        if !known.status.outcome.is_final() {
            // The session is lost, and no supervisor has recorded that yet.
            let directory = self.directory(&known.session);
            TranscriptReader::open(&directory)?
                .as_lost()?
                .write(&directory)?;
        }
        // Its end must be recorded before its files are deleted.
        let name = &known.session.name;
        if let Some(run) = self.store.background_run(name).map_err(HostError::from)? {
            let notify = || NotifySettings::load(&self.config, &run.agent);
            let place = self.client.place();
            settle_background_run(&self.store, &run, place, notify).map_err(HostError::from)?;
        }
        if self.client.forget(&known.session.name) {
            Ok(RemovedSession {
                session_id: known.id(),
                removed: true,
            })
        } else {
            Err(not_found(&known.session.name))
        }
    }

    /// The supervisors that serve at present. Refuses a caller that is part of a run: such a caller
    /// could read the files of sessions, but must not handle sessions.
    fn supervisors(&self) -> Result<Vec<About>, ProcessError> {
        Ok(self.client.supervisors_that_let_us()?)
    }

    fn sees(&self, session: &SessionRecord) -> bool {
        self.sees_as(
            &session.agent_id,
            session.owner.as_deref(),
            session.background,
        )
    }

    fn known(&self, id: &str) -> Result<VisibleSession, ProcessError> {
        Ok(self.known_to_supervisors(id)?.0)
    }

    /// The only place that turns an id into a session. An id without the form of a name, an unknown
    /// session and a session that the caller may not see all get the same answer.
    fn known_to_supervisors(&self, id: &str) -> Result<(VisibleSession, Vec<About>), ProcessError> {
        let status = if names::is_session_name(id) {
            TranscriptStatus::read(&self.client.place().session(id)).ok()
        } else {
            None
        };
        let supervisors = self.supervisors()?;
        let found = status.and_then(|status| Some((status.session.clone()?, status)));
        match found.filter(|(session, _)| self.sees(session)) {
            Some((session, status)) => {
                let known = VisibleSession::new(session, status, &instances(&supervisors));
                Ok((known, supervisors))
            }
            None => Err(not_found(id)),
        }
    }

    fn running(&self, id: &str) -> Result<VisibleSession, ProcessError> {
        let known = self.known(id)?;
        match known.state {
            SessionState::Running => Ok(known),
            SessionState::Ended | SessionState::Lost => Err(self.not_running(&known)),
        }
    }

    fn not_running(&self, known: &VisibleSession) -> ProcessError {
        let id = known.id();
        match known.state {
            SessionState::Lost => ProcessError::Lost { id },
            _ => ProcessError::Finished {
                id,
                ended: self.ended(known),
            },
        }
    }

    /// The present state of a session that was known a moment ago. The caller that waits for its
    /// result may have received it since; then nothing is left to read.
    fn ended_now(&self, before: &VisibleSession) -> Result<EndedSession, ProcessError> {
        match self.known(&before.session.name) {
            Err(ProcessError::NotFound { .. }) => Ok(self.ended(before)),
            now => Ok(self.ended(&now?)),
        }
    }

    fn directory(&self, session: &SessionRecord) -> PathBuf {
        self.client.place().session(&session.name)
    }
}

fn instances(supervisors: &[About]) -> Vec<String> {
    let instances = supervisors.iter().map(|about| about.instance.clone());
    instances.collect()
}

fn not_found(id: &str) -> ProcessError {
    ProcessError::NotFound { id: id.to_owned() }
}
