//! Edits: what is meant changes, every other byte stays.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_config::{Json5Text, KeyPath};
use proptest::prelude::*;
use serde_json::{Value, json};

fn path(text: &str) -> KeyPath {
    KeyPath::parse(text).unwrap()
}

fn set(text: &str, at: &str, value: &Value) -> String {
    let mut edited = Json5Text::parse("test.json5", text).unwrap();
    edited
        .set(&path(at), value)
        .unwrap_or_else(|error| panic!("{text:?} {at}: {error}"));
    edited.text().to_owned()
}

fn unset(text: &str, at: &str) -> String {
    let mut edited = Json5Text::parse("test.json5", text).unwrap();
    assert!(edited.unset(&path(at)).unwrap(), "{at} was not there");
    edited.text().to_owned()
}

const COMMENTED: &str = "\
// The config of this machine.
{
  tools: { // all of them
    exec: {
      security: 'allowlist', // strict
      /* who is asked */ ask: \"on-miss\",

      // safeBins: [],
    },
  },
  agents: { list: [ { id: 'main' }, { id: 'ops', /* why */ } ] },
} // end
";

#[test]
fn a_replaced_value_leaves_every_other_byte() {
    assert_eq!(
        set(COMMENTED, "tools.exec.security", &json!("full")),
        COMMENTED.replace("'allowlist'", "\"full\"")
    );
    assert_eq!(
        set(COMMENTED, "agents.list[1].id", &json!("deploy")),
        COMMENTED.replace("'ops'", "\"deploy\"")
    );
    assert_eq!(
        set(COMMENTED, "tools.exec.ask", &json!("on-miss")),
        COMMENTED
    );
}

#[test]
fn a_new_key_goes_to_the_end_of_its_object_in_its_style() {
    let table = [
        (
            "tools.exec.timeoutSec",
            "      // safeBins: [],\n",
            "      // safeBins: [],\n      timeoutSec: 5,\n",
        ),
        (
            "gateway.port",
            "} ] },\n",
            "} ] },\n  gateway: {\n    port: 5\n  },\n",
        ),
        (
            "agents.list[0].name",
            "{ id: 'main' }",
            "{ id: 'main', name: 5 }",
        ),
        ("agents.list[1].name", "/* why */ }", "/* why */ name: 5, }"),
        (
            "agents.list[0].tools.exec.node",
            "{ id: 'main' }",
            "{ id: 'main', tools: { exec: { node: 5 } } }",
        ),
        (
            "agents.list[2].id",
            "/* why */ } ]",
            "/* why */ }, { id: 5 } ]",
        ),
    ];
    for (at, old, new) in table {
        assert_eq!(
            set(COMMENTED, at, &json!(5)),
            COMMENTED.replace(old, new),
            "{at}"
        );
    }
}

#[test]
fn values_are_written_in_the_style_of_the_text() {
    let table = [
        ("{}", "a.b", json!(1), "{\n  a: {\n    b: 1\n  }\n}"),
        (
            "{}\n",
            "a",
            json!(["x", "y"]),
            "{\n  a: [\"x\", \"y\"]\n}\n",
        ),
        ("{ /* c */ }", "a", json!(1), "{ /* c */\n  a: 1\n}"),
        ("{\n  // c\n}", "a", json!(1), "{\n  // c\n  a: 1\n}"),
        ("{ a: 1 // c\n}", "b", json!(2), "{ a: 1, // c\n  b: 2\n}"),
        (
            "{ a: 1 // c\u{2028}}",
            "b",
            json!(2),
            "{ a: 1, // c\n  b: 2\u{2028}}",
        ),
        ("{ a: 1 /* c */ }", "b", json!(2), "{ a: 1 /* c */, b: 2 }"),
        ("{a: {}}", "a.b", json!(2), "{a: { b: 2 }}"),
        ("{a: []}", "a[0]", json!(2), "{a: [2]}"),
        (
            "{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n}",
            "a.c.d",
            json!({"e": 1}),
            "{\n\t\"a\": {\n\t\t\"b\": 1,\n\t\t\"c\": {\n\t\t\t\"d\": {\n\t\t\t\t\"e\": 1\n\t\t\t}\n\t\t}\n\t}\n}",
        ),
        (
            "{\r\n    a: 1,\r\n}",
            "b",
            json!({"c": 2}),
            "{\r\n    a: 1,\r\n    b: {\r\n        c: 2\r\n    },\r\n}",
        ),
        (
            "{\n  a: 1,\n}",
            "b-c",
            json!("é\n"),
            "{\n  a: 1,\n  \"b-c\": \"é\\n\",\n}",
        ),
        (
            "{\n  a: 1,\n}",
            "a",
            json!({"b": [{"c": 1}]}),
            "{\n  a: {\n    b: [\n      {\n        c: 1\n      }\n    ]\n  },\n}",
        ),
        (
            "[\n  1, 2,\n  3\n]",
            "[3]",
            json!(4),
            "[\n  1, 2,\n  3,\n  4\n]",
        ),
        ("{a: 1}", "a", json!(5.0), "{a: 5}"),
        ("{a: 1}", "a", json!(null), "{a: null}"),
    ];
    for (text, at, value, expected) in table {
        assert_eq!(set(text, at, &value), expected, "{text:?} {at}");
    }
}

