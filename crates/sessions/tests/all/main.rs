//! The JSON of a call: what it means, and what is said when it means nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use interlock_config::Host;
use interlock_engine::Signal;
use interlock_host::parameters::{ExecParameters, InputMode, ParameterError};
use interlock_policy::Ask;
use interlock_sessions::{ProcessAction, ProcessParameters};
use interlock_transcript::keys::Bracketed;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

const YEAR: Duration = Duration::from_hours(8760);

fn plain(command: &str) -> ExecParameters {
    ExecParameters {
        command: command.to_owned(),
        workdir: None,
        env: BTreeMap::new(),
        yield_after: None,
        background: false,
        timeout: None,
        pty: false,
        host: None,
        ask: None,
        node: None,
        elevated: None,
        retry: None,
        effects: None,
        stdin: InputMode::Null,
    }
}

fn exec(parameters: &Value) -> ExecParameters {
    ExecParameters::parse(parameters).unwrap_or_else(|error| panic!("{parameters}: {error}"))
}

/// Code, field, message and hint.
fn told(error: &ParameterError) -> (&'static str, String, String, String) {
    let hint = error.hint().unwrap_or_default().to_owned();
    (
        error.code(),
        error.field().to_owned(),
        error.to_string(),
        hint,
    )
}

#[track_caller]
fn refused<T: std::fmt::Debug>(
    parse: fn(&Value) -> Result<T, ParameterError>,
    table: &[(Value, &str, &str, &str, &str)],
) {
    for (parameters, code, field, message, hint) in table {
        let error = parse(parameters).expect_err(&parameters.to_string());
        let (told_code, told_field, told_message, told_hint) = told(&error);
        assert_eq!(
            (told_code, told_field.as_str()),
            (*code, *field),
            "{parameters}: {error}"
        );
        assert!(
            told_message.starts_with(&format!("`{field}` ")),
            "{told_message}"
        );
        assert!(
            told_message.contains(message),
            "{parameters}: {told_message}"
        );
        assert!(
            if hint.is_empty() {
                told_hint.is_empty()
            } else {
                told_hint.contains(hint)
            },
            "{parameters}: {told_hint:?}"
        );
    }
}

#[test]
fn a_command_alone_is_enough_and_null_is_nothing() {
    assert_eq!(exec(&json!({ "command": "ls -l" })), plain("ls -l"));
    let nothing = json!({
        "command": "ls", "workdir": null, "env": null, "yieldMs": null, "background": null,
        "timeout": null, "timeoutSeconds": null, "pty": null, "host": null, "ask": null,
        "security": null, "node": null, "elevated": null, "stdin": null,
    });
    assert_eq!(exec(&nothing), plain("ls"));
    let blank =
        json!({ "command": "ls", "workdir": "", "node": "  ", "env": {}, "security": "full" });
    assert_eq!(exec(&blank), plain("ls"));
}

