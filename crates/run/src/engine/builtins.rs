//! Interlock's own `cd : true false pwd test [`. They change nothing: the plan has already
//! resolved where every command runs.

use std::io;
use std::os::fd::OwnedFd;

use interlock_command::builtins::Builtin;

use super::checked::{may_enter, open_path};
use super::condition::{self, Verdict};
use super::error::words;
use super::streams::Streams;

/// Runs a builtin and returns its exit status.
pub(super) fn run(name: &str, arguments: &[String], cwd: &str, streams: &Streams) -> i32 {
    let Some(builtin) = Builtin::named(name) else {
        return complain(streams, name, "not one of Interlock's own commands", 127);
    };
    if let Err(reason) = builtin.accepts(arguments) {
        return complain(streams, name, reason, 2);
    }
    match builtin {
        Builtin::Colon | Builtin::True => 0,
        Builtin::False => 1,
        Builtin::Cd => cd(arguments, cwd, streams),
        Builtin::Pwd => pwd(arguments, cwd, streams),
        Builtin::Test | Builtin::Bracket => {
            let expression = match builtin {
                Builtin::Bracket => arguments.split_last().map_or(arguments, |(_, rest)| rest),
                _ => arguments,
            };
            match condition::evaluate(expression, cwd, streams) {
                Ok(Verdict::True) => 0,
                Ok(Verdict::False) => 1,
                Err(reason) => complain(streams, name, &reason, 2),
            }
        }
    }
}

/// Only whether it would succeed: the commands behind it know their directory from the plan.
fn cd(arguments: &[String], cwd: &str, streams: &Streams) -> i32 {
    let Some(directory) = arguments.last() else {
        return complain(streams, "cd", "no directory", 2);
    };
    let path = condition::against(cwd, directory);
    match open_path(&path).and_then(|opened| may_enter(&opened)) {
        Ok(()) => 0,
        Err(error) => complain(streams, "cd", &format!("{directory}: {}", words(&error)), 1),
    }
}

fn pwd(arguments: &[String], cwd: &str, streams: &Streams) -> i32 {
    let physical = arguments.iter().any(|argument| argument == "-P");
    let mut line = if physical {
        use std::os::unix::ffi::OsStringExt as _;
        match std::fs::canonicalize(cwd) {
            Ok(path) => path.into_os_string().into_vec(),
            Err(error) => return complain(streams, "pwd", &words(&error), 1),
        }
    } else {
        cwd.as_bytes().to_vec()
    };
    line.push(b'\n');
    match write_all(&streams.stdout, &line) {
        Ok(()) => 0,
        // As a program in its place would have ended.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 128 + libc::SIGPIPE,
        Err(_) => 1,
    }
}

/// Says why on the stage's standard error; the status is handed through.
pub(super) fn complain(streams: &Streams, name: &str, reason: &str, status: i32) -> i32 {
    let line = format!("interlock: {name}: {reason}\n");
    // Nobody may be listening any more.
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
