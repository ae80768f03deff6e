//! Reading JSON5: everything the grammar has, nothing that it has not, and where each thing stands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use insta::assert_snapshot;
use interlock_config::json5::{MAX_BYTES, MAX_DEPTH};
use interlock_config::{Json5Text, KeyPath, Position};
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(text: &str) -> Value {
    Json5Text::parse("test.json5", text)
        .unwrap_or_else(|problem| panic!("{text:?}: {problem}"))
        .value()
}

fn problem(text: &str) -> String {
    match Json5Text::parse("test.json5", text) {
        Ok(read) => panic!("{text:?} was read as {}", read.value()),
        Err(problem) => problem.to_string(),
    }
}

fn code(text: &str) -> &'static str {
    Json5Text::parse("test.json5", text).map_or_else(|problem| problem.code, |_| "OK")
}

#[test]
fn every_feature_of_json5_is_read() {
    let table = [
        ("// line\n/* block */ {} // end", json!({})),
        ("\u{feff}{}", json!({})),
        (
            "[\u{a0}1,\u{2003}2,\u{2028}3,\u{2029}4,\u{b}5,\u{c}6]",
            json!([1, 2, 3, 4, 5, 6]),
        ),
        ("{a: 1, 'b': 2, \"c\": 3,}", json!({"a": 1, "b": 2, "c": 3})),
        ("[1, 2,]", json!([1, 2])),
        (
            "{$x_1: 1, _y: 2, ünï: 3, a\u{301}: 4, a\u{200d}b: 5}",
            json!({"$x_1": 1, "_y": 2, "ünï": 3, "a\u{301}": 4, "a\u{200d}b": 5}),
        ),
        (r"{\u0061b: 1, c\u0064: 2}", json!({"ab": 1, "cd": 2})),
        ("{a/*c*/:/*d*/1/*e*/,/*f*/}", json!({"a": 1})),
        (
            "{true: 1, null: 2, true_x: 3, Infinity: 4, NaN: 5, nullable: 6}",
            json!({"true": 1, "null": 2, "true_x": 3, "Infinity": 4, "NaN": 5, "nullable": 6}),
        ),
        ("// ends here\u{2028}1", json!(1)),
        (
            "[0, -0, 1, +1, -1, .5, 5., +.5, -5.e1, 1e3, 1E-1, 0x1F, -0Xff]",
            json!([0, 0, 1, 1, -1, 0.5, 5, 0.5, -50, 1000, 0.1, 31, -255]),
        ),
        (
            "[18446744073709551615, -9223372036854775808, 0xffffffffffffffff]",
            json!([u64::MAX, i64::MIN, u64::MAX]),
        ),
        (
            "[1e300, 123456789012345678901234567890]",
            json!([1e300, 1.234_567_890_123_456_8e29]),
        ),
        (
            r#"['it\'s', "say \"so\"", 'a"b', "a'b"]"#,
            json!(["it's", "say \"so\"", "a\"b", "a'b"]),
        ),
        (
            r"['\b\f\n\r\t\v\0\\\/\a\é']",
            json!(["\u{8}\u{c}\n\r\t\u{b}\0\\/aé"]),
        ),
        (r"['\x41\u00e9\ud83d\ude00']", json!(["Aé😀"])),
        (
            "['one \\\ntwo \\\r\nthree \\\u{2028}four']",
            json!(["one two three four"]),
        ),
        ("['\u{2028}\u{2029}\t']", json!(["\u{2028}\u{2029}\t"])),
        (
            "[true, false, null, [], {}]",
            json!([true, false, null, [], {}]),
        ),
        ("'just text'", json!("just text")),
    ];
    for (text, expected) in table {
        assert_eq!(read(text), expected, "{text:?}");
    }
}

