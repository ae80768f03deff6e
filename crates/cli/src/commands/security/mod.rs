//! `interlock security audit`: what weakens the policy, with a way out for each.

mod probe;

use std::collections::BTreeMap;
use std::process::ExitCode;

use interlock_checks::audit::{FindingSeverity, SecurityFinding, audit, sort_findings};
use serde_json::json;

use super::open_options;
use crate::args::{SecurityAuditArguments, SecurityCommand, StateArguments};
use crate::output::{self, Paint, line};

/// More findings of one id are counted, not shown; JSON has all of them.
const MAX_SHOWN: usize = 20;

pub fn run(state: &StateArguments, command: &SecurityCommand) -> ExitCode {
    let SecurityCommand::Audit(arguments) = command;
    let mut findings = audit(open_options(state));
    let mut probes = Vec::new();
    if arguments.deep {
        probes = probe::run(state, &mut findings);
        sort_findings(&mut findings);
    }
    for finding in &mut findings {
        finding.fix = state.in_hint(&finding.fix);
    }
    report(arguments, &findings, &probes);
    let is_critical = |finding: &SecurityFinding| finding.severity == FindingSeverity::Critical;
    if findings.iter().any(is_critical) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn report(
    arguments: &SecurityAuditArguments,
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
        let mut value = json!({
            "findings": findings,
            "counts": { "critical": critical, "warn": warn, "info": info },
        });
        if arguments.deep {
            value["probes"] = json!(probes);
        }
        output::print_json(&value);
        return;
    }
    let paint = Paint::stdout();
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out = String::new();
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
    out += &format!("{critical} critical, {warn} warn, {info} info\n");
    output::print(&out);
}
