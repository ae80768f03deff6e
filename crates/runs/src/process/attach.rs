//! `interlock process attach`: connects the caller's terminal to a session.
//!
//! Three threads do the work: one shows output, one sends what is typed, one handles signals. The
//! main thread waits until one of them has a reason to leave, then restores the terminal.

mod queries;
mod terminal;
mod typing;
mod view;

pub use terminal::restore;

use std::io::IsTerminal as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlock_arguments::{ProcessAttachArguments, StateArguments};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_plan::PtySize;
use interlock_sessions::{EndedSession, Process, ProcessError, SessionSummary};
use interlock_transcript::keys::{self, CursorMode, KeyInput};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use super::sessions::NODE_MARK;
use super::{failure, process, text};
use terminal::Raw;
use view::{Leave, TranscriptView};

/// How long one request to the supervisor waits for new output.
const WAIT: Duration = Duration::from_secs(30);

/// The key that detaches.
#[derive(Debug, Clone, Copy)]
pub struct DetachKey {
    byte: u8,
}

impl DetachKey {
    /// Ctrl-], which few programs use.
    pub const USUAL: Self = Self { byte: 0x1d };

    fn named(name: &str) -> Result<Self, Failure> {
        let input = KeyInput {
            keys: &[name.to_owned()],
            ..KeyInput::default()
        };
        let encoded = keys::encode(input, CursorMode::Normal);
        match encoded.bytes.as_slice() {
            [byte] if byte.is_ascii_control() && encoded.warnings.is_empty() => {
                Ok(Self { byte: *byte })
            }
            _ => Err(Failure::usage(
                "DETACH_KEY_INVALID",
                format!("`{}` is not a key with Ctrl", output::visible(name)),
            )
            .with_hint("name one such as C-] or C-b")),
        }
    }

    /// The name of the key as a person reads it.
    fn shown(self) -> String {
        match self.byte {
            0x7f => "Backspace".to_owned(),
            byte => format!("Ctrl-{}", char::from(byte ^ 0x40).to_ascii_lowercase()),
        }
    }
}

/// What the terminal shows first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachBegin {
    /// The current screen of a session that has been running.
    WithScreen,
    /// All output from the first byte, below what the terminal already shows.
    FromStart,
}

/// The signals that end `process attach`. Callers of [`attach`] handle other signals themselves.
pub const ENDING: &[i32] = &[SIGTERM, SIGHUP, SIGINT, SIGQUIT];

/// Why the terminal is no longer attached.
#[derive(Debug)]
pub enum AttachEnd {
    /// The session ended, or is lost.
    Ended,
    Detached,
    Signalled(i32),
}

/// What the threads report to the main thread.
#[derive(Debug)]
enum AttachEvent {
    Left(AttachEnd),
    Suspend,
    Failed(Option<ProcessError>),
}

pub fn run(state: &StateArguments, arguments: &ProcessAttachArguments) -> CommandOutcome {
    let at = |error| failure(state, error);
    let key = DetachKey::named(&arguments.detach_key)?;
    let process = process(state, &arguments.caller)?;
    let id = match process.resolve(&arguments.session) {
        Err(ProcessError::NotFound { .. }) if arguments.session.contains(NODE_MARK) => {
            let message = "terminals are attached to sessions of the same machine";
            let way =
                "on the node: interlock process attach NAME; from here: poll, screen, send-keys";
            return Err(Failure::usage("ATTACH_ON_NODE", message).with_hint(way));
        }
        resolved => resolved.map_err(at)?,
    };
    let session = process.look(&id).map_err(at)?;
    let left = attach(&process, &session, key, AttachBegin::WithScreen, ENDING).map_err(at)?;
    match left {
        AttachEnd::Ended => {
            let ended = process.look(&id).map_err(at)?.ended;
            output::note(&format!("interlock: {id} {}", text::standing(&ended)));
            Ok(ExitCode::from(exit_code(&ended)))
        }
        AttachEnd::Detached => {
            tell_detached(state, &id);
            Ok(ExitCode::SUCCESS)
        }
        // In a session without a pseudoterminal, Ctrl-C detaches.
        AttachEnd::Signalled(SIGINT) if !session.pty => {
            tell_detached(state, &id);
            Ok(ExitCode::SUCCESS)
        }
        AttachEnd::Signalled(signal) => Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))),
    }
}

pub fn tell_detached(state: &StateArguments, id: &str) {
    let back = state.in_command(&format!("interlock process attach {id}"));
    output::note(&format!("interlock: {id} goes on; come back: {back}"));
}

fn exit_code(ended: &EndedSession) -> u8 {
    let code = ended.exit_code.unwrap_or(1) & 0xff;
    u8::try_from(code).unwrap_or(1)
}

/// Shows the whole transcript of a session that ended before this process could attach.
pub fn show_transcript(process: &Process, id: &str) -> Result<(), ProcessError> {
    TranscriptView::new(process.transcript(id)?, true).follow();
    Ok(())
}

/// The size of the caller's terminal.
pub fn terminal_size() -> Option<PtySize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(PtySize {
        columns: size.ws_col,
        rows: size.ws_row,
    })
}

