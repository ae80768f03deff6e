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

Shows pending approvals as desktop notifications: Review opens the approval in a browser, Deny denies it. A
notification is closed when its approval ends. Closing or dismissing one decides nothing, and its buttons work only from
700 ms after it appeared. More than three approvals share one notification with a count.

With --allow there is also Allow once, for commands of at most 180 characters that are shown in full, whose binding is
native or file and that run inside the sandbox of their conversation. The button is missing while the desktop session is
locked, if the lock state is unknown, and while a run is active, because a run that reaches the desktop could press it.

The companion needs the session bus and a notification server (org.freedesktop.Notifications)."
)]
pub struct CompanionArguments {
    /// Add Allow once for short commands that are shown in full
    #[arg(long)]
    pub allow: bool,
    #[command(subcommand)]
    pub command: Option<CompanionCommand>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum CompanionCommand {
    /// Start the companion with every desktop session of this account: systemd, or an autostart
    /// entry
    #[command(after_help = "\
Examples:
  interlock companion install
  interlock companion install --autostart
  interlock companion install --print

Writes a unit for the user's systemd that starts with the graphical session. If there is no such systemd, or the desktop
does not announce its session to it, use --autostart, which writes an entry into the autostart directory instead.")]
    Install(CompanionInstallArguments),
    /// Stop the companion and remove what `install` wrote
    #[command(after_help = "Example:\n  interlock companion uninstall")]
    Uninstall(ServiceArguments),
}

#[derive(Debug, Args)]
pub struct CompanionInstallArguments {
    /// Add Allow once for short commands that are shown in full
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
