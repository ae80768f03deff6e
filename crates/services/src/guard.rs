//! The hidden command that becomes the guard of a supervisor:
//!
//! `interlock guard --state-dir DIR [--supervisor-version VERSION] [--idle-ms MILLISECONDS]
//! [--open-files LIMIT]`
//!
//! Only Interlock itself calls this command. It reads no config and no policy, and decides nothing.
//! It parses its arguments by hand, because the two processes that stay alive would otherwise keep
//! the memory of the command-line parser.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use interlock_supervisor::{SupervisorPaths, guard};
use rustix::process::{Resource, Rlimit};

/// Runs the guard. Returns `None` if the command line names another command.
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "guard" {
        return None;
    }
    Some(match become_guard(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // The process that started the guard reads the error from stdout.
            println!("{why}");
            ExitCode::FAILURE
        }
    })
}

fn become_guard(mut arguments: impl Iterator<Item = OsString>) -> Result<(), String> {
    let mut state_dir = None;
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    let mut idle_time = None;
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("a value is missing")?;
        let text = || value.clone().into_string().map_err(|_| "not text");
        match name.to_str() {
            Some("--state-dir") => state_dir = Some(PathBuf::from(value)),
            Some("--supervisor-version") => version = text()?,
            Some("--idle-ms") => {
                let time = text()?.parse().map_err(|_| "not a number")?;
                idle_time = Some(Duration::from_millis(time));
            }
            Some("--open-files") => {
                let limit = text()?.parse().map_err(|_| "not a number")?;
                limit_open_files(limit);
            }
            _ => return Err(format!("unknown argument {}", name.display())),
        }
    }
    let state_dir = state_dir.ok_or("--state-dir is missing")?;
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    let ready = File::from(stdout.map_err(|error| error.to_string())?);
    guard(
        &SupervisorPaths::new(&state_dir),
        &version,
        idle_time,
        ready,
    )
    .map_err(|error| error.to_string())
}

/// Sets the limit of open files for runs, because the process that started the guard may have
/// raised its own limit.
fn limit_open_files(limit: u64) {
    let own = rustix::process::getrlimit(Resource::Nofile);
    let lowered = Rlimit {
        current: Some(own.maximum.map_or(limit, |most| most.min(limit))),
        maximum: own.maximum,
    };
    let _ = rustix::process::setrlimit(Resource::Nofile, lowered);
}
