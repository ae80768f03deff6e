//! `install`, `uninstall`, `start`, `stop` and `restart`: runs the gateway, the node host or the
//! desktop companion as a service, with systemd on Linux and launchd on macOS. Root gets a service
//! of the machine, other accounts a service of the user.
//!
//! A file that Interlock did not write is neither removed nor replaced, unless the owner passes
//! `--force` to `install`. A unit must not contain a secret: the token of a node is in a file of
//! the state directory that only its owner can read.

mod autostart;
mod definition;
mod files;
mod launchd;
mod manager;
mod systemd;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use interlock_arguments::{ServiceArguments, ServiceInstallArguments, StateArguments};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::LocalHost;
use serde_json::{Value, json};

pub use autostart::{install_autostart, uninstall_autostart};
pub use definition::{ServiceDefinition, ServiceKind};
use definition::{Unwritable, marker, name, text};
use files::{FoundUnit, remove, write};
use manager::{Manager, ManagerWork, ServiceScope};

/// The exit code after which the manager must not restart a service: its configuration is wrong.
pub const DO_NOT_RESTART: u8 = 78;

/// How long the manager waits before it restarts a failed service.
const RESTART_SECONDS: u64 = 5;

/// How long a service may take until it answers, before a note says that it does not.
const READY_TIME: Duration = Duration::from_secs(10);
/// How often the command checks whether the service answers.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a command changed, for its output.
#[derive(Debug, Default)]
struct ServiceReport {
    written: Vec<PathBuf>,
    removed: Vec<PathBuf>,
    ran: Vec<String>,
    notes: Vec<String>,
}

impl ServiceReport {
    fn print(self, manager: &Manager, name: &str, is_running: Option<bool>, json: bool) {
        let shown = |paths: &[PathBuf]| -> Vec<String> {
            paths
                .iter()
                .map(|path| path.display().to_string())
                .collect()
        };
        let (written, removed) = (shown(&self.written), shown(&self.removed));
        if json {
            output::print_json(&json!({
                "service": name,
                "manager": manager.kind,
                "scope": manager.scope,
                "file": manager.file(name).display().to_string(),
                "written": written,
                "removed": removed,
                "ran": self.ran,
                "running": is_running,
            }));
        } else {
            let lines = [("wrote", written), ("removed", removed), ("ran", self.ran)];
            for (what, all) in lines {
                for one in all {
                    output::print(&format!("{what:<8}{}\n", output::visible(&one)));
                }
            }
        }
        for note in self.notes {
            output::note(&format!("hint: {note}"));
        }
    }
}

/// The process that a service keeps running.
pub trait KeptProcess {
    fn kind(&self) -> ServiceKind;
    /// The process that serves this state directory now, whether or not the service started it.
    fn pid(&self) -> Option<u32>;
    /// Ends the process and waits until it has ended.
    fn end(&self) -> Result<(), Failure>;
}

