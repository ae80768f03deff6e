//! The harmless table: the variables that pass an allowlist without an entry that names them.
//!
//! Each row is data with its reason. Names are compared exactly, and values in full and as ASCII,
//! so that no line break or odd character slips through. A new row needs a reason like those below:
//! whatever program reads it, the variable names no file, no program and no server.

/// Variables with values that are harmless for the same reason.
#[derive(Debug)]
pub struct HarmlessRow {
    pub names: &'static [&'static str],
    /// Prefixes of names; only capital letters may follow.
    pub prefixes: &'static [&'static str],
    pub values: HarmlessValues,
    pub reason: &'static str,
}

/// The form that a value must have.
#[derive(Debug, Clone, Copy)]
pub enum HarmlessValues {
    /// One of these words.
    Words(&'static [&'static str]),
    /// `language_TERRITORY.codeset@modifier`; only the language is required.
    Locale,
    /// `Area/City` or `UTC`: always beneath the zone database, never a path that the caller
    /// chooses.
    Zone,
    /// Decimal digits, from one to `most` of them.
    Digits { most: usize },
    /// A port number from 1 to 65535.
    Port,
    /// At most `most` letters, digits and `_ : , = * -`.
    Filter { most: usize },
}

/// No name of a locale or zone is longer.
const MAX_NAME_BYTES: usize = 64;

#[rustfmt::skip]
pub static HARMLESS: &[HarmlessRow] = &[
    HarmlessRow {
        names: &["LANG"],
        prefixes: &["LC_"],
        values: HarmlessValues::Locale,
        reason: "it chooses among installed locales",
    },
    HarmlessRow {
        names: &["TZ"],
        prefixes: &[],
        values: HarmlessValues::Zone,
        reason: "it names no file outside the zone database",
    },
    HarmlessRow {
        names: &["TERM"],
        prefixes: &[],
        values: HarmlessValues::Words(&[
            "alacritty", "ansi", "dumb", "foot", "linux", "rxvt", "rxvt-256color", "rxvt-unicode",
            "rxvt-unicode-256color", "screen", "screen-256color", "tmux", "tmux-256color",
            "unknown", "vt100", "vt102", "vt220", "xterm", "xterm-16color", "xterm-256color",
            "xterm-color", "xterm-ghostty", "xterm-kitty",
        ]),
        reason: "it names no terminfo file of the caller's",
    },
    HarmlessRow {
        names: &["COLORTERM"],
        prefixes: &[],
        values: HarmlessValues::Words(&["24bit", "truecolor"]),
        reason: "it says how many colors there are",
    },
    HarmlessRow {
        names: &["COLUMNS", "LINES"],
        prefixes: &[],
        values: HarmlessValues::Digits { most: 4 },
        reason: "it is a size",
    },
    HarmlessRow {
        names: &["CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "NO_COLOR"],
        prefixes: &[],
        values: HarmlessValues::Words(&["", "0", "1", "2", "3", "true", "false"]),
        reason: "it changes color only",
    },
    HarmlessRow {
        names: &["CI", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"],
        prefixes: &[],
        values: HarmlessValues::Words(&["", "0", "1", "true", "false"]),
        reason: "it is a switch without a file or program",
    },
    HarmlessRow {
        names: &["RUST_BACKTRACE"],
        prefixes: &[],
        values: HarmlessValues::Words(&["0", "1", "full"]),
        reason: "it is a switch",
    },
    HarmlessRow {
        names: &["DEBUG", "RUST_LOG"],
        prefixes: &[],
        values: HarmlessValues::Filter { most: 128 },
        reason: "it is a log filter and names no file",
    },
    HarmlessRow {
        names: &["NODE_ENV"],
        prefixes: &[],
        values: HarmlessValues::Words(&["development", "production", "test"]),
        reason: "it is one of three fixed words",
    },
    HarmlessRow {
        names: &["PORT"],
        prefixes: &[],
        values: HarmlessValues::Port,
        reason: "it is a number",
    },
    HarmlessRow {
        names: &["GIT_PAGER", "PAGER"],
        prefixes: &[],
        values: HarmlessValues::Words(&["", "cat"]),
        reason: "it turns the pager off; the run gets the empty value, which starts no program",
    },
];

/// Whether an allowlist lets this value through, whatever program reads it.
pub fn is_harmless(name: &str, value: &str) -> bool {
    row(name).is_some_and(|row| row.values.admit(value))
}

/// Whether the table has a row for the name. The row may not admit the given value.
pub fn has_harmless_values(name: &str) -> bool {
    row(name).is_some()
}

fn row(name: &str) -> Option<&'static HarmlessRow> {
    HARMLESS.iter().find(|row| {
        let follows = |prefix: &&str| {
            name.strip_prefix(*prefix).is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_uppercase())
            })
        };
        row.names.contains(&name) || row.prefixes.iter().any(follows)
    })
}

impl HarmlessValues {
    fn admit(self, value: &str) -> bool {
        match self {
            Self::Words(words) => words.contains(&value),
            Self::Locale => is_locale(value),
            Self::Zone => is_zone(value),
            Self::Digits { most } => {
                (1..=most).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit())
            }
            Self::Port => {
                let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
                is_number && !value.starts_with('0') && value.parse::<u16>().is_ok()
            }
            Self::Filter { most } => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_:,=*-".contains(&byte);
                value.len() <= most && value.bytes().all(fits)
            }
        }
    }
}

fn is_locale(value: &str) -> bool {
    let (rest, modifier) = match value.split_once('@') {
        Some((rest, modifier)) => (rest, Some(modifier)),
        None => (value, None),
    };
    let (name, codeset) = match rest.split_once('.') {
        Some((name, codeset)) => (name, Some(codeset)),
        None => (rest, None),
    };
    let is_word = |text: &str, extra: &[u8]| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || extra.contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    value.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && is_word(name, b"_")
        && codeset.is_none_or(|codeset| is_word(codeset, b"-_"))
        && modifier.is_none_or(|modifier| is_word(modifier, b"_"))
}

fn is_zone(value: &str) -> bool {
    let is_part = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte);
        !part.is_empty() && part.bytes().all(fits)
    };
    value.len() <= MAX_NAME_BYTES
        && value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value.split('/').all(is_part)
}
