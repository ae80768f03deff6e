//! `interlock import openclaw`, on state directories that the real programs wrote (`tests/fixtures`; made anew
//! by `tests/run-heavy openclaw-import`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Machine, Run, is_root};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");

fn fixture(version: &str) -> String {
    format!("{FIXTURES}/openclaw-{version}")
}

fn import(machine: &Machine, from: &str, flags: &[&str]) -> Run {
    let mut arguments = vec!["import", "openclaw", "--json", "--from", from];
    arguments.extend(flags);
    machine.run(&arguments)
}

#[track_caller]
fn imported(machine: &Machine, from: &str, flags: &[&str]) -> Value {
    let run = import(machine, from, flags);
    assert_eq!(run.code, 0, "{run:#?}");
    for secret in ["fixture-secret", "removed"] {
        assert!(
            !run.stdout.contains(secret) && !run.stderr.contains(secret),
            "{run:#?}"
        );
    }
    run.json()
}

/// What the report says of a key, in one of its lists.
fn said<'a>(report: &'a Value, list: &str, path: &str) -> Option<&'a Value> {
    let mut values = report[list].as_array().unwrap().iter();
    values.find(|value| value["path"] == path)
}

/// Everything that is in a directory, byte for byte.
fn content(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.push((path.clone(), fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

fn real_state_is_imported(machine: &Machine, version: &str) -> Value {
    machine.start();
    // The fixture may lie where this user cannot read.
    let from = machine.root().join("theirs");
    let copied = std::process::Command::new("/bin/cp")
        .args(["-r", &fixture(version)])
        .arg(&from)
        .status();
    assert!(copied.unwrap().success());
    let from = from.to_str().unwrap();
    let theirs = content(Path::new(from));
    let before = machine.document();

    let planned = imported(machine, from, &["--dry-run"]);
    assert_eq!(machine.document(), before, "a dry run changes nothing");
    assert!(!machine.config().exists());
    let report = imported(machine, from, &[]);
    for list in ["taken", "changed", "left"] {
        assert_eq!(report[list], planned[list], "{list}");
    }
    assert_eq!(
        content(Path::new(from)),
        theirs,
        "the source stays as it is"
    );

    let (document, _) = machine.document();
    // Levels: only the stricter ones.
    assert_eq!(
        document["defaults"],
        json!({ "security": "allowlist", "ask": "always", "askFallback": "deny" })
    );
    assert_eq!(document["agents"]["lab"]["security"], "deny");
    assert_eq!(document["agents"]["main"]["ask"], "on-miss");
    for path in [
        "defaults.security",
        "defaults.askFallback",
        "defaults.autoAllowSkills",
    ] {
        let left = said(&report, "left", path).unwrap();
        assert!(left["what"].as_str().unwrap().contains("loosen"), "{left}");
    }
    let command = said(&report, "left", "defaults.security").unwrap();
    assert_eq!(
        command["command"],
        "interlock exec-policy set --security full"
    );
    // Entries: taken, and marked.
    let patterns = |agent: &str| -> Vec<String> {
        let list = document["agents"][agent]["allowlist"].as_array().unwrap();
        let patterns = list
            .iter()
            .map(|entry| entry["pattern"].as_str().unwrap().to_owned());
        patterns.collect()
    };
    let own: Vec<String> = patterns("*")
        .into_iter()
        .filter(|pattern| ["~/Projects/**/bin/rg", "head"].contains(&pattern.as_str()))
        .collect();
    assert_eq!(own, ["~/Projects/**/bin/rg", "head"]);
    assert_eq!(
        patterns("main"),
        ["/usr/bin/git", "/usr/bin/touch", "/usr/bin/uname"]
    );
    let git = said(&report, "taken", "agents.main.allowlist").unwrap();
    assert_eq!(git["loosens"], true, "{git}");
    // A regular expression that this program cannot run is no entry without one.
    let make = report["left"].as_array().unwrap().iter();
    let make = make.filter(|left| left["path"].as_str().unwrap().contains("allowlist[1]"));
    assert_eq!(make.count(), 1, "{report:#}");
    // Remembered without arguments: inert, and said so.
    let touch = report["changed"].to_string();
    assert!(
        touch.contains("/usr/bin/touch") && touch.contains("matches nothing"),
        "{report:#}"
    );
    assert_eq!(machine.verdict("/usr/bin/touch made"), "ask");

    let config = machine.ok(&["config", "get"]).json();
    let exec = &config["tools"]["exec"];
    assert_eq!(exec["strictInlineEval"], true);
    assert_eq!(exec["safeBins"], json!(["cut"]), "{config:#}");
    assert_eq!(exec["timeoutSec"], 900);
    assert_eq!(exec["backgroundMs"], 5000);
    assert_eq!(config["tools"]["deny"], json!(["browser", "group:fs"]));
    assert_eq!(config["gateway"]["port"], 18999);
    assert_eq!(
        config["agents"]["defaults"]["workspace"],
        "/home/ada/workspace"
    );
    let lab = config["agents"]["list"].as_array().unwrap().iter();
    let lab = lab.filter(|agent| agent["id"] == "lab").collect::<Vec<_>>();
    assert_eq!(lab[0]["tools"]["exec"]["security"], "deny", "{config:#}");
    for path in [
        "tools.exec.safeBinTrustedDirs",
        "tools.exec.pathPrepend",
        "tools.exec.applyPatch.workspaceOnly",
    ] {
        let left = said(&report, "left", path).unwrap();
        assert_ne!(left["command"], Value::Null, "{left}");
    }
    let token = said(&report, "left", "gateway.auth.token").unwrap();
    assert_eq!(token["command"], "interlock gateway token --new");
    assert!(said(&report, "left", "channels").is_some(), "{report:#}");
    machine.ok(&["config", "validate"]);
    machine.ok(&["audit", "verify"]);
    let state = content(&machine.state());
    let leaked = state.iter().any(|(_, bytes)| {
        let text = String::from_utf8_lossy(bytes);
        text.contains("fixture-secret")
    });
    assert!(!leaked, "no secret comes into the state directory");

    // A second import finds nothing to take.
    let (document, hash) = machine.document();
    let config = fs::read(machine.config()).unwrap();
    let again = imported(machine, from, &[]);
    assert_eq!(again["taken"], json!([]), "{again:#}");
    assert_eq!(again["changed"], json!([]), "{again:#}");
    assert_eq!(machine.document(), (document, hash));
    assert_eq!(fs::read(machine.config()).unwrap(), config);
    report
}

#[test]
fn a_state_directory_of_2026_5_is_imported() {
    let report = real_state_is_imported(&Machine::new(), "2026.5");
    assert_eq!(report["version"], "2026.5.19");
    assert_eq!(report["document"], "json");
    let security = said(&report, "taken", "tools.exec.security").unwrap();
    assert_eq!(security["what"], "allowlist");
}

#[test]
fn a_state_directory_of_2026_9_is_imported() {
    let report = real_state_is_imported(&Machine::new(), "2026.9");
    assert_eq!(report["version"], "2026.9.6");
    assert_eq!(report["document"], "sqlite");
    let mode = said(&report, "taken", "tools.exec.mode").unwrap();
    assert_eq!(mode["what"], "ask");
    let timeout = said(&report, "changed", "tools.exec.timeoutSeconds").unwrap();
    assert!(
        timeout["what"]
            .as_str()
            .unwrap()
            .contains("tools.exec.timeoutSec"),
        "{timeout}"
    );
}

#[test]
fn an_ordinary_user_imports_the_same() {
    // As an ordinary user, the tests above are this.
    if !is_root() {
        return;
    }
    for version in ["2026.5", "2026.9"] {
        if let Some(machine) = Machine::of_ordinary_user() {
            real_state_is_imported(&machine, version);
        }
    }
}

/// A state directory with one config.
fn with_config(machine: &Machine, config: &str) -> String {
    let directory = machine.root().join("theirs");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("openclaw.json"), config).unwrap();
    directory.to_str().unwrap().to_owned()
}

#[test]
fn what_is_stricter_here_stays() {
    let machine = Machine::new();
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    machine.ok(&["config", "set", "tools.exec.strictInlineEval", "true"]);
    machine.ok(&["config", "set", "tools.exec.grantExpiryDays", "3"]);
    machine.ok(&["config", "set", "tools.allow", r#"["exec"]"#]);
    let from = with_config(
        &machine,
        r#"{ tools: { allow: ["exec", "process"], elevated: { enabled: true, allowFrom: { x: ["*"] } }, exec: {
             security: "full", ask: "off", strictInlineEval: false, grantExpiryDays: 90 } },
             gateway: { bind: "lan", auth: { mode: "none" }, tools: { allow: ["exec"] } },
             agents: { list: [{ id: "lab", tools: { exec: { security: "full", ask: "off" } } }] } }"#,
    );
    let before = machine.ok(&["config", "get"]).json();
    let report = imported(&machine, &from, &[]);
    let mut after = machine.ok(&["config", "get"]).json();
    assert_eq!(after["agents"]["list"], json!([{ "id": "lab" }]));
    after.as_object_mut().unwrap().remove("agents");
    assert_eq!(after, before, "{report:#}");
    for path in [
        "tools.allow",
        "tools.elevated.enabled",
        "tools.elevated.allowFrom",
        "tools.exec.security",
        "tools.exec.strictInlineEval",
        "tools.exec.grantExpiryDays",
        "gateway.bind",
        "gateway.auth.mode",
        "gateway.tools.allow",
        "agents.list[0].tools.exec.security",
    ] {
        assert!(said(&report, "left", path).is_some(), "{path}: {report:#}");
    }
}

#[test]
fn a_sandbox_there_is_never_the_host_here() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "*"]);
    let from = with_config(
        &machine,
        r#"{ agents: { defaults: { sandbox: { mode: "all" } },
             list: [{ id: "lab", sandbox: { mode: "non-main" }, tools: { exec: { host: "gateway" } } }] },
             tools: { exec: { host: "gateway" } } }"#,
    );
    let report = imported(&machine, &from, &[]);
    for (list, path) in [
        ("taken", "agents.defaults.sandbox.mode"),
        ("changed", "tools.exec.host"),
        ("changed", "agents.list[0].tools.exec.host"),
    ] {
        assert!(said(&report, list, path).is_some(), "{path}: {report:#}");
    }
    let config = machine.ok(&["config", "get"]).json();
    assert_eq!(config["agents"]["defaults"]["sandbox"]["mode"], "all");
    assert_eq!(config["tools"]["exec"]["host"], "sandbox");
    assert_eq!(
        config["agents"]["list"][0]["tools"]["exec"]["host"], "sandbox",
        "{config:#}"
    );
    // Inside, where it sees a scratch workspace.
    let run = machine.exec("touch made && grep Seccomp: /proc/self/status");
    assert_eq!(run.stdout, "Seccomp:\t2\n", "{run:#?}");
    assert!(!machine.work().join("made").exists());
}

