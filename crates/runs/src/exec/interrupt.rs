//! Signals that end this process: they end its run first.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interlock_engine::{RunStatus, Signal};
use interlock_supervisor::SupervisorClient;
use signal_hook::iterator::Signals;

use super::result::exit_code;
use crate::process::attach;

/// How long the last words of a run that is being interrupted may take to be shown.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends the run when a signal ends this process. Returns where the exit code of that is put.
pub(super) fn end_run_on_signal(
    client: &SupervisorClient,
    name: &str,
    mut signals: Signals,
    is_done: Receiver<()>,
) -> Arc<OnceLock<u8>> {
    let interrupted = Arc::new(OnceLock::new());
    let (client, name, place) = (client.clone(), name.to_owned(), Arc::clone(&interrupted));
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let code = exit_code(RunStatus::Signaled(signal));
            // Before the run ends, since the main thread then asks for it.
            let _ = place.set(code);
            // A run that could not be ended is no reason to stay.
            let _ = client
                .session(&name)
                .and_then(|session| session.kill(Signal::TERM));
            // The main thread may be waiting for a reader.
            if is_done.recv_timeout(LAST_WORDS) == Err(RecvTimeoutError::Timeout) {
                attach::restore();
                std::process::exit(code.into());
            }
        }
    });
    interrupted
}
