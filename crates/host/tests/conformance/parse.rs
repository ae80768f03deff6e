//! How a text is split into commands, as far as a verdict depends on it.
//!
//! A text that the corpus does not analyse must not be plain here, or its shell must stay closed.
//! A text that it analyses must give the same commands after wrappers and `sh -c` are taken away.

use interlock_command::{Analysis, Host, Source, analyse};
use interlock_policy::Entry;
use interlock_programs::{VirtualHost, trusted_dirs};

use crate::comparison::{Answer, Comparison, Direction, Row};
use crate::world::{allowlist_policy, allows, closed_by, judge_virtually};

pub fn ask(row: Row<'_>) -> Option<Answer> {
    let text = row.text("command")?;
    let expect = row.expect();
    let analysis = analysed(Source::Text(text.to_owned()));
    let obstacle = match &analysis {
        Some(analysis) => closed_by(analysis),
        None => Some("input".to_owned()),
    };
    let open = obstacle.is_none();
    if !expect.get("analyzable").as_bool()? {
        return Some(Comparison::permission(false, open));
    }
    let trust = expect.argv("trust").unwrap_or_default();
    if trust.iter().any(|trust| trust == "prompt-only") {
        return Some(Comparison::permission(false, is_trusted_for_good(text)?));
    }
    if !open {
        // What only an exact grant can satisfy there, only an exact grant can satisfy here.
        let exact = trust.iter().any(|trust| trust == "exact-command");
        let answer = Comparison::permission(!exact, false);
        return Some(answer.because(obstacle.unwrap_or_default()));
    }
    let expected = unwrapped(expect.get("commands").as_array()?)?;
    let got = commands(analysis.as_ref()?);
    Some(Comparison::values(&expected, &got, Direction::Different))
}

fn analysed(source: Source) -> Option<Analysis> {
    let resolver = VirtualHost::new();
    let dirs = trusted_dirs(&[]);
    let host = Host {
        resolver: &resolver,
        trusted_dirs: &dirs,
    };
    analyse(source, "/tmp", host).ok()
}

fn commands(analysis: &Analysis) -> Vec<Vec<String>> {
    let commands = analysis.commands.iter();
    commands.map(|command| command.argv.to_vec()).collect()
}

/// The commands of the corpus, unwrapped as Interlock unwraps its own.
fn unwrapped(listed: &[serde_json::Value]) -> Option<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for command in listed {
        let argv = crate::comparison::strings(command)?;
        match analysed(Source::Argv(argv.clone())) {
            Some(analysis) if closed_by(&analysis).is_none() => all.extend(commands(&analysis)),
            _ => all.push(argv),
        }
    }
    Some(all)
}

/// Allowed when everything is listed, and worth remembering: more than one prompt's trust.
fn is_trusted_for_good(text: &str) -> Option<bool> {
    let judge = |entries: &[Entry]| {
        let policy = allowlist_policy(entries)?;
        let source = Source::Text(text.to_owned());
        Some(judge_virtually(&policy, source, &VirtualHost::new()))
    };
    let listed = judge(&[Entry::for_pattern("*")])?;
    let stored = judge(&[])?.map(|evaluation| evaluation.verdict.remember.entries);
    Some(allows(listed.as_ref()) && stored.is_some_and(|entries| !entries.is_empty()))
}
