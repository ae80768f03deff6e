//! `interlock setup`: the settings of agent programs are changed as little as possible, and come back byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::BINARY;
use testkit::{Machine, Run};

const PROGRAMS: &[&str] = &["claude-code", "codex", "gemini", "opencode", "goose"];

/// All files below the home and the project, but for the state.
fn settings(machine: &Machine) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![machine.root().join("home"), machine.work()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path == machine.state() {
                continue;
            }
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(machine.root()).unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap_or_default());
            }
        }
    }
    found
}

fn shown(machine: &Machine, text: &str) -> String {
    let text = text.replace(BINARY, "[INTERLOCK]");
    machine.stable(&text)
}

/// The files as a text.
fn pages(machine: &Machine) -> String {
    let mut pages = String::new();
    for (path, content) in settings(machine) {
        let content = String::from_utf8(content).unwrap();
        pages += &format!("# {}\n{}", path.display(), shown(machine, &content));
    }
    pages
}

fn setup(machine: &Machine, arguments: &[&str]) -> Run {
    let mut all = vec!["setup"];
    all.extend(arguments);
    machine.ok(&all)
}

#[test]
fn the_files_of_every_program_scope_and_choice() {
    let machine = Machine::new();
    machine.start();
    for program in PROGRAMS {
        for scope in ["user", "project"] {
            if (*program, scope) == ("goose", "project") {
                continue;
            }
            let mut text = String::new();
            for flags in [vec![], vec!["--only-interlock"], vec!["--hook"]] {
                if flags == ["--hook"] && matches!(*program, "opencode" | "goose") {
                    continue;
                }
                let mut arguments = vec![*program, "--scope", scope];
                arguments.extend(flags.clone());
                let report = setup(&machine, &arguments);
                let report = shown(&machine, &report.stdout);
                // What a program on this very machine says of itself is not compared.
                let report: String = report
                    .split_inclusive('\n')
                    .filter(|line| !line.contains(" mcp list: "))
                    .collect();
                text += &format!("$ interlock setup {}\n{report}\n", arguments.join(" "));
                text += &format!("{}\n", pages(&machine));
                setup(&machine, &[program, "--scope", scope, "--undo"]);
                assert_eq!(pages(&machine), "", "{program} {scope} {flags:?}");
            }
            insta::assert_snapshot!(format!("setup_{program}_{scope}"), text);
        }
    }
}

/// Existing files: program, path below the machine's root, content.
const EXISTING: &[(&str, &str, &str)] = &[
    (
        "claude-code",
        "home/.claude/settings.json",
        "{\r\n\t\"model\": \"opus\",\r\n\t\"permissions\": {\r\n\t\t\"allow\": [\r\n\t\t\t\"Read\"\r\n\t\t],\r\n\t\t\"deny\": []\r\n\t},\r\n\t\"hooks\": { \"PreToolUse\": [] }\r\n}",
    ),
    (
        "claude-code",
        "home/.claude.json",
        "{\"numStartups\":3,\"mcpServers\":{\"other\":{\"command\":\"x\",\"args\":[]}},\"projects\":{}}\n",
    ),
    (
        "gemini",
        "home/.gemini/settings.json",
        "// mine\n{\n    \"ui\": { \"theme\": \"Dark\" }, // nice\n    /* tools */\n    \"tools\": { \"exclude\": [\"web_fetch\"] },\n}\n",
    ),
    (
        "opencode",
        "home/.config/opencode/opencode.jsonc",
        "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  // servers\n  \"mcp\": {},\n  \"tools\": { \"bash\": true }\n}\n",
    ),
    (
        "codex",
        "home/.codex/config.toml",
        "# mine\nmodel = 'gpt'   # quick\nfeatures.web = true\n\n[mcp_servers.other]\ncommand = \"x\"\n# its arguments\nargs = [\n  \"a\", # first\n]\n\n[profiles.a]\nmodel = \"b\"\n",
    ),
    (
        "codex",
        "home/.codex/config.toml",
        "mcp_servers = { other = { command = \"x\" } }\n[features]\nshell_tool = true # wanted\n[[hooks.PreToolUse]]\nmatcher = \"Edit\"\n",
    ),
    (
        "goose",
        "home/.config/goose/config.yaml",
        "# mine\nGOOSE_PROVIDER: openai\nextensions:\n    # the shell\n    developer:\n        bundled: true\n        enabled: true   # on\n        name: developer\n        type: builtin\n\n    memory:\n        enabled: false\n        type: builtin\n        name: memory\nGOOSE_MODEL: gpt # last",
    ),
    (
        "goose",
        "home/.config/goose/config.yaml",
        "extensions: {}\nGOOSE_MODE: auto\n",
    ),
    (
        "goose",
        "home/.config/goose/config.yaml",
        "GOOSE_MODE: auto\n",
    ),
    ("opencode", "home/.config/opencode/opencode.json", ""),
    ("codex", "home/.codex/config.toml", "\n# nothing yet\n"),
];

