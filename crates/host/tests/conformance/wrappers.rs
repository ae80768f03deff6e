//! Wrappers, shells and carriers: what is looked through, and what is found behind.

use interlock_command::payloads;
use interlock_programs::inline::{CarriedBuiltin, HitKind, InlineHit, carried_builtin, detect};
use interlock_programs::names::program_name;
use interlock_programs::{
    Dispatch, Inner, Multiplexer, ShellCall, dispatch, env_wrapper, is_dispatch_wrapper, is_shell,
    multiplexer, opaque_reason, shell_call, unwrap_chain,
};

use crate::comparison::{Answer, Comparison, Direction, Row, unreadable};
use crate::resolution;

pub fn ask(row: Row<'_>) -> Answer {
    let answer = match row.kind() {
        "name" => name(row),
        "is-shell" => truth(row, is_shell),
        "is-dispatch" => truth(row, is_dispatch_wrapper),
        "dispatch" | "env-unwrap" => one_step(row),
        "dispatch-probe" => probe(row),
        "dispatch-chain" => chain(row),
        "multiplexer" => multi_call(row),
        "env-assignment-keys" => assignment_keys(row),
        "env-split" => split(row),
        "env-before-shell" => env_before_shell(row),
        "is-shell-invocation" => shell_invocation(row),
        "shell-inline" => described_text(row, "inlineCommand"),
        "inline-flag" => described_text(row, "command"),
        "shell-text" => trusted_text(row, "text"),
        "shell-wrapper" => shell_wrapper(row),
        "payload-candidates" => candidates(row),
        "carried-builtin" => builtin(row),
        "carrier" => carrier(row),
        "resolution" => Some(resolution::resolution(row)),
        "trust-plan" => resolution::trust_plan(row),
        _ => Some(Answer::NotOurs),
    };
    answer.unwrap_or_else(unreadable)
}

fn name(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().text("name")?.to_owned();
    let got = program_name(row.text("token")?).into_owned();
    Some(Comparison::values(&expected, &got, Direction::Different))
}

/// To be known as a shell or wrapper is never an advantage.
fn truth(row: Row<'_>, question: impl Fn(&str) -> bool) -> Option<Answer> {
    let expected = row.expect().get("value").as_bool()?;
    Some(Comparison::suspicion(
        expected,
        question(row.text("token")?),
    ))
}

/// From loose to strict: opened, not a wrapper at all, closed.
fn rank(result: &str) -> Option<u8> {
    match result {
        "unwrapped" => Some(0),
        "not-wrapper" => Some(1),
        "blocked" | "opaque" => Some(2),
        _ => None,
    }
}

fn result_of(dispatched: &Dispatch) -> &'static str {
    match dispatched {
        Dispatch::NotWrapper => "not-wrapper",
        Dispatch::Blocked { .. } => "blocked",
        Dispatch::Unwrapped { .. } => "unwrapped",
    }
}

fn one_step(row: Row<'_>) -> Option<Answer> {
    let argv = row.argv("argv")?;
    let dispatched = dispatch(&argv);
    let got = result_of(&dispatched);
    let expect = row.expect();
    let expected = expect.text("result")?;
    if rank(expected)? != rank(got)? {
        return compare_ranks(expected, got);
    }
    if let (Dispatch::Unwrapped { inner, .. }, Some(expected)) = (&dispatched, expect.argv("argv"))
    {
        let got = inner.argv(&argv);
        return Some(Comparison::values(&expected, &got, Direction::Different));
    }
    Some(Comparison::answer(expected, got, Direction::Same))
}

fn compare_ranks(expected: &str, got: &str) -> Option<Answer> {
    let direction = match rank(got)?.cmp(&rank(expected)?) {
        std::cmp::Ordering::Less => Direction::Looser,
        std::cmp::Ordering::Equal => Direction::Same,
        std::cmp::Ordering::Greater => Direction::Stricter,
    };
    Some(Comparison::answer(expected, got, direction))
}

