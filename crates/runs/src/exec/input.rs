//! The standard input of `interlock exec`, and whether the run gets it.
//!
//! The judge must know whether a command gets input: a caller that can write to a program can make
//! it do more than its command line says. So this module decides before the command is judged. A
//! pipe that a script merely inherited, and that stays empty, must not turn an allowed command into
//! one that needs an approval. Data that a program does write must not be lost.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use interlock_arguments::{ExecArguments, InputArgument};
use interlock_client::{CallFailure, GatewayClient, caller_context, request};
use interlock_console::{Failure, output};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, CallerInput, Outcome, RunRequest, evaluate};
use interlock_supervisor::{SessionLink, SupervisorClient};
use interlock_wire::params::{ProcessKill, ProcessPerform};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;

/// How long to wait for the first data in an empty pipe, if the policy allows the command only
/// without input.
const FIRST_DATA: Duration = Duration::from_secs(2);

/// How many bytes are read and passed on at once.
const PIECE: usize = 64 * 1024;

/// The same for a run on a node or at a remote gateway. It is smaller because bytes that are not
/// UTF-8 are sent as hexadecimal digits.
const REMOTE_PIECE: usize = 32 * 1024;

/// How long to wait before the next attempt to write to a run that does not read its input.
const PAUSE: Duration = Duration::from_millis(20);

/// The state of file descriptor 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StandardInput {
    /// Not a file and not a pipe (a terminal, a device, a socket) or closed: nothing is passed.
    Nothing,
    /// There is data to read.
    Data,
    /// There is no data, and none will come.
    Ended,
    /// A pipe that is open and empty so far.
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
    if has_other_input(all) {
        return Ok(false);
    }
    match standard_input(Duration::ZERO) {
        StandardInput::Data => return Ok(true),
        StandardInput::Nothing | StandardInput::Ended => return Ok(false),
        StandardInput::Idle => {}
    }
    if is_allowed_with_input(host, agent, all)? {
        return Ok(true);
    }
    Ok(has_data_soon())
}

/// Whether a run on a node or at a remote gateway gets the standard input of this process. The
/// policy that judges the run is not known here, so an empty pipe is always given time to bring
/// data.
pub(super) fn is_passed_elsewhere(all: &ExecArguments) -> bool {
    match all.input {
        InputArgument::Pass => return true,
        InputArgument::None => return false,
        InputArgument::Auto => {}
    }
    !has_other_input(all) && has_data_soon()
}

/// Whether the run must not get the standard input of this process: the run has a pseudoterminal,
/// it may outlive this process, or its input is left to `process write`.
fn has_other_input(all: &ExecArguments) -> bool {
    all.pty || all.stdin || all.background || all.yield_ms.is_some()
}

/// Waits a moment for data in a pipe, and prints a note if none comes.
fn has_data_soon() -> bool {
    match standard_input(FIRST_DATA) {
        StandardInput::Data => true,
        StandardInput::Nothing | StandardInput::Ended => false,
        StandardInput::Idle => {
            output::note(
                "interlock: standard input is a pipe without data, so it is not passed to the command; --input pass passes it anyway, --input none skips this check",
            );
            false
        }
    }
}

fn is_allowed_with_input(
    host: &LocalHost,
    agent: &AgentId,
    all: &ExecArguments,
) -> Result<bool, Failure> {
    let mut request: RunRequest = request::request(&all.request, CallerInput::Pipe)?;
    let policy = host.policy(agent, all.request.ask.map(Into::into))?;
    let caller = caller_context(Path::new(&request.cwd));
    let scope = host.scope(agent)?;
    request.workspace = scope.call_workspace(&caller);
    let resolver = scope.resolver(&caller);
    let evaluated = scope.as_run_account(|| evaluate(request, &policy, &resolver))?;
    Ok(evaluated.is_ok_and(|one| matches!(one.verdict.outcome, Outcome::Allow(_))))
}

/// Looks at file descriptor 0. If it is an empty pipe, waits at most `wait` for data.
fn standard_input(wait: Duration) -> StandardInput {
    let stdin = rustix::stdio::stdin();
    let Ok(stat) = rustix::fs::fstat(stdin) else {
        return StandardInput::Nothing;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let at = rustix::fs::tell(stdin).unwrap_or_default();
            if u64::try_from(stat.st_size).unwrap_or_default() > at {
                StandardInput::Data
            } else {
                StandardInput::Ended
            }
        }
        FileType::Fifo => pipe_input(stdin, wait),
        _ => StandardInput::Nothing,
    }
}

