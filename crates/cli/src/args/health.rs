use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum SecurityCommand {
    /// Look for what weakens the policy: config, approvals document, files, shield, gateway
    #[command(after_help = "\
Example:
  interlock security audit --deep

Each finding has a stable id, a severity, the reason and a command to paste. The exit code is 1 when a finding
is critical. The audit changes nothing. --deep also asks the gateway that runs, and its nodes.")]
    Audit(SecurityAuditArguments),
}

impl SecurityCommand {
    pub(super) fn wants_json(&self) -> bool {
        let Self::Audit(audit) = self;
        audit.json
    }
}

#[derive(Debug, Args)]
pub struct SecurityAuditArguments {
    /// Also probe the gateway that runs, the shield and the connected nodes
    #[arg(long)]
    pub deep: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