fn put(machine: &Machine, path: &str, content: &str) -> PathBuf {
    let file = machine.root().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    file
}

#[test]
fn existing_files_keep_comments_order_and_formatting_and_come_back() {
    let machine = Machine::new();
    machine.start();
    let mut text = String::new();
    for (program, path, content) in EXISTING {
        let file = put(&machine, path, content);
        let before = settings(&machine);
        let hook = if matches!(*program, "opencode" | "goose") {
            "--only-interlock"
        } else {
            "--hook"
        };
        for flags in [vec![], vec!["--only-interlock"], vec![hook]] {
            let mut arguments = vec![*program];
            arguments.extend(flags);
            setup(&machine, &arguments);
            let changed = fs::read_to_string(&file).unwrap();
            let mut rest = changed.as_str();
            // Each old line is there, in order: at most a comma, a value or a bracket in it is new.
            for line in content.lines().filter(|line| line.contains(['#', '/'])) {
                let at = rest.find(line.split("true ").next().unwrap().trim_end());
                let at = at.unwrap_or_else(|| panic!("{line:?} is lost: {changed}"));
                rest = &rest[at..];
            }
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o640, "{path}");
            if arguments.contains(&"--only-interlock") {
                text += &format!("# {path}\n{}\n", shown(&machine, &changed));
            }
        }
        setup(&machine, &[program, "--undo"]);
        assert_eq!(settings(&machine), before, "{program} {path}");
        fs::remove_file(&file).unwrap();
    }
    insta::assert_snapshot!("setup_existing_files", text.replace('\r', "\\r"));
}

