//! Decisions about approvals, events, the audit and `doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interlock_policy::AlwaysForm;

/// Parses a limit of rows. With a limit of 0, a list would show nothing and never end.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1 on is expected".to_owned()),
        Ok(number) => Ok(number),
    }
}

#[derive(Debug, Args)]
pub struct ApprovalsPendingArguments {
    /// Show only this approval, with every text in full: its id, the beginning of its id, or its
    /// short id
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with = "id", value_parser = clap::value_parser!(u64).range(1..=500))]
    pub limit: u64,
    /// Continue where the last page ended
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
    /// Also store entries, so that the same command needs no approval again; FORM is exact,
    /// leading:N (the first N arguments, then any), program (any arguments) or project (the words
    /// that decide what runs, in this project), if the approval offers it
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "exact",
        conflicts_with_all = ["session", "lease"]
    )]
    pub always: Option<AlwaysForm>,
    /// Also allow the same command later in the same session, for at most 24 hours
    #[arg(long, conflicts_with = "lease")]
    pub session: bool,
    /// Also allow the same command in the same session for this time, such as 30m or 8h
    #[arg(long = "for", id = "lease", value_name = "DURATION")]
    pub lease: Option<String>,
    /// Allow at most this many runs in that time, including this one
    #[arg(long, requires = "lease", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub uses: Option<u32>,
    /// Show secrets in the command, which are otherwise masked
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
    /// The reason, which the agent reads with the denial
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsWatchArguments {
    /// Print each approval as a block, and read decisions from standard input; the default without
    /// a terminal
    #[arg(long)]
    pub plain: bool,
    /// Do not listen on the approval socket of this machine; approvals are still read from the
    /// store
    #[arg(long)]
    pub no_listen: bool,
    /// Show only approvals that match all words: agent:NAME, host:NAME, or text of the command or
    /// the conversation
    #[arg(long, value_name = "WORDS")]
    pub filter: Vec<String>,
    /// Do not ring the terminal bell when an approval arrives
    #[arg(long)]
    pub no_bell: bool,
    /// Start this program when an approval arrives; INTERLOCK_APPROVAL holds its short id,
    /// INTERLOCK_APPROVAL_AGENT the agent, INTERLOCK_APPROVALS_WAITING the number of pending
    /// approvals
    #[arg(long, value_name = "PROGRAM")]
    pub notify_command: Option<PathBuf>,
    /// Print one JSON object per line, and read decisions from standard input
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ApprovalsSocketArguments {
    /// Print the token that a companion program needs; it is created if there is none
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

Judges the commands of the audit again: by the policy in force, or with FILE as the approvals document. Files are
judged as they are now. Commands in which the audit hides a secret are left out.
The exit code is 0 if no verdict changes, 3 if some are stricter and none is looser, 4 if at least one is looser.")]
pub struct PolicyReplayArguments {
    /// Only verdicts of this period, such as 8h or 7d
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// At most this many verdicts, the newest ones
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

Reading events here does not consume them: the session still gets every event with its next call.")]
pub struct EventsArguments {
    /// The key of the session
    #[arg(long, value_name = "KEY")]
    pub session: String,
    /// Keep printing new events
    #[arg(long)]
    pub follow: bool,
    /// Print JSON; with --follow, one line per event
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock doctor --fix

Shows whether the approvals document in force is recorded in the audit, what separates runs from Interlock (a wall, the
shield, or only a guard, and why), and what can be repaired. --fix closes files to other users, gives safe bins without a
profile an empty one, renames the agent `default` to `main`, and adopts the stricter rules of a legacy
exec-approvals.json. No repair weakens the policy, and a second --fix changes nothing.

If the document is not recorded, doctor shows the difference to the recorded one. Nothing runs until the owner restores
the recorded document or records the new one.")]
pub struct DoctorArguments {
    /// Make the repairs that are safe to make
    #[arg(long, conflicts_with_all = ["record_document", "restore_document"])]
    pub fix: bool,
    /// Record the approvals document that is in the database now; look at it first
    #[arg(long, conflicts_with = "restore_document")]
    pub record_document: bool,
    /// Restore the approvals document that was recorded last
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
        after_help = "Example:\n  interlock audit verify --head 120:9f86d0…\n\nOnly an earlier head reveals that records were cut off at the end."
    )]
    Verify(AuditVerifyArguments),
    /// Write every record as a line of JSON, and the head as the last line
    #[command(after_help = "Example:\n  interlock audit export > audit.jsonl")]
    Export(AuditExportArguments),
    /// Print the head of the chain, to keep it on another machine
    #[command(after_help = "Example:\n  interlock audit head")]
    Head(AuditHeadArguments),
    /// Move old records to files; the chain continues after them
    #[command(
        after_help = "Example:\n  interlock audit archive --before 90d\n\nRecords are moved 1,024 at a time. Keep the files: `audit verify` starts after the moved records. A gateway archives by itself if `audit.retention` is set."
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
    /// Only records of this period, such as 8h or 7d
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// At most this many records, the newest ones
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = at_least_one)]
    pub limit: usize,
    /// Start with this record and continue with older ones; the page before names it
    #[arg(long, value_name = "SEQ")]
    pub cursor: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditArchiveArguments {
    /// Move records that are older than this, such as 90d
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
    /// Has no effect: the output is always JSON
    #[arg(long, hide = true)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditHeadArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