/// Writes the unit, enables it and starts it. A second call changes nothing.
pub fn install(
    state: &StateArguments,
    service: &ServiceDefinition,
    kept: &dyn KeptProcess,
    secret: Option<(&Path, &str)>,
    arguments: &ServiceInstallArguments,
) -> CommandOutcome {
    let manager = Manager::here(service.kind, arguments.service.unit_dir.as_deref())?;
    let (name, text) = (&service.name, manager.text(service)?);
    if arguments.print {
        output::print(&text);
        if let Some((path, _)) = secret {
            output::note(&format!(
                "hint: it reads the token from {}: write it there, for its owner only",
                path.display()
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    interlock_client::outside_runs(&service.state_dir)?;
    available(state, &manager, service.kind, name)?;
    check_program(state, service)?;
    let file = manager.file(name);
    let before = FoundUnit::at(&file, service.kind)?;
    if matches!(before, FoundUnit::Foreign) && !arguments.force {
        let message = format!("{} was not written by interlock", file.display());
        return Err(Failure::refused("SERVICE_FILE_FOREIGN", message)
            .with_hint("look at it; --force replaces it"));
    }
    let mut done = ServiceReport::default();
    if let Some((path, secret)) = secret {
        write(path, &format!("{secret}\n"), 0o600)?;
        done.written.push(path.to_owned());
    }
    let is_new = !matches!(&before, FoundUnit::Interlock(old) if *old == text);
    if is_new {
        write(&file, &text, 0o644)?;
        done.written.push(file);
    }
    manager.work(ManagerWork::Load, name, &mut done.ran)?;
    let mut is_running = None;
    if !arguments.no_start {
        end_other(&manager, name, kept)?;
        // A process with an older unit or an older token must restart.
        let work = if is_new || secret.is_some() {
            ManagerWork::Restart
        } else {
            ManagerWork::Start
        };
        manager.work(work, name, &mut done.ran)?;
        is_running = Some(wait(kept));
        if is_running == Some(false) {
            let log = manager.log_command(name);
            done.notes
                .push(format!("it does not answer yet; see why: {log}"));
        }
    }
    if is_new
        && service.kind != ServiceKind::Companion
        && (manager.kind, manager.scope) == (manager::ManagerKind::Systemd, ServiceScope::User)
    {
        let linger = "to keep it running when you are logged out: loginctl enable-linger";
        done.notes.push(linger.to_owned());
    }
    done.print(&manager, name, is_running, arguments.service.json);
    Ok(ExitCode::SUCCESS)
}

/// Refuses a program in a build directory. A service outlives the build: the next build replaces
/// the program, `cargo clean` removes it, and every account that can build can change it.
pub(super) fn check_program(
    state: &StateArguments,
    service: &ServiceDefinition,
) -> Result<(), Failure> {
    let is_build_directory = |directory: &Path| {
        directory.file_name().is_some_and(|name| name == "target")
            || directory.join(".rustc_info.json").exists()
    };
    let mut above = service.program.ancestors().skip(1);
    let Some(directory) = above.find(|directory| is_build_directory(directory)) else {
        return Ok(());
    };
    let message = format!(
        "{} is in the build directory {}, which the next build changes",
        service.program.display(),
        directory.display()
    );
    let again = state.in_command(&format!(
        "interlock {} install{}",
        service.kind,
        service.kind.required_flags()
    ));
    Err(Failure::refused("SERVICE_PROGRAM_TEMPORARY", message).with_hint(format!(
        "install the program, and call the installed one: cargo install --path crates/cli --locked, then {again}"
    )))
}

/// Warns if commands of the service would run as root because no other account is set.
pub fn warn_root(state: &StateArguments, host: &LocalHost, remedy: &str) -> Result<(), Failure> {
    let has_account = host.config()?.config().tools.exec.run_as.is_some();
    if rustix::process::geteuid().is_root() && !has_account {
        output::note(&format!(
            "warning: commands will run as root, and root can undo the shield; give them another account: {}",
            state.in_command(remedy)
        ));
    }
    Ok(())
}

/// Stops the service and removes the files that `install` wrote.
pub fn uninstall(
    state: &StateArguments,
    host: &LocalHost,
    kind: ServiceKind,
    secret: Option<&Path>,
    arguments: &ServiceArguments,
) -> CommandOutcome {
    interlock_client::outside_runs(host.state_dir())?;
    let manager = Manager::here(kind, arguments.unit_dir.as_deref())?;
    let name = name(kind, host.state_dir());
    let file = manager.file(&name);
    let mut done = ServiceReport::default();
    match FoundUnit::at(&file, kind)? {
        FoundUnit::Nothing => output::note(&format!("interlock: there is no service {name}")),
        FoundUnit::Foreign => {
            let message = format!("{} was not written by interlock", file.display());
            return Err(Failure::refused("SERVICE_FILE_FOREIGN", message)
                .with_hint("remove it yourself if it is not needed"));
        }
        FoundUnit::Interlock(_) => {
            let answers = manager.answers(&name);
            if answers.is_ok() {
                manager.work(ManagerWork::Unload, &name, &mut done.ran)?;
            } else {
                let end = match kind {
                    ServiceKind::Companion => "end its process".to_owned(),
                    _ => state.in_command(&format!("interlock {kind} stop")),
                };
                let note = format!("the service manager did not answer; if it still runs: {end}");
                done.notes.push(note);
            }
            remove(&file)?;
            done.removed.push(file);
            if answers.is_ok() {
                manager.work(ManagerWork::Forget, &name, &mut done.ran)?;
            }
        }
    }
    if let Some(secret) = secret.filter(|secret| secret.exists()) {
        remove(secret)?;
        done.removed.push(secret.to_owned());
    }
    done.print(&manager, &name, None, arguments.json);
    Ok(ExitCode::SUCCESS)
}

/// Starts the installed service.
pub fn start(
    state: &StateArguments,
    host: &LocalHost,
    kept: &dyn KeptProcess,
    arguments: &ServiceArguments,
) -> CommandOutcome {
    control(state, host, kept, ManagerWork::Start, arguments)
}

/// Whether `install` wrote a unit for this state directory.
pub fn is_installed(
    host: &LocalHost,
    kept: &dyn KeptProcess,
    arguments: &ServiceArguments,
) -> bool {
    let kind = kept.kind();
    Manager::here(kind, arguments.unit_dir.as_deref()).is_ok_and(|manager| {
        let file = manager.file(&name(kind, host.state_dir()));
        matches!(FoundUnit::at(&file, kind), Ok(FoundUnit::Interlock(_)))
    })
}

pub fn restart(
    state: &StateArguments,
    host: &LocalHost,
    kept: &dyn KeptProcess,
    arguments: &ServiceArguments,
) -> CommandOutcome {
    control(state, host, kept, ManagerWork::Restart, arguments)
}

fn control(
    state: &StateArguments,
    host: &LocalHost,
    kept: &dyn KeptProcess,
    work: ManagerWork,
    arguments: &ServiceArguments,
) -> CommandOutcome {
    interlock_client::outside_runs(host.state_dir())?;
    let kind = kept.kind();
    let manager = Manager::here(kind, arguments.unit_dir.as_deref())?;
    let name = name(kind, host.state_dir());
    if !matches!(
        FoundUnit::at(&manager.file(&name), kind)?,
        FoundUnit::Interlock(_)
    ) {
        let flags = kind.required_flags();
        let install = state.in_command(&format!("interlock {kind} install{flags}"));
        let run = state.in_command(&kind.foreground());
        let message = format!("no service is installed for this state directory ({name})");
        return Err(Failure::refused("SERVICE_NOT_INSTALLED", message)
            .with_hint(format!("install it: {install}; or run it here: {run}")));
    }
    available(state, &manager, kind, &name)?;
    let mut done = ServiceReport::default();
    end_other(&manager, &name, kept)?;
    manager.work(work, &name, &mut done.ran)?;
    let is_running = wait(kept);
    if !is_running {
        let log = manager.log_command(&name);
        done.notes
            .push(format!("it does not answer yet; see why: {log}"));
    }
    done.print(&manager, &name, Some(is_running), arguments.json);
    Ok(ExitCode::SUCCESS)
}

/// Stops the process of this state directory. If its service is active, the manager stops it, so
/// that it is not restarted. Otherwise a signal ends the process.
pub fn stop(
    host: &LocalHost,
    kept: &dyn KeptProcess,
    not_running: impl FnOnce() -> Failure,
    arguments: &ServiceArguments,
) -> CommandOutcome {
    interlock_client::outside_runs(host.state_dir())?;
    let kind = kept.kind();
    let manager = Manager::here(kind, arguments.unit_dir.as_deref())?;
    let name = name(kind, host.state_dir());
    let is_installed = matches!(
        FoundUnit::at(&manager.file(&name), kind)?,
        FoundUnit::Interlock(_)
    );
    let is_service = is_installed && manager.is_active(&name);
    let pid = kept.pid();
    let mut done = ServiceReport::default();
    if is_service {
        manager.work(ManagerWork::Stop, &name, &mut done.ran)?;
    } else if pid.is_none() {
        return Err(not_running());
    }
    if kept.pid().is_some() {
        kept.end()?;
    }
    if let Some(pid) = pid {
        output::note(&format!("interlock: the {kind} (pid {pid}) has ended"));
    }
    if is_service || arguments.json {
        done.print(&manager, &name, Some(false), arguments.json);
    }
    Ok(ExitCode::SUCCESS)
}

/// The service as `status` shows it in JSON.
pub fn status(host: &LocalHost, kind: ServiceKind) -> Value {
    let Ok(manager) = Manager::here(kind, None) else {
        return Value::Null;
    };
    let name = name(kind, host.state_dir());
    let file = manager.file(&name);
    let is_installed = matches!(FoundUnit::at(&file, kind), Ok(FoundUnit::Interlock(_)));
    if !is_installed {
        return Value::Null;
    }
    json!({
        "name": name,
        "file": file.display().to_string(),
        "active": manager.is_active(&name),
    })
}

/// Ends a process that runs without the service, started by hand or by a client: it would keep the
/// service from starting.
fn end_other(manager: &Manager, name: &str, kept: &dyn KeptProcess) -> Result<(), Failure> {
    match kept.pid() {
        Some(pid) if !manager.is_active(name) => {
            kept.end()?;
            let kind = kept.kind();
            output::note(&format!(
                "interlock: ended the {kind} (pid {pid}) that ran without the service; runs go on"
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn wait(kept: &dyn KeptProcess) -> bool {
    let began = Instant::now();
    while kept.pid().is_none() {
        if began.elapsed() > READY_TIME {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

fn available(
    state: &StateArguments,
    manager: &Manager,
    kind: ServiceKind,
    name: &str,
) -> Result<(), Failure> {
    manager.answers(name).map_err(|problem| {
        let run = state.in_command(&kind.foreground());
        let message = format!("no service manager answers here: {problem}");
        let other = match kind {
            ServiceKind::Companion => "install --autostart writes an entry of the desktop instead",
            _ => "install --print gives the unit, for you to place",
        };
        Failure::refused("SERVICE_MANAGER_UNAVAILABLE", message)
            .with_hint(format!("{other}; or run it in the foreground: {run}"))
    })
}
