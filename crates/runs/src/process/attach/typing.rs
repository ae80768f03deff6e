//! Sends what the caller types to the session.

use std::io::IsTerminal as _;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlock_sessions::{Process, ProcessError, SessionSummary};
use interlock_supervisor::{ClientError, SessionLink};

use super::view::{self, TranscriptView};
use super::{AttachEnd, AttachEvent, DetachKey, in_thread};

/// How many bytes one read of standard input returns at most.
const PIECE: usize = 64 * 1024;

/// How long to wait before the next attempt to write to a session whose input buffer is full.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Sends standard input to the session until it ends, if the session takes input at all.
pub(super) fn spawn(
    events: &Sender<AttachEvent>,
    process: &Process,
    session: &SessionSummary,
    key: DetachKey,
    view: &Arc<Mutex<TranscriptView>>,
) {
    if !session.stdin_writable {
        return;
    }
    let at_terminal = std::io::stdin().is_terminal();
    let (process, id, pty) = (process.clone(), session.session_id.clone(), session.pty);
    let view = Arc::clone(view);
    in_thread(events, move || {
        let link = match process.connect(&id) {
            Ok(link) => link,
            // The thread that shows the output also reports how the session ended.
            Err(ProcessError::Finished { .. } | ProcessError::Lost { .. }) => return None,
            Err(error) => return Some(AttachEvent::Failed(Some(error))),
        };
        let mut buffer = vec![0; PIECE];
        loop {
            let typed = match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) | Err(_) if !at_terminal => return None,
                // A terminal in raw mode has no end of input: the terminal is gone. In line mode,
                // the user pressed Ctrl-D.
                Ok(0) | Err(_) if pty => return Some(AttachEvent::Left(AttachEnd::Detached)),
                Ok(0) | Err(_) => {
                    let _ = link.write(&[], true);
                    return None;
                }
                Ok(length) => &buffer[..length],
            };
            let detach = at_terminal
                .then(|| typed.iter().position(|byte| *byte == key.byte))
                .flatten();
            let keys = &typed[..detach.unwrap_or(typed.len())];
            let sent = keys.is_empty() || send(&link, keys, at_terminal);
            if detach.is_some() {
                return Some(AttachEvent::Left(AttachEnd::Detached));
            }
            if !sent {
                return None;
            }
            let mut view = view::lock(&view);
            if view.has_hint()
                && let Ok(drawing) = link.drawing()
            {
                view.draw(&drawing);
            }
        }
    });
}

/// Sends the bytes. If the input buffer of the session is full, bytes from a pipe wait, and keys
/// from a terminal are dropped: the next key may be the one that detaches, so the caller must not
/// hang here. Returns `false` if the session no longer reads its input.
fn send(link: &SessionLink, bytes: &[u8], at_terminal: bool) -> bool {
    loop {
        match link.write(bytes, false) {
            Ok(()) => return true,
            Err(ClientError::Refused(refusal)) if refusal.code == "STDIN_FULL" && at_terminal => {
                return true;
            }
            Err(ClientError::Refused(refusal)) if refusal.code == "STDIN_FULL" => {
                std::thread::sleep(FULL_PAUSE);
            }
            Err(_) => return false,
        }
    }
}
