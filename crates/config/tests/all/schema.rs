//! The table of keys: what it accepts, how it tells what is wrong, and that the types agree with it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use insta::assert_snapshot;
use interlock_config::schema::{
    CONFIG, ConfigField, ConfigKind, TextRule, check, json_schema, reference_page,
};
use interlock_config::{Config, Diagnostics, ExecMode, Json5Text, KeyPath, PathSegment};
use interlock_policy::{Ask, Security};
use serde_json::{Map, Value, json};

fn parse(text: &str) -> Json5Text {
    Json5Text::parse("interlock.json", text).unwrap()
}

fn config(text: &str) -> Config {
    Config::from_text(&parse(text)).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(text: &str) -> String {
    Diagnostics(check(&parse(text))).to_string()
}

fn codes(text: &str) -> Vec<&'static str> {
    check(&parse(text))
        .iter()
        .map(|problem| problem.code)
        .collect()
}

/// A value for every key there is, at one of the ends of what is possible.
fn full(kind: &ConfigKind) -> Value {
    match kind {
        ConfigKind::Bool | ConfigKind::BoolOr(_) => json!(true),
        ConfigKind::SecretText => json!({ "source": "env", "id": "TOKEN" }),
        ConfigKind::Integer(least, _) => json!(least),
        ConfigKind::Number(_, most) => json!(most - 0.5),
        ConfigKind::Choice(words) | ConfigKind::ChoiceWithout(words, ..) => json!(words[0]),
        ConfigKind::List(inner) => json!([full(inner)]),
        ConfigKind::Map(rule, inner) => json!({ sample(*rule): full(inner) }),
        ConfigKind::Text(rule) => json!(sample(*rule)),
        ConfigKind::Object(fields) => {
            let taken = fields.iter().filter(|field| field.kind.is_accepted());
            Value::Object(
                taken
                    .map(|field| (field.key.to_owned(), full(&field.kind)))
                    .collect::<Map<_, _>>(),
            )
        }
        ConfigKind::Refused(_) | ConfigKind::NotAvailable(_) | ConfigKind::Unused => Value::Null,
    }
}

fn sample(rule: TextRule) -> &'static str {
    match rule {
        TextRule::Any | TextRule::AgentId | TextRule::ProgramName => "main",
        TextRule::Path => "~/x",
        TextRule::Flag => "--x",
        TextRule::HttpUrl | TextRule::HttpsUrl => "https://example.org",
        TextRule::VariableName => "TOKEN",
        TextRule::WebSocketUrl => "wss://example.org",
        TextRule::Cidr => "10.0.0.0/8",
        TextRule::AllowedHost | TextRule::DeniedHost => "example.org:443",
        TextRule::ByteSize => "512m",
        TextRule::Fingerprint => FINGERPRINT,
        TextRule::BasePath => "/interlock",
    }
}

const FINGERPRINT: &str = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

#[test]
fn the_types_and_the_table_know_the_same_keys() {
    let mut value = full(&ConfigKind::Object(CONFIG));
    // These do not go together with others; each is tried on its own.
    let conflicting = [
        ("/tools/exec", "mode"),
        ("/agents/list/0/tools/exec", "mode"),
    ];
    for (pointer, key) in conflicting {
        value
            .pointer_mut(pointer)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .shift_remove(key);
    }
    let typed = config(&value.to_string());
    for (pointer, key) in conflicting {
        value
            .pointer_mut(pointer)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .insert(key.to_owned(), Value::Null);
    }
    // A field that only the types have would come out as a null that is not in `value`.
    assert_eq!(serde_json::to_value(&typed).unwrap(), value);
    assert_eq!(
        config("{tools: {exec: {mode: 'ask'}}}").tools.exec.mode,
        Some(ExecMode::Ask)
    );
}

