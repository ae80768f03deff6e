//! The strict lexer. It accepts only text that it can prove to mean the same to every shell and to
//! Interlock's own runner. Everything else is *not plain*, with the reason and the place.
//!
//! The lexer accepts any input, does not recurse, and reads the text once: [`tokens`] turns bytes
//! into words and operators, and this file turns those into a [`Line`].

mod tokens;
mod word;

use interlock_programs::builtins::{self, ShellWord};

use crate::line::{Assignment, Connector, Line, Pipeline, Segment, Timed};
use crate::odd::{NotPlain, Odd};
use crate::{Redirection, Span, Word};
use tokens::{Operator, ShellToken, Tokens};

/// The longest text that the lexer reads, in bytes.
pub const MAX_PLAIN_BYTES: usize = 64 * 1024;

/// The most commands in a text. Each command is looked up and judged separately, and an approver
/// cannot read more.
pub const MAX_PLAIN_COMMANDS: usize = 256;
/// The most words, assignments, operators and redirections in a text.
pub const MAX_PLAIN_WORDS: usize = 8192;

/// Reads a command text. `Ok` proves that every word of the line is known.
pub fn lex(text: &str) -> Result<Line, NotPlain> {
    if text.len() > MAX_PLAIN_BYTES {
        return Err(odd(Odd::TooLong, Span::new(0, text.len())));
    }
    check_characters(text)?;
    let mut tokens = Tokens::new(text);
    let mut line = LineBuilder::default();
    while let Some(token) = tokens.next_token()? {
        line.count(token.span())?;
        line.push(token)?;
    }
    line.finish(text.len(), tokens.beyond_posix())
}

/// What a token is, for highlighting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word,
    Assignment,
    Operator,
    Redirection,
}

/// Returns the tokens up to the place where the text is odd.
pub(crate) fn scan(text: &str) -> (Vec<(Span, TokenKind)>, Option<NotPlain>) {
    let mut found = Vec::new();
    let odd = lex(text).err();
    let limit = match odd {
        Some(odd) if matches!(odd.reason, Odd::TooLong | Odd::Empty) => return (found, Some(odd)),
        Some(odd) => odd.span.start,
        None => text.len(),
    };
    let mut tokens = Tokens::new(text);
    while let Ok(Some(token)) = tokens.next_token() {
        let span = token.span();
        let kind = match token {
            ShellToken::Word(_, shape) if shape.assignment.is_some() => TokenKind::Assignment,
            ShellToken::Word(..) => TokenKind::Word,
            ShellToken::Operator(..) => TokenKind::Operator,
            ShellToken::Redirection(_) => TokenKind::Redirection,
        };
        if span.start >= limit {
            break;
        }
        let end = span.end.min(limit);
        found.push((Span::new(span.start, end), kind));
    }
    (found, odd)
}

/// A word that the lexer read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProvenWord {
    pub(crate) span: Span,
    /// The meaning of the word, without quotes.
    pub(crate) text: String,
    /// Whether nothing in the word is expanded.
    pub(crate) is_literal: bool,
    /// Whether the word is a pattern of file names without any other expansion.
    pub(crate) is_glob: bool,
    /// For `NAME=…`, the length of the name.
    pub(crate) assignment: Option<usize>,
}

/// Returns the words of a text, command by command. Returns `None` unless every token of the text
/// is proven, because otherwise the ends of words are unknown. A line that is not plain because of
/// what its words do (a builtin of the shell, an assignment alone) still has proven words.
pub(crate) fn proven_words(text: &str) -> Option<Vec<Vec<ProvenWord>>> {
    if text.len() > MAX_PLAIN_BYTES || check_characters(text).is_err() {
        return None;
    }
    let mut tokens = Tokens::new(text);
    let mut commands = vec![Vec::new()];
    let mut count = 0;
    while let Some(token) = tokens.next_token().ok()? {
        count += 1;
        if count > MAX_PLAIN_WORDS {
            return None;
        }
        match token {
            ShellToken::Word(word, shape) => commands.last_mut()?.push(ProvenWord {
                span: word.span,
                is_literal: word.is_literal(),
                is_glob: word.glob.is_some() && !word.tilde,
                text: word.text,
                assignment: shape.assignment,
            }),
            ShellToken::Operator(..) => commands.push(Vec::new()),
            ShellToken::Redirection(_) => {}
        }
    }
    Some(commands)
}

