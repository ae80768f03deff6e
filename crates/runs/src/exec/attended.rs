//! A run with a pseudoterminal, shown at the terminal of its caller.

use std::io::IsTerminal as _;

use interlock_arguments::ExecArguments;
use interlock_host::LocalHost;
use interlock_plan::PtySize;
use interlock_sessions::{Process, ProcessCaller, ProcessError};
use interlock_supervisor::{StartedRun, SupervisorClient};

use crate::process::attach::{self, AttachBegin, AttachEnd, DetachKey, attach};

/// Default size of the pseudoterminal of a run that no terminal is attached to.
const PTY_SIZE: PtySize = PtySize {
    columns: 120,
    rows: 30,
};

/// Whether the caller sits at a terminal and asked for a pseudoterminal for the command.
pub(super) fn is_attended(all: &ExecArguments) -> bool {
    all.pty
        && !all.request.json
        && !all.background
        && all.yield_ms.is_none()
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
}

/// Connects the caller's terminal to the command until the command ends or the caller detaches. A
/// signal that ends this process also ends the command, as it does without a terminal; see
/// [`super::interrupt`].
pub(super) fn attend(
    host: &LocalHost,
    client: &SupervisorClient,
    started: &StartedRun,
) -> Result<AttachEnd, ProcessError> {
    let process = Process::open(host, ProcessCaller::Operator, client.clone())?;
    let id = &started.session.name;
    // A short command may have ended before this process attaches.
    let session = process.look(id)?;
    let left = match attach(
        &process,
        &session,
        DetachKey::USUAL,
        AttachBegin::FromStart,
        &[],
    ) {
        Err(ProcessError::Finished { .. }) => {
            attach::show_transcript(&process, id)?;
            AttachEnd::Ended
        }
        left => left?,
    };
    if matches!(left, AttachEnd::Detached) {
        process.connect(id)?.to_background()?;
    }
    Ok(left)
}

/// The size of the pseudoterminal of the run: that of the caller's terminal if the run is attended.
pub(super) fn pty_size(attended: bool) -> PtySize {
    let callers = if attended {
        attach::terminal_size()
    } else {
        None
    };
    callers.unwrap_or(PTY_SIZE)
}
