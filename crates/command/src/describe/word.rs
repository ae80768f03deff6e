//! Reads one word of odd text: its meaning if that is known beforehand, and the commands that it
//! runs.
//!
//! The word is read in one pass, without backtracking. If the word does not end where it was cut,
//! it is not read (`None`), because a reader that guesses could miss a command.

use interlock_programs::DYNAMIC;

use super::scan::{Parenthesised, Scan};

/// The place of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordPlace {
    /// An ordinary word, in which blanks and operators must be quoted.
    Word,
    /// The body of a here-document, in which quotes are literal.
    Heredoc,
    /// The right side of `=~` and the like, in which operators are literal.
    Pattern,
}

/// The result of reading a word.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The meaning, or [`DYNAMIC`] if only the shell will know it.
    pub(super) text: String,
    /// The texts of command substitutions, in order.
    pub(super) commands: Vec<String>,
    /// Why a command may hide where it cannot be found.
    pub(super) unseen: Option<&'static str>,
}

pub(super) fn read(word: &str, place: WordPlace) -> Option<Reading> {
    // This is the command of that name, not the start of a pattern.
    if word == "[" {
        return Some(Reading {
            text: word.to_owned(),
            ..Reading::default()
        });
    }
    let mut reader = DescribedWordReader {
        scan: Scan::new(word),
        place,
        known: Some(String::with_capacity(word.len())),
        reading: Reading::default(),
    };
    reader.all()?;
    let mut reading = reader.reading;
    reading.text = reader.known.unwrap_or_else(|| DYNAMIC.to_owned());
    Some(reading)
}

struct DescribedWordReader<'a> {
    scan: Scan<'a>,
    place: WordPlace,
    /// The meaning so far, or `None` once something unknown was read.
    known: Option<String>,
    reading: Reading,
}

impl DescribedWordReader<'_> {
    fn all(&mut self) -> Option<()> {
        if self.place == WordPlace::Heredoc {
            return self.quoted_until(None);
        }
        while let Some(character) = self.scan.peek() {
            match character {
                '\'' => {
                    self.scan.next();
                    let text = self.scan.until('\'')?;
                    self.push_str(text);
                }
                '"' => {
                    self.scan.next();
                    self.quoted_until(Some('"'))?;
                }
                '\\' => {
                    self.scan.next();
                    match self.scan.next() {
                        Some('\n') => {}
                        Some(character) => self.push(character),
                        None => return None,
                    }
                }
                '$' if self.scan.rest().starts_with("$'") => {
                    self.scan.skip(2);
                    let text = self.scan.ansi_quoted()?;
                    if text.contains('\\') {
                        self.known = None;
                    } else {
                        self.push_str(text);
                    }
                }
                '$' if self.scan.rest().starts_with("$\"") => {
                    self.scan.skip(2);
                    self.quoted_until(Some('"'))?;
                }
                '$' | '`' => self.expansion(false)?,
                // The text was cut at the wrong place, or is not a word at all.
                ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>'
                    if self.place == WordPlace::Word =>
                {
                    return None;
                }
                '~' if self.scan.position() == 0 => self.unknown(character),
                // The shell expands braces and globs.
                '{' | '*' | '?' | '[' | '(' | ')' => self.unknown(character),
                _ => {
                    self.scan.next();
                    self.push(character);
                }
            }
        }
        Some(())
    }

    /// Reads text in double quotes or in a here-document, where only `$`, backtick and backslash
    /// are special.
    fn quoted_until(&mut self, end: Option<char>) -> Option<()> {
        loop {
            let Some(character) = self.scan.peek() else {
                return end.is_none().then_some(());
            };
            match character {
                _ if Some(character) == end => {
                    self.scan.next();
                    return Some(());
                }
                '\\' => {
                    self.scan.next();
                    match self.scan.peek() {
                        Some('\n') => self.scan.skip(1),
                        Some(quoted)
                            if matches!(quoted, '$' | '`' | '\\') || end == Some(quoted) =>
                        {
                            self.scan.next();
                            self.push(quoted);
                        }
                        _ => self.push('\\'),
                    }
                }
                '$' | '`' => self.expansion(true)?,
                _ => {
                    self.scan.next();
                    self.push(character);
                }
            }
        }
    }

    /// Reads an expansion that begins with `$` or a backtick.
    fn expansion(&mut self, in_double: bool) -> Option<()> {
        let start = self.scan.position();
        let rest = self.scan.rest();
        if rest.starts_with('`') {
            self.scan.skip(1);
            let text = self.scan.backquoted()?;
            self.reading.commands.push(without_backquote_escapes(text));
        } else if rest.starts_with("$(") {
            self.scan.skip(2);
            match self.scan.parenthesised(0)? {
                Parenthesised::Command(text) => self.reading.commands.push(text.to_owned()),
                Parenthesised::Arithmetic(text) => {
                    self.look_for_command(text, "a command inside an arithmetic expression");
                }
            }
        } else if rest.starts_with("${") {
            self.scan.skip(2);
            self.scan.braced(0, in_double)?;
            let text = self.scan.since(start);
            self.look_for_command(text, "a command inside a parameter expansion");
            if text.contains("@P") {
                self.note("a command inside a parameter expansion");
            }
        } else if rest.starts_with("$[") {
            self.scan.skip(2);
            let text = self.scan.until(']')?;
            // An index inside would need its own bracket.
            if text.contains('[') {
                return None;
            }
            self.look_for_command(text, "a command inside an arithmetic expression");
        } else {
            self.scan.skip(1);
            match self.scan.peek() {
                Some(name) if name.is_ascii_alphanumeric() || name == '_' => {
                    self.scan.skip(1);
                    if !name.is_ascii_digit() {
                        while self
                            .scan
                            .peek()
                            .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
                        {
                            self.scan.skip(1);
                        }
                    }
                }
                Some('@' | '*' | '#' | '?' | '-' | '$' | '!') => self.scan.skip(1),
                _ => {
                    self.push('$');
                    return Some(());
                }
            }
        }
        self.known = None;
        Some(())
    }

    fn look_for_command(&mut self, text: &str, reason: &'static str) {
        if text.contains("$(") || text.contains('`') {
            self.note(reason);
        }
    }

    fn note(&mut self, reason: &'static str) {
        self.reading.unseen.get_or_insert(reason);
    }

    fn unknown(&mut self, character: char) {
        self.scan.skip(character.len_utf8());
        self.known = None;
    }

    fn push(&mut self, character: char) {
        if let Some(known) = &mut self.known {
            known.push(character);
        }
    }

    fn push_str(&mut self, text: &str) {
        if let Some(known) = &mut self.known {
            known.push_str(text);
        }
    }
}

