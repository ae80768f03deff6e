//! `interlock explain`: what it says for every shape of answer, to people and to programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Machine, finish};

/// Entries for a few programs, a deny rule, and an agent that always asks.
const DOCUMENT: &str = r#"{
    version: 1,
    defaults: { security: "allowlist", ask: "on-miss", askFallback: "deny" },
    agents: {
        "*": {
            allowlist: [{ pattern: "rg" }, { pattern: "python3" }],
            deny: [{ pattern: "make", args: ["install", "**"], reason: "installs nothing here" }],
        },
        main: { allowlist: [{ pattern: "git", args: ["status", "**"] }] },
        careful: { ask: "always" },
        silent: { ask: "off" },
        open: { security: "full", ask: "off" },
        closed: { security: "deny" },
        fallback: { ask: "always", askFallback: "full" },
    },
}"#;

fn machine() -> Machine {
    let machine = Machine::new();
    machine.start();
    let run = machine.set_document(DOCUMENT);
    assert_eq!(run.code, 0, "{run:#?}");
    machine.write_config(&format!(
        "{{ tools: {{ exec: {{ safeBinTrustedDirs: [\"{}\"] }} }} }}\n",
        machine.bin().display()
    ));
    for program in ["head", "env", "nice", "node", "builder"] {
        machine.native(program);
    }
    let builder = machine.bin().join("builder");
    let script = machine.file("work/build.sh", format!("#!{}\n", builder.display()));
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    machine
}