/// What the native sandbox has is taken over; the rest is named.
#[test]
fn the_settings_of_a_sandbox_are_taken_over_or_named() {
    let machine = Machine::new();
    machine.start();
    let from = with_config(
        &machine,
        r#"{ agents: { defaults: { sandbox: { mode: "non-main", scope: "session", workspaceAccess: "rw", backend: "docker",
               workspaceRoot: "/srv/boxes", prune: { idleHours: 12 },
               docker: { image: "debian", network: "bridge", memory: "1g", cpus: 2, pidsLimit: 256,
                         binds: ["/srv/data:/data", "/srv/out:/out:rw", "name:/volume", "/a:/b:z"] } } },
             list: [{ id: "lab", sandbox: { mode: "sometimes" } }] } }"#,
    );
    let report = imported(&machine, &from, &[]);
    let config = machine.ok(&["config", "get"]).json();
    let expected = serde_json::json!({
        "mode": "non-main",
        "workspaceAccess": "rw",
        "scope": "session",
        "limits": { "memory": "1g", "cpus": 2, "pids": 256 },
        "binds": ["/srv/data:/data", "/srv/out:/out:rw"],
        "prune": { "idleHours": 12 },
    });
    assert_eq!(
        config["agents"]["defaults"]["sandbox"], expected,
        "{report:#}"
    );
    for key in [
        "backend",
        "workspaceRoot",
        "docker.image",
        "docker.network",
        "docker.binds",
    ] {
        let path = format!("agents.defaults.sandbox.{key}");
        assert!(said(&report, "left", &path).is_some(), "{path}: {report:#}");
    }
    // Which runs of this agent were sandboxed is not known: none runs on the host.
    assert!(said(&report, "left", "agents.list[0].sandbox.mode").is_some());
    let lab = &config["agents"]["list"][0];
    assert_eq!(lab["tools"]["exec"]["host"], "sandbox", "{config:#}");
    assert!(config["tools"]["exec"].get("host").is_none(), "{config:#}");
}

