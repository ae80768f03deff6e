//! Serves one connection of a session: requests and answers, one after the other.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlock_engine::RunInputError;
use interlock_plan::PtySize;
use interlock_transcript::keys::{self, Bracketed, CursorMode, KeyInput};
use interlock_transcript::screen;
use rustix::process::Signal;

use super::live::Live;
use crate::frame;
use crate::message::{SessionAnswer, SessionRequest, SupervisorRefusal};

/// Longest wait.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long to wait for a client that does not read.
pub(super) const SEND_TIME: Duration = Duration::from_secs(10);

/// Reads what the run's caller sends after the order: that it received the result, or that it no
/// longer waits. Returns `false` if the caller is gone.
pub(super) fn hear_orderer(live: &Live, connection: &Arc<UnixStream>) -> bool {
    match frame::receive::<SessionRequest>(&**connection) {
        Ok(Some(SessionRequest::Taken)) => {
            live.taken();
            false
        }
        Ok(Some(SessionRequest::TakenForNext)) => {
            live.taken();
            live.another_may_follow(connection);
            false
        }
        Ok(Some(SessionRequest::Background)) => {
            live.give_way();
            true
        }
        _ => false,
    }
}

/// Serves a connection to the session, in a thread of its own.
pub(super) fn serve(live: &Arc<Live>, connection: UnixStream) {
    in_thread(live, connection, |live, connection| {
        if frame::send(connection, &Ok::<_, SupervisorRefusal>(())).is_ok() {
            while let Ok(true) = answer_one(live, connection) {}
        }
    });
}

/// Threads for conversations with a run that may have used up all available processes. They exist
/// before the run does, so that the run can always be ended.
pub(super) struct Reserve(Sender<ConversationTask>);

type ConversationTask = Box<dyn FnOnce() + Send>;

/// The caller of the run may watch it, and so may another client, and one client must be able to
/// end it.
const RESERVED: usize = 4;

impl Reserve {
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = channel::<ConversationTask>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..RESERVED {
            let receiver = Arc::clone(&receiver);
            let next = move || receiver.lock().ok()?.recv().ok();
            let converse = move || {
                while let Some(conversation) = next() {
                    conversation();
                }
            };
            named_thread().spawn(converse)?;
        }
        Ok(Self(sender))
    }
}

fn named_thread() -> std::thread::Builder {
    std::thread::Builder::new().name("conversation".to_owned())
}

fn in_thread(
    live: &Arc<Live>,
    connection: UnixStream,
    converse: impl FnOnce(&Live, &UnixStream) + Send + 'static,
) {
    live.enter();
    let own = Arc::clone(live);
    let conversation: ConversationTask = Box::new(move || {
        if connection.set_write_timeout(Some(SEND_TIME)).is_ok() {
            converse(&own, &connection);
        }
        drop(connection);
        own.leave();
    });
    // The conversation stays accessible, in case no further thread can be started.
    let shared = Arc::new(Mutex::new(Some(conversation)));
    let take = |shared: &Mutex<Option<ConversationTask>>| shared.lock().ok()?.take();
    let own = Arc::clone(&shared);
    let started = named_thread().spawn(move || {
        if let Some(conversation) = take(&own) {
            conversation();
        }
    });
    if started.is_err() {
        let sent = match (take(&shared), live.reserve()) {
            (Some(conversation), Some(Reserve(reserve))) => reserve.send(conversation).is_ok(),
            _ => false,
        };
        if !sent {
            live.leave();
        }
    }
}

/// Reads one request and answers it. Returns `false` if the client is gone.
fn answer_one(live: &Live, connection: &UnixStream) -> io::Result<bool> {
    let Some((request, bytes)) = frame::receive_with::<SessionRequest>(connection)? else {
        return Ok(false);
    };
    if let SessionRequest::Drawing = request {
        let (drawing, total_bytes) = live.drawing();
        frame::send_with(
            connection,
            &SessionAnswer::Drawing { total_bytes },
            &drawing,
        )?;
    } else {
        frame::send(connection, &handle(live, request, &bytes))?;
    }
    Ok(true)
}

fn handle(live: &Live, request: SessionRequest, bytes: &[u8]) -> SessionAnswer {
    let outcome = match request {
        SessionRequest::Wait {
            after_bytes,
            timeout_ms,
        } => {
            let limit = Duration::from_millis(timeout_ms).min(MAX_WAIT);
            return SessionAnswer::Standing {
                standing: live.wait_for_output(after_bytes, limit),
            };
        }
        SessionRequest::Write { close } => write(live, bytes, close),
        SessionRequest::Keys { literal, hex, keys } => {
            return send_keys(live, literal.as_deref(), &hex, &keys);
        }
        SessionRequest::Paste { text, bracketed } => {
            let bracketed = if bracketed {
                Bracketed::Yes
            } else {
                Bracketed::No
            };
            write(live, &keys::paste(&text, bracketed), false)
        }
        SessionRequest::Resize { size } => resize(live, size),
        SessionRequest::Screen => match live.with_screen(|screen| screen.picture()) {
            Some(picture) => return SessionAnswer::Screen { picture },
            None => Err(no_terminal()),
        },
        SessionRequest::Drawing => Ok(()),
        SessionRequest::Kill { signal } => return kill(live, signal),
        SessionRequest::Background => {
            live.to_background();
            Ok(())
        }
        SessionRequest::Taken | SessionRequest::TakenForNext => {
            live.taken();
            Ok(())
        }
    };
    match outcome {
        Ok(()) => SessionAnswer::Done,
        Err(refusal) => SessionAnswer::Refused { refusal },
    }
}

fn write(live: &Live, bytes: &[u8], close: bool) -> Result<(), SupervisorRefusal> {
    let written = live.run().write_stdin(bytes).and_then(|()| {
        if close {
            live.run().close_stdin()
        } else {
            Ok(())
        }
    });
    written.map_err(|error| {
        let code = match error {
            RunInputError::Closed => "STDIN_CLOSED",
            RunInputError::Full => "STDIN_FULL",
        };
        SupervisorRefusal::new(code, error.to_string())
    })
}

fn send_keys(live: &Live, literal: Option<&str>, hex: &[String], keys: &[String]) -> SessionAnswer {
    let mode = live
        .with_screen(|screen| screen.cursor_mode())
        .unwrap_or(CursorMode::Normal);
    let input = KeyInput { literal, hex, keys };
    let encoded = keys::encode(input, mode);
    match write(live, &encoded.bytes, false) {
        Ok(()) => SessionAnswer::Keys {
            warnings: encoded.warnings,
        },
        Err(refusal) => SessionAnswer::Refused { refusal },
    }
}

fn resize(live: &Live, size: PtySize) -> Result<(), SupervisorRefusal> {
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
        .map_err(|error| SupervisorRefusal::new("RESIZE_FAILED", error.to_string()))
}

fn kill(live: &Live, signal: i32) -> SessionAnswer {
    let Some(signal) = Signal::from_named_raw(signal) else {
        return SessionAnswer::Refused {
            refusal: SupervisorRefusal::new(
                "SIGNAL_UNKNOWN",
                format!("there is no signal {signal}"),
            ),
        };
    };
    match live.run().kill(signal) {
        Ok(()) => SessionAnswer::Done,
        Err(still_there) => SessionAnswer::StillThere {
            processes: still_there.0,
        },
    }
}

fn no_terminal() -> SupervisorRefusal {
    SupervisorRefusal::new("NO_TERMINAL", "the session has no terminal")
}
