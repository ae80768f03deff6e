//! What "always" stores, and what a stored entry is good for.

use std::collections::BTreeSet;

use interlock_binding::BindingKind;
use interlock_command::Source;
use interlock_policy::{ALLOW_ALWAYS, Entry, Evaluation, digest_pattern};

use crate::comparison::{Answer, Comparison, Direction, Row, unreadable};
use crate::world::{World, allowlist_policy, allows, closed_by, obstacle};

pub fn ask(row: Row<'_>) -> Answer {
    let question = match row.kind() {
        "shell" | "argv" => remembered,
        "grant-reuse" => reuse,
        _ => return Answer::NotOurs,
    };
    match World::make(row) {
        Ok(world) => question(&world).unwrap_or_else(unreadable),
        Err(reason) => Answer::Skipped(reason),
    }
}

pub fn source(row: Row<'_>) -> Option<Source> {
    match row.text("command") {
        Some(command) => Some(Source::Text(command.to_owned())),
        None => row.argv("argv").map(Source::Argv),
    }
}

fn remembered(world: &World) -> Option<Answer> {
    let row = world.row();
    let expect = row.expect();
    let source = source(row)?;
    let expected = expect.get("remembered").as_bool()?;
    let nothing = allowlist_policy(&[])?;
    let first = world.judge(&nothing, source.clone(), &world.cwd);
    let why = why_nothing(first.as_ref());
    let entries = first.map_or_else(Vec::new, |first| first.verdict.remember.entries);
    if expected == entries.is_empty() {
        let answer = Comparison::permission(expected, !entries.is_empty());
        return Some(answer.because(why));
    }
    let patterns: BTreeSet<String> = entries.iter().map(|entry| entry.pattern.clone()).collect();
    let wanted: BTreeSet<String> = expect
        .argv("patterns")
        .unwrap_or_default()
        .iter()
        .map(|path| canonical(path))
        .collect();
    let with_entries = allowlist_policy(&entries)?;
    let again = |cwd: &str| allows(world.judge(&with_entries, source.clone(), cwd).as_ref());
    let mut answers = vec![Comparison::values(&wanted, &patterns, Direction::Different)];
    if let Some(expected) = expect.get("sameCommandAgainAllowed").as_bool() {
        answers.push(Comparison::permission(expected, again(&world.cwd)));
    }
    if let Some(expected) = expect.get("otherCwdAllowed").as_bool() {
        let elsewhere = if world.cwd == "/" { world.root() } else { "/" };
        answers.push(Comparison::permission(expected, again(elsewhere)));
    }
    Some(Comparison::worst(answers))
}

/// The form of the command, else how weakly an approval would be bound.
fn why_nothing(first: Option<&Evaluation>) -> String {
    let closed = first.and_then(|first| closed_by(&first.analysis));
    closed.unwrap_or_else(|| match first.map(|first| first.verdict.binding.kind) {
        Some(BindingKind::Text) => "binding text".to_owned(),
        Some(BindingKind::Unbound) => "binding unbound".to_owned(),
        _ => obstacle(first),
    })
}

/// Entries name the file itself.
fn canonical(path: &str) -> String {
    let real = std::fs::canonicalize(path).ok();
    let real = real.and_then(|real| real.to_str().map(str::to_owned));
    real.unwrap_or_else(|| path.to_owned())
}

fn reuse(world: &World) -> Option<Answer> {
    let row = world.row();
    let grant = Row(row.get("grant"));
    let digest_of = Row(grant.get("digestOf"));
    let argv = digest_of.argv("argv")?;
    let cwd = digest_of.text("cwd").unwrap_or(&world.cwd);
    let entry = Entry {
        arg_pattern: Some(digest_pattern(argv.get(1..)?, cwd)),
        source: Some(ALLOW_ALWAYS.to_owned()),
        ..Entry::for_pattern(grant.text("pattern")?)
    };
    let policy = allowlist_policy(&[entry])?;
    let expected = row.expect().get("satisfied").as_bool()?;
    let got = allows(world.judge(&policy, source(row)?, &world.cwd).as_ref());
    Some(Comparison::permission(expected, got))
}
