//! A hint is a promise: the printed command, pasted as it stands, changes the answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use testkit::Machine;

fn commands(explanation: &Value) -> Vec<String> {
    let remedies = explanation["remedies"].as_array().unwrap();
    let commands = remedies.iter().map(|remedy| remedy["command"].as_str());
    commands
        .map(|command| command.unwrap().to_owned())
        .collect()
}

/// Explains, runs every hint, explains again.
#[track_caller]
fn follow(machine: &Machine, arguments: &[&str]) -> (String, usize, String) {
    let before = machine.explain(arguments);
    let hints = commands(&before);
    for hint in &hints {
        let run = machine.paste(hint);
        assert_eq!(run.code, 0, "{hint}: {run:#?}");
    }
    let after = machine.explain(arguments);
    let verdict = |value: &Value| value["verdict"].as_str().unwrap().to_owned();
    (verdict(&before), hints.len(), verdict(&after))
}

#[test]
fn hints_about_entries_lead_to_an_allow() {
    let script = "work/it's here.sh";
    let cases: &[(&str, &[&str])] = &[
        ("a name", &["--", "ls -l"]),
        ("a path", &["--", "./tool --flag"]),
        ("a path with blanks and quotes", &["--", "./it's here.sh"]),
        ("two misses", &["--", "ls && make all"]),
        ("a safe bin with a file", &["--", "head notes.txt"]),
        ("a link", &["--", "linked"]),
        ("an opaque program", &["--", "xargs rm -f"]),
        (
            "an opaque program by its path",
            &["--", "/usr/bin/xargs rm"],
        ),
        (
            "a wrapper outside of the trusted directories",
            &["--", "nice ls"],
        ),
        ("another agent", &["--agent", "Helper", "--", "ls"]),
        ("arguments of another entry", &["--", "git push"]),
        ("another directory", &["--", "python3 x.py"]),
        ("a variable without an entry", &["--", "FOO=1 ls"]),
        (
            "a variable of an entry with arguments",
            &["--", "FOO=1 git status"],
        ),
        (
            "a variable behind env",
            &["--", "/usr/bin/env 'FOO=it is' rg x"],
        ),
        (
            "a variable for another directory",
            &["--", "FOO=1 python3 x.py"],
        ),
        (
            "an override with blanks and quotes",
            &["--env", "FOO=it's a b", "--", "rg x"],
        ),
        (
            "an override of two programs",
            &["--env", "FOO=1", "--", "rg x && ls"],
        ),
        (
            "an override and a safe bin",
            &["--env", "FOO=1", "--", "/usr/bin/head -n 3"],
        ),
        (
            "a value that is not harmless",
            &["--env", "TZ=/etc/x", "--", "rg x"],
        ),
        (
            "a secret",
            &[
                "--env",
                "API_KEY=sk-abcdefghijklmnopqrstuvwxyz012345",
                "--",
                "rg x",
            ],
        ),
        (
            "an entry for every program",
            &["--agent", "wide", "--", "FOO=1 rg x"],
        ),
        ("a terminal", &["--pty", "--", "ls"]),
        ("a terminal and an entry", &["--pty", "--", "git status"]),
        (
            "an open stdin and a variable",
            &["--stdin", "pipe", "--env", "FOO=1", "--", "rg x"],
        ),
    ];
    for (name, arguments) in cases {
        let machine = Machine::new();
        machine.start();
        machine.know_agents(&["helper", "wide"]);
        machine.native("head");
        machine.native("nice");
        std::fs::rename(machine.native("tool"), machine.work().join("tool")).unwrap();
        machine.script(script, "#!/bin/sh\n");
        std::os::unix::fs::symlink(machine.bin().join("ls"), machine.bin().join("linked")).unwrap();
        machine.ok(&["approvals", "allowlist", "add", "--arg=status", "git"]);
        machine.ok(&["approvals", "allowlist", "add", "rg"]);
        machine.ok(&["approvals", "allowlist", "add", "--agent", "wide", "*"]);
        machine.ok(&[
            "approvals",
            "allowlist",
            "add",
            "--cwd",
            "/elsewhere",
            "python3",
        ]);
        let arguments: Vec<&str> = match *name {
            // As a vector, so that the blank and the quote belong to the name.
            "a path with blanks and quotes" => vec!["--argv", "--", arguments[1]],
            _ => arguments.to_vec(),
        };
        let (before, hints, after) = follow(&machine, &arguments);
        assert!(hints > 0, "{name}: no hint");
        // Without the entry it is asked about, or cannot be approved at all.
        assert!(
            ["ask", "refused"].contains(&before.as_str()),
            "{name}: {before}"
        );
        assert_eq!(after, "allow", "{name}");
    }
}