fn probe(row: Row<'_>) -> Option<Answer> {
    let argv = row.argv("argv")?;
    let blocked = row.expect().get("chainBlocked").as_bool()?;
    let got = unwrap_chain(&argv).blocked.is_some();
    let step = one_step(row)?;
    Some(Comparison::worst([
        Comparison::suspicion(blocked, got),
        match step {
            // Seeing more of what is closed anyway trusts nothing.
            Answer::Compared(comparison) if blocked && got => Answer::Compared(Comparison {
                direction: match comparison.direction {
                    Direction::Looser => Direction::Same,
                    other => other,
                },
                ..comparison
            }),
            other => other,
        },
    ]))
}

fn chain(row: Row<'_>) -> Option<Answer> {
    let got = unwrap_chain(&row.argv("argv")?);
    let expect = row.expect();
    let blocked = expect.get("blocked").as_bool()?;
    if blocked || got.blocked.is_some() {
        return Some(Comparison::suspicion(blocked, got.blocked.is_some()));
    }
    Some(Comparison::worst([
        Comparison::values(&expect.argv("argv")?, &got.argv, Direction::Different),
        match expect.argv("wrappers") {
            Some(wrappers) => Comparison::values(&wrappers, &got.wrappers, Direction::Different),
            None => Answer::NotOurs,
        },
    ]))
}

fn multi_call(row: Row<'_>) -> Option<Answer> {
    let got = match multiplexer(&row.argv("argv")?) {
        Multiplexer::NotMultiplexer => "not-wrapper",
        Multiplexer::Shell => "unwrapped",
        Multiplexer::Blocked => "blocked",
    };
    compare_ranks(row.expect().text("result")?, got)
}

fn assignment_keys(row: Row<'_>) -> Option<Answer> {
    let mut argv = row.argv("argv")?;
    let mut got = Vec::new();
    // Each layer may set some.
    for _ in 0..argv.len() {
        got.extend(env_keys(&argv));
        match dispatch(&argv) {
            Dispatch::Unwrapped {
                inner: Inner::At(index),
                ..
            } => {
                argv.drain(..index);
            }
            _ => break,
        }
    }
    got.sort();
    got.dedup();
    let expected = row.expect().argv("keys")?;
    let otherwise = if expected.iter().all(|key| got.contains(key)) {
        Direction::Stricter
    } else {
        Direction::Looser
    };
    Some(Comparison::values(&expected, &got, otherwise))
}

fn env_keys(argv: &[String]) -> Vec<String> {
    match argv.first() {
        Some(first) if program_name(first) == "env" => env_wrapper::assignment_keys(argv),
        _ => Vec::new(),
    }
}

fn split(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().text("flag").is_some();
    let argv = row.argv("argv")?;
    let env = argv
        .first()
        .is_some_and(|first| program_name(first) == "env");
    let got = env && env_wrapper::split_text(&argv).is_some();
    Some(Comparison::suspicion(expected, got))
}

/// Whether `env` changes something on the way to a shell.
fn env_before_shell(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().get("value").as_bool()?;
    let mut changed = false;
    let mut argv = row.argv("argv")?;
    for _ in 0..argv.len() {
        let Dispatch::Unwrapped {
            wrapper,
            inner,
            transparent,
        } = dispatch(&argv)
        else {
            break;
        };
        changed |= wrapper == "env" && !transparent;
        argv = inner.argv(&argv);
    }
    let shell = argv.first().is_some_and(|first| is_shell(first))
        || multiplexer(&argv) == Multiplexer::Shell;
    Some(Comparison::suspicion(expected, changed && shell))
}

fn shell_invocation(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().get("value").as_bool()?;
    let got = matches!(text_behind(&row.argv("argv")?), Text::Found { .. });
    Some(Comparison::suspicion(expected, got))
}

/// What a shell behind wrappers is handed.
pub enum Text {
    Found {
        text: String,
        /// Looked through for trust; otherwise for description only.
        trusted: bool,
    },
    /// A shell whose text is not seen: nothing is allowed and deny rules know it.
    Unseen,
    /// No shell, or one with a script.
    None,
}