#[test]
fn a_file_that_was_changed_since_loses_only_what_setup_added() {
    let machine = Machine::new();
    machine.start();
    for (program, path, content) in EXISTING {
        let file = put(&machine, path, content);
        setup(&machine, &[program, "--only-interlock"]);
        let (from, to) = match file.extension().unwrap().to_str().unwrap() {
            "toml" => (
                "[mcp_servers.interlock]",
                "[mine]\na = 1\n\n[mcp_servers.interlock]",
            ),
            "yaml" => (
                "  interlock:",
                "  mine:\n      enabled: false\n  interlock:",
            ),
            _ => ("{", "{ \"mine\": 1,"),
        };
        let changed = fs::read_to_string(&file).unwrap();
        let edited = match (*path, changed.contains(from)) {
            ("home/.codex/config.toml", false) => format!("{changed}\n[mine]\na = 1\n"),
            (path, true) if path.ends_with("yaml") => {
                let line = changed.lines().find(|line| line.ends_with("interlock:"));
                let indent = line.unwrap().trim_end_matches("interlock:");
                changed.replacen(
                    line.unwrap(),
                    &format!("{indent}mine:\n{indent}  enabled: false\n{}", line.unwrap()),
                    1,
                )
            }
            _ => changed.replacen(from, to, 1),
        };
        fs::write(&file, &edited).unwrap();
        let undone = setup(&machine, &[program, "--undo"]);
        assert!(
            undone.stdout.contains("was changed since setup"),
            "{undone:#?}"
        );
        let left = fs::read_to_string(&file).unwrap();
        assert!(left.contains("mine"), "{path}: {left}");
        for gone in ["interlock", "run_shell_command", "unified_exec", "Monitor"] {
            assert!(!left.contains(gone), "{path}: {gone}: {left}");
        }
        for line in content.lines().filter(|line| line.contains(['#', '/'])) {
            assert!(
                left.contains(line.trim_end_matches(',').trim_end()),
                "{line}: {left}"
            );
        }
        // All that setup knew of it is gone too.
        machine
            .run(&["setup", program, "--undo"])
            .refused(1, "SETUP_NOT_FOUND");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn values_that_the_owner_changed_since_stay() {
    let machine = Machine::new();
    machine.start();
    let file = put(&machine, "home/.codex/config.toml", "");
    setup(&machine, &["codex", "--only-interlock"]);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("shell_tool = false", "shell_tool = true"),
    )
    .unwrap();
    let undone = setup(&machine, &["codex", "--undo"]);
    assert!(undone.stdout.contains("stay as they are"), "{undone:#?}");
    let left = fs::read_to_string(&file).unwrap();
    assert_eq!(left.trim(), "[features]\nshell_tool = true");
}

#[test]
fn setup_again_changes_nothing_and_another_choice_replaces_the_first() {
    let machine = Machine::new();
    machine.start();
    let original = "{ \"tools\": { \"exclude\": [\"x\"] } }\n";
    let file = put(&machine, "home/.gemini/settings.json", original);
    setup(&machine, &["gemini", "--only-interlock"]);
    let first = fs::read_to_string(&file).unwrap();
    let again = setup(&machine, &["gemini", "--only-interlock"]);
    assert!(again.stdout.contains("is set up already"), "{again:#?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), first);
    setup(&machine, &["gemini", "--hook"]);
    let hooked = fs::read_to_string(&file).unwrap();
    assert!(
        hooked.contains("BeforeTool") && !hooked.contains("run_shell_command\"]"),
        "{hooked}"
    );
    setup(&machine, &["gemini", "--undo"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), original);
}

#[test]
fn what_the_owner_had_already_stays_after_undo() {
    let machine = Machine::new();
    machine.start();
    let original =
        "{ \"permissions\": { \"allow\": [\"mcp__interlock\"], \"deny\": [\"Bash\"] } }\n";
    let file = put(&machine, "home/.claude/settings.json", original);
    setup(&machine, &["claude-code", "--only-interlock"]);
    assert!(fs::read_to_string(&file).unwrap().contains("Monitor"));
    // Less is wanted now: what remains is what the owner had.
    setup(&machine, &["claude-code"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), original);
    setup(&machine, &["claude-code", "--undo"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), original);
}

#[test]
fn wrong_files_are_refused_and_nothing_is_lost() {
    let machine = Machine::new();
    machine.start();
    let wrong: &[(&str, &str, &[u8])] = &[
        ("gemini", "home/.gemini/settings.json", b"{ \"a\": 1"),
        ("gemini", "home/.gemini/settings.json", b"[1]"),
        (
            "gemini",
            "home/.gemini/settings.json",
            b"{ \"mcpServers\": [] }",
        ),
        (
            "gemini",
            "home/.gemini/settings.json",
            b"{ \"tools\": { \"exclude\": \"x\" } }",
        ),
        (
            "gemini",
            "home/.gemini/settings.json",
            b"{ \"a\": 1, \"a\": 2 }",
        ),
        (
            "gemini",
            "home/.gemini/settings.json",
            b"{ \"a\": \"\xff\" }",
        ),
        (
            "claude-code",
            "home/.claude/settings.json",
            b"{ \"permissions\": { \"allow\": 3 } }",
        ),
        ("claude-code", "home/.claude/settings.json", b"{ nope }"),
        ("codex", "home/.codex/config.toml", b"a = \n"),
        ("codex", "home/.codex/config.toml", b"features = 3\n"),
        ("codex", "home/.codex/config.toml", b"mcp_servers = []\n"),
        ("goose", "home/.config/goose/config.yaml", b"a: [1\n"),
        ("goose", "home/.config/goose/config.yaml", b"- a\n"),
        (
            "goose",
            "home/.config/goose/config.yaml",
            b"a: 1\n---\nb: 2\n",
        ),
        (
            "goose",
            "home/.config/goose/config.yaml",
            b"extensions: { a: { enabled: true } }\n",
        ),
        (
            "goose",
            "home/.config/goose/config.yaml",
            b"\"extensions\":\n  a:\n    b: 1\n",
        ),
        (
            "goose",
            "home/.config/goose/config.yaml",
            b"a: &x 1\nextensions:\n- *x\n",
        ),
        (
            "goose",
            "home/.config/goose/config.yaml",
            b"a: !!binary aGk=\n",
        ),
    ];
    for (program, path, content) in wrong {
        let file = put(&machine, path, "");
        fs::write(&file, content).unwrap();
        let before = settings(&machine);
        let run = machine.run(&["setup", program, "--only-interlock"]);
        let text = String::from_utf8_lossy(content);
        assert_eq!(
            (run.code, run.error_code()),
            (1, "SETTINGS_INVALID"),
            "{text}: {run:#?}"
        );
        assert!(run.stderr.contains(&file.display().to_string()), "{run:#?}");
        assert_eq!(settings(&machine), before, "{text}");
        fs::remove_file(&file).unwrap();
    }
    // Neither a directory nor a link that leads nowhere is a settings file.
    let place = machine.root().join("home/.codex/config.toml");
    fs::create_dir(&place).unwrap();
    machine
        .run(&["setup", "codex"])
        .refused(1, "SETTINGS_UNREADABLE");
    fs::remove_dir(&place).unwrap();
    symlink("/nowhere/at/all", &place).unwrap();
    machine
        .run(&["setup", "codex"])
        .refused(1, "SETTINGS_UNREADABLE");
    assert!(place.is_symlink());
}

#[test]
fn a_link_is_followed_and_said() {
    let machine = Machine::new();
    machine.start();
    let real = put(&machine, "home/dotfiles/gemini.json", "{}\n");
    let link = machine.root().join("home/.gemini/settings.json");
    fs::create_dir(link.parent().unwrap()).unwrap();
    symlink(&real, &link).unwrap();
    let done = setup(&machine, &["gemini"]);
    assert!(done.stdout.contains("a link to"), "{done:#?}");
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("interlock"));
    setup(&machine, &["gemini", "--undo"]);
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "{}\n");
}

