//! `interlock companion install`: starts the companion with every desktop session of this account.

use std::ffi::OsString;

use interlock_approvals::companion::desktop_companion;
use interlock_arguments::{CompanionInstallArguments, ServiceArguments, StateArguments};
use interlock_client::open;
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::LocalHost;

use super::gateway::end_process;
use super::service::{self, KeptProcess, ServiceDefinition, ServiceKind};

pub fn install(state: &StateArguments, arguments: &CompanionInstallArguments) -> CommandOutcome {
    let host = open(state)?;
    let mut command: Vec<OsString> = vec!["companion".into()];
    if arguments.allow {
        command.push("--allow".into());
        if !arguments.install.print {
            output::note(
                "warning: Allow once can be pressed by every program that reaches this desktop session",
            );
        }
    }
    let service = ServiceDefinition::new(ServiceKind::Companion, state, &host, &command)?;
    if arguments.autostart {
        return service::install_autostart(state, &service, &arguments.install);
    }
    let shown = ShownCompanion(&host);
    service::install(state, &service, &shown, None, &arguments.install)
}

pub fn uninstall(state: &StateArguments, arguments: &ServiceArguments) -> CommandOutcome {
    let host = open(state)?;
    if service::uninstall_autostart(&host, arguments)? {
        return Ok(std::process::ExitCode::SUCCESS);
    }
    service::uninstall(state, &host, ServiceKind::Companion, None, arguments)
}

/// The companion process of this state directory, if one runs.
struct ShownCompanion<'a>(&'a LocalHost);

impl KeptProcess for ShownCompanion<'_> {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Companion
    }

    fn pid(&self) -> Option<u32> {
        desktop_companion(self.0.state_dir())
    }

    fn end(&self) -> Result<(), Failure> {
        let Some(pid) = self.pid() else {
            return Ok(());
        };
        end_process(pid, || self.pid() == Some(pid)).map_err(|problem| {
            let message = format!("the companion (pid {pid}): {problem}");
            Failure::refused("COMPANION_NOT_STOPPED", message)
        })
    }
}
