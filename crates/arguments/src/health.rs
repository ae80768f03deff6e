use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum SecurityCommand {
    /// Look for weaknesses in the policy: config, approvals document, files, shield, gateway
    #[command(after_help = "\
Examples:
  interlock security audit --deep
  interlock security audit --fix

Each finding has a stable id, a severity, the reason and a command to paste. The exit code is 1 if a finding is critical.
Without --fix the audit changes nothing. --fix first makes the repairs of `interlock doctor --fix`, which close files of
this user and never weaken the policy, and then lists the findings that are left. --deep also asks the running gateway and
its nodes.")]
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
    /// Also probe the running gateway, the shield and the connected nodes
    #[arg(long)]
    pub deep: bool,
    /// First make the repairs that need no judgment, such as closing files to other users
    #[arg(long)]
    pub fix: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ImportCommand {
    /// Import policy, config and allowlists from OpenClaw
    #[command(after_help = "\
Example:
  interlock import openclaw --dry-run
  interlock import openclaw --from ~/.openclaw

Reads the state directory of OpenClaw 2026.5 (JSON) or 2026.9 (SQLite), and changes nothing there. Levels and limits are
only tightened. Allowlist entries, agents and workspaces are imported and marked (allows more). Everything else that would
loosen the policy is not imported; the output shows the command that would set it. Tokens and passwords are never
imported.")]
    Openclaw(ImportOpenclawArguments),
}

impl ImportCommand {
    pub(super) fn wants_json(&self) -> bool {
        let Self::Openclaw(openclaw) = self;
        openclaw.json
    }
}

#[derive(Debug, Args)]
pub struct ImportOpenclawArguments {
    /// The state directory of OpenClaw [default: $OPENCLAW_STATE_DIR or ~/.openclaw]
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Show what would be imported, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
