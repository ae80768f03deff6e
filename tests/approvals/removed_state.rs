//! The state directory is removed while something waits in it: no decision can come, so nothing waits on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::{Child, Stdio};

use testkit::asking::Waiting;
use testkit::{Machine, Run, eventually};

fn ended(mut child: Child) -> Run {
    eventually("the command ends", || child.try_wait().unwrap().is_some());
    Run::of(&child.wait_with_output().unwrap())
}

#[test]
fn a_command_that_waits_for_an_approval_ends_with_the_reason() {
    let machine = Machine::new();
    machine.start();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    fs::remove_dir_all(machine.state()).unwrap();
    let run = ended(waiting.child);
    run.refused(1, "STORE_REMOVED");
    assert!(run.stderr.contains("removed or replaced"), "{run:#?}");
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn a_replaced_database_ends_the_wait_too() {
    let machine = Machine::new();
    machine.start();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let database = machine.state().join("interlock.db");
    fs::copy(&database, machine.root().join("copy.db")).unwrap();
    fs::rename(machine.root().join("copy.db"), &database).unwrap();
    ended(waiting.child).refused(1, "STORE_REMOVED");
}

#[test]
fn followers_and_servers_end_too() {
    let machine = Machine::new();
    machine.start();
    let mut children = Vec::new();
    for arguments in [
        &["events", "--session", "agent:main:main", "--follow"][..],
        &["sandbox", "net", "--follow"],
        &["gateway", "run", "--port", "0"],
        &["node", "run", "--host", "127.0.0.1", "--port", "1"],
    ] {
        let mut command = machine.command(arguments);
        command.env("INTERLOCK_GATEWAY_TOKEN", "x");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        children.push((arguments, command.spawn().unwrap()));
    }
    // Each of them has the database open by then.
    for (arguments, child) in &children {
        let open = || {
            let files = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
            let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
            targets.any(|target| target.ends_with("interlock.db"))
        };
        eventually(&format!("{arguments:?} is there"), open);
    }
    // The servers open it a second time before they serve.
    eventually("both servers serve", || {
        machine.run(&["gateway", "status"]).code == 0 && machine.run(&["node", "status"]).code == 0
    });
    fs::remove_dir_all(machine.state()).unwrap();
    for (arguments, child) in children {
        let run = ended(child);
        assert_eq!(run.code, 1, "{arguments:?}: {run:#?}");
        assert!(
            run.stderr.contains("removed or replaced"),
            "{arguments:?}: {run:#?}"
        );
    }
}

#[test]
fn the_inbox_ends_with_the_reason() {
    let machine = Machine::new();
    machine.start();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let mut watch = machine.command(&["approvals", "watch", "--plain"]);
    watch
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut first = [0; 1];
    std::io::Read::read_exact(watch.stdout.as_mut().unwrap(), &mut first).unwrap();
    fs::remove_dir_all(machine.state()).unwrap();
    let run = ended(watch);
    assert_eq!(run.code, 1, "{run:#?}");
    assert!(run.stderr.starts_with("error[STORE_REMOVED]: "), "{run:#?}");
    ended(waiting.child).refused(1, "STORE_REMOVED");
}
