//! `interlock security audit`: finds weaknesses of the policy, each with a remedy.

mod probe;

use std::collections::BTreeMap;
use std::process::ExitCode;

use interlock_arguments::{SecurityAuditArguments, SecurityCommand, StateArguments};
use interlock_client::{note_reach, open_options, outside_runs};
use interlock_config::StateDir;
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure};
use interlock_doctor::audit::{FindingSeverity, SecurityFinding, audit, sort_findings};
use interlock_doctor::repairs::{
    DoctorMode, DoctorRepair, DoctorReport, close_state_files, repair,
};
use interlock_host::{DocumentStanding, HostError, LocalHost};
use serde::Serialize;

/// How many findings of one id are shown. The rest are counted; JSON has all of them.
const MAX_SHOWN: usize = 20;

/// The JSON form of the audit.
#[derive(Debug, Serialize)]
struct SecurityReport<'a> {
    findings: &'a [SecurityFinding],
    counts: FindingCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<&'a [probe::ProbeResult]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<&'a [DoctorRepair]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<&'a [String]>,
}

#[derive(Debug, Serialize)]
struct FindingCounts {
    critical: usize,
    warn: usize,
    info: usize,
}

pub fn run(state: &StateArguments, command: &SecurityCommand) -> CommandOutcome {
    let SecurityCommand::Audit(arguments) = command;
    if let Some(remote) = interlock_client::config_file::remote_gateway(state) {
        note_reach(state, &remote);
    }
    let repairs = if arguments.fix {
        Some(make_repairs(state)?)
    } else {
        None
    };
    let mut findings = audit(open_options(state));
    let mut probes = Vec::new();
    if arguments.deep {
        probes = probe::run(state, &mut findings);
        sort_findings(&mut findings);
    }
    for finding in &mut findings {
        finding.fix = state.in_hint(&finding.fix);
    }
    report(arguments, repairs.as_ref(), &findings, &probes);
    let is_critical = |finding: &SecurityFinding| finding.severity == FindingSeverity::Critical;
    if findings.iter().any(is_critical) {
        Ok(ExitCode::FAILURE)
    } else {
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes the repairs of `doctor --fix`, which need no judgment of the owner. A state that is too
/// damaged to be repaired is a finding of the audit, so a failed repair does not stop the audit.
fn make_repairs(state: &StateArguments) -> Result<DoctorReport, Failure> {
    let mut report = DoctorReport::default();
    let options = open_options(state);
    let located = StateDir::locate(options.state_dir.as_deref(), &options.environment)
        .map_err(HostError::from)?;
    // Before the first start there is nothing to repair.
    if !located.exists() {
        return Ok(report);
    }
    let outside = outside_runs(&located)?;
    close_state_files(&located, DoctorMode::Fix, &mut report);
    let repaired = LocalHost::open_for_repair(options).and_then(|host| {
        match host.rules().document_standing()? {
            DocumentStanding::Recorded(_) => repair(&host, DoctorMode::Fix, outside, &mut report),
            // Without a document there is nothing to repair. An unrecorded document is a finding.
            DocumentStanding::First | DocumentStanding::Unrecorded { .. } => Ok(()),
        }
    });
    if let Err(error) = repaired {
        let remedy = error.remedy();
        let remedy = remedy.unwrap_or_else(|| "interlock doctor".to_owned());
        report.notes.push(format!("{error}; {remedy}"));
    }
    for note in &mut report.notes {
        *note = state.in_hint(note);
    }
    Ok(report)
}

fn report(
    arguments: &SecurityAuditArguments,
    repairs: Option<&DoctorReport>,
    findings: &[SecurityFinding],
    probes: &[probe::ProbeResult],
) {
    let count = |severity: FindingSeverity| {
        let of_it = findings
            .iter()
            .filter(|finding| finding.severity == severity);
        of_it.count()
    };
    let (critical, warn, info) = (
        count(FindingSeverity::Critical),
        count(FindingSeverity::Warn),
        count(FindingSeverity::Info),
    );
    if arguments.json {
        output::print_json(&SecurityReport {
            findings,
            counts: FindingCounts {
                critical,
                warn,
                info,
            },
            probes: arguments.deep.then_some(probes),
            fixed: repairs.map(|made| made.repairs.as_slice()),
            notes: repairs.map(|made| made.notes.as_slice()),
        });
        return;
    }
    let paint = Paint::stdout();
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out = String::new();
    for made in repairs.into_iter().flat_map(|made| &made.repairs) {
        out += &format!("fixed {}: {}\n", made.id, line(&made.what));
    }
    for note in repairs.into_iter().flat_map(|made| &made.notes) {
        out += &format!("left {}\n", line(note));
    }
    for finding in findings {
        let number = shown.entry(finding.id).or_default();
        *number += 1;
        if *number > MAX_SHOWN {
            continue;
        }
        let severity = match finding.severity {
            FindingSeverity::Critical => paint.warning("critical"),
            severity => paint.strong(severity.as_str()),
        };
        out += &format!("{severity} {} ({})\n", finding.id, line(&finding.subject));
        for (word, text) in [
            ("what", finding.what.as_str()),
            ("why", finding.why),
            ("fix", finding.fix.as_str()),
        ] {
            out += &format!("  {word:<4}  {}\n", line(text));
        }
    }
    for (id, number) in shown.iter().filter(|(_, number)| **number > MAX_SHOWN) {
        out += &format!("... {} more of {id}; --json has all\n", number - MAX_SHOWN);
    }
    for probe in probes {
        out += &format!("probed {}: {}\n", probe.name, line(&probe.result));
    }
    if let Some(made) = repairs {
        out += &format!("{} fixed; left: ", made.repairs.len());
    }
    out += &format!("{critical} critical, {warn} warn, {info} info\n");
    output::print(&out);
}
