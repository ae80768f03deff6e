//! Keys to bytes: a table of our own, and agreement with recorded behaviour of another tool.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use interlock_transcript::keys::{Bracketed, CursorMode, KeyInput, encode, paste};
use interlock_transcript::screen::cursor_report;
use proptest::prelude::*;
use serde_json::Value;

/// Token, bytes, how many warnings. xterm's encodings.
const TOKENS: &[(&str, &[u8], usize)] = &[
    ("Enter", b"\r", 0),
    ("Tab", b"\t", 0),
    ("BTab", b"\x1b[Z", 0),
    ("S-Tab", b"\x1b[Z", 0),
    ("C-BTab", b"\x1b[1;6Z", 0),
    ("Escape", b"\x1b", 0),
    ("Space", b" ", 0),
    ("BSpace", b"\x7f", 0),
    ("C-BSpace", b"\x08", 0),
    ("M-BSpace", b"\x1b\x7f", 0),
    ("M-Enter", b"\x1b\r", 0),
    ("C-Enter", b"\r", 1),
    ("C-Tab", b"\t", 1),
    ("Up", b"\x1b[A", 0),
    ("S-Up", b"\x1b[1;2A", 0),
    ("C-M-S-Left", b"\x1b[1;8D", 0),
    ("Home", b"\x1b[1~", 0),
    ("C-End", b"\x1b[4;5~", 0),
    ("PPage", b"\x1b[5~", 0),
    ("PageUp", b"\x1b[5~", 0),
    ("NPage", b"\x1b[6~", 0),
    ("IC", b"\x1b[2~", 0),
    ("DC", b"\x1b[3~", 0),
    ("F1", b"\x1bOP", 0),
    ("S-F1", b"\x1b[1;2P", 0),
    ("F5", b"\x1b[15~", 0),
    ("F11", b"\x1b[23~", 0),
    ("F12", b"\x1b[24~", 0),
    ("C-F12", b"\x1b[24;5~", 0),
    ("F13", b"F13", 0),
    ("C-c", b"\x03", 0),
    ("C-C", b"\x03", 0),
    ("c-c", b"\x03", 0),
    ("^c", b"\x03", 0),
    ("^C", b"\x03", 0),
    ("^[", b"\x1b", 0),
    ("^?", b"\x7f", 0),
    ("^", b"^", 0),
    ("^^", b"\x1e", 0),
    ("^ab", b"^ab", 0),
    ("C-@", b"\0", 0),
    ("C-Space", b"\0", 0),
    ("C-\\", b"\x1c", 0),
    ("C-]", b"\x1d", 0),
    ("C-_", b"\x1f", 0),
    ("C-/", b"\x1f", 0),
    ("C-?", b"\x7f", 0),
    ("C--", b"-", 1),
    ("C-1", b"1", 1),
    ("C-é", "é".as_bytes(), 1),
    ("M-x", b"\x1bx", 0),
    ("M--", b"\x1b-", 0),
    ("M-é", "\u{1b}é".as_bytes(), 0),
    ("C-M-x", b"\x1b\x18", 0),
    ("M-C-x", b"\x1b\x18", 0),
    ("S-x", b"X", 0),
    ("S-1", b"1", 1),
    ("C-S-c", b"\x03", 1),
    ("a", b"a", 0),
    ("ü", "ü".as_bytes(), 0),
    ("", b"", 0),
    ("C-", b"C-", 0),
    ("C-M-", b"C-M-", 1),
    ("C-nothing", b"C-nothing", 1),
    ("hello world", b"hello world", 0),
    ("KP7", b"\x1bOw", 0),
    ("KPEnter", b"\x1bOM", 0),
    ("S-KP7", b"\x1bOw", 1),
];

fn sent(token: &str, mode: CursorMode) -> (Vec<u8>, Vec<String>) {
    let keys = [token.to_string()];
    let encoded = encode(
        KeyInput {
            keys: &keys,
            ..KeyInput::default()
        },
        mode,
    );
    (encoded.bytes, encoded.warnings)
}

#[test]
fn tokens_send_what_a_terminal_sends() {
    for (token, bytes, warnings) in TOKENS {
        let (found, warned) = sent(token, CursorMode::Normal);
        assert_eq!(found, *bytes, "{token}");
        assert_eq!(warned.len(), *warnings, "{token}: {warned:?}");
        assert!(warned.iter().all(|warning| warning.contains(token)));
    }
}

#[test]
fn application_mode_changes_cursor_keys_without_modifiers_only() {
    for (token, bytes) in [
        ("Up", &b"\x1bOA"[..]),
        ("Left", b"\x1bOD"),
        ("Home", b"\x1bOH"),
        ("End", b"\x1bOF"),
        ("C-Up", b"\x1b[1;5A"),
        ("C-Home", b"\x1b[1;5~"),
        ("PPage", b"\x1b[5~"),
        ("F1", b"\x1bOP"),
        ("x", b"x"),
    ] {
        assert_eq!(sent(token, CursorMode::Application).0, bytes, "{token}");
    }
}

#[test]
fn literal_comes_first_then_hex_then_keys() {
    let hex = ["0x1b", "5B", "a"].map(String::from);
    let keys = ["Enter", "C-c"].map(String::from);
    let input = KeyInput {
        literal: Some("C-c\n"),
        hex: &hex,
        keys: &keys,
    };
    let encoded = encode(input, CursorMode::Normal);
    assert_eq!(encoded.bytes, b"C-c\n\x1b\x5b\x0a\r\x03");
    assert_eq!(encoded.warnings, [""; 0]);
}

