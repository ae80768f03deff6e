//! Which file runs and which file is judged, behind wrappers.

use interlock_command::{Closed, Command, Host, Program, Source, analyse};
use interlock_programs::{
    Multiplexer, VirtualHost, is_shell, multiplexer, trusted_dirs, unwrap_chain,
};

use crate::comparison::{Answer, Comparison, Direction, Row, unreadable};
use crate::world::World;
use crate::wrappers::{Text, text_behind};

pub fn resolution(row: Row<'_>) -> Answer {
    match World::make(row) {
        Ok(world) => in_world(&world).unwrap_or_else(unreadable),
        Err(reason) => Answer::Skipped(reason),
    }
}

fn in_world(world: &World) -> Option<Answer> {
    let row = world.row();
    let expect = row.expect();
    let argv = row.argv("argv")?;
    let blocked = expect.get("blocked").as_bool()?;
    // A wrapper that this machine lacks cannot be looked through.
    let first = argv.first()?;
    if !blocked && first.starts_with('/') && !std::path::Path::new(first).exists() {
        return Some(Answer::Skipped(format!("needs {first}")));
    }
    let dirs = trusted_dirs(&[]);
    let host = Host {
        resolver: &world.resolver,
        trusted_dirs: &dirs,
    };
    let analysis = analyse(Source::Argv(argv), &world.cwd, host).ok()?;
    let command = analysis.commands.first()?;
    let closed = matches!(&command.program, Program::Closed { reason, .. } if !reason.is_shell());
    if blocked || closed {
        return Some(Comparison::suspicion(blocked, closed));
    }
    let target = |command: &Command| command.executable().map(|found| found.found.clone());
    let wrappers: Vec<String> = command
        .wrappers
        .iter()
        .map(|layer| layer.name.clone())
        .collect();
    Some(Comparison::worst([
        Comparison::values(
            &expect.text("policyTarget").map(str::to_owned),
            &target(command),
            Direction::Different,
        ),
        Comparison::values(
            &expect.argv("effectiveArgv")?,
            &command.argv.to_vec(),
            Direction::Different,
        ),
        Comparison::values(&expect.argv("wrappers")?, &wrappers, Direction::Different),
    ]))
}

/// Asked on a host where every wrapper and shell lives in a trusted directory.
pub fn trust_plan(row: Row<'_>) -> Option<Answer> {
    let expect = row.expect();
    let argv = row.argv("argv")?;
    let blocked = expect.get("policyBlocked").as_bool()?;
    let resolver = VirtualHost::new();
    let dirs = trusted_dirs(&[]);
    let host = Host {
        resolver: &resolver,
        trusted_dirs: &dirs,
    };
    let analysis = analyse(Source::Argv(argv.clone()), "/tmp", host).ok()?;
    let closed = analysis.commands.iter().any(|command| {
        matches!(
            command.program,
            Program::Closed {
                reason: Closed::Wrapper | Closed::UntrustedWrapper,
                ..
            }
        )
    });
    if blocked || closed {
        return Some(Comparison::suspicion(blocked, closed));
    }
    let chain = unwrap_chain(&argv);
    let shell = chain.argv.first().is_some_and(|first| is_shell(first))
        || multiplexer(&chain.argv) == Multiplexer::Shell;
    let inline = match text_behind(&argv) {
        Text::Found {
            text,
            trusted: true,
        } => Some(text),
        _ => None,
    };
    let expected = expect.text("shellInlineCommand").map(str::to_owned);
    let otherwise = match (&expected, &inline) {
        (None, Some(_)) => Direction::Looser,
        (Some(_), None) => Direction::Stricter,
        _ => Direction::Different,
    };
    let mut answers = vec![Comparison::values(&expected, &inline, otherwise)];
    if let Some(expected) = expect.get("shellWrapperExecutable").as_bool() {
        answers.push(Comparison::suspicion(expected, shell));
    }
    Some(Comparison::worst(answers))
}
