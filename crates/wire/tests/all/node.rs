//! Runs on nodes: texts of commands, results, events, bindings.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use interlock_wire::approval::{SystemRunBinding, env_hash};
use interlock_wire::node::{
    Denial, EVENT_OUTPUT_CHARS, ExecDenied, ExecFinished, MAX_OUTPUT_BYTES, MutableFileOperand,
    NodeInvokeRequest, OutputStream, RunOutput, SystemRun, SystemRunPlan, SystemRunPrepared,
    SystemRunResult, SystemWhich, command_text, event_output, format_exec_command,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn request(params: Option<&str>) -> NodeInvokeRequest {
    serde_json::from_value(json!({"id":"i","nodeId":"n","command":"system.run","paramsJSON":params,"idempotencyKey":"k"}))
        .unwrap()
}

#[test]
fn a_command_is_shown_with_quotes_only_where_words_need_them() {
    for (argv, text) in [
        (words(&["echo", "hello"]), "echo hello"),
        (
            words(&["/bin/sh", "-lc", "echo hi"]),
            r#"/bin/sh -lc "echo hi""#,
        ),
        (
            words(&["x", "", "a\tb", "a\"b", "a\\b", "$c", "'d'"]),
            "x \"\" \"a\tb\" \"a\\\"b\" a\\b $c 'd'",
        ),
    ] {
        assert_eq!(format_exec_command(&argv), text);
    }
}

#[test]
fn a_text_that_came_along_must_say_the_same() {
    let shell: &[&str] = &["/bin/sh", "-lc", "echo hi"];
    for (argv, raw, preview) in [
        (shell, None, Some("echo hi")),
        (shell, Some("echo hi"), Some("echo hi")),
        (shell, Some(r#"/bin/sh -lc "echo hi""#), Some("echo hi")),
        (shell, Some("  "), Some("echo hi")),
        (&["env", "bash", "-c", "id"][..], Some("id"), Some("id")),
        (
            &["nice", "-n", "5", "sh", "-c", "id"][..],
            Some("id"),
            Some("id"),
        ),
        (
            &["cmd.exe", "/d", "/s", "/c", "dir"][..],
            Some("dir"),
            Some("dir"),
        ),
        (&["echo", "hi"][..], Some("echo hi"), None),
        (&["sh", "-c", "id", "arg0"][..], Some("sh -c id arg0"), None),
    ] {
        let text = command_text(&words(argv), raw).unwrap();
        assert_eq!(text.preview.as_deref(), preview, "{argv:?} {raw:?}");
        assert_eq!(text.text, format_exec_command(&words(argv)));
    }
    for (argv, raw) in [
        (shell, "echo ho"),
        (&["echo", "hi"][..], "hi"),
        // Not all that runs is in the text.
        (&["sh", "-c", "$0", "id"][..], "$0"),
        (&["env", "X=1", "sh", "-c", "id"][..], "id"),
        (&["sudo", "sh", "-c", "id"][..], "id"),
    ] {
        assert!(
            command_text(&words(argv), Some(raw)).is_err(),
            "{argv:?} {raw}"
        );
    }
}

#[test]
fn a_mismatch_is_told_with_both_texts() {
    let run = SystemRun {
        command: words(&["/bin/sh", "-lc", "echo hi"]),
        raw_command: Some("rm x".into()),
        ..SystemRun::default()
    };
    let error = run.command_text().unwrap_err();
    assert_eq!(error.message, "rawCommand does not match command");
    assert_eq!(
        error.details.as_deref(),
        Some(
            &json!({"code":"RAW_COMMAND_MISMATCH","rawCommand":"rm x","inferred":"echo hi","formattedArgv":"/bin/sh -lc \"echo hi\""})
        )
    );
}

#[test]
fn the_parameters_of_a_run_are_read_and_written() {
    let run: SystemRun = request(Some(r#"{"command":["echo","hello"],"runId":"r","env":{"A":"1"},"approved":true,"approvalDecision":"allow-once","new":1}"#))
        .read()
        .unwrap();
    assert_eq!(run.command, ["echo", "hello"]);
    assert_eq!(run.approved, Some(true));
    assert_eq!(
        serde_json::to_string(&run.without_approval()).unwrap(),
        r#"{"command":["echo","hello"],"env":{"A":"1"},"runId":"r"}"#
    );
}

#[test]
fn parameters_that_are_none_are_refused_in_known_words() {
    let message = |params: Option<&str>| {
        let read = request(params).read::<SystemWhich>();
        read.map(|which| which.bins.join(","))
            .map_err(|error| error.message)
    };
    assert_eq!(message(Some(r#"{"bins":["sh"]}"#)), Ok("sh".into()));
    assert_eq!(
        message(None),
        Err("Error: INVALID_REQUEST: paramsJSON required".into())
    );
    assert_eq!(
        message(Some("{")),
        Err("Error: INVALID_REQUEST: malformed JSON".into())
    );
    assert!(
        message(Some(r#"[["sh"]]"#))
            .unwrap_err()
            .contains("must be an object")
    );
    for params in [
        r#"{"command":"ls"}"#,
        r#"{"command":[]}"#,
        "{}",
        r#"{"command":["a",1]}"#,
        r#"{"command":null}"#,
    ] {
        let run: SystemRun = request(Some(params)).read().unwrap();
        assert_eq!(
            run.command_text().unwrap_err().message,
            "command required",
            "{params}"
        );
    }
}

#[test]
fn a_plan_has_its_properties_in_order_and_must_be_whole() {
    let plan = SystemRunPlan {
        argv: words(&["/bin/sh", "-lc", "echo hi"]),
        cwd: Some("/tmp".into()),
        command_text: "/bin/sh -lc \"echo hi\"".into(),
        command_preview: Some("echo hi".into()),
        agent_id: Some("main".into()),
        session_key: None,
        mutable_file_operand: Some(MutableFileOperand {
            argv_index: 1,
            path: "/x".into(),
            sha256: "00".into(),
        }),
        policy_snapshot: None,
    };
    let text = serde_json::to_string(&SystemRunPrepared {
        plan: plan.clone(),
        ..SystemRunPrepared::default()
    })
    .unwrap();
    assert_eq!(
        text,
        r#"{"plan":{"argv":["/bin/sh","-lc","echo hi"],"cwd":"/tmp","commandText":"/bin/sh -lc \"echo hi\"","commandPreview":"echo hi","agentId":"main","sessionKey":null,"mutableFileOperand":{"argvIndex":1,"path":"/x","sha256":"00"}}}"#
    );
    let with = |plan: Value| SystemRun {
        system_run_plan: Some(plan),
        ..SystemRun::default()
    };
    assert_eq!(
        with(serde_json::to_value(&plan).unwrap()).plan(),
        Ok(Some(plan))
    );
    assert_eq!(with(Value::Null).plan(), Ok(None));
    for bad in [
        json!({}),
        json!([]),
        json!("x"),
        json!({"argv":[],"commandText":"x"}),
        json!({"argv":["x"],"commandText":" "}),
    ] {
        assert_eq!(
            with(bad).plan().unwrap_err().message,
            "systemRunPlan invalid"
        );
    }
}

#[test]
fn a_result_without_an_exit_code_does_not_mention_one() {
    let result = SystemRunResult {
        exit_code: Some(0),
        success: true,
        stdout: "hello\n".into(),
        ..SystemRunResult::default()
    };
    assert_eq!(
        serde_json::to_string(&result).unwrap(),
        r#"{"exitCode":0,"timedOut":false,"success":true,"stdout":"hello\n","stderr":"","error":null}"#
    );
    let failed = SystemRunResult {
        error: Some("spawn /no/such/bin ENOENT".into()),
        ..SystemRunResult::default()
    };
    assert_eq!(
        serde_json::to_string(&failed).unwrap(),
        r#"{"timedOut":false,"success":false,"stdout":"","stderr":"","error":"spawn /no/such/bin ENOENT"}"#
    );
}

#[test]
fn output_is_kept_up_to_the_limit_over_both_streams() {
    let mut output = RunOutput::default();
    output.push(OutputStream::Stdout, &vec![b'x'; 500_000]);
    let (stdout, stderr) = output.finish();
    assert_eq!((stdout.len(), stderr.as_str()), (200_016, ""));
    assert!(stdout.ends_with("x\n... (truncated)"));

    let mut output = RunOutput::default();
    output.push(OutputStream::Stderr, b"err");
    output.push(OutputStream::Stdout, &vec![b'x'; MAX_OUTPUT_BYTES - 3]);
    assert_eq!(output.dropped(), 0);
    output.push(OutputStream::Stderr, b"more");
    assert_eq!(output.dropped(), 4);
    let (stdout, stderr) = output.finish();
    assert_eq!(
        (stdout.len(), stderr.as_str()),
        (MAX_OUTPUT_BYTES - 3, "err\n... (truncated)")
    );

    let mut output = RunOutput::default();
    output.push(OutputStream::Stdout, b"\xff\xc3\xa9 \xf0\x9f");
    assert_eq!(output.finish().0, "\u{fffd}é \u{fffd}");
}

#[test]
fn an_event_tells_the_end_of_the_output() {
    assert_eq!(event_output("out\n", "err", None), "out\n\nerr");
    assert_eq!(
        event_output("", "", Some(" spawn x ENOENT\n")),
        "spawn x ENOENT"
    );
    let long = format!("start{}", "x".repeat(EVENT_OUTPUT_CHARS));
    assert_eq!(
        event_output(&long, "", None),
        format!("... (truncated) {}", "x".repeat(EVENT_OUTPUT_CHARS))
    );
    let exact = "x".repeat(EVENT_OUTPUT_CHARS);
    assert_eq!(event_output(&exact, "", None), exact);
    // Each counts twice, and none is cut in half.
    let wide = "😀".repeat(EVENT_OUTPUT_CHARS);
    let told = event_output(&wide, "", None);
    assert_eq!(
        told.chars().filter(|c| *c == '😀').count(),
        EVENT_OUTPUT_CHARS / 2
    );
}

#[test]
fn the_events_of_a_run_are_those_that_gateways_know() {
    let run = SystemRun {
        session_key: Some("agent:main:x".into()),
        ..SystemRun::default()
    };
    let result = SystemRunResult {
        exit_code: Some(3),
        stdout: "out\n".into(),
        stderr: "err".into(),
        ..SystemRunResult::default()
    };
    let finished = ExecFinished::of(&run, "r", "false", &result);
    assert_eq!(
        serde_json::to_string(&finished).unwrap(),
        r#"{"sessionKey":"agent:main:x","runId":"r","host":"node","command":"false","exitCode":3,"timedOut":false,"success":false,"output":"out\n\nerr"}"#
    );
    let denied = ExecDenied::of(&SystemRun::default(), "r", "ls", &Denial::APPROVAL_REQUIRED);
    assert_eq!(
        serde_json::to_string(&denied).unwrap(),
        r#"{"sessionKey":"node","runId":"r","host":"node","command":"ls","reason":"approval-required","suppressNotifyOnExit":false}"#
    );
    assert_eq!(
        Denial::APPROVAL_REQUIRED.error().to_string(),
        "SYSTEM_RUN_DENIED: SYSTEM_RUN_DENIED: approval required"
    );
}

#[test]
fn a_request_without_parameters_says_null() {
    assert_eq!(
        serde_json::to_string(&request(None)).unwrap(),
        r#"{"id":"i","nodeId":"n","command":"system.run","paramsJSON":null,"idempotencyKey":"k"}"#
    );
}

#[test]
fn the_hash_of_variables_is_that_of_sorted_pairs() {
    let env: BTreeMap<String, String> = [("B", "x\"\u{7}é"), ("A", "1")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    // By Node.js, over [["A","1"],["B","x\"\u0007é"]].
    let hash = "a97e6f943b6e146ae8a0fcf7c938a0e1011d85224acbcf41c0b02784381d1902";
    assert_eq!(env_hash(&env).as_deref(), Some(hash));
    assert_eq!(env_hash(&BTreeMap::new()), None);
}

#[test]
fn an_approval_covers_only_the_run_that_it_is_for() {
    let env: BTreeMap<String, String> = [("A".to_owned(), "1".to_owned())].into();
    let none = BTreeMap::new();
    let argv = words(&["ls"]);
    let binding = |cwd, env| SystemRunBinding::new(&argv, cwd, Some("main"), None, env);
    let covers = |approved: &SystemRunBinding, run: &SystemRunBinding| {
        approved.covers(run).map_err(|refusal| refusal.detail)
    };
    assert_eq!(
        covers(&binding(Some("/tmp"), &env), &binding(Some(" /tmp "), &env)),
        Ok(())
    );
    assert_eq!(
        covers(&binding(Some("/tmp"), &none), &binding(None, &none)),
        Err("APPROVAL_REQUEST_MISMATCH")
    );
    assert_eq!(
        covers(&binding(None, &none), &binding(None, &env)),
        Err("APPROVAL_ENV_BINDING_MISSING")
    );
    assert_eq!(
        covers(&binding(None, &env), &binding(None, &none)),
        Err("APPROVAL_ENV_MISMATCH")
    );
    let nothing = SystemRunBinding::new(&[], None, None, None, &none);
    assert_eq!(covers(&nothing, &nothing), Err("APPROVAL_REQUEST_MISMATCH"));
    assert_eq!(
        serde_json::to_string(&binding(Some("/tmp"), &none)).unwrap(),
        r#"{"argv":["ls"],"cwd":"/tmp","agentId":"main","sessionKey":null,"envHash":null}"#
    );
}

proptest! {
    #[test]
    fn both_texts_of_any_command_are_accepted_with_it(argv in prop::collection::vec(".*", 1..5), text in "[a-z].*") {
        let shown = format_exec_command(&argv);
        prop_assert!(command_text(&argv, Some(&shown)).is_ok());
        let shell = vec!["/bin/sh".to_owned(), "-lc".to_owned(), text.clone()];
        prop_assert!(command_text(&shell, Some(&text)).is_ok());
    }

    #[test]
    fn kept_output_never_exceeds_the_limit(parts in prop::collection::vec((any::<bool>(), 0_usize..60_000), 0..10)) {
        let mut output = RunOutput::default();
        let mut sent = 0;
        for (is_error, length) in parts {
            let stream = if is_error { OutputStream::Stderr } else { OutputStream::Stdout };
            output.push(stream, &vec![b'y'; length]);
            sent += length;
        }
        let dropped = usize::try_from(output.dropped()).unwrap();
        let (stdout, stderr) = output.finish();
        let kept = stdout.matches('y').count() + stderr.matches('y').count();
        prop_assert_eq!(kept, sent.min(MAX_OUTPUT_BYTES));
        prop_assert_eq!(kept + dropped, sent);
    }
}
