//! A JavaScript lexer that is exact enough to find names. If a slash could be a division or a
//! regular expression, the lexer gives up, and the script is not reported.

use super::first_line::{self, CodeLines};
use super::names::ScriptNames;
use super::{Language, PreflightFinding};

pub(super) fn check(text: &str) -> Option<PreflightFinding> {
    let mut lexer = Lexer::new(text);
    let complete = lexer.run().is_some();
    let tokens = lexer.tokens;
    let names = ScriptNames::new(text, &tokens).filter(|_| complete);
    let is_unknown = |word: &str| match &names {
        Some(names) => !names.is_known(word),
        None => text.matches(word).count() == 1,
    };
    let mut lines = CodeLines::default();
    for token in &tokens {
        lines.see(token.start);
    }
    if !complete {
        lines = lines.only_first();
    }
    first_line::check(text, &lines, Language::JavaScript, is_unknown)
        .or_else(|| names.as_ref()?.first_shell_variable())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScriptToken<'a> {
    pub kind: ScriptTokenKind,
    pub text: &'a str,
    pub start: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptTokenKind {
    /// A name or keyword.
    Word,
    Punctuation,
    /// A number, string or regular expression, or a part of a template.
    Literal,
}

/// Punctuation of several characters, the longest first.
const PUNCTUATION: &[&str] = &[
    ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "=>", "==", "!=",
    "<=", ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=",
    "<<", ">>", "**",
];

/// Words before a value. A slash after them starts a regular expression.
const BEFORE_VALUE: &[&str] = &[
    "return",
    "typeof",
    "instanceof",
    "in",
    "new",
    "delete",
    "void",
    "throw",
    "case",
    "do",
    "else",
];

/// Words that may also be names, so that a slash after them is ambiguous.
const UNDECIDED: &[&str] = &["of", "yield", "await"];

/// Words whose closing parenthesis is followed by a statement.
const BEFORE_STATEMENT: &[&str] = &["if", "while", "for", "with"];

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<ScriptToken<'a>>,
    /// The open brackets. The brace of a template is a separate kind.
    open: Vec<OpenBracket>,
    /// Whether the last closing parenthesis ended the head of a statement.
    closed_head: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenBracket {
    Template,
    Brace,
    Bracket,
    Parenthesis { head: bool },
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str) -> Self {
        let start = text.trim_start_matches('\u{feff}');
        let mut at = text.len() - start.len();
        if start.starts_with("#!") {
            at += start.find('\n').unwrap_or(start.len());
        }
        Self {
            text,
            at,
            tokens: Vec::new(),
            open: Vec::new(),
            closed_head: false,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn push(&mut self, kind: ScriptTokenKind, length: usize) {
        let start = self.at;
        self.at += length;
        self.tokens.push(ScriptToken {
            kind,
            text: &self.text[start..self.at],
            start,
        });
    }

    /// Reads all tokens. Returns `None` if the text is not understood.
    fn run(&mut self) -> Option<()> {
        while let Some(character) = self.rest().chars().next() {
            let rest = self.rest();
            match character {
                _ if character.is_whitespace() || character == '\u{feff}' => {
                    self.at += character.len_utf8();
                }
                '/' if rest.starts_with("//") => self.skip_line(),
                '<' if rest.starts_with("<!--") => self.skip_line(),
                '-' if rest.starts_with("-->") && self.is_first_of_line() => self.skip_line(),
                '/' if rest.starts_with("/*") => self.at += rest[2..].find("*/")? + 4,
                '/' if self.starts_regex()? => {
                    let length = regex(rest)?;
                    self.push(ScriptTokenKind::Literal, length);
                }
                '"' | '\'' => {
                    let length = string(rest, character)?;
                    self.push(ScriptTokenKind::Literal, length);
                }
                '`' => self.template(1)?,
                '}' if self.open.last() == Some(&OpenBracket::Template) => {
                    self.open.pop();
                    self.template(1)?;
                }
                '0'..='9' => self.number(),
                '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => self.number(),
                _ if is_word(character) || character == '\\' || character == '#' => {
                    let head = character.len_utf8();
                    let tail = rest[head..].find(|next: char| !is_word(next) && next != '\\');
                    self.push(
                        ScriptTokenKind::Word,
                        tail.map_or(rest.len(), |tail| head + tail),
                    );
                }
                _ => self.punctuation(character)?,
            }
        }
        self.open.is_empty().then_some(())
    }

    fn skip_line(&mut self) {
        let rest = self.rest();
        self.at += rest.find('\n').unwrap_or(rest.len());
    }

    fn is_first_of_line(&self) -> bool {
        let before = &self.text[..self.at];
        let line = before.rsplit('\n').next().unwrap_or(before);
        line.trim().is_empty()
    }

    fn number(&mut self) {
        let rest = self.rest();
        let is_part = |next: char| next.is_ascii_alphanumeric() || next == '_' || next == '.';
        let length = rest.find(|next: char| !is_part(next)).unwrap_or(rest.len());
        self.push(ScriptTokenKind::Literal, length);
    }

    fn punctuation(&mut self, character: char) -> Option<()> {
        let rest = self.rest();
        let known = PUNCTUATION.iter().find(|known| rest.starts_with(**known));
        // `a?.5:b` is a conditional expression, not optional chaining.
        let known = known.filter(|known| {
            **known != "?." || !rest[2..].starts_with(|next: char| next.is_ascii_digit())
        });
        match character {
            '{' => self.open.push(OpenBracket::Brace),
            '[' => self.open.push(OpenBracket::Bracket),
            '(' => {
                let head = self.is_word_before(BEFORE_STATEMENT);
                self.open.push(OpenBracket::Parenthesis { head });
            }
            '}' => drop(self.open.pop().filter(|open| *open == OpenBracket::Brace)?),
            ']' => drop(
                self.open
                    .pop()
                    .filter(|open| *open == OpenBracket::Bracket)?,
            ),
            ')' => match self.open.pop()? {
                OpenBracket::Parenthesis { head } => self.closed_head = head,
                _ => return None,
            },
            _ => {}
        }
        let length = known.map_or(character.len_utf8(), |known| known.len());
        self.push(ScriptTokenKind::Punctuation, length);
        Some(())
    }

    /// Whether the last token is one of these words and not the name of a property.
    fn is_word_before(&self, words: &[&str]) -> bool {
        let mut before = self.tokens.iter().rev();
        let is_word = before.next().is_some_and(|token| {
            token.kind == ScriptTokenKind::Word && words.contains(&token.text)
        });
        is_word
            && before
                .next()
                .is_none_or(|token| !matches!(token.text, "." | "?."))
    }

    /// Whether a slash starts a regular expression. Returns `None` if this is ambiguous.
    fn starts_regex(&self) -> Option<bool> {
        let Some(last) = self.tokens.last() else {
            return Some(true);
        };
        match (last.kind, last.text) {
            (ScriptTokenKind::Literal, _) | (ScriptTokenKind::Punctuation, "]") => Some(false),
            (ScriptTokenKind::Punctuation, ")") => Some(self.closed_head),
            // `}` may end a block or an object, and `++` may stand before or after a value.
            (ScriptTokenKind::Punctuation, "}" | "++" | "--") => None,
            (ScriptTokenKind::Punctuation, _) => Some(true),
            (ScriptTokenKind::Word, _) if self.is_word_before(UNDECIDED) => None,
            (ScriptTokenKind::Word, _) => Some(self.is_word_before(BEFORE_VALUE)),
        }
    }

    /// Reads the text of a template up to its end or to the next expression in it.
    fn template(&mut self, skipped: usize) -> Option<()> {
        let rest = self.rest();
        let mut characters = rest.char_indices().skip(skipped);
        while let Some((index, character)) = characters.next() {
            match character {
                '\\' => drop(characters.next()?),
                '`' => {
                    self.push(ScriptTokenKind::Literal, index + 1);
                    return Some(());
                }
                '$' if rest[index + 1..].starts_with('{') => {
                    self.push(ScriptTokenKind::Literal, index + 2);
                    // A value follows.
                    self.open.push(OpenBracket::Template);
                    self.tokens.push(ScriptToken {
                        kind: ScriptTokenKind::Punctuation,
                        text: "${",
                        start: self.at,
                    });
                    return Some(());
                }
                _ => {}
            }
        }
        None
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '$' | '_' | '\u{200c}' | '\u{200d}')
        || (!character.is_ascii() && !character.is_whitespace() && character != '\u{feff}')
}

/// The length of a string, including its quotes.
fn string(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()?),
            '\n' => return None,
            _ if character == quote => return Some(index + 1),
            _ => {}
        }
    }
    None
}

/// The length of a regular expression without its flags, which become a separate word.
fn regex(text: &str) -> Option<usize> {
    let mut in_class = false;
    let mut characters = text.char_indices().skip(1);
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next().filter(|(_, next)| *next != '\n')?),
            '\n' => return None,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => {
                let flags = &text[index + 1..];
                let length = flags.find(|next: char| !next.is_ascii_alphabetic());
                return Some(index + 1 + length.unwrap_or(flags.len()));
            }
            _ => {}
        }
    }
    None
}
