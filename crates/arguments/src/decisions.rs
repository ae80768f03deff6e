//! Deciding what waits, and reading the record of it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interlock_policy::AlwaysForm;

/// A list of at most no rows would show nothing and never end.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1 on is expected".to_owned()),
        Ok(number) => Ok(number),
    }
}

#[derive(Debug, Args)]
pub struct ApprovalsPendingArguments {
    /// Only this one, with all of what changed in its script: the id, its beginning, or the short id
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with = "id", value_parser = clap::value_parser!(u64).range(1..=500))]
    pub limit: u64,
    /// Go on where the last page ended
    #[arg(long, value_name = "CURSOR", conflicts_with = "id")]
    pub cursor: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsApproveArguments {
    /// The id, its beginning, or the short id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Also store entries, so that the same command is not asked about again; FORM is exact, leading:N
    /// (the first N arguments, then any), program (any arguments) or project (the words that decide, in
    /// this project), as far as it is offered
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "exact",
        conflicts_with_all = ["session", "lease"]
    )]
    pub always: Option<AlwaysForm>,
    /// Also the same command later in the same session, for 24 hours at most
    #[arg(long, conflicts_with = "lease")]
    pub session: bool,
    /// Also the same command in the same session for this time, such as 30m or 8h
    #[arg(long = "for", id = "lease", value_name = "DURATION")]
    pub lease: Option<String>,
    /// At most so many runs in that time, this one included
    #[arg(long, requires = "lease", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: Option<u32>,
    /// Show secrets in the command that are masked otherwise
    #[arg(long)]
    pub reveal: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsDenyArguments {
    /// The id, its beginning, or the short id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Why, in a sentence that the agent reads with the denial
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsWatchArguments {
    /// Print each approval as a block, and read decisions from standard input; without a terminal
    /// it is so anyway
    #[arg(long)]
    pub plain: bool,
    /// Do not listen on the approval socket of this machine; what waits is looked up all the same
    #[arg(long)]
    pub no_listen: bool,
    /// Show only what fits all words: agent:NAME, host:NAME, or text of the command or the conversation
    #[arg(long, value_name = "WORDS")]
    pub filter: Vec<String>,
    /// Do not ring the bell of the terminal when an approval comes
    #[arg(long)]
    pub no_bell: bool,
    /// Start this program when an approval comes; it finds its short id in INTERLOCK_APPROVAL, the agent in
    /// INTERLOCK_APPROVAL_AGENT and how many wait in INTERLOCK_APPROVALS_WAITING
    #[arg(long, value_name = "PROGRAM")]
    pub notify_command: Option<PathBuf>,
    /// Print a JSON object a line, and read decisions from standard input
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsSocketArguments {
    /// Print the token, which a companion needs; it is made if there is none
    #[arg(long)]
    pub token: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsGrantsArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsRevokeArguments {
    /// The id of the grant, or its beginning
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock policy replay --since 7d --with proposed.json5

Takes the commands of the audit and judges them by the policy in force, or with FILE as the approvals
document. Files are looked at as they are now; commands of which the audit hides a secret are left out.
The exit code is 0 if every verdict stays, 3 if some are stricter and none looser, 4 if one is looser.")]
pub struct PolicyReplayArguments {
    /// Only verdicts that are not older than this, such as 8h or 7d
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// At most so many verdicts, the newest ones
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = at_least_one)]
    pub limit: usize,
    /// Only verdicts for this agent
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// A proposed approvals document (JSON5) [default: the one in force]
    #[arg(long, visible_alias = "document", value_name = "FILE")]
    pub with: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock events --session agent:main:main --follow

The session itself still gets every event with its next call.")]
pub struct EventsArguments {
    /// The key of the session
    #[arg(long, value_name = "KEY")]
    pub session: String,
    /// Go on with what comes
    #[arg(long)]
    pub follow: bool,
    /// Print JSON; with --follow, a line for each event
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock doctor --fix

Says whether an audit record wrote the approvals document that is in force, what separates runs from Interlock
(a wall, the shield, or a guard only, and why), and what can be repaired. --fix closes files to other users, gives
safe bins an empty profile where they have none, renames the agent `default` to `main`, and takes over what is
stricter in a legacy exec-approvals.json. No repair weakens the policy, and a second --fix changes nothing.

Where no audit record wrote the document, it shows the difference to the recorded one, and nothing runs until
the owner restores or records it.")]
pub struct DoctorArguments {
    /// Make the repairs that are safe to make
    #[arg(long, conflicts_with_all = ["record_document", "restore_document"])]
    pub fix: bool,
    /// Record the approvals document that is in the database now, after you have looked at it
    #[arg(long, conflicts_with = "restore_document")]
    pub record_document: bool,
    /// Put back the approvals document that was recorded last
    #[arg(long)]
    pub restore_document: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum AuditCommand {
    /// Show records, the newest last
    #[command(after_help = "Example:\n  interlock audit log --kind decision --since 7d")]
    Log(AuditLogArguments),
    /// Check that no record was changed, removed or moved
    #[command(
        after_help = "Example:\n  interlock audit verify --head 120:9f86d0…\n\nWithout the head of an earlier day, records that were cut off at the end cannot be missed."
    )]
    Verify(AuditVerifyArguments),
    /// Write every record as a line of JSON, and the head as the last one
    #[command(after_help = "Example:\n  interlock audit export > audit.jsonl")]
    Export(AuditExportArguments),
    /// Print the head, to be kept elsewhere
    #[command(after_help = "Example:\n  interlock audit head")]
    Head(AuditHeadArguments),
    /// Move old records to files, and let the chain go on behind them
    #[command(
        after_help = "Example:\n  interlock audit archive --before 90d\n\nRecords are moved 1,024 at a time. Keep the files: `audit verify` begins behind them. A gateway does the same by itself where `audit.retention` is set."
    )]
    Archive(AuditArchiveArguments),
}

impl AuditCommand {
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Self::Log(log) => log.json,
            Self::Verify(verify) => verify.json,
            Self::Export(export) => export.json,
            Self::Head(head) => head.json,
            Self::Archive(archive) => archive.json,
        }
    }
}

#[derive(Debug, Args)]
pub struct AuditLogArguments {
    /// Only records of this kind, such as verdict, decision or run-ended
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Only records of this agent
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only records that are not older than this, such as 8h or 7d
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// At most so many, the newest ones
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = at_least_one)]
    pub limit: usize,
    /// Start with this record and go on to older ones: what the page before has named
    #[arg(long, value_name = "SEQ")]
    pub cursor: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditArchiveArguments {
    /// Records that are older than this, such as 90d
    #[arg(long, value_name = "DURATION")]
    pub before: String,
    /// The directory of the files [default: audit-archive in the state directory]
    #[arg(long, value_name = "DIR")]
    pub to: Option<std::path::PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditVerifyArguments {
    /// A head that was printed earlier: its record must still be there
    #[arg(long, value_name = "SEQ:HASH")]
    pub head: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditExportArguments {
    /// It is JSON in any case
    #[arg(long, hide = true)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditHeadArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
