//! How an entry binds arguments: a regular expression over all of them, a list with one pattern
//! for each, or the digest of exactly one command.

use interlock_programs::DYNAMIC;
use regex::Regex;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

use crate::pattern;

const DIGEST_PREFIX: &str = "sha256:";
/// The beginning of an `argPattern` that is the digest of one command and its directory.
pub const ARGUMENTS_DIGEST: &str = "sha256:cwd-argv:v1:";
/// The item of an argument list that stands for any number of further arguments.
pub(crate) const ANY_ARGUMENTS: &str = "**";
const REGEX_SIZE_LIMIT: usize = 256 * 1024;

/// Why an argument pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// `column` counts the characters of the pattern from 1.
    #[error("{message} (column {column} of the pattern)")]
    Regex { message: String, column: usize },
    #[error("the digest is not one of cwd and arguments (`{ARGUMENTS_DIGEST}` and 64 hex digits)")]
    Digest,
    #[error("{0}")]
    Glob(String),
    #[error("`args` and `argPattern` exclude each other")]
    Both,
}

/// What an entry requires of the arguments.
#[derive(Debug)]
pub enum ArgumentRule {
    /// Any arguments.
    Any,
    /// `argPattern` as a regular expression, compiled when it is first needed.
    Regex {
        source: String,
        compiled: OnceLock<Option<Regex>>,
        by_nul: bool,
    },
    /// `argPattern` as the digest of cwd and arguments.
    Digest(String),
    /// `args`: one pattern for each argument.
    List(Vec<String>),
}

impl ArgumentRule {
    pub fn parse(
        arg_pattern: Option<&str>,
        args: Option<&[String]>,
    ) -> Result<Self, ArgumentError> {
        match (arg_pattern, args) {
            (Some(_), Some(_)) => Err(ArgumentError::Both),
            (None, None) => Ok(Self::Any),
            (None, Some(list)) => {
                for item in list.iter().filter(|item| !is_plain_glob(item)) {
                    compile_argument(item).map_err(ArgumentError::Glob)?;
                }
                Ok(Self::List(list.to_vec()))
            }
            (Some(source), None) => {
                if let Some(digest) = read_digest(source) {
                    return digest.map(Self::Digest);
                }
                let translated = translate(source)?;
                check_regex(source, &translated)?;
                Ok(Self::Regex {
                    by_nul: source.contains('\0'),
                    source: translated,
                    compiled: OnceLock::new(),
                })
            }
        }
    }

    pub fn binds(&self) -> bool {
        !matches!(self, Self::Any)
    }

    /// Whether words that are known only when the command runs may make the rule match.
    pub fn may_match_hidden(&self, arguments: &[String]) -> bool {
        let is_hidden = |word: &String| word.contains(DYNAMIC);
        match self {
            Self::Any => false,
            Self::Regex { .. } | Self::Digest(_) => arguments.iter().any(is_hidden),
            // Every pattern before the first hidden word must match its argument.
            Self::List(patterns) => {
                let known = arguments.iter().take_while(|word| !is_hidden(word));
                let fixed = patterns.iter().take_while(|p| *p != ANY_ARGUMENTS);
                arguments.iter().any(is_hidden)
                    && fixed.zip(known).all(|(p, word)| argument_matches(p, word))
            }
        }
    }

    /// Returns the patterns of a list, or nothing for the other kinds.
    pub(crate) fn patterns(&self) -> &[String] {
        match self {
            Self::List(patterns) => patterns,
            Self::Any | Self::Regex { .. } | Self::Digest(_) => &[],
        }
    }

    /// Whether the rule matches `arguments`, which do not include the program's name.
    pub fn matches(&self, arguments: &[String], cwd: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Digest(expected) => *expected == digest(arguments, cwd),
            Self::List(patterns) => list_matches(patterns, arguments),
            Self::Regex {
                source,
                compiled,
                by_nul,
            } => {
                let regex = compiled.get_or_init(|| build_regex(source).ok());
                let text = if *by_nul {
                    nul_joined(arguments)
                } else {
                    arguments.join(" ")
                };
                regex.as_ref().is_some_and(|regex| regex.is_match(&text))
            }
        }
    }
}

