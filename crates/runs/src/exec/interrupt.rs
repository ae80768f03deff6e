//! A signal that ends this process ends its run first.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interlock_engine::{RunStatus, Signal};
use interlock_supervisor::SupervisorClient;
use signal_hook::iterator::Signals;

use super::result::exit_code;
use crate::process::attach;

/// How long the main thread gets to show the last output of an interrupted run.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Ends the run when a signal arrives. Returns the cell that then holds the exit code of this
/// process.
pub(super) fn end_run_on_signal(
    client: &SupervisorClient,
    name: &str,
    mut signals: Signals,
    is_done: Receiver<()>,
) -> Arc<OnceLock<u8>> {
    let interrupted = Arc::new(OnceLock::new());
    let (client, name, cell) = (client.clone(), name.to_owned(), Arc::clone(&interrupted));
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let code = exit_code(RunStatus::Signaled(signal));
            // Set the code before the run ends: the main thread reads it when the run has ended.
            let _ = cell.set(code);
            // This process exits even if the run cannot be ended.
            let _ = client
                .session(&name)
                .and_then(|session| session.kill(Signal::TERM));
            // The main thread may hang in a write to a reader that does not read.
            if is_done.recv_timeout(LAST_OUTPUT) == Err(RecvTimeoutError::Timeout) {
                attach::restore();
                std::process::exit(code.into());
            }
        }
    });
    interrupted
}
