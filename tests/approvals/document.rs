//! `interlock approvals`: the document of this host, read, replaced and changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::Machine;

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

/// Everything that is trusted, in the order of the document.
fn patterns(machine: &Machine, agent: &str) -> Vec<String> {
    let (document, _) = machine.document();
    let entries = document["agents"][agent]["allowlist"].as_array().cloned();
    let entries = entries.unwrap_or_default();
    let pattern = |entry: &Value| entry["pattern"].as_str().unwrap().to_owned();
    entries.iter().map(pattern).collect()
}

#[test]
fn get_shows_levels_with_their_sources_and_the_entries() {
    let machine = started();
    let run = machine.set_document(
        r#"{ version: 1,
            defaults: { security: "allowlist", ask: "on-miss", askFallback: "deny" },
            agents: {
                "*": {
                    allowlist: [
                        { pattern: "rg" },
                        { pattern: "/opt/tools/**", cwd: "/srv/**", note: "build tools" },
                        { pattern: "old", expiresAt: 1 },
                        { pattern: "/usr/bin/tar", source: "allow-always" },
                    ],
                    deny: [{ pattern: "shutdown", reason: "this machine stays on" }],
                },
                main: { allowlist: [{ pattern: "git", args: ["log", "two words", "**"] }] },
                "build.bot": { ask: "off", allowlist: [{ pattern: "make", argPattern: "^all$" }] },
            } }"#,
    );
    assert_eq!(run.code, 0, "{run:#?}");
    machine.ok(&["config", "set", "tools.exec.security", "full"]);
    let all = machine.ok(&["approvals", "get"]);
    insta::assert_snapshot!("approvals_get", machine.stable(&all.stdout));
    let one = machine.ok(&["approvals", "get", "--agent", "build.bot"]);
    insta::assert_snapshot!("approvals_get_one_agent", machine.stable(&one.stdout));
    let every = machine.ok(&["approvals", "get", "--agent", "*"]);
    assert_eq!(every.stdout, all.stdout);
    let json = machine
        .ok(&["approvals", "get", "--agent", "build.bot", "--json"])
        .json();
    assert_eq!(
        json["effective"]["build.bot"]["ask"]["effective"]["value"],
        "off"
    );
    assert_eq!(
        json["effective"]["build.bot"]["security"]["layers"][0],
        json!({ "value": "full", "source": "config", "path": "tools.exec.security" })
    );
    assert!(json["updatedAtMs"].as_u64().is_some());
}

#[test]
fn a_document_in_json5_is_stored_and_given_back() {
    let machine = started();
    let file = machine.file(
        "approvals.json5",
        "// trusted for years\n{ version: 1, /* none */ agents: { main: { allowlist: ['rg', { pattern: 'git', },], }, }, }\n",
    );
    let run = machine.ok(&["approvals", "set", "--file", file.to_str().unwrap()]);
    insta::assert_snapshot!("approvals_set", machine.stable(&run.stdout));
    assert_eq!(patterns(&machine, "main"), ["rg", "git"]);
    // What `get` gives, `set` takes: nothing changes, not even the hash.
    let (document, hash) = machine.document();
    assert_eq!(machine.set_document(&document.to_string()).code, 0);
    assert_eq!(machine.document(), (document, hash));
}

#[test]
fn the_old_name_of_the_main_agent_is_read_as_the_new_one() {
    let machine = started();
    let run = machine.set_document("{ version: 1, agents: { default: { allowlist: ['ls'] } } }");
    assert_eq!(run.code, 0, "{run:#?}");
    let (document, _) = machine.document();
    assert_eq!(
        document["agents"],
        json!({ "main": { "allowlist": [{ "pattern": "ls" }] } })
    );
    let run = machine.ok(&[
        "approvals",
        "allowlist",
        "add",
        "--agent",
        "default",
        "make",
    ]);
    assert!(run.stdout.contains("to agents.main.allowlist"), "{run:#?}");
    let both = machine.set_document("{ version: 1, agents: { default: {}, main: {} } }");
    both.refused(1, "DOCUMENT_INVALID");
}

