//! Suggests how to rewrite a command that no entry satisfies, so that it can be judged.

use interlock_command::Odd;

use super::Facts;
use crate::verdict::{JudgedCommand, Outcome};

/// How odd text can be written instead, by the construct that makes it odd.
const INSTEAD_OF_ODD_TEXT: &[(&[Odd], &str)] = &[
    (
        &[Odd::Expansion],
        "write the value out instead of the variable",
    ),
    (
        &[Odd::CommandSubstitution, Odd::ProcessSubstitution],
        "run the inner command in a call of its own, and write its result into this one",
    ),
    (
        &[Odd::Redirect, Odd::Heredoc, Odd::NoCommand],
        "write files with apply_patch instead of a redirection; `2>&1` and `>/dev/null` are plain",
    ),
    (
        &[Odd::ReservedWord, Odd::Parenthesis, Odd::Brace],
        "make a call for each step, or put the lines into a script file and run that",
    ),
    (&[Odd::Builtin, Odd::BuiltinAssignment], INSTEAD_OF_CD),
    (
        &[Odd::AssignmentOnly, Odd::Append],
        "put the assignment in front of the command that needs it",
    ),
    (
        &[
            Odd::GlobForm,
            Odd::GlobOption,
            Odd::GlobFailed,
            Odd::GlobTooMany,
            Odd::DynamicExecutable,
        ],
        "name the files, or a directory, instead of the pattern",
    ),
    (
        &[Odd::Tilde, Odd::HomeUnknown],
        "write the path in full instead of `~`",
    ),
    (
        &[Odd::TooLong, Odd::TooManyWords],
        "put the lines into a script file and run that",
    ),
    (
        &[
            Odd::UnterminatedQuote,
            Odd::DanglingOperator,
            Odd::TrailingBackslash,
            Odd::LineContinuation,
            Odd::UnknownOperator,
            Odd::Escape,
            Odd::HistoryMark,
            Odd::ControlCharacter,
            Odd::UnusualBlank,
            Odd::NulByte,
            Odd::Empty,
        ],
        "write literal words, with single quotes around what is special, joined by && || ; or |",
    ),
];

/// A change of the directory is followed only at the beginning of a line.
const INSTEAD_OF_CD: &str =
    "name the directory as `workdir` (--cwd) instead of `cd`, and make a call for each step";

/// Suggestions for plain commands that no entry can satisfy, by the code of the miss.
const INSTEAD_OF_MISS: &[(&str, &str)] = &[
    (
        "shell",
        "run the program itself instead of a shell that runs it",
    ),
    (
        "shell-text",
        "run the commands of the text themselves, in calls of their own",
    ),
    (
        "shell-untrusted",
        "run the commands themselves, or use a shell of the system",
    ),
    (
        "not-found",
        "check the name, or write the path of the program",
    ),
    (
        "builtin-form",
        "leave the option out, or name the program by its path",
    ),
    (
        "env-assignment",
        "leave the variable out; no entry can admit it",
    ),
    (
        "opaque",
        "run the inner program itself, with its arguments written out",
    ),
    (
        "wrapper",
        "run the inner program itself, without the wrapper",
    ),
    (
        "inline-code",
        "put the code into a file and run that, so that an approver sees it whole",
    ),
    (
        "unseen-words",
        "write the words out, so that the deny rules can see them",
    ),
];

/// Returns how the command can be written instead, or `None` if it may run or no rewriting helps.
pub(super) fn suggestion(facts: &Facts, outcome: Outcome, code: &str) -> Option<&'static str> {
    if outcome.is_allow() || facts.is_refused() {
        return None;
    }
    if let Some(odd) = facts.odd_kind {
        let rows = INSTEAD_OF_ODD_TEXT;
        let row = rows.iter().find(|(kinds, _)| kinds.contains(&odd));
        return row.map(|(_, words)| *words);
    }
    let of_code = |code: &str| {
        let mut rows = INSTEAD_OF_MISS.iter();
        rows.find(|(known, _)| *known == code)
            .map(|(_, words)| *words)
    };
    let of_miss = |judged: &JudgedCommand| match judged.argv.first() {
        Some(name) if name == "cd" => Some(INSTEAD_OF_CD),
        _ => of_code(judged.reason.code),
    };
    let mut misses = facts
        .segments
        .iter()
        .filter(|judged| judged.satisfied_by.is_none());
    of_code(code).or_else(|| misses.find_map(of_miss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_odd_text_has_one_suggestion() {
        for odd in Odd::ALL {
            let rows = INSTEAD_OF_ODD_TEXT.iter();
            let count = rows.filter(|(kinds, _)| kinds.contains(odd)).count();
            assert_eq!(count, 1, "{odd:?}");
        }
    }
}
