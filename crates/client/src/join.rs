//! Finds the gateway of a state directory, or starts one, for commands that are clients of a
//! gateway.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interlock_arguments::StateArguments;
use interlock_console::{Failure, output};
use interlock_gateway::{GatewayInfo, running};
use interlock_host::LocalHost;

/// The log of a gateway in the background, in the state directory.
const LOG: &str = "gateway.log";

/// The next gateway truncates a log that is larger than this.
const MAX_LOG_BYTES: u64 = 10 * 1024 * 1024;

/// How long a gateway may take until it answers calls.
const START_TIME: Duration = Duration::from_secs(20);
/// How often the command checks whether the gateway answers.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How many bytes of the log an error message shows.
const SHOWN_BYTES: i64 = 2_000;

/// What to do if no gateway runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    Start,
    Refuse,
}

impl Absent {
    /// What the flags of the command ask for.
    pub fn wanted(state: &StateArguments) -> Self {
        if state.no_spawn {
            Self::Refuse
        } else {
            Self::Start
        }
    }
}

/// The gateway of this state directory. One that is started stays, so it is said how to end it.
/// Where two programs start one at once, one of the two lives on, and both join that.
pub fn join(
    state: &StateArguments,
    host: &LocalHost,
    absent: Absent,
) -> Result<GatewayInfo, Failure> {
    let directory = host.state_dir();
    if let Some(info) = running(directory) {
        return Ok(info);
    }
    if absent == Absent::Refuse {
        let run = state.in_command("interlock gateway run");
        let message = "no gateway runs for this state directory";
        return Err(
            Failure::refused("GATEWAY_NOT_RUNNING", message).with_hint(format!("start one: {run}"))
        );
    }
    // The gateway trusts the process that starts it, so a run must not start it.
    crate::state::outside_runs(directory)?;
    let child = start(state, directory)?;
    let pid = child.id();
    let info = wait(directory, child)?;
    if info.pid == pid {
        let stop = state.in_command("interlock gateway stop");
        output::note(&format!(
            "interlock: started a gateway in the background (pid {pid}); end it: {stop}"
        ));
    }
    Ok(info)
}

fn start(state: &StateArguments, directory: &Path) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused("GATEWAY_NOT_STARTED", format!("no gateway: {error}"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    let log = open_log(&directory.join(LOG)).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["gateway", "run", "--detach", "--state-dir"]);
    command.arg(directory);
    if let Some(config) = &state.config {
        // The gateway starts in another directory, so the path must be absolute.
        command.arg("--config");
        command.arg(std::path::absolute(config).map_err(failed)?);
    }
    // The gateway outlives this command. It must not keep files of a script open, such as a lock or
    // the end of a pipe.
    interlock_engine::close_others_on_exec();
    command
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .spawn()
        .map_err(failed)
}

fn open_log(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.len() > MAX_LOG_BYTES {
        file.set_len(0)?;
    }
    Ok(file)
}

fn wait(directory: &Path, mut child: Child) -> Result<GatewayInfo, Failure> {
    let until = Instant::now() + START_TIME;
    let mut ended = None;
    loop {
        if let Some(info) = running(directory) {
            return Ok(info);
        }
        // The child may have ended because another gateway started first. Keep waiting for that
        // one.
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
        {
            ended = Some((status, Instant::now()));
        }
        let is_over = |at: &Instant| at.elapsed() > Duration::from_secs(2);
        if ended.as_ref().is_some_and(|(_, at)| is_over(at)) || Instant::now() > until {
            let what = match ended {
                Some((status, _)) => format!("the gateway ended at once ({status})"),
                None => "the gateway cannot be called yet".to_owned(),
            };
            let log_end = tail(&directory.join(LOG)).unwrap_or_default();
            let message = format!("{what}: {}", output::visible(log_end.trim()));
            let log = directory.join(LOG);
            return Err(Failure::refused("GATEWAY_NOT_STARTED", message)
                .with_hint(format!("see {}", log.display())));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = i64::try_from(file.metadata()?.len()).unwrap_or(i64::MAX);
    file.seek(SeekFrom::End(-length.min(SHOWN_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
