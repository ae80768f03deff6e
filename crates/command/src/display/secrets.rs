//! Secrets in a command: found by their own form, or by the name they are given to.
//!
//! Only whole literal words are masked. A value with anything in it that a shell acts on (`$`, a
//! backtick, `;`, `|`, …) is shown as it is: a mask must never hide code.

use super::Mask;
use super::hidden::is_hidden;

/// The secrets of a text, in order, none within another.
pub(super) fn find(text: &str) -> Vec<Mask> {
    let seen = Seen::of(text);
    let mut masks = Vec::new();
    let mut at = 0;
    while at < seen.text.len() {
        let end = seen.word_end(at);
        if end == at {
            at += seen.text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let before = masks.len();
        seen.in_word(at, end, &mut masks);
        // `Authorization: Bearer TOKEN`, `--password WORD`
        if masks.len() == before
            && let Some((start, end)) = seen.announced(at, end)
        {
            masks.push((start, end));
            at = end;
            continue;
        }
        at = end;
    }
    masks
        .into_iter()
        .map(|(start, end)| Mask {
            start: seen.places[start],
            end: seen.places[end],
        })
        .collect()
}

/// The secrets of a value that is given to this name.
pub(super) fn find_in_value(name: &str, value: &str) -> Vec<Mask> {
    if is_secret_name(name) && !value.is_empty() && value.chars().all(is_literal) {
        let end = value.len();
        return vec![Mask { start: 0, end }];
    }
    find(value)
}

/// The text without what cannot be seen, so that no hidden character splits a secret or its name.
struct Seen {
    text: String,
    /// For each byte, and for the end, where it stands in the original.
    places: Vec<usize>,
}

/// Blanks that part words; other hidden characters do not.
fn parts(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

impl Seen {
    fn of(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut places = Vec::with_capacity(original.len() + 1);
        let mut end = 0;
        for (at, character) in original.char_indices() {
            if is_hidden(character) && !parts(character) {
                continue;
            }
            text.push(character);
            places.extend((0..character.len_utf8()).map(|byte| at + byte));
            end = at + character.len_utf8();
        }
        places.push(end);
        Self { text, places }
    }

    /// Where the run of literal characters that begins at `at` ends.
    fn word_end(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        at + rest.find(|c| !is_literal(c)).unwrap_or(rest.len())
    }

    /// Whether the shell reads the value as it stands: nothing that it acts on follows at once.
    fn is_whole(&self, end: usize) -> bool {
        !self.text[end..].starts_with(['$', '`', '(', '\\', '{', '*', '?', '['])
    }

    fn in_word(&self, start: usize, end: usize, masks: &mut Vec<(usize, usize)>) {
        if !self.is_whole(end) {
            return;
        }
        let word = &self.text[start..end];
        if let Some((from, to)) = url_password(word) {
            masks.push((start + from, start + to));
            return;
        }
        // Fields of a query or form, or the word as one field.
        let mut at = start;
        for field in word.split(['&', ',']) {
            let value = field.split_once('=').and_then(|(name, value)| {
                let is_named = is_secret_name(name) && !value.is_empty();
                is_named.then_some(at + field.len() - value.len())
            });
            if let Some(value) = value {
                masks.push((value, at + field.len()));
            } else if let Some(from) = token_start(field) {
                masks.push((at + from, at + field.len()));
            }
            at += field.len() + 1;
        }
        // `NAME="VALUE"` and `"name": "value"`
        if masks.last().is_none_or(|(_, last)| *last <= start)
            && let Some((from, to)) = self.quoted_value(start, end)
        {
            masks.push((from, to));
        }
    }

    /// A quoted value behind a secret's name: `TOKEN="…"`, `"token": "…"`.
    fn quoted_value(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let before = &self.text[..start];
        let quote = before
            .chars()
            .next_back()
            .filter(|c| matches!(c, '"' | '\''))?;
        if !self.text[end..].starts_with(quote) {
            return None;
        }
        let name = before[..before.len() - 1].trim_end_matches(' ');
        let name = name.strip_suffix(['=', ':'])?.trim_end_matches(['"', '\'']);
        let name_start = name.rfind(|c| !is_literal(c)).map_or(0, |at| {
            at + name[at..].chars().next().map_or(1, char::len_utf8)
        });
        is_secret_name(&name[name_start..]).then_some((start, end))
    }

    /// The word behind one that says that a secret follows.
    fn announced(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let word = self.text[start..end].to_ascii_lowercase();
        let gap = |from: usize| {
            let rest = &self.text[from..];
            let next = from + rest.len() - rest.trim_start_matches(' ').len();
            (next > from).then_some(next)
        };
        let header = word.strip_suffix(':');
        let mut next = if header.is_some_and(is_secret_header) || is_secret_option(&word) {
            gap(end)?
        } else {
            return None;
        };
        let scheme_end = self.word_end(next);
        let scheme = self.text[next..scheme_end].to_ascii_lowercase();
        if header.is_some() && ["bearer", "basic", "token", "apikey"].contains(&scheme.as_str()) {
            next = gap(scheme_end)?;
        }
        let quoted = self.text[next..].starts_with(['"', '\'']);
        let next = next + usize::from(quoted);
        let end = self.word_end(next);
        let is_option = self.text[next..].starts_with('-') && header.is_none();
        (end > next && self.is_whole(end) && !is_option).then_some((next, end))
    }
}

/// Characters of which literal values are made; none of them means anything to a shell here.
fn is_literal(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-./+=:@%,&~".contains(character)
}

/// Names under which secrets are kept, by the words in them.
const SECRET_WORDS: [&str; 12] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "credentials",
    "signingkey",
    "authkey",
];

/// `GITHUB_TOKEN`, `--api-key`, `client%5Fsecret`; not `token_count` or `max_tokens`.
fn is_secret_name(name: &str) -> bool {
    let name = percent_decoded(name).to_ascii_lowercase();
    let words: String = name
        .rsplit(['/', '?', '.', ':'])
        .next()
        .unwrap_or_default()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    SECRET_WORDS.iter().any(|secret| words.ends_with(secret))
}

fn percent_decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3);
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 3..];
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn is_secret_header(name: &str) -> bool {
    let name = name.trim_start_matches(['"', '\'']);
    matches!(
        name,
        "authorization" | "proxy-authorization" | "cookie" | "set-cookie"
    ) || is_secret_name(name)
}

