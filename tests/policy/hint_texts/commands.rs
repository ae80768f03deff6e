//! Finds the commands of this program in texts for readers.

/// How a command stands in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandForm {
    /// To be pasted as it stands.
    Whole,
    /// Named between backticks: its arguments may be missing.
    Named,
}

/// A command as it is written, placeholders included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenCommand {
    pub text: String,
    pub form: CommandForm,
    /// Where it stands, for the message of a failure.
    pub place: String,
}

const PROGRAM: &str = "interlock";

/// What ends a command that is not between backticks.
const ENDS: &[&str] = &[
    "\n", "`", ")", "; ", ", ", " && ", " || ", " | ", " > ", " < ", " #",
];

/// Every command in a text that the program prints.
pub fn commands_in_text(text: &str, place: &str) -> Vec<WrittenCommand> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(PROGRAM) {
        let rest = &text[at..];
        let before = text[..at].chars().next_back();
        // `interlock-gateway`, `/usr/bin/interlock`, `{interlock`, and a name that ends a word.
        let is_part = before.is_some_and(|c| c.is_alphanumeric() || "_-/.{".contains(c));
        if is_part || !rest[PROGRAM.len()..].starts_with(' ') {
            continue;
        }
        let (text, form) = if before == Some('`') {
            let end = rest.find('`').unwrap_or(rest.len());
            (&rest[..end], CommandForm::Named)
        } else {
            (&rest[..end_of_command(rest)], CommandForm::Whole)
        };
        found.push(WrittenCommand {
            text: text.trim_end_matches(['.', ':', ';', ',', ' ']).to_owned(),
            form,
            place: place.to_owned(),
        });
    }
    found
}

/// Every command in a page of the documentation: lines of code blocks, and code within a sentence.
pub fn commands_in_page(page: &str, path: &str) -> Vec<WrittenCommand> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (index, line) in page.lines().enumerate() {
        let place = format!("{path}:{}", index + 1);
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            let commands = commands_in_text(line, &place);
            let is_started = |command: &WrittenCommand| {
                line.split(command.text.as_str())
                    .next()
                    .is_some_and(is_command_position)
            };
            found.extend(commands.into_iter().filter(is_started));
        } else {
            let code = line.split('`').skip(1).step_by(2);
            let code = code.filter(|code| {
                let at = code.find("interlock ");
                at.is_some_and(|at| is_command_position(&code[..at]))
            });
            for code in code {
                found.extend(commands_in_text(code, &place).into_iter().map(|command| {
                    WrittenCommand {
                        form: CommandForm::Named,
                        ..command
                    }
                }));
            }
        }
    }
    found
}

/// Whether what stands before it on the line lets a program be started here.
fn is_command_position(before: &str) -> bool {
    let before = before.trim_end();
    let last = before.split_ascii_whitespace().next_back();
    last.is_none_or(|word| {
        ["$", "|", "&&", ";", "sudo"].contains(&word)
            || word.contains('=') && !word.starts_with('-')
    })
}

fn end_of_command(rest: &str) -> usize {
    let mut quote = None;
    for (at, c) in rest.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if ENDS.iter().any(|end| rest[at..].starts_with(end)) => return at,
            _ => {}
        }
    }
    rest.len()
}

/// The words of a command, as a shell would pass them. None where a quote stays open.
pub fn shell_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\n' => words.extend(word.take()),
            '\'' => {
                let open = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        other => open.push(other),
                    }
                }
            }
            '"' => {
                let open = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' => open.push(characters.next()?),
                        other => open.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}