#[test]
fn every_parameter_of_exec_is_read() {
    let all = json!({
        "command": "npm test", "workdir": "sub", "env": { "A": "1", "B": "" }, "yieldMs": 250,
        "background": true, "timeout": 1.5, "pty": true, "host": "node", "ask": "always",
        "security": "deny", "node": "mac-1", "elevated": true, "stdin": "pipe",
    });
    let pairs = [("A", "1"), ("B", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(
        exec(&all),
        ExecParameters {
            command: "npm test".to_owned(),
            workdir: Some("sub".to_owned()),
            env: BTreeMap::from(pairs),
            yield_after: Some(Duration::from_millis(250)),
            background: true,
            timeout: Some(Duration::from_millis(1500)),
            pty: true,
            host: Some(Host::Node),
            ask: Some(Ask::Always),
            node: Some("mac-1".to_owned()),
            elevated: Some(true),
            retry: None,
            effects: None,
            stdin: InputMode::Pipe,
        }
    );
    for (word, host) in [
        ("auto", Host::Auto),
        ("sandbox", Host::Sandbox),
        ("gateway", Host::Gateway),
        ("node", Host::Node),
    ] {
        assert_eq!(
            exec(&json!({ "command": "ls", "host": word })).host,
            Some(host)
        );
    }
    for (word, ask) in [
        ("off", Ask::Off),
        ("on-miss", Ask::OnMiss),
        ("always", Ask::Always),
    ] {
        assert_eq!(
            exec(&json!({ "command": "ls", "ask": word })).ask,
            Some(ask)
        );
    }
    let stdin = |word: &str| exec(&json!({ "command": "cat", "stdin": word })).stdin;
    assert_eq!(
        (stdin("null"), stdin("pipe")),
        (InputMode::Null, InputMode::Pipe)
    );
}

#[test]
fn numbers_of_exec_are_kept_within_their_limits() {
    let yields = [
        (json!(0), 10),
        (json!(9), 10),
        (json!(10), 10),
        (json!(10.0), 10),
        (json!(1e3), 1000),
        (json!(120_000), 120_000),
        (json!(120_001), 120_000),
        (json!(u64::MAX), 120_000),
        (json!(1e300), 120_000),
    ];
    for (value, expected) in yields {
        let read = exec(&json!({ "command": "ls", "yieldMs": value })).yield_after;
        assert_eq!(read, Some(Duration::from_millis(expected)), "{value}");
    }
    let timeouts = [
        (json!(0), Duration::ZERO),
        (json!(0.0), Duration::ZERO),
        (json!(-0.0), Duration::ZERO),
        // A fraction never becomes "no limit".
        (json!(0.0001), Duration::from_millis(1)),
        (json!(1e-300), Duration::from_millis(1)),
        (json!(0.25), Duration::from_millis(250)),
        (json!(1800), Duration::from_mins(30)),
        (json!(31_536_000), YEAR),
    ];
    for (value, expected) in timeouts {
        for name in ["timeout", "timeoutSeconds"] {
            let read = exec(&json!({ "command": "ls", name: value })).timeout;
            assert_eq!(read, Some(expected), "{name} {value}");
        }
    }
    let both = json!({ "command": "ls", "timeout": 5, "timeoutSeconds": 5.0 });
    assert_eq!(exec(&both).timeout, Some(Duration::from_secs(5)));
}

#[test]
#[rustfmt::skip] // one row per line reads better than eight
fn what_is_wrong_in_exec_is_told_with_the_name_of_the_field() {
    let with = |name: &str, value: Value| json!({ "command": "ls", name: value });
    let (unknown, missing, kind, value, range) = (
        "PARAMETER_UNKNOWN",
        "PARAMETER_MISSING",
        "PARAMETER_TYPE",
        "PARAMETER_VALUE",
        "PARAMETER_RANGE",
    );
    refused(
        ExecParameters::parse,
        &[
            (json!("ls"), kind, "exec", "as an object, not as a string", ""),
            (json!(["ls"]), kind, "exec", "not as a list", ""),
            (json!(null), kind, "exec", "not as null", ""),
            (json!({}), missing, "command", "is required", ""),
            (json!({ "command": null }), missing, "command", "is required", ""),
            (json!({ "cmd": "ls" }), unknown, "cmd", "not a parameter of `exec`", "the parameters are command, "),
            (json!({ "comand": "ls" }), unknown, "comand", "not a parameter", "did you mean `command`?"),
            (with("yield_ms", json!(5)), unknown, "yield_ms", "", "did you mean `yieldMs`?"),
            (with("Timeout", json!(5)), unknown, "Timeout", "", "did you mean `timeout`?"),
            (with("cwd", json!("/")), unknown, "cwd", "", "workdir"),
            (json!({ "command": "" }), value, "command", "is empty", ""),
            (json!({ "command": " \n" }), value, "command", "is empty", ""),
            (json!({ "command": ["ls"] }), kind, "command", "is a string, not a list", ""),
            (json!({ "command": 5 }), kind, "command", "is a string, not a number", "put it in quotes"),
            (json!({ "command": "a\0b" }), value, "command", "NUL", ""),
            (with("workdir", json!(1)), kind, "workdir", "is a string", "put it in quotes"),
            (with("workdir", json!("a\0")), value, "workdir", "NUL", ""),
            (with("env", json!([])), kind, "env", "an object of strings, not a list", ""),
            (with("env", json!({ "A": 1 })), kind, "env.A", "is a string, not a number", "put it in quotes"),
            (with("env", json!({ "A": null })), kind, "env.A", "is a string, not null", ""),
            (with("env", json!({ "A": "\0" })), value, "env.A", "NUL", ""),
            (with("yieldMs", json!("10")), kind, "yieldMs", "is a number, not a string", "remove the quotes"),
            (with("yieldMs", json!("NaN")), kind, "yieldMs", "is a number, not a string", "remove the quotes"),
            (with("yieldMs", json!(-1)), range, "yieldMs", "is negative", ""),
            (with("background", json!("true")), kind, "background", "is true or false, not a string", "remove the quotes"),
            (with("background", json!(1)), kind, "background", "is true or false, not a number", ""),
            (with("timeout", json!(-0.5)), range, "timeout", "is negative", ""),
            (with("timeout", json!(true)), kind, "timeout", "is a number, not true or false", ""),
            (with("timeout", json!(31_536_001)), range, "timeout", "more than a year", "0 is no limit"),
            (with("timeoutSeconds", json!(1e300)), range, "timeoutSeconds", "more than a year", "0 is no limit"),
            (with("pty", json!("yes")), kind, "pty", "is true or false", ""),
            (with("host", json!("build-server")), value, "host", "is one of auto, sandbox, gateway, node, not \"build-server\"", "does not name a machine"),
            (with("host", json!("10.0.0.7")), value, "host", "is one of", "in `node`"),
            (with("host", json!("gatway")), value, "host", "", "did you mean \"gateway\"?"),
            (with("host", json!("Gateway")), value, "host", "", "did you mean \"gateway\"?"),
            (with("host", json!("")), value, "host", "is one of", "does not name a machine"),
            (with("host", json!(true)), kind, "host", "is a string", "put it in quotes"),
            (with("ask", json!("never")), value, "ask", "is one of off, on-miss, always", ""),
            (with("ask", json!("onmiss")), value, "ask", "", "did you mean \"on-miss\"?"),
            (with("security", json!(1)), kind, "security", "is a string", "put it in quotes"),
            (with("node", json!([])), kind, "node", "is a string, not a list", ""),
            (with("elevated", json!("full")), kind, "elevated", "is true or false", ""),
            (with("stdin", json!("inherit")), value, "stdin", "is one of null, pipe", ""),
            (with("stdin", json!(false)), kind, "stdin", "is a string", "put it in quotes"),
            (json!({ "command": "ls", "timeout": 5, "timeoutSeconds": 6 }), "PARAMETER_CONFLICT", "timeout", "something else than `timeoutSeconds`", ""),
        ],
    );
}

#[test]
fn a_name_from_outside_cannot_break_the_message() {
    let error = ExecParameters::parse(&json!({ "command": "ls", "a\u{1b}[31m\n": 1 })).unwrap_err();
    assert!(!error.to_string().contains(char::is_control), "{error}");
}

#[test]
fn the_working_directory_is_relative_to_the_sessions_and_must_be_there() {
    let scratch = TempDir::new().unwrap();
    let session = fs::canonicalize(scratch.path()).unwrap();
    fs::create_dir_all(session.join("sub/~")).unwrap();
    fs::write(session.join("file"), "").unwrap();
    std::os::unix::fs::symlink(session.join("sub"), session.join("link")).unwrap();
    let directory = |workdir: Option<&str>| {
        let parameters = exec(&json!({ "command": "ls", "workdir": workdir }));
        parameters.directory(&session)
    };
    let inside = |path: &str| Ok(session.join(path).to_str().unwrap().to_owned());
    assert_eq!(directory(None), Ok(session.to_str().unwrap().to_owned()));
    assert_eq!(directory(Some("sub")), inside("sub"));
    assert_eq!(directory(Some("./sub/../sub/")), inside("sub"));
    assert_eq!(directory(Some("link")), inside("sub"));
    assert_eq!(directory(Some("/")), Ok("/".to_owned()));
    assert_eq!(directory(Some("sub/~")), inside("sub/~"));
    for (workdir, problem, hint) in [
        ("missing", "no such directory", None),
        ("file", "not a directory", None),
        ("file/x", "not a directory", None),
        (
            "~",
            "no such directory",
            Some("`~` is not expanded: write the path in full"),
        ),
        (
            "~/x",
            "no such directory",
            Some("`~` is not expanded: write the path in full"),
        ),
    ] {
        let error = directory(Some(workdir)).unwrap_err();
        assert_eq!(
            (error.code(), error.field()),
            ("WORKDIR_UNUSABLE", "workdir")
        );
        assert!(error.to_string().contains(problem), "{workdir}: {error}");
        assert_eq!(error.hint(), hint, "{workdir}");
    }
    let gone = plain("ls").directory(&session.join("gone")).unwrap_err();
    assert_eq!(gone.code(), "WORKDIR_UNUSABLE");
}

#[test]
#[rustfmt::skip] // one row per line reads better than eight
fn every_action_of_process_is_read() {
    let texts = |items: &[&str]| {
        items
            .iter()
            .map(|&item| item.to_owned())
            .collect::<Vec<_>>()
    };
    let millis = Duration::from_millis;
    let table = [
        (json!({ "action": "poll" }), ProcessAction::Poll { wait: millis(0) }),
        (json!({ "action": "poll", "timeout": 1500 }), ProcessAction::Poll { wait: millis(1500) }),
        (json!({ "action": "poll", "timeout": 0.5 }), ProcessAction::Poll { wait: Duration::from_micros(500) }),
        (json!({ "action": "poll", "timeout": 30_001 }), ProcessAction::Poll { wait: millis(30_000) }),
        (json!({ "action": "log" }), ProcessAction::Log { offset: None, limit: None }),
        (json!({ "action": "log", "offset": 0, "limit": 1.0 }), ProcessAction::Log { offset: Some(0), limit: Some(1) }),
        (json!({ "action": "log", "offset": 1_u64 << 53 }), ProcessAction::Log { offset: Some(1 << 53), limit: None }),
        (json!({ "action": "write", "data": "y\n" }), ProcessAction::Write { data: "y\n".to_owned(), eof: false }),
        (json!({ "action": "write", "data": "\0" }), ProcessAction::Write { data: "\0".to_owned(), eof: false }),
        (json!({ "action": "write", "eof": true }), ProcessAction::Write { data: String::new(), eof: true }),
        (json!({ "action": "send-keys", "keys": ["Up", "C-c"], "literal": "a", "hex": ["1b"] }), ProcessAction::SendKeys { literal: Some("a".to_owned()), hex: texts(&["1b"]), keys: texts(&["Up", "C-c"]) }),
        (json!({ "action": "send-keys", "keys": ["Enter"], "literal": "", "hex": [] }), ProcessAction::SendKeys { literal: None, hex: vec![], keys: texts(&["Enter"]) }),
        (json!({ "action": "submit" }), ProcessAction::Submit),
        (json!({ "action": "paste", "text": "a\nb" }), ProcessAction::Paste { text: "a\nb".to_owned(), bracketed: Bracketed::Yes }),
        (json!({ "action": "paste", "text": "", "bracketed": false }), ProcessAction::Paste { text: String::new(), bracketed: Bracketed::No }),
        (json!({ "action": "screen" }), ProcessAction::Screen),
        (json!({ "action": "kill" }), ProcessAction::Kill { signal: None }),
        (json!({ "action": "kill", "signal": "TERM" }), ProcessAction::Kill { signal: Some(Signal::TERM) }),
        (json!({ "action": "kill", "signal": "sigusr1" }), ProcessAction::Kill { signal: Some(Signal::USR1) }),
        (json!({ "action": "clear" }), ProcessAction::Clear),
        (json!({ "action": "remove" }), ProcessAction::Remove),
        // Some callers fill in all there are.
        (json!({ "action": "submit", "data": "", "eof": false, "keys": [], "literal": null, "hex": [], "text": "", "bracketed": true, "offset": 0, "limit": 0, "timeout": 0, "signal": "" }), ProcessAction::Submit),
    ];
    for (mut parameters, action) in table {
        parameters["sessionId"] = json!("brave-otter");
        let expected = ProcessParameters::Of {
            session_id: "brave-otter".to_owned(),
            action,
        };
        assert_eq!(
            ProcessParameters::parse(&parameters),
            Ok(expected),
            "{parameters}"
        );
    }
    for list in [
        json!({ "action": "list" }),
        json!({ "action": "list", "sessionId": "" }),
    ] {
        let expected = ProcessParameters::List {
            limit: None,
            cursor: None,
        };
        assert_eq!(ProcessParameters::parse(&list), Ok(expected));
    }
    let page = json!({ "action": "list", "limit": 20, "cursor": "17.calm-river@ab12" });
    let expected = ProcessParameters::List {
        limit: Some(20),
        cursor: Some("17.calm-river@ab12".parse().unwrap()),
    };
    assert_eq!(ProcessParameters::parse(&page), Ok(expected));
    for cursor in ["17", ".a-b", "x.a-b", "17.a b", "-1.a-b", "1.a/b"] {
        let page = json!({ "action": "list", "cursor": cursor });
        let error = ProcessParameters::parse(&page).unwrap_err();
        assert!(error.to_string().contains("cursor"), "{error}");
    }
}

#[test]
#[rustfmt::skip] // one row per line reads better than eight
fn what_is_wrong_in_process_is_told_with_the_name_of_the_field() {
    let of = |action: &str, more: Value| {
        let mut parameters = json!({ "action": action, "sessionId": "brave-otter" });
        for (key, value) in more.as_object().unwrap() {
            parameters[key] = value.clone();
        }
        parameters
    };
    let (unknown, missing, kind, value, range) = (
        "PARAMETER_UNKNOWN",
        "PARAMETER_MISSING",
        "PARAMETER_TYPE",
        "PARAMETER_VALUE",
        "PARAMETER_RANGE",
    );
    refused(
        ProcessParameters::parse,
        &[
            (json!([]), kind, "process", "as an object", ""),
            (json!({}), missing, "action", "is required", ""),
            (json!({ "action": 1 }), kind, "action", "is a string", "put it in quotes"),
            (of("sendkeys", json!({})), value, "action", "is one of list, poll,", "did you mean \"send-keys\"?"),
            (of("status", json!({})), value, "action", "not \"status\"", ""),
            (json!({ "action": "poll" }), missing, "sessionId", "is required for `poll`", "`list` shows the ids"),
            (json!({ "action": "kill", "sessionId": " " }), missing, "sessionId", "for `kill`", "list"),
            (json!({ "action": "kill", "sessionId": 7 }), kind, "sessionId", "is a string", "put it in quotes"),
            (json!({ "action": "kill", "session_id": "a" }), unknown, "session_id", "of `process`", "did you mean `sessionId`?"),
            (json!({ "action": "list", "sessionId": "a-b" }), unknown, "sessionId", "of `list`", "it belongs to poll, log"),
            (of("poll", json!({ "data": "y" })), unknown, "data", "of `poll`", "it belongs to write"),
            (of("write", json!({ "data": "y", "keys": ["Enter"] })), unknown, "keys", "of `write`", "send-keys"),
            (of("submit", json!({ "signal": "INT" })), unknown, "signal", "of `submit`", "it belongs to kill"),
            (of("poll", json!({ "timeout": -1 })), range, "timeout", "is negative", ""),
            (of("poll", json!({ "timeout": "5" })), kind, "timeout", "is a number", "remove the quotes"),
            (of("log", json!({ "offset": -1 })), range, "offset", "is negative", ""),
            (of("log", json!({ "offset": 1.5 })), range, "offset", "is not a whole number", ""),
            (of("log", json!({ "offset": 1e300 })), range, "offset", "is outside of 0 to", ""),
            (of("log", json!({ "offset": u64::MAX })), range, "offset", "is outside of 0 to", ""),
            (of("log", json!({ "limit": 0 })), range, "limit", "is outside of 1 to", ""),
            (of("log", json!({ "limit": [] })), kind, "limit", "is a number, not a list", ""),
            (of("write", json!({})), missing, "data", "unless `eof`", ""),
            (of("write", json!({ "data": ["y"] })), kind, "data", "is a string, not a list", ""),
            (of("write", json!({ "data": "y", "eof": "true" })), kind, "eof", "is true or false", "remove the quotes"),
            (of("send-keys", json!({})), missing, "keys", "or `literal`, or `hex`", ""),
            (of("send-keys", json!({ "keys": "Enter" })), kind, "keys", "is a list of strings, not a string", "put it in brackets"),
            (of("send-keys", json!({ "keys": ["Up", 5] })), kind, "keys[1]", "is a string, not a number", "put it in quotes"),
            (of("send-keys", json!({ "hex": [27] })), kind, "hex[0]", "is a string", "put it in quotes"),
            (of("paste", json!({})), missing, "text", "is required", ""),
            (of("paste", json!({ "text": "a", "bracketed": 1 })), kind, "bracketed", "is true or false", ""),
            (of("kill", json!({ "signal": "NOPE" })), value, "signal", "is one of HUP, INT,", ""),
            (of("kill", json!({ "signal": 9 })), kind, "signal", "is a string", "put it in quotes"),
        ],
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_in_any_parameter_is_read_or_refused_by_name(
        name in prop::sample::select(vec![
            "command", "workdir", "env", "yieldMs", "background", "timeout", "timeoutSeconds", "pty",
            "host", "ask", "security", "node", "elevated", "stdin", "retryOf", "justification",
        ]),
        value in any_json(),
    ) {
        let mut parameters = json!({ "command": "ls" });
        parameters[name] = value;
        match ExecParameters::parse(&parameters) {
            Ok(read) => {
                if let Some(after) = read.yield_after {
                    let limits = Duration::from_millis(10)..=Duration::from_mins(2);
                    prop_assert!(limits.contains(&after));
                }
                if let Some(timeout) = read.timeout {
                    prop_assert!(timeout <= YEAR);
                }
            }
            Err(error) => prop_assert!(error.field().starts_with(name), "{}", error),
        }
    }
}
