//! `interlock doctor`: how the approvals document stands, and how its owner repairs it.

use std::process::ExitCode;

use interlock_host::{Author, DocumentRepair, DocumentStanding, LocalHost};
use serde_json::{Value, json};

use super::{Outcome, decider, open_for_repair, outside_runs};
use crate::args::{DoctorArguments, StateArguments};
use crate::failure::Failure;
use crate::output::{self, visible};

/// More lines of a difference are counted, not shown.
const MAX_LINES: usize = 400;

pub fn run(state: &StateArguments, arguments: &DoctorArguments) -> Outcome {
    let host = open_for_repair(state)?;
    let repair = match (arguments.record_document, arguments.restore_document) {
        (true, _) => Some(DocumentRepair::Record),
        (_, true) => Some(DocumentRepair::Restore),
        _ => None,
    };
    match repair {
        Some(repair) => mend(&host, repair, arguments.json),
        None => report(state, &host, arguments.json),
    }
}

fn report(state: &StateArguments, host: &LocalHost, wants_json: bool) -> Outcome {
    let (word, hash, difference, problem) = match host.document_standing()? {
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
        if wants_json {
            output::print_json(&json!({ "document": { "standing": word, "hash": hash } }));
        } else {
            let hash = hash.map_or(String::new(), |hash| format!(" ({hash})"));
            output::print(&format!("approvals document: {word}{hash}\n"));
        }
        return Ok(ExitCode::SUCCESS);
    };
    if wants_json {
        output::print_json(&json!({ "document": {
            "standing": word,
            "problem": problem,
            "difference": difference,
        } }));
        return Ok(ExitCode::FAILURE);
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

fn mend(host: &LocalHost, repair: DocumentRepair, wants_json: bool) -> Outcome {
    let outside = outside_runs(host.state_dir())?;
    let author = Author::new(decider()).map_err(interlock_host::HostError::from)?;
    let repaired = host.repair_document(repair, &author, outside)?;
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

/// The document for readers: a line for each value, without the secret of the approval socket.
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

/// What stands between the common beginning and the common end.
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