#[test]
fn a_removed_key_takes_its_line_and_leaves_the_comments() {
    let table = [
        (
            "tools.exec.security",
            "      security: 'allowlist', // strict\n",
            "      // strict\n",
        ),
        (
            "tools.exec.ask",
            "/* who is asked */ ask: \"on-miss\",\n",
            "/* who is asked */\n",
        ),
        ("agents.list[0]", "[ { id: 'main' }, { id", "[ { id"),
        (
            "agents.list[1]",
            "{ id: 'main' }, { id: 'ops', /* why */ } ]",
            "{ id: 'main' } ]",
        ),
        (
            "agents.list[1].id",
            "{ id: 'ops', /* why */ }",
            "{ /* why */ }",
        ),
        ("agents.list[0].id", "{ id: 'main' }", "{}"),
        (
            "agents",
            "  agents: { list: [ { id: 'main' }, { id: 'ops', /* why */ } ] },\n",
            "",
        ),
    ];
    for (at, old, new) in table {
        assert_eq!(unset(COMMENTED, at), COMMENTED.replace(old, new), "{at}");
    }
}

#[test]
fn a_removed_key_leaves_no_comma_too_many_and_no_empty_line() {
    let table = [
        ("{\n  \"a\": 1,\n  \"b\": 2\n}", "b", "{\n  \"a\": 1\n}"),
        ("{\n  \"a\": 1,\n  \"b\": 2\n}", "a", "{\n  \"b\": 2\n}"),
        ("{\n  a: 1, // x\n  b: 2\n}", "b", "{\n  a: 1 // x\n}"),
        (
            "{\n  a: 1, // x\n  // y\n  b: 2 // z\n}",
            "b",
            "{\n  a: 1 // x\n  // y\n  // z\n}",
        ),
        ("{ a: 1, b: 2 }", "a", "{ b: 2 }"),
        ("{ a: 1, b: 2 }", "b", "{ a: 1 }"),
        ("{ a: 1, /* c */ b: 2 }", "b", "{ a: 1 /* c */ }"),
        ("{ a: 1 /* c */, b: 2 }", "a", "{ /* c */ b: 2 }"),
        ("{a:1,b:2,c:3}", "b", "{a:1,c:3}"),
        ("[1,2,3]", "[2]", "[1,2]"),
        ("{\n  a: 1,\n}", "a", "{}"),
        (
            "{\r\n  a: {\r\n    b: 1,\r\n  },\r\n  c: 2,\r\n}",
            "a",
            "{\r\n  c: 2,\r\n}",
        ),
    ];
    for (text, at, expected) in table {
        assert_eq!(unset(text, at), expected, "{text:?} {at}");
    }
}

#[test]
fn removing_what_is_not_there_changes_nothing() {
    let mut text = Json5Text::parse("test.json5", COMMENTED).unwrap();
    for at in [
        "x",
        "tools.x.y",
        "tools[0]",
        "agents.list[2]",
        "agents.list.x",
        "tools.exec.ask.x",
    ] {
        assert!(!text.unset(&path(at)).unwrap(), "{at}");
    }
    assert_eq!(text.text(), COMMENTED);
}

