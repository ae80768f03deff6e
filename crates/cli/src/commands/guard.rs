//! The hidden command that becomes the guard of a supervisor. It reads no config and no policy: it
//! decides nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use interlock_run::supervisor::{Place, guard};

use super::{Outcome, state_dir};
use crate::args::{GuardArguments, StateArguments};
use crate::failure::Failure;

pub fn run(state: &StateArguments, arguments: &GuardArguments) -> Outcome {
    let unusable =
        |error: std::io::Error| Failure::refused("SUPERVISOR_UNAVAILABLE", error.to_string());
    let place = Place::new(&state_dir(state)?);
    let stdout = std::io::stdout();
    let ready = File::from(stdout.as_fd().try_clone_to_owned().map_err(unusable)?);
    let idle_time = arguments.idle_ms.map(Duration::from_millis);
    guard(&place, &arguments.supervisor_version, idle_time, ready).map_err(unusable)?;
    Ok(ExitCode::SUCCESS)
}
