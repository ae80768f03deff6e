//! What must hold for any bytes, one function for each target. cargo-fuzz runs them for as long as
//! one likes; `crates/host/tests/all/bounded_fuzz.rs` includes this file and runs them for a while.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use interlock_command::{Host, Odd, Source, Span, analyse, lex};
use interlock_config::{Config, Json5Text, KeyPath};
use interlock_patch::Patch;
use interlock_policy::{
    ArgumentRule, Ask, CallerInput, DenyRule, Document, Entry, JudgedCall, Layer, Levels, Outcome,
    Policy, PolicyParts, PolicySource as LayerSource, Security,
};
use interlock_programs::VirtualHost;
use interlock_wire::Frame;

/// Panics if something does not hold.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its folder of seeds.
pub const TARGETS: &[(&str, Target)] = &[
    ("lexer", lexer),
    ("analysis", analysis),
    ("describe", describe),
    ("document", document),
    ("config", config),
    ("arg_pattern", arg_pattern),
    ("patch", patch),
    ("frame", frame),
];

/// A plain line has spans that fit, and its words mean themselves when they are quoted.
pub fn lexer(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let fits = |span: Span| assert!(text.get(span.start..span.end).is_some(), "{span:?}");
    let line = match lex(&text) {
        Ok(line) => line,
        Err(odd) => return fits(odd.span),
    };
    for segment in line.segments() {
        fits(segment.span);
        assert!(!segment.words.is_empty());
        let words = segment.words.iter().map(|word| {
            fits(word.span);
            word.text.as_str()
        });
        let words: Vec<&str> = words.collect();
        let quote = |word: &&str| format!("'{}'", word.replace('\'', r"'\''"));
        let quoted: Vec<String> = words.iter().map(quote).collect();
        let again = lex(&format!("x {}", quoted.join(" ")));
        let again = match &again {
            Ok(again) => again,
            // Quotes make words longer.
            Err(odd) => return assert_eq!(odd.reason, Odd::TooLong),
        };
        let read = again.segments().flat_map(|segment| &segment.words);
        let read: Vec<&str> = read.skip(1).map(|word| word.text.as_str()).collect();
        assert_eq!(read, words);
    }
    let _ = interlock_command::highlight(&text);
}

/// The judge gives one answer, and an allowing one only with a reason in every segment. The bytes
/// are a text; after a leading NUL they are an argv whose words end in NUL.
pub fn analysis(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let source = match text.strip_prefix('\0') {
        Some(words) => Source::Argv(words.split('\0').map(str::to_owned).collect()),
        None => Source::Text(text),
    };
    let (policy, host) = (fixed_policy(), VirtualHost::new());
    let trusted_dirs = &policy.safe_bins.trusted_dirs;
    let on = Host {
        resolver: &host,
        trusted_dirs,
    };
    let Ok(analysis) = analyse(source.clone(), "/w", on) else {
        return;
    };
    let env = BTreeMap::new();
    let call = JudgedCall {
        env: &env,
        input: CallerInput::None,
        workspace: &[],
        now_ms: 0,
    };
    let verdict = policy.judge(&analysis, call, &host);
    if verdict.outcome.is_allow() {
        assert!(analysis.shape.odd().is_none());
        assert!(!verdict.segments.is_empty());
        assert!(
            verdict
                .segments
                .iter()
                .all(|judged| judged.satisfied_by.is_some())
        );
    }
    let names_rm = |argv: &[String]| {
        argv.first()
            .is_some_and(|name| name == "rm" || name.ends_with("/rm"))
    };
    if verdict.segments.iter().any(|judged| names_rm(&judged.argv)) {
        assert_eq!(verdict.outcome, Outcome::Deny);
    }
    let again = policy.judge(&analysis, call, &host);
    assert_eq!(format!("{verdict:?}"), format!("{again:?}"));
}

/// Entries that satisfy something, and a rule that refuses something.
fn fixed_policy() -> &'static Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    POLICY.get_or_init(|| {
        let entry = |pattern: &str, args: Option<&[&str]>| Entry {
            args: args.map(|args| args.iter().map(|&arg| arg.to_owned()).collect()),
            ..Entry::for_pattern(pattern)
        };
        let entries = [
            entry("rg", None),
            entry("/usr/bin/git", Some(&["status", "**"])),
            entry("/opt/**", None),
            entry("**/deploy", None),
            entry("sudo", Some(&["systemctl", "*"])),
            entry("p*", None),
        ];
        let deny = [("rm", None), ("git", Some("--force")), ("/sbin/**", None)];
        let deny = deny.map(|(pattern, arg_pattern)| DenyRule {
            pattern: pattern.to_owned(),
            arg_pattern: arg_pattern.map(str::to_owned),
            ..DenyRule::default()
        });
        let level = Layer::new(
            LayerSource::Host,
            "",
            Some(Security::Allowlist),
            Some(Ask::OnMiss),
        );
        let parts = PolicyParts {
            levels: Some(Levels::join(&[level])),
            entries: entries
                .map(|entry| (entry, String::new()))
                .into_iter()
                .collect(),
            deny: deny.map(|rule| (rule, String::new())).into(),
            strict_inline_eval: true,
            ..PolicyParts::default()
        };
        parts
            .assemble(Some("/home/u"))
            .unwrap_or_else(|error| panic!("{error}"))
    })
}

