//! Finds secrets by their own form: private keys, tokens of vendors, logins in URLs.

use std::sync::LazyLock;

use super::super::MaskStyle;
use super::super::shapes::{TOKENS, TokenShape, is_secret_character};
use super::SecretSpan;

pub(super) fn find(value: &str, found: &mut Vec<SecretSpan>) {
    private_keys(value, found);
    vendor_tokens(value, found);
    bot_tokens(value, found);
    web_tokens(value, found);
    bearer_tokens(value, found);
    url_logins(value, found);
    slack_hooks(value, found);
}

/// Finds `-----BEGIN … PRIVATE KEY-----` up to its end. The body is base64 and line breaks, so no
/// code can hide in it. If the body contains anything else, all of it stays visible.
fn private_keys(value: &str, found: &mut Vec<SecretSpan>) {
    const BEGIN: &str = "-----BEGIN ";
    const KEY: &str = "PRIVATE KEY-----";
    const END: &str = "-----END ";
    let mut from = 0;
    while let Some(at) = value[from..].find(BEGIN).map(|at| from + at) {
        from = at + BEGIN.len();
        let Some(header) = value[from..].find(KEY).map(|key| from + key + KEY.len()) else {
            return;
        };
        let Some(end) = value[header..].find(END).map(|end| header + end) else {
            return;
        };
        let Some(footer) = value[end..].find(KEY).map(|key| end + key + KEY.len()) else {
            return;
        };
        let is_body = |c: char| c.is_ascii_alphanumeric() || "+/=\n\r\\:,- ".contains(c);
        let is_kind = |kind: &str| kind.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
        let kinds = [
            &value[from..header - KEY.len()],
            &value[end + END.len()..footer - KEY.len()],
        ];
        if kinds.into_iter().all(is_kind) && value[header..end].chars().all(is_body) {
            let body = &value[header..end];
            // The first and the last line say that this is a key. Only the lines between them are
            // secret.
            let (bytes, style) = match (body.strip_prefix('\n'), body.strip_suffix('\n')) {
                (Some(_), Some(_)) if body.len() > 1 => {
                    (header + 1..end - 1, MaskStyle::PrivateKey)
                }
                _ => (at..footer, MaskStyle::Whole),
            };
            found.push(SecretSpan { bytes, style });
        }
        from = footer;
    }
}

/// Returns the positions where a word of letters and digits begins, each with the rest of the
/// value.
fn starts(value: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut is_inside = false;
    // A token begins with an ASCII character, so every position is a character boundary.
    let places = value.bytes().enumerate().filter(move |(_, byte)| {
        let was_inside = std::mem::replace(&mut is_inside, is_part(*byte));
        !was_inside && byte.is_ascii()
    });
    places.map(|(at, _)| (at, &value[at..]))
}

/// The rows of the table by the first byte of a token. Most positions match no row.
static BY_FIRST_BYTE: LazyLock<[Vec<&TokenShape>; 256]> = LazyLock::new(|| {
    std::array::from_fn(|byte| {
        let begins = |shape: &&TokenShape| usize::from(shape.prefix.as_bytes()[0]) == byte;
        TOKENS.iter().filter(begins).collect()
    })
});

fn vendor_tokens(value: &str, found: &mut Vec<SecretSpan>) {
    // No token begins inside another token, so no byte is read more often than there are rows.
    let mut end = 0;
    for (at, rest) in starts(value) {
        let Some(first) = rest.bytes().next().filter(|_| at >= end) else {
            continue;
        };
        let fits = BY_FIRST_BYTE[usize::from(first)].iter().find_map(|shape| {
            let body = rest.strip_prefix(shape.prefix)?;
            let is_part = |c: char| c.is_ascii_alphanumeric() || shape.also.contains(c);
            let length = body.find(|c| !is_part(c)).unwrap_or(body.len());
            // The final dots may end a sentence.
            let body = body[..length].trim_end_matches('.');
            (body.len() >= shape.least).then(|| shape.prefix.len() + body.len())
        });
        if let Some(length) = fits {
            found.push(SecretSpan::token(at..at + length));
            end = at + length;
        }
    }
}

