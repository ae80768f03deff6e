//! Slash directives, which a person types into a conversation to change its settings.
//!
//! `/exec` shows the values, `/exec host=… security=… ask=… node=…` sets them, and `KEY=default`
//! removes one. `/elevated on|ask|full|off` (or `/elev`) works likewise. Every text is either one
//! of these directives or gets an error that says what was expected.

use interlock_config::Host;
use interlock_dispatch::sessions::{Edits, SessionEdit};
use interlock_host::{Elevation, host_named};
use interlock_policy::{Ask, Security};

/// The word that removes a value.
const DEFAULT: &str = "default";

/// A directive that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Directive {
    Show,
    Change(Edits),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DirectiveError {
    #[error("not a directive: it begins with /exec or /elevated")]
    NotOne,
    #[error("`{0}`: expected KEY=VALUE with one of host, security, ask, node")]
    NotSetting(String),
    #[error("`{0}` is given twice")]
    Twice(&'static str),
    #[error("{key}: `{value}` is not one of {expected}")]
    Value {
        key: &'static str,
        value: String,
        expected: String,
    },
    #[error("a quotation mark is not closed")]
    Quote,
}

/// Reads a directive.
pub(crate) fn parse(text: &str) -> Result<Directive, DirectiveError> {
    let words = words(text.trim())?;
    let mut words = words.iter().map(String::as_str);
    match words.next() {
        Some("/exec") => exec(words),
        Some("/elevated" | "/elev") => elevated(words),
        _ => Err(DirectiveError::NotOne),
    }
}

fn exec<'a>(words: impl Iterator<Item = &'a str>) -> Result<Directive, DirectiveError> {
    let mut edits = Edits::default();
    for word in words {
        let not_setting = || DirectiveError::NotSetting(shown(word));
        let (key, value) = word.split_once('=').ok_or_else(not_setting)?;
        match key {
            "host" => once(&mut edits.host, "host", host(value)?)?,
            "security" => once(&mut edits.security, "security", security(value)?)?,
            "ask" => once(&mut edits.ask, "ask", ask(value)?)?,
            "node" => once(&mut edits.node, "node", node(value)?)?,
            _ => return Err(not_setting()),
        }
    }
    Ok(shown_or_changed(edits))
}

fn elevated<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Directive, DirectiveError> {
    let mut edits = Edits::default();
    if let Some(word) = words.next() {
        edits.elevated = elevation(word)?;
    }
    match words.next() {
        Some(word) => Err(DirectiveError::NotSetting(shown(word))),
        None => Ok(shown_or_changed(edits)),
    }
}

fn shown_or_changed(edits: Edits) -> Directive {
    if edits == Edits::default() {
        Directive::Show
    } else {
        Directive::Change(edits)
    }
}

fn once<T>(
    place: &mut SessionEdit<T>,
    key: &'static str,
    edit: SessionEdit<T>,
) -> Result<(), DirectiveError> {
    if !matches!(place, SessionEdit::Keep) {
        return Err(DirectiveError::Twice(key));
    }
    *place = edit;
    Ok(())
}

pub(crate) fn host(word: &str) -> Result<SessionEdit<Host>, DirectiveError> {
    choice("host", word, host_named, Host::WORDS)
}

pub(crate) fn security(word: &str) -> Result<SessionEdit<Security>, DirectiveError> {
    let words: Vec<&str> = Security::ALL.iter().map(|level| level.as_str()).collect();
    choice("security", word, Security::parse, &words)
}

pub(crate) fn ask(word: &str) -> Result<SessionEdit<Ask>, DirectiveError> {
    let words: Vec<&str> = Ask::ALL.iter().map(|level| level.as_str()).collect();
    choice("ask", word, Ask::parse, &words)
}

pub(crate) fn elevation(word: &str) -> Result<SessionEdit<Elevation>, DirectiveError> {
    choice("elevated", word, Elevation::parse, Elevation::WORDS)
}

