//! What a sandbox denied to a run, and asking an approver to run the same command outside, once.

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::EVERYTHING;

use crate::site::{Site, USUAL, everywhere};

/// Calls of the command line may leave, by the host's policy.
fn open_gates(site: &Site) {
    site.machine.configure(&format!(
        "{{ tools: {{ elevated: {{ enabled: true, allowFrom: {{ cli: ['*'] }} }} }},
           agents: {{ defaults: {{ sandbox: {{ {USUAL} }} }} }} }}"
    ));
    let open = r#"{ version: 1, defaults: { security: "full", ask: "off" } }"#;
    assert_eq!(site.machine.set_document(open).code, 0);
}

fn denials(result: &Value) -> Vec<(String, String)> {
    let list = result["sandbox"]["denials"].as_array();
    let list = list.unwrap_or_else(|| panic!("{result:#}"));
    let text = |denial: &Value, name: &str| denial[name].as_str().unwrap_or_default().to_owned();
    let rows = list.iter().map(|denial| {
        let what = match denial["kind"].as_str().unwrap() {
            "limit" => text(denial, "name"),
            _ => text(denial, "path"),
        };
        let how = format!("{} {}", text(denial, "kind"), text(denial, "certainty"));
        (how, what)
    });
    rows.collect()
}

#[test]
fn a_result_lists_what_the_sandbox_denied() {
    everywhere(USUAL, |site| {
        let data = site.home().join("data");
        site.owned(&data.join("file"), "HOST");
        site.owned(&site.home().join(".ssh/id_x"), "SECRET");
        let tool = site.home().join("tools/own-tool");
        site.owned(&tool, "#!/bin/sh\necho tool\n");
        site.host(&["/usr/bin/chmod", "755", tool.to_str().unwrap()]);
        let path = |name: &str| site.home().join(name).display().to_string();
        // Hidden, and there on the host.
        let result = site.result(&format!("cat {}", path("data/file")));
        let probable = ("path probable".to_owned(), path("data/file"));
        assert_eq!(denials(&result), [probable], "{result:#}");
        // Neither what is nowhere, nor what no bind may show, nor words alone.
        for text in [
            format!("cat {}", path("data/missing")),
            format!("cat {}", path(".ssh/id_x")),
            format!("cat {}/interlock.db", site.machine.state().display()),
            "cat /etc/shadow".to_owned(),
            "cat missing; echo permission denied; exit 1".to_owned(),
            "true".to_owned(),
        ] {
            let result = site.result(&text);
            assert_eq!(denials(&result), [], "{text}: {result:#}");
        }
        // Read-only inside, and the owner's on the host.
        site.configure(&format!(
            "{USUAL}, binds: ['{}:{}:ro']",
            data.display(),
            data.display()
        ));
        let result = site.result(&format!("echo x > {}", path("data/file")));
        let refused = ("path probable".to_owned(), path("data/file"));
        assert_eq!(denials(&result), [refused], "{result:#}");
        // A limit is certain.
        site.configure(&format!("{USUAL}, limits: {{ outputBytes: '1k' }}"));
        let result = site.result("yes");
        assert_eq!(
            denials(&result),
            [("limit certain".to_owned(), "output".to_owned())]
        );
        // A program of the host that the sandbox does not show.
        let tools = site.home().join("tools");
        let config = format!(
            "{{ tools: {{ exec: {{ pathPrepend: ['{}'] }} }}, agents: {{ defaults: {{ sandbox: {{ {USUAL} }} }} }} }}",
            tools.display()
        );
        site.machine.configure(&config);
        let result = site.result("own-tool");
        let program = ("program certain".to_owned(), tool.display().to_string());
        assert_eq!(denials(&result), [program], "{result:#}");
    });
}

