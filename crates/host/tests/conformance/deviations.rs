//! Where Interlock answers otherwise on purpose: each rule with the sentence of the
//! specification that demands it.

use crate::comparison::{Comparison, Direction, Row};

pub struct Deviation {
    pub name: &'static str,
    pub file: &'static str,
    pub kinds: &'static [&'static str],
    pub direction: Direction,
    /// What the specification says.
    #[allow(dead_code)]
    pub because: &'static str,
    pub applies: fn(Row<'_>, &Comparison) -> bool,
}

const RULES: &[Deviation] = &[];

/// Kinds that ask what Interlock has no place for.
const NOT_OURS: &[(&str, &str, &str)] = &[];

pub fn find(file: &str, row: Row<'_>, comparison: &Comparison) -> Option<&'static Deviation> {
    RULES.iter().find(|rule| {
        rule.file == file
            && rule.kinds.contains(&row.kind())
            && rule.direction == comparison.direction
            && (rule.applies)(row, comparison)
    })
}

pub fn why_not_ours(file: &str, kind: &str) -> &'static str {
    NOT_OURS
        .iter()
        .find(|(of, name, _)| *of == file && *name == kind)
        .map_or("unknown kind", |(_, _, reason)| *reason)
}
