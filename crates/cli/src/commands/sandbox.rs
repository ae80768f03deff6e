//! `interlock sandbox`, and the hidden command that becomes the init of a sandbox.

use std::process::ExitCode;

use interlock_engine::sandbox::{INIT_COMMAND, become_sandbox_init};

/// The hidden command. `None` where something else was asked for. Only the process of a run calls it; it
/// reads no config and no policy.
pub fn become_init() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != INIT_COMMAND {
        return None;
    }
    let code = become_sandbox_init();
    Some(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
