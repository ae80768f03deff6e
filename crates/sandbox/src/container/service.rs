//! Podman without a service of its own: Interlock makes it open its API on a socket in the state
//! directory. Podman ends by itself after it was not called for a while.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use interlock_plan::SandboxBackend;

use super::engine_api::{EngineApi, one_line};
use super::unreachable;
use crate::error::SandboxError;

/// Paths where podman is looked for, in directories that only root can write to.
const PLACES: [&str; 3] = [
    "/usr/bin/podman",
    "/usr/local/bin/podman",
    "/run/current-system/sw/bin/podman",
];

/// The directory of the socket, below the state directory.
const DIRECTORY: &str = "sandboxes";
const SOCKET: &str = "podman.sock";

/// Podman ends after this many seconds without a call.
const IDLE_SECONDS: &str = "120";

const PATIENCE: Duration = Duration::from_secs(15);

/// How often to check whether podman answers.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns the API of podman, and opens it if necessary.
pub(super) fn podman_service(state_dir: &Path) -> Result<(EngineApi, PathBuf), SandboxError> {
    let directory = state_dir.join(DIRECTORY);
    let socket = directory.join(SOCKET);
    let failed = |error: io::Error| unreachable(SandboxBackend::Podman, &socket, &error);
    if let Ok(api) = EngineApi::at(&socket)
        && api.is_there()
    {
        return Ok((api, socket));
    }
    let mut private = DirBuilder::new();
    private.recursive(true).mode(0o700);
    private.create(&directory).map_err(failed)?;
    open_service(&socket).map_err(failed)?;
    let api = EngineApi::at(&socket).map_err(failed)?;
    Ok((api, socket))
}

/// Starts podman, and returns once it answers.
pub(super) fn open_service(socket: &Path) -> io::Result<()> {
    let lock = File::create(socket.with_extension("lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let is_there = || EngineApi::at(socket).is_ok_and(|api| api.is_there());
    // Another process was faster.
    if is_there() {
        return Ok(());
    }
    let program = PLACES.iter().find(|place| Path::new(place).is_file());
    let program = program.ok_or_else(|| io::Error::other("podman is not installed"))?;
    let address = format!("unix://{}", socket.display());
    let mut child = Command::new(program)
        .args(["system", "service", "--time", IDLE_SECONDS, &address])
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let until = Instant::now() + PATIENCE;
    loop {
        if is_there() {
            // A thread collects podman whenever it ends, and discards its output.
            std::thread::spawn(move || {
                let errors = child.stderr.take();
                let _ = errors.map(|mut errors| io::copy(&mut errors, &mut io::sink()));
                child.wait()
            });
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            let mut said = String::new();
            let errors = child.stderr.take();
            let _ = errors.map(|errors| errors.take(4_096).read_to_string(&mut said));
            let said = one_line(&said);
            return Err(io::Error::other(format!(
                "podman ended with {status}: {said}"
            )));
        }
        if Instant::now() >= until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(PAUSE);
    }
}
