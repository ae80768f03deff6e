//! `interlock policy replay`: judges the commands of the audit by another policy.

use std::process::ExitCode;

use interlock_arguments::{PolicyReplayArguments, StateArguments};
use interlock_checks::{Direction, Replay, ReplayFilter, replay};
use interlock_client::{known_agent, open};
use interlock_console::output::{self, Paint, visible};
use interlock_console::{CommandOutcome, milliseconds};
use interlock_host::now_ms;

/// The exit code if some verdicts are stricter and none is looser.
const STRICTER: u8 = 3;
/// The exit code if at least one verdict is looser.
const LOOSER: u8 = 4;

pub(super) fn run(state: &StateArguments, arguments: &PolicyReplayArguments) -> CommandOutcome {
    let host = open(state)?;
    let proposed = match &arguments.with {
        Some(file) => Some(super::read_proposed(file)?),
        None => None,
    };
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
    let replay = replay(&host, &filter, proposed.as_ref())?;
    if let Some(agent) = arguments.agent.as_deref().filter(|_| replay.judged == 0) {
        // The history may name agents that the config no longer has, so check the name only now.
        known_agent(&host, agent)?;
    }
    if arguments.json {
        output::print_json(&replay);
    } else {
        output::print(&text(&replay, Paint::stdout()));
        note_limit(
            replay.judged + replay.left_out.values().sum::<u64>(),
            arguments.limit,
        );
    }
    Ok(if replay.changes.is_empty() {
        ExitCode::SUCCESS
    } else if replay.is_looser() {
        ExitCode::from(LOOSER)
    } else {
        ExitCode::from(STRICTER)
    })
}

/// Notes that older verdicts were not judged, if the limit was reached.
fn note_limit(read: u64, limit: usize) {
    if usize::try_from(read).unwrap_or(usize::MAX) >= limit {
        let more = limit.saturating_mul(10);
        output::note(&format!(
            "only the newest {limit} verdicts were judged; for more: --limit {more}"
        ));
    }
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