#[test]
fn the_words_of_the_policy_are_the_words_of_the_table() {
    for security in Security::ALL {
        assert_eq!(
            config(&format!("{{tools: {{exec: {{security: '{security}'}}}}}}"))
                .tools
                .exec
                .security,
            Some(*security)
        );
    }
    for mode in ExecMode::WORDS.iter().filter(|mode| **mode != "auto") {
        let exec = config(&format!("{{tools: {{exec: {{mode: '{mode}'}}}}}}"))
            .tools
            .exec;
        assert_eq!(exec.mode.map(ExecMode::as_str), Some(*mode));
    }
    for ask in Ask::ALL {
        assert_eq!(
            config(&format!("{{tools: {{exec: {{ask: '{ask}'}}}}}}"))
                .tools
                .exec
                .ask,
            Some(*ask)
        );
    }
}

fn each_field(
    fields: &'static [ConfigField],
    path: &KeyPath,
    visit: &mut impl FnMut(&'static ConfigField, KeyPath),
) {
    for field in fields {
        let path = path.key(field.key);
        match field.kind {
            ConfigKind::Object(inner) => each_field(inner, &path, visit),
            ConfigKind::List(ConfigKind::Object(inner)) => each_field(inner, &path.index(0), visit),
            ConfigKind::Map(rule, ConfigKind::Object(inner)) => {
                each_field(inner, &path.key(sample(rule)), visit);
            }
            _ => visit(field, path),
        }
    }
}

/// `{agents: {list: [{id: "main", …}]}}` for a path into it.
fn document_with(path: &KeyPath, value: &Value) -> Json5Text {
    let mut text = parse("{}");
    for (depth, segment) in path.segments().iter().enumerate() {
        if *segment == PathSegment::Index(0) {
            let element = KeyPath::from(&path.segments()[..=depth]);
            // What an element of the list needs besides.
            let needed = if path.to_string().starts_with("approvals.") {
                json!({"channel": "matrix"})
            } else {
                json!({"id": "main"})
            };
            text.set(&element, &needed).unwrap();
        }
    }
    text.set(path, value).unwrap();
    text
}

#[test]
fn every_key_refuses_every_wrong_type_and_names_its_place() {
    each_field(CONFIG, &KeyPath::root(), &mut |field, path| {
        let wrong: &[Value] = &[
            json!(null),
            json!(true),
            json!("\u{0}"),
            json!(-1),
            json!(1.5),
            json!(1e300),
            json!([[[]]]),
            json!({"": {}}),
        ];
        for value in wrong {
            let fits = matches!(
                (&field.kind, value),
                (ConfigKind::Bool | ConfigKind::BoolOr(_), Value::Bool(_))
                    | (ConfigKind::Number(..), Value::Number(_))
            );
            let is_unused = matches!(field.kind, ConfigKind::Unused);
            if is_unused || fits && value.as_f64() != Some(-1.0) && value.as_f64() != Some(1e300) {
                continue;
            }
            let text = document_with(&path, value);
            let problems = check(&text);
            assert!(!problems.is_empty(), "{path} took {value}");
            let value_at = text.locate(&path).unwrap();
            let value_lines = text.text()[value_at.span].matches('\n').count();
            let lines = text.locate_key(&path).unwrap().line..=value_at.line + value_lines;
            assert!(
                problems.iter().all(|problem| lines.contains(&problem.line)),
                "{path}: {problems:?}"
            );
        }
    });
}

#[test]
fn every_number_is_checked_at_both_ends() {
    each_field(CONFIG, &KeyPath::root(), &mut |field, path| {
        let ConfigKind::Integer(least, most) = field.kind else {
            return;
        };
        for (value, fits) in [
            (Some(least), true),
            (Some(most), true),
            (least.checked_sub(1), false),
            (most.checked_add(1), false),
        ] {
            let Some(value) = value else { continue };
            let problems = check(&document_with(&path, &json!(value)));
            assert_eq!(problems.is_empty(), fits, "{path} = {value}: {problems:?}");
        }
    });
}

#[test]
fn every_default_is_a_value_that_its_key_takes() {
    each_field(CONFIG, &KeyPath::root(), &mut |field, path| {
        if !field.default.is_empty() {
            let default: Value = serde_json::from_str(field.default)
                .unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(check(&document_with(&path, &default)), [], "{path}");
        }
        let says_what = field.about.ends_with('.') == field.kind.is_accepted();
        assert!(
            says_what || matches!(field.kind, ConfigKind::Refused(_) | ConfigKind::Unused),
            "{path}: {}",
            field.about
        );
    });
}

#[test]
fn problems_are_told_with_their_place_and_a_way_out() {
    assert_snapshot!(problems("{\n  tools: {\n    exec: {\n      secutity: 'full',\n    },\n  },\n}"), @r"
    interlock.json:4:7: unknown key `secutity`
      |
    4 |       secutity: 'full',
      |       ^^^^^^^^
    hint: did you mean `security`?
    ");
    assert_snapshot!(problems("{ security: 'deny' }"), @r"
    interlock.json:1:3: unknown key `security`
      |
    1 | { security: 'deny' }
      |   ^^^^^^^^
    hint: did you mean `tools.exec.security`?
    ");
    assert_snapshot!(problems("{ commands: { zzz: 1 } }"), @r"
    interlock.json:1:15: unknown key `zzz`
      |
    1 | { commands: { zzz: 1 } }
      |               ^^^
    hint: `commands` has the keys `ownerAllowFrom`
    ");
    assert_snapshot!(problems("{ tools: { exec: { ask: 'onmiss', host: 'build-server' } } }"), @r"
    interlock.json:1:25: `tools.exec.ask` cannot be `onmiss`
      |
    1 | { tools: { exec: { ask: 'onmiss', host: 'build-server' } } }
      |                         ^^^^^^^^
    hint: did you mean `on-miss`? Possible are `off`, `on-miss`, `always`

    interlock.json:1:41: `tools.exec.host` cannot be `build-server`
      |
    1 | { tools: { exec: { ask: 'onmiss', host: 'build-server' } } }
      |                                         ^^^^^^^^^^^^^^
    hint: possible are `auto`, `sandbox`, `gateway`, `node`
    ");
    assert_snapshot!(problems("{ tools: { exec: { timeoutSec: '60', backgroundMs: 5, notifyOnExit: 'yes', safeBins: 'wc' } } }"), @r#"
    interlock.json:1:32: `tools.exec.timeoutSec` must be a whole number, found a string
      |
    1 | { tools: { exec: { timeoutSec: '60', backgroundMs: 5, notifyOnExit: 'yes', safeBins: 'wc' } } }
      |                                ^^^^
    hint: remove the quotes

    interlock.json:1:52: `tools.exec.backgroundMs` must be in the range 10 to 120000, found 5
      |
    1 | { tools: { exec: { timeoutSec: '60', backgroundMs: 5, notifyOnExit: 'yes', safeBins: 'wc' } } }
      |                                                    ^

    interlock.json:1:69: `tools.exec.notifyOnExit` must be true or false, found a string
      |
    1 | { tools: { exec: { timeoutSec: '60', backgroundMs: 5, notifyOnExit: 'yes', safeBins: 'wc' } } }
      |                                                                     ^^^^^

    interlock.json:1:86: `tools.exec.safeBins` must be a list, found a string
      |
    1 | { tools: { exec: { timeoutSec: '60', backgroundMs: 5, notifyOnExit: 'yes', safeBins: 'wc' } } }
      |                                                                                      ^^^^
    hint: put it in brackets: ["…"]
    "#);
    assert_snapshot!(problems("{ tools: { exec: { safeBins: ['/usr/bin/wc'], pathPrepend: ['bin'], node: 'a\\u0000b' } } }"), @r"
    interlock.json:1:31: `tools.exec.safeBins[0]` must be the plain name of a program, without directories
      |
    1 | { tools: { exec: { safeBins: ['/usr/bin/wc'], pathPrepend: ['bin'], node: 'a\u0000b' } } }
      |                               ^^^^^^^^^^^^^

    interlock.json:1:61: `tools.exec.pathPrepend[0]` must be an absolute path, or one that begins with `~/`
      |
    1 | { tools: { exec: { safeBins: ['/usr/bin/wc'], pathPrepend: ['bin'], node: 'a\u0000b' } } }
      |                                                             ^^^^^

    interlock.json:1:75: `tools.exec.node` must not contain control characters
      |
    1 | { tools: { exec: { safeBins: ['/usr/bin/wc'], pathPrepend: ['bin'], node: 'a\u0000b' } } }
      |                                                                           ^^^^^^^^^^
    ");
    assert_snapshot!(problems("{ tools: { exec: { safeBinProfiles: { my_bin: { maxPositional: 1, minPositional: 2, deniedFlags: ['f'] } } } } }"), @r"
    interlock.json:1:49: `maxPositional` (1) is below `minPositional` (2)
      |
    1 | { tools: { exec: { safeBinProfiles: { my_bin: { maxPositional: 1, minPositional: 2, deniedFlags:…
      |                                                 ^^^^^^^^^^^^^
    hint: no argument list could satisfy both

    interlock.json:1:99: `tools.exec.safeBinProfiles.my_bin.deniedFlags[0]` must be a flag such as `-n` or `--lines`, without a value
      |
    1 | …xPositional: 1, minPositional: 2, deniedFlags: ['f'] } } } } }
      |                                                  ^^^
    ");
    assert_snapshot!(problems("{ tools: { exec: { mode: 'ask', security: 'full' } } }"), @r"
    interlock.json:1:20: `mode` and `security` cannot both be set in `tools.exec`
      |
    1 | { tools: { exec: { mode: 'ask', security: 'full' } } }
      |                    ^^^^
    hint: keep `mode`, or `security` and `ask`
    ");
    assert_snapshot!(problems("{ agents: { list: [{ id: 'Main', default: true }, { id: 'main', default: true }, {}, { id: 'a b' }] } }"), @r"
    interlock.json:1:57: agent id `main` is given twice
      |
    1 | …: { list: [{ id: 'Main', default: true }, { id: 'main', default: true }, {}, { id: 'a b' }] } }
      |                                                  ^^^^^^
    hint: `agents.list[0]` has it already; case does not matter

    interlock.json:1:65: more than one agent is marked `default`
      |
    1 | …: [{ id: 'Main', default: true }, { id: 'main', default: true }, {}, { id: 'a b' }] } }
      |                                                  ^^^^^^^
    hint: `agents.list[0]` is marked too

    interlock.json:1:82: `agents.list[2]` has no `id`
      |
    1 | …default: true }, { id: 'main', default: true }, {}, { id: 'a b' }] } }
      |                                                  ^
    hint: write the object as one value, with `id` in it

    interlock.json:1:92: `agents.list[3].id` must be an agent id: 1 to 64 letters, digits, `_` or `-`
      |
    1 | …rue }, { id: 'main', default: true }, {}, { id: 'a b' }] } }
      |                                                  ^^^^^
    ");
    assert_snapshot!(problems("{ gateway: { auth: { token: 'very-secret', mode: 'tokne' }, port: 70000 } }"), @r"
    interlock.json:1:22: `gateway.auth.token` is not read from the config
      |
    1 | { gateway: { auth: { token: '•••••••••••', mode: 'tokne' }, port: 70000 } }
      |                      ^^^^^
    hint: mint a token, of which only the hash is kept: interlock gateway token --new; or set INTERLOCK_GATEWAY_TOKEN

    interlock.json:1:50: `gateway.auth.mode` cannot be `tokne`
      |
    1 | { gateway: { auth: { token: '•••••••••••', mode: 'tokne' }, port: 70000 } }
      |                                                  ^^^^^^^
    hint: did you mean `token`? Possible are `none`, `token`, `password`

    interlock.json:1:67: `gateway.port` must be in the range 1 to 65535, found 70000
      |
    1 | { gateway: { auth: { token: '•••••••••••', mode: 'tokne' }, port: 70000 } }
      |                                                                   ^^^^^
    ");
    assert_snapshot!(problems("[]"), @r"
    interlock.json:1:1: the config must be an object, found a list
      |
    1 | []
      | ^^
    ");
    assert_snapshot!(problems("{ tools: null }"), @r"
    interlock.json:1:10: `tools` must be an object, found null
      |
    1 | { tools: null }
      |          ^^^^
    hint: leave the key out to unset it
    ");
}

#[test]
fn a_key_whose_feature_is_not_there_is_refused_with_its_place_and_a_remedy() {
    assert_snapshot!(problems("{\n  agents: {\n    defaults: { sandbox: { backend: 'kubernetes' } },\n  },\n}"), @r"
    interlock.json:3:37: `agents.defaults.sandbox.backend` cannot be `kubernetes`: it is not available in this version
      |
    3 |     defaults: { sandbox: { backend: 'kubernetes' } },
      |                                     ^^^^^^^^^^^^
    hint: use `native`, `bwrap`, `docker`, `podman`, `landlock` or `ssh`, or remove the key
    ");
    assert_snapshot!(problems("{ tools: { exec: { mode: 'auto' } } }"), @r"
    interlock.json:1:26: `tools.exec.mode` cannot be `auto`: it is not available in this version
      |
    1 | { tools: { exec: { mode: 'auto' } } }
      |                          ^^^^^^
    hint: use `ask`: it puts every miss to an approver
    ");
    for text in [
        "{ agents: { defaults: { sandbox: { mode: 'off' } } } }",
        "{ agents: { defaults: { sandbox: { mode: 'all', workspaceAccess: 'rw', view: 'host' } } } }",
        "{ agents: { list: [{ id: 'a', sandbox: { mode: 'off' } }] } }",
        "{ agents: { defaults: { sandbox: {} } } }",
    ] {
        assert_eq!(codes(text), [""; 0], "{text}");
    }
}

#[test]
fn what_is_not_available_is_refused_whatever_its_value_global_and_per_agent() {
    let mut refused = 0;
    each_field(CONFIG, &KeyPath::root(), &mut |field, path| {
        let values = match field.kind {
            ConfigKind::NotAvailable(_) => vec![json!(false), json!({}), json!(null), json!("off")],
            ConfigKind::ChoiceWithout(_, words, _) => {
                words.iter().map(|word| json!(word)).collect()
            }
            _ => return,
        };
        for value in values {
            let problems = check(&document_with(&path, &value));
            let [problem] = problems.as_slice() else {
                panic!("{path} = {value}: {problems:?}");
            };
            assert!(
                matches!(problem.code, "KEY_NOT_AVAILABLE" | "SANDBOX_UNAVAILABLE")
                    && problem.message.contains("not available in this version")
                    && problem.message.contains(&format!("`{path}`"))
                    && problem.hint.is_some(),
                "{path} = {value}: {problem}"
            );
            refused += 1;
        }
    });
    assert!(refused > 50, "{refused}");
}

#[test]
fn every_problem_is_reported_in_the_order_of_the_text() {
    let text =
        "{\n x: 1,\n tools: { exec: { ask: 1,\n  security: 2 } },\n gateway: { port: 0 },\n}";
    assert_eq!(
        codes(text),
        ["UNKNOWN_KEY", "WRONG_TYPE", "WRONG_TYPE", "OUT_OF_RANGE"]
    );
}

#[test]
fn strings_are_held_to_their_rules() {
    let pairs: Vec<&str> = (0..32).map(|at| &FINGERPRINT[2 * at..2 * at + 2]).collect();
    let (colons, named) = (pairs.join(":"), format!("SHA256:{FINGERPRINT}"));
    let too_long = format!("{FINGERPRINT}00");
    let table = [
        (
            TextRule::AgentId,
            vec!["main", "a_b-C9"],
            vec!["", "a b", "é", "a.b", "*"],
        ),
        (
            TextRule::Path,
            vec!["/", "/a b", "~", "~/x", r"C:\x"],
            vec!["", "a", "./a", "~user/x", "C:"],
        ),
        (
            TextRule::ProgramName,
            vec!["wc", "g++"],
            vec!["", "/bin/wc", "..", "a b"],
        ),
        (
            TextRule::Flag,
            vec!["-n", "--lines"],
            vec!["", "-", "n", "--a=b"],
        ),
        (
            TextRule::HttpUrl,
            vec!["https://x", "http://[::1]:8/p"],
            vec!["", "x", "ftp://x", "https://", "https:///x"],
        ),
        (
            TextRule::WebSocketUrl,
            vec!["ws://x", "wss://x:1"],
            vec!["https://x", "ws://"],
        ),
        (
            TextRule::Cidr,
            vec!["10.0.0.0/8", "::/0"],
            vec!["10.0.0.0", "10.0.0.0/33", "x/8", "::/129"],
        ),
        (
            TextRule::ByteSize,
            vec!["1", "512m", "2G"],
            vec![
                "",
                "m",
                "0",
                "0g",
                "1mm",
                "-1",
                "+1",
                "1.5g",
                "18446744073709551616",
                "18446744073709551615k",
            ],
        ),
        (
            TextRule::Fingerprint,
            vec![FINGERPRINT, &colons, &named],
            vec!["", "ab", &FINGERPRINT[1..], &too_long, "é", "sha256é"],
        ),
    ];
    let keys = [
        (TextRule::AgentId, "agents.list[0].id"),
        (TextRule::Path, "agents.defaults.workspace"),
        (TextRule::ProgramName, "tools.exec.safeBins[0]"),
        (
            TextRule::Flag,
            "tools.exec.safeBinProfiles.x.deniedFlags[0]",
        ),
        (TextRule::HttpUrl, "gateway.wake.url"),
        (TextRule::WebSocketUrl, "gateway.remote.url"),
        (TextRule::Fingerprint, "gateway.wake.tlsFingerprint"),
        (TextRule::Cidr, "gateway.nodes.pairing.autoApproveCidrs[0]"),
        (TextRule::ByteSize, "tools.exec.limits.memory"),
    ];
    for (rule, good, bad) in table {
        let path = KeyPath::parse(keys.iter().find(|(of, _)| *of == rule).unwrap().1).unwrap();
        for (text, fits) in good
            .iter()
            .map(|text| (text, true))
            .chain(bad.iter().map(|text| (text, false)))
        {
            let value = json!(text);
            let mut document = parse("{}");
            document.set(&path, &value).unwrap();
            assert_eq!(check(&document).is_empty(), fits, "{path} = {value}");
        }
    }
}

#[test]
fn the_json_schema_says_the_same_as_the_table() {
    let schema = json_schema();
    each_field(CONFIG, &KeyPath::root(), &mut |field, path| {
        let mut at = &schema;
        for segment in path.segments() {
            at = match segment {
                PathSegment::Key(key) if at.get("properties").is_some() => &at["properties"][key],
                PathSegment::Key(_) => &at["additionalProperties"],
                PathSegment::Index(_) => &at["items"],
            };
        }
        if field.kind.is_accepted() || matches!(field.kind, ConfigKind::Unused) {
            assert_eq!(at["description"], field.about, "{path}");
        } else {
            assert!(at.is_null(), "{path}");
        }
    });
    assert_snapshot!(schema["properties"]["tools"]["properties"]["exec"]["properties"]["timeoutSec"], @r#"{"type":"integer","minimum":1,"maximum":31536000,"description":"The time limit of a run, unless the call sets another one.","default":1800}"#);
    assert_eq!(
        schema["properties"]["agents"]["properties"]["list"]["items"]["required"],
        json!(["id"])
    );
    assert_eq!(schema["additionalProperties"], json!(false));
}

#[test]
fn the_reference_page_has_a_row_for_every_key() {
    let page = reference_page();
    each_field(CONFIG, &KeyPath::root(), &mut |field, path| {
        let row = page.lines().any(|line| {
            line.starts_with(&format!("| `{}` |", field.key))
                && line.ends_with(&format!("| {} |", field.about.replace('|', "\\|")))
        });
        assert_eq!(row, field.kind.is_accepted(), "{path}");
    });
    let section: Vec<&str> = page
        .lines()
        .skip_while(|line| *line != "## `agents.list[]`")
        .take(10)
        .collect();
    assert_snapshot!(section.join("\n"), @r"
    ## `agents.list[]`

    | key | type | default | meaning |
    | --- | --- | --- | --- |
    | `id` | agent id | required | Its name on the wire; case does not matter. |
    | `name` | string |  | Its name for people. |
    | `default` | boolean | `false` | Whether this is the agent of calls to the gateway that name none. At most one agent may be. |
    | `workspace` | path |  | The directory it works in. |
    | `tools` | object |  | Its own values over the global ones; `allow`, `deny` and `elevated` only restrict. |
    | `sandbox` | object |  | Its own values over the defaults. |
    ");
    assert!(
        page.contains("## `agents.list[].tools`\n\nThe same keys as [`tools`](#tools)."),
        "{page}"
    );
}
