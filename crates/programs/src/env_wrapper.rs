//! The wrapper `env`, which has its own option language.

use crate::inline::split_string;
use crate::wrappers::{Dispatch, Inner};

const WRAPPER: &str = "env";
/// Long options that take a value.
const VALUES: &[&str] = &[
    "--unset",
    "--chdir",
    "--split-string",
    "--argv0",
    "--block-signal",
    "--default-signal",
    "--ignore-signal",
];
const FLAGS: &[&str] = &["--ignore-environment", "--null"];

/// Plain use (`env X`, `env -- X`) is transparent. Options, including `-`, change what the inner
/// command sees, so such calls are only looked through to describe them. The same holds for
/// assignments here; the analysis handles those with [`only_assignments`], which passes them to the
/// environment rules.
pub(crate) fn dispatch(argv: &[String]) -> Dispatch {
    let blocked = || Dispatch::Blocked {
        wrapper: WRAPPER.to_owned(),
    };
    if argv.len() == 1 {
        // `env` alone prints the environment, like an ordinary program.
        return Dispatch::NotWrapper;
    }
    let Some(parsed) = parse(argv) else {
        return blocked();
    };
    let inner = match parsed.split {
        Some(text) => {
            let mut inner = split_string::split(&text);
            inner.extend_from_slice(argv.get(parsed.index..).unwrap_or_default());
            Inner::Split(inner)
        }
        None => Inner::At(parsed.index),
    };
    if inner.is_empty(argv) {
        return blocked();
    }
    Dispatch::Unwrapped {
        wrapper: WRAPPER.to_owned(),
        inner,
        transparent: parsed.plain,
    }
}

/// Returns the assignments of `env NAME=VALUE… PROGRAM …` without any option, in order. Such a call
/// does exactly what leading assignments do. Returns `None` for every other use, and for a name
/// that no leading assignment could have.
pub fn only_assignments(argv: &[String]) -> Option<Vec<(String, String)>> {
    let parsed = parse(argv).filter(|parsed| !parsed.has_options && !parsed.keys.is_empty())?;
    let end = parsed.index.min(argv.len());
    let words = &argv[end - parsed.keys.len()..end];
    let pair = |word: &String| {
        let (name, value) = word.split_once('=')?;
        is_variable_name(name).then(|| (name.to_owned(), value.to_owned()))
    };
    words.iter().map(pair).collect()
}

fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(is_first)
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// How deeply texts of `-S` within texts of `-S` are followed.
const SPLIT_LEVELS: usize = 32;

/// Returns the names that `env` sets in the order written, including those in the text of `-S`.
pub fn assignment_keys(argv: &[String]) -> Vec<String> {
    let mut keys = Vec::new();
    let mut argv = argv.to_vec();
    for _ in 0..SPLIT_LEVELS {
        let Some(parsed) = parse(&argv) else { break };
        keys.extend(parsed.keys);
        let Some(text) = parsed.split else { break };
        let behind = argv.split_off(parsed.index.min(argv.len()));
        argv.truncate(1);
        argv.extend(split_string::split(&text));
        argv.extend(behind);
    }
    keys
}

/// Whether every option is known, so that the started command is known too.
pub fn is_understood(argv: &[String]) -> bool {
    parse(argv).is_some()
}

/// Returns the text of `-S`, wherever it is written.
pub fn split_text(argv: &[String]) -> Option<String> {
    parse(argv).and_then(|parsed| parsed.split)
}

struct ParsedEnv {
    index: usize,
    plain: bool,
    /// Whether there are options. `-` counts as one because it means `-i`.
    has_options: bool,
    keys: Vec<String>,
    split: Option<String>,
}

fn parse(argv: &[String]) -> Option<ParsedEnv> {
    let mut parsed = ParsedEnv {
        index: 1,
        plain: true,
        has_options: false,
        keys: Vec::new(),
        split: None,
    };
    while let Some(token) = argv.get(parsed.index) {
        if token == "--" {
            parsed.index += 1;
            break;
        }
        if !token.starts_with('-') {
            break;
        }
        parsed.plain = false;
        parsed.has_options = true;
        if token == "-" {
            parsed.index += 1;
        } else if token.starts_with("--") {
            parsed.long_option(token, argv)?;
        } else {
            parsed.short_cluster(token, argv)?;
        }
    }
    while let Some((key, _)) = argv
        .get(parsed.index)
        .and_then(|token| token.split_once('='))
    {
        parsed.plain = false;
        parsed.keys.push(key.to_owned());
        parsed.index += 1;
    }
    Some(parsed)
}

impl ParsedEnv {
    fn long_option(&mut self, token: &str, argv: &[String]) -> Option<()> {
        let (name, attached) = match token.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (token, None),
        };
        if FLAGS.contains(&name) && attached.is_none() {
            self.index += 1;
            return Some(());
        }
        if !VALUES.contains(&name) {
            return None;
        }
        let value = match attached {
            Some(value) => {
                self.index += 1;
                value
            }
            None => {
                let value = argv.get(self.index + 1)?.clone();
                self.index += 2;
                value
            }
        };
        if name == "--split-string" {
            self.split = Some(value);
        }
        Some(())
    }

    /// Reads `-i`, `-0`, `-u NAME`, `-uNAME`, `-iS 'text'` and similar clusters.
    fn short_cluster(&mut self, token: &str, argv: &[String]) -> Option<()> {
        for (offset, flag) in token.char_indices().skip(1) {
            match flag {
                'i' | '0' => {}
                'u' | 'C' | 'S' | 's' | 'P' => {
                    let attached = &token[offset + flag.len_utf8()..];
                    let value = if attached.is_empty() {
                        self.index += 1;
                        argv.get(self.index)?.clone()
                    } else {
                        attached.to_owned()
                    };
                    if matches!(flag, 'S' | 's') {
                        self.split = Some(value);
                    }
                    break;
                }
                _ => return None,
            }
        }
        self.index += 1;
        Some(())
    }
}
