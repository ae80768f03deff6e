//! Finds secrets in a command by the table of [`shapes`](super::shapes).
//!
//! A mask stays inside one word that the lexer proved literal. If the lexer cannot prove every word
//! of a text, the text gets no masks, because what looks like a value could be code.

mod fields;
mod tokens;

use std::ops::Range;

use interlock_programs::names::program_name;
use interlock_programs::{ShellCall, is_dispatch_wrapper, is_shell, opaque_reason, shell_call};

use super::hidden::is_hidden;
use super::shapes::{
    CERTAIN_OPTIONS, FLAG_ONLY, LOGIN_ONLY, SWITCHES, SecretTakes, is_secret_character,
};
use super::{Mask, MaskStyle};
use crate::lexer::{ProvenWord, proven_words};

/// How deeply shells inside shells are searched.
const MAX_DEPTH: usize = 3;

/// Returns the secrets of a command text, in order and without overlaps.
pub(super) fn find(text: &str) -> Vec<Mask> {
    let seen = SeenText::new(text);
    let found = in_text(&seen.text, 0);
    let masks = found.into_iter().map(|secret| Mask {
        start: seen.places[secret.bytes.start],
        end: seen.places[secret.bytes.end],
        style: secret.style,
    });
    masks.collect()
}

/// Returns the secrets of a value with this name. No shell reads the value.
pub(super) fn find_in_value(name: &str, value: &str) -> Vec<Mask> {
    let is_whole = !value.is_empty() && value.chars().all(is_secret_character);
    let found = if is_whole && fields::is_secret_assignment(name, value) {
        vec![SecretSpan::token(0..value.len())]
    } else {
        in_value(value, SecretPlace::Argument)
    };
    let masks = found.into_iter().map(|secret| Mask {
        start: secret.bytes.start,
        end: secret.bytes.end,
        style: secret.style,
    });
    masks.collect()
}

/// The bytes of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SecretSpan {
    bytes: Range<usize>,
    style: MaskStyle,
}

impl SecretSpan {
    fn token(bytes: Range<usize>) -> Self {
        let style = MaskStyle::Token;
        Self { bytes, style }
    }
}

/// The text without invisible characters, so that none of them splits a secret or its name. Blanks
/// and control characters stay, because they decide what a shell reads.
struct SeenText {
    text: String,
    /// The position in the original of each byte and of the end.
    places: Vec<usize>,
}

impl SeenText {
    fn new(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut places = Vec::with_capacity(original.len() + 1);
        let mut end = 0;
        for (at, character) in original.char_indices() {
            if is_hidden(character) && !character.is_ascii() && !character.is_control() {
                continue;
            }
            text.push(character);
            places.extend((0..character.len_utf8()).map(|byte| at + byte));
            end = at + character.len_utf8();
        }
        places.push(end);
        Self { text, places }
    }
}

/// The role of a word in its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretPlace {
    Argument,
    /// An argument of a program that starts others, so the word may name the started program.
    CodeArgument,
}

fn in_text(text: &str, depth: usize) -> Vec<SecretSpan> {
    let Some(commands) = proven_words(text) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for words in &commands {
        in_command(text, words, depth, &mut found);
    }
    found
}

fn in_command(text: &str, words: &[ProvenWord], depth: usize, found: &mut Vec<SecretSpan>) {
    let leading = words
        .iter()
        .take_while(|word| word.assignment.is_some())
        .count();
    let (assignments, words) = words.split_at(leading);
    for word in assignments {
        let name = word.assignment.unwrap_or_default();
        if let Some(literal) = Literal::read(text, word) {
            literal.keep(in_assignment(&word.text, name), found);
        }
    }
    let Some((program, arguments)) = words.split_first() else {
        return;
    };
    let starts_others = is_shell(&program.text)
        || is_dispatch_wrapper(&program.text)
        || opaque_reason(&program.text).is_some();
    let inner = inner_text(words).filter(|_| depth < MAX_DEPTH);
    let name = program_name(&program.text);
    for (index, word) in arguments.iter().enumerate() {
        let Some(literal) = Literal::read(text, word) else {
            continue;
        };
        let secrets = if inner == Some(index + 1) {
            in_text(&word.text, depth + 1)
        } else {
            match announced(&name, &arguments[..index], &word.text, starts_others) {
                Some(bytes) => vec![SecretSpan::token(bytes)],
                None if starts_others => in_value(&word.text, SecretPlace::CodeArgument),
                None => in_value(&word.text, SecretPlace::Argument),
            }
        };
        literal.keep(secrets, found);
    }
}

/// Returns which word of a shell's call is shell text.
fn inner_text(words: &[ProvenWord]) -> Option<usize> {
    let argv: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
    match shell_call(&argv) {
        ShellCall::Text { index, .. } => Some(index),
        _ => None,
    }
}

fn in_assignment(word: &str, name_length: usize) -> Vec<SecretSpan> {
    let (name, value) = (&word[..name_length], &word[name_length + 1..]);
    let is_whole = !value.is_empty() && value.chars().all(is_secret_character);
    if is_whole && fields::is_secret_assignment(name, value) {
        return vec![SecretSpan::token(name_length + 1..word.len())];
    }
    let mut secrets = in_value(value, SecretPlace::Argument);
    for secret in &mut secrets {
        secret.bytes = secret.bytes.start + name_length + 1..secret.bytes.end + name_length + 1;
    }
    secrets
}