#[test]
fn a_dry_run_says_the_same_and_changes_nothing() {
    let machine = Machine::new();
    machine.start();
    let dry = setup(
        &machine,
        &["codex", "--only-interlock", "--dry-run", "--json"],
    )
    .json();
    assert_eq!(dry["files"][0]["created"], true);
    assert_eq!(dry["testCall"], serde_json::Value::Null);
    assert_eq!(pages(&machine), "");
    let done = setup(&machine, &["codex", "--only-interlock", "--json"]).json();
    assert_eq!(done["files"], dry["files"]);
    assert_eq!(done["testCall"]["ok"], true);
    let before = settings(&machine);
    let undo = setup(&machine, &["codex", "--undo", "--dry-run", "--json"]).json();
    assert_eq!(undo["files"][0]["how"], "removed");
    assert_eq!(settings(&machine), before);
}

#[test]
fn what_cannot_be_set_up_is_refused_before_anything_is_written() {
    let machine = Machine::new();
    machine.start();
    machine
        .run(&["setup", "codex", "--agent", "mian"])
        .refused(2, "AGENT_UNKNOWN");
    machine
        .run(&["setup", "codex", "--agent", "../x"])
        .refused(2, "AGENT_INVALID");
    machine
        .run(&["setup", "goose", "--scope", "project"])
        .refused(2, "SCOPE_UNAVAILABLE");
    machine
        .run(&["setup", "opencode", "--hook"])
        .refused(2, "HOOK_UNAVAILABLE");
    machine
        .run(&["setup", "gemini", "--undo"])
        .refused(1, "SETUP_NOT_FOUND");
    // A gateway that may not be started cannot be tested.
    machine
        .run(&["--no-spawn", "setup", "codex"])
        .refused(1, "GATEWAY_NOT_RUNNING");
    assert_eq!(pages(&machine), "");
}

