//! Splits an argument as `env -S` does.

/// Returns the words of `text` by the rules of GNU env: blanks separate, quotes group, a backslash
/// escapes, `#` at the start of a word begins a comment, and `\c` ends the text.
///
/// Text that env would refuse (an open quote, an unknown escape) is split as far as possible, and
/// variables stay as written. Use the words only to find code, not to run them.
pub fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', Some('\'')) => match chars.clone().next() {
                Some(escaped @ ('\\' | '\'')) => {
                    chars.next();
                    word.get_or_insert_default().push(escaped);
                }
                _ => word.get_or_insert_default().push('\\'),
            },
            ('\\', _) => match chars.next() {
                Some('c') => break,
                Some('_') if quote.is_none() => words.extend(word.take()),
                Some(escaped) => word.get_or_insert_default().push(unescaped(escaped)),
                None => word.get_or_insert_default().push('\\'),
            },
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn unescaped(c: char) -> char {
    match c {
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '_' => ' ',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_text_is_split_as_env_does_it() {
        for (text, words) in [
            ("python3 -c", vec!["python3", "-c"]),
            ("a  'b c' \"d e\"f", vec!["a", "b c", "d ef"]),
            (r"a\_b 'it\'s' \#x", vec!["a", "b", "it's", "#x"]),
            (r#""a\_b" c\cignored"#, vec!["a b", "c"]),
            ("a # comment", vec!["a"]),
            ("'' x", vec!["", "x"]),
            ("a 'open", vec!["a", "open"]),
            ("", vec![]),
        ] {
            assert_eq!(split(text), words, "{text}");
        }
    }
}
