//! Program names that deserve a warning if an allowlist entry trusts them with any arguments.

use super::detect::INLINE_TABLES;
use crate::names::{program_name, without_version};

/// Programs that read and run program text. Listing one as a safe bin is a mistake.
const INTERPRETER_LIKE_SAFE_BINS: [&str; 32] = [
    "ash",
    "awk",
    "bash",
    "busybox",
    "bun",
    "cmd",
    "cscript",
    "dash",
    "deno",
    "fish",
    "gawk",
    "gsed",
    "ksh",
    "lua",
    "mawk",
    "nawk",
    "node",
    "nodejs",
    "perl",
    "php",
    "powershell",
    "pypy",
    "pwsh",
    "python",
    "python2",
    "python3",
    "ruby",
    "sed",
    "sh",
    "toybox",
    "wscript",
    "zsh",
];

/// Names that also count with a version: `python3.12`, `node20`.
const VERSIONED: [&str; 5] = ["python", "ruby", "perl", "php", "node"];

/// Whether a name or path given as a safe bin is an interpreter.
pub fn is_interpreter_like_safe_bin(name: &str) -> bool {
    let name = program_name(name);
    let versioned = || without_version(&name).is_some_and(|stem| VERSIONED.contains(&stem));
    INTERPRETER_LIKE_SAFE_BINS.contains(&&*name) || versioned()
}

/// Whether an allowlist pattern covers a program of the inline table, so that an entry without
/// argument patterns would cover any code. A wildcard in the last component covers everything that
/// it could match.
pub fn is_inline_capable_pattern(pattern: &str) -> bool {
    let name = program_name(pattern);
    let names = || {
        let programs = INLINE_TABLES.iter().flat_map(|table| table.iter());
        programs.flat_map(|program| program.names.iter().copied())
    };
    let known = |name: &str| names().any(|known| known == name);
    if known(&name) || without_version(&name).is_some_and(known) {
        return true;
    }
    let Some(first_wildcard) = name.find(is_wildcard) else {
        return false;
    };
    without_version(&name[..first_wildcard]).is_some_and(known)
        || names().any(|known| could_match(&name, known))
}

fn is_wildcard(c: char) -> bool {
    matches!(c, '*' | '?' | '[' | '{')
}

/// Matches a glob and answers yes when in doubt: a class matches any character, an alternative
/// matches anything.
fn could_match(pattern: &str, name: &str) -> bool {
    let mut chars = pattern.chars();
    let Some(first) = chars.next() else {
        return name.is_empty();
    };
    let behind = chars.as_str();
    let mut rest_of_name = name.chars();
    match first {
        '{' => true,
        '*' => {
            let behind = behind.trim_start_matches('*');
            behind.is_empty()
                || (0..=name.len())
                    .filter_map(|at| name.get(at..))
                    .any(|tail| could_match(behind, tail))
        }
        '[' => {
            let Some((_, behind)) = behind.split_once(']') else {
                return true;
            };
            rest_of_name.next().is_some() && could_match(behind, rest_of_name.as_str())
        }
        '?' => rest_of_name.next().is_some() && could_match(behind, rest_of_name.as_str()),
        literal => {
            rest_of_name.next() == Some(literal) && could_match(behind, rest_of_name.as_str())
        }
    }
}