/// Returns the secrets in a word, in order and without overlaps.
fn in_value(value: &str, place: SecretPlace) -> Vec<SecretSpan> {
    let mut secrets = Vec::new();
    let is_file_name = value.contains('/') && !value.contains(['=', ':', ' ', '@']);
    if !is_file_name {
        tokens::find(value, &mut secrets);
    }
    fields::find(value, place, &mut secrets);
    secrets.sort_by_key(|secret| (secret.bytes.start, usize::MAX - secret.bytes.end));
    let mut end = 0;
    secrets.retain(|secret| {
        let is_apart = secret.bytes.start >= end && !secret.bytes.is_empty();
        if is_apart {
            end = secret.bytes.end;
        }
        is_apart
    });
    secrets
}

/// Returns the part of a word that is a secret because of the option before it or in it.
fn announced(
    program: &str,
    before: &[ProvenWord],
    word: &str,
    starts_others: bool,
) -> Option<Range<usize>> {
    let last = before.last().map(|last| last.text.as_str());
    let whole = |range: Range<usize>| {
        let secret = &word[range.clone()];
        (!secret.is_empty() && secret.chars().all(is_secret_character)).then_some(range)
    };
    let is_login = !LOGIN_ONLY.contains(&program) || before.iter().any(|word| word.text == "login");
    for row in CERTAIN_OPTIONS {
        if !row.programs.contains(&program) || !is_login {
            continue;
        }
        let follows = last.is_some_and(|last| row.options.contains(&last));
        match row.takes {
            SecretTakes::Next if follows => return whole(0..word.len()),
            SecretTakes::NextBehind(sign) if follows => {
                let at = word.find(sign)?;
                return whole(at + sign.len_utf8()..word.len());
            }
            SecretTakes::Attached => {
                let mut options = row.options.iter();
                if let Some(option) = options.find(|option| word.starts_with(*option)) {
                    return whole(option.len()..word.len());
                }
            }
            SecretTakes::Next | SecretTakes::NextBehind(_) => {}
        }
    }
    let option = last?.strip_prefix("--")?;
    let is_switch = SWITCHES.iter().any(|switch| option.starts_with(switch));
    let is_secret = !option.contains('=') && fields::is_secret_name(option);
    if starts_others || is_switch || !is_secret || FLAG_ONLY.contains(&program) {
        return None;
    }
    let is_other = word.starts_with('-') || is_path(word) || word.contains("://");
    whole(0..word.len()).filter(|_| !is_other)
}

/// Whether the word is a path. A word that names a file may be the program that runs.
fn is_path(word: &str) -> bool {
    ["/", "./", "../", "~"]
        .iter()
        .any(|start| word.starts_with(start))
}

/// A proven word: its meaning, and the position of each character in the text.
struct Literal {
    meaning: String,
    /// Characters that no mask may hide.
    globs: &'static str,
    /// For each byte of the meaning, the bytes of the text that express its character.
    places: Vec<Range<usize>>,
}

impl Literal {
    /// Returns `None` if the word is expanded, or if this reading differs from the lexer's.
    fn read(text: &str, word: &ProvenWord) -> Option<Self> {
        // An unquoted URL is a pattern because of its `?`. It is still one word, and it means
        // itself unless a file has such a path.
        let is_url = word.is_glob && word.text.contains("://");
        if !word.is_literal && !is_url {
            return None;
        }
        let mut places = Vec::new();
        let mut meaning = String::new();
        let raw = word.span.of(text);
        let mut rest = raw.char_indices().peekable();
        let mut quote = None;
        while let Some((at, character)) = rest.next() {
            let (said, end) = match (quote, character) {
                (None, '\'') => {
                    quote = Some('\'');
                    continue;
                }
                (None, '"') => {
                    quote = Some('"');
                    continue;
                }
                (None, '$') if rest.next_if(|(_, next)| *next == '\'').is_some() => {
                    quote = Some('$');
                    continue;
                }
                (Some('\'' | '$'), '\'') | (Some('"'), '"') => {
                    quote = None;
                    continue;
                }
                (None, '\\') => {
                    let (at, next) = rest.next()?;
                    (next, at + next.len_utf8())
                }
                (Some('"'), '\\') => match rest.next_if(|(_, next)| "$`\"\\".contains(*next)) {
                    Some((at, next)) => (next, at + 1),
                    None => ('\\', at + 1),
                },
                (Some('$'), '\\') => {
                    let (at, next) = rest.next()?;
                    let said = match next {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    };
                    (said, at + next.len_utf8())
                }
                (_, other) => (other, at + other.len_utf8()),
            };
            meaning.push(said);
            let place = word.span.start + at..word.span.start + end;
            places.extend(std::iter::repeat_n(place, said.len_utf8()));
        }
        let globs = if is_url { "*?[" } else { "" };
        (meaning == word.text).then_some(Self {
            meaning,
            globs,
            places,
        })
    }

    /// Adds secrets of the meaning as secrets of the text. Quotes within a secret stay visible.
    fn keep(&self, secrets: Vec<SecretSpan>, found: &mut Vec<SecretSpan>) {
        for secret in secrets {
            if self.meaning[secret.bytes.clone()].contains(|c| self.globs.contains(c)) {
                continue;
            }
            let mut piece: Option<Range<usize>> = None;
            for place in &self.places[secret.bytes] {
                piece = match piece {
                    Some(piece) if piece.end == place.start => Some(piece.start..place.end),
                    // This is another byte of the same character.
                    Some(piece) if piece.end == place.end => Some(piece),
                    Some(done) => {
                        let style = secret.style;
                        found.push(SecretSpan { bytes: done, style });
                        Some(place.clone())
                    }
                    None => Some(place.clone()),
                };
            }
            if let Some(bytes) = piece {
                let style = secret.style;
                found.push(SecretSpan { bytes, style });
            }
        }
    }
}