/// A hint grants the command's own shape, and nothing beside it.
#[test]
fn a_hint_allows_the_same_command_and_no_other_one() {
    let cases: &[(&str, &[&str])] = &[
        ("git status", &["git push", "git status -s", "git"]),
        ("git log -n 3", &["git log", "git log -n 3 --output=x"]),
        ("git", &["git status", "git push"]),
        ("make all", &["make install", "make", "make all install"]),
        ("make", &["make all", "make -f x"]),
        ("rg TODO", &["rg --pre sh TODO", "rg TODO /etc"]),
        ("rg 'a.*b?'", &["rg 'a.xb?'", "rg 'a.*b?' /etc", "rg"]),
        ("python3 x.py", &["python3 y.py", "python3 -c 1", "python3"]),
        ("./tool --flag", &["./tool", "./tool --other"]),
        ("ls && make all", &["make install", "ls && make"]),
    ];
    for (command, others) in cases {
        let machine = Machine::new();
        machine.start();
        std::fs::rename(machine.native("tool"), machine.work().join("tool")).unwrap();
        for name in ["git", "make", "rg", "python3"] {
            machine.native(name);
        }
        let (before, hints, after) = follow(&machine, &["--", command]);
        assert!(hints > 0, "{command}: no hint");
        assert_ne!(before, "allow", "{command}");
        assert_eq!(after, "allow", "{command}");
        for other in *others {
            assert_ne!(machine.verdict(other), "allow", "{command} allows {other}");
        }
    }
    // What an interpreter runs is a file of the directory.
    let machine = Machine::new();
    machine.start();
    machine.native("python3");
    follow(&machine, &["--", "python3 x.py"]);
    let elsewhere = machine.root().display().to_string();
    let other = machine.explain(&["--cwd", &elsewhere, "--", "python3 x.py"]);
    assert_ne!(other["verdict"], "allow", "{other}");
}

/// Filters and readers of the system stand for themselves: they do no harm with any arguments.
#[test]
fn a_reader_of_the_system_is_added_as_a_program() {
    let machine = Machine::new();
    machine.start();
    let (before, hints, after) = follow(&machine, &["--", "/usr/bin/cat notes.txt"]);
    assert_eq!(
        (before.as_str(), hints, after.as_str()),
        ("ask", 1, "allow")
    );
    assert_eq!(machine.verdict("/usr/bin/cat other.txt"), "allow");
}

/// Text that no entry satisfies says how it can be written instead.
#[test]
fn lines_that_are_not_plain_get_a_suggestion() {
    let machine = Machine::new();
    machine.start();
    for (command, word) in [
        ("ls $HOME", "variable"),
        ("echo $(date)", "inner command"),
        ("diff <(ls) x", "inner command"),
        ("ls > out", "apply_patch"),
        ("cat <<E\nx\nE", "apply_patch"),
        ("for i in 1 2; do ls; done", "script file"),
        ("(ls)", "script file"),
        ("ls; cd work; ls", "workdir"),
        ("FOO=1", "in front of the command"),
        ("ls 'x", "single quotes"),
        ("bash", "instead of a shell"),
        ("no-such-program", "path of the program"),
        ("xargs", "inner program"),
    ] {
        let explanation = machine.explain(&["--", command]);
        assert_ne!(explanation["verdict"], "allow", "{command}");
        let suggestion = explanation["suggestion"].as_str();
        let suggestion = suggestion.unwrap_or_else(|| panic!("{command}: {explanation}"));
        assert!(suggestion.contains(word), "{command}: {suggestion}");
        let shown = machine.ok(&["explain", "--", command]).stdout;
        assert!(shown.contains(&format!("hint: {suggestion}")), "{shown}");
    }
}

