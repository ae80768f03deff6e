//! A run with a terminal of its own, shown at the terminal of its caller.

use std::io::IsTerminal as _;

use interlock_arguments::ExecArguments;
use interlock_host::LocalHost;
use interlock_plan::PtySize;
use interlock_sessions::{Process, ProcessCaller, ProcessError};
use interlock_supervisor::{StartedRun, SupervisorClient};

use crate::process::attach::{self, AttachBegin, AttachEnd, DetachKey, attach};

/// Default size of a detached terminal.
const PTY_SIZE: PtySize = PtySize {
    columns: 120,
    rows: 30,
};

/// Whether a person sits at a terminal and wants one for the command.
pub(super) fn is_attended(all: &ExecArguments) -> bool {
    all.pty
        && !all.request.json
        && !all.background
        && all.yield_ms.is_none()
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
}

/// Connects the person to the command until it ends or the person detaches. What ends this process
/// ends the command, as without a terminal; see [`super::interrupt`].
pub(super) fn attend(
    host: &LocalHost,
    client: &SupervisorClient,
    started: &StartedRun,
) -> Result<AttachEnd, ProcessError> {
    let process = Process::open(host, ProcessCaller::Operator, client.clone())?;
    let id = &started.session.name;
    // A command may have ended before this process could look.
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

/// The size of the terminal of the run.
pub(super) fn pty_size(attended: bool) -> PtySize {
    let own = if attended {
        attach::terminal_size()
    } else {
        None
    };
    own.unwrap_or(PTY_SIZE)
}