#[test]
fn edits_that_make_no_sense_are_refused_and_change_nothing() {
    let mut text = Json5Text::parse("test.json5", COMMENTED).unwrap();
    let deep = path(&format!("x{}", ".x".repeat(63)));
    let told = [
        text.set(&path("tools.exec.security.x"), &json!(1)),
        text.set(&path("tools[0]"), &json!(1)),
        text.set(&path("agents.list.x"), &json!(1)),
        text.set(&path("agents.list[3]"), &json!(1)),
        text.set(&path("gateway.list[1].x"), &json!(1)),
        text.set(&deep, &json!({})),
        text.unset(&KeyPath::root()).map(|_| ()),
    ]
    .map(|outcome| {
        let error = outcome.unwrap_err();
        format!(
            "{}: {}",
            error.code(),
            error.to_string().lines().next().unwrap_or_default()
        )
    });
    insta::assert_snapshot!(told.join("\n"), @r"
    EDIT_WRONG_KIND: `tools.exec.security` is a string, not an object that could hold `x`
    EDIT_WRONG_KIND: `tools` is an object, not a list that could hold [0]
    EDIT_WRONG_KIND: `agents.list` is a list, not an object that could hold `x`
    EDIT_INDEX_PAST_END: `agents.list` has 2 elements; [3] is past its end (use [2] to append)
    EDIT_INDEX_PAST_END: `gateway.list` has 0 elements; [1] is past its end (use [0] to append)
    NESTING_TOO_DEEP: the edit would make the text invalid: test.json5:75:132: objects and lists are nested more than 64 deep
    EDIT_ROOT_REMOVED: the whole document cannot be removed
    ");
    assert_eq!(text.text(), COMMENTED);
}

#[test]
fn the_whole_document_can_be_replaced() {
    let mut text = Json5Text::parse("test.json5", "// head\n{}\n").unwrap();
    text.set(&KeyPath::root(), &json!({"a": 1})).unwrap();
    assert_eq!(text.text(), "// head\n{\n  a: 1\n}\n");
}

/// Documents with comments in every place where one can stand.
fn any_document() -> impl Strategy<Value = String> {
    let blank = || {
        prop::sample::select(vec![
            "",
            " ",
            "\n",
            "\n  ",
            " /* c */ ",
            " // l\n",
            "\r\n\t",
        ])
    };
    let leaf = prop::sample::select(vec![
        "1",
        "'s'",
        "true",
        "null",
        "{}",
        "[]",
        "[ /* e */ ]",
        "{ // x\n}",
    ])
    .prop_map(str::to_owned);
    let value = leaf.prop_recursive(3, 20, 3, move |inner| {
        let item =
            (blank(), inner, blank()).prop_map(|(before, value, after)| (before, value, after));
        (
            prop::collection::vec(item, 1..4),
            blank(),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(items, end, object, trailing)| {
                let count = items.len();
                let mut text = String::from(if object { "{" } else { "[" });
                for (index, (before, value, after)) in items.into_iter().enumerate() {
                    let key = ["a: ", "\"b\": ", "'c':"][index];
                    let comma = if index + 1 < count || trailing {
                        ","
                    } else {
                        ""
                    };
                    let key = if object { key } else { "" };
                    text.extend([before, key, value.as_str(), after, comma]);
                }
                text + end + if object { "}" } else { "]" }
            })
    });
    (blank(), value, blank())
        .prop_map(|(before, value, after)| format!("{before}{{ a:{value} }}{after}"))
}

fn comments(text: &str) -> usize {
    text.matches("/* ").count() + text.matches("// ").count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_new_key_can_be_added_and_taken_away_again(text in any_document(), key in prop::sample::select(vec!["a.z", "z", "a[0].z", "a.b.z", "a[1].z.y", "z-z[0]"])) {
        let mut edited = Json5Text::parse("x", &text).unwrap();
        let before = edited.value();
        if let Err(error) = edited.set(&path(key), &json!({"k": [1]})) {
            prop_assert!(matches!(error.code(), "EDIT_WRONG_KIND" | "EDIT_INDEX_PAST_END"), "{}", error);
            prop_assert_eq!(edited.text(), text);
            return Ok(());
        }
        prop_assert_eq!(edited.get(&path(key)), Some(json!({"k": [1]})));
        prop_assert_eq!(comments(edited.text()), comments(&text));
        // The others may have created objects on the way, which stay.
        if matches!(key, "z" | "a.z") {
            prop_assert!(edited.unset(&path(key)).unwrap());
            prop_assert_eq!(edited.value(), before);
            prop_assert_eq!(comments(edited.text()), comments(&text));
        }
    }

    #[test]
    fn any_member_can_be_removed(text in any_document(), key in prop::sample::select(vec!["a", "a.a", "a.b", "a.c", "a[0]", "a[1]", "a[2]", "a.a.b", "a[1][0]"])) {
        let mut edited = Json5Text::parse("x", &text).unwrap();
        let there = edited.get(&path(key)).is_some();
        prop_assert_eq!(edited.unset(&path(key)).unwrap(), there);
        prop_assert_eq!(edited.text() == text, !there);
    }
}

#[test]
fn keys_are_quoted_on_demand_where_no_other_key_shows_how() {
    let mut text = Json5Text::parse("settings.json", "{ // none yet\n}\n")
        .unwrap()
        .quoting_keys();
    text.set(&path("mcpServers.interlock"), &json!({ "command": "x" }))
        .unwrap();
    text.set(&path("other"), &json!(1)).unwrap();
    let expected = "{ // none yet\n  \"mcpServers\": {\n    \"interlock\": {\n      \"command\": \"x\"\n    }\n  },\n  \"other\": 1\n}\n";
    assert_eq!(text.text(), expected);
}