/// Connects the standard streams, usually a terminal, to a session until there is a reason to
/// leave.
pub fn attach(
    process: &Process,
    session: &SessionSummary,
    key: DetachKey,
    begin: AttachBegin,
    ending: &[i32],
) -> Result<AttachEnd, ProcessError> {
    let id = &session.session_id;
    let link = process.connect(id)?;
    let at_terminal = std::io::stdin().is_terminal();
    if session.pty
        && let Some(size) = terminal_size()
    {
        process.resize(id, size)?;
    }
    let mut view = TranscriptView::new(process.transcript(id)?, session.pty);
    let raw = (session.pty && at_terminal).then(Raw::enter);
    if session.pty && begin == AttachBegin::WithScreen && std::io::stdout().is_terminal() {
        TranscriptView::make_room();
        view.draw(&link.drawing()?);
        if at_terminal {
            view.show_hint(&format!("attached to {id}; {} detaches", key.shown()));
        }
    } else if begin == AttachBegin::WithScreen {
        let how = if session.pty {
            key.shown()
        } else {
            "Ctrl-C".to_owned()
        };
        output::note(&format!("interlock: attached to {id}; {how} detaches"));
    }
    let view = Arc::new(Mutex::new(view));
    let (events, happened) = channel();
    hear_signals(&events, process, session, ending);
    typing::spawn(&events, process, session, key, &view);
    show_output(&events, link, &view);
    let left = wait_to_leave(&happened, process, id, &view);
    // After `close`, only this thread writes to the terminal.
    let leave = match &left {
        Ok(AttachEnd::Ended) => Leave::Ended,
        _ => Leave::Midway,
    };
    view::close(&view, leave);
    drop(raw);
    left
}

fn wait_to_leave(
    happened: &Receiver<AttachEvent>,
    process: &Process,
    id: &str,
    view: &Arc<Mutex<TranscriptView>>,
) -> Result<AttachEnd, ProcessError> {
    for event in happened {
        match event {
            AttachEvent::Left(left) => return Ok(left),
            AttachEvent::Suspend => suspend(process, id, view),
            AttachEvent::Failed(Some(error)) => match process.look(id) {
                // The connection failed because the session has ended.
                Ok(session) if session.ended.status != RUNNING => return Ok(AttachEnd::Ended),
                _ => return Err(error),
            },
            AttachEvent::Failed(None) => break,
        }
    }
    // A thread panicked and has already printed its message.
    Ok(AttachEnd::Signalled(SIGQUIT))
}

const RUNNING: interlock_sessions::SessionStatus = interlock_sessions::SessionStatus::Running;

/// Restores the terminal for the shell, stops this process, and takes the terminal again when the
/// process continues.
fn suspend(process: &Process, id: &str, view: &Arc<Mutex<TranscriptView>>) {
    let mut view = view::lock(view);
    let was_raw = terminal::is_raw();
    view.reset_terminal(Leave::Midway);
    terminal::restore();
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    if was_raw {
        std::mem::forget(Raw::enter());
        if let Some(size) = terminal_size() {
            let _ = process.resize(id, size);
        }
        if let Ok(drawing) = process.connect(id).and_then(|link| Ok(link.drawing()?)) {
            view.draw(&drawing);
        }
    }
}

/// Starts a thread that sends an event when it ends, even if it panics.
fn in_thread(
    events: &Sender<AttachEvent>,
    work: impl FnOnce() -> Option<AttachEvent> + Send + 'static,
) {
    let events = events.clone();
    std::thread::spawn(move || {
        let event = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Some(AttachEvent::Failed(None)));
        if let Some(event) = event {
            // The main thread may have left already.
            let _ = events.send(event);
        }
    });
}

fn show_output(
    events: &Sender<AttachEvent>,
    link: interlock_supervisor::SessionLink,
    view: &Arc<Mutex<TranscriptView>>,
) {
    let view = Arc::clone(view);
    in_thread(events, move || {
        let mut seen = 0;
        loop {
            let standing = match link.wait(seen, WAIT) {
                Ok(standing) => standing,
                Err(error) => {
                    view::lock(&view).follow();
                    return Some(AttachEvent::Failed(Some(error.into())));
                }
            };
            let mut view = view::lock(&view);
            seen = view.follow().max(standing.total_bytes);
            if standing.ended {
                return Some(AttachEvent::Left(AttachEnd::Ended));
            }
        }
    });
}

fn hear_signals(
    events: &Sender<AttachEvent>,
    process: &Process,
    session: &SessionSummary,
    ending: &[i32],
) {
    let all = ending.iter().copied().chain([SIGWINCH, SIGTSTP]);
    let Ok(mut signals) = Signals::new(all) else {
        return;
    };
    let (process, id, pty) = (process.clone(), session.session_id.clone(), session.pty);
    let suspend = events.clone();
    in_thread(events, move || {
        for signal in signals.forever() {
            match signal {
                SIGWINCH => {
                    if let (true, Some(size)) = (pty, terminal_size()) {
                        // A session that has ended needs no size.
                        let _ = process.resize(&id, size);
                    }
                }
                SIGTSTP => drop(suspend.send(AttachEvent::Suspend)),
                signal => return Some(AttachEvent::Left(AttachEnd::Signalled(signal))),
            }
        }
        None
    });
}
