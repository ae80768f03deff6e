//! `interlock doctor`: checks whether the approvals document is recorded, shows what separates runs
//! from Interlock, tries sandboxes and chats, and repairs what can be repaired.

mod channels;
mod sandbox;

use std::process::ExitCode;

use interlock_arguments::{DoctorArguments, StateArguments};
use interlock_client::{decider, open, open_for_repair, open_options, outside_runs};
use interlock_config::StateDir;
use interlock_console::output::{self, line, visible};
use interlock_console::{CommandOutcome, Failure};
use interlock_doctor::audit::{FindingSeverity, audit, checks};
use interlock_doctor::repairs::{DoctorMode, DoctorReport, close_state_files, look, repair};
use interlock_doctor::{DocumentRepair, SeparatedAgents, repair_document, separate_agents};
use interlock_engine::shield::probe_shield;
use interlock_host::{Author, DocumentStanding, HostError, LocalHost};
use interlock_policy::AgentId;
use serde::Serialize;
use serde_json::{Value, json};

use channels::ChannelHealth;
use sandbox::SandboxHealth;

/// Findings about entries that can never match.
const WITHOUT_EFFECT: [&str; 3] = [
    checks::ENTRY_BROKEN.id,
    checks::ENTRY_INERT.id,
    checks::SANDBOX_OVERRULED.id,
];

/// How many lines of a difference are shown. The rest are counted.
const MAX_LINES: usize = 400;

pub fn run(state: &StateArguments, arguments: &DoctorArguments) -> CommandOutcome {
    let mut report = DoctorReport::default();
    let options = open_options(state);
    let located = StateDir::locate(options.state_dir.as_deref(), &options.environment)
        .map_err(HostError::from)?;
    let mode = if arguments.fix {
        outside_runs(&located)?;
        DoctorMode::Fix
    } else {
        DoctorMode::Look
    };
    close_state_files(&located, mode, &mut report);
    let host = open_for_repair(state)?;
    let document_repair = match (arguments.record_document, arguments.restore_document) {
        (true, _) => Some(DocumentRepair::Record),
        (_, true) => Some(DocumentRepair::Restore),
        _ => None,
    };
    if let Some(document_repair) = document_repair {
        return mend(&host, document_repair, arguments.json);
    }
    let standing = match document_section(state, &host, arguments.json)? {
        DocumentSection::Unrecorded => return Ok(ExitCode::FAILURE),
        DocumentSection::Recorded(standing) => standing,
    };
    if arguments.fix {
        let (host, outside) = (open(state)?, outside_runs(&located)?);
        repair(&host, mode, outside, &mut report)?;
    } else {
        look(&host, &mut report)?;
    }
    print_report(state, &host, arguments, &standing, &report)
}

/// Whether the report continues after the section about the document.
enum DocumentSection {
    /// The document is not recorded. The failure was already printed.
    Unrecorded,
    Recorded(DocumentSummary),
}

/// The state of a recorded document.
#[derive(Debug, Serialize)]
struct DocumentSummary {
    standing: &'static str,
    hash: Option<String>,
}