/// Returns the hex digits of an `argPattern` that is a digest, or `None` for a regular expression.
pub(crate) fn read_digest(arg_pattern: &str) -> Option<Result<String, ArgumentError>> {
    if !arg_pattern.starts_with(DIGEST_PREFIX) {
        return None;
    }
    let hex = arg_pattern.strip_prefix(ARGUMENTS_DIGEST).filter(|hex| {
        let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        hex.len() == 64 && is_hex
    });
    Some(
        hex.map(str::to_ascii_lowercase)
            .ok_or(ArgumentError::Digest),
    )
}

/// Returns the `argPattern` that matches exactly these arguments in this directory.
pub fn digest_pattern(arguments: &[String], cwd: &str) -> String {
    format!("{ARGUMENTS_DIGEST}{}", digest(arguments, cwd))
}

/// Returns the digest of directory and arguments. Every part is preceded by its length, so that two
/// different requests never hash the same input.
pub(crate) fn digest(arguments: &[String], cwd: &str) -> String {
    // The input is assembled first because hashing many small pieces is slow.
    let length: usize = arguments.iter().map(|argument| argument.len() + 8).sum();
    let mut input = Vec::with_capacity(cwd.len() + 32 + length);
    push_number(&mut input, cwd.len());
    push_text(&mut input, cwd);
    push_number(&mut input, arguments.len());
    for argument in arguments {
        push_number(&mut input, argument.len());
        push_text(&mut input, argument);
    }
    hex(&Sha256::digest(&input))
}

fn push_text(input: &mut Vec<u8>, text: &str) {
    input.extend_from_slice(text.as_bytes());
    input.push(0);
}

fn push_number(input: &mut Vec<u8>, number: usize) {
    let start = input.len();
    let mut rest = number;
    loop {
        input.push(b'0' + u8::try_from(rest % 10).unwrap_or_default());
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    input[start..].reverse();
    input.push(0);
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| DIGITS[usize::from(half)]).collect()
}

/// Joins the arguments, each followed by NUL. No arguments become two NULs.
fn nul_joined(arguments: &[String]) -> String {
    if arguments.is_empty() {
        return "\0\0".to_owned();
    }
    arguments
        .iter()
        .fold(String::new(), |text, argument| text + argument + "\0")
}

/// Matches one pattern against each argument; [`ANY_ARGUMENTS`] matches any number of them.
pub(crate) fn list_matches(patterns: &[String], arguments: &[String]) -> bool {
    // Backtracking needs to return only to the last `**`.
    let (mut pattern, mut argument) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while argument < arguments.len() {
        if patterns.get(pattern).is_some_and(|p| p == ANY_ARGUMENTS) {
            retry = Some((pattern, argument));
            pattern += 1;
        } else if patterns
            .get(pattern)
            .is_some_and(|p| argument_matches(p, &arguments[argument]))
        {
            pattern += 1;
            argument += 1;
        } else if let Some((star, from)) = retry {
            retry = Some((star, from + 1));
            pattern = star + 1;
            argument = from + 1;
        } else {
            return false;
        }
    }
    patterns[pattern..].iter().all(|p| p == ANY_ARGUMENTS)
}

/// Matches the whole argument; `*` stands for any characters, `?` for one.
pub(crate) fn argument_matches(pattern: &str, argument: &str) -> bool {
    if is_plain_glob(pattern) {
        return glob_matches(pattern, argument);
    }
    compile_argument(pattern).is_ok_and(|regex| regex.is_match(argument))
}

/// Whether a pattern is short enough to be compared letter by letter. Every such pattern is valid.
/// A longer pattern is compiled, and the compiler may refuse it.
fn is_plain_glob(pattern: &str) -> bool {
    const MOST_BYTES: usize = 256;
    const MOST_WILDCARDS: usize = 32;
    if !pattern::has_wildcard(pattern) {
        return true;
    }
    let is_wildcard = |byte: &u8| matches!(byte, b'*' | b'?');
    pattern.len() <= MOST_BYTES && pattern.bytes().filter(is_wildcard).count() <= MOST_WILDCARDS
}

/// Gives the same result as the regular expression of [`compile_argument`] without compiling one.
fn glob_matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Backtracking needs to return only to the last `*`.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (before, at) = (pattern.clone(), text.clone());
        match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = at;
                retry = Some((before, text.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => match retry.take() {
                Some((star, mut from)) => {
                    if from.next().is_none() {
                        return false;
                    }
                    pattern = star.clone();
                    pattern.next();
                    text = from.clone();
                    retry = Some((star, from));
                }
                None => return false,
            },
        }
    }
}