#[test]
fn what_is_not_json5_is_refused() {
    let texts = [
        "",
        " ",
        "// only a comment",
        "{",
        "[",
        "{]",
        "[}",
        "}",
        "{a}",
        "{a:}",
        "{a 1}",
        "{a:1 b:2}",
        "{a:1,,b:2}",
        "{,}",
        "[,]",
        "[1 2]",
        "{a:1}{b:2}",
        "{} x",
        "{a-b: 1}",
        "{1: 2}",
        "{'a': tru}",
        "{a: undefined}",
        "{a: 01}",
        "{a: 0x}",
        "{a: 1e}",
        "{a: 1e+}",
        "{a: .}",
        "{a: - 1}",
        "{a: +-1}",
        "{a: 1_000}",
        "{a: 1n}",
        "{a: 1.2.3}",
        "{a: 0b1}",
        "{a: 'x}",
        "{a: \"x'}",
        "{a: 'x\ny'}",
        "{a: '\\1'}",
        "{a: '\\01'}",
        "{a: '\\x4'}",
        "{a: '\\u12'}",
        "{a: '\\ud83d'}",
        "{a: '\\ude00'}",
        "{a: '\\ud83dx'}",
        "{\\x61: 1}",
        "{\\u0020: 1}",
        "{\\u0031a: 1}",
        "/* never closed",
        "/",
        "{a: /re/}",
        "{a: `x`}",
        "{# comment\n}",
        "{a: 1;}",
        "\u{0}",
        "{\u{0}: 1}",
        "{a: \u{0}}",
        "{a: \\u0074rue}",
        "{a: '\\",
        "{a: '\\'",
        "{\u{85}a: 1}",
        "{...x}",
        "(1)",
    ];
    for text in texts {
        assert_eq!(code(text), "JSON5_SYNTAX", "{text:?}");
    }
}

#[test]
fn numbers_that_cannot_be_held_are_refused() {
    for text in ["Infinity", "-Infinity", "+NaN", "[NaN]"] {
        assert_eq!(code(text), "NUMBER_NOT_FINITE", "{text:?}");
    }
    let huge = format!("0x{}", "f".repeat(300));
    for text in ["1e999", "-1e999", &"9".repeat(400), huge.as_str()] {
        assert_eq!(code(text), "NUMBER_OUT_OF_RANGE", "{text:?}");
    }
}

#[test]
fn duplicate_keys_are_refused_however_they_are_written() {
    for text in [
        "{a: 1, a: 1}",
        r#"{a: 1, "a": 2}"#,
        r"{a: 1, '\x61': 2}",
        r"{a: {}, \u0061: {}}",
    ] {
        assert_eq!(code(text), "DUPLICATE_KEY", "{text:?}");
    }
    assert_eq!(
        read("{a: {a: 1}, b: {a: 1}}"),
        json!({"a": {"a": 1}, "b": {"a": 1}})
    );
}

#[test]
fn nesting_and_size_are_limited() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(code(&nested(MAX_DEPTH)), "OK");
    assert_eq!(code(&nested(MAX_DEPTH + 1)), "NESTING_TOO_DEEP");
    assert_eq!(code(&"{a:".repeat(1_000_000)), "NESTING_TOO_DEEP");
    assert_eq!(code(&format!("'{}'", "x".repeat(MAX_BYTES - 2))), "OK");
    assert_eq!(
        code(&format!("'{}'", "x".repeat(MAX_BYTES - 1))),
        "TEXT_TOO_LARGE"
    );
}

