//! The owner's own program. It is not a run of an agent: the owner named it in the config, and it
//! is started as written there.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_approvals::SessionEvent;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::dispatcher::Dispatcher;
use crate::work::blocking;

/// The time limit of one attempt.
const TIME: Duration = Duration::from_secs(30);

/// The interval of checks for its end.
const LOOK: Duration = Duration::from_millis(20);

/// Starts the program once, with the event in its environment and as JSON on its standard input.
pub(super) async fn run(
    dispatcher: &Arc<Dispatcher>,
    argv: &[String],
    event: &SessionEvent,
    body: &str,
) -> Result<(), String> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err("gateway.wake.command is empty".to_owned());
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&dispatcher.environment)
        .env("INTERLOCK_EVENT_ID", event.id.to_string())
        .env("INTERLOCK_EVENT_KIND", event.kind.as_str())
        .env("INTERLOCK_EVENT_SESSION", &event.session_key)
        .env("INTERLOCK_EVENT_AGENT", &event.agent)
        .env("INTERLOCK_EVENT_RUN", &event.run_id)
        .env("INTERLOCK_EVENT_TEXT", event.text.replace('\0', ""))
        .current_dir(dispatcher.host.state_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let body = body.to_owned();
    let ran = blocking(move || start(&mut command, &body)).await;
    ran.unwrap_or_else(|error| Err(error.to_string()))
}

fn start(command: &mut Command, body: &str) -> Result<(), String> {
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // The command need not read its input, so this thread does not wait for that.
        let body = body.to_owned();
        std::thread::spawn(move || input.write_all(body.as_bytes()));
    }
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("ended with {status}")),
            Ok(None) if began.elapsed() < TIME => std::thread::sleep(LOOK),
            Ok(None) => {
                end(&mut child);
                return Err(format!("took longer than {} seconds", TIME.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Ends the program, and everything that it started in its process group.
fn end(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}