/// Finds web tokens: three parts in base64, the first of which begins with `{"`.
fn web_tokens(value: &str, found: &mut Vec<SecretSpan>) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-=".contains(c);
    let part = |text: &str| text.find(|c| !is_part(c)).unwrap_or(text.len());
    let mut end = 0;
    for (at, rest) in starts(value) {
        if at < end || !rest.starts_with("eyJ") {
            continue;
        }
        let first = part(rest);
        // A token that begins inside this part has the same following parts and a shorter first
        // part.
        end = at + first;
        if first < 10 {
            continue;
        }
        let (mut length, mut has_more) = (first, false);
        while let Some(next) = rest[length..].strip_prefix('.') {
            let next = part(next);
            has_more |= next > 0;
            length += 1 + next;
        }
        if has_more {
            found.push(SecretSpan::token(at..at + length));
            end = at + length;
        }
    }
}

/// Finds `123456:ABC…`, a Telegram bot token, also after `bot` in a URL.
fn bot_tokens(value: &str, found: &mut Vec<SecretSpan>) {
    for (colon, _) in value.match_indices(':') {
        let before = &value[..colon];
        let number = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let start = colon - number;
        let is_start = {
            let front = &value[..start];
            front.ends_with("bot") || !front.ends_with(|c: char| c.is_ascii_alphanumeric())
        };
        let rest = &value[colon + 1..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if (6..=12).contains(&number) && length >= 30 && is_start {
            found.push(SecretSpan::token(start..colon + 1 + length));
        }
    }
}

/// Finds `Bearer TOKEN` and `Basic TOKEN` anywhere in a word.
fn bearer_tokens(value: &str, found: &mut Vec<SecretSpan>) {
    let lower = value.to_ascii_lowercase();
    for (scheme, least) in [("bearer ", 18), ("basic ", 12)] {
        for (at, _) in lower.match_indices(scheme) {
            let start = at + scheme.len();
            let rest = &value[start..];
            let length = rest.find(|c| !is_secret_character(c)).unwrap_or(rest.len());
            let token = &rest[..length];
            let is_word = lower[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
            // A sentence about basic authentication contains no token.
            let is_token = token.contains(|c: char| c.is_ascii_digit() || "=+/".contains(c));
            if token.len() >= least && is_token && !is_word {
                found.push(SecretSpan::token(start..start + length));
            }
        }
    }
}

/// Finds `scheme://user:PASSWORD@host` and `https://TOKEN@host`.
fn url_logins(value: &str, found: &mut Vec<SecretSpan>) {
    for (at, sign) in value.match_indices("://") {
        let start = at + sign.len();
        let rest = &value[start..];
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let Some(end) = authority.rfind('@') else {
            continue;
        };
        let login = &authority[..end];
        let secret = match login.find(':') {
            Some(colon) => colon + 1..end,
            None if is_opaque(login) => 0..end,
            None => continue,
        };
        let is_whole = login[secret.clone()].chars().all(is_secret_character);
        if !secret.is_empty() && is_whole {
            found.push(SecretSpan::token(start + secret.start..start + secret.end));
        }
    }
}

/// Whether the text is long and made of letters and digits, so that it is not a user name.
fn is_opaque(text: &str) -> bool {
    text.len() >= 20
        && text.contains(|c: char| c.is_ascii_digit())
        && text.contains(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Finds `hooks.slack.com/services/T…/B…/SECRET` and Discord's `/api/webhooks/ID/SECRET`.
fn slack_hooks(value: &str, found: &mut Vec<SecretSpan>) {
    let hosts = [
        ("hooks.slack.com/services/", 2),
        ("hooks.slack.com/workflows/", 3),
        ("discord.com/api/webhooks/", 1),
        ("discordapp.com/api/webhooks/", 1),
    ];
    for (host, parts_before) in hosts {
        let Some(at) = value.find(host) else {
            continue;
        };
        let mut start = at + host.len();
        for _ in 0..parts_before {
            match value[start..].find('/') {
                Some(slash) => start += slash + 1,
                None => return,
            }
        }
        let rest = &value[start..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if length >= 12 {
            found.push(SecretSpan::token(start..start + length));
        }
    }
}