/// An entry for a program that starts others is added with a warning, whose narrower form can be pasted.
#[test]
fn broad_entries_come_with_a_warning_and_a_narrower_form() {
    for program in ["git", "find", "ssh", "docker", "python3", "make", "*"] {
        let machine = Machine::new();
        machine.start();
        let added = machine.ok(&["approvals", "allowlist", "add", "--agent", "main", program]);
        let (_, narrower) = added
            .stderr
            .split_once("narrower: ")
            .unwrap_or_else(|| panic!("{program}: {added:#?}"));
        let pasted = machine.paste(narrower.trim_end());
        assert_eq!(pasted.code, 0, "{program}: {pasted:#?}");
        assert!(
            !pasted.stderr.contains("warning:"),
            "{program}: {pasted:#?}"
        );
        let told = machine
            .ok(&["approvals", "allowlist", "add", "--json", program])
            .json();
        assert_eq!(told["warnings"].as_array().unwrap().len(), 1, "{told}");
    }
    let machine = Machine::new();
    machine.start();
    for flags in [&["ls"][..], &["--arg=status", "git"]] {
        let mut all = vec!["approvals", "allowlist", "add"];
        all.extend(flags);
        let added = machine.ok(&all);
        assert!(!added.stderr.contains("warning:"), "{added:#?}");
    }
}

/// A rule for a subcommand or a flag means every spelling of it.
#[test]
fn deny_rules_know_global_options_and_other_spellings_of_flags() {
    let machine = Machine::open();
    let run = machine.set_document(
        r#"{ version: 1,
            defaults: { security: "full", ask: "off" },
            agents: { "*": { deny: [
                { pattern: "git", args: ["push", "**"] },
                { pattern: "rm", args: ["-rf", "**"] },
                { pattern: "docker", argPattern: "^run\\b" },
            ] } } }"#,
    );
    assert_eq!(run.code, 0, "{run:#?}");
    for command in [
        "git push",
        "git -C . push",
        "git -c user.name=x --no-pager push origin main",
        "git --git-dir=/x --work-tree /y push",
        "/usr/bin/git -C / push",
        "sh -c 'git -C . push'",
        "nice git -C . push",
        "git bisect run git push",
        "git submodule foreach --recursive git push",
        "git submodule foreach 'git push origin'",
        "git rebase -x 'git push' HEAD~1",
        "git rebase --exec='git push' HEAD~1",
        "git difftool -x 'git push' HEAD",
        "git -c alias.x=push x",
        "git -c ALIAS.x='push --force' x origin",
        "git -C . -c alias.x='!git push' x",
        "git-push origin",
        "/usr/lib/git-core/git-push origin",
        "rm -rf x",
        "rm -fr x",
        "rm -r -f x",
        "rm --recursive --force x",
        "rm x -Rf",
        "docker -H tcp://x run y",
    ] {
        assert_eq!(machine.verdict(command), "deny", "{command}");
    }
    for command in [
        "git -C . status",
        "git stash push",
        "git log --grep push",
        "rm -r x",
        "rm -f x",
        "docker ps",
    ] {
        assert_eq!(machine.verdict(command), "allow", "{command}");
    }
}

