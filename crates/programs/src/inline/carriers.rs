//! Looks behind programs that only carry another program: `sudo`, `doas`, `env`, `command`,
//! `builtin`, `exec`, and a shell text that passes on its own arguments.

use super::detect::detect;
use super::grammar::{Grammar, OptionOrder};
use super::hit::{HitKind, InlineHit};
use super::matcher::parse;
use super::split_string::split;
use crate::names::program_name;

/// How often `env -S` may unfold into another `env -S`.
pub const MAX_SPLIT_LEVELS: usize = 32;

/// Calls [`detect`] for the program that `argv` really starts. `arg_index` refers to `argv` as
/// given; for text that `env -S` has split, it is the argument that contained the text.
///
/// Use this only to find code: the absence of a hit must not make a carried command trusted.
pub fn detect_through_carriers(argv: &[impl AsRef<str>]) -> Option<InlineHit> {
    let mut words = CarrierWord::all(argv);
    let mut levels = 0;
    loop {
        let name = program_name(&words.first()?.text).into_owned();
        match unwrap_carrier(words) {
            Carried::Words(next) => words = next,
            Carried::Split(next) if levels < MAX_SPLIT_LEVELS => {
                levels += 1;
                words = next;
            }
            Carried::Split(next) => {
                return Some(InlineHit {
                    program: name,
                    flag: "-S".to_owned(),
                    kind: HitKind::Code,
                    arg_index: next.first().map_or(0, |word| word.origin),
                    reason: "the text is nested too deep to be read",
                });
            }
            Carried::Last(last) => {
                let texts: Vec<&str> = last.iter().map(|word| word.text.as_str()).collect();
                let mut hit = detect(&texts)?;
                hit.arg_index = last.get(hit.arg_index).map_or(0, |word| word.origin);
                return Some(hit);
            }
            Carried::Nothing => return None,
        }
    }
}

/// One word of a command that a carrier may pass on.
#[derive(Debug)]
pub struct CarrierWord {
    pub text: String,
    /// The index in the argv as given.
    origin: usize,
}

impl CarrierWord {
    pub fn all(argv: &[impl AsRef<str>]) -> Vec<Self> {
        let words = argv.iter().enumerate();
        words
            .map(|(origin, text)| Self {
                text: text.as_ref().to_owned(),
                origin,
            })
            .collect()
    }
}

/// Joins the words with one blank between them.
pub fn join_words(words: &[CarrierWord]) -> String {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    texts.join(" ")
}

/// The content of one carrier.
#[derive(Debug)]
pub enum Carried {
    /// The program behind the carrier.
    Words(Vec<CarrierWord>),
    /// The same carrier again, with its text split into words.
    Split(Vec<CarrierWord>),
    /// There is no carrier: this is what runs.
    Last(Vec<CarrierWord>),
    /// The carrier runs nothing.
    Nothing,
}

/// Removes one carrier.
pub fn unwrap_carrier(words: Vec<CarrierWord>) -> Carried {
    let name = words.first().map(|word| program_name(&word.text));
    let name = name.unwrap_or_default();
    match CARRIERS.iter().find(|carrier| carrier.name == name) {
        Some(carrier) => carrier.unwrap(words),
        None if SHELLS.contains(&&*name) => forwarded(words),
        None => Carried::Last(words),
    }
}

/// A program whose operands are another program and its arguments.
struct Carrier {
    name: &'static str,
    grammar: &'static Grammar,
    /// Options with which the carrier runs nothing.
    runs_nothing: &'static [&'static str],
    assignments: Assignments,
    /// Options whose value is split into further arguments.
    splits: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Assignments {
    No,
    /// `NAME=VALUE` may precede the program.
    Yes,
    /// As `Yes`, and options may follow the assignments.
    ThenOptions,
}

const CARRIERS: &[Carrier] = &[
    Carrier {
        name: "sudo",
        grammar: &SUDO,
        // Edit, list, validate, forget, explain: these start no command of the caller.
        runs_nothing: &[
            "-K",
            "-V",
            "-e",
            "-l",
            "-v",
            "--edit",
            "--help",
            "--list",
            "--remove-timestamp",
            "--validate",
            "--version",
        ],
        assignments: Assignments::ThenOptions,
        splits: &[],
    },
    Carrier {
        name: "doas",
        grammar: &DOAS,
        runs_nothing: &["-L"],
        assignments: Assignments::No,
        splits: &[],
    },
    Carrier {
        name: "env",
        grammar: &ENV,
        runs_nothing: &["--help", "--version"],
        assignments: Assignments::Yes,
        splits: &["-S", "-s", "--split-string"],
    },
    Carrier {
        name: "command",
        grammar: &COMMAND,
        // These options only report what the name stands for.
        runs_nothing: &["-v", "-V"],
        assignments: Assignments::No,
        splits: &[],
    },
    Carrier {
        name: "builtin",
        grammar: &COMMAND,
        runs_nothing: &[],
        assignments: Assignments::No,
        splits: &[],
    },
    Carrier {
        name: "exec",
        grammar: &EXEC,
        runs_nothing: &[],
        assignments: Assignments::No,
        splits: &[],
    },
];

/// The grammar that carriers share: the first operand is the program, and its arguments follow.
const CARRYING: Grammar = Grammar {
    order: OptionOrder::Until(1),
    unknown_may_take_value: false,
    ..Grammar::GNU
};

const SUDO: Grammar = Grammar {
    short_values: "CDRTUacghprtu",
    long_values: &[
        "--auth-type",
        "--chdir",
        "--chroot",
        "--close-from",
        "--command-timeout",
        "--group",
        "--host",
        "--login-class",
        "--other-user",
        "--prompt",
        "--role",
        "--type",
        "--user",
    ],
    ..CARRYING
};

