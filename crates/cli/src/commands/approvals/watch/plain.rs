//! Without a terminal: a block or a JSON object for each approval, decisions by lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use interlock_command::display::Secrets;
use interlock_host::{Decision, Lease, PendingApproval};
use serde_json::{Value, json};

use super::super::super::prompt;
use super::super::milliseconds;
use super::{LOOK, Window};
use crate::failure::Failure;
use crate::output::{self, Paint};

/// Longer lines are no decisions.
const MAX_LINE: usize = 4096;

pub(super) fn run(window: &mut Window<'_>, json: bool) -> Result<(), Failure> {
    let lines = read_lines();
    // Only what was printed can be decided, and as it was printed.
    let mut shown: BTreeMap<String, PendingApproval> = BTreeMap::new();
    // Damaged ones are told of once.
    let mut skipped: BTreeSet<String> = BTreeSet::new();
    while !window.is_over() && output::reaches_reader() {
        let waiting = window.waiting()?;
        let gone: Vec<String> = shown
            .keys()
            .filter(|id| !waiting.iter().any(|one| one.id == **id))
            .cloned()
            .collect();
        for id in gone {
            if let Some(approval) = shown.remove(&id) {
                let how = window.ended(&id);
                say(
                    json,
                    &json!({ "type": "ended", "id": id, "shortId": approval.short_id, "how": how }),
                    &format!("{}: {how}\n", approval.short_id),
                );
            }
        }
        for summary in &waiting {
            if shown.contains_key(&summary.id) || skipped.contains(&summary.id) {
                continue;
            }
            match window.host.desk().approval(&summary.id, Secrets::Masked) {
                Ok(approval) => {
                    show(json, &approval);
                    window.shown(&approval.id);
                    shown.insert(approval.id.clone(), approval);
                }
                Err(error) => {
                    report(json, &error.into());
                    skipped.insert(summary.id.clone());
                }
            }
        }
        match next(&lines) {
            Some(line) if line.trim() == "quit" => return Ok(()),
            Some(line) => {
                if let Err(failure) = obey(window, &mut shown, &line, json) {
                    report(json, &failure);
                }
            }
            None => {}
        }
    }
    Ok(())
}

fn show(json: bool, approval: &PendingApproval) {
    say(
        json,
        &json!({ "type": "pending", "approval": approval.to_json() }),
        &(prompt::text(approval, Paint::stdout()) + "\n"),
    );
}

fn obey(
    window: &Window<'_>,
    shown: &mut BTreeMap<String, PendingApproval>,
    line: &str,
    json: bool,
) -> Result<(), Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (verb, id, rest) = match words.as_slice() {
        [] => return Ok(()),
        [verb, id, rest @ ..] => (*verb, *id, rest),
        [_] => return Err(not_understood(line)),
    };
    let decision = match (verb, rest) {
        ("deny", []) => Decision::Deny,
        ("approve", []) => Decision::AllowOnce,
        ("approve", ["always"]) => Decision::AllowAlways,
        ("approve", ["session"]) => Decision::AllowSession,
        ("approve", ["for", time]) => lease(time, None)?,
        ("approve", ["for", time, "uses", uses]) => {
            let uses: NonZeroU32 = uses.parse().map_err(|_| not_understood(line))?;
            lease(time, Some(uses))?
        }
        ("reveal", []) => {
            let id = find(shown, id)?.id.clone();
            let revealed = window.host.desk().approval(&id, Secrets::Revealed)?;
            show(json, &revealed);
            shown.insert(id, revealed);
            return Ok(());
        }
        _ => return Err(not_understood(line)),
    };
    let approval = find(shown, id)?;
    let told = window.decide(approval, decision)?;
    say(
        json,
        &json!({
            "type": "decided",
            "id": approval.id,
            "shortId": approval.short_id,
            "decision": decision.as_str(),
        }),
        &told,
    );
    let id = approval.id.clone();
    shown.remove(&id);
    Ok(())
}

fn lease(time: &str, max_uses: Option<NonZeroU32>) -> Result<Decision, Failure> {
    Ok(Decision::Lease(Lease {
        expires_in: Duration::from_millis(milliseconds(time)?),
        max_uses,
    }))
}

/// By its id or its short id, whole: a slip must not decide another one.
fn find<'a>(
    shown: &'a BTreeMap<String, PendingApproval>,
    id: &str,
) -> Result<&'a PendingApproval, Failure> {
    let mut found = shown.values();
    let found = found.find(|approval| approval.id == id || approval.short_id == id);
    found.ok_or_else(|| {
        let message = format!("no approval {} waits here", output::line(id));
        Failure::refused("APPROVAL_UNKNOWN", message)
    })
}

fn not_understood(line: &str) -> Failure {
    let message = format!("not understood: {}", output::line(line.trim()));
    Failure::usage("LINE_INVALID", message).with_hint("approve ID, deny ID, reveal ID, or quit")
}

fn report(json: bool, failure: &Failure) {
    if json {
        let (code, message) = (failure.code(), failure.to_string());
        say_line(&json!({ "type": "error", "code": code, "message": message }));
    } else {
        failure.report(false);
    }
}

fn say(json: bool, value: &Value, text: &str) {
    if json {
        say_line(value);
    } else {
        output::print_bytes(text.as_bytes());
    }
}

fn say_line(value: &Value) {
    output::print_bytes(format!("{value}\n").as_bytes());
}

fn next(lines: &Receiver<String>) -> Option<String> {
    match lines.recv_timeout(LOOK) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Timeout) => None,
        // Nobody types any more; what comes is still shown.
        Err(RecvTimeoutError::Disconnected) => {
            std::thread::sleep(LOOK);
            None
        }
    }
}

/// In a thread of its own, which ends with its input or with this process.
fn read_lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let mut limited = std::io::Read::take(&mut input, MAX_LINE as u64);
            match limited.read_until(b'\n', &mut line) {
                Ok(1..) if line.ends_with(b"\n") => {}
                // The end, or a line that is too long: its rest must not be taken for another one.
                _ => return,
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
