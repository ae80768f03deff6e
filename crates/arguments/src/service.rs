//! Services of the system that run the gateway or the node host.

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
    /// Leave the service as it is until the next start of the system, or of the session
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
    /// Where units lie, for tests
    #[arg(long, value_name = "DIR", hide = true)]
    pub unit_dir: Option<PathBuf>,
}
