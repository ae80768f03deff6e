//! Authentication of lines, and its failures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

const NOW: u64 = 1_700_000_000_000;

fn token(text: &str) -> SocketToken {
    SocketToken::new(text.to_owned()).unwrap()
}

/// Both ends of one connection.
fn pair_with(host: &str, companion: &str) -> (SealedLink, SealedLink) {
    let (of_host, of_companion) = (hello().unwrap(), hello().unwrap());
    let host = SealedLink::new(token(host), Side::Host, &of_host, &of_companion).unwrap();
    let companion =
        SealedLink::new(token(companion), Side::Companion, &of_companion, &of_host).unwrap();
    (host, companion)
}

fn pair() -> (SealedLink, SealedLink) {
    pair_with("0123456789abcdef", "0123456789abcdef")
}

fn ask(host: &mut SealedLink, word: &str) -> String {
    let approval = serde_json::json!({ "id": word });
    let request = FromHost::Request {
        approval,
        waits: true,
    };
    host.seal(&request, NOW).unwrap()
}

fn answer(companion: &mut SealedLink) -> String {
    let answer = FromCompanion::Answer {
        id: "a".to_owned(),
        plan_digest: "d".to_owned(),
        decision: "allow-once".to_owned(),
        expires_in_ms: None,
        max_uses: None,
        decider: None,
        reason: None,
    };
    companion.seal(&answer, NOW).unwrap()
}

fn opened(
    side: &mut SealedLink,
    line: &str,
    now_ms: u64,
) -> Result<serde_json::Value, CompanionWireError> {
    side.open(line, now_ms)
}

#[test]
fn both_sides_understand_each_other() {
    let (mut host, mut companion) = pair();
    let request = ask(&mut host, "a");
    assert_eq!(
        opened(&mut companion, &request, NOW).unwrap()["type"],
        "request"
    );
    let said = answer(&mut companion);
    assert_eq!(opened(&mut host, &said, NOW).unwrap()["planDigest"], "d");
}

#[test]
fn another_token_is_not_believed() {
    let (mut host, mut companion) = pair_with("0123456789abcdef", "0123456789abcdeF");
    let request = ask(&mut host, "a");
    assert_eq!(
        opened(&mut companion, &request, NOW),
        Err(CompanionWireError::Mac)
    );
}

#[test]
fn a_message_is_believed_once_and_only_on_its_connection() {
    let (mut host, mut companion) = pair();
    let request = ask(&mut host, "a");
    opened(&mut companion, &request, NOW).unwrap();
    assert_eq!(
        opened(&mut companion, &request, NOW),
        Err(CompanionWireError::Mac)
    );
    let said = answer(&mut companion);
    opened(&mut host, &said, NOW).unwrap();
    assert_eq!(opened(&mut host, &said, NOW), Err(CompanionWireError::Mac));
    let (mut other, mut theirs) = pair();
    assert_eq!(
        opened(&mut theirs, &request, NOW),
        Err(CompanionWireError::Mac)
    );
    ask(&mut other, "a");
    assert_eq!(opened(&mut other, &said, NOW), Err(CompanionWireError::Mac));
}

#[test]
fn what_a_side_said_cannot_be_said_back_to_it() {
    let (mut host, _) = pair();
    let request = ask(&mut host, "a");
    assert_eq!(
        opened(&mut host, &request, NOW),
        Err(CompanionWireError::Mac)
    );
}

#[test]
fn an_answer_fits_its_question_only() {
    let (mut host, mut companion) = pair();
    let question = hello().unwrap();
    let reply = hello().unwrap();
    let make = |side| match side {
        Side::Host => SealedLink::new(token("0123456789abcdef"), side, &question, &reply),
        Side::Companion => SealedLink::new(token("0123456789abcdef"), side, &reply, &question),
    };
    let (mut twin, mut twins) = (make(Side::Host).unwrap(), make(Side::Companion).unwrap());
    let one = ask(&mut twin, "one");
    opened(&mut twins, &one, NOW).unwrap();
    let said = answer(&mut twins);
    // The same nonces, another approval.
    let mut swapped = make(Side::Host).unwrap();
    ask(&mut swapped, "two");
    assert_eq!(
        opened(&mut swapped, &said, NOW),
        Err(CompanionWireError::Mac)
    );
    opened(&mut twin, &said, NOW).unwrap();
    // And nothing is decided before a request.
    let early = companion.seal(&FromCompanion::Shown {}, NOW);
    assert_eq!(early.unwrap_err(), CompanionWireError::Mac);
    assert_eq!(opened(&mut host, &said, NOW), Err(CompanionWireError::Mac));
}

#[test]
fn what_is_old_or_changed_is_not_believed() {
    let (mut host, mut companion) = pair();
    let request = ask(&mut host, "a");
    let late = NOW + MAX_AGE_MS + 1;
    assert_eq!(
        opened(&mut companion, &request, late),
        Err(CompanionWireError::Stale)
    );
    let early = NOW - MAX_AGE_MS - 1;
    assert_eq!(
        opened(&mut companion, &request, early),
        Err(CompanionWireError::Stale)
    );
    let other_time = request.replace(&NOW.to_string(), &late.to_string());
    assert_eq!(
        opened(&mut companion, &other_time, late),
        Err(CompanionWireError::Mac)
    );
    let other_body = request.replace(r#"\"id\":\"a\""#, r#"\"id\":\"b\""#);
    assert_ne!(other_body, request);
    assert_eq!(
        opened(&mut companion, &other_body, NOW),
        Err(CompanionWireError::Mac)
    );
    opened(&mut companion, &request, NOW).unwrap();
}

#[test]
fn odd_lines_are_errors_and_nothing_else() {
    let (mut host, mut companion) = pair();
    ask(&mut host, "a");
    for line in ["", "{}", "null", "{\"body\":1}", "\u{fffd}", "[[[[["] {
        assert!(matches!(
            opened(&mut companion, line, NOW),
            Err(CompanionWireError::Malformed(_))
        ));
    }
    for mac in ["", "0", "zz", "éé", &"0".repeat(64)] {
        let line = format!(r#"{{"body":"{{}}","timestampMs":{NOW},"mac":"{mac}"}}"#);
        assert_eq!(
            opened(&mut host, &line, NOW),
            Err(CompanionWireError::Mac),
            "{mac}"
        );
    }
}

#[test]
fn a_nonce_has_its_form() {
    let own = hello().unwrap();
    for nonce in ["", "00", &"g".repeat(64), &"A".repeat(64), &"0".repeat(65)] {
        let other = CompanionHello {
            protocol: PROTOCOL,
            nonce: nonce.to_owned(),
        };
        let made = SealedLink::new(token("0123456789abcdef"), Side::Host, &own, &other);
        assert_eq!(made.unwrap_err(), CompanionWireError::Nonce);
    }
}