#[test]
fn hints_about_levels_change_the_answer() {
    let agents = |scope: &str| format!("{{ version: 1, agents: {{ main: {scope} }} }}");
    let defaults = |scope: &str| format!("{{ version: 1, defaults: {scope} }}");
    let listed = |exec: &str| {
        format!("{{ agents: {{ list: [{{ id: 'main', tools: {{ exec: {exec} }} }}] }} }}")
    };
    let tools = |exec: &str| format!("{{ tools: {{ exec: {exec} }} }}");
    let open = defaults("{ security: 'full', ask: 'off' }");
    let cases: &[(String, String, &str, &str, &str)] = &[
        (
            defaults("{ security: 'deny' }"),
            "{}".into(),
            "ls",
            "deny",
            "ask",
        ),
        (
            open.clone(),
            tools("{ security: 'deny' }"),
            "ls",
            "deny",
            "ask",
        ),
        (open.clone(), tools("{ mode: 'deny' }"), "ls", "deny", "ask"),
        (
            open.clone(),
            listed("{ security: 'deny', ask: 'on-miss' }"),
            "ls",
            "deny",
            "ask",
        ),
        (
            defaults("{ security: 'deny' }"),
            listed("{ security: 'deny', ask: 'on-miss' }"),
            "ls",
            "deny",
            "ask",
        ),
        (
            defaults("{ security: 'full', ask: 'always' }"),
            "{}".into(),
            "ls",
            "ask",
            "allow",
        ),
        (
            open.clone(),
            tools("{ ask: 'always' }"),
            "ls",
            "ask",
            "allow",
        ),
        (
            open.clone(),
            listed("{ ask: 'always' }"),
            "ls",
            "ask",
            "allow",
        ),
        (
            defaults("{ security: 'allowlist', ask: 'off' }"),
            "{}".into(),
            "ls > x",
            "deny",
            "ask",
        ),
        (
            defaults("{ security: 'allowlist', ask: 'off' }"),
            "{}".into(),
            "echo $(ls)",
            "deny",
            "ask",
        ),
        (
            defaults("{ security: 'allowlist', ask: 'off' }"),
            tools("{ mode: 'allowlist' }"),
            "ls > x",
            "deny",
            "ask",
        ),
        (
            defaults("{ security: 'allowlist', ask: 'off' }"),
            listed("{ ask: 'off' }"),
            "ls > x",
            "deny",
            "ask",
        ),
        (
            agents("{ security: 'allowlist', ask: 'off' }"),
            "{}".into(),
            "ls > x",
            "deny",
            "ask",
        ),
    ];
    for (document, config, command, before, after) in cases {
        let machine = Machine::new();
        machine.start();
        assert_eq!(machine.set_document(document).code, 0, "{document}");
        machine.write_config(config);
        let (was, hints, is) = follow(&machine, &["--", command]);
        let place = format!("document {document} config {config} command {command}");
        assert!(hints > 0, "{place}: no hint");
        assert_eq!((was.as_str(), is.as_str()), (*before, *after), "{place}");
    }
}

/// No hint is better than one that does not help.
#[test]
fn what_no_command_changes_has_no_hint() {
    let cases: &[(&str, &[&str])] = &[
        ("the call itself asks", &["--ask", "always", "--", "rg x"]),
        (
            "a level of one agent in the document",
            &["--agent", "closed", "--", "rg x"],
        ),
        (
            "everyone is asked for this agent",
            &["--agent", "careful", "--", "ls"],
        ),
        ("a deny rule", &["--", "make install"]),
        ("a refused variable", &["--env", "LD_PRELOAD=x", "--", "ls"]),
        (
            "one of two programs does not exist",
            &["--", "ls && no-such-program"],
        ),
        ("a shell", &["--", "bash"]),
        ("an opaque program without arguments", &["--", "xargs"]),
        ("a wildcard would allow more", &["--", "xargs", "rm", "*.o"]),
        ("text that no entry satisfies", &["--", "ls $HOME"]),
        ("a blocked assignment", &["--", "LD_PRELOAD=x rg x"]),
        (
            "a blocked assignment of env",
            &["--", "/usr/bin/env LD_PRELOAD=x rg x"],
        ),
        (
            "a value that is a pattern",
            &["--env", "FOO=a*", "--", "rg x"],
        ),
    ];
    let machine = Machine::new();
    machine.start();
    let run = machine.set_document(
        r#"{ version: 1,
            defaults: { security: "allowlist", ask: "on-miss" },
            agents: {
                "*": { allowlist: ["rg"], deny: [{ pattern: "make" }] },
                closed: { security: "deny" },
                careful: { ask: "always" },
            } }"#,
    );
    assert_eq!(run.code, 0, "{run:#?}");
    for (name, arguments) in cases {
        let explanation = machine.explain(arguments);
        assert_ne!(explanation["verdict"], "allow", "{name}");
        assert_eq!(commands(&explanation), Vec::<String>::new(), "{name}");
    }
}

