//! The shield: what a run sees of Interlock, what it can do to it, and what is left of a run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use testkit::{Machine, Run, eventually, is_root};

/// As root: a machine of root, and one of an ordinary user. As an ordinary user: one's own.
fn machines() -> Vec<Machine> {
    let machines = [Some(Machine::new()), Machine::of_ordinary_user()];
    let machines: Vec<Machine> = machines.into_iter().flatten().collect();
    for machine in &machines {
        machine.ok(&["exec-policy", "preset", "yolo"]);
    }
    machines
}

/// One whose runs live in a user namespace. None, with the reason printed, where there can be none.
fn ordinary() -> Option<Machine> {
    let machine = if is_root() {
        Machine::of_ordinary_user()?
    } else {
        Machine::new()
    };
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let shield = shield_of(&machine, "true");
    if shield != "shielded" {
        println!("skipped: {shield}");
        return None;
    }
    Some(machine)
}

fn shield_of(machine: &Machine, command: &str) -> String {
    let explanation = machine.explain(&["--", command]);
    explanation["shield"].as_str().unwrap().to_owned()
}

/// Without namespaces there is nothing to test.
fn is_shielded(machine: &Machine) -> bool {
    let shield = shield_of(machine, "true");
    let is_shielded = shield.starts_with("shielded");
    if !is_shielded {
        println!("skipped: {shield}");
    }
    is_shielded
}

fn json(machine: &Machine, flags: &[&str], text: &str) -> serde_json::Value {
    let arguments = [&["exec", "--json"], flags, &["--", text]].concat();
    let run: Run = machine.run(&arguments);
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:#?}"))
}

#[test]
fn a_run_finds_neither_the_state_directory_nor_a_process_of_interlock() {
    for machine in machines() {
        if !is_shielded(&machine) {
            continue;
        }
        let state = machine.state();
        let state = state.display();
        let text = format!(
            "/usr/bin/ls -A {state} | wc -l; cat {state}/run.key; : > {state}/new; /usr/bin/ls /proc | grep -c '^[0-9]'; \
             cat /proc/[0-9]*/comm"
        );
        let result = json(&machine, &[], &text);
        let shown = result["output"]["text"].as_str().unwrap();
        assert!(shown.starts_with("0\n"), "{shown}");
        assert!(shown.contains("No such file"), "{shown}");
        for name in ["interlock-super", "interlock-guard", "interlock\n"] {
            assert!(!shown.contains(name), "{name} in {shown}");
        }
        assert!(machine.state().join("run.key").exists());
        assert!(!machine.state().join("new").exists());
    }
}

/// Each line is an attempt to get at the state directory, or at the processes above.
const ATTACKS: &[&str] = &[
    "umount STATE",
    "umount -l STATE",
    "mv STATE STATE.away",
    "rmdir STATE",
    "unshare -Ur umount STATE",
    "unshare -Urm umount STATE",
    "unshare -Urm sh -c 'umount -l STATE; cat STATE/run.key'",
    "unshare -Urm sh -c 'mount --bind / /mnt; cat /mnt/STATE/run.key'",
    "unshare -Urm sh -c 'mount --rbind / /mnt; umount -l /mnt/STATE; cat /mnt/STATE/run.key'",
    "unshare -Urm sh -c 'mount --bind HOME /mnt; cat /mnt/.interlock/run.key'",
    "unshare -Urm sh -c 'mount -t overlay -o lowerdir=HOME:/etc none /mnt; cat /mnt/.interlock/run.key'",
    "unshare -Urmpf --mount-proc sh -c 'cat /proc/*/root/STATE/run.key'",
    "unshare -Urm sh -c 'umount -l /proc; cat /proc/*/root/STATE/run.key'",
    "cat /proc/*/root/STATE/run.key",
    "cat /proc/*/cwd/.interlock/run.key",
    "cat /proc/*/fd/* < /dev/null",
    "nsenter -t 1 -m cat STATE/run.key",
    "nsenter -t 1 -U --preserve-credentials -m cat STATE/run.key",
    "for f in /proc/self/fd/*; do cat $f/run.key $f/../run.key; done",
    "kill -9 1; kill -STOP 1; kill -9 -1",
    "echo x > /proc/1/mem",
];

