//! Interlock's own `cd : true false pwd test [`. They change nothing: the plan has already
//! resolved where every command runs.

use std::io;
use std::os::fd::OwnedFd;

use interlock_programs::builtins::Builtin;

use super::checked::may_enter;
use super::condition::{self, ConditionResult};
use super::error::words;
use super::launcher::Launcher;
use super::streams::Streams;

/// Runs a builtin and returns its exit status. It uses the directories that were opened for the
/// run, whatever their paths lead to by now.
pub(super) fn run(
    name: &str,
    arguments: &[String],
    cwd: &str,
    launcher: &Launcher,
    streams: &Streams,
) -> i32 {
    let Some(builtin) = Builtin::named(name) else {
        return complain(streams, name, "not one of Interlock's own commands", 127);
    };
    if let Err(reason) = builtin.accepts(arguments) {
        return complain(streams, name, reason, 2);
    }
    match builtin {
        Builtin::Colon | Builtin::True => 0,
        Builtin::False => 1,
        Builtin::Cd => cd(arguments, cwd, launcher, streams),
        Builtin::Pwd => pwd(cwd, streams),
        Builtin::Test | Builtin::Bracket => {
            let expression = match builtin {
                Builtin::Bracket => arguments.split_last().map_or(arguments, |(_, rest)| rest),
                _ => arguments,
            };
            let evaluated = match launcher.directory(cwd) {
                Ok(directory) => condition::evaluate(expression, directory, streams),
                Err(error) => Err(error.to_string()),
            };
            match evaluated {
                Ok(ConditionResult::True) => 0,
                Ok(ConditionResult::False) => 1,
                Err(reason) => complain(streams, name, &reason, 2),
            }
        }
    }
}

/// Checks only whether `cd` would succeed: later commands get their directory from the plan.
fn cd(arguments: &[String], cwd: &str, launcher: &Launcher, streams: &Streams) -> i32 {
    let Some(target) = arguments.last() else {
        return complain(streams, "cd", "no directory", 2);
    };
    let reason = match launcher.entered_directory(cwd, target) {
        Some(directory) => match may_enter(directory) {
            Ok(()) => return 0,
            Err(error) => words(&error),
        },
        None => "it is not in the plan".to_owned(),
    };
    complain(streams, "cd", &format!("{target}: {reason}"), 1)
}

/// The plan names directories by their canonical path, so `-L` and `-P` mean the same.
fn pwd(cwd: &str, streams: &Streams) -> i32 {
    let mut line = cwd.as_bytes().to_vec();
    line.push(b'\n');
    match write_all(&streams.stdout, &line) {
        Ok(()) => 0,
        // A real program would have ended by this signal.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 128 + libc::SIGPIPE,
        Err(_) => 1,
    }
}

/// Writes the reason to the stage's standard error, and returns the status.
pub(super) fn complain(streams: &Streams, name: &str, reason: &str, status: i32) -> i32 {
    let line = format!("interlock: {name}: {reason}\n");
    // The reader of the stream may be gone.
    let _ = write_all(&streams.stderr, line.as_bytes());
    status
}

pub(super) fn write_all(descriptor: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