pub(crate) fn compile_argument(pattern: &str) -> Result<Regex, String> {
    let mut source = String::from(r"\A(?s:");
    for character in pattern.chars() {
        match character {
            '*' => source.push_str(".*"),
            '?' => source.push('.'),
            _ => source.push_str(&regex::escape(character.encode_utf8(&mut [0; 4]))),
        }
    }
    source.push_str(r")\z");
    build_regex(&source).map_err(|error| error.to_string())
}

fn build_regex(source: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(source)
        .size_limit(REGEX_SIZE_LIMIT)
        .dfa_size_limit(REGEX_SIZE_LIMIT)
        .build()
}

/// Checks the translated expression. The column in the error refers to the pattern as written, if
/// the error is there already.
fn check_regex(written: &str, translated: &str) -> Result<(), ArgumentError> {
    let Err(problem) = regex_syntax::parse(translated) else {
        return Ok(());
    };
    let (message, column) = match regex_syntax::ast::parse::Parser::new().parse(written) {
        Err(error) => (error.kind().to_string(), error.span().start.column),
        Ok(_) => match &problem {
            regex_syntax::Error::Parse(error) => (error.kind().to_string(), 1),
            regex_syntax::Error::Translate(error) => (error.kind().to_string(), 1),
            _ => (problem.to_string(), 1),
        },
    };
    Err(ArgumentError::Regex { message, column })
}