fn odd(reason: Odd, span: Span) -> NotPlain {
    NotPlain { reason, span }
}

/// Checks for control characters, which make a text odd anywhere, because terminals, shells and
/// people read them in different ways. Only tab and newline are unambiguous.
fn check_characters(text: &str) -> Result<(), NotPlain> {
    let ordinary = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n');
    if text.bytes().all(ordinary) {
        return Ok(());
    }
    for (index, character) in text.char_indices() {
        if character.is_control() && character != '\t' && character != '\n' {
            let reason = if character == '\0' {
                Odd::NulByte
            } else {
                Odd::ControlCharacter
            };
            return Err(odd(reason, Span::new(index, index + character.len_utf8())));
        }
    }
    Ok(())
}

/// Assembles tokens. Its state is always a valid beginning of a line.
#[derive(Default)]
struct LineBuilder {
    done: Vec<Pipeline>,
    segments: Vec<Segment>,
    timed: Option<Timed>,
    assignments: Vec<Assignment>,
    words: Vec<Word>,
    redirections: Vec<Redirection>,
    start: Option<usize>,
    end: usize,
    commands: usize,
    tokens: usize,
    /// The position of a preceding `&&`, `||` or `|`. A command must follow; newlines may come
    /// between.
    awaits_command: Option<Span>,
}

impl LineBuilder {
    fn count(&mut self, span: Span) -> Result<(), NotPlain> {
        self.tokens += 1;
        if self.tokens > MAX_PLAIN_WORDS {
            return Err(odd(Odd::TooManyWords, span));
        }
        Ok(())
    }

    fn push(&mut self, token: ShellToken) -> Result<(), NotPlain> {
        match token {
            ShellToken::Word(word, shape) => self.push_word(word, &shape),
            ShellToken::Redirection(redirection) => {
                self.touch(redirection.span);
                self.redirections.push(redirection);
                Ok(())
            }
            ShellToken::Operator(operator, span) => self.push_operator(operator, span),
        }
    }

    fn touch(&mut self, span: Span) {
        self.start.get_or_insert(span.start);
        self.end = span.end;
        self.awaits_command = None;
    }

    fn push_word(&mut self, word: Word, shape: &word::WordShape) -> Result<(), NotPlain> {
        let span = word.span;
        if !self.words.is_empty() {
            self.touch(span);
            self.words.push(word);
            return Ok(());
        }
        if let Some(name_length) = shape.assignment {
            // Assignments are not globbed, so the text is literal.
            self.touch(span);
            let mut name = word.text;
            let value = name.split_off(name_length + 1);
            name.truncate(name_length);
            self.assignments.push(Assignment { name, value, span });
            return Ok(());
        }
        if shape.appends {
            return Err(odd(Odd::Append, span));
        }
        if self.is_time_keyword(&word, shape) {
            self.touch(span);
            self.start = None;
            self.timed = Some(Timed {
                posix_format: false,
                span,
            });
            self.awaits_command = Some(span);
            return Ok(());
        }
        if let Some(timed) = &mut self.timed
            && self.segments.is_empty()
            && self.assignments.is_empty()
            && self.redirections.is_empty()
            && word.text.starts_with('-')
        {
            if word.text == "-p" && !shape.quoted && !timed.posix_format {
                timed.posix_format = true;
                timed.span.end = span.end;
                return Ok(());
            }
            return Err(odd(Odd::ReservedWord, span));
        }
        self.check_command_word(&word, shape)?;
        self.commands += 1;
        if self.commands > MAX_PLAIN_COMMANDS {
            return Err(odd(Odd::TooManyWords, span));
        }
        self.touch(span);
        self.words.push(word);
        Ok(())
    }