/// What a person reads, in every shape. The rule that decided always stands first.
#[test]
fn people_read_the_deciding_rule_first() {
    let machine = machine();
    let shapes: &[(&str, &[&str])] = &[
        ("allowlist", &["--", "rg -n TODO"]),
        ("allowlist_argv", &["--", "rg", "-n", "two words"]),
        ("entry_with_args", &["--", "git status --short"]),
        ("entry_wants_other_arguments", &["--", "git push"]),
        ("safe_bin_in_a_pipeline", &["--", "rg TODO | head -n 5"]),
        ("safe_bin_with_a_file", &["--", "head notes.txt"]),
        ("builtin", &["--", "cd /usr && pwd"]),
        ("miss", &["--", "ls -l"]),
        ("not_found", &["--", "no-such-program --flag"]),
        ("opaque", &["--", "xargs rm"]),
        ("binds_a_script", &["--", "./build.sh --all"]),
        ("binds_nothing", &["--", "node -r ./hook.js ./app.js"]),
        ("wrapper", &["--", "nice -n 5 rg TODO"]),
        ("odd_text", &["--", "rg TODO > out.txt"]),
        ("odd_text_on_two_lines", &["--", "rg TODO &&\nrg $(ls)"]),
        ("deny_rule", &["--", "make install"]),
        ("deny_rule_inside_odd_text", &["--", "(make install)"]),
        ("env_rejected", &["--env", "LD_PRELOAD=/x.so", "--", "rg x"]),
        ("env_accepted", &["--env", "LANG=C", "--", "rg x"]),
        ("security_deny", &["--agent", "closed", "--", "rg x"]),
        ("ask_always", &["--agent", "careful", "--", "rg x"]),
        (
            "ask_always_with_full_fallback",
            &["--agent", "fallback", "--", "rg x"],
        ),
        ("ask_of_the_call", &["--ask", "always", "--", "rg x"]),
        ("ask_off_and_a_miss", &["--agent", "silent", "--", "ls"]),
        ("full", &["--agent", "open", "--", "ls | sort > out.txt"]),
        (
            "full_and_deny_rule",
            &["--agent", "open", "--", "make install all"],
        ),
        ("hidden_characters", &["--", "rg a\u{202e}b"]),
        ("glob_that_matches_nothing", &["--", "rg *.nothing"]),
    ];
    for (name, arguments) in shapes {
        let mut all = vec!["explain"];
        all.extend(*arguments);
        let run = machine.run(&all);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{name}: {run:#?}");
        insta::assert_snapshot!(format!("explain_{name}"), machine.stable(&run.stdout));
    }
}

#[test]
fn strict_inline_evaluation_asks_about_code_in_arguments() {
    let machine = machine();
    assert_eq!(machine.verdict("python3 -c 'print(1)'"), "allow");
    machine.ok(&["config", "set", "tools.exec.strictInlineEval", "true"]);
    let run = machine.ok(&["explain", "--", "python3 -c 'print(1)'"]);
    insta::assert_snapshot!("explain_strict_inline_eval", machine.stable(&run.stdout));
    assert_eq!(machine.verdict("rg TODO"), "allow");
}

/// Programs read the same answer; every field is there, whatever the verdict.
#[test]
fn programs_read_json() {
    let machine = machine();
    let mut explanation = machine.explain(&["--", "ls -l | head -n 2"]);
    // It depends on the user and the system.
    assert!(explanation["shield"].is_string(), "{explanation:#}");
    explanation["shield"] = "[SHIELD]".into();
    insta::assert_snapshot!(
        "explain_json_ask",
        machine.stable(&serde_json::to_string_pretty(&explanation).unwrap())
    );
    let always = [
        "verdict",
        "reason",
        "segments",
        "policy",
        "binding",
        "remember",
        "remedies",
        "highlights",
        "command",
        "agent",
        "cwd",
        "plain",
        "transport",
    ];
    for command in ["rg x", "ls", "make install", "rg $(ls)"] {
        let explanation = machine.explain(&["--", command]);
        for field in always {
            assert!(
                !explanation[field].is_null(),
                "{command}: {field} is missing"
            );
        }
        let asks = explanation["verdict"] == "ask";
        assert_eq!(explanation.get("fallback").is_some(), asks, "{command}");
    }
    let odd = machine.explain(&["--", "rg x > y"]);
    assert_eq!(odd["plain"], json!(false));
    assert_eq!(odd["notPlain"]["reason"], json!("redirect"));
    assert_eq!(odd["segments"], json!([]));
}

#[test]
fn highlights_name_bytes_of_the_command() {
    let machine = machine();
    let command = "rg 'ü' | head -n 5";
    let explanation = machine.explain(&["--", command]);
    let parts: Vec<(String, String)> = explanation["highlights"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| {
            let at = |key: &str| usize::try_from(part[key].as_u64().unwrap()).unwrap();
            let text = command[at("start")..at("end")].to_owned();
            (text, part["style"].as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [
        ("rg", "program"),
        ("'ü'", "argument"),
        ("|", "operator"),
        ("head", "program"),
        ("-n", "option"),
        ("5", "argument"),
    ];
    let expected: Vec<_> = expected.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
    assert_eq!(parts, expected);
}

#[test]
fn one_word_is_text_and_several_are_an_argument_vector() {
    let machine = machine();
    let argv = |arguments: &[&str]| machine.explain(arguments)["segments"][0]["argv"].clone();
    assert_eq!(argv(&["--", "rg a b"]), json!(["rg", "a", "b"]));
    assert_eq!(argv(&["--", "rg", "a b"]), json!(["rg", "a b"]));
    // In a vector nothing is special.
    let explanation = machine.explain(&["--", "rg", "$(ls)", ">", "x"]);
    assert_eq!(explanation["verdict"], "allow");
    assert_eq!(
        explanation["segments"][0]["argv"],
        json!(["rg", "$(ls)", ">", "x"])
    );
    // One word can be a vector too; a blank in it is part of the name then.
    assert_eq!(argv(&["--argv", "--", "rg"]), json!(["rg"]));
    let explanation = machine.explain(&["--argv", "--", "rg a"]);
    assert_eq!(explanation["segments"][0]["reason"]["code"], "not-found");
}

#[test]
fn an_assignment_that_a_loader_reads_is_never_allowed() {
    let machine = machine();
    assert_eq!(machine.verdict("LANG=C rg x"), "allow");
    let explanation = machine.explain(&["--", "LD_PRELOAD=/x.so rg x"]);
    assert_ne!(explanation["verdict"], "allow");
    assert_eq!(explanation["reason"]["code"], "env-assignment");
}

/// Whether it asks is one thing, whether a yes would be taken is another.
#[test]
fn what_cannot_be_pinned_is_told_before_anybody_is_asked() {
    let machine = machine();
    let explained = || machine.explain(&["--", "cat x | python3"]);
    assert_eq!(explained()["verdict"], "refused");
    assert_eq!(explained()["approvalRefused"], "APPROVAL_UNBOUND");
    // The next step is a command that works.
    let step = explained()["nextStep"].as_str().unwrap().to_owned();
    let words: Vec<&str> = step.split(' ').skip(1).collect();
    machine.ok(&words);
    assert_eq!(explained()["verdict"], "ask");
    assert_eq!(explained()["approvalRefused"], Value::Null);
}

#[test]
fn the_agent_and_the_directory_are_those_that_were_named() {
    let machine = machine();
    machine.know_agents(&["helper"]);
    let subdirectory = machine.work().join("sub");
    std::fs::create_dir(&subdirectory).unwrap();
    machine.ok(&[
        "approvals",
        "allowlist",
        "add",
        "--agent",
        "helper",
        "--cwd",
        subdirectory.to_str().unwrap(),
        "make",
    ]);
    let verdict = |agent: &str, cwd: &Path| {
        let cwd = cwd.to_str().unwrap();
        machine.explain(&["--agent", agent, "--cwd", cwd, "--", "make all"])["verdict"].clone()
    };
    assert_eq!(verdict("helper", &subdirectory), "allow");
    assert_eq!(verdict("HELPER", &subdirectory), "allow");
    assert_eq!(verdict("helper", &machine.work()), "ask");
    assert_eq!(verdict("main", &subdirectory), "ask");
    // Relative to where the user stands.
    let explanation = machine.explain(&["--cwd", "sub", "--", "pwd"]);
    assert_eq!(explanation["cwd"], json!(subdirectory.to_str().unwrap()));
}

/// A call's own `ask` hardens and never loosens.
#[test]
fn the_ask_of_a_call_only_hardens() {
    let machine = machine();
    let verdict = |agent: &str, ask: &str, command: &str| {
        machine.explain(&["--agent", agent, "--ask", ask, "--", command])["verdict"].clone()
    };
    assert_eq!(verdict("main", "off", "ls"), "ask");
    assert_eq!(verdict("main", "always", "rg x"), "ask");
    assert_eq!(verdict("silent", "on-miss", "ls"), "ask");
    assert_eq!(verdict("careful", "off", "rg x"), "ask");
    assert_eq!(verdict("closed", "always", "rg x"), "deny");
}

/// An allowlisted absolute path is allowed, alone, behind `env` and as a vector of one element; a
/// script behind a login shell stays a script.
#[test]
fn an_absolute_path_to_a_native_program_needs_no_wrapper() {
    const WHOAMI: &str = "/usr/bin/whoami";
    if !Path::new(WHOAMI).exists() {
        println!("skipped: {WHOAMI} is not installed");
        return;
    }
    let machine = Machine::new();
    machine.start();
    machine.know_agents(&["another"]);
    let before = machine.explain(&["--", WHOAMI]);
    assert_eq!(before["verdict"], "ask");
    assert_eq!(before["binding"]["kind"], "native");
    machine.ok(&["approvals", "allowlist", "add", "--agent", "*", WHOAMI]);
    let forms: &[&[&str]] = &[
        &["--", WHOAMI],
        &["--argv", "--", WHOAMI],
        &["--", "env /usr/bin/whoami"],
        &["--", "env", WHOAMI],
        &["--", "/bin/sh -lc /usr/bin/whoami"],
        &["--", "/bin/sh", "-lc", WHOAMI],
        &["--agent", "another", "--", WHOAMI],
    ];
    for form in forms {
        let explanation = machine.explain(form);
        assert_eq!(explanation["verdict"], "allow", "{form:?}: {explanation:#}");
        assert_eq!(explanation["transport"], "direct", "{form:?}");
        assert_eq!(
            explanation["segments"][0]["argv"],
            json!([WHOAMI]),
            "{form:?}"
        );
        assert_eq!(
            explanation["reason"]["origin"],
            json!("agents[\"*\"].allowlist[0]"),
            "{form:?}"
        );
    }
}

#[test]
fn a_script_behind_a_shell_is_bound_by_its_content() {
    let machine = Machine::new();
    machine.start();
    let script = machine.script("work/task.sh", "#!/bin/sh\necho done\n");
    let script = script.to_str().unwrap();
    for shell in ["/bin/sh", "sh", "/usr/bin/dash", "dash"] {
        machine.ok(&["approvals", "allowlist", "add", shell]);
    }
    let forms: &[&[&str]] = &[
        &["--", "/bin/sh", "-lc", script],
        &["--", "sh", script],
        &["--", script],
        &["--", "./task.sh"],
    ];
    for form in forms {
        let explanation = machine.explain(form);
        assert_eq!(explanation["verdict"], "ask", "{form:?}: {explanation:#}");
        assert_eq!(explanation["binding"]["kind"], "file", "{form:?}");
        let bound = &explanation["binding"]["files"][0];
        assert_eq!(bound["role"], "script", "{form:?}");
        assert_eq!(bound["canonical"], json!(script), "{form:?}");
    }
    // An entry for the script itself is what satisfies it.
    machine.ok(&["approvals", "allowlist", "add", script]);
    assert_eq!(
        machine.explain(&["--", "/bin/sh", "-lc", script])["verdict"],
        "allow"
    );
}

#[test]
fn colours_are_for_terminals() {
    let machine = machine();
    let plain = machine.ok(&["explain", "--", "ls"]);
    assert!(!plain.stdout.contains('\u{1b}'));
    if !Path::new("/usr/bin/script").exists() {
        println!("skipped: /usr/bin/script is not installed, so there is no terminal to try");
        return;
    }
    let on_terminal = |variables: &[(&str, &str)]| {
        let line = format!("{} explain -- ls", crate::BINARY);
        let mut command = Command::new("/usr/bin/script");
        command.args(["-qec", &line, "/dev/null"]);
        command.env_clear().envs(variables.iter().copied());
        command.env("HOME", machine.root().join("home"));
        command.env("PATH", machine.bin());
        command.env("SHELL", "/bin/sh").current_dir(machine.work());
        finish(&mut command).stdout
    };
    let coloured = on_terminal(&[("TERM", "xterm")]);
    assert!(
        coloured.contains("\u{1b}[1;33mask\u{1b}[0m"),
        "{coloured:?}"
    );
    assert!(coloured.contains("\u{1b}[1;36mls\u{1b}[0m"), "{coloured:?}");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let refused = on_terminal(&[variable]);
        assert!(refused.contains("ask  ls"), "{variable:?}: {refused:?}");
        assert!(!refused.contains('\u{1b}'), "{variable:?}: {refused:?}");
    }
}

/// What is on the screen may be pasted into a bug report: secrets of the environment are not shown.
#[test]
fn secrets_of_environment_overrides_are_not_shown() {
    const SECRET: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let machine = machine();
    for name in ["GITHUB_TOKEN", "API_TOKEN", "MY_PASSWORD"] {
        let pair = format!("{name}={SECRET}");
        let run = machine.ok(&["explain", "--env", &pair, "--", "rg x"]);
        let json = machine.ok(&["explain", "--json", "--env", &pair, "--", "rg x"]);
        for text in [&run.stdout, &run.stderr, &json.stdout] {
            assert!(!text.contains(SECRET), "{text}");
        }
        assert!(run.stdout.contains(name), "{run:#?}");
    }
}

/// The facts of the call are shown with the verdict that rests on them.
#[test]
fn variables_and_input_of_the_call_are_shown() {
    let machine = machine();
    let call = ["--env", "FOO=a b", "--pty", "--", "rg x"];
    let mut all = vec!["explain"];
    all.extend(call);
    let run = machine.ok(&all);
    insta::assert_snapshot!("explain_call", machine.stable(&run.stdout));
    let json = machine.explain(&call);
    assert_eq!(json["env"], json!({ "FOO": "a b" }));
    assert_eq!(json["input"], "terminal");
    let piped = machine.explain(&["--stdin", "pipe", "--", "rg x"]);
    assert_eq!(piped["input"], "pipe");
}

#[test]
fn every_layer_says_where_it_is_written() {
    let machine = machine();
    machine.ok(&["config", "set", "tools.exec.security", "full"]);
    machine.ok(&[
        "config",
        "set",
        "agents.list[0]",
        "{ id: 'main', tools: { exec: { ask: 'always' } } }",
    ]);
    let policy = machine.explain(&["--ask", "on-miss", "--", "ls"])["policy"].clone();
    let layer = |value: &str, source: &str, path: &str| -> Value {
        json!({ "value": value, "source": source, "path": path })
    };
    assert_eq!(
        policy["security"],
        json!({
            "effective": layer("allowlist", "host", "defaults.security"),
            "layers": [
                layer("full", "config", "tools.exec.security"),
                layer("allowlist", "host", "defaults.security"),
            ],
        })
    );
    assert_eq!(
        policy["ask"],
        json!({
            "effective": layer("always", "config", "agents.list[0].tools.exec.ask"),
            "layers": [
                layer("always", "config", "agents.list[0].tools.exec.ask"),
                layer("on-miss", "host", "defaults.ask"),
                layer("on-miss", "call", "ask"),
            ],
        })
    );
}

/// What an earlier command of the line makes may be read by a later one: the line can be approved.
#[test]
fn a_line_that_makes_what_it_reads_can_be_approved() {
    let machine = Machine::new();
    machine.start();
    for line in [
        "touch x && cat x",
        "mkdir -p out && ls out",
        "mkdir -p out && cd out && ls",
        "touch y; wc -l y && rm y",
    ] {
        assert_eq!(machine.verdict(line), "ask", "{line}");
        let asked = machine.run(&["exec", "--no-wait", "--json", "--", line]);
        let id = asked.json()["shortId"].as_str().unwrap().to_owned();
        machine.ok(&["approvals", "approve", &id]);
        let ran = machine.run(&["exec", "--approval", &id, "--", line]);
        assert_eq!(ran.code, 0, "{line}: {ran:#?}");
    }
}

/// What a later command of the line executes must be there to be held by its content. The refusal says how the
/// line is split, and the step that it names leaves something that can be approved.
#[test]
fn a_line_that_makes_what_it_executes_is_to_be_split() {
    let machine = Machine::new();
    machine.start();
    machine.file("work/source.sh", "echo made\n");
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/cp"]);
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/chmod"]);
    let cases = [
        (
            "cp source.sh made.sh && bash made.sh",
            "cp source.sh made.sh",
            "bash made.sh",
        ),
        (
            "cp source.sh ./own && chmod +x ./own && ./own",
            "cp source.sh ./own && chmod +x ./own",
            "./own",
        ),
        (
            "cp source.sh x.py; python3 x.py",
            "cp source.sh x.py",
            "python3 x.py",
        ),
        (
            "chmod +x source.sh && ./source.sh",
            "chmod +x source.sh",
            "./source.sh",
        ),
    ];
    for (line, first, rest) in cases {
        let told = machine.explain(&["--", line]);
        assert_eq!(told["verdict"], "refused", "{line}: {told:#}");
        let step = told["nextStep"].as_str().unwrap();
        assert_eq!(step, format!("interlock exec -- '{first}'"), "{line}");
        let refused = machine.exec(line);
        assert!(
            refused.stderr.contains("split the line")
                && refused.stderr.contains(&format!("first `{first}`")),
            "{line}: {refused:#?}"
        );
        let shown = machine.ok(&["explain", "--", line]).stdout;
        assert!(shown.contains("way out: split the line"), "{shown}");
        let pasted = machine.paste(step);
        assert_eq!(pasted.code, 0, "{step}: {pasted:#?}");
        assert_eq!(machine.verdict(rest), "ask", "{rest}");
    }
    // A stage of a pipe, a directory that is entered, and nothing in front: there is nothing to split.
    for line in ["ls | ./none", "cd . && ./none", "./none"] {
        let told = machine.explain(&["--", line]);
        assert_eq!(told["verdict"], "refused", "{line}: {told:#}");
        assert_eq!(told["nextStep"], "ls -l -- ./none", "{line}");
    }
    // In text for a shell, what stands in front is not cut out.
    let refused = machine.exec("cp source.sh later && ./later > out");
    assert!(
        refused.stderr.contains("first the commands in front of it"),
        "{refused:#?}"
    );
}
