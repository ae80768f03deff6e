//! A session while its process lives: its transcript, its screen, how it stands.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use crate::engine::{Leftover, Outcome, OutputSink, Run, Status, StreamKind};
use crate::screen::Screen;
use crate::session::Record;
use crate::spool::{self, Limits, Shown, SpoolReader, SpoolWriter, Stream, now_ms};
use crate::supervisor::message::{Ended, Manner, Standing};

/// Output up to this size is shown from memory.
const SMALL: usize = 16 * 1024;

pub(super) struct Live {
    directory: PathBuf,
    manner: Manner,
    run: OnceLock<Run>,
    state: Mutex<State>,
    changed: Condvar,
    /// Readable when the run has ended. Never read.
    ended: OwnedFd,
    /// Readable when it may be time for the process to end.
    over: OwnedFd,
}

#[derive(Default)]
struct State {
    /// There until the end.
    spool: Option<SpoolWriter>,
    screen: Option<Screen>,
    record: Option<Record>,
    started_ms: u64,
    /// The first output, as long as it is all of it.
    small: Vec<u8>,
    total_bytes: u64,
    /// How many wait for output.
    waiting: usize,
    end: Option<End>,
    survivors: Option<Vec<Leftover>>,
    /// The result was received whole.
    taken: bool,
    /// How many are being answered.
    busy: usize,
}

struct End {
    outcome: Outcome,
    totals: spool::Totals,
    fault: Option<String>,
}

/// Hands the output of the run to the session.
pub(super) struct Sink(pub Arc<Live>);