/// Parses a node's id, name or address. Whether such a node exists is checked when a run needs it.
pub(crate) fn node(word: &str) -> Result<SessionEdit<String>, DirectiveError> {
    match word {
        DEFAULT => Ok(SessionEdit::Clear),
        name if !name.is_empty() && name.len() <= 512 && !name.chars().any(char::is_control) => {
            Ok(SessionEdit::Set(name.to_owned()))
        }
        name => Err(DirectiveError::Value {
            key: "node",
            value: shown(name),
            expected: "the ids, names or addresses of nodes".to_owned(),
        }),
    }
}

fn choice<T>(
    key: &'static str,
    word: &str,
    parse: impl Fn(&str) -> Option<T>,
    words: &[&str],
) -> Result<SessionEdit<T>, DirectiveError> {
    if word == DEFAULT {
        return Ok(SessionEdit::Clear);
    }
    parse(word)
        .map(SessionEdit::Set)
        .ok_or_else(|| DirectiveError::Value {
            key,
            value: shown(word),
            expected: format!("{}, {DEFAULT}", words.join(", ")),
        })
}

/// Splits the text at blanks. A name with blanks stands in double quotes.
fn words(text: &str) -> Result<Vec<String>, DirectiveError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for character in text.chars() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            blank if blank.is_whitespace() && !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    if is_quoted {
        return Err(DirectiveError::Quote);
    }
    words.extend(word);
    Ok(words)
}

/// Returns the part of a word that an error message repeats.
fn shown(word: &str) -> String {
    let characters = word.chars().take(60);
    characters.filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str) -> Edits {
        match parse(text) {
            Ok(Directive::Change(edits)) => edits,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn directives_are_read_as_they_are_typed() {
        assert_eq!(parse("/exec"), Ok(Directive::Show));
        assert_eq!(parse("  /elevated \n"), Ok(Directive::Show));
        assert_eq!(
            change("/exec host=node security=allowlist ask=always node=\"mac mini\""),
            Edits {
                host: SessionEdit::Set(Host::Node),
                security: SessionEdit::Set(Security::Allowlist),
                ask: SessionEdit::Set(Ask::Always),
                node: SessionEdit::Set("mac mini".to_owned()),
                ..Edits::default()
            }
        );
        assert_eq!(change("/exec ask=default").ask, SessionEdit::Clear);
        for (word, level) in [
            ("on", Elevation::On),
            ("ask", Elevation::On),
            ("full", Elevation::Full),
            ("off", Elevation::Off),
        ] {
            let edits = change(&format!("/elevated {word}"));
            assert_eq!(edits.elevated, SessionEdit::Set(level));
        }
    }

    #[test]
    fn what_is_no_directive_says_what_was_expected() {
        for (text, expected) in [
            ("", "not a directive: it begins with /exec or /elevated"),
            (
                "exec host=node",
                "not a directive: it begins with /exec or /elevated",
            ),
            (
                "/executor",
                "not a directive: it begins with /exec or /elevated",
            ),
            (
                "/exec host",
                "`host`: expected KEY=VALUE with one of host, security, ask, node",
            ),
            (
                "/exec elevated=on",
                "`elevated=on`: expected KEY=VALUE with one of host, security, ask, node",
            ),
            (
                "/exec host=moon",
                "host: `moon` is not one of auto, sandbox, gateway, node, default",
            ),
            ("/exec ask=off ask=off", "`ask` is given twice"),
            (
                "/exec node=",
                "node: `` is not one of the ids, names or addresses of nodes",
            ),
            ("/exec node=\"a", "a quotation mark is not closed"),
            (
                "/elevated yes",
                "elevated: `yes` is not one of off, on, ask, full, default",
            ),
            (
                "/elevated on off",
                "`off`: expected KEY=VALUE with one of host, security, ask, node",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let pieces = [
            "/exec",
            "/elevated",
            " ",
            "=",
            "\"",
            "host",
            "\u{0}",
            "ä",
            "default",
            "on",
        ];
        for number in 0..10_000_usize {
            let mut rest = number;
            let mut text = String::new();
            for _ in 0..4 {
                text.push_str(pieces[rest % pieces.len()]);
                rest /= pieces.len();
            }
            let _ = parse(&text);
        }
    }
}
