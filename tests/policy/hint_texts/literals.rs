//! Finds the string literals of Rust source text, with their escapes resolved.

/// One string literal.
#[derive(Debug, PartialEq, Eq)]
pub struct StringLiteral {
    pub line: usize,
    pub text: String,
}

/// All string literals in order. Comments, characters and byte strings are left out: a byte string is never
/// shown to a reader.
pub fn string_literals(source: &str) -> Vec<StringLiteral> {
    let mut reader = SourceReader {
        rest: source,
        line: 1,
    };
    let mut found = Vec::new();
    let mut after_word = false;
    while let Some(next) = reader.rest.chars().next() {
        if reader.rest.starts_with("//") {
            reader.skip_to("\n");
        } else if reader.rest.starts_with("/*") {
            reader.skip_comment();
        } else if let Some((prefix, hashes)) = literal_start(reader.rest).filter(|_| !after_word) {
            let line = reader.line;
            let text = reader.take_literal(prefix, hashes);
            if !prefix.contains('b') {
                found.push(StringLiteral { line, text });
            }
        } else if next == '\'' {
            reader.skip_character_or_lifetime();
        } else {
            reader.advance(next.len_utf8());
        }
        after_word = next.is_alphanumeric() || next == '_';
    }
    found
}

/// The letters and the number of `#` before an opening quote, if a literal begins here.
fn literal_start(rest: &str) -> Option<(&str, usize)> {
    let letters = rest.len() - rest.trim_start_matches(['b', 'c', 'r']).len();
    let (prefix, after) = rest.split_at(letters);
    let hashes = after.len() - after.trim_start_matches('#').len();
    let is_raw = prefix.ends_with('r');
    let is_known = ["", "b", "c", "r", "br", "cr"].contains(&prefix);
    let opens = after[hashes..].starts_with('"') && (is_raw || hashes == 0);
    (is_known && opens).then_some((prefix, hashes))
}

struct SourceReader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> SourceReader<'a> {
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// Up to the mark, which stays.
    fn skip_to(&mut self, mark: &str) -> &'a str {
        let bytes = self.rest.find(mark).unwrap_or(self.rest.len());
        self.advance(bytes)
    }

    fn skip_comment(&mut self) {
        let mut depth = 0;
        loop {
            if self.rest.starts_with("/*") {
                depth += 1;
                self.advance(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.advance(2);
            } else {
                let next = self.rest.chars().next().expect("an open comment");
                self.advance(next.len_utf8());
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_character_or_lifetime(&mut self) {
        let mut characters = self.rest[1..].char_indices();
        let first = characters.next().map_or('\'', |(_, first)| first);
        let closing = if first == '\\' {
            // The escaped character may be a quote itself.
            self.rest[3..].find('\'').map(|at| at + 3)
        } else {
            let end = 1 + first.len_utf8();
            self.rest[end..].starts_with('\'').then_some(end)
        };
        self.advance(closing.map_or(1, |at| at + 1));
    }

    fn take_literal(&mut self, prefix: &str, hashes: usize) -> String {
        self.advance(prefix.len() + hashes + 1);
        if prefix.ends_with('r') {
            let end = format!("\"{}", "#".repeat(hashes));
            let text = self.skip_to(&end).to_owned();
            self.advance(end.len());
            return text;
        }
        let mut text = String::new();
        loop {
            let next = self.rest.chars().next().expect("an open string");
            self.advance(next.len_utf8());
            match next {
                '"' => return text,
                '\\' => self.take_escape(&mut text),
                other => text.push(other),
            }
        }
    }

    fn take_escape(&mut self, text: &mut String) {
        let escape = self.rest.chars().next().expect("an open escape");
        self.advance(escape.len_utf8());
        match escape {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            '0' => text.push('\0'),
            // Nothing that is looked for holds one of these.
            'x' => {
                self.advance(2);
                text.push('\u{fffd}');
            }
            'u' => {
                self.skip_to("}");
                self.advance(1);
                text.push('\u{fffd}');
            }
            '\n' => {
                let blank = self.rest.len() - self.rest.trim_start().len();
                self.advance(blank);
            }
            other => text.push(other),
        }
    }
}
