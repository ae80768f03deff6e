//! The flags of services that run the gateway, the node host or the companion.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct ServiceInstallArguments {
    /// Print the unit, and change nothing
    #[arg(long, conflicts_with = "json")]
    pub print: bool,
    /// Replace a file of the same name that Interlock did not write
    #[arg(long)]
    pub force: bool,
    /// Do not start or restart the service now; it starts with the system or the session
    #[arg(long)]
    pub no_start: bool,
    #[command(flatten)]
    pub service: ServiceArguments,
}

#[derive(Debug, Args)]
pub struct ServiceArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The directory of units, for tests
    #[arg(long, value_name = "DIR", hide = true)]
    pub unit_dir: Option<PathBuf>,
}
