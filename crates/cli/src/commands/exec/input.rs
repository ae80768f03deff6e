//! The standard input of `interlock exec`, for the run.
//!
//! Input of the caller is a fact of judgement: who can write into a program may make it do other things
//! than its words say. So it is settled before the command is judged whether there is any. A pipe that
//! a script merely inherited, into which nothing comes, must not turn an allowed command into one that
//! is asked about; and what a program does write must not be lost.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use interlock_host::{LocalHost, RunRequest, evaluate};
use interlock_policy::{AgentId, CallerInput, Outcome};
use interlock_run::supervisor::{SessionLink, SupervisorClient};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;

use super::super::{caller_context, request};
use crate::args::{ExecArguments, InputArgument};
use crate::failure::Failure;
use crate::output;

/// How long a pipe without data is waited for, where the policy allows the command only without input.
const FIRST_DATA: Duration = Duration::from_secs(2);

/// Read and written at once.
const PIECE: usize = 64 * 1024;

/// Between two tries to write, when the run does not read.
const PAUSE: Duration = Duration::from_millis(20);

/// What stands at descriptor 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing that could be passed: a terminal, a device, a socket, or nothing at all.
    Nothing,
    /// There is data to read.
    Data,
    /// There is none, and none will come.
    Ended,
    /// A pipe that is open, and empty so far.
    Idle,
}

/// Whether the run gets the standard input of this process.
pub(super) fn is_passed(
    host: &LocalHost,
    agent: &AgentId,
    all: &ExecArguments,
) -> Result<bool, Failure> {
    match all.input {
        InputArgument::Pass => return Ok(true),
        InputArgument::None => return Ok(false),
        InputArgument::Auto => {}
    }
    // It would end with this process, or is a terminal of its own, or is left to `process write`.
    let has_other = all.pty || all.stdin || all.background || all.yield_ms.is_some();
    if has_other {
        return Ok(false);
    }
    match stands(Duration::ZERO) {
        Standing::Data => return Ok(true),
        Standing::Nothing | Standing::Ended => return Ok(false),
        Standing::Idle => {}
    }
    if is_allowed_with_input(host, agent, all)? {
        return Ok(true);
    }
    match stands(FIRST_DATA) {
        Standing::Data => Ok(true),
        Standing::Nothing | Standing::Ended => Ok(false),
        Standing::Idle => {
            output::note(
                "interlock: standard input is a pipe into which nothing came, so it is not passed to the command; --input pass passes it, --input none does not look",
            );
            Ok(false)
        }
    }
}

/// On a node there is none. It is said where that loses something.
pub(super) fn is_left_behind(all: &ExecArguments) -> bool {
    all.input == InputArgument::Auto && stands(Duration::ZERO) == Standing::Data
}

fn is_allowed_with_input(
    host: &LocalHost,
    agent: &AgentId,
    all: &ExecArguments,
) -> Result<bool, Failure> {
    let mut request: RunRequest = request::request(&all.request, CallerInput::Pipe)?;
    let policy = host.policy(agent, all.request.ask.map(Into::into))?;
    let caller = caller_context(Path::new(&request.cwd));
    request.workspace = host.call_workspace(agent, &caller)?;
    let resolver = host.resolver(agent, &caller)?;
    let evaluated = host.as_run_account(agent, || evaluate(request, &policy, &resolver))?;
    Ok(evaluated.is_ok_and(|one| matches!(one.verdict.outcome, Outcome::Allow(_))))
}

/// Looks at descriptor 0, and waits so long for data in a pipe that is empty.
fn stands(wait: Duration) -> Standing {
    let stdin = rustix::stdio::stdin();
    let Ok(stat) = rustix::fs::fstat(stdin) else {
        return Standing::Nothing;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let at = rustix::fs::tell(stdin).unwrap_or_default();
            if u64::try_from(stat.st_size).unwrap_or_default() > at {
                Standing::Data
            } else {
                Standing::Ended
            }
        }
        FileType::Fifo => pipe_stands(stdin, wait),
        _ => Standing::Nothing,
    }
}

fn pipe_stands(stdin: BorrowedFd<'_>, wait: Duration) -> Standing {
    let time = Timespec::try_from(wait).unwrap_or_default();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    if !matches!(rustix::event::poll(&mut polled, Some(&time)), Ok(1..)) {
        return Standing::Idle;
    }
    // At the end of a pipe, poll says only that the writers are gone.
    if polled[0].revents().contains(PollFlags::IN) {
        Standing::Data
    } else {
        Standing::Ended
    }
}

/// Passes the standard input on until it ends or the run does. On a thread of its own, which ends with
/// this process: what is not read by then was not wanted.
pub(super) fn pass(client: &SupervisorClient, session: &str) {
    let Ok(link) = client.session(session) else {
        return;
    };
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        loop {
            match rustix::io::read(rustix::stdio::stdin(), &mut piece) {
                Ok(0) => break,
                Ok(length) if write(&link, &piece[..length]) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => std::thread::sleep(PAUSE),
                Ok(_) => return,
                Err(_) => break,
            }
        }
        let _ = link.write(&[], true);
    });
}

/// Waits while the run has more than enough to read. `false` when it reads no more.
fn write(link: &SessionLink, bytes: &[u8]) -> bool {
    loop {
        match link.write(bytes, false) {
            Ok(()) => return true,
            Err(error) if error.code() == "STDIN_FULL" => std::thread::sleep(PAUSE),
            Err(_) => return false,
        }
    }
}
