//! Decides which sed programs do more than edit text: commands `e`, `r`, `R`, `w`, `W`, the flags
//! `e` and `w` of `s`, and editing in place.
//!
//! A program that cannot be parsed counts as one that does more.

use super::grammar::{Grammar, writes};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

pub(super) const GRAMMAR: Grammar = Grammar {
    rules: &[
        writes("-i", "replaces the files it reads").attached(),
        writes("--in-place", "replaces the files it reads").attached(),
    ],
    short_values: "efl",
    long_values: &["--expression", "--file", "--line-length"],
    ..Grammar::GNU
};

/// The program is every `-e` text in order, each on its own line, or else the first operand.
pub(super) fn inspect(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    if parsed.has(&["--sandbox"]) {
        return Vec::new(); // sed itself refuses such programs
    }
    let mut parts: Vec<(&str, &str, usize)> = Vec::new();
    for option in &parsed.options {
        if matches!(option.name.as_str(), "-e" | "--expression") {
            let text = option.value.unwrap_or_default();
            parts.push((text, &option.name, option.index));
        }
    }
    if parts.is_empty()
        && !parsed.has(&["-f", "--file"])
        && let Some(&index) = parsed.operands.first()
    {
        parts.push((call.argv[index], "inline program", index));
    }
    let program = parts
        .iter()
        .map(|part| part.0)
        .collect::<Vec<_>>()
        .join("\n");
    let Some(danger) = danger(&program) else {
        return Vec::new();
    };
    let mut end = 0;
    let holder = parts.iter().find(|part| {
        end += part.0.len() + 1;
        danger.at < end
    });
    holder
        .or(parts.last())
        .map(|(_, flag, index)| call.hit(flag, HitKind::Code, *index, danger.reason))
        .into_iter()
        .collect()
}

struct Danger {
    at: usize,
    reason: &'static str,
}

const NOT_UNDERSTOOD: &str = "the program is not understood, so it may run commands";

/// Returns what a program does beyond editing text. Implementations disagree whether `/` inside
/// `[…]` ends a pattern, so a program is harmless only if no valid reading of it does more than
/// edit text.
fn danger(program: &str) -> Option<Danger> {
    let readings = [true, false].map(|brackets| SedScanner::new(program, brackets).run());
    match readings {
        [Err(error), Err(_)] => Some(error),
        [Ok(Some(danger)), _] | [_, Ok(Some(danger))] => Some(danger),
        _ => None,
    }
}

enum Effect {
    Edits,
    DoesMore(&'static str),
}

impl Effect {
    fn of(does_more: bool, reason: &'static str) -> Self {
        if does_more {
            Self::DoesMore(reason)
        } else {
            Self::Edits
        }
    }
}

struct SedScanner<'a> {
    text: &'a str,
    at: usize,
    brackets: bool,
}

impl<'a> SedScanner<'a> {
    fn new(text: &'a str, brackets: bool) -> Self {
        Self {
            text,
            at: 0,
            brackets,
        }
    }

    fn run(&mut self) -> Result<Option<Danger>, Danger> {
        loop {
            self.skip(|c| c.is_whitespace() || matches!(c, ';' | '}' | '{'));
            if self.peek().is_none() {
                return Ok(None);
            }
            self.addresses().ok_or_else(|| self.lost())?;
            let at = self.at;
            let Some(command) = self.next() else {
                return Err(self.lost());
            };
            match self.command(command) {
                Some(Effect::Edits) => {}
                Some(Effect::DoesMore(reason)) => return Ok(Some(Danger { at, reason })),
                None => return Err(self.lost()),
            }
        }
    }

    fn lost(&self) -> Danger {
        Danger {
            at: self.at,
            reason: NOT_UNDERSTOOD,
        }
    }