fn pipe_input(stdin: BorrowedFd<'_>, wait: Duration) -> StandardInput {
    let time = Timespec::try_from(wait).unwrap_or_default();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    if !matches!(rustix::event::poll(&mut polled, Some(&time)), Ok(1..)) {
        return StandardInput::Idle;
    }
    // At the end of a pipe, `poll` reports HUP without IN.
    if polled[0].revents().contains(PollFlags::IN) {
        StandardInput::Data
    } else {
        StandardInput::Ended
    }
}

/// Passes the standard input to the run until either ends. The thread is not joined: it ends with
/// this process, and input that the run has not read by then is dropped.
pub(super) fn pass(client: &SupervisorClient, session: &str) {
    let Ok(link) = client.session(session) else {
        return;
    };
    std::thread::spawn(move || {
        if read_pieces(PIECE, |piece| write(&link, piece)) {
            let _ = link.write(&[], true);
        }
    });
}

/// Reads the standard input to its end, piece by piece. Returns `false` if a piece could not be
/// passed on.
fn read_pieces(size: usize, mut pass_on: impl FnMut(&[u8]) -> bool) -> bool {
    let mut piece = vec![0; size];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut piece) {
            Ok(0) => return true,
            Ok(length) if pass_on(&piece[..length]) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(PAUSE),
            Ok(_) => return false,
            // An input that cannot be read has ended.
            Err(_) => return true,
        }
    }
}

/// Like [`pass`], for a run on a node or at a remote gateway, over a separate connection. A run
/// that cannot get all of its input is ended: it must not take a part of the input for the whole.
pub(super) fn pass_elsewhere(gateway: GatewayClient, session: &str) {
    let session = session.to_owned();
    std::thread::spawn(move || {
        let mut remote = RemoteInput { gateway, session };
        let mut failed = None;
        let is_whole = read_pieces(REMOTE_PIECE, |piece| {
            remote.write(piece).unwrap_or_else(|failure| {
                failed = Some(failure);
                false
            })
        });
        let failed = match failed {
            None if is_whole => remote.end().err(),
            failed => failed,
        };
        if let Some(failure) = failed {
            let failure = Failure::from(failure);
            output::note(&format!(
                "interlock: standard input did not reach the command, which is ended: {failure}"
            ));
            let kill = ProcessKill {
                session_id: remote.session.clone(),
                ..ProcessKill::default()
            };
            if let Err(failure) = remote.gateway.request(&kill) {
                output::note(&format!(
                    "interlock: the command could not be ended: {}",
                    Failure::from(failure)
                ));
            }
        }
    });
}

/// Writes the input of a run through a gateway.
struct RemoteInput {
    gateway: GatewayClient,
    session: String,
}

impl RemoteInput {
    /// Writes all bytes, and waits while the input buffer of the run is full. Returns `false` if
    /// the run no longer reads its input.
    fn write(&mut self, bytes: &[u8]) -> Result<bool, CallFailure> {
        // `write` takes only text; `send-keys` takes other bytes as hexadecimal digits.
        let action = if let Ok(text) = std::str::from_utf8(bytes) {
            ProcessPerform::on_session("write", &self.session).with("data", text)
        } else {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            ProcessPerform::on_session("send-keys", &self.session).with("hex", digits)
        };
        loop {
            match self.gateway.request(&action) {
                Ok(_) => return Ok(true),
                Err(failed) => match failed.detail.as_deref() {
                    Some("STDIN_FULL") => std::thread::sleep(PAUSE),
                    Some(code) if reads_no_more(code) => return Ok(false),
                    _ => return Err(failed),
                },
            }
        }
    }

    fn end(&mut self) -> Result<(), CallFailure> {
        let action = ProcessPerform::on_session("write", &self.session)
            .with("data", "")
            .with("eof", true);
        match self.gateway.request(&action) {
            Err(failed) if failed.detail.as_deref().is_some_and(reads_no_more) => Ok(()),
            ended => ended.map(|_| ()),
        }
    }
}

/// Error codes of runs that no longer read input: they have ended or have closed it.
const READS_NO_MORE: &[&str] = &[
    "SESSION_FINISHED",
    "SESSION_NOT_FOUND",
    "SESSION_LOST",
    "STDIN_CLOSED",
];

fn reads_no_more(code: &str) -> bool {
    READS_NO_MORE.contains(&code)
}

/// Writes all bytes, and waits while the input buffer of the run is full. Returns `false` if the
/// run no longer reads its input.
fn write(link: &SessionLink, bytes: &[u8]) -> bool {
    loop {
        match link.write(bytes, false) {
            Ok(()) => return true,
            Err(error) if error.code() == "STDIN_FULL" => std::thread::sleep(PAUSE),
            Err(_) => return false,
        }
    }
}
