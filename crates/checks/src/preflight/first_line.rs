//! Checks the first and the last line of a script, where shell lines tend to be left over.

use super::{FoundLanguage, Language, PreflightFinding};

/// The offsets of the first and the last piece of code.
#[derive(Debug, Clone, Default)]
pub(super) struct CodeLines {
    first: Option<usize>,
    last: Option<usize>,
}

impl CodeLines {
    pub fn see(&mut self, offset: usize) {
        self.first.get_or_insert(offset);
        self.last = Some(offset);
    }

    /// Only the first line, for a text that was not read to its end.
    pub fn only_first(&self) -> Self {
        Self {
            first: self.first,
            last: None,
        }
    }
}

/// Usual delimiters of here-documents that contain a program.
const MARKS: &[&str] = &[
    "EOF", "EOT", "PY", "PYEOF", "PYTHON", "JS", "JSEOF", "NODE", "NODEEOF", "SCRIPT",
];

/// Commands that usually get a program as a here-document.
const READERS: &[&str] = &[
    "cat", "tee", "python", "python3", "node", "bash", "sh", "sudo",
];

/// Words that may follow another word in Python or JavaScript.
const OPERATORS: &[&str] = &[
    "in",
    "is",
    "if",
    "and",
    "or",
    "not",
    "instanceof",
    "of",
    "as",
];

/// Checks the first and the last line. `is_unknown` tells whether nothing in the text can define a
/// word.
pub(super) fn check(
    text: &str,
    lines: &CodeLines,
    language: Language,
    is_unknown: impl Fn(&str) -> bool,
) -> Option<PreflightFinding> {
    let at = |offset: usize, found| PreflightFinding { offset, found };
    if let Some(offset) = lines.first {
        let line = line_from(text, offset);
        if is_mark(line, &is_unknown) {
            return Some(at(offset, FoundLanguage::Mark(line.to_owned())));
        }
        if is_shell(line, language, &is_unknown) {
            // Report only the first word, because the rest may be a secret.
            let word = line.split_whitespace().next().unwrap_or_default();
            return Some(at(offset, FoundLanguage::Line(word.to_owned())));
        }
    }
    let offset = start_of_line(text, lines.last?);
    let line = line_from(text, offset);
    is_mark(line, is_unknown).then(|| at(offset, FoundLanguage::Mark(line.to_owned())))
}

fn line_from(text: &str, offset: usize) -> &str {
    text[offset..].lines().next().unwrap_or_default().trim_end()
}

fn start_of_line(text: &str, offset: usize) -> usize {
    text[..offset].rfind('\n').map_or(0, |newline| newline + 1)
}

fn is_mark(line: &str, is_unknown: impl Fn(&str) -> bool) -> bool {
    MARKS.contains(&line) && is_unknown(line)
}

/// Whether a first line can only be a shell command. No name can be defined before the first line.
fn is_shell(line: &str, language: Language, is_unknown: impl Fn(&str) -> bool) -> bool {
    let mut words = line.split_whitespace();
    let (Some(first), second) = (words.next(), words.next().unwrap_or_default()) else {
        return false;
    };
    let is_word = |word: &str| {
        word.starts_with(|character: char| character.is_ascii_alphabetic())
            && !OPERATORS.contains(&word)
    };
    match first {
        "export" => second
            .split_once('=')
            .is_some_and(|(name, _)| is_name(name)),
        "set" => {
            let options = second.strip_prefix('-').unwrap_or_default();
            !options.is_empty()
                && options.chars().all(|option| "efuxo".contains(option))
                && words.all(|word| word == "pipefail")
                && is_unknown(first)
        }
        "echo" => (second.starts_with(['"', '\'', '$']) || is_word(second)) && is_unknown(first),
        "cd" => second.starts_with(['/', '~', '.', '$']) && is_unknown(first),
        "NODE" => {
            language == Language::JavaScript
                && !second.starts_with(['=', '.', '(', '[', ':', '?', ',', '`'])
                && is_unknown(first)
        }
        _ if READERS.contains(&first) => is_unknown(first) && ends_in_here_document(line),
        _ => false,
    }
}

/// Whether the line contains a here-document such as `… <<'EOF'`, possibly followed by more.
fn ends_in_here_document(line: &str) -> bool {
    let Some((_, mark)) = line.split_once("<<") else {
        return false;
    };
    let mark = mark.trim_start_matches('-').trim_start();
    let mark = mark.trim_start_matches(['\'', '"', '\\']);
    let length =
        mark.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    is_name(&mark[..length.unwrap_or(mark.len())])
}

fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
}
