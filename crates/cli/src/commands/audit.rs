//! `interlock audit`: reads and checks the audit chain of this machine, or of the gateway that
//! `gateway.remote` names.

mod remote;

use std::io::Write as _;
use std::process::ExitCode;

use interlock_approvals::{
    ARCHIVE_NAME, ArchiveError, AuditFilter, AuditHead, AuditKind, AuditRecord, AuditVerification,
};
use interlock_arguments::{
    AuditArchiveArguments, AuditCommand, AuditLogArguments, AuditVerifyArguments, StateArguments,
};
use interlock_client::{
    GatewayClient, RemoteGateway, decider, known_agent, open_for_repair, outside_runs,
};
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure, milliseconds, time};
use interlock_host::{LocalHost, now_ms};
use interlock_policy::quote;
use interlock_rules::RulesError;
use interlock_wire::results::AuditEntry;
use serde_json::{Value, json};

pub fn run(state: &StateArguments, command: &AuditCommand) -> CommandOutcome {
    let host = open_for_repair(state)?;
    if RemoteGateway::followed(state, &host)?.is_some() {
        let gateway = GatewayClient::connect_running(state, &host)?;
        return remote::run(state, gateway, command);
    }
    take_connections(&host);
    match command {
        AuditCommand::Log(arguments) => log(state, &host, arguments),
        AuditCommand::Verify(arguments) => verify(&host, arguments),
        AuditCommand::Export(_) => export(&host),
        AuditCommand::Head(arguments) => {
            tell_head(&host.approvals().audit_head()?, arguments.json);
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::Archive(arguments) => archive(&host, arguments),
    }
}

/// Moves the recorded connections of sandboxed runs into the audit.
fn take_connections(host: &LocalHost) {
    if let Err(error) = host.record_connections() {
        output::note(&format!(
            "interlock: connections of sandboxed runs are not in the audit yet: {error}"
        ));
    }
}

fn archive(host: &LocalHost, arguments: &AuditArchiveArguments) -> CommandOutcome {
    let outside = outside_runs(host.state_dir())?;
    let age = milliseconds(&arguments.before)?;
    let before = i64::try_from(now_ms().saturating_sub(age)).unwrap_or(i64::MAX);
    let usual = || host.state_dir().join(ARCHIVE_NAME);
    let directory = arguments.to.clone().unwrap_or_else(usual);
    let archived = host
        .approvals()
        .audit_archive(before, &directory, &decider(), outside)
        .map_err(|error| match error {
            ArchiveError::Store(error) => RulesError::from(error).into(),
            ArchiveError::File { .. } => Failure::refused("ARCHIVE_UNWRITABLE", error.to_string()),
            ArchiveError::Broken(problem) => broken(problem.to_string()),
        })?;
    if arguments.json {
        let files = archived.iter().map(|one| {
            json!({ "file": one.file, "first": one.first, "last": one.head.seq, "head": one.head.to_string() })
        });
        output::print_json(&json!({ "archived": files.collect::<Vec<_>>() }));
        return Ok(ExitCode::SUCCESS);
    }
    if archived.is_empty() {
        output::note("nothing to archive: records are moved 1,024 at a time");
    }
    for one in archived {
        let file = one.file.display().to_string();
        let (first, last) = (one.first, one.head.seq);
        output::print(&format!("records {first} to {last}: {}\n", line(&file)));
    }
    Ok(ExitCode::SUCCESS)
}

/// A page of audit records, the newest first.
#[derive(Debug, Default)]
struct ListedRecords {
    records: Vec<AuditEntry>,
    /// How many records match in all. `None` if the gateway does not report it.
    total: Option<u64>,
    /// The next older matching record.
    next_cursor: Option<String>,
}

fn log(state: &StateArguments, host: &LocalHost, arguments: &AuditLogArguments) -> CommandOutcome {
    let kind = arguments.kind.as_deref().map(kind).transpose()?;
    let since = arguments.since.as_deref().map(milliseconds).transpose()?;
    let mut filter = AuditFilter {
        kind,
        agent: arguments.agent.clone(),
        since_ms: since.map(|ms| i64::try_from(now_ms().saturating_sub(ms)).unwrap_or(i64::MAX)),
        from_seq: arguments.cursor,
        ..AuditFilter::default()
    };
    let mut listed = ListedRecords::default();
    loop {
        filter.limit = Some(arguments.limit - listed.records.len());
        let page = host.approvals().audit_page(&filter)?;
        listed.records.extend(page.records.iter().map(entry));
        listed.total = Some(page.total);
        listed.next_cursor = page.next_seq.map(|seq| seq.to_string());
        filter.from_seq = page.next_seq;
        if page.next_seq.is_none() || listed.records.len() >= arguments.limit {
            break;
        }
    }
    if let Some(agent) = arguments.agent.as_deref()
        && listed.records.is_empty()
    {
        // The audit may name agents that the config no longer has, so check the name only now.
        known_agent(host, agent)?;
    }
    print_records(state, arguments, listed);
    Ok(ExitCode::SUCCESS)
}

/// Prints the newest record last.
fn print_records(state: &StateArguments, arguments: &AuditLogArguments, listed: ListedRecords) {
    let mut records = listed.records;
    records.reverse();
    if arguments.json {
        let mut answer = json!({ "records": records });
        if let Some(total) = listed.total {
            answer["total"] = total.into();
        }
        if let Some(cursor) = listed.next_cursor {
            answer["nextCursor"] = cursor.into();
        }
        output::print_json(&answer);
        return;
    }
    let paint = Paint::stdout();
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            vec![
                record.seq.to_string(),
                time(record.time_ms),
                line(&record.kind),
                paint.dim(&line(&summary(&record.body))),
            ]
        })
        .collect();
    output::print(&output::table(&rows, ""));
    if let Some(cursor) = listed.next_cursor {
        let of_total = listed
            .total
            .map_or_else(String::new, |total| format!(" of {total}"));
        output::note(&format!(
            "{}{of_total} records; go on: {}",
            records.len(),
            state.in_command(&next_page(arguments, &cursor))
        ));
    }
}

