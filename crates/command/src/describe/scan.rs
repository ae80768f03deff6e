//! Finds where quotes, substitutions and here-documents end, in one pass without backtracking.

/// The deepest nesting of substitutions. Deeper text is not read.
const MAX_DEPTH: usize = 32;

/// The content of `$(…)`.
pub(super) enum Parenthesised<'a> {
    Command(&'a str),
    Arithmetic(&'a str),
}

/// Finds ends. Every method starts after the opening mark and stops after the closing mark. `None`
/// means that there is no end.
pub(super) struct Scan<'a> {
    text: &'a str,
    position: usize,
    /// The longest rest of a line after the mark of a here-document.
    longest_heredoc_line: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            position: 0,
            longest_heredoc_line: 0,
        }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.position).unwrap_or_default()
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
        Some(character)
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.position += bytes;
    }

    /// Returns the text up to the next `end`, without regard to escapes.
    pub(super) fn until(&mut self, end: char) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest.find(end)?;
        self.position += length + end.len_utf8();
        Some(&rest[..length])
    }

    pub(super) fn ansi_quoted(&mut self) -> Option<&'a str> {
        self.escaped_until('\'')
    }

    pub(super) fn backquoted(&mut self) -> Option<&'a str> {
        self.escaped_until('`')
    }

    fn escaped_until(&mut self, end: char) -> Option<&'a str> {
        let start = self.position;
        loop {
            match self.next()? {
                '\\' => {
                    self.next()?;
                }
                character if character == end => {
                    return Some(&self.text[start..self.position - end.len_utf8()]);
                }
                _ => {}
            }
        }
    }

    fn double_quoted(&mut self, depth: usize) -> Option<()> {
        loop {
            match self.next()? {
                '"' => return Some(()),
                character => self.nested(character, depth, true)?,
            }
        }
    }

    /// Skips `${…}`. Inside double quotes a single quote is literal. A `<<` inside has no use, and
    /// the parser would read it as a here-document.
    pub(super) fn braced(&mut self, depth: usize, in_double: bool) -> Option<()> {
        loop {
            match self.next()? {
                '}' => return Some(()),
                '<' if self.rest().starts_with('<') => return None,
                '"' if in_double => self.double_quoted(depth + 1)?,
                character => self.nested(character, depth, in_double)?,
            }
        }
    }

    /// Reads `$(…)`, starting after the parenthesis.
    pub(super) fn parenthesised(&mut self, depth: usize) -> Option<Parenthesised<'a>> {
        let start = self.position;
        if self.rest().starts_with('(') {
            self.skip(1);
            self.command(depth + 1)?;
            if self.rest().starts_with(')') {
                let text = &self.text[start + 1..self.position - 1];
                self.skip(1);
                return Some(Parenthesised::Arithmetic(text));
            }
        }
        self.command(depth)?;
        Some(Parenthesised::Command(&self.text[start..self.position - 1]))
    }

    /// Skips commands up to their `)`.
    fn command(&mut self, depth: usize) -> Option<()> {
        self.commands(depth, true)
    }

    /// Skips commands: up to a `)` if `closed`, else to the end of the text, where a `)` may stand
    /// alone.
    fn commands(&mut self, depth: usize, closed: bool) -> Option<()> {
        let mut heredocs = Vec::new();
        let mut first_heredoc = 0;
        let mut at_word_start = true;
        loop {
            let Some(character) = self.next() else {
                if !heredocs.is_empty() {
                    self.end_heredoc_line(first_heredoc);
                }
                return (!closed).then_some(());
            };
            let was_at_word_start = at_word_start;
            at_word_start = matches!(character, ' ' | '\t' | '\n' | ';' | '|' | '&' | '(' | ')');
            match character {
                ')' if closed => {
                    if !heredocs.is_empty() {
                        self.end_heredoc_line(first_heredoc);
                    }
                    return Some(());
                }
                // In arithmetic, `<<` does not begin a here-document.
                '(' if closed || self.rest().starts_with('(') => {
                    self.skip(usize::from(!closed));
                    if depth >= MAX_DEPTH {
                        return None;
                    }
                    self.command(depth + 1)?;
                }
                '#' if was_at_word_start => {
                    let rest = self.rest();
                    self.skip(rest.find('\n').unwrap_or(rest.len()));
                }
                '<' if self.rest().starts_with("<<") => self.skip(2),
                '<' if self.rest().starts_with('<') => {
                    self.skip(1);
                    if heredocs.is_empty() {
                        first_heredoc = self.position;
                    }
                    heredocs.push(self.heredoc_tag()?);
                }
                '\n' => {
                    if !heredocs.is_empty() {
                        self.end_heredoc_line(first_heredoc);
                    }
                    for heredoc in heredocs.drain(..) {
                        self.heredoc_body(&heredoc)?;
                    }
                }
                _ => self.nested(character, depth, false)?,
            }
        }
    }

    fn end_heredoc_line(&mut self, start: usize) {
        let length = self.position - start;
        self.longest_heredoc_line = self.longest_heredoc_line.max(length);
    }

    /// Reads a whole text and returns the longest rest of a line after the mark of a here-document.
    /// Returns `None` if a quote, a substitution or a here-document has no end.
    pub(super) fn heredoc_line(mut self) -> Option<usize> {
        self.commands(0, false)?;
        Some(self.longest_heredoc_line)
    }

    /// Skips what the character just read opens.
    fn nested(&mut self, character: char, depth: usize, in_double: bool) -> Option<()> {
        if depth >= MAX_DEPTH {
            return None;
        }
        match character {
            '\\' => {
                self.next()?;
            }
            '`' => {
                self.backquoted()?;
            }
            '$' if self.rest().starts_with('(') => {
                self.skip(1);
                self.parenthesised(depth + 1)?;
            }
            '$' if self.rest().starts_with('{') => {
                self.skip(1);
                self.braced(depth + 1, in_double)?;
            }
            '$' if self.rest().starts_with('\'') && !in_double => {
                self.skip(1);
                self.ansi_quoted()?;
            }
            '\'' if !in_double => {
                self.until('\'')?;
            }
            '"' if !in_double => self.double_quoted(depth + 1)?,
            _ => {}
        }
        Some(())
    }

    fn heredoc_tag(&mut self) -> Option<Heredoc> {
        let strips_tabs = self.rest().starts_with('-');
        self.skip(usize::from(strips_tabs));
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.skip(1);
        }
        let start = self.position;
        while let Some(character) = self.peek() {
            match character {
                '\'' | '"' => {
                    self.skip(1);
                    self.until(character)?;
                }
                ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')' => break,
                '$' | '`' => return None,
                _ => {
                    self.next();
                }
            }
        }
        let tag = self.text[start..self.position].replace(['\'', '"', '\\'], "");
        Some(Heredoc { tag, strips_tabs })
    }

    fn heredoc_body(&mut self, heredoc: &Heredoc) -> Option<()> {
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return None;
            }
            let line = rest.split('\n').next().unwrap_or(rest);
            let bare = if heredoc.strips_tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            let is_end = bare == heredoc.tag;
            self.skip((line.len() + 1).min(rest.len()));
            if is_end {
                return Some(());
            }
        }
    }
}

struct Heredoc {
    tag: String,
    strips_tabs: bool,
}