#[test]
fn an_ordinary_users_run_cannot_undo_its_shield() {
    let Some(machine) = ordinary() else { return };
    let state = machine.state().display().to_string();
    let home = machine.state().parent().unwrap().display().to_string();
    let key = fs::read(machine.state().join("run.key"));
    assert!(key.is_err(), "there is no key before the first run");
    machine.ok(&["exec", "--", "true"]);
    machine.ok(&["exec", "--", "/usr/bin/true"]);
    let key = fs::read(machine.state().join("run.key")).unwrap();
    for attack in ATTACKS {
        let text = attack.replace("STATE", &state).replace("HOME", &home);
        // Behind a pipe, so that the key cannot end up in the transcript unseen.
        let text = format!("({text}) < /dev/null 2>&1 | od -An -v -tx1 | tr -d ' \\n'");
        let result = json(&machine, &["--timeout", "60"], &text);
        assert_eq!(result["shield"], "shielded", "{attack}");
        let shown = result["output"]["text"].as_str().unwrap();
        let digits = key.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let hex = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
        let hex: String = hex.collect();
        assert!(!shown.contains(&hex), "{attack} has shown the key");
        assert_eq!(fs::read(machine.state().join("run.key")).unwrap(), key);
    }
    // And everything still works.
    assert_eq!(machine.exec("echo still").stdout, "still\n");
}

#[test]
fn a_directory_above_the_state_directory_cannot_be_moved_away() {
    let Some(machine) = ordinary() else { return };
    let above = machine.root().join("home/a");
    let state = above.join("b/state");
    let state = state.to_str().unwrap();
    machine.ok(&["exec-policy", "preset", "yolo", "--state-dir", state]);
    let text = "cd; mv a x || mv a/b a/y || echo held";
    let run = machine.ok(&["exec", "--state-dir", state, "--", text]);
    assert!(run.stdout.ends_with("held\n"), "{run:#?}");
    assert!(fs::metadata(above.join("b/state")).is_ok());
}

#[test]
fn a_file_of_the_state_directory_with_another_name_keeps_runs_from_starting() {
    let Some(machine) = ordinary() else { return };
    let other = machine.root().join("home/other");
    fs::hard_link(machine.config(), &other).unwrap();
    let run = machine.exec("/usr/bin/true");
    run.refused(1, "SHIELD_FAILED");
    assert!(run.stderr.contains("has another name"), "{run:#?}");
    fs::remove_file(other).unwrap();
    assert_eq!(machine.exec("/usr/bin/true").code, 0);
}

#[test]
fn an_agent_sees_and_ends_what_it_started_earlier_and_no_other_agent_does() {
    for machine in machines() {
        if !is_shielded(&machine) {
            continue;
        }
        machine.know_agents(&["other"]);
        let session = machine.background(&[], "exec sleep 4321");
        let seen = |agent: &str| {
            let text = "ps -eo args | grep -c '[s]leep 4321'";
            machine.run(&["exec", "--agent", agent, "--", text]).stdout
        };
        assert_eq!(seen("main"), "1\n");
        assert_eq!(seen("other"), "0\n");
        machine.run(&["exec", "--agent", "other", "--", "pkill -f '[s]leep 4321'"]);
        assert_eq!(seen("main"), "1\n");
        machine.ok(&["exec", "--", "pkill -f '[s]leep 4321'"]);
        session.ended();
        assert_eq!(seen("main"), "0\n");
    }
}

/// What detaches itself in every way it can, and then writes its number outside and waits.
const DAEMON: &str = "setsid sh -c '(setsid unshare -Ur sleep 5432 || setsid sleep 5432) & \
                      (setsid sleep 5432 &) & sleep 0.1' > /dev/null 2>&1 < /dev/null & sleep 0.5";

