//! Parses what an approver types: `/approve ID DECISION`, `/exec …`, `/elevated …`.

use std::time::Duration;

use interlock_store::{ApprovalDecision, Lease};

/// The longest text that is parsed.
const MOST_BYTES: usize = 4096;

/// A typed text that is meant for Interlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypedCommand {
    Decide {
        /// The short id or the id, as it was typed.
        reference: String,
        decision: ApprovalDecision,
        reason: Option<String>,
    },
    /// `/approve` with words that name no decision.
    Unclear(String),
    /// `/exec` or `/elevated`, with the session key if one was named.
    Directive {
        session_key: Option<String>,
        text: String,
    },
}

/// Parses a text of one line. Texts of several lines, and texts that begin with other words, are
/// not for Interlock.
pub(crate) fn parse(text: &str) -> Option<TypedCommand> {
    let text = text.trim();
    if text.len() > MOST_BYTES || text.contains(['\n', '\r']) {
        return None;
    }
    let (word, rest) = match text.split_once(' ') {
        Some((word, rest)) => (word, rest.trim()),
        None => (text, ""),
    };
    match word {
        "/approve" | "approve" => Some(decision(rest)),
        "/exec" | "/elevated" => Some(directive(word, rest)),
        "/elev" => Some(directive("/elevated", rest)),
        _ => None,
    }
}

const USAGE: &str = "/approve ID allow-once|allow-session|allow-always|lease 30m|deny [reason]";

fn decision(rest: &str) -> TypedCommand {
    let mut words = rest.split_whitespace();
    let (Some(reference), Some(word)) = (words.next(), words.next()) else {
        return TypedCommand::Unclear(format!("expected: {USAGE}"));
    };
    let more: Vec<&str> = words.collect();
    let decided = |decision, reason| TypedCommand::Decide {
        reference: reference.to_owned(),
        decision,
        reason,
    };
    match (word, more.as_slice()) {
        ("deny", reason) => {
            let reason = (!reason.is_empty()).then(|| reason.join(" "));
            decided(ApprovalDecision::Deny, reason)
        }
        ("lease", [time]) => match duration(time) {
            Some(expires_in) => {
                let max_uses = None;
                decided(
                    ApprovalDecision::Lease(Lease {
                        expires_in,
                        max_uses,
                    }),
                    None,
                )
            }
            None => TypedCommand::Unclear("a lease has a time such as 30m, 8h or 7d".to_owned()),
        },
        ("lease", _) => TypedCommand::Unclear("a lease has a time: lease 30m".to_owned()),
        (word, []) => match ApprovalDecision::from_word(word, None) {
            Some(decision) => decided(decision, None),
            None => TypedCommand::Unclear(format!("expected: {USAGE}")),
        },
        _ => TypedCommand::Unclear(format!("expected: {USAGE}")),
    }
}

/// Splits off a session key, which may stand before the settings. It has a colon, which no setting
/// has there.
fn directive(word: &str, rest: &str) -> TypedCommand {
    let (first, others) = rest.split_once(' ').unwrap_or((rest, ""));
    let is_key = first.starts_with("agent:") && !first.contains('=');
    let (session_key, rest) = if is_key {
        (Some(first.to_owned()), others.trim())
    } else {
        (None, rest)
    };
    TypedCommand::Directive {
        session_key,
        text: format!("{word} {rest}").trim_end().to_owned(),
    }
}

/// Parses `30s`, `30m`, `8h` or `7d`.
fn duration(text: &str) -> Option<Duration> {
    let unit = match text.bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 60 * 60,
        b'd' => 24 * 60 * 60,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    let seconds = number.checked_mul(unit)?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(reference: &str, decision: ApprovalDecision, reason: Option<&str>) -> TypedCommand {
        TypedCommand::Decide {
            reference: reference.to_owned(),
            decision,
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn decisions_are_read_with_and_without_the_slash() {
        use ApprovalDecision::{AllowAlways, AllowOnce, AllowSession, Deny};
        for (text, expected) in [
            (
                "/approve kmnpz allow-once",
                decide("kmnpz", AllowOnce, None),
            ),
            (
                "approve kmnpz allow-session",
                decide("kmnpz", AllowSession, None),
            ),
            (
                " /approve kmnpz allow-always ",
                decide("kmnpz", AllowAlways, None),
            ),
            ("/approve kmnpz deny", decide("kmnpz", Deny, None)),
            (
                "/approve kmnpz deny not now",
                decide("kmnpz", Deny, Some("not now")),
            ),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        let lease = Lease {
            expires_in: Duration::from_mins(30),
            max_uses: None,
        };
        let leased = decide("kmnpz", ApprovalDecision::Lease(lease), None);
        assert_eq!(parse("/approve kmnpz lease 30m"), Some(leased));
    }

    #[test]
    fn other_texts_are_not_for_interlock() {
        for text in [
            "",
            "hello",
            "please /approve kmnpz allow-once",
            "> /approve kmnpz allow-once",
            "`/approve kmnpz allow-once`",
            "```\n/approve kmnpz allow-once\n```",
            "hello\n/approve kmnpz allow-once",
            "/approve kmnpz allow-once\nand more",
            "/approved kmnpz allow-once",
            "\u{200b}/approve kmnpz allow-once",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_names_no_decision_is_unclear_and_decides_nothing() {
        for text in [
            "/approve",
            "/approve kmnpz",
            "/approve kmnpz yes",
            "/approve kmnpz allow-once now",
            "/approve kmnpz lease",
            "/approve kmnpz lease 0m",
            "/approve kmnpz lease 99999999999999999999d",
            "/approve kmnpz lease 30m again",
            "/approve kmnpz ALLOW-ONCE",
        ] {
            assert!(
                matches!(parse(text), Some(TypedCommand::Unclear(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn directives_name_their_conversation_or_none() {
        let directive = |key: Option<&str>, text: &str| TypedCommand::Directive {
            session_key: key.map(str::to_owned),
            text: text.to_owned(),
        };
        for (text, expected) in [
            ("/exec", directive(None, "/exec")),
            ("/exec host=node", directive(None, "/exec host=node")),
            ("/elev on", directive(None, "/elevated on")),
            (
                "/exec agent:main:x ask=always",
                directive(Some("agent:main:x"), "/exec ask=always"),
            ),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }
}
