//! Finds a program's table and reads its argv by that table.

use super::grammar::ProgramGrammar;
use super::hit::InlineHit;
use super::matcher::{Invocation, parse};
use super::{
    databases, editors, files, git, interpreters, jvm, languages, network, packages, stream,
    toolchains,
};
use crate::names::{program_name, without_version};

/// Programs whose purpose is to run program text or other programs (the inline table).
pub(super) const INLINE_TABLES: [&[ProgramGrammar]; 4] = [
    interpreters::PROGRAMS,
    languages::PROGRAMS,
    jvm::INTERPRETERS,
    stream::PROGRAMS,
];

/// Programs with another purpose, of which some options start programs, load code, point elsewhere
/// or write files.
const OPTION_TABLES: [&[ProgramGrammar]; 8] = [
    git::PROGRAMS,
    files::PROGRAMS,
    network::PROGRAMS,
    editors::PROGRAMS,
    toolchains::PROGRAMS,
    jvm::TOOLS,
    packages::PROGRAMS,
    databases::PROGRAMS,
];

/// Returns the most informative hit in this argv, by [`super::HitKind`] and then by position. Only
/// `argv[0]` itself is checked, not a program that it carries.
///
/// A hit may tighten a verdict. `None` is not a permission.
pub fn detect(argv: &[impl AsRef<str>]) -> Option<InlineHit> {
    let name = program_name(argv.first()?.as_ref());
    let program = find(&name)?;
    let argv: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
    let invocation = Invocation {
        program: &name,
        argv: &argv,
    };
    let parsed = parse(&argv, 1, program.grammar);
    let mut hits = invocation.apply(&parsed);
    if let Some(inspect) = program.inspect {
        hits.extend(inspect(&invocation, &parsed));
    }
    hits.into_iter().min_by_key(|hit| (hit.kind, hit.arg_index))
}

/// Reads an argv by a program's table: returns the options and operands, and the findings of the
/// program's own inspection. Returns `None` for a program without a table.
pub(super) fn read<'a>(
    name: &str,
    argv: &[&'a str],
) -> Option<(super::matcher::ParsedLine<'a>, Vec<InlineHit>)> {
    let program = find(name)?;
    let invocation = Invocation {
        program: name,
        argv,
    };
    let parsed = parse(argv, 1, program.grammar);
    let found = program
        .inspect
        .map_or_else(Vec::new, |inspect| inspect(&invocation, &parsed));
    Some((parsed, found))
}

/// How a program can run code that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The purpose of the program is to run program text.
    Interpreter,
    /// Some of its options start programs, load code, point elsewhere or write files.
    Options,
}

/// Returns what the tables know of a program, by name or path. `None` does not prove that it is
/// harmless.
pub fn reach(program: &str) -> Option<Reach> {
    let name = program_name(program);
    if super::runtimes::is_runtime(&name) {
        return Some(Reach::Interpreter);
    }
    let is_inline = |name: &str| in_tables(&INLINE_TABLES, name).is_some();
    find(&name)?;
    let mut names = [
        Some(&*name),
        without_version(&name),
        toolchains::without_target(&name),
    ]
    .into_iter()
    .flatten();
    Some(if names.any(is_inline) {
        Reach::Interpreter
    } else {
        Reach::Options
    })
}

fn find(name: &str) -> Option<&'static ProgramGrammar> {
    let by_name =
        |name: &str| in_tables(&INLINE_TABLES, name).or_else(|| in_tables(&OPTION_TABLES, name));
    by_name(name)
        .or_else(|| by_name(without_version(name)?))
        .or_else(|| by_name(toolchains::without_target(name)?))
}

fn in_tables(tables: &[&'static [ProgramGrammar]], name: &str) -> Option<&'static ProgramGrammar> {
    let mut rows = tables.iter().flat_map(|table| table.iter());
    rows.find(|program| program.names.contains(&name))
}