#[test]
fn hostile_and_broken_directories_change_nothing() {
    let machine = Machine::new();
    machine.start();
    let before = machine.document();
    let refused = |from: &Path, code: &str| {
        let run = machine.run(&["import", "openclaw", "--from", from.to_str().unwrap()]);
        run.refused(1, code);
        assert!(run.stderr.contains("hint: "), "{run:#?}");
    };
    refused(Path::new("/no/such/directory"), "IMPORT_SOURCE_MISSING");
    let empty = machine.root().join("empty");
    fs::create_dir(&empty).unwrap();
    refused(&empty, "IMPORT_SOURCE_MISSING");
    let broken = machine.root().join("broken");
    fs::create_dir_all(broken.join("state")).unwrap();
    fs::write(
        broken.join("openclaw.json"),
        r#"{ "token": "fixture-secret-token" nonsense"#,
    )
    .unwrap();
    let run = machine.run(&["import", "openclaw", "--from", broken.to_str().unwrap()]);
    run.refused(1, "IMPORT_UNREADABLE");
    assert!(!run.stderr.contains("fixture-secret"), "{run:#?}");
    fs::remove_file(broken.join("openclaw.json")).unwrap();
    fs::write(broken.join("state/openclaw.sqlite"), "no database").unwrap();
    refused(&broken, "IMPORT_UNREADABLE");
    fs::remove_file(broken.join("state/openclaw.sqlite")).unwrap();
    fs::create_dir(broken.join("exec-approvals.json")).unwrap();
    refused(&broken, "IMPORT_UNREADABLE");
    assert_eq!(machine.document(), before);
    assert!(!machine.config().exists());
}

