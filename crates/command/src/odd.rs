//! The reasons why a text is not plain. They only tighten: no reason can lead to "allowed".

use serde::Serialize;

use crate::Span;

/// The first place where the strict lexer could not continue, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{} at byte {}", .reason.message(), .span.start)]
pub struct NotPlain {
    pub reason: Odd,
    pub span: Span,
}

impl Odd {
    /// Whether the words are known, and only their expansion on this host made the text odd.
    pub(crate) fn is_of_expansion(self) -> bool {
        matches!(
            self,
            Self::GlobOption | Self::GlobFailed | Self::GlobTooMany | Self::HomeUnknown
        )
    }
}

macro_rules! odd {
    ($($(#[$doc:meta])* $variant:ident = $code:literal: $message:literal),+ $(,)?) => {
        /// A reason why a text is not plain.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        pub enum Odd { $($(#[$doc])* #[serde(rename = $code)] $variant),+ }

        impl Odd {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// A stable code, for programs.
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// A message, for people.
            pub fn message(self) -> &'static str {
                match self { $(Self::$variant => $message),+ }
            }
        }
    };
}

odd! {
    Empty = "empty": "there is no command",
    TooLong = "too-long": "the text is longer than 64 KiB",
    TooManyWords = "too-many-words": "the text holds more than 256 commands or 8192 words",
    NulByte = "nul": "the text holds a NUL character",
    ControlCharacter = "control-character": "the text holds a control character",
    /// The character looks like a blank, but no shell treats it as one.
    UnusualBlank = "unusual-blank": "an unusual blank stands outside quotes",
    UnterminatedQuote = "unterminated-quote": "a quote is not closed",
    LineContinuation = "line-continuation": "a line continuation touches a word",
    TrailingBackslash = "trailing-backslash": "the text ends in a backslash",
    /// `$NAME`, `${…}`, `$((…))`, `$"…"`.
    Expansion = "dynamic-argument": "`$` is expanded by the shell",
    CommandSubstitution = "command-substitution": "a command substitution runs another command",
    ProcessSubstitution = "process-substitution": "a process substitution runs another command",
    HistoryMark = "history-mark": "`!` inside double quotes",
    Escape = "escape": "an escape inside `$'…'` that is not a simple one",
    Parenthesis = "parenthesis": "a parenthesis (subshell, function or array)",
    Brace = "brace": "an unquoted brace",
    ReservedWord = "reserved-word": "a reserved word of the shell",
    Builtin = "builtin": "a builtin of the shell that Interlock does not have",
    BuiltinAssignment = "builtin-assignment": "an assignment in front of a builtin",
    AssignmentOnly = "assignment-only": "an assignment without a command",
    Append = "append-assignment": "an appending assignment",
    NoCommand = "no-command": "a redirection without a command",
    DanglingOperator = "dangling-operator": "an operator without a command beside it",
    UnknownOperator = "unknown-operator": "an operator that is not understood",
    Redirect = "redirect": "a redirection that names a file",
    Heredoc = "heredoc": "a here-document",
    DynamicExecutable = "dynamic-executable": "the command name is a pattern",
    Tilde = "tilde": "a tilde that is not simply the home directory",
    GlobForm = "glob-form": "a pattern that shells read in different ways",
    /// Found during preparation, when globs are matched with the file system.
    GlobOption = "glob-option": "a glob expands to a name that begins with `-`",
    GlobFailed = "glob-failed": "a glob cannot be expanded",
    GlobTooMany = "GLOB_TOO_MANY": "the globs of the line lead to more than 4,096 paths (GLOB_TOO_MANY): name a directory, or use the program's own recursion",
    HomeUnknown = "home-unknown": "the home directory is not known",
}