#[test]
fn bytes_that_are_not_text_are_refused_with_their_place() {
    let problem = Json5Text::parse_bytes("test.json5", b"{\n  a: '\xff'}").unwrap_err();
    assert_snapshot!(problem, @r"
    test.json5:2:7: the text is not valid UTF-8
      |
    2 |   a: '
      |       ^
    hint: save the file in the encoding UTF-8
    ");
}

#[test]
fn problems_are_told_like_a_compiler_does() {
    assert_snapshot!(problem("{\n  tools: {\n    exec: { host: gateway },\n  },\n}\n"), @r"
    test.json5:3:19: expected a value, found a word without quotes
      |
    3 |     exec: { host: gateway },
      |                   ^^^^^^^
    hint: text needs quotes
    ");
    assert_snapshot!(problem("{\n  a: 1\n  b: 2\n}\n"), @r"
    test.json5:3:3: expected `,` or `}`, found `b`
      |
    3 |   b: 2
      |   ^
    hint: is a comma missing before this?
    ");
    assert_snapshot!(problem("{\n  a: 1,\n  a: 2,\n}\n"), @r"
    test.json5:3:3: key `a` is given twice
      |
    3 |   a: 2,
      |   ^
    hint: the first one is on line 2; keep one of them
    ");
    assert_snapshot!(problem("{\n  a: [1, 2\n}\n"), @r"
    test.json5:3:1: expected `,` or `]`, found `}`
      |
    3 | }
      | ^
    hint: the bracket on line 2 is not closed
    ");
    assert_snapshot!(problem("{ a: {\n"), @r"
    test.json5:1:6: this is never closed: `}` is missing
      |
    1 | { a: {
      |      ^
    ");
    assert_snapshot!(problem("{ a: 'one\n two' }"), @r"
    test.json5:1:6: this string is not closed on its line
      |
    1 | { a: 'one
      |      ^
    hint: write a line break as `\n`
    ");
    assert_snapshot!(problem("{ safe-bins: [] }"), @r"
    test.json5:1:7: expected `:` after the key `safe`, found `-`
      |
    1 | { safe-bins: [] }
      |       ^
    hint: a key with `-` in it needs quotes
    ");
    assert_snapshot!(problem("{ a: Infinity }"), @r"
    test.json5:1:6: `Infinity` is not a number that can be used here
      |
    1 | { a: Infinity }
      |      ^^^^^^^^
    hint: leave the key out if there is to be no limit
    ");
    assert_snapshot!(problem("{\tünï: \u{1b}[2J }"), @r"
    test.json5:1:8: expected a value, found the character U+001B
      |
    1 | { ünï: �[2J }
      |        ^
    ");
    assert_snapshot!(problem("{ token: 's3cret' oops }"), @r"
    test.json5:1:19: expected `,` or `}`, found `o`
      |
    1 | { token: '••••••' •••• }
      |                   ^
    hint: is a comma missing before this?
    ");
    assert_snapshot!(problem(&format!("[{}]", "'x', ".repeat(100) + "?")), @r"
    test.json5:1:502: expected a value, found `?`
      |
    1 | …', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', ?]
      |                                                  ^
    ");
    assert_snapshot!(problem(""), @r"
    test.json5:1:1: the text holds no value
      |
    1 | 
      | ^
    hint: an empty configuration is written `{}`
    ");
}

#[test]
fn values_and_keys_are_located_by_line_and_character() {
    let text = "{\r\n  // é\r\n  agents: { \"*\": { allowlist: [\n    'a', /* ö */ {argPattern: '^x$'},\n  ] } },\n}";
    let read = Json5Text::parse("test.json5", text).unwrap();
    let path = KeyPath::parse("agents[\"*\"].allowlist[1].argPattern").unwrap();
    let at = |position: Position| {
        (
            position.line,
            position.column,
            text[position.span].to_owned(),
        )
    };
    assert_eq!(at(read.locate(&path).unwrap()), (4, 31, "'^x$'".to_owned()));
    assert_eq!(
        at(read.locate_key(&path).unwrap()),
        (4, 19, "argPattern".to_owned())
    );
    let star = KeyPath::parse("agents.*").unwrap();
    assert_eq!(
        at(read.locate_key(&star).unwrap()),
        (3, 13, "\"*\"".to_owned())
    );
    assert_eq!(read.locate(&KeyPath::root()).unwrap().span, 0..text.len());
    for missing in [
        "agent",
        "agents[0]",
        "agents.x",
        "agents.*.allowlist[2]",
        "agents.*.allowlist.x",
    ] {
        assert_eq!(
            read.locate(&KeyPath::parse(missing).unwrap()),
            None,
            "{missing}"
        );
    }
    assert_eq!(
        read.locate_key(&KeyPath::parse("agents.*.allowlist[1]").unwrap()),
        None
    );
    let problem = read.diagnose(
        read.locate(&path).unwrap().span,
        "BAD_PATTERN",
        "the pattern is bad",
    );
    assert_snapshot!(problem, @r"
    test.json5:4:31: the pattern is bad
      |
    4 |     'a', /* ö */ {argPattern: '^x$'},
      |                               ^^^^^
    ");
}

#[test]
fn key_paths_are_read_and_written() {
    for (text, shown) in [
        ("tools.exec.safeBins", "tools.exec.safeBins"),
        (
            "agents.list[0].tools.exec.node",
            "agents.list[0].tools.exec.node",
        ),
        (r#"agents["a.b"].x"#, r#"agents["a.b"].x"#),
        ("agents['*'].x", r#"agents["*"].x"#),
        ("agents.*.x", r#"agents["*"].x"#),
        (r#"["quo\"te"][12]"#, r#"["quo\"te"][12]"#),
        (r#"[""]"#, r#"[""]"#),
    ] {
        let path = KeyPath::parse(text).unwrap();
        assert_eq!(path.to_string(), shown);
        assert_eq!(KeyPath::parse(shown).unwrap(), path);
    }
    let problems: Vec<String> = [
        "",
        ".",
        "a.",
        "a..b",
        ".a",
        "a[",
        "a[]",
        "a[x]",
        "a[-1]",
        "a[1",
        "a[\"x]",
        "a['x]",
        "a]",
        "a b",
        "a[1]b",
        "a[99999999999999999999]",
        &"a.".repeat(70),
    ]
    .iter()
    .map(|text| KeyPath::parse(text).unwrap_err().to_string())
    .collect();
    assert_snapshot!(problems.join("\n"), @r#"
    invalid key path `` at column 1: the path is empty
    invalid key path `.` at column 1: a path begins with a key
    invalid key path `a.` at column 3: expected a key; quote unusual ones: ["a.b"]
    invalid key path `a..b` at column 3: expected a key; quote unusual ones: ["a.b"]
    invalid key path `.a` at column 1: a path begins with a key
    invalid key path `a[` at column 3: the bracket is not closed
    invalid key path `a[]` at column 3: expected an index or a quoted key in the brackets
    invalid key path `a[x]` at column 3: expected an index or a quoted key in the brackets
    invalid key path `a[-1]` at column 3: expected an index or a quoted key in the brackets
    invalid key path `a[1` at column 4: expected `]` here
    invalid key path `a["x]` at column 3: expected a quoted key such as ["a.b"]
    invalid key path `a['x]` at column 3: the quote is not closed
    invalid key path `a]` at column 2: expected `.` or `[` here
    invalid key path `a b` at column 2: expected `.` or `[` here
    invalid key path `a[1]b` at column 5: expected `.` or `[` here
    invalid key path `a[99999999999999999999]` at column 3: the index is too large
    invalid key path `a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.…` at column 128: the path is too deep
    "#);
}

/// Values that JSON can write and that come back the same.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC*|[\\x00-\\x7f]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..6)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_json_is_json5(value in any_json()) {
        prop_assert_eq!(&read(&value.to_string()), &value);
        prop_assert_eq!(read(&serde_json::to_string_pretty(&value).unwrap()), value);
    }

    #[test]
    fn no_text_makes_the_reader_or_its_messages_panic(text in "[\\[\\]{}:,'\"/*\\\\u0-9a-fx+.eIN\\-\n\r\u{2028}é \u{0}]{0,60}") {
        match Json5Text::parse("x", &text) {
            Ok(read) => { read.value(); }
            Err(problem) => prop_assert!(problem.to_string().lines().count() >= 3),
        }
    }
}