/// Prints the whole report, for a recorded document.
fn print_report(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &DoctorArguments,
    document: &DocumentSummary,
    report: &DoctorReport,
) -> CommandOutcome {
    let file = host.config()?;
    let listed = file.config().agents.list.iter();
    let others = listed.map(|agent| agent.id.as_str());
    let others = others.filter(|id| !id.eq_ignore_ascii_case(AgentId::MAIN));
    let offered = probe_shield().map_err(|reason| reason.to_string());
    let separated = separate_agents(
        file.config(),
        [AgentId::MAIN].into_iter().chain(others),
        offered.as_ref().copied().map_err(String::as_str),
        rustix::process::geteuid().as_raw(),
    );
    let sandbox = SandboxHealth::look(host)?;
    let channels = ChannelHealth::look(state, host, file.config());
    let findings = audit(open_options(state));
    let count = |severity: FindingSeverity| {
        let of_it = findings
            .iter()
            .filter(|finding| finding.severity == severity);
        of_it.count()
    };
    let (critical, warn) = (
        count(FindingSeverity::Critical),
        count(FindingSeverity::Warn),
    );
    // Show settings without effect and critical findings here: the owner may not run the audit.
    let urgent = findings.iter().filter(|finding| {
        finding.severity == FindingSeverity::Critical || WITHOUT_EFFECT.contains(&finding.id)
    });
    let urgent = urgent.map(|finding| format!("{}: {}; {}", finding.id, finding.what, finding.fix));
    let notes = report.notes.iter().cloned().chain(urgent);
    let notes: Vec<String> = notes.map(|note| state.in_hint(&note)).collect();
    if arguments.json {
        let separation = |group: &SeparatedAgents| {
            json!({
                "agents": group.agents,
                "kind": group.separation.word(),
                "what": group.separation.describe(),
            })
        };
        output::print_json(&json!({
            "document": document,
            "separation": separated.iter().map(separation).collect::<Vec<_>>(),
            "sandbox": sandbox,
            "channels": channels,
            "repairs": report.repairs,
            "notes": notes,
            "audit": { "critical": critical, "warn": warn },
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let hash = document.hash.as_ref();
    let hash = hash.map_or(String::new(), |hash| format!(" ({hash})"));
    let mut out = format!("approvals document: {}{hash}\n", document.standing);
    for group in &separated {
        let agents = line(&group.agents.join(", "));
        out += &format!("runs of {agents}: {}\n", line(&group.separation.describe()));
    }
    out += &sandbox.text();
    out += &channels.text(state);
    for repair in &report.repairs {
        let word = if repair.done { "repaired" } else { "to repair" };
        out += &format!("{word} {}: {}\n", repair.id, line(&repair.what));
    }
    if report.repairs.is_empty() {
        out += "nothing to repair\n";
    }
    let command = state.in_command("interlock security audit");
    out += &format!("security audit: {critical} critical, {warn} warn: {command}\n");
    output::print(&out);
    for note in notes {
        output::note(&format!("note: {}", line(&note)));
    }
    if report.repairs.iter().any(|repair| !repair.done) {
        let fix = state.in_command("interlock doctor --fix");
        output::note(&format!("hint: make the repairs: {fix}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the document. A document that is not recorded is reported at once, as a failure.
fn document_section(
    state: &StateArguments,
    host: &LocalHost,
    wants_json: bool,
) -> Result<DocumentSection, Failure> {
    let (word, hash, difference, problem) = match host.rules().document_standing()? {
        DocumentStanding::First => ("none yet", None, Vec::new(), None),
        DocumentStanding::Recorded(stored) => ("recorded", Some(stored.hash), Vec::new(), None),
        DocumentStanding::Unrecorded {
            problem,
            present,
            recorded,
        } => {
            let difference = difference(&lines(recorded.as_deref()), &lines(present.as_deref()));
            ("unrecorded", None, difference, Some(problem))
        }
    };
    let Some(problem) = problem else {
        return Ok(DocumentSection::Recorded(DocumentSummary {
            standing: word,
            hash,
        }));
    };
    if wants_json {
        output::print_json(&json!({ "document": {
            "standing": word,
            "problem": problem,
            "difference": difference,
        } }));
        return Ok(DocumentSection::Unrecorded);
    }
    let mut out =
        "approvals document: unrecorded (- recorded last, + in the database now)\n".to_owned();
    for line in difference.iter().take(MAX_LINES) {
        out += &format!("  {}\n", visible(line));
    }
    if difference.len() > MAX_LINES {
        out += &format!("  ... {} more lines\n", difference.len() - MAX_LINES);
    }
    output::print(&out);
    let restore = state.in_command("interlock doctor --restore-document");
    let record = state.in_command("interlock doctor --record-document");
    Err(Failure::refused(
        "DOCUMENT_UNRECORDED",
        format!("no audit record wrote the approvals document: {problem}"),
    )
    .with_hint(format!(
        "go back to the recorded one: {restore}; or keep the one that is there: {record}"
    )))
}

fn mend(host: &LocalHost, repair: DocumentRepair, wants_json: bool) -> CommandOutcome {
    let outside = outside_runs(host.state_dir())?;
    let author = Author::new(decider()).map_err(interlock_host::HostError::from)?;
    let repaired = repair_document(host, repair, &author, outside)?;
    let did = match (&repaired, repair) {
        (None, _) => "nothing to repair",
        (Some(_), DocumentRepair::Record) => "recorded",
        (Some(_), DocumentRepair::Restore) => "restored",
    };
    if wants_json {
        let hash = repaired.map(|stored| stored.hash);
        output::print_json(&json!({ "document": { "did": did, "hash": hash } }));
    } else {
        output::print(&format!("approvals document: {did}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The document with one line per value, without the secret of the approval socket.
fn lines(text: Option<&str>) -> Vec<String> {
    let Some(text) = text else {
        return Vec::new();
    };
    let Ok(mut document) = serde_json::from_str::<Value>(text) else {
        return text.lines().map(str::to_owned).collect();
    };
    if let Some(socket) = document.get_mut("socket").and_then(Value::as_object_mut) {
        socket.remove("token");
    }
    let pretty = serde_json::to_string_pretty(&document).unwrap_or_default();
    pretty.lines().map(str::to_owned).collect()
}

/// The lines between the common beginning and the common end.
fn difference(old: &[String], new: &[String]) -> Vec<String> {
    let pairs = old.iter().zip(new);
    let start = pairs.take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[start..], &new[start..]);
    let pairs = old.iter().rev().zip(new.iter().rev());
    let end = pairs.take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    let gone = old.iter().map(|line| format!("- {line}"));
    let added = new.iter().map(|line| format!("+ {line}"));
    gone.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let text = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let shown = difference(&text("a b c d"), &text("a x y d"));
        assert_eq!(shown, ["- b", "- c", "+ x", "+ y"]);
        assert_eq!(difference(&text("a"), &text("a")), Vec::<String>::new());
        assert_eq!(difference(&[], &text("a")), ["+ a"]);
    }
}