#[test]
fn an_agent_of_the_config_and_a_config_file_elsewhere_are_in_the_entry() {
    let machine = Machine::new();
    machine.write_config("{ agents: { list: [{ id: \"coder\" }] } }");
    let file = machine.config().display().to_string();
    let arguments = [
        "--config", &file, "setup", "gemini", "--agent", "coder", "--json",
    ];
    let done = machine.ok(&arguments).json();
    let command: Vec<&str> = done["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(
        &command[3..],
        ["--config", &file, "mcp", "--agent", "coder"]
    );
    assert_eq!(done["testCall"]["ok"], true, "{done:#}");
}

#[test]
fn what_the_program_itself_says_of_the_entry_is_told() {
    let machine = Machine::new();
    machine.start();
    let says = |text: &str| {
        machine.script(
            "bin/gemini",
            &format!("#!/bin/sh\necho other\nprintf '{text}\\n'\n"),
        );
        setup(&machine, &["gemini", "--json"]).json()["programCheck"].clone()
    };
    let listed = says("\\033[32mx\\033[0m interlock: /usr/bin/interlock - Connected");
    assert_eq!(listed["ok"], true, "{listed:#}");
    assert_eq!(
        listed["text"],
        "x interlock: /usr/bin/interlock - Connected"
    );
    let missing = says("nothing here");
    assert_eq!(missing["ok"], false, "{missing:#}");
}

#[test]
fn undo_finds_its_files_wherever_the_program_looks_now() {
    let machine = Machine::new();
    machine.start();
    let file = put(&machine, "home/.config/opencode/opencode.jsonc", "{}\n");
    setup(&machine, &["opencode"]);
    put(&machine, "home/.config/opencode/opencode.json", "{}\n");
    let undone = setup(&machine, &["opencode", "--undo"]);
    assert!(
        undone.stdout.contains("opencode.jsonc: restored"),
        "{undone:#?}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}\n");
    // A project is undone from within, and no other one is touched.
    setup(&machine, &["codex", "--scope", "project"]);
    let mut elsewhere = machine.command(&["setup", "codex", "--scope", "project", "--undo"]);
    let elsewhere = testkit::finish(elsewhere.current_dir(machine.root().join("home")));
    elsewhere.refused(1, "SETUP_NOT_FOUND");
    setup(&machine, &["codex", "--scope", "project", "--undo"]);
}

#[test]
fn owners_stay_and_ordinary_users_set_up_too() {
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    let made = setup(&machine, &["codex", "--scope", "project"]);
    assert!(made.stdout.contains("test call: ok"), "{made:#?}");
    let made = machine.work().join(".codex/config.toml");
    assert_eq!(made.metadata().unwrap().uid(), 65_534);
    setup(&machine, &["codex", "--scope", "project", "--undo"]);
    // Root may change a file of another user, who keeps it.
    let own = Machine::new();
    own.start();
    let file = put(&own, "home/.gemini/settings.json", "{}\n");
    std::os::unix::fs::chown(&file, Some(65_534), Some(65_534)).unwrap();
    for arguments in [vec!["gemini"], vec!["gemini", "--undo"]] {
        setup(&own, &arguments);
        let owner = file.metadata().unwrap();
        assert_eq!(
            (owner.uid(), owner.gid()),
            (65_534, 65_534),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_kept_original_that_was_altered_is_not_restored() {
    let machine = Machine::new();
    machine.start();
    let file = put(&machine, "home/.gemini/settings.json", "{ \"a\": 1 }\n");
    setup(&machine, &["gemini"]);
    let written = fs::read(&file).unwrap();
    let kept: Vec<PathBuf> = fs::read_dir(machine.state().join("setup"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(Path::new("original").as_os_str()))
        .collect();
    assert_eq!(kept.len(), 1);
    fs::write(&kept[0], "{ \"permissions\": { \"allow\": [\"Bash\"] } }").unwrap();
    machine
        .run(&["setup", "gemini", "--undo"])
        .refused(1, "SETUP_RECORD_UNUSABLE");
    assert_eq!(fs::read(&file).unwrap(), written);
}

#[test]
fn what_setup_keeps_is_for_the_owner_alone() {
    let machine = Machine::new();
    machine.start();
    put(
        &machine,
        "home/.gemini/settings.json",
        "{ \"key\": \"secret\" }\n",
    );
    setup(&machine, &["gemini"]);
    let directory = machine.state().join("setup");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for entry in fs::read_dir(&directory).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}