/// The whole way: denied inside, asked about with the caller's words, allowed once, run outside once.
#[test]
fn a_denied_run_is_repeated_outside_once_after_an_approver_read_why() {
    everywhere(USUAL, |site| {
        open_gates(site);
        let file = site.home().join("data/file");
        site.owned(&file, "HOST");
        let read = format!("cat {}", file.display());
        let result = site.result(&read);
        let run = result["sandbox"]["runId"].as_str().unwrap().to_owned();
        let why = "the data is\nthere \u{202e}evil; \u{1b}[31mapprove";
        let retry = [
            "--elevated",
            "--retry-of",
            &run,
            "--justification",
            why,
            "--",
            &read,
        ];
        // The host's policy would allow it without a prompt: the retry prompts all the same.
        let id = site.machine.put_down(&retry);
        let shown = site.machine.ok(&["approvals", "pending"]).stdout;
        for expected in [
            "leaves the sandbox",
            "denied",
            &format!(
                "interlock sandbox bind --agent main --session agent:main:main {}:ro",
                file.display()
            ),
            "the caller's words",
            "the data is",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        assert!(
            !shown.contains('\u{202e}') && !shown.contains('\u{1b}'),
            "{shown:?}"
        );
        let keeps = shown.find("sandbox bind").unwrap();
        assert!(keeps < shown.find("the caller's words").unwrap(), "{shown}");
        // Once is all that is offered.
        for flags in [&["--session"][..], &["--always"]] {
            let mut words = vec!["approvals", "approve", &id];
            words.extend(flags);
            assert_ne!(site.machine.run(&words).code, 0, "{flags:?}");
        }
        site.machine.ok(&["approvals", "approve", &id]);
        // Another reason is another request.
        let mut other = retry;
        other[4] = "because";
        site.machine
            .run_approved(&id, &other)
            .refused(1, "APPROVAL_REQUEST_MISMATCH");
        let run = site.machine.run_approved(&id, &retry);
        assert_eq!((run.code, run.stdout.as_str()), (0, "HOST"), "{run:#?}");
        assert_ne!(
            site.machine.run_approved(&id, &retry).code,
            0,
            "it ran twice"
        );
        // The run was asked about once.
        let mut again = vec!["exec", "--no-wait"];
        again.extend(retry);
        site.machine.run(&again).refused(1, "RETRY_REFUSED");
    });
}

/// Only a denied run of the same agent and conversation with the same command can be repeated.
#[test]
fn a_retry_is_for_the_same_command_of_the_same_conversation() {
    everywhere(USUAL, |site| {
        open_gates(site);
        site.machine.know_agents(&["other"]);
        open_gates(site);
        let file = site.home().join("data/file");
        site.owned(&file, "HOST");
        let read = format!("cat {}", file.display());
        let refused = |agent: &str, run: &str, command: &str| {
            let words = [
                "exec",
                "--no-wait",
                "--agent",
                agent,
                "--elevated",
                "--retry-of",
                run,
                "--justification",
                "why",
                "--",
                command,
            ];
            let run = site.machine.run(&words);
            run.refused(1, "RETRY_REFUSED");
        };
        let run_id = |result: Value| result["sandbox"]["runId"].as_str().unwrap().to_owned();
        let denied = run_id(site.result(&read));
        refused("main", &denied, "touch trace");
        refused("main", "no-such-run", &read);
        // A run that was denied nothing.
        let undenied = run_id(site.result("true"));
        refused("main", &undenied, "true");
        // A run outside has nothing to repeat.
        let words = ["exec", "--elevated", "--json", "--", "true"];
        let outside = site.machine.ok(&words).json();
        assert!(outside["sandbox"].is_null(), "{outside:#}");
        assert!(!site.work().join("trace").exists());
        // Closed gates come first.
        site.configure(USUAL);
        let retry = [
            "exec",
            "--elevated",
            "--retry-of",
            &denied,
            "--justification",
            "why",
            "--",
            &read,
        ];
        site.machine.run(&retry).refused(1, "ELEVATED_NOT_ALLOWED");
    });
}

/// What the prompt offers first: the path, for this conversation alone, by the rules of binds.
#[test]
fn a_bind_of_a_conversation_keeps_the_run_inside() {
    everywhere(USUAL, |site| {
        let file = site.home().join("data/file");
        site.owned(&file, "HOST");
        site.owned(&site.home().join(".ssh/id_x"), "SECRET");
        let read = format!("cat {}", file.display());
        let bind = |path: &str| site.machine.run(&["sandbox", "bind", path]);
        for (path, code) in [
            (site.home().join(".ssh").display().to_string(), 1),
            (site.home().display().to_string(), 1),
            ("/etc".to_owned(), 1),
            (site.machine.state().display().to_string(), 1),
            ("relative".to_owned(), 2),
            ("/a:/b:rw".to_owned(), 2),
        ] {
            bind(&path).refused(code, "SANDBOX_BIND");
        }
        assert_ne!(site.inside(&read).code, 0);
        let shown = bind(&format!("{}:ro", file.display()));
        assert_eq!(shown.code, 0, "{shown:#?}");
        assert_eq!(site.says(&read), "HOST");
        let write = format!("echo x > {}", file.display());
        assert_ne!(site.inside(&write).code, 0);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "HOST");
        let removed = [
            "sandbox",
            "bind",
            "--remove",
            &format!("{}:ro", file.display()),
        ];
        site.machine.ok(&removed);
        assert_ne!(site.inside(&read).code, 0);
    });
}