impl Live {
    pub fn new(
        directory: PathBuf,
        spool: SpoolWriter,
        screen: Option<Screen>,
        manner: Manner,
    ) -> io::Result<Arc<Self>> {
        let event = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Arc::new(Self {
            directory,
            manner,
            run: OnceLock::new(),
            state: Mutex::new(State {
                spool: Some(spool),
                screen,
                started_ms: now_ms(),
                ..State::default()
            }),
            changed: Condvar::new(),
            ended: event()?,
            over: event()?,
        }))
    }

    /// The run was started. If it is at its end already, that waits for this.
    pub fn begin(&self, run: Run, record: Record) {
        let _ = self.run.set(run);
        let mut state = self.state();
        if let Some(spool) = &mut state.spool {
            // Without room for it, the session is known to its supervisor only.
            let _ = spool.begin(Some(record.clone()));
        }
        state.record = Some(record);
        self.changed.notify_all();
    }

    pub fn run(&self) -> &Run {
        // Set before anybody else knows of this value.
        self.run.wait()
    }

    pub fn manner(&self) -> &Manner {
        &self.manner
    }

    /// Of a session that has begun.
    pub fn record(&self) -> Option<Record> {
        self.state().record.clone()
    }

    pub fn started_ms(&self) -> u64 {
        self.state().started_ms
    }

    pub fn ended_event(&self) -> &OwnedFd {
        &self.ended
    }

    pub fn over_event(&self) -> &OwnedFd {
        &self.over
    }

    pub fn clear_over_event(&self) {
        let _ = rustix::io::read(&self.over, &mut [0; 8]);
    }

    /// Nobody waits for the result any more.
    pub fn to_background(&self) {
        let mut state = self.state();
        if state
            .record
            .as_ref()
            .is_some_and(|record| record.background)
        {
            return;
        }
        if let Some(record) = &mut state.record {
            record.background = true;
        }
        match &mut state.spool {
            Some(spool) => {
                let _ = spool.describe(|record| record.background = true);
            }
            None => {
                if let Ok(mut status) = spool::Status::read(&self.directory) {
                    status.session.clone_from(&state.record);
                    let _ = status.write(&self.directory);
                }
            }
        }
    }

    /// The result was received whole; nothing needs to be kept.
    pub fn taken(&self) {
        self.state().taken = true;
    }

    pub fn set_limits(&self, limits: Limits) {
        let own = self.manner.max_spool_bytes;
        if let Some(spool) = &mut self.state().spool {
            spool.set_limits(Limits {
                max_spool_bytes: limits.max_spool_bytes.min(own),
            });
        }
    }

    /// Waits until there is more output than `after`, or the end.
    pub fn wait_for_output(&self, after: u64, limit: Duration) -> Standing {
        let until = Instant::now() + limit;
        let mut state = self.state();
        state.waiting += 1;
        while state.total_bytes <= after && state.end.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.waiting -= 1;
        Standing {
            total_bytes: state.total_bytes,
            ended: state.end.is_some(),
        }
    }

    /// How it ended, with as much of the output as is to be shown; `None` before.
    pub fn result(&self) -> Option<Ended> {
        let mut state = self.state();
        let end = state.end.as_ref()?;
        let mut result = Ended {
            outcome: end.outcome.clone(),
            totals: end.totals,
            shown: Shown::default(),
            out_of_memory: state
                .record
                .as_ref()
                .is_some_and(|record| record.out_of_memory),
            fault: end.fault.clone(),
        };
        let small = std::mem::take(&mut state.small);
        drop(state);
        let chars = self.manner.show_chars;
        result.shown = if small.len() as u64 == result.totals.bytes && small.len() <= chars {
            Shown {
                total_bytes: result.totals.bytes,
                shown_bytes: result.totals.bytes,
                text: String::from_utf8_lossy(&small).into_owned(),
                ..Shown::default()
            }
        } else {
            SpoolReader::open(&self.directory)
                .and_then(|spool| spool.head_and_tail(chars))
                .unwrap_or_else(|_| Shown {
                    total_bytes: result.totals.bytes,
                    omitted_bytes: result.totals.bytes,
                    gone_bytes: result.totals.bytes,
                    ..Shown::default()
                })
        };
        Some(result)
    }

    pub fn with_screen<T>(&self, look: impl FnOnce(&mut Screen) -> T) -> Option<T> {
        self.state().screen.as_mut().map(look)
    }

    /// The screen as bytes, and how much output it shows; no bytes without a terminal.
    pub fn drawing(&self) -> (Vec<u8>, u64) {
        let state = self.state();
        let drawing = state.screen.as_ref().map(Screen::drawing);
        (drawing.unwrap_or_default(), state.total_bytes)
    }

    /// Nothing of the run is left.
    pub fn is_over(&self) -> bool {
        self.state().survivors.is_some()
    }

    pub fn survivors(&self) -> usize {
        self.state().survivors.as_ref().map_or(0, Vec::len)
    }

    /// Nobody is being answered.
    pub fn is_quiet(&self) -> bool {
        self.state().busy == 0
    }

    /// Somebody may want to read the transcript later.
    pub fn is_kept(&self) -> bool {
        !self.state().taken
    }

    pub fn enter(&self) {
        self.state().busy += 1;
    }

    pub fn leave(&self) {
        self.state().busy -= 1;
        self.announce_over();
    }

    fn announce_over(&self) {
        let _ = rustix::io::write(&self.over, &1_u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputSink for Sink {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        let mut state = self.0.state();
        let stream = match stream {
            StreamKind::Stdout => Stream::Stdout,
            StreamKind::Stderr => Stream::Stderr,
            StreamKind::Terminal => Stream::Pty,
        };
        if let Some(spool) = &mut state.spool {
            spool.append(stream, bytes);
        }
        if state.small.len() as u64 == state.total_bytes && state.small.len() + bytes.len() <= SMALL
        {
            state.small.extend_from_slice(bytes);
        }
        state.total_bytes += bytes.len() as u64;
        let answers = state.screen.as_mut().map(|screen| screen.feed(bytes));
        if state.waiting > 0 {
            self.0.changed.notify_all();
        }
        drop(state);
        if let (Some(answers), Some(run)) = (answers, self.0.run.get())
            && !answers.is_empty()
        {
            let _ = run.write_stdin(&answers);
        }
    }

    fn ended(&self, outcome: &Outcome) {
        let mut state = self.0.state();
        while state.record.is_none() {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let Some(spool) = state.spool.take() else {
            return;
        };
        let totals = spool.totals();
        let mut fault = spool.fault().map(|fault| fault.reason.clone());
        if let Err(error) = spool.finish(final_outcome(outcome.status)) {
            fault.get_or_insert_with(|| error.to_string());
        }
        state.end = Some(End {
            outcome: outcome.clone(),
            totals,
            fault,
        });
        self.0.changed.notify_all();
        let _ = rustix::io::write(&self.0.ended, &1_u64.to_ne_bytes());
    }

    fn gone(&self, survivors: &[Leftover]) {
        self.0.state().survivors = Some(survivors.to_vec());
        self.0.announce_over();
    }
}

fn final_outcome(status: Status) -> spool::Outcome {
    match status {
        Status::Exited(code) => spool::Outcome::Exited { code },
        Status::Signaled(signal) => spool::Outcome::Signalled { signal },
        Status::TimedOut => spool::Outcome::TimedOut { signal: None },
    }
}