fn sleepers() -> usize {
    let is_sleeper = |entry: &fs::DirEntry| {
        let called = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        called.starts_with(b"sleep\x005432\x00")
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(is_sleeper)
        .count()
}

#[test]
fn what_a_run_leaves_behind_is_named_and_ended_however_it_detached_itself() {
    for machine in machines() {
        if !is_shielded(&machine) {
            continue;
        }
        let result = json(&machine, &[], DAEMON);
        let leftovers = result["leftovers"].as_array().unwrap();
        assert!(!leftovers.is_empty(), "{result:#}");
        eventually("what the run left is gone", || sleepers() == 0);
        // A run that is not over is not touched by the end of another one of the same agent.
        let session = machine.background(&[], "(setsid sleep 6543 &) ; exec sleep 7654");
        json(&machine, &[], DAEMON);
        eventually("what the run left is gone", || sleepers() == 0);
        let others = machine.exec("ps -eo args | grep -c '[s]leep [67]'").stdout;
        assert_eq!(others, "2\n");
        session.run("kill", &[]);
        let others = machine.exec("ps -eo args | grep -c '[s]leep [67]'").stdout;
        assert_eq!(others, "0\n");
    }
}

#[test]
fn what_may_stay_stays_with_its_shield() {
    for machine in machines() {
        if !is_shielded(&machine) {
            continue;
        }
        machine.ok(&["config", "set", "tools.exec.leftovers", "keep"]);
        json(&machine, &[], "(setsid sleep 8765 > /dev/null 2>&1 &)");
        let count = "ps -eo args | grep -c '[s]leep 8765'";
        assert_eq!(machine.exec(count).stdout, "1\n");
        machine.exec("pkill -f '[s]leep 8765'");
        eventually("it has ended", || machine.exec(count).stdout == "0\n");
    }
}

#[test]
fn terminals_lines_and_groups_work_inside() {
    for machine in machines() {
        if !is_shielded(&machine) {
            continue;
        }
        let run = machine.ok(&["exec", "--pty", "--", "tty && stty size && echo a | cat"]);
        assert!(run.stdout.contains("/dev/pts/"), "{run:#?}");
        assert!(run.stdout.contains("30 120"), "{run:#?}");
        let run = machine.exec("cd / && pwd && echo x | cat | cat && rm $(mktemp -p /dev/shm)");
        assert_eq!(run.stdout, "/\nx\n", "{run:#?}");
        let run = machine.exec("id -u; test -r /proc/sys/kernel/ostype && echo readable");
        assert!(run.stdout.ends_with("readable\n"), "{run:#?}");
    }
}

#[test]
fn programs_that_need_the_host_identity_ask_and_then_run_without_the_shield() {
    let Some(machine) = ordinary() else { return };
    machine.ok(&["exec-policy", "preset", "cautious"]);
    machine.ok(&["approvals", "allowlist", "add", "--agent", "main", "ssh"]);
    machine.ok(&["approvals", "allowlist", "add", "--agent", "main", "ls"]);
    let explain = |command: &str| {
        let explanation = machine.explain(&["--", command]);
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        (text(&explanation["verdict"]), text(&explanation["shield"]))
    };
    let pair = |verdict: &str, shield: &str| (verdict.to_owned(), shield.to_owned());
    if !std::path::Path::new("/usr/bin/ssh").exists() {
        println!("skipped: ssh is not installed");
        return;
    }
    assert_eq!(explain("ls"), pair("allow", "shielded"));
    assert_eq!(explain("ssh -V"), pair("ask", "without the shield"));
    let hint = machine.run(&["explain", "--", "ssh -V"]);
    assert!(hint.stdout.contains("--shield off"), "{hint:#?}");
    let add = [
        "approvals",
        "allowlist",
        "add",
        "--agent",
        "main",
        "--shield",
        "off",
        "ssh",
    ];
    machine.ok(&add);
    assert_eq!(explain("ssh -V"), pair("allow", "without the shield"));
    // The other commands of the line would run without the shield, too.
    assert_eq!(explain("ls && ssh -V").0, "ask");
    machine.ok(&["config", "set", "tools.exec.shield", "on"]);
    assert_eq!(explain("ssh -V").0, "deny");
    machine.exec("ssh -V").refused(3, "SHIELD_SETUID");
    machine.ok(&["config", "set", "tools.exec.shield", "off"]);
    let off = explain("ssh -V");
    assert_eq!(off, pair("allow", "guard only (tools.exec.shield is off)"));
}

#[test]
fn neither_a_call_nor_a_conversation_sets_the_shield() {
    let machine = Machine::open();
    let run = machine.run(&["exec", "--shield", "off", "--", "true"]);
    assert_eq!(run.code, 2, "{run:#?}");
}
