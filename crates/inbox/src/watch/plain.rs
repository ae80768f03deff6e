//! The inbox without a terminal: prints a block or a JSON object for each approval, and reads
//! decisions line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use interlock_approvals::{
    ApprovalDecision, ApprovalSummary, Lease, PendingApproval, requester_has_ended,
};
use interlock_command::display::Secrets;
use interlock_console::output::{self, Paint};
use interlock_console::{Failure, milliseconds};
use interlock_policy::AlwaysForm;
use serde_json::{Value, json};

use super::super::source::is_outage;
use super::filter::Filter;
use super::inbox::Wish;
use super::{Outage, POLL_INTERVAL, Window};
use crate::prompt;

/// The longest line that is read as a decision.
const MAX_LINE: usize = 4096;

/// What is printed when a remote gateway is reachable again.
const REACHED: &str = "the gateway answers again\n";

/// An approval that was printed.
struct Printed {
    summary: ApprovalSummary,
    approval: PendingApproval,
}

/// The printed approvals by id. A decision is only for an approval that was printed, as it was
/// printed.
type AllPrinted = BTreeMap<String, Printed>;

pub(super) fn run(window: &mut Window<'_>, json: bool, filter: &Filter) -> Result<(), Failure> {
    let lines = read_lines();
    let mut shown = AllPrinted::new();
    let mut is_unnotified = false;
    // Approvals that cannot be read are reported once.
    let mut skipped: BTreeSet<String> = BTreeSet::new();
    while !window.is_over() && output::reaches_reader() {
        let look = window.look(filter)?;
        if let Some(why) = look.not_notified.filter(|_| !is_unnotified) {
            is_unnotified = true;
            report(json, &Failure::refused("NOTIFY_FAILED", why));
        }
        match look.outage {
            Some(Outage::Begun(failure)) => report(json, &failure),
            Some(Outage::Over) => say(json, &json!({ "type": "reached" }), REACHED),
            None => {}
        }
        let waiting = look.waiting;
        let gone: Vec<String> = shown
            .keys()
            .filter(|id| !waiting.iter().any(|one| one.id == **id))
            .cloned()
            .collect();
        for id in gone {
            if let Some(Printed { approval, .. }) = shown.remove(&id) {
                let how = window.ended(&id);
                say(
                    json,
                    &json!({ "type": "ended", "id": id, "shortId": approval.short_id, "how": how }),
                    &format!("{}: {how}\n", approval.short_id),
                );
            }
        }
        for summary in waiting.iter().filter(|one| filter.lets_through(one)) {
            if shown.contains_key(&summary.id) || skipped.contains(&summary.id) {
                continue;
            }
            match window.source.approval(&summary.id, Secrets::Masked) {
                Ok(approval) => {
                    show(json, &approval);
                    window.shown(&approval.id);
                    let summary = summary.clone();
                    shown.insert(approval.id.clone(), Printed { summary, approval });
                }
                // The approval is printed when the gateway is reachable again.
                Err(error) if is_outage(&error) => {}
                Err(error) => {
                    report(json, &error);
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
    let value = json!({
        "type": "pending",
        "approval": approval.to_json(),
        "callerHasEnded": requester_has_ended(&approval.requester),
    });
    say(
        json,
        &value,
        &(prompt::text(approval, Paint::stdout()) + "\n"),
    );
}

fn obey(
    window: &Window<'_>,
    shown: &mut AllPrinted,
    line: &str,
    json: bool,
) -> Result<(), Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (verb, id, rest) = match words.as_slice() {
        [] => return Ok(()),
        [verb, id, rest @ ..] => (*verb, *id, rest),
        [_] => return Err(not_understood(line)),
    };
    let mut is_for_equal = false;
    let wish = match (verb, rest) {
        ("deny", words) => Wish::deny(&words.join(" ")),
        ("approve", []) => Wish::plain(ApprovalDecision::AllowOnce),
        ("approve-equal", []) => {
            is_for_equal = true;
            Wish::plain(ApprovalDecision::AllowOnce)
        }
        ("deny-equal", words) => {
            is_for_equal = true;
            Wish::deny(&words.join(" "))
        }
        ("approve", ["always"]) => Wish::plain(ApprovalDecision::AllowAlways),
        ("approve", ["always", form]) => {
            let form: AlwaysForm = form.parse().map_err(|_| not_understood(line))?;
            Wish::always(form)
        }
        ("approve", ["session"]) => Wish::plain(ApprovalDecision::AllowSession),
        ("approve", ["for", time]) => Wish::plain(lease(time, None)?),
        ("approve", ["for", time, "uses", uses]) => {
            let uses: NonZeroU32 = uses.parse().map_err(|_| not_understood(line))?;
            Wish::plain(lease(time, Some(uses))?)
        }
        ("reveal", []) => {
            let printed = find(shown, id)?;
            let (id, summary) = (printed.approval.id.clone(), printed.summary.clone());
            let approval = window.source.approval(&id, Secrets::Revealed)?;
            show(json, &approval);
            shown.insert(id, Printed { summary, approval });
            return Ok(());
        }
        _ => return Err(not_understood(line)),
    };
    let named = &find(shown, id)?.summary;
    let is_meant = |one: &&Printed| {
        one.summary.id == named.id || is_for_equal && one.summary.asks_the_same(named)
    };
    let ids: Vec<String> = shown
        .values()
        .filter(is_meant)
        .map(|one| one.summary.id.clone())
        .collect();
    for id in ids {
        let Some(printed) = shown.get(&id) else {
            continue;
        };
        let text = window.decide(&printed.approval, &wish)?;
        say(
            json,
            &json!({
                "type": "decided",
                "id": id,
                "shortId": printed.approval.short_id,
                "decision": wish.decision.as_str(),
            }),
            &text,
        );
        shown.remove(&id);
    }
    Ok(())
}

fn lease(time: &str, max_uses: Option<NonZeroU32>) -> Result<ApprovalDecision, Failure> {
    Ok(ApprovalDecision::Lease(Lease {
        expires_in: Duration::from_millis(milliseconds(time)?),
        max_uses,
    }))
}

/// Finds an approval by its full id or short id. A prefix is not enough: a typing error must not
/// decide another approval.
fn find<'a>(shown: &'a AllPrinted, id: &str) -> Result<&'a Printed, Failure> {
    let mut found = shown.values();
    let found = found.find(|one| one.approval.id == id || one.approval.short_id == id);
    found.ok_or_else(|| {
        let message = format!("no approval {} waits here", output::line(id));
        Failure::refused("APPROVAL_UNKNOWN", message)
    })
}

fn not_understood(line: &str) -> Failure {
    let message = format!("not understood: {}", output::line(line.trim()));
    Failure::usage("LINE_INVALID", message).with_hint(
        "approve ID, deny ID [REASON], approve-equal ID, deny-equal ID, reveal ID, or quit",
    )
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
    match lines.recv_timeout(POLL_INTERVAL) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Timeout) => None,
        // Standard input has ended; new approvals are still shown.
        Err(RecvTimeoutError::Disconnected) => {
            std::thread::sleep(POLL_INTERVAL);
            None
        }
    }
}

/// Reads lines on a separate thread, which ends with its input or with this process.
fn read_lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let mut limited = std::io::Read::take(&mut input, MAX_LINE as u64);
            match limited.read_until(b'\n', &mut line) {
                Ok(1..) if line.ends_with(b"\n") => {}
                // The input has ended, or the line is too long: its rest must not be taken for
                // another line.
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
