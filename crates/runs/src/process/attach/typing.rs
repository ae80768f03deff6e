//! What the person types, on its way to the session.

use std::io::IsTerminal as _;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlock_sessions::{Process, ProcessError, SessionSummary};
use interlock_supervisor::{ClientError, SessionLink};

use super::view::{self, TranscriptView};
use super::{AttachEnd, AttachEvent, DetachKey, in_thread};

/// Read at once.
const PIECE: usize = 64 * 1024;

/// Until a session that has not read its input is asked again.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Reads standard input as long as there is any, if the session takes input at all.
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
                // The line mode's Ctrl-D; a raw terminal ends only when it is taken away.
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

/// Waits for a session that is slow to read, unless a person would have to: the next key may be
/// the one that detaches. `false` when it reads no more.
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