/// Translates the dialect of the documents (classes are ASCII, `.` stops at every line end, `[`
/// inside a class is literal) to the dialect of the linear-time engine. Features that the engine
/// lacks, such as look-around, are passed through, and the engine refuses them. Features that the
/// two dialects read differently, such as `--` or an empty class, are refused here.
fn translate(source: &str) -> Result<String, ArgumentError> {
    let refused = |message: &str, index: usize| ArgumentError::Regex {
        message: message.to_owned(),
        column: index + 1,
    };
    let mut out = String::with_capacity(source.len() + 16);
    let mut characters = source.chars().peekable();
    let mut in_class = false;
    let mut position = 0;
    while let Some(character) = characters.next() {
        // The position of this character, for the messages; an escape advances it by two.
        let index = position;
        position += 1;
        match character {
            '\\' => match characters.next().inspect(|_| position += 1) {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(r"[\t\n\x0B\x0C\r\p{Zs}\u{feff}\u{2028}\u{2029}]"),
                Some('S') => out.push_str(r"[^\t\n\x0B\x0C\r\p{Zs}\u{feff}\u{2028}\u{2029}]"),
                // In the other dialect these escapes stand for the character itself.
                Some(own @ ('a' | 'p' | 'P' | '<' | '>')) => out.push(own),
                Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
                Some('B') if !in_class => out.push_str(r"(?-u:\B)"),
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if in_class => out.push_str(r"\["),
            '[' => {
                in_class = true;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    characters.next();
                    position += 1;
                    out.push('^');
                }
                if characters.peek() == Some(&']') {
                    return Err(refused("a class without members", index));
                }
            }
            '-' if in_class && characters.peek() == Some(&'-') => {
                return Err(refused(
                    "`--` in a class; write `\\-` for the character",
                    index,
                ));
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            '.' if !in_class => out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_pattern_is_compared_as_its_regular_expression_would() {
        let patterns = [
            "*", "?", "**", "a*", "*a", "*a*b*", "a?c", "?*?", "dir/**", "-*=*", "", "a", "*é?",
            "a.c", "[ab]*", "a*a*a*b", "\\*", "*\n*",
        ];
        let texts = [
            "",
            "a",
            "ab",
            "abc",
            "aab",
            "dir/x/y",
            "-x=1",
            "éx",
            "a.c",
            "axc",
            "[ab]c",
            "aaaa",
            "aaab",
            "\\z",
            "a\nb",
            "ab\u{10ffff}",
            "b",
        ];
        for pattern in patterns {
            let regex = compile_argument(pattern).unwrap();
            assert!(is_plain_glob(pattern));
            for text in texts {
                assert_eq!(
                    glob_matches(pattern, text),
                    regex.is_match(text),
                    "{pattern:?} {text:?}"
                );
            }
        }
        // The longest ones can be compiled too: none is taken that a longer form would refuse.
        for longest in [
            "?".repeat(32) + &"x".repeat(224),
            "é*".repeat(32) + &"y".repeat(160),
        ] {
            assert!(is_plain_glob(&longest));
            assert!(compile_argument(&longest).is_ok());
        }
        assert!(!is_plain_glob(&"?".repeat(33)));
        assert!(!is_plain_glob(&("*".to_owned() + &"x".repeat(256))));
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn regex(pattern: &str, text: &str) -> bool {
        ArgumentRule::parse(Some(pattern), None).is_ok_and(|rule| rule.matches(&words(text), "/"))
    }

    #[test]
    fn regular_expressions_are_unanchored_and_ascii() {
        assert!(regex("status", "git status"));
        assert!(regex("^status$", "status"));
        assert!(!regex("^status$", "status -s"));
        assert!(regex(r"^\d+$", "42"));
        assert!(!regex(r"^\d+$", "٤٢"));
        assert!(regex(r"^[\w.]+$", "a.b"));
        assert!(regex(r"^[[a]$", "["));
    }

    #[test]
    fn what_the_linear_engine_lacks_is_refused_with_its_place() {
        for pattern in [r"(?=a)b", r"(a)\1", "[", r"\p{(a+)+}", "a{2,1}"] {
            let error = ArgumentRule::parse(Some(pattern), None).unwrap_err();
            assert!(
                matches!(error, ArgumentError::Regex { .. }),
                "{pattern}: {error}"
            );
        }
        let error = ArgumentRule::parse(Some("ab(?=c)"), None).unwrap_err();
        assert_eq!(
            error,
            ArgumentError::Regex {
                message: "look-around, including look-ahead and look-behind, is not supported"
                    .to_owned(),
                column: 3
            }
        );
    }

    #[test]
    fn no_pattern_is_looser_than_in_the_dialect_it_was_written_in() {
        for pattern in ["[^*--;]", "[]a]", "[^]a]"] {
            assert!(
                ArgumentRule::parse(Some(pattern), None).is_err(),
                "{pattern}"
            );
        }
        assert!(!regex(r"^x\>$", "x"));
        assert!(regex(r"^x\>$", "x>"));
        assert!(!regex(r"^\pL$", "é"));
        assert!(!regex(r"^\S+$", "a\u{3000}b"));
    }

    #[test]
    fn hidden_words_matter_only_where_the_list_could_still_match() {
        let rule = ArgumentRule::parse(None, Some(&words("push **"))).unwrap();
        let hidden = |text: &str| words(&text.replace('$', DYNAMIC));
        assert!(rule.may_match_hidden(&hidden("$")));
        assert!(!rule.may_match_hidden(&hidden("log $")));
        assert!(!rule.may_match_hidden(&hidden("log")));
    }

    #[test]
    fn a_list_binds_each_argument() {
        let rule = |list: &str| ArgumentRule::parse(None, Some(&words(list))).unwrap();
        assert!(rule("push origin *").matches(&words("push origin main"), "/"));
        assert!(!rule("push origin").matches(&words("push origin --force"), "/"));
        assert!(rule("push **").matches(&words("push"), "/"));
        assert!(rule("push **").matches(&words("push a b"), "/"));
        assert!(rule("** --force **").matches(&words("push --force x"), "/"));
        assert!(!rule("a b").matches(&["a b".to_owned()], "/"));
        assert!(rule("*").matches(&["a b".to_owned()], "/"));
    }

    #[test]
    fn nul_patterns_tell_arguments_apart() {
        let rule = |pattern| ArgumentRule::parse(Some(pattern), None).unwrap();
        assert!(rule("^hello world\0$").matches(&["hello world".to_owned()], "/"));
        assert!(!rule("^hello world\0$").matches(&words("hello world"), "/"));
        assert!(rule("^\0\0$").matches(&[], "/"));
        assert!(rule("^\0$").matches(&[String::new()], "/"));
    }

    #[test]
    fn a_digest_binds_arguments_and_directory() {
        let pattern = digest_pattern(&words("a b"), "/w");
        let rule = ArgumentRule::parse(Some(&pattern), None).unwrap();
        assert!(rule.matches(&words("a b"), "/w"));
        assert!(!rule.matches(&words("a b"), "/x"));
        assert!(!rule.matches(&["a b".to_owned()], "/w"));
        assert!(ArgumentRule::parse(Some("sha256:argv:00"), None).is_err());
        // The SHA-256 of `2␀/w␀1␀10␀abcdefghij␀`.
        assert_eq!(
            digest_pattern(&["abcdefghij".to_owned()], "/w"),
            "sha256:cwd-argv:v1:ee5976d2b6f69f974d7af047ee0ebe9660cfdd7350a90cded8f648f547924e68"
        );
    }
}