/// Hints for a state directory that was named lead to that one.
#[test]
fn hints_lead_to_the_same_state() {
    let machine = Machine::new();
    let state = machine.root().join("other state");
    let config = machine.file("other.json5", "{}");
    let flags = [
        "--state-dir",
        state.to_str().unwrap(),
        "--config",
        config.to_str().unwrap(),
    ];
    let explain = || {
        let mut all = flags.to_vec();
        all.extend(["explain", "--json", "--", "ls"]);
        machine.ok(&all)
    };
    let first = explain();
    assert!(
        first.stderr.contains(&format!(
            "interlock --state-dir '{}' --config {} exec-policy preset yolo",
            state.display(),
            config.display()
        )),
        "{first:#?}"
    );
    let hints = commands(&first.json());
    assert_eq!(machine.paste(&hints[0]).code, 0);
    assert_eq!(explain().json()["verdict"], "allow");
    assert!(!machine.state().exists());
}

/// The command of the first start's notice does what it says.
#[test]
fn the_notice_of_the_first_start_names_a_command_that_works() {
    let machine = Machine::new();
    let notice = machine.ok(&["exec-policy", "show"]).stderr;
    let command = notice.trim_end().rsplit(": ").next().unwrap();
    assert_eq!(machine.verdict("ls"), "ask");
    assert_eq!(machine.paste(command).code, 0, "{command}");
    assert_eq!(machine.verdict("ls > x; $(make)"), "allow");
}

#[test]
fn hints_of_every_layer_lead_to_the_state_that_was_named() {
    let machine = Machine::new();
    let state = machine.root().join("other state");
    let state = state.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let mut all = vec!["--state-dir", state];
        all.extend(arguments);
        machine.run(&all)
    };
    let hint = |arguments: &[&str], code: &str| {
        let refused = run(arguments);
        assert_eq!(refused.error_code(), code, "{refused:#?}");
        let mut lines = refused.stderr.lines();
        let hint = lines.find_map(|line| line.strip_prefix("hint: "));
        hint.unwrap_or_else(|| panic!("{refused:#?}")).to_owned()
    };
    assert_eq!(run(&["config", "set", "gateway.bind", "lan"]).code, 0);
    assert_eq!(run(&["config", "set", "gateway.auth.mode", "none"]).code, 0);
    let gateway = ["gateway", "run", "--port", "0"];
    let set = hint(&gateway, "BIND_WITHOUT_AUTH");
    assert_eq!(machine.paste(&set).code, 0, "{set}");
    assert_eq!(
        run(&["config", "get", "gateway.auth.mode"]).stdout.trim(),
        "token"
    );
    assert_eq!(run(&["config", "set", "gateway.bind", "loopback"]).code, 0);
    assert_eq!(run(&["nodes", "list"]).code, 0);
    let both = hint(&gateway, "GATEWAY_ALREADY_RUNS");
    let (status, stop) = both.split_once("; ").unwrap();
    for one in [status, stop] {
        let (_, command) = one.split_once(": ").unwrap();
        assert_eq!(machine.paste(command).code, 0, "{command}");
    }
    // What is to be done on another machine has nothing of this one.
    let elsewhere = hint(
        &["exec", "--host", "node", "--", "true"],
        "NODE_UNAVAILABLE",
    );
    assert!(
        elsewhere.contains("interlock node run --host"),
        "{elsewhere}"
    );
    let all = hint(
        &["approvals", "allowlist", "remove", "x"],
        "ENTRY_NOT_FOUND",
    );
    let (_, command) = all.split_once(": ").unwrap();
    assert_eq!(machine.paste(command).code, 0, "{command}");
}
