//! `interlock companion`.

use clap::{Args, Subcommand};

use super::{ServiceArguments, ServiceInstallArguments};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Example:
  interlock companion
  interlock companion --allow
  interlock companion install

Shows what waits for a decision as notifications of the desktop: Review opens it in a browser, Deny denies it. A
notification is closed when its approval ends; closing or dismissing one decides nothing, and a button counts from 700 ms
after the notification appeared. More than three at once are one notification with a count.

With --allow there is also Allow once, for commands of at most 180 characters that are shown whole, of kind native or
file and inside the sandbox of their conversation. It is not there while the desktop session is locked, or where that is
not known, nor while a run is going on, because a run that reaches the desktop could press it.

It needs the session bus and a notification server (org.freedesktop.Notifications)."
)]
pub struct CompanionArguments {
    /// Add Allow once for short commands that are shown whole
    #[arg(long)]
    pub allow: bool,
    #[command(subcommand)]
    pub command: Option<CompanionCommand>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum CompanionCommand {
    /// Have the companion start with every desktop session of this account: systemd, or an autostart entry
    #[command(after_help = "\
Examples:
  interlock companion install
  interlock companion install --autostart
  interlock companion install --print

It is a unit of the user's systemd that starts with the graphical session. Where there is no such systemd, or the desktop
does not announce its session to it, --autostart writes an entry into the directory of autostart instead.")]
    Install(CompanionInstallArguments),
    /// Stop the companion and remove what `install` wrote
    #[command(after_help = "Example:\n  interlock companion uninstall")]
    Uninstall(ServiceArguments),
}

#[derive(Debug, Args)]
pub struct CompanionInstallArguments {
    /// Add Allow once for short commands that are shown whole
    #[arg(long)]
    pub allow: bool,
    /// Write an autostart entry of the desktop instead of a unit
    #[arg(long)]
    pub autostart: bool,
    #[command(flatten)]
    pub install: ServiceInstallArguments,
}

impl CompanionArguments {
    pub fn wants_json(&self) -> bool {
        match &self.command {
            Some(CompanionCommand::Install(install)) => install.install.service.json,
            Some(CompanionCommand::Uninstall(service)) => service.json,
            None => false,
        }
    }
}
