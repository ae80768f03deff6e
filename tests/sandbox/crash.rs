//! What dies in the middle, and what is missing: nothing is left behind, nothing runs on the host instead, and
//! the error says what to do.

use std::fs;
use std::process::Command;

use testkit::{Machine, eventually};

use crate::site::{USUAL, everywhere};

/// Processes of the host whose command line holds a word.
fn processes_with(word: &str) -> Vec<String> {
    let list = fs::read_dir("/proc").unwrap().flatten();
    list.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let name = entry.file_name().into_string().ok()?;
        String::from_utf8_lossy(&line)
            .contains(word)
            .then_some(name)
    })
    .collect()
}

/// The namespace of a process, by its kind.
fn namespace(pid: &str, kind: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some(link.display().to_string())
}

fn kill(pid: &str) {
    let run = testkit::finish(Command::new("/usr/bin/kill").args(["-9", pid]));
    assert_eq!(run.code, 0, "{run:#?}");
}

/// Process 1 of the sandbox of a process.
fn init_of(pid: &str) -> String {
    let own = namespace(pid, "pid");
    let list = fs::read_dir("/proc").unwrap().flatten();
    let mut inits = list.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        (comm.trim() == "interlock-init" && namespace(&name, "pid") == own).then_some(name)
    });
    inits.next().expect("process 1")
}

/// The supervisor, or process 1 of the sandbox, is killed while a run goes on: everything of the run ends, and
/// no process is left in its namespaces. The next run works.
#[test]
fn a_run_ends_with_its_supervisor_and_with_its_process_1() {
    if !testkit::is_root() {
        println!("skipped: only root sees the namespaces of all");
        return;
    }
    everywhere(USUAL, |site| {
        for victim in ["supervisor", "init"] {
            let mark = format!("62{}{}", std::process::id(), victim.len());
            let text = format!("setsid sleep {mark} & (sleep {mark} &); exec sleep {mark}");
            site.machine.ok(&["exec", "--background", "--", &text]);
            let sleeping = format!("sleep\0{mark}");
            eventually("all of its processes", || {
                processes_with(&sleeping).len() == 3
            });
            let inside = processes_with(&sleeping).remove(0);
            let held: Vec<(&str, String)> = ["pid", "mnt"]
                .map(|kind| (kind, namespace(&inside, kind).unwrap()))
                .to_vec();
            match victim {
                "supervisor" => site
                    .machine
                    .supervisors()
                    .iter()
                    .for_each(|pid| kill(&pid.to_string())),
                _ => kill(&init_of(&inside)),
            }
            eventually("the end of all", || processes_with(&sleeping).is_empty());
            eventually("the end of its namespaces", || {
                let list = fs::read_dir("/proc").unwrap().flatten();
                let mut pids = list.filter_map(|entry| entry.file_name().into_string().ok());
                !pids.any(|pid| {
                    held.iter()
                        .any(|(kind, id)| namespace(&pid, kind).as_ref() == Some(id))
                })
            });
            assert_eq!(site.says("echo next"), "next\n", "{victim}");
        }
    });
}

/// A workspace that vanished, or is a file, gives an error that names it.
#[test]
fn a_vanished_workspace_is_an_error() {
    everywhere(USUAL, |site| {
        let gone = site.machine.root().join("gone");
        for is_file in [false, true] {
            if is_file {
                fs::write(&gone, "").unwrap();
            }
            site.machine.configure(&format!(
                "{{ agents: {{ defaults: {{ workspace: '{}', sandbox: {{ {USUAL} }} }} }} }}",
                gone.display()
            ));
            let gateway = site.machine.gateway();
            let mut client = gateway.connect(testkit::ws::EVERYTHING);
            let trace = site.machine.root().join("work/trace");
            let args = serde_json::json!({ "command": format!("touch {}", trace.display()) });
            let call = serde_json::json!({ "name": "exec", "args": args, "sessionKey": "agent:main:main" });
            let answer = client.call("tools.invoke", &call);
            let said = format!("{answer:?}");
            assert!(said.contains("gone"), "{said}");
            assert!(!said.contains("\"completed\""), "{said}");
            assert!(!trace.exists());
        }
    });
}

/// The disk of the state directory is full: a run starts in its sandbox or not at all.
#[test]
fn a_full_disk_never_puts_a_run_on_the_host() {
    if !testkit::is_root() {
        println!("skipped: only root mounts");
        return;
    }
    let machine = Machine::new();
    let home = machine.root().join("home").display().to_string();
    let config = format!("{{ agents: {{ defaults: {{ sandbox: {{ {USUAL} }} }} }} }}");
    let text =
        "if grep -q 'Seccomp:.*2' /proc/self/status; then echo inside; else touch on-the-host; fi";
    let binary = machine.binary().display();
    // In mounts of its own, so that the machine keeps its.
    let script = format!(
        "mount -t tmpfs -o size=4m full {home} && mkdir {home}/.interlock && chmod 700 {home}/.interlock && \
         printf '%s' \"$1\" > {home}/.interlock/interlock.json && chmod 600 {home}/.interlock/interlock.json && \
         {binary} exec -- \"$2\"; dd if=/dev/zero of={home}/rest bs=4k 2>/dev/null; echo FULL; {binary} exec -- \"$2\"; \
         echo CODE $?; rm {home}/rest; {binary} exec -- \"$2\""
    );
    let mut command = machine.other_program("/usr/bin/unshare");
    command.args([
        "-m",
        "--propagation",
        "private",
        "sh",
        "-c",
        &script,
        "sh",
        &config,
        text,
    ]);
    let run = testkit::finish(&mut command);
    let (before, rest) = run.stdout.split_once("FULL\n").unwrap_or_default();
    assert!(before.contains("inside"), "{run:#?}");
    let (full, after) = rest.split_once("CODE ").unwrap_or_default();
    // Either it ran inside, or it says why not.
    assert!(
        full.contains("inside") || run.stderr.contains("error["),
        "{run:#?}"
    );
    assert!(after.contains("inside"), "it works again: {run:#?}");
    assert!(!machine.work().join("on-the-host").exists());
}