#[test]
fn what_is_not_a_byte_is_left_out_with_a_warning() {
    for text in ["", "0x", "g1", "100", "+f", "1 b", "é"] {
        let hex = [text.to_string(), "41".to_string()];
        let input = KeyInput {
            hex: &hex,
            ..KeyInput::default()
        };
        let encoded = encode(input, CursorMode::Normal);
        assert_eq!(encoded.bytes, b"A", "{text}");
        assert_eq!(encoded.warnings.len(), 1, "{text}");
    }
}

#[test]
fn a_paste_is_marked_and_keeps_ordinary_text() {
    let text = "two\nlines\twith ünïcode\r\n";
    let expected = format!("\x1b[200~{text}\x1b[201~");
    assert_eq!(paste(text, Bracketed::Yes), expected.as_bytes());
    assert_eq!(paste("\x1b[201~\x03", Bracketed::No), b"\x1b[201~\x03");
}

/// Ways to end a paste early, each of which must come out as text.
const BREAK_OUTS: &[&str] = &[
    "\x1b[201~rm -rf x\r",
    "\x1b\x1b[201~[201~rm\r",
    "\x1b[20\x1b[201~1~rm\r",
    "\x1b[0201~rm\r",
    "\u{9b}201~rm\r",
    "\x03rm\r",
    "\x04",
    "\x1a",
    "\x1c",
    "\x7f",
];

#[test]
fn a_paste_cannot_break_out() {
    for text in BREAK_OUTS {
        let sent = String::from_utf8(paste(text, Bracketed::Yes)).unwrap();
        let inner = &sent["\x1b[200~".len()..sent.len() - "\x1b[201~".len()];
        let acts = |character: char| character.is_control() && !"\t\n\r".contains(character);
        assert!(!inner.contains(acts), "{text:?}: {inner:?}");
        assert_eq!(inner.chars().count(), text.chars().count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_paste_holds_one_start_and_one_end(text in "(\\x1b|\\[|2|0|1|~|[\\x00-\\x9f]|.){0,40}") {
        let sent = paste(&text, Bracketed::Yes);
        prop_assert_eq!(memchr::memchr_iter(0x1b, &sent).count(), 2);
        prop_assert!(sent.ends_with(b"\x1b[201~"));
    }

    #[test]
    fn any_token_sends_something_or_warns(token in "([CMSs]-){0,3}\\PC{0,6}") {
        let (bytes, warnings) = sent(&token, CursorMode::Normal);
        prop_assert!(token.is_empty() || !bytes.is_empty() || !warnings.is_empty());
    }
}

/// Cases where another outcome is wanted. A row that is not needed any more fails the test.
const DEVIATIONS: &[(&str, &str)] = &[(
    "ky-ff0b0a86fb",
    "C-Space sends NUL, as every terminal does; a plain space would lose the modifier without a word",
)];

#[test]
fn the_corpus_agrees_but_for_the_listed_deviations() {
    let Some(directory) = std::env::var_os("INTERLOCK_CORPUS") else {
        println!("skipped: INTERLOCK_CORPUS is not set");
        return;
    };
    let text = fs::read_to_string(Path::new(&directory).join("keys.jsonl")).unwrap();
    let (mut cases, mut agreed, mut wrong) = (0, 0, Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        let reason = DEVIATIONS.iter().find(|(known, _)| *known == id);
        let (found, expected) = (outcome(&case), expected(&case));
        cases += 1;
        match (found == expected, reason) {
            (true, None) => agreed += 1,
            (false, Some((_, reason))) => println!("{id} deviates: {reason}"),
            (true, Some(_)) => wrong.push(format!("{id}: agrees now, remove the deviation")),
            (false, None) => wrong.push(format!("{id}: {found:?}, expected {expected:?}")),
        }
    }
    println!("keys: {agreed} of {cases} agree");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(agreed > 0, "the corpus is empty");
}

fn expected(case: &Value) -> (String, Vec<String>) {
    (
        case["expect"]["hex"].as_str().unwrap().to_string(),
        strings(&case["expect"]["warnings"]),
    )
}

fn outcome(case: &Value) -> (String, Vec<String>) {
    let hexadecimal = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    };
    if let Some(position) = case["cursorReply"].as_array() {
        let number = |index: usize| {
            let number = position.get(index).and_then(Value::as_u64).unwrap_or(1);
            u16::try_from(number).unwrap() - 1
        };
        return (
            hexadecimal(&cursor_report(number(0), number(1))),
            Vec::new(),
        );
    }
    let (hex, keys) = (strings(&case["hex"]), strings(&case["keys"]));
    let input = KeyInput {
        literal: case["literal"].as_str(),
        hex: &hex,
        keys: &keys,
    };
    let mode = match case["cursorMode"].as_str() {
        Some("application") => CursorMode::Application,
        _ => CursorMode::Normal,
    };
    let encoded = encode(input, mode);
    (hexadecimal(&encoded.bytes), encoded.warnings)
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .map(|list| {
            list.iter()
                .map(|text| text.as_str().unwrap().to_string())
                .collect()
        })
        .unwrap_or_default()
}
