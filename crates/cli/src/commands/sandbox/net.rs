//! `interlock sandbox net`: shows which hosts sandboxed runs reached, and which were blocked.

use std::process::ExitCode;
use std::time::Duration;

use interlock_approvals::{AuditFilter, AuditKind, AuditRecord};
use interlock_arguments::{SandboxNetArguments, StateArguments};
use interlock_client::open;
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::{HostError, LocalHost};
use interlock_network::{ConnectionRecord, ConnectionVerdict};

/// How often `--follow` checks for new connections.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub fn run(state: &StateArguments, arguments: &SandboxNetArguments) -> CommandOutcome {
    let host = open(state)?;
    let mut last = 0;
    let mut most = Some(arguments.limit);
    loop {
        let mut records = newer(&host, last, most)?;
        records.reverse();
        if let Some(newest) = records.last() {
            last = newest.seq;
        }
        print_records(&records, arguments.json, last == 0 && !arguments.follow);
        if !arguments.follow {
            if records.len() >= arguments.limit {
                let more = arguments.limit.saturating_mul(10);
                output::note(&format!(
                    "only the newest {} connections; for more: --limit {more}",
                    records.len()
                ));
            }
            return Ok(ExitCode::SUCCESS);
        }
        most = None;
        std::thread::sleep(POLL_INTERVAL);
        host.store().check_in_place().map_err(HostError::from)?;
    }
}

/// Connections that were recorded after the record `last`, the newest first.
fn newer(host: &LocalHost, last: u64, most: Option<usize>) -> Result<Vec<AuditRecord>, Failure> {
    host.record_connections()
        .map_err(|error| Failure::refused("CONNECTIONS_UNREADABLE", error.to_string()))?;
    let mut filter = AuditFilter {
        kind: Some(AuditKind::Connection),
        limit: most,
        ..AuditFilter::default()
    };
    let mut found = Vec::new();
    loop {
        let page = host.approvals().audit_page(&filter)?;
        let count = page.records.len();
        found.extend(page.records.into_iter().take_while(|one| one.seq > last));
        filter.from_seq = page.next_seq;
        let is_enough = most.is_some_and(|most| found.len() >= most) || found.len() < count;
        if page.next_seq.is_none() || is_enough {
            return Ok(found);
        }
    }
}

fn print_records(records: &[AuditRecord], json: bool, is_all: bool) {
    if json {
        for record in records {
            output::print(&format!("{}\n", record.body));
        }
        return;
    }
    if records.is_empty() && is_all {
        output::note("no sandboxed run has connected with a host");
    }
    let rows: Vec<Vec<String>> = records.iter().map(row).collect();
    output::print(&output::table(&rows, ""));
}

fn row(record: &AuditRecord) -> Vec<String> {
    let Ok(one) = serde_json::from_value::<ConnectionRecord>(record.body.clone()) else {
        return vec![output::line(&record.body.to_string())];
    };
    let verdict = match one.verdict {
        ConnectionVerdict::Allowed => "allowed",
        ConnectionVerdict::Denied => "denied",
        ConnectionVerdict::Failed => "failed",
    };
    let port = one.port.map_or(String::new(), |port| format!(":{port}"));
    let by = one.allowed_by.as_deref();
    let by = by.map_or(String::new(), |by| format!("; {by}"));
    let detail = match (&one.reason, one.address) {
        (Some(reason), _) => reason.clone(),
        (None, Some(address)) => format!(
            "{address}, {} bytes sent, {} received{by}",
            one.bytes_sent, one.bytes_received
        ),
        (None, None) => String::new(),
    };
    vec![
        record.seq.to_string(),
        output::line(&one.scope),
        verdict.to_owned(),
        output::line(&format!("{}{port}", one.host)),
        output::line(&detail),
    ]
}
