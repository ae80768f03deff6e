//! Refuses commands that do not belong in a shell, whatever the policy says. The answer names what
//! to use instead.
//!
//! This helps the caller; it is not a security boundary. What an agent may decide or see is checked
//! where decisions are made.

use interlock_command::{Analysis, Argv, Shape, Source};
use interlock_programs::names::program_name;

/// A refused command, and what to use instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refusal {
    code: &'static str,
    what: &'static str,
    instead: &'static str,
}

impl Refusal {
    /// The stable code for programs.
    pub fn code(&self) -> &'static str {
        self.code
    }

    pub fn remedy(&self) -> &'static str {
        self.instead
    }
}

/// A program and its refused subcommands.
struct RefusalRow {
    program: &'static str,
    /// Paths of subcommands. Options may come in between.
    words: &'static [&'static [&'static str]],
    refusal: Refusal,
}

const APPROVE: Refusal = Refusal {
    code: "APPROVE_IN_SHELL",
    what: "`/approve` is a chat command; a shell cannot run it",
    instead: "show the `/approve` line to the user, who can send it in the chat",
};

const DIRECTIVE: Refusal = Refusal {
    code: "DIRECTIVE_IN_SHELL",
    what: "`/elevated` is a directive of a conversation; a shell cannot run it, and it would change nothing",
    instead: "show the line to the user, who can set the conversation",
};

const ROWS: &[RefusalRow] = &[
    // Like `/approve`: an agent would decide its own request.
    RefusalRow {
        program: "interlock",
        words: &[
            &["approvals", "approve"],
            &["approvals", "deny"],
            &["approvals", "watch"],
        ],
        refusal: Refusal {
            code: "APPROVE_IN_SHELL",
            what: "approvals are decided by people, not through exec",
            instead: "show the command to the user, who can run it in a terminal of their own",
        },
    },
    // This shows a code to scan and waits for a person.
    RefusalRow {
        program: "openclaw",
        words: &[&["channels", "login"]],
        refusal: Refusal {
            code: "INTERACTIVE_LOGIN",
            what: "`openclaw channels login` needs a person at a terminal; exec cannot run it",
            instead: "ask the user to run it in a terminal on the gateway host, or use the login tool of the channel",
        },
    },
];

/// Searches a whole request for refused commands, also behind wrappers and in the text of another
/// shell.
pub fn refusal(analysis: &Analysis) -> Option<Refusal> {
    let plain = analysis.commands.iter().map(|command| &command.argv);
    if let Some(refusal) = first(plain) {
        return Some(refusal);
    }
    // Searching every layer is expensive, and few requests contain one of these words.
    if !may_hold_one(&analysis.source) {
        return None;
    }
    let sight = analysis.sight();
    first(sight.commands.iter().map(|seen| &seen.argv)).or_else(|| match &analysis.shape {
        Shape::Odd(_) if sight.commands.is_empty() => first_words(&analysis.source),
        _ => None,
    })
}

fn first<'a>(mut commands: impl Iterator<Item = &'a Argv>) -> Option<Refusal> {
    commands.find_map(|argv| of_argv(argv))
}

fn of_argv(argv: &[String]) -> Option<Refusal> {
    let (first, rest) = argv.split_first()?;
    if let Some(refusal) = chat_command(first) {
        return Some(refusal);
    }
    let program = program_name(first);
    let operands: Vec<&str> = rest
        .iter()
        .map(String::as_str)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let row = ROWS.iter().find(|row| {
        row.program == program
            && row.words.iter().any(|words| {
                // The first operand may be the value of an option.
                operands.starts_with(words)
                    || operands
                        .get(1..)
                        .is_some_and(|rest| rest.starts_with(words))
            })
    })?;
    (!asks_for_help(rest)).then_some(row.refusal)
}

/// Whether the command only asks for help, which needs no person at a terminal.
fn asks_for_help(rest: &[String]) -> bool {
    rest.iter().any(|word| word == "--help" || word == "-h")
}

/// The refusal of `/approve` and `/elevated`, also with the name of a bot (`/approve@bot`).
fn chat_command(word: &str) -> Option<Refusal> {
    let name = word.split('@').next().unwrap_or(word);
    let is = |command: &str| name.eq_ignore_ascii_case(command);
    if is("/approve") {
        return Some(APPROVE);
    }
    (is("/elevated") || is("/elev")).then_some(DIRECTIVE)
}

fn may_hold_one(source: &Source) -> bool {
    let holds = |text: &str| {
        let text = text.to_ascii_lowercase();
        ["/approve", "/elev", "approvals", "channels"]
            .iter()
            .any(|word| text.contains(word))
    };
    match source {
        Source::Text(text) => holds(text),
        Source::Argv(argv) => argv.iter().any(|word| holds(word)),
    }
}

/// Finds a chat command in a text that cannot be parsed, such as one with an open quote.
fn first_words(source: &Source) -> Option<Refusal> {
    let Source::Text(text) = source else {
        return None;
    };
    let mut lines = text.lines();
    lines.find_map(|line| chat_command(line.split_whitespace().next()?))
}

#[cfg(test)]
mod tests;