fn without_backquote_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match characters.peek() {
            Some('`' | '\\' | '$') if character == '\\' => {}
            _ => {
                out.push(character);
                continue;
            }
        }
        out.extend(characters.next());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Reading {
        read(text, WordPlace::Word).unwrap_or_else(|| panic!("{text:?} is not read"))
    }

    #[test]
    fn what_is_known_beforehand_is_read_without_its_quotes() {
        for (raw, text) in [
            ("abc", "abc"),
            ("a'b c'd", "ab cd"),
            (r#""a \"b\" \c""#, r#"a "b" \c"#),
            (r"a\ b\'", "a b'"),
            ("$'a b'", "a b"),
            ("a$", "a$"),
            ("\"{*?[\"", "{*?["),
            ("a~", "a~"),
            ("é'ü'", "éü"),
            ("[", "["),
        ] {
            let reading = word(raw);
            assert_eq!(reading.text, text, "{raw}");
            assert_eq!(
                (reading.commands, reading.unseen),
                (Vec::new(), None),
                "{raw}"
            );
        }
    }

    #[test]
    fn what_the_shell_expands_is_not_known() {
        for raw in [
            "$x",
            "a${x}b",
            "\"$1\"",
            "$((1+2))",
            "$[1+2]",
            "~",
            "~/x",
            "{a,b}",
            "a*",
            "a?",
            "[a]",
            "$'\\n'",
            "$?",
            "@(a)",
            "${x:-'}'}",
            "\"${x:-it's}\"",
            "$((1 << 2))",
        ] {
            let reading = word(raw);
            assert_eq!(reading.text, DYNAMIC, "{raw}");
            assert_eq!(
                (reading.commands, reading.unseen),
                (Vec::new(), None),
                "{raw}"
            );
        }
    }

    #[test]
    fn command_substitutions_are_found_with_their_whole_text() {
        for (raw, commands) in [
            ("$(a b)", &["a b"][..]),
            ("x$(a)y$(b)z", &["a", "b"]),
            ("`a \\`b\\` \\$c`", &["a `b` $c"]),
            ("\"$(a \")\" b)\"", &["a \")\" b"]),
            ("$(a $(b) c)", &["a $(b) c"]),
            ("$(a ')' b)", &["a ')' b"]),
            ("$(a \\) b)", &["a \\) b"]),
            ("$(a # )\nb)", &["a # )\nb"]),
            ("$( (a); (b))", &[" (a); (b)"]),
            ("$((a); (b))", &["(a); (b)"]),
            ("$(a ${b:-)} c)", &["a ${b:-)} c"]),
            (
                "$(cat <<'E'\nit's ) \"\nE\n)",
                &["cat <<'E'\nit's ) \"\nE\n"],
            ),
            ("$(cat <<-E\n) \n\tE\n)", &["cat <<-E\n) \n\tE\n"]),
            ("$(a <<<')' b)", &["a <<<')' b"]),
        ] {
            let reading = word(raw);
            assert_eq!(reading.text, DYNAMIC, "{raw}");
            assert_eq!(reading.commands, commands, "{raw}");
            assert_eq!(reading.unseen, None, "{raw}");
        }
    }

    #[test]
    fn a_command_inside_an_expression_is_not_seen() {
        for raw in [
            "${x:-$(a)}",
            "${x:-`a`}",
            "$((x[$(a)]))",
            "$[`a`]",
            "${x@P}",
        ] {
            assert!(word(raw).unseen.is_some(), "{raw}");
        }
    }

    #[test]
    fn a_word_that_does_not_end_as_it_was_cut_is_given_up() {
        for raw in [
            "'a",
            "\"a",
            "$(a",
            "${a",
            "`a",
            "a\\",
            "a b",
            "a;b",
            "$(a))b;",
            "$'a",
            "$(cat <<E\n)",
        ] {
            assert_eq!(read(raw, WordPlace::Word), None, "{raw}");
        }
        assert_eq!(read(&"$(".repeat(100), WordPlace::Word), None);
    }

    #[test]
    fn a_here_document_keeps_its_quotes() {
        let reading = read("it's \"a\" \\$x $(b) \\n", WordPlace::Heredoc).unwrap();
        assert_eq!(
            (reading.text.as_str(), reading.commands),
            (DYNAMIC, vec!["b".to_owned()])
        );
        let reading = read("it's \"a\" \\$x", WordPlace::Heredoc).unwrap();
        assert_eq!(reading.text, "it's \"a\" $x");
    }
}