    /// Returns what the command does, or `None` if the text is invalid.
    fn command(&mut self, command: char) -> Option<Effect> {
        match command {
            '{' => {}
            '#' => self.skip(|c| c != '\n'),
            '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => {
                self.end()?;
            }
            'q' | 'Q' | 'l' | 'L' => {
                self.skip(|c| c == ' ' || c.is_ascii_digit());
                self.end()?;
            }
            'a' | 'i' | 'c' => self.inserted_text(),
            // A blank ends a label, and another command may follow directly.
            'b' | 't' | 'T' | ':' | 'v' => {
                self.skip(|c| matches!(c, ' ' | '\t'));
                self.skip(|c| !c.is_whitespace() && !matches!(c, ';' | '}'));
            }
            'r' | 'R' => {
                let file = self.line();
                return Some(Effect::of(file != "/dev/stdin", "reads another file"));
            }
            'w' | 'W' => {
                let file = self.line();
                return Some(Effect::of(!is_own_output(file), "writes a file"));
            }
            'e' => return Some(Effect::DoesMore("runs a command")),
            'y' => {
                let delimiter = self.next()?;
                self.until(delimiter)?;
                self.until(delimiter)?;
                self.end()?;
            }
            's' => {
                let delimiter = self.next().filter(|c| !matches!(c, '\n' | '\\'))?;
                self.until(delimiter)?;
                let brackets = std::mem::replace(&mut self.brackets, false);
                let replacement = self.until(delimiter);
                self.brackets = brackets;
                replacement?;
                return self.substitute_flags();
            }
            _ => return None,
        }
        Some(Effect::Edits)
    }

    fn substitute_flags(&mut self) -> Option<Effect> {
        loop {
            match self.peek() {
                Some('g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9') => {
                    self.next();
                }
                Some('e') => return Some(Effect::DoesMore("runs what it has substituted")),
                Some('w') => {
                    self.next();
                    let file = self.line();
                    return Some(Effect::of(!is_own_output(file), "writes a file"));
                }
                _ => {
                    self.end()?;
                    return Some(Effect::Edits);
                }
            }
        }
    }

    /// Skips line numbers, `$`, patterns, steps and ranges before a command.
    fn addresses(&mut self) -> Option<()> {
        loop {
            match self.peek() {
                Some('0'..='9' | '$' | ',' | '~' | '+' | '!' | ' ' | '\t') => {
                    self.next();
                }
                Some('/') => {
                    self.next();
                    self.pattern('/')?;
                }
                Some('\\') => {
                    self.next();
                    let delimiter = self.next()?;
                    self.pattern(delimiter)?;
                }
                _ => return Some(()),
            }
        }
    }

    fn pattern(&mut self, delimiter: char) -> Option<()> {
        self.until(delimiter)?;
        self.skip(|c| matches!(c, 'I' | 'M'));
        Some(())
    }

    /// Skips past the next delimiter that is not escaped and, if brackets hide it, not in `[…]`.
    fn until(&mut self, delimiter: char) -> Option<()> {
        loop {
            let c = self.next()?;
            if c == delimiter {
                return Some(());
            }
            if c == '\\' {
                self.next()?;
            } else if c == '[' && self.brackets {
                self.bracket()?;
            }
        }
    }

    fn bracket(&mut self) -> Option<()> {
        if self.peek() == Some('^') {
            self.next();
        }
        let mut first = true;
        loop {
            match self.next()? {
                ']' if !first => return Some(()),
                '[' if matches!(self.peek(), Some(':' | '.' | '=')) => {
                    let kind = self.next()?;
                    while !(self.next()? == kind && self.peek() == Some(']')) {}
                    self.next();
                }
                '\n' => return None,
                _ => {}
            }
            first = false;
        }
    }

    /// Skips the text of `a`, `i` or `c`: to the end of the line, and further if the line end is
    /// escaped.
    fn inserted_text(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\\' => {
                    self.next();
                }
                '\n' => return,
                _ => {}
            }
        }
    }

    /// Requires that only the end of the command follows.
    fn end(&mut self) -> Option<()> {
        self.skip(|c| matches!(c, ' ' | '\t' | '\r'));
        match self.peek() {
            None | Some('\n' | ';' | '}' | '#') => Some(()),
            Some(_) => None,
        }
    }

    fn line(&mut self) -> &'a str {
        let start = self.at;
        self.skip(|c| c != '\n');
        // Everything after the name is part of it.
        self.text[start..self.at].trim_start_matches([' ', '\t'])
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip(&mut self, belongs: impl Fn(char) -> bool) {
        let rest = &self.text[self.at..];
        self.at += rest.find(|c| !belongs(c)).unwrap_or(rest.len());
    }
}

/// Names that mean sed's own output.
fn is_own_output(file: &str) -> bool {
    matches!(file, "/dev/stdout" | "/dev/stderr")
}