/// The command that shows the next older records.
fn next_page(arguments: &AuditLogArguments, cursor: &str) -> String {
    let mut command = "interlock audit log".to_owned();
    let options = [
        ("kind", &arguments.kind),
        ("agent", &arguments.agent),
        ("since", &arguments.since),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            command += &format!(" --{name} {}", quote(value));
        }
    }
    command + &format!(" --limit {} --cursor {}", arguments.limit, line(cursor))
}

fn tell_head(head: &AuditHead, json: bool) {
    if json {
        let hash = head.hash.to_string();
        output::print_json(&json!({ "seq": head.seq, "hash": hash }));
    } else {
        output::print(&format!("{head}\n"));
    }
}

fn tell_intact(head: &AuditHead, json: bool) {
    if json {
        let hash = head.hash.to_string();
        let head = json!({ "seq": head.seq, "hash": hash });
        output::print_json(&json!({ "intact": true, "head": head }));
    } else {
        output::print(&format!("intact: {} records, head {head}\n", head.seq));
    }
}

fn broken(problem: impl Into<String>) -> Failure {
    Failure::refused("AUDIT_BROKEN", problem)
        .with_hint("keep the database as it is, and compare with an earlier export")
}

fn kind(word: &str) -> Result<AuditKind, Failure> {
    AuditKind::from_word(word).ok_or_else(|| {
        let words: Vec<&str> = AuditKind::ALL.iter().map(|kind| kind.as_str()).collect();
        Failure::usage(
            "AUDIT_KIND_UNKNOWN",
            format!("no records are of kind `{word}`"),
        )
        .with_hint(format!("one of {}", words.join(", ")))
    })
}

fn entry(record: &AuditRecord) -> AuditEntry {
    AuditEntry {
        seq: record.seq,
        time_ms: record.time_ms,
        kind: record.kind.as_str().to_owned(),
        body: record.body.clone(),
        hash: record.hash.to_string(),
    }
}

/// The most important fields of a record, in the order in which they are shown.
const SHOWN_FIELDS: &[&str] = &[
    "agent",
    "verdict",
    "refused",
    "decision",
    "state",
    "command",
    "preview",
    "decider",
    "surface",
    "claimer",
    "shortId",
    "approvalId",
    "runId",
    "session",
    "document",
    "who",
    "newHash",
];

fn summary(body: &Value) -> String {
    let field = |name: &&str| {
        let text = body.get(*name)?.as_str()?;
        Some(format!("{name}={}", interlock_policy::quote(text)))
    };
    let parts: Vec<String> = SHOWN_FIELDS.iter().filter_map(field).collect();
    parts.join(" ")
}

fn verify(host: &LocalHost, arguments: &AuditVerifyArguments) -> CommandOutcome {
    let head = earlier_head(arguments)?;
    match host.approvals().audit_verify(head.as_ref())? {
        AuditVerification::Intact(head) => {
            tell_intact(&head, arguments.json);
            Ok(ExitCode::SUCCESS)
        }
        AuditVerification::Broken(problem) => Err(broken(problem.to_string())),
    }
}

fn earlier_head(arguments: &AuditVerifyArguments) -> Result<Option<AuditHead>, Failure> {
    let Some(text) = &arguments.head else {
        return Ok(None);
    };
    let head = text.parse::<AuditHead>().map_err(|error| {
        Failure::usage("AUDIT_HEAD_INVALID", error.to_string())
            .with_hint("take it from `interlock audit head`")
    })?;
    Ok(Some(head))
}

fn export(host: &LocalHost) -> CommandOutcome {
    let mut out = std::io::stdout().lock();
    let written = host.approvals().audit_export(&mut out)?;
    let written = written.and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::refused(
            "OUTPUT_LOST",
            format!("standard output: {error}"),
        )),
        _ => Ok(ExitCode::SUCCESS),
    }
}
