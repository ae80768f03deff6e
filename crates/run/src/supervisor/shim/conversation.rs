//! What is said on one connection of a session: requests and answers, one after the other.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_plan::PtySize;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::live::Live;
use crate::engine::InputError;
use crate::keys::{self, Bracketed, CursorMode, KeyInput};
use crate::screen;
use crate::supervisor::frame;
use crate::supervisor::message::{Answer, Refusal, Request, Waited};

/// No wait is longer.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long a client that takes nothing is waited for.
const SEND_TIME: Duration = Duration::from_secs(10);

/// Serves the connection of the one who ordered the run, in a thread of its own: the result when
/// it is there, requests before and after.
pub(super) fn after_start(live: &Arc<Live>, connection: UnixStream) {
    in_thread(live, connection, |live, connection| {
        let waited = wait_for_end(live, connection);
        // Whoever went away without taking the result may come back for it.
        if !matches!(waited, Ok(true)) {
            live.to_background();
        }
    });
}

/// Serves another connection, likewise.
pub(super) fn serve(live: &Arc<Live>, connection: UnixStream) {
    in_thread(live, connection, |live, connection| {
        if frame::send(connection, &Ok::<_, Refusal>(())).is_ok() {
            while let Ok(true) = answer_one(live, connection) {}
        }
    });
}

fn in_thread(
    live: &Arc<Live>,
    connection: UnixStream,
    converse: impl FnOnce(&Live, &UnixStream) + Send + 'static,
) {
    live.enter();
    let own = Arc::clone(live);
    let started = std::thread::Builder::new()
        .name("conversation".to_owned())
        .spawn(move || {
            if connection.set_write_timeout(Some(SEND_TIME)).is_ok() {
                converse(&own, &connection);
            }
            drop(connection);
            own.leave();
        });
    if started.is_err() {
        live.to_background();
        live.leave();
    }
}

/// `true` when the result was taken.
fn wait_for_end(live: &Live, connection: &UnixStream) -> io::Result<bool> {
    let wait = live.manner().wait_ms.map(Duration::from_millis);
    let mut until = wait.map(|wait| Instant::now() + wait);
    if wait == Some(Duration::ZERO) {
        // At once, also if it was faster: whoever asked for a session finds one.
        until = None;
        live.to_background();
        frame::send(connection, &Waited::Yielded)?;
    }
    loop {
        match next(live, connection, until)? {
            Event::Request => {
                if !answer_one(live, connection)? {
                    return Ok(false);
                }
            }
            Event::TimeIsOver => {
                until = None;
                live.to_background();
                frame::send(connection, &Waited::Yielded)?;
            }
            Event::Ended => {
                let Some(ended) = live.result() else { continue };
                frame::send(connection, &Waited::Ended(Box::new(ended)))?;
                return taken(live, connection);
            }
        }
    }
}

/// After the result: whether it was received, or is to be kept.
fn taken(live: &Live, connection: &UnixStream) -> io::Result<bool> {
    connection.set_read_timeout(Some(SEND_TIME))?;
    while let Some(request) = frame::receive::<Request>(connection)? {
        if matches!(request, Request::Taken) {
            live.taken();
            return Ok(true);
        }
        frame::send(connection, &handle(live, request, &[]))?;
    }
    Ok(false)
}

enum Event {
    Request,
    Ended,
    TimeIsOver,
}

fn next(live: &Live, connection: &UnixStream, until: Option<Instant>) -> io::Result<Event> {
    let backgrounded = live.record().is_some_and(|record| record.background);
    loop {
        let connection = connection.as_fd();
        let mut polled = [
            PollFd::new(&connection, PollFlags::IN),
            PollFd::new(live.ended_event(), PollFlags::IN),
        ];
        // Once yielded, the result is not sent any more: it is in the transcript.
        let watched = if backgrounded { 1 } else { 2 };
        let pause = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match rustix::event::poll(&mut polled[..watched], pause.as_ref()) {
            Ok(0) => return Ok(Event::TimeIsOver),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) if !polled[0].revents().is_empty() => return Ok(Event::Request),
            Ok(_) => return Ok(Event::Ended),
        }
    }
}

