//! Why a command is not a safe bin, in words for the person or agent who wrote it.

/// A refusal. Each text names the word, the reason and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SafeBinRefusal {
    #[error(
        "`{name}` cannot be a safe bin: {why}; add an allowlist entry for it (with `argPattern` or `args` if only some uses are meant)"
    )]
    AlwaysRefused { name: String, why: &'static str },
    #[error(
        "`{name}` has no safe-bin profile; describe its arguments in `safeBinProfiles` or add an allowlist entry for it"
    )]
    NoProfile { name: String },
    #[error("there is no command to judge")]
    NoCommand,
    #[error(
        "`{token}` was not written literally: safe bins take no globs and no `~`; write the text itself, quoted"
    )]
    NotLiteral { token: String },
    #[error(
        "`{token}` contains `$` or a backtick: safe bins take nothing that a shell could expand; write the text itself"
    )]
    Expansion { token: String },
    #[error("`{token}` contains a control character; write an escape such as `\\n` instead")]
    ControlCharacter { token: String },
    #[error(
        "`{token}` uses the flag `{flag}`, which `{name}` may not have as a safe bin: {why}; leave it out or add an allowlist entry"
    )]
    DeniedFlag {
        name: String,
        token: String,
        flag: String,
        why: String,
    },
    #[error("`{token}` abbreviates the flag `{flag}`; write it in full")]
    AbbreviatedFlag { token: String, flag: String },
    #[error(
        "`{token}` has the flag `{flag}`, which is not among those that `{name}` may have as a safe bin; leave it out or add an allowlist entry"
    )]
    UnknownFlag {
        name: String,
        token: String,
        flag: String,
    },
    #[error("`{token}` gives a value to the flag `{flag}`, which takes none")]
    UnexpectedValue { token: String, flag: String },
    #[error("the flag `{flag}` needs a value and none follows")]
    MissingValue { flag: String },
    #[error(
        "`{value}` after the flag `{flag}` looks like a flag itself; attach it to the flag if it is the value"
    )]
    ValueLooksLikeFlag { flag: String, value: String },
    #[error("`{value}` is not a value for the flag `{flag}`: expected {expected}")]
    BadValue {
        flag: String,
        value: String,
        expected: String,
    },
    #[error(
        "`{token}` could be a file: as a safe bin `{name}` reads only standard input; pipe the file into it or add an allowlist entry"
    )]
    FileOperand { name: String, token: String },
    #[error("`{token}` is one operand too many: as a safe bin `{name}` takes at most {most}")]
    TooManyOperands {
        name: String,
        token: String,
        most: usize,
    },
    #[error("`{name}` needs at least {fewest} operand(s) as a safe bin and has {given}")]
    TooFewOperands {
        name: String,
        fewest: usize,
        given: usize,
    },
    #[error(
        "`{token}` stands after an operand, where some systems take it for a file; put flags first"
    )]
    FlagAfterOperand { token: String },
    #[error("`-` stands for standard input and can be named once")]
    StandardInputTwice,
}

/// Formats a word of the command for printing: escaped, and cut if it is long.
pub(super) fn shown(word: &str) -> String {
    const MOST: usize = 120;
    let mut text: String = word
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if word.chars().nth(MOST).is_some() {
        text.push('…');
    }
    text
}