    /// Whether the word is the keyword `time`, which must be the very first word of a pipeline.
    fn is_time_keyword(&self, word: &Word, shape: &word::WordShape) -> bool {
        word.text == "time"
            && !shape.quoted
            && word.is_literal()
            && self.timed.is_none()
            && self.segments.is_empty()
            && self.assignments.is_empty()
            && self.redirections.is_empty()
    }

    fn check_command_word(&self, word: &Word, shape: &word::WordShape) -> Result<(), NotPlain> {
        if word.glob.is_some() {
            return Err(odd(Odd::DynamicExecutable, word.span));
        }
        match builtins::shell_word(&word.text) {
            ShellWord::Reserved if !shape.quoted => Err(odd(Odd::ReservedWord, word.span)),
            ShellWord::Builtin => Err(odd(Odd::Builtin, word.span)),
            ShellWord::Implemented if !self.assignments.is_empty() => {
                Err(odd(Odd::BuiltinAssignment, word.span))
            }
            _ => Ok(()),
        }
    }

    fn push_operator(&mut self, operator: Operator, span: Span) -> Result<(), NotPlain> {
        let has_command = !self.words.is_empty();
        if operator == Operator::Newline && self.is_at_line_start() {
            return Ok(());
        }
        if !has_command {
            return Err(self.no_command(span));
        }
        self.end_segment();
        match operator {
            Operator::Pipe => self.awaits_command = Some(span),
            Operator::And => self.end_pipeline(Connector::And, Some(span)),
            Operator::Or => self.end_pipeline(Connector::Or, Some(span)),
            Operator::Semicolon | Operator::Newline => {
                self.end_pipeline(Connector::Sequence, None);
            }
            Operator::Background => self.end_pipeline(Connector::Background, None),
        }
        Ok(())
    }

    /// Whether nothing of a segment has been read yet, so that a newline is only space. After
    /// `time` a newline is not only space, because the keyword requires its command on the same
    /// line.
    fn is_at_line_start(&self) -> bool {
        self.assignments.is_empty()
            && self.redirections.is_empty()
            && self.words.is_empty()
            && (self.timed.is_none() || !self.segments.is_empty())
    }

    fn no_command(&self, span: Span) -> NotPlain {
        if let Some(assignment) = self.assignments.first() {
            odd(Odd::AssignmentOnly, assignment.span)
        } else if let Some(redirection) = self.redirections.first() {
            odd(Odd::NoCommand, redirection.span)
        } else {
            odd(Odd::DanglingOperator, self.awaits_command.unwrap_or(span))
        }
    }

    fn end_segment(&mut self) {
        self.segments.push(Segment {
            assignments: std::mem::take(&mut self.assignments),
            words: std::mem::take(&mut self.words),
            redirections: std::mem::take(&mut self.redirections),
            span: Span::new(self.start.take().unwrap_or(self.end), self.end),
        });
    }

    fn end_pipeline(&mut self, next: Connector, awaits_command: Option<Span>) {
        self.done.push(Pipeline {
            segments: std::mem::take(&mut self.segments),
            timed: self.timed.take(),
            next,
        });
        self.awaits_command = awaits_command;
    }

    fn finish(mut self, length: usize, beyond_posix: bool) -> Result<Line, NotPlain> {
        let here = Span::new(length, length);
        if self.words.is_empty() {
            let unfinished = self.awaits_command.is_some()
                || !self.assignments.is_empty()
                || !self.redirections.is_empty();
            if unfinished {
                return Err(self.no_command(here));
            }
            if self.done.is_empty() {
                return Err(odd(Odd::Empty, Span::new(0, length)));
            }
        } else {
            self.end_segment();
            self.end_pipeline(Connector::End, None);
        }
        if let Some(last) = self.done.last_mut()
            && last.next == Connector::Sequence
        {
            last.next = Connector::End;
        }
        let beyond_posix = beyond_posix || self.done.iter().any(|p| p.timed.is_some());
        Ok(Line {
            pipelines: self.done,
            beyond_posix,
        })
    }
}

#[cfg(test)]
mod tests;