/// Reads one request and answers it. `false` when the client has gone.
fn answer_one(live: &Live, connection: &UnixStream) -> io::Result<bool> {
    let Some((request, bytes)) = frame::receive_with::<Request>(connection)? else {
        return Ok(false);
    };
    if let Request::Drawing = request {
        let (drawing, total_bytes) = live.drawing();
        frame::send_with(connection, &Answer::Drawing { total_bytes }, &drawing)?;
    } else {
        frame::send(connection, &handle(live, request, &bytes))?;
    }
    Ok(true)
}

fn handle(live: &Live, request: Request, bytes: &[u8]) -> Answer {
    let outcome = match request {
        Request::Wait {
            after_bytes,
            timeout_ms,
        } => {
            let limit = Duration::from_millis(timeout_ms).min(MAX_WAIT);
            return Answer::Standing {
                standing: live.wait_for_output(after_bytes, limit),
            };
        }
        Request::Write { close } => write(live, bytes, close),
        Request::Keys { literal, hex, keys } => {
            return send_keys(live, literal.as_deref(), &hex, &keys);
        }
        Request::Paste { text, bracketed } => {
            let bracketed = if bracketed {
                Bracketed::Yes
            } else {
                Bracketed::No
            };
            write(live, &keys::paste(&text, bracketed), false)
        }
        Request::Resize { size } => resize(live, size),
        Request::Screen => match live.with_screen(|screen| screen.picture()) {
            Some(picture) => return Answer::Screen { picture },
            None => Err(no_terminal()),
        },
        Request::Drawing => Ok(()),
        Request::Kill { signal } => return kill(live, signal),
        Request::Background => {
            live.to_background();
            Ok(())
        }
        Request::Taken => {
            live.taken();
            Ok(())
        }
    };
    match outcome {
        Ok(()) => Answer::Done,
        Err(refusal) => Answer::Refused { refusal },
    }
}

fn write(live: &Live, bytes: &[u8], close: bool) -> Result<(), Refusal> {
    let written = live.run().write_stdin(bytes).and_then(|()| {
        if close {
            live.run().close_stdin()
        } else {
            Ok(())
        }
    });
    written.map_err(|error| {
        let code = match error {
            InputError::Closed => "STDIN_CLOSED",
            InputError::Full => "STDIN_FULL",
        };
        Refusal::new(code, error.to_string())
    })
}

fn send_keys(live: &Live, literal: Option<&str>, hex: &[String], keys: &[String]) -> Answer {
    let mode = live
        .with_screen(|screen| screen.cursor_mode())
        .unwrap_or(CursorMode::Normal);
    let input = KeyInput { literal, hex, keys };
    let encoded = keys::encode(input, mode);
    match write(live, &encoded.bytes, false) {
        Ok(()) => Answer::Keys {
            warnings: encoded.warnings,
        },
        Err(refusal) => Answer::Refused { refusal },
    }
}

fn resize(live: &Live, size: PtySize) -> Result<(), Refusal> {
    let new = screen::Size {
        columns: size.columns,
        rows: size.rows,
    }
    .clamped();
    let resized = live.with_screen(|screen| screen.resize(new));
    if resized.is_none() {
        return Err(no_terminal());
    }
    let size = PtySize {
        columns: new.columns,
        rows: new.rows,
    };
    live.run()
        .resize(size)
        .map_err(|error| Refusal::new("RESIZE_FAILED", error.to_string()))
}

fn kill(live: &Live, signal: i32) -> Answer {
    let Some(signal) = Signal::from_named_raw(signal) else {
        return Answer::Refused {
            refusal: Refusal::new("SIGNAL_UNKNOWN", format!("there is no signal {signal}")),
        };
    };
    match live.run().kill(signal) {
        Ok(()) => Answer::Done,
        Err(still_there) => Answer::StillThere {
            processes: still_there.0,
        },
    }
}

fn no_terminal() -> Refusal {
    Refusal::new("NO_TERMINAL", "the session has no terminal")
}
