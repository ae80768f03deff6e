//! The process of one run: waits for its order, carries it out, answers those who ask about it,
//! and ends when nothing of the run is left.
//!
//! It is forked ahead of time, with the session's name and files ready, and is a subreaper: all
//! that the run starts stays below it. It holds no listening socket and no descriptor but the one
//! to the supervisor; when that is closed, it ends the run and itself.

mod conversation;
mod live;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_plan::{RunPlan, Stdin};
use rustix::event::{PollFd, PollFlags, Timespec};
use uuid::Uuid;

use super::frame;
use super::handover::{self, Note};
use super::message::{Order, Refusal, Report, Started};
use super::place::Place;
use crate::authorization::AuthorizationKey;
use crate::engine::{Settings, Signal, StartError, tree};
use crate::names;
use crate::screen;
use crate::session::Record;
use crate::spool::{Limits, SpoolError, SpoolWriter};
use live::Live;

/// How long the one who orders may take to send the order.
const ORDER_TIME: Duration = Duration::from_secs(10);

/// How long those who are being answered may take when all else is over. Longer than any of them
/// is waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(15);

/// What a shim is given when it is forked.
#[derive(Debug)]
pub(super) struct Birth {
    pub place: Place,
    pub instance: String,
    /// The soft limit of open files that runs get.
    pub open_files: Option<u64>,
    pub control: OwnedFd,
}

/// How the process of a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Good,
    Bad,
}

/// The whole life of the process.
pub(super) fn run(birth: &Birth) -> Ending {
    if tree::dedicate_process().is_err() {
        return Ending::Bad;
    }
    let (mut name, mut spool) = reserve(&birth.place);
    let ended = match handover::receive_note(&birth.control) {
        Ok(Some(Note::Start(connection))) => {
            let connection = UnixStream::from(connection);
            // It may have waited for a long time, and somebody may have tidied up.
            if !birth.place.session(&name).exists() {
                (name, spool) = reserve(&birth.place);
            }
            match carry_out(birth, &connection, name.clone(), spool) {
                Ok(live) => return serve(birth, connection, &live),
                Err(refusal) => {
                    let _ = frame::send(&connection, &Err::<Started, _>(refusal));
                    Ending::Good
                }
            }
        }
        _ => Ending::Good,
    };
    let _ = std::fs::remove_dir_all(birth.place.session(&name));
    let over = Report::Over {
        kept: false,
        survivors: 0,
    };
    let _ = handover::send_report(&birth.control, &over);
    ended
}