pub fn text_behind(argv: &[String]) -> Text {
    let mut argv = argv.to_vec();
    let mut transparent = true;
    for _ in 0..argv.len() {
        match dispatch(&argv) {
            Dispatch::Unwrapped {
                inner,
                transparent: through,
                ..
            } => {
                transparent &= through;
                argv = inner.argv(&argv);
            }
            Dispatch::Blocked { .. } | Dispatch::NotWrapper => break,
        }
    }
    if multiplexer(&argv) == Multiplexer::Shell {
        argv.remove(0);
    }
    let (text, trusted) = match shell_call(&argv) {
        ShellCall::Text { index, .. } => (argv[index].clone(), transparent),
        ShellCall::Closed {
            text: Some(text), ..
        } => (text, false),
        ShellCall::Closed { text: None, .. } => return Text::Unseen,
        ShellCall::File { .. } | ShellCall::NotShell => return Text::None,
    };
    let text = text.trim().to_owned();
    if text.is_empty() {
        return Text::None;
    }
    Text::Found { text, trusted }
}

/// The text as people and deny rules see it: to miss it would be looser.
fn described_text(row: Row<'_>, key: &str) -> Option<Answer> {
    let expected = row.expect().text(key).map(str::to_owned);
    let (got, otherwise) = match text_behind(&row.argv("argv")?) {
        Text::Found { text, .. } if expected.is_some() => (Some(text), Direction::Different),
        Text::Found { text, .. } => (Some(text), Direction::Stricter),
        Text::Unseen => (None, Direction::Stricter),
        Text::None => (None, Direction::Looser),
    };
    Some(Comparison::values(&expected, &got, otherwise))
}

/// The text that is taken for what will run: to take it where the corpus does not is looser.
fn trusted_text(row: Row<'_>, key: &str) -> Option<Answer> {
    let expected = row.expect().text(key).map(|text| text.trim().to_owned());
    let (got, otherwise) = match text_behind(&row.argv("argv")?) {
        Text::Found {
            text,
            trusted: true,
        } if expected.is_none() => (Some(text), Direction::Looser),
        // Shown, but never trusted: no answer to a corpus that trusts nothing either.
        Text::Found { trusted: false, .. } if expected.is_none() => (None, Direction::Same),
        Text::Found { text, .. } => (Some(text), Direction::Different),
        Text::Unseen | Text::None => (None, Direction::Stricter),
    };
    Some(Comparison::values(&expected, &got, otherwise))
}

fn shell_wrapper(row: Row<'_>) -> Option<Answer> {
    // There the caller's own text replaces the one in argv; here only argv counts.
    if row.text("rawCommand").is_some() {
        return Some(Answer::NotOurs);
    }
    let expected = row.expect().get("isShellWrapper").as_bool()?;
    let got = matches!(text_behind(&row.argv("argv")?), Text::Found { .. });
    Some(Comparison::worst([
        Comparison::suspicion(expected, got),
        trusted_text(row, "bindableCommand")?,
    ]))
}

fn candidates(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().argv("candidates")?;
    let got = payloads(&row.argv("argv")?);
    let otherwise = if expected.iter().all(|text| got.contains(text)) {
        Direction::Stricter
    } else {
        Direction::Looser
    };
    Some(Comparison::values(&expected, &got, otherwise))
}

/// Whether it is known that the argv runs a command given in its arguments.
fn carrier(row: Row<'_>) -> Option<Answer> {
    let argv = row.argv("argv")?;
    let first = argv.first()?;
    let expected = !row.expect().get("carriers").as_array()?.is_empty();
    let starts_program =
        |hit: InlineHit| matches!(hit.kind, HitKind::Code | HitKind::ProgramOption);
    let got = opaque_reason(first).is_some()
        || matches!(dispatch(&argv), Dispatch::Blocked { .. })
        || (program_name(first) == "env" && env_wrapper::split_text(&argv).is_some())
        || detect(&argv).is_some_and(starts_program);
    Some(Comparison::suspicion(expected, got))
}

fn builtin(row: Row<'_>) -> Option<Answer> {
    let expected = Row(row.expect().get("hit")).text("kind").map(str::to_owned);
    let got = carried_builtin(&row.argv("argv")?).map(|builtin| {
        let kind = match builtin {
            CarriedBuiltin::Eval(_) => "eval",
            CarriedBuiltin::Source(_) => "source",
        };
        kind.to_owned()
    });
    let otherwise = match (&expected, &got) {
        (Some(_), None) => Direction::Looser,
        (None, Some(_)) => Direction::Stricter,
        _ => Direction::Different,
    };
    Some(Comparison::values(&expected, &got, otherwise))
}