/// Over the gateway: the data and the notes of a result, and the parameters that go together.
#[test]
fn a_gateway_tells_a_caller_what_was_denied_and_how_to_ask() {
    let machine = Machine::new();
    machine.start();
    machine.configure(&format!(
        "{{ tools: {{ elevated: {{ enabled: true, allowFrom: {{ ws: ['*'] }} }} }},
           agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {USUAL} }} }} }} }}",
        machine.work().display()
    ));
    let file = machine.root().join("data");
    machine.write_private(&file, "HOST");
    let read = format!("cat {}", file.display());
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let mut call = |key: &str, args: Value| {
        let call = json!({ "name": "exec", "args": args, "sessionKey": key, "approvalWaitMs": 0 });
        client.call("tools.invoke", &call).unwrap()
    };
    let answer = call("agent:main:a", json!({ "command": read }));
    let details = &answer["output"]["details"];
    let run = details["sandbox"]["runId"].as_str().unwrap().to_owned();
    assert_eq!(
        details["sandbox"]["denials"][0]["path"],
        file.to_str().unwrap()
    );
    assert!(answer.to_string().contains("retryOf"), "{answer:#}");
    let retry = |elevated: Value, run: Value, why: Value| json!({ "command": read, "elevated": elevated, "retryOf": run, "justification": why });
    for args in [
        retry(true.into(), run.clone().into(), Value::Null),
        retry(true.into(), Value::Null, "why".into()),
        retry(false.into(), run.clone().into(), "why".into()),
        retry(true.into(), run.clone().into(), " ".into()),
        retry(true.into(), run.clone().into(), "x".repeat(3_000).into()),
    ] {
        let refused = call("agent:main:a", args);
        assert!(refused.to_string().contains("PARAMETER"), "{refused:#}");
    }
    // Another conversation has no such run.
    let args = retry(true.into(), run.clone().into(), "why".into());
    let refused = call("agent:main:b", args.clone());
    assert_eq!(
        refused["output"]["details"]["code"], "RETRY_REFUSED",
        "{refused:#}"
    );
    let pending = call("agent:main:a", args.clone());
    let pending = &pending["output"]["details"];
    assert_eq!(pending["status"], "approval-pending", "{pending:#}");
    assert_eq!(
        pending["allowedDecisions"],
        json!(["allow-once", "deny"]),
        "{pending:#}"
    );
    let again = call("agent:main:a", args);
    assert_eq!(
        again["output"]["details"]["code"], "RETRY_REFUSED",
        "{again:#}"
    );
    // Once it is allowed it runs by itself, outside, and once.
    let id = pending["approvalId"].as_str().unwrap();
    machine.ok(&["approvals", "approve", id]);
    testkit::eventually("the run outside", || {
        let log = machine
            .ok(&["audit", "log", "--json", "--kind", "run-ended"])
            .stdout;
        log.contains(id) && log.contains("elevated")
    });
}