#[test]
fn a_change_that_names_an_old_hash_is_refused() {
    let machine = started();
    let (_, old) = machine.document();
    let set = |hash: &str, pattern: &str| {
        let text = format!("{{ version: 1, agents: {{ main: {{ allowlist: ['{pattern}'] }} }} }}");
        machine.run_with_input(
            &["approvals", "set", "--stdin", "--base-hash", hash],
            text.as_bytes(),
        )
    };
    assert_eq!(set(&old, "first").code, 0);
    let late = set(&old, "second");
    late.refused(1, "DOCUMENT_CHANGED");
    assert!(
        late.stderr
            .contains("exec approvals changed; reload and retry"),
        "{late:#?}"
    );
    assert!(late.stderr.contains("hint: "), "{late:#?}");
    set("nonsense", "third").refused(1, "DOCUMENT_CHANGED");
    assert_eq!(patterns(&machine, "main"), ["first"]);
    let (_, new) = machine.document();
    let run = machine.run_with_input(
        &["approvals", "set", "--stdin", "--base-hash", &new, "--json"],
        b"{ version: 1 }",
    );
    assert_eq!(run.json()["hash"], json!(machine.document().1));
}

/// Whatever is wrong with a document: it is refused as a whole, and the one in force stays.
#[test]
fn a_document_with_a_problem_changes_nothing() {
    let machine = started();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    let before = machine.document();
    let cases: &[(&str, &str)] = &[
        (
            "broken_regex",
            "{\n  version: 1,\n  agents: {\n    main: { allowlist: [{ pattern: \"git\", argPattern: \"^(status\" }] },\n  },\n}\n",
        ),
        (
            "unknown_key",
            "{ version: 1,\n  defaults: { securty: \"full\" } }\n",
        ),
        (
            "unknown_key_far_from_all",
            "{ version: 1, zzzzzzzzzz: 1 }\n",
        ),
        (
            "wrong_value",
            "{ version: 1, defaults: { ask: \"sometimes\" } }\n",
        ),
        (
            "wrong_type",
            "{ version: 1, agents: { main: { allowlist: {} } } }\n",
        ),
        (
            "wrong_type_in_an_entry",
            "{ version: 1, agents: { main: { allowlist: [{ pattern: 7 }] } } }\n",
        ),
        (
            "two_problems",
            "{ version: 2,\n  agents: { main: { aks: \"off\" } } }\n",
        ),
        ("no_version", "{ agents: {} }\n"),
        ("not_an_object", "[1, 2]\n"),
        ("never_closed", "{ version: 1, agents: {\n"),
        ("bad_agent", "{ version: 1, agents: { \"a b\": {} } }\n"),
        (
            "entries_in_defaults",
            "{ version: 1, defaults: { allowlist: [\"rg\"] } }\n",
        ),
        ("empty", ""),
        (
            "nul",
            "{ version: 1, agents: { main: { allowlist: [\"a\0b\"] } } }\n",
        ),
    ];
    for (name, text) in cases {
        let run = machine.set_document(text);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{name}: {run:#?}");
        insta::assert_snapshot!(format!("approvals_set_{name}"), machine.stable(&run.stderr));
        assert_eq!(machine.document(), before, "{name}");
    }
}

#[test]
fn a_document_that_is_no_text_is_refused() {
    let machine = started();
    let before = machine.document();
    let large = format!("{{ version: 1, x: \"{}\" }}", "x".repeat(5 * 1024 * 1024));
    let cases: &[(&str, Vec<u8>)] = &[
        ("not UTF-8", b"{ version: 1, \xff: 1 }".to_vec()),
        ("5 MB", large.into_bytes()),
        ("binary", vec![0; 4096]),
        ("deep", "[".repeat(100_000).into_bytes()),
    ];
    for (name, text) in cases {
        let file = machine.file("document", text);
        let by_file = machine.run(&["approvals", "set", "--file", file.to_str().unwrap()]);
        by_file.refused(1, "DOCUMENT_INVALID");
        let by_stdin = machine.run_with_input(&["approvals", "set", "--stdin"], text);
        by_stdin.refused(1, "DOCUMENT_INVALID");
        assert!(by_file.stderr.len() < 1000, "{name}: {by_file:#?}");
        assert_eq!(machine.document(), before, "{name}");
    }
    for path in [machine.root().to_str().unwrap(), "/no/such/file"] {
        let run = machine.run(&["approvals", "set", "--file", path]);
        run.refused(1, "DOCUMENT_UNREADABLE");
        assert!(
            run.stderr.contains(path) && run.stderr.contains("hint: "),
            "{run:#?}"
        );
    }
    // A file without an end is not read to its end.
    let run = machine.run(&["approvals", "set", "--file", "/dev/zero"]);
    run.refused(1, "DOCUMENT_INVALID");
}

#[test]
fn entries_are_added_and_removed() {
    let machine = started();
    let add = |arguments: &[&str]| {
        let mut all = vec!["approvals", "allowlist", "add"];
        all.extend(arguments);
        machine.run(&all)
    };
    let transcript = [
        add(&["rg"]),
        add(&["rg"]),
        add(&[
            "--agent",
            "main",
            "--arg=status",
            "--arg=--short",
            "--arg=**",
            "git",
        ]),
        add(&[
            "--agent",
            "main",
            "--arg-pattern",
            "^-n [0-9]+$",
            "--note",
            "numbers",
            "tail",
        ]),
        add(&["--cwd", "/srv/**", "--agent", "main", "/opt/**/bin/*"]),
        add(&["--agent", "main", "bash"]),
        add(&["--agent", "main", "sudo"]),
        add(&["--agent", "main", "--arg=true", "sudo"]),
        machine.run(&["approvals", "allowlist", "remove", "rg"]),
        machine.run(&[
            "approvals",
            "allowlist",
            "remove",
            "--agent",
            "main",
            "sudo",
        ]),
        machine.run(&[
            "approvals",
            "allowlist",
            "remove",
            "--agent",
            "main",
            "never-added",
        ]),
    ];
    let transcript: Vec<String> = transcript
        .iter()
        .map(|run| format!("{}{}exit {}\n", run.stdout, run.stderr, run.code))
        .collect();
    insta::assert_snapshot!(
        "approvals_allowlist",
        machine.stable(&transcript.join("\n"))
    );
    assert_eq!(patterns(&machine, "*"), Vec::<String>::new());
    assert_eq!(
        patterns(&machine, "main"),
        ["git", "tail", "/opt/**/bin/*", "bash"]
    );
}

#[test]
fn an_entry_is_removed_by_its_id() {
    let machine = started();
    let added = |pattern: &str| {
        let run = machine.ok(&[
            "approvals",
            "allowlist",
            "add",
            "--json",
            "--expires-in",
            "2h",
            pattern,
        ]);
        run.json()
    };
    let (first, second) = (added("rg"), added("rg"));
    assert_eq!(
        (&first["added"], &first["agent"]),
        (&json!(true), &json!("*"))
    );
    assert_ne!(first["entry"]["id"], second["entry"]["id"]);
    let id = first["entry"]["id"].as_str().unwrap();
    let removed = machine
        .ok(&["approvals", "allowlist", "remove", "--json", id])
        .json();
    assert_eq!(removed["removed"], json!([first["entry"]]));
    assert_eq!(patterns(&machine, "*"), ["rg"]);
}

#[test]
fn an_entry_ends_when_it_was_said_to_end() {
    let machine = started();
    machine.ok(&["approvals", "allowlist", "add", "--expires-in", "1h", "ls"]);
    assert_eq!(machine.verdict("ls"), "allow");
    let (mut document, _) = machine.document();
    document["agents"]["*"]["allowlist"][0]["expiresAt"] = json!(1_000);
    assert_eq!(machine.set_document(&document.to_string()).code, 0);
    let explanation = machine.explain(&["--", "ls"]);
    assert_eq!(explanation["verdict"], "ask");
    assert_eq!(explanation["reason"]["code"], "entry-expired");
}

#[test]
fn an_entry_that_could_not_work_is_refused_when_it_is_added() {
    let machine = started();
    let before = machine.document();
    let cases: &[(&[&str], &str)] = &[
        (&["--arg-pattern", "(", "git"], "ENTRY_INVALID"),
        (&["--arg-pattern", "(?=x)", "git"], "ENTRY_INVALID"),
        (&["relative/path"], "ENTRY_INVALID"),
        (&[""], "ENTRY_INVALID"),
        (&["--cwd", "relative", "git"], "ENTRY_INVALID"),
        (&["--agent", "a b", "git"], "AGENT_INVALID"),
        (&["--expires-in", "soon", "git"], "DURATION_INVALID"),
        (&["--expires-in", "", "git"], "DURATION_INVALID"),
        (&["--expires-in", "0h", "git"], "DURATION_INVALID"),
        (
            &["--expires-in", "99999999999999999999d", "git"],
            "DURATION_INVALID",
        ),
        (&["--expires-in", "7é", "git"], "DURATION_INVALID"),
    ];
    for (arguments, code) in cases {
        let mut all = vec!["approvals", "allowlist", "add"];
        all.extend(*arguments);
        machine.run(&all).refused(2, code);
        assert_eq!(machine.document(), before, "{arguments:?}");
    }
    let json = machine.run(&[
        "approvals",
        "allowlist",
        "add",
        "--json",
        "--arg-pattern",
        "(",
        "git",
    ]);
    let error: Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["error"]["code"], "ENTRY_INVALID");
}

