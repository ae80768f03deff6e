//! A run that ends the processes above it is still a run: it decides nothing, and no transport takes
//! it for the owner.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use testkit::{Machine, eventually};

/// Leaves its run: a session of its own, an orphan, an empty environment. Then it ends shim,
/// supervisor and guard, and calls the program. All output goes to the file `out`.
const ESCAPE: &str = r#"#!/bin/sh
above() {
    sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 2
}
keepers=
pid=$$
while [ "$pid" -gt 1 ]; do
    case $(cat "/proc/$pid/comm") in interlock*) keepers="$keepers $pid" ;; esac
    pid=$(above "$pid")
done
export keepers
(setsid sh -c '
    kill -STOP $keepers
    kill -KILL $keepers
    for pid in $keepers; do
        while kill -0 $pid 2> /dev/null && ! grep -q "^State:.[ZX]" /proc/$pid/status 2> /dev/null; do
            sleep 0.02
        done
    done
    {
        echo "ended$keepers"
        CALLS
    } > new 2>&1
    mv new out
' > /dev/null 2>&1 < /dev/null &)
while [ ! -e out ]; do sleep 0.02; done
"#;

/// Calls the program from what is left of a run that has ended the processes above it. A gateway starts
/// another supervisor meanwhile, which ends what it finds in a control group of a run: then there is
/// nothing left that could call, and the answer is `None`.
fn escaped(machine: &Machine, calls: &[String]) -> Option<String> {
    let binary = machine.binary().display().to_string();
    let calls: Vec<String> = calls
        .iter()
        .map(|call| {
            format!("env -i HOME=\"$HOME\" PATH=/usr/bin:/bin {binary} {call}; echo code=$?")
        })
        .collect();
    machine.script(
        "work/escape.sh",
        &ESCAPE.replace("CALLS", &calls.join("\n        ")),
    );
    machine.run(&["exec", "--no-wait", "--", "./escape.sh"]);
    let work = machine.work();
    // The gateway of the test works in the same directory.
    let is_gateway = |process: &Path| {
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        command.windows(12).any(|words| words == b"gateway\0run\0")
    };
    let is_there = |process: fs::DirEntry| {
        let process = process.path();
        fs::read_link(process.join("cwd")).is_ok_and(|directory| directory == work)
            && !is_gateway(&process)
    };
    let is_over = || !fs::read_dir("/proc").unwrap().flatten().any(is_there);
    let out = work.join("out");
    eventually("what is left of the run has called, or was ended", || {
        out.exists() || is_over()
    });
    fs::read_to_string(out).ok()
}

/// The shield would keep the run from the processes above it; here the rest has to hold.
fn without_shield(machine: &Machine) {
    let _ = machine.run(&["config", "set", "tools.exec.shield", "off"]);
}

fn decides_nothing(machine: &Machine) {
    machine.allow_every_program();
    without_shield(machine);
    let id = machine.put_down(&["--", "touch marker > x"]);
    let (_, hash) = machine.document();
    let calls = [
        format!("approvals approve {id}"),
        format!("approvals approve {id} --always"),
        "approvals allowlist add rg".to_owned(),
        "exec-policy preset yolo".to_owned(),
        "gateway token --new".to_owned(),
        "nodes enroll".to_owned(),
    ];
    // The guard continues a stopped supervisor and the supervisor a stopped shim. One that is
    // continued before it is killed still ends the run, and the attempt is made again.
    let out = (0..10)
        .find_map(|_| escaped(machine, &calls))
        .expect("each of ten attempts was ended");
    assert!(out.starts_with("ended "), "nothing was ended: {out}");
    assert_eq!(out.matches("code=1\n").count(), calls.len(), "{out}");
    assert_eq!(
        out.matches("DECISION_FROM_RUN").count(),
        calls.len(),
        "{out}"
    );
    assert_eq!(machine.document().1, hash);
    assert_eq!(machine.pending()[0]["id"], id.as_str());
    machine.ok(&["approvals", "approve", &id]);
}

#[test]
fn a_run_that_ends_the_processes_above_it_decides_nothing() {
    decides_nothing(&Machine::new());
}

#[test]
fn a_run_of_an_ordinary_user_that_ends_the_processes_above_it_decides_nothing() {
    if let Some(machine) = Machine::of_ordinary_user() {
        decides_nothing(&machine);
    }
}

fn is_no_operator_at_the_socket(machine: &Machine) {
    machine.allow_every_program();
    without_shield(machine);
    let _gateway = machine.gateway();
    if let Some(out) = escaped(machine, &["devices list".to_owned()]) {
        assert!(out.starts_with("ended "), "nothing was ended: {out}");
        assert!(out.contains("PEER_IN_RUN"), "{out}");
        assert!(out.ends_with("code=1\n"), "{out}");
    }
    machine.ok(&["devices", "list"]);
}

#[test]
fn what_is_left_of_a_run_is_no_operator_at_the_unix_socket() {
    is_no_operator_at_the_socket(&Machine::new());
}

#[test]
fn what_is_left_of_an_ordinary_users_run_is_no_operator_at_the_unix_socket() {
    if let Some(machine) = Machine::of_ordinary_user() {
        is_no_operator_at_the_socket(&machine);
    }
}