/// Takes a name that no session of the state directory has, with the files for its transcript.
fn reserve(place: &Place) -> (String, SpoolWriter) {
    let mut name = names::session_name(|name| place.session(name).exists());
    loop {
        let directory = place.session(&name);
        match SpoolWriter::prepare(&directory, Limits::default()) {
            Ok(spool) => return (name, spool),
            // Another shim was faster.
            Err(SpoolError::File { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                name = names::session_name(|name| place.session(name).exists());
            }
            // A run need not fail because its output cannot be kept: the result will say so.
            Err(error) => return (name, SpoolWriter::keeping_nothing(&directory, &error)),
        }
    }
}

/// Reads the order and starts the run.
fn carry_out(
    birth: &Birth,
    connection: &UnixStream,
    name: String,
    mut spool: SpoolWriter,
) -> Result<Arc<Live>, Refusal> {
    let order = read_order(connection)
        .map_err(|error| Refusal::new("ORDER_UNREADABLE", format!("no usable order: {error}")))?;
    let Order {
        plan,
        authorization,
        manner,
    } = order;
    let key = AuthorizationKey::read(&birth.place.run_key()).map_err(|error| {
        Refusal::new(
            "RUN_KEY_UNUSABLE",
            format!("the key of the state directory: {error}"),
        )
    })?;
    spool.set_limits(Limits {
        max_spool_bytes: manner.max_spool_bytes,
    });
    let screen = plan.pty.map(|size| {
        screen::Screen::new(screen::Size {
            columns: size.columns,
            rows: size.rows,
        })
    });
    let directory = birth.place.session(&name);
    let live = Live::new(directory, spool, screen, manner.clone())
        .map_err(|error| Refusal::new("START_FAILED", error.to_string()))?;
    let settings = Settings {
        grace: Duration::from_millis(manner.grace_ms),
        leftovers: manner.leftovers,
        open_files: birth.open_files,
        ..Settings::default()
    };
    let started = crate::start(
        &plan,
        &authorization,
        &key,
        &settings,
        live::Sink(Arc::clone(&live)),
    );
    let run = started.map_err(|error: StartError| Refusal::new(error.code(), error.to_string()))?;
    let record = Record {
        id: Uuid::new_v4().to_string(),
        title: names::title(&plan.command),
        pid: run.pid(),
        pty: plan.pty.is_some(),
        writable: is_writable(&plan),
        race_free: run.is_race_free(),
        background: false,
        cleanup_ms: manner.cleanup_ms,
        supervisor: birth.instance.clone(),
        out_of_memory: false,
        agent_id: plan.agent_id,
        session_key: plan.session_key,
        command: plan.command,
        cwd: plan.cwd.requested,
        name,
    };
    live.begin(run, record);
    Ok(live)
}

fn read_order(connection: &UnixStream) -> io::Result<Order> {
    connection.set_read_timeout(Some(ORDER_TIME))?;
    let order = frame::receive(connection)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    connection.set_read_timeout(None)?;
    Ok(order)
}

fn is_writable(plan: &RunPlan) -> bool {
    plan.pty.is_some() || plan.stdin == Stdin::Pipe
}

/// Until nothing of the run is left.
fn serve(birth: &Birth, connection: UnixStream, live: &Arc<Live>) -> Ending {
    let Some(record) = live.record() else {
        return Ending::Bad;
    };
    let begun = Report::Begun {
        name: record.name.clone(),
    };
    let _ = handover::send_report(&birth.control, &begun);
    let started = Started {
        started_ms: live.started_ms(),
        session: record.clone(),
    };
    if frame::send(&connection, &Ok::<_, Refusal>(started)).is_ok() {
        conversation::after_start(live, connection);
    } else {
        live.to_background();
    }
    let mut last_answers = None;
    loop {
        let until = live
            .is_over()
            .then(|| *last_answers.get_or_insert_with(|| Instant::now() + LAST_ANSWERS));
        if let Some(until) = until
            && (live.is_quiet() || Instant::now() >= until)
        {
            break;
        }
        if !wait(birth, live, until) {
            // The supervisor is gone, and with it everybody who could ask.
            let _ = live.run().kill(Signal::KILL);
            return Ending::Bad;
        }
    }
    let kept = live.is_kept();
    if !kept {
        let _ = std::fs::remove_dir_all(birth.place.session(&record.name));
    }
    let survivors = live.survivors();
    let _ = handover::send_report(&birth.control, &Report::Over { kept, survivors });
    Ending::Good
}

/// Waits for a note or a change, and acts on a note. `false` when the supervisor is gone.
fn wait(birth: &Birth, live: &Arc<Live>, until: Option<Instant>) -> bool {
    let mut polled = [
        PollFd::new(&birth.control, PollFlags::IN),
        PollFd::new(live.over_event(), PollFlags::IN),
    ];
    let pause = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    });
    if rustix::event::poll(&mut polled, pause.as_ref()).is_err() {
        return true;
    }
    if !polled[1].revents().is_empty() {
        live.clear_over_event();
    }
    if polled[0].revents().is_empty() {
        return true;
    }
    match handover::receive_note(&birth.control) {
        Ok(Some(Note::Connection(connection))) => {
            conversation::serve(live, UnixStream::from(connection));
            true
        }
        Ok(Some(Note::Quota(max_spool_bytes))) => {
            live.set_limits(Limits { max_spool_bytes });
            true
        }
        // A second order is not for this process; whoever sent it sees the connection close.
        Ok(Some(Note::Start(_))) => true,
        Ok(None) | Err(_) => false,
    }
}

impl AuthorizationKey {
    /// The key that lies in a state directory.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let key = bytes.try_into().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "it is not a key of 32 bytes")
        })?;
        Ok(Self::from_bytes(key))
    }
}