/// Many processes write at once; the second writer reads again, and nothing is lost.
#[test]
fn writers_at_once_lose_no_update() {
    const WRITERS: usize = 16;
    let machine = started();
    let spawn = |arguments: &[&str]| {
        let mut command = machine.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let names: Vec<String> = (0..WRITERS)
        .map(|number| format!("program-{number}"))
        .collect();
    let mut children: Vec<_> = names
        .iter()
        .map(|name| spawn(&["approvals", "allowlist", "add", name]))
        .collect();
    // Another kind of change, of the same document, in between.
    children.push(spawn(&[
        "exec-policy",
        "set",
        "--ask-fallback",
        "allowlist",
    ]));
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let mut stored = patterns(&machine, "*");
    stored.sort();
    let mut expected = names;
    expected.sort();
    assert_eq!(stored, expected);
    assert_eq!(machine.document().0["defaults"]["askFallback"], "allowlist");
}

/// The socket's token stays on the host: never shown, and kept when a document comes without it.
#[test]
fn the_token_of_the_socket_is_never_shown() {
    let machine = started();
    let run = machine
        .set_document("{ version: 1, socket: { path: '/run/x.sock', token: 'sesame-open' } }");
    assert_eq!(run.code, 0, "{run:#?}");
    for arguments in [&["approvals", "get"][..], &["approvals", "get", "--json"]] {
        let run = machine.ok(arguments);
        assert!(!run.stdout.contains("sesame"), "{run:#?}");
    }
    let wrong = machine.set_document("{ version: 1, socket: { token: 'sesame-open', tokn: 1 } }");
    wrong.refused(1, "DOCUMENT_INVALID");
    assert!(!wrong.stderr.contains("sesame"), "{wrong:#?}");
    let (document, hash) = machine.document();
    assert_eq!(document["socket"], json!({ "path": "/run/x.sock" }));
    // The hash is over everything, so the same hash means the same token.
    assert_eq!(machine.set_document(&document.to_string()).code, 0);
    assert_eq!(machine.document().1, hash);
}

#[test]
fn an_import_takes_what_can_be_read_and_names_the_rest() {
    let machine = started();
    let path = machine.file(
        "old.json",
        r#"{ "version": 1, "defaults": { "security": "deny", "ask": "never" },
             "agents": { "*": { "security": "full" }, "runner": { "security": "none", "allowlist": [{ "pattern": "rg" }] } } }"#,
    );
    let path = path.to_str().unwrap();
    let strict = machine.run(&["approvals", "set", "--file", path]);
    assert_eq!(strict.code, 1, "{strict:#?}");
    let import = machine.ok(&["approvals", "set", "--import", "--file", path]);
    for left_out in ["defaults.ask", "agents.runner.security"] {
        assert!(import.stderr.contains(left_out), "{import:#?}");
    }
    assert_eq!(patterns(&machine, "runner"), ["rg"]);
    let (document, _) = machine.document();
    assert_eq!(document["agents"]["runner"]["security"], "deny");
}
