//! No process of a run reads or alters the processes of Interlock; programs of runs are as open as
//! ever.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Stdio};

use testkit::{Machine, eventually};

/// Files of a process that is closed to others belong to root.
fn is_closed(pid: i32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}/environ")).map(|file| file.uid());
    owner.unwrap() == 0
}

/// The processes of a machine: those whose arguments name it.
fn processes(machine: &Machine) -> Vec<(i32, String)> {
    let root = machine.root().display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let called = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let called = String::from_utf8_lossy(&called).replace('\0', " ");
        if called.starts_with(&format!("{root}/interlock ")) {
            found.push((pid, called));
        }
    }
    found
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_process_of_interlock_is_closed_and_every_program_of_a_run_is_open() {
    let Some(machine) = Machine::of_ordinary_user() else {
        println!("skipped: only root sees both sides");
        return;
    };
    machine.allow_every_program();
    let gateway = machine.gateway();
    let port = gateway.port.to_string();
    let start = |arguments: &[&str]| {
        let mut command = machine.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ended(command.spawn().unwrap())
    };
    let _asking = start(&["exec", "--", "echo > redirected"]);
    let token = machine.node_token();
    let mut node = machine.command(&["node", "run", "--host", "127.0.0.1", "--port", &port]);
    node.env("INTERLOCK_GATEWAY_TOKEN", &token);
    let _node = Ended(
        node.stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let _mcp = start(&["mcp"]);
    let _watch = start(&["approvals", "watch", "--plain"]);
    let _follow = start(&["events", "--session", "agent:main:main", "--follow"]);
    machine.background(&[], "sleep 600");
    let wanted = [
        "gateway run",
        "guard",
        "exec",
        "node run",
        "mcp",
        "approvals watch",
        "events",
    ];
    eventually("all of them run", || {
        let running = processes(&machine);
        wanted
            .iter()
            .all(|name| running.iter().any(|(_, called)| called.contains(name)))
    });
    eventually("all of them are closed to others", || {
        processes(&machine).iter().all(|(pid, _)| is_closed(*pid))
    });
    // Guard, supervisor, and at least the shim of the run.
    let guards = processes(&machine);
    let guards = guards
        .iter()
        .filter(|(_, called)| called.contains(" guard "));
    assert!(guards.count() >= 3);
    let sessions = machine.sessions(&[]);
    let pid = i32::try_from(sessions[0]["pid"].as_i64().unwrap()).unwrap();
    assert!(
        !is_closed(pid),
        "a program of a run is as open as any other"
    );
}

#[test]
fn a_run_cannot_read_the_environment_or_the_memory_of_the_gateway() {
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.allow_every_program();
    let _ = machine.run(&["config", "set", "tools.exec.shield", "off"]);
    let secret = "a-token-of-the-environment-of-this-gateway";
    let gateway = machine.gateway_as(&["--port", "0"], &[("INTERLOCK_GATEWAY_TOKEN", secret)]);
    let pid = gateway.pid();
    for file in ["environ", "mem", "maps", "fd"] {
        let run = machine.exec(&format!("cat /proc/{pid}/{file}"));
        assert_ne!(run.code, 0, "{file}: {run:?}");
        assert!(!run.stdout.contains(secret), "{file}");
    }
}
