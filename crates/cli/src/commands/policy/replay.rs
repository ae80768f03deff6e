//! `interlock policy replay`: what another policy would have said to what was asked so far.

use std::process::ExitCode;

use interlock_host::{Direction, LocalHost, Replay, ReplayFilter, now_ms};
use interlock_policy::Document;

use super::super::approvals::milliseconds;
use super::super::{Outcome, open};
use crate::args::{PolicyReplayArguments, StateArguments};
use crate::failure::Failure;
use crate::output::{self, Paint, visible};

/// Some verdicts are stricter, none is looser.
const STRICTER: u8 = 3;
const LOOSER: u8 = 4;

pub(super) fn run(state: &StateArguments, arguments: &PolicyReplayArguments) -> Outcome {
    let host = open(state)?;
    let proposed = proposed(&host, arguments)?;
    let since_ms = match &arguments.since {
        Some(time) => {
            let since = now_ms().saturating_sub(milliseconds(time)?);
            Some(i64::try_from(since).unwrap_or(i64::MAX))
        }
        None => None,
    };
    let filter = ReplayFilter {
        agent: arguments.agent.clone(),
        since_ms,
        limit: arguments.limit,
    };
    let replay = host.replay(&filter, proposed.as_ref())?;
    if arguments.json {
        output::print_json(&replay);
    } else {
        output::print(&text(&replay, Paint::stdout()));
    }
    Ok(if replay.changes.is_empty() {
        ExitCode::SUCCESS
    } else if replay.is_looser() {
        ExitCode::from(LOOSER)
    } else {
        ExitCode::from(STRICTER)
    })
}

fn proposed(
    host: &LocalHost,
    arguments: &PolicyReplayArguments,
) -> Result<Option<Document>, Failure> {
    let Some(file) = &arguments.with else {
        return Ok(None);
    };
    let name = file.display().to_string();
    let text = std::fs::File::open(file).and_then(super::super::approvals::read_limited);
    let text = text.map_err(|error| {
        Failure::refused("DOCUMENT_UNREADABLE", format!("{name}: {error}"))
            .with_hint("name a JSON5 file with an approvals document")
    })?;
    Ok(Some(host.read_document(&name, &text)?))
}

fn text(replay: &Replay, paint: Paint) -> String {
    let mut out = String::new();
    for change in &replay.changes {
        let word = match change.direction {
            Direction::Looser => paint.warning("looser"),
            Direction::Stricter => "stricter".to_owned(),
        };
        let times = if change.times > 1 {
            format!(", {} times", change.times)
        } else {
            String::new()
        };
        out += &format!(
            "{word}  {} -> {}  {}\n  agent {} in {}{times}\n  then: {}\n  now: {}\n",
            change.before,
            change.after,
            paint.command(&visible(&change.command)),
            visible(&change.agent),
            visible(&change.cwd),
            visible(&change.before_reason),
            visible(&change.after_reason),
        );
    }
    for (why, count) in &replay.left_out {
        out += &format!("left out, {count}: {why}\n");
    }
    out += &format!(
        "{} judged: {} prompts saved, {} newly allowed, {} newly asked, {} newly refused\n",
        replay.judged,
        replay.prompts_saved,
        replay.newly_allowed,
        replay.newly_asked,
        replay.newly_refused
    );
    out
}
