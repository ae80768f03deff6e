//! `interlock events`: shows the events of a conversation to the owner. Reading events here does
//! not deliver them: the conversation still gets them with its next call.

use std::process::ExitCode;
use std::time::Duration;

use interlock_approvals::SessionEvent;
use interlock_arguments::{EventsArguments, StateArguments};
use interlock_client::{open, supervisor};
use interlock_console::output::{self, visible};
use interlock_console::{CommandOutcome, Failure, time};
use interlock_host::HostError;
use serde_json::{Value, json};

/// How many events one request reads.
const PAGE: usize = 500;

/// How often `--follow` checks for new events.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub fn run(state: &StateArguments, arguments: &EventsArguments) -> CommandOutcome {
    if arguments.session.trim().is_empty() {
        return Err(Failure::usage("SESSION_KEY_INVALID", "--session is empty")
            .with_hint("name the conversation, such as agent:main:main"));
    }
    let host = open(state)?;
    let client = supervisor(&host)?;
    let mut after = 0;
    let mut all = Vec::new();
    loop {
        let events = host.events_of(&arguments.session, after, PAGE, &client)?;
        after = events.last().map_or(after, |event| event.id);
        let is_page = events.len() == PAGE;
        match (arguments.json, arguments.follow) {
            (true, false) => all.extend(events.iter().map(value)),
            // Print one line per event, so that programs can read them as they arrive.
            (true, true) => print_events(&events, |event| format!("{}\n", value(event))),
            (false, _) => print_events(&events, line),
        }
        if is_page {
            continue;
        }
        if !arguments.follow || !output::reaches_reader() {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
        host.store().check_in_place().map_err(HostError::from)?;
    }
    if arguments.json && !arguments.follow {
        output::print_json(&json!({ "total": all.len(), "events": all }));
    } else if after == 0 {
        output::note(&format!(
            "no events of {} are kept; a background run or a late decision makes one",
            visible(&arguments.session)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_events(events: &[SessionEvent], text: impl Fn(&SessionEvent) -> String) {
    for event in events {
        output::print_bytes(text(event).as_bytes());
    }
}

fn line(event: &SessionEvent) -> String {
    let lines: Vec<String> = event.text.lines().map(visible).collect();
    format!(
        "{} {} {}\n",
        time(event.created_at_ms),
        event.kind.as_str(),
        lines.join("\n  ")
    )
}

fn value(event: &SessionEvent) -> Value {
    json!({
        "id": event.id,
        "sessionKey": event.session_key,
        "agent": event.agent,
        "kind": event.kind.as_str(),
        "runId": event.run_id,
        "text": event.text,
        "payload": event.payload,
        "createdAtMs": event.created_at_ms,
        "wakes": event.wakes,
        "deliveredAtMs": event.delivered_at_ms,
    })
}