#[test]
fn names_from_there_cannot_disturb_a_terminal() {
    let machine = Machine::new();
    machine.start();
    let directory = machine.root().join("theirs");
    fs::create_dir(&directory).unwrap();
    let document = json!({ "version": 1, "agents": { "main": { "allowlist": [
        { "pattern": "/usr/bin/\u{1b}[31mred\nagents.main: fake" } ] } } });
    fs::write(directory.join("exec-approvals.json"), document.to_string()).unwrap();
    let config =
        json!({ "evil\u{1b}[2J": 1, "${HOME}": 2, "tools": { "exec": { "node": "${SECRET}" } } });
    fs::write(directory.join("openclaw.json"), config.to_string()).unwrap();
    let run = machine.ok(&["import", "openclaw", "--from", directory.to_str().unwrap()]);
    assert!(!run.stdout.contains('\u{1b}'), "{run:#?}");
    assert!(!run.stdout.contains("\nagents.main: fake"), "{run:#?}");
    let exec = machine.run(&["config", "get", "tools.exec.node"]);
    assert_ne!(exec.code, 0, "{exec:#?}");
}

#[test]
fn the_usual_directory_is_found_and_the_report_is_readable() {
    let machine = Machine::new();
    machine.start();
    machine
        .run(&["import", "openclaw"])
        .refused(1, "IMPORT_SOURCE_MISSING");
    let usual = machine.root().join("home/.openclaw");
    let copied = std::process::Command::new("/bin/cp")
        .args(["-r", &fixture("2026.5")])
        .arg(&usual)
        .status();
    assert!(copied.unwrap().success());
    let run = machine.ok(&["import", "openclaw", "--dry-run"]);
    for expected in [
        "would take\n",
        "  agents.main.allowlist: `/usr/bin/uname` with any arguments (allows more)\n",
        "left\n",
        "    command: interlock exec-policy set --security full\n",
    ] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
    let last = run.stdout.lines().last().unwrap();
    assert!(last.ends_with("allow more than before"), "{last}");
    assert!(run.stderr.contains("of OpenClaw 2026.5.19"), "{run:#?}");
}

#[test]
fn a_run_cannot_import() {
    let machine = Machine::open();
    machine.switch_shield_off();
    let (_, before) = machine.document();
    let from = with_config(&machine, "{}");
    fs::write(
        Path::new(&from).join("exec-approvals.json"),
        r#"{ "version": 1, "agents": { "main": { "allowlist": [{ "pattern": "/usr/bin/id" }] } } }"#,
    )
    .unwrap();
    let mine = machine.binary().display().to_string();
    let run = machine.exec(&format!("{mine} import openclaw --from {from}"));
    assert_ne!(run.code, 0, "{run:#?}");
    assert_eq!(machine.document().1, before);
}

#[test]
fn a_source_that_cannot_be_written_is_read_all_the_same() {
    let machine = Machine::new();
    machine.start();
    let from = machine.root().join("theirs");
    let copied = std::process::Command::new("/bin/cp")
        .args(["-r", &fixture("2026.9")])
        .arg(&from)
        .status();
    assert!(copied.unwrap().success());
    for (path, mode) in [
        ("state/openclaw.sqlite", 0o400),
        ("state", 0o500),
        ("", 0o500),
    ] {
        fs::set_permissions(from.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let report = imported(&machine, from.to_str().unwrap(), &["--dry-run"]);
    assert_eq!(report["document"], "sqlite");
    if !is_root() {
        for path in ["", "state"] {
            fs::set_permissions(from.join(path), fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}
