//! From bytes to tokens: blanks, comments, operators and redirections.

use super::odd;
use super::word::{WordShape, read_word};
use crate::Span;
use crate::line::{Redirection, Stream, Target, Word};
use crate::odd::{NotPlain, Odd};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    And,
    Or,
    Pipe,
    Semicolon,
    Background,
    Newline,
}

pub(super) enum ShellToken {
    Word(Word, WordShape),
    Redirection(Redirection),
    Operator(Operator, Span),
}

impl ShellToken {
    pub(super) fn span(&self) -> Span {
        match self {
            Self::Word(word, _) => word.span,
            Self::Redirection(redirection) => redirection.span,
            Self::Operator(_, span) => *span,
        }
    }
}

pub(super) struct Tokens<'a> {
    text: &'a str,
    position: usize,
    beyond_posix: bool,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            position: 0,
            beyond_posix: false,
        }
    }

    pub(super) fn beyond_posix(&self) -> bool {
        self.beyond_posix
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.position + ahead).copied()
    }

    pub(super) fn next_token(&mut self) -> Result<Option<ShellToken>, NotPlain> {
        self.skip_blanks()?;
        let start = self.position;
        let Some(byte) = self.peek(0) else {
            return Ok(None);
        };
        let operator = |lexer: &mut Self, operator, length| {
            lexer.position += length;
            let span = Span::new(start, lexer.position);
            Ok(Some(ShellToken::Operator(operator, span)))
        };
        match (byte, self.peek(1)) {
            (b'\n', _) => operator(self, Operator::Newline, 1),
            (b'&', Some(b'&')) => operator(self, Operator::And, 2),
            (b'&', Some(b'>')) => self.both_streams(start).map(Some),
            (b'&', _) => operator(self, Operator::Background, 1),
            (b'|', Some(b'|')) => operator(self, Operator::Or, 2),
            (b'|', Some(b'&')) => Err(odd(Odd::UnknownOperator, Span::new(start, start + 2))),
            (b'|', _) => operator(self, Operator::Pipe, 1),
            (b';', Some(b';' | b'&')) => {
                Err(odd(Odd::UnknownOperator, Span::new(start, start + 2)))
            }
            (b';', _) => operator(self, Operator::Semicolon, 1),
            (b'<' | b'>', _) => self.redirection(start, None).map(Some),
            (b'0'..=b'9', _) if self.is_descriptor_number() => self.numbered(start).map(Some),
            _ => {
                let (word, shape) = read_word(self.text, start)?;
                self.position = word.span.end;
                self.beyond_posix |= shape.beyond_posix;
                Ok(Some(ShellToken::Word(word, shape)))
            }
        }
    }

    /// Skips blanks, comments and line continuations between words.
    fn skip_blanks(&mut self) -> Result<(), NotPlain> {
        loop {
            match self.peek(0) {
                Some(b' ' | b'\t') => self.position += 1,
                Some(b'#') => {
                    let rest = &self.text[self.position..];
                    self.position += rest.find('\n').unwrap_or(rest.len());
                }
                Some(b'\\') if self.peek(1) == Some(b'\n') => {
                    // After an operator, the shell would join the following text to it (`&\⏎&`).
                    let before = self.position.checked_sub(1);
                    let before = before.and_then(|index| self.text.as_bytes().get(index));
                    if !matches!(before, None | Some(b' ' | b'\t' | b'\n')) {
                        let span = Span::new(self.position, self.position + 2);
                        return Err(odd(Odd::LineContinuation, span));
                    }
                    self.position += 2;
                    // `\⏎#` and a directly following second continuation are left to the shell.
                    if matches!(self.peek(0), Some(b'\\' | b'#')) {
                        let span = Span::new(self.position - 2, self.position);
                        return Err(odd(Odd::LineContinuation, span));
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Whether all characters up to `<` or `>` are digits: a descriptor number, not a word.
    fn is_descriptor_number(&self) -> bool {
        let rest = &self.text.as_bytes()[self.position..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        matches!(rest.get(digits), Some(b'<' | b'>'))
    }

    fn numbered(&mut self, start: usize) -> Result<ShellToken, NotPlain> {
        let descriptor = self.peek(0);
        if !matches!(self.peek(1), Some(b'<' | b'>')) {
            return Err(odd(Odd::Redirect, Span::new(start, start + 1)));
        }
        self.position += 1;
        self.redirection(start, descriptor)
    }

    /// Reads a redirection at `<` or `>`. Only redirections that touch no file but `/dev/null` are
    /// accepted.
    fn redirection(
        &mut self,
        start: usize,
        descriptor: Option<u8>,
    ) -> Result<ShellToken, NotPlain> {
        let at = self.position;
        let refuse = |reason| Err(odd(reason, Span::new(start, at + 1)));
        match (self.peek(0), self.peek(1)) {
            (_, Some(b'(')) => return refuse(Odd::ProcessSubstitution),
            (Some(b'<'), Some(b'<')) => return refuse(Odd::Heredoc),
            (Some(b'<'), Some(b'&' | b'>')) | (Some(b'>'), Some(b'|')) => {
                return refuse(Odd::Redirect);
            }
            _ => {}
        }
        let stream = match (self.peek(0), descriptor) {
            (Some(b'<'), None | Some(b'0')) => Stream::Stdin,
            (Some(b'>'), None | Some(b'1')) => Stream::Stdout,
            (Some(b'>'), Some(b'2')) => Stream::Stderr,
            _ => return refuse(Odd::Redirect),
        };
        self.position += 1;
        let target = match (stream, self.peek(0)) {
            (Stream::Stdout | Stream::Stderr, Some(b'&')) => {
                self.position += 1;
                self.duplicate(start)?
            }
            (Stream::Stdout | Stream::Stderr, Some(b'>')) => {
                self.position += 1;
                self.null_device(start)?
            }
            _ => self.null_device(start)?,
        };
        Ok(ShellToken::Redirection(Redirection {
            stream,
            target,
            span: Span::new(start, self.position),
        }))
    }

    /// Reads `&>/dev/null` and `&>>/dev/null`.
    fn both_streams(&mut self, start: usize) -> Result<ShellToken, NotPlain> {
        self.position += 2;
        if self.peek(0) == Some(b'>') {
            self.position += 1;
        }
        let target = self.null_device(start)?;
        self.beyond_posix = true;
        Ok(ShellToken::Redirection(Redirection {
            stream: Stream::Both,
            target,
            span: Span::new(start, self.position),
        }))
    }

    /// Reads the target after `>&`: 1 or 2, then the end of the word.
    fn duplicate(&mut self, start: usize) -> Result<Target, NotPlain> {
        self.skip_spaces();
        let target = match self.peek(0) {
            Some(b'1') => Target::Stdout,
            Some(b'2') => Target::Stderr,
            _ => return Err(odd(Odd::Redirect, Span::new(start, self.position))),
        };
        self.position += 1;
        // In `2>&1>x`, shells disagree whether the 1 is a target or another descriptor.
        if matches!(self.peek(0), Some(b'<' | b'>')) || !self.at_word_end() {
            return Err(odd(Odd::Redirect, Span::new(start, self.position)));
        }
        Ok(target)
    }

    fn null_device(&mut self, start: usize) -> Result<Target, NotPlain> {
        const NULL_DEVICE: &str = "/dev/null";
        self.skip_spaces();
        if self.text[self.position..].starts_with(NULL_DEVICE) {
            self.position += NULL_DEVICE.len();
            if self.at_word_end() {
                return Ok(Target::Null);
            }
        }
        Err(odd(Odd::Redirect, Span::new(start, self.position)))
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.position += 1;
        }
    }

    fn at_word_end(&self) -> bool {
        self.peek(0).is_none_or(ends_word)
    }
}

/// Whether the byte ends an unquoted word. Parentheses do too, but they make the line odd first.
pub(super) fn ends_word(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\n' | b';' | b'|' | b'&' | b'<' | b'>'
    )
}