const DOAS: Grammar = Grammar {
    short_values: "Cau",
    ..CARRYING
};

const ENV: Grammar = Grammar {
    short_values: "CLPSUasu",
    long_values: &["--argv0", "--chdir", "--split-string", "--unset"],
    ..CARRYING
};

const COMMAND: Grammar = CARRYING;

const EXEC: Grammar = Grammar {
    short_values: "a",
    ..CARRYING
};

impl Carrier {
    fn unwrap(&self, mut words: Vec<CarrierWord>) -> Carried {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let mut start = 1;
        loop {
            let parsed = parse(&texts, start, self.grammar);
            if parsed.has(self.runs_nothing) {
                return Carried::Nothing;
            }
            let mut options = parsed.options.iter();
            if let Some(option) = options.find(|option| self.splits.contains(&&*option.name)) {
                let split_words = split(option.value.unwrap_or_default());
                let behind = option.end;
                return Carried::Split(splice(words, split_words, behind));
            }
            let Some(&first) = parsed.operands.first() else {
                return Carried::Nothing;
            };
            let skipped = match self.assignments {
                Assignments::No => 0,
                Assignments::Yes => {
                    leading(&texts[first..], |text| text == "-" || is_assignment(text))
                }
                Assignments::ThenOptions => leading(&texts[first..], is_assignment),
            };
            let next = first + skipped;
            if next >= texts.len() {
                return Carried::Nothing;
            }
            if skipped == 0 || self.assignments == Assignments::Yes {
                return Carried::Words(words.split_off(next));
            }
            start = next;
        }
    }
}

fn leading(texts: &[&str], belongs: impl Fn(&str) -> bool) -> usize {
    texts.iter().take_while(|text| belongs(text)).count()
}

/// Whether a carrier reads the word as `NAME=VALUE` before a program.
pub fn is_assignment(text: &str) -> bool {
    text.contains('=')
}

/// Joins the carrier itself, the words of the split text, and the words after the text.
fn splice(words: Vec<CarrierWord>, split_words: Vec<String>, behind: usize) -> Vec<CarrierWord> {
    let origin = words
        .get(behind.saturating_sub(1))
        .map_or(0, |word| word.origin);
    let mut rest = words.into_iter();
    let carrier = rest.next();
    let split_words = split_words
        .into_iter()
        .map(|text| CarrierWord { text, origin });
    carrier
        .into_iter()
        .chain(split_words)
        .chain(rest.skip(behind.saturating_sub(1)))
        .collect()
}

/// Shells whose text can pass on its arguments: `sh -c '"$@"' name program …`.
const SHELLS: [&str; 11] = [
    "ash", "bash", "dash", "fish", "ksh", "mksh", "osh", "rbash", "sh", "yash", "zsh",
];

/// Returns the program that a shell text starts through its own positional arguments, if it does.
fn forwarded(mut words: Vec<CarrierWord>) -> Carried {
    let Some(text_at) = shell_text(&words) else {
        return Carried::Last(words);
    };
    match forwards(&words[text_at].text) {
        Some(Forward::FromName) => Carried::Words(words.split_off(text_at + 1)),
        Some(Forward::BehindName) if words.len() > text_at + 2 => {
            Carried::Words(words.split_off(text_at + 2))
        }
        _ => Carried::Last(words),
    }
}

/// Returns the index of the text after `-c`.
fn shell_text(words: &[CarrierWord]) -> Option<usize> {
    let mut has_text = false;
    let mut at = 1;
    while let Some(token) = words.get(at).map(|word| word.text.as_str()) {
        if token.len() < 2 || !token.starts_with(['-', '+']) {
            break;
        }
        at += 1;
        match token {
            "--" => break,
            "--rcfile" | "--init-file" => at += 1,
            "--command" => has_text = true,
            _ if token.starts_with("--") => {}
            _ => {
                has_text |= token.starts_with('-') && token.contains('c');
                at += token.matches(['o', 'O']).count();
            }
        }
    }
    (has_text && at < words.len()).then_some(at)
}

#[derive(Debug, PartialEq, Eq)]
enum Forward {
    /// `$0 "$@"`
    FromName,
    /// `"$@"`
    BehindName,
}

/// Words that may precede the command word of a shell text.
const BEFORE_COMMAND: [&str; 17] = [
    "!", "builtin", "command", "do", "doas", "elif", "else", "env", "eval", "exec", "if", "nohup",
    "sudo", "then", "time", "until", "while",
];

/// Whether some command of the text consists only of the arguments of the shell.
fn forwards(text: &str) -> Option<Forward> {
    let is_all = |word: &str| word.starts_with("$@") || word.starts_with("$*");
    let braces = [("${@", "$@"), ("${*", "$*"), ("${0}", "$0"), ("${1}", "$1")];
    let plain = braces
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    plain
        .split([';', '&', '|', '\n', '(', ')', '{', '}', '`'])
        .find_map(|command| {
            let unquoted = command.replace(['"', '\''], " ");
            let mut words = unquoted.split_whitespace().skip_while(|word| {
                BEFORE_COMMAND.contains(word) || (word.contains('=') && !word.starts_with('$'))
            });
            let first = words.next()?;
            let more_are_all = words.any(is_all);
            match first {
                "$0" if more_are_all => Some(Forward::FromName),
                "$1" if more_are_all => Some(Forward::BehindName),
                word if is_all(word) => Some(Forward::BehindName),
                _ => None,
            }
        })
}