/// `--token`, `--password`; options that name a file or a command of that kind are others.
fn is_secret_option(word: &str) -> bool {
    word.starts_with("--") && !word.contains('=') && is_secret_name(word)
}

/// `scheme://user:PASSWORD@host`
fn url_password(word: &str) -> Option<(usize, usize)> {
    let authority = word.find("://")? + 3;
    let rest = &word[authority..];
    let host = rest.find('/').unwrap_or(rest.len());
    let at = rest[..host].rfind('@')?;
    let colon = rest[..at].find(':')?;
    (colon + 1 < at).then_some((authority + colon + 1, authority + at))
}

/// Beginnings of tokens whose maker gave them a form, and how long what follows is at least.
const TOKENS: &[(&str, usize)] = &[
    ("sk-", 16),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("whsec_", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxa-", 10),
    ("xoxs-", 10),
    ("xapp-", 10),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("ya29.", 20),
    ("npm_", 30),
    ("pypi-", 40),
    ("hf_", 20),
    ("gsk_", 20),
    ("xai-", 20),
    ("SG.", 30),
    ("dop_v1_", 40),
    ("shpat_", 20),
    ("AGE-SECRET-KEY-", 30),
];

/// Where in the field a token begins; it goes to the field's end.
fn token_start(field: &str) -> Option<usize> {
    let starts = field
        .char_indices()
        .filter(|(at, _)| *at == 0 || field[..*at].ends_with(['=', ':', '/', '@']))
        .map(|(at, _)| at);
    starts.into_iter().find(|&at| {
        let word = &field[at..];
        let known = TOKENS.iter().any(|(prefix, least)| {
            word.strip_prefix(prefix).is_some_and(|rest| {
                rest.len() >= *least
                    && rest
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
            })
        });
        known || is_web_token(word)
    })
}

/// Three parts in base 64, the first of which begins with `{"`.
fn is_web_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    word.starts_with("eyJ")
        && parts.len() == 3
        && parts[0].len() >= 10
        && parts.iter().all(|part| {
            part.chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-=".contains(c))
        })
}
