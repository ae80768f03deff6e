//! Finds secrets by the name that precedes them: form fields, parameters of URLs, headers, members
//! of JSON, assignments.

use super::super::shapes::{
    SCHEMES, SECRET_FIELDS, SECRET_HEADERS, SECRET_NAMES, URL_PARAMETERS, is_secret_character,
};
use super::{SecretPlace, SecretSpan, is_path};

pub(super) fn find(value: &str, place: SecretPlace, found: &mut Vec<SecretSpan>) {
    let url = value.find("://");
    let mut has_cookies = false;
    for (at, sign) in value.char_indices().filter(|(_, c)| matches!(c, '=' | ':')) {
        let Some(name) = FieldName::before(value, at) else {
            continue;
        };
        if sign == ':' && !name.is_quoted && !value[at + 1..].starts_with(' ') {
            // This is text such as `image:tag` or `host:port`.
            continue;
        }
        let header = short(name.text);
        if sign == ':' && SECRET_HEADERS.iter().any(|(known, _)| *known == header) {
            // The first cookie header covers everything that follows.
            if !has_cookies || !header.ends_with("cookie") {
                in_header(value, at + 1, &header, found);
            }
            has_cookies |= header.ends_with("cookie");
            continue;
        }
        let is_parameter = value[..name.start].ends_with(['?', '&'])
            && url.is_some_and(|url| url < name.start)
            && URL_PARAMETERS.iter().any(|(known, _)| *known == header);
        if !is_parameter && !is_secret_field(name.text) {
            continue;
        }
        let Some((start, end)) = literal_value(value, at + 1) else {
            continue;
        };
        let secret = &value[start..end];
        // Such a word may name a file or a program.
        let is_whole_word = name.start == 0 && end == value.len();
        let names_file = match place {
            SecretPlace::Argument => is_whole_word && is_path(secret),
            SecretPlace::CodeArgument => secret.contains('/'),
        };
        if !names_file && !is_plain_word(secret) {
            found.push(SecretSpan::token(start..end));
        }
    }
}

/// A name before `=` or `:`.
struct FieldName<'a> {
    text: &'a str,
    start: usize,
    is_quoted: bool,
}

impl<'a> FieldName<'a> {
    fn before(value: &'a str, at: usize) -> Option<Self> {
        let front = value[..at].trim_end_matches(' ');
        let unquoted = front.trim_end_matches(['"', '\'', '\\']);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.%[]".contains(c);
        let text = &unquoted[unquoted.trim_end_matches(is_part).len()..];
        let start = unquoted.len() - text.len();
        let is_quoted = unquoted.len() < front.len();
        // `NAME =` is not an assignment, but `"name" :` is a member.
        let is_joined = front.len() == at || is_quoted;
        (!text.is_empty() && is_joined).then_some(Self {
            text,
            start,
            is_quoted,
        })
    }
}

/// Returns the literal value that begins here, possibly after blanks and a quote. Returns `None` if
/// something follows that is not literal, because the value would be incomplete.
fn literal_value(value: &str, from: usize) -> Option<(usize, usize)> {
    let rest = &value[from..];
    let blanks = rest.len() - rest.trim_start_matches([' ', '\\', '"', '\'']).len();
    let start = from + blanks;
    let rest = &value[start..];
    let end = start + rest.find(|c| !is_secret_character(c)).unwrap_or(rest.len());
    let is_end = |c: char| "&,; \t\n\"'\\}])#?".contains(c);
    let ends = value[end..].chars().next().is_none_or(is_end);
    (end > start && ends).then_some((start, end))
}

/// Handles `Authorization: Bearer TOKEN` and `Cookie: a=SECRET; b=SECRET`.
fn in_header(value: &str, from: usize, header: &str, found: &mut Vec<SecretSpan>) {
    if header.ends_with("cookie") {
        for (at, _) in value[from..].match_indices('=') {
            if let Some((start, end)) = literal_value(value, from + at + 1) {
                found.push(SecretSpan::token(start..end));
            }
        }
        return;
    }
    let Some((start, end)) = literal_value(value, from) else {
        return;
    };
    let scheme = value[start..end].to_ascii_lowercase();
    if SCHEMES.contains(&scheme.as_str()) {
        if let Some((start, end)) = literal_value(value, end) {
            found.push(SecretSpan::token(start..end));
        }
    } else {
        found.push(SecretSpan::token(start..end));
    }
}

/// Recognizes `GITHUB_TOKEN`, `--api-key`, `client%5Fsecret` and `user[password]`, but not
/// `token_count`.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = short(name);
    SECRET_NAMES
        .iter()
        .any(|(ending, _)| name.ends_with(ending))
}

fn is_secret_field(name: &str) -> bool {
    let short = short(name);
    is_secret_name(name)
        || name.ends_with("_PASS")
        || SECRET_FIELDS.iter().any(|(known, _)| *known == short)
}

/// Whether an environment variable contains a secret, judged by its name, and for a key also by its
/// value.
pub(super) fn is_secret_assignment(name: &str, value: &str) -> bool {
    let is_key = name.ends_with("_KEY")
        && value.len() >= 16
        && !is_path(value)
        && value.contains(|c: char| c.is_ascii_digit())
        && value.contains(|c: char| c.is_ascii_alphabetic());
    is_key || (is_secret_field(name) && !is_plain_word(value))
}

/// Whether the value is only a switch and therefore not a secret.
fn is_plain_word(value: &str) -> bool {
    let switches = [
        "true", "false", "yes", "no", "on", "off", "null", "none", "0", "1",
    ];
    switches.contains(&value.to_ascii_lowercase().as_str())
}

/// Returns the last component of a name, decoded, as lower-case letters and digits.
fn short(name: &str) -> String {
    let decoded = percent_decoded(name).to_ascii_lowercase();
    let last = decoded
        .rsplit(['/', '?', '.', ':', '['])
        .next()
        .unwrap_or_default();
    last.chars().filter(char::is_ascii_alphanumeric).collect()
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