/// The parser of odd text may panic: that is caught, and said to be not seen. A fuzzer would stop
/// at it all the same.
#[allow(dead_code, reason = "only a fuzzer needs it")]
pub fn pass_over_caught_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some("describe") {
                before(info);
            }
        }));
    });
}

/// A description lists commands that have words, and says always the same.
pub fn describe(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let description = interlock_command::describe(&text);
    assert!(description.commands.iter().all(|words| !words.is_empty()));
    assert_eq!(interlock_command::describe(&text), description);
}

/// A document that is accepted survives being written and read.
pub fn document(data: &[u8]) {
    let Ok(text) = Json5Text::parse_bytes("fuzz", data) else {
        return;
    };
    let Ok(document) = Document::from_json(&text.value()) else {
        return;
    };
    let written = document.to_json();
    let again = Json5Text::parse("fuzz", &written).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(Document::from_json(&again.value()).as_ref(), Ok(&document));
}

/// A value that was set can be read, in a text that is still one.
pub fn config(data: &[u8]) {
    let Ok(text) = Json5Text::parse_bytes("fuzz", data) else {
        return;
    };
    let _ = Config::from_text(&text);
    for (path, value) in [
        ("tools.exec.security", serde_json::json!("deny")),
        ("tools.exec.safeBins", serde_json::json!(["cut", "it's"])),
        ("agents.list[0].id", serde_json::json!("main")),
        ("gateway", serde_json::json!({ "port": 1 })),
    ] {
        let path = KeyPath::parse(path).unwrap_or_else(|error| panic!("{error}"));
        let mut edited = text.clone();
        if edited.set(&path, &value).is_ok() {
            let again = Json5Text::parse("fuzz", edited.text());
            let again = again.unwrap_or_else(|error| panic!("{error} in {}", edited.text()));
            assert_eq!(again.get(&path), Some(value));
        }
        let mut edited = text.clone();
        if edited.unset(&path).is_ok_and(|removed| removed) {
            let again = Json5Text::parse("fuzz", edited.text());
            let again = again.unwrap_or_else(|error| panic!("{error} in {}", edited.text()));
            assert_eq!(again.value(), edited.value());
        }
    }
}

/// The first line is a pattern, the others are arguments; then the lines are a list of patterns.
pub fn arg_pattern(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n').map(str::to_owned);
    let pattern = lines.next().unwrap_or_default();
    let arguments: Vec<String> = lines.collect();
    if let Ok(rule) = ArgumentRule::parse(Some(&pattern), None) {
        let matches = rule.matches(&arguments, "/w");
        assert_eq!(rule.matches(&arguments, "/w"), matches);
        assert!(rule.binds());
    }
    let exact: Vec<String> = arguments
        .iter()
        .filter(|word| !word.contains(['*', '?']))
        .cloned()
        .collect();
    if let Ok(rule) = ArgumentRule::parse(None, Some(&exact)) {
        assert!(rule.matches(&exact, "/w"));
        assert!(exact.is_empty() || !rule.matches(&exact[1..], "/w"));
    }
    if let Ok(rule) = ArgumentRule::parse(None, Some(&arguments)) {
        let _ = rule.matches(&exact, "/w");
    }
}

/// A patch that was read is printed as one that reads the same.
pub fn patch(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(patch) = Patch::parse(&text) else {
        return;
    };
    let printed = patch.to_string();
    let again = Patch::parse(&printed);
    let again = again.unwrap_or_else(|error| panic!("{error} in {printed:?}"));
    assert_eq!(again, patch, "{printed:?}");
}

/// A message that was read is written as one that reads the same; the parameters of a request are
/// refused shortly, or accepted again when they are written.
pub fn frame(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let frame = match Frame::parse(&text) {
        Ok(frame) => frame,
        Err(bad) => {
            // An id is sent back as it came; the rest of the answer does not grow with the message.
            assert!(bad.to_string().len() < 16 * 1024, "{bad}");
            return;
        }
    };
    let written = frame.to_text();
    let again = Frame::parse(&written).unwrap_or_else(|bad| panic!("{bad} in {written}"));
    assert_eq!(again.to_text(), written);
    let Frame::Request(request) = frame else {
        return;
    };
    let entry = interlock_wire::method::contracts().find(|entry| entry.method == request.method);
    let (Some(entry), Some(params)) = (entry, &request.params) else {
        return;
    };
    match (entry.rewrite)(params) {
        Ok(value) => {
            let raw = serde_json::value::to_raw_value(&value);
            let raw = raw.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((entry.rewrite)(&raw).as_ref(), Ok(&value), "{value}");
        }
        Err(error) => assert!(error.message.len() < 16 * 1024, "{error}"),
    }
}
