//! Limits of a run are in force, or it does not start: shown through `interlock exec`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use testkit::Machine;
use testkit::supervised::{eventually, processes};

/// A machine with these limits, where this user can have them.
fn limited(limits: &str) -> Option<Machine> {
    let machine = Machine::open();
    machine.write_config(&format!("{{ tools: {{ exec: {{ limits: {limits} }} }} }}"));
    let run = machine.exec("true");
    if run.code != 0 && run.stderr.contains("error[LIMITS_UNAVAILABLE]") {
        println!("skipped: {}", run.stderr);
        return None;
    }
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:#?}");
    Some(machine)
}

/// A limited run has a shim, and so a namespace, of its own. What makes that namespace is gone before the run begins.
#[test]
fn brief_runs_leave_nothing_behind() {
    let Some(machine) = limited("{ pids: 100 }") else {
        return;
    };
    for _ in 0..40 {
        let run = machine.exec("/bin/true");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:#?}");
    }
}

fn supervisor_of(machine: &Machine) -> i32 {
    let client = SupervisorClient::new(
        SupervisorPaths::new(&machine.state()),
        env!("CARGO_PKG_VERSION"),
    );
    client.supervisors()[0].pid
}

#[test]
fn who_takes_more_memory_than_the_limit_is_ended_and_that_is_told() {
    let Some(machine) = limited("{ memory: '48m' }") else {
        return;
    };
    // Within the limit nothing happens.
    let run = machine.exec("head -c 1000000 /dev/zero | tail -c 1000000 | wc -c");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "1000000\n"),
        "{run:#?}"
    );
    // `tail` keeps all of it, since it sees no line.
    let hungry = "tail /dev/zero";
    let run = machine.exec(hungry);
    assert_eq!(run.code, 137, "{run:#?}");
    assert!(
        run.stderr
            .contains("interlock: the command ran out of its memory limit\n"),
        "{run:#?}"
    );
    let run = machine.run(&["exec", "--json", "--", hungry]);
    let result = run.json();
    assert_eq!(run.code, 137);
    assert_eq!(result["outOfMemory"], true, "{result}");
    assert_eq!(
        (&result["status"], &result["signal"]),
        (&"failed".into(), &9.into())
    );
    // A part of a line: what comes after it goes on, and it is told all the same.
    let run = machine.run(&["exec", "--json", "--", "tail /dev/zero; echo after"]);
    let result = run.json();
    assert_eq!(result["output"]["text"], "after\n", "{result}");
    assert_eq!(result["outOfMemory"], true);
    // Who did not run out of it is not said to have.
    machine.script("bin/ending", "#!/bin/sh\nkill -9 $$\n");
    let result = machine.run(&["exec", "--json", "--", "ending"]).json();
    assert_eq!(result["exitCode"], 137);
    assert!(result["outOfMemory"].is_null(), "{result}");
    // The supervisor was not ended with the run: one supervisor served all of these.
    let supervisor = supervisor_of(&machine);
    let result = machine.run(&["exec", "--json", "--", hungry]).json();
    assert_eq!(result["outOfMemory"], true);
    assert_eq!(supervisor_of(&machine), supervisor);
}

/// In a background session it is known afterwards.
#[test]
fn a_session_that_ran_out_of_memory_says_so_later() {
    let Some(machine) = limited("{ memory: '48m' }") else {
        return;
    };
    let run = machine.run(&["exec", "--json", "--background", "--", "tail /dev/zero"]);
    let name = run.json()["sessionId"].as_str().unwrap().to_owned();
    let client = SupervisorClient::new(
        SupervisorPaths::new(&machine.state()),
        env!("CARGO_PKG_VERSION"),
    );
    eventually("the end", || {
        client.list().iter().any(|listed| {
            listed.session.name == name
                && listed.status.outcome.is_final()
                && listed.session.out_of_memory
        })
    });
}

#[test]
fn a_run_has_no_more_processes_than_the_limit() {
    let Some(machine) = limited("{ pids: 20 }") else {
        return;
    };
    machine.script(
        "bin/many",
        "#!/bin/bash\nfor i in $(seq 1 60); do sleep 600 & done 2>/dev/null\nwait -n\n",
    );
    machine.script(
        "bin/few",
        "#!/bin/bash\nfor i in 1 2 3 4 5 6 7 8; do sleep 0.01 & done; wait\n",
    );
    let run = machine.exec("few && echo well");
    assert_eq!((run.code, run.stdout.as_str()), (0, "well\n"), "{run:#?}");
    let run = machine.run(&["exec", "--json", "--timeout", "5", "--", "many"]);
    let result = run.json();
    // `bash` gives up, or waits for what it could start until its time is over.
    assert_ne!(result["exitCode"], 0, "{result}");
    let left = result["leftovers"].as_array().unwrap().len();
    assert!(left <= 40, "{result}");
    let text = machine.root().to_str().unwrap().to_owned();
    eventually("nothing of it", || {
        processes().iter().all(|process| {
            let cwd = fs::read_link(format!("/proc/{}/cwd", process.pid));
            process.zombie || !cwd.is_ok_and(|cwd| cwd.to_str().unwrap_or("").starts_with(&text))
        })
    });
}

/// Bounded by the limit, it is ended as a whole, however it is ended.
#[test]
fn a_fork_bomb_is_ended_completely() {
    let Some(machine) = limited("{ pids: 60 }") else {
        return;
    };
    machine.script(
        "bin/bomb",
        "#!/bin/bash\ntrap '' TERM HUP\nbomb() { bomb | bomb & }\necho $$ > started\nbomb 2>/dev/null\n\
         while :; do bomb 2>/dev/null; done\n",
    );
    let work = machine.work().to_str().unwrap().to_owned();
    let bombs = || {
        let all = processes().into_iter().filter(|process| {
            let cwd = fs::read_link(format!("/proc/{}/cwd", process.pid));
            !process.zombie && cwd.is_ok_and(|cwd| cwd.to_str() == Some(&work))
        });
        all.count()
    };
    let run = machine.run(&["exec", "--json", "--timeout", "2", "--", "bomb"]);
    assert_eq!(run.code, 124, "{run:#?}");
    eventually("nothing of the bomb", || bombs() == 0);
    // And by a client that asks for it.
    fs::remove_file(machine.work().join("started")).unwrap();
    let run = machine.run(&["exec", "--json", "--background", "--", "bomb"]);
    let name = run.json()["sessionId"].as_str().unwrap().to_owned();
    testkit::written(&machine.work().join("started"));
    eventually("a bomb", || bombs() > 20);
    let client = SupervisorClient::new(
        SupervisorPaths::new(&machine.state()),
        env!("CARGO_PKG_VERSION"),
    );
    let session = client.session(&name).unwrap();
    session.kill(interlock_engine::Signal::KILL).unwrap();
    assert_eq!(bombs(), 0);
    // The machine is as before.
    assert_eq!(machine.exec("echo well").stdout, "well\n");
}

/// Half a processor: the kernel makes it wait, and counts how often.
#[test]
fn a_run_has_no_more_processor_time_than_the_limit() {
    let Some(machine) = limited("{ cpus: 0.2 }") else {
        return;
    };
    machine.script(
        "bin/busy",
        "#!/bin/bash\nfor ((i = 0; i < 300000; i++)); do :; done\n\
         for tree in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct; do\n\
         while IFS=: read -r number controllers path; do\n\
         stat=$tree$path/cpu.stat; [[ $path == *interlock-run-* && -e $stat ]] && cat $stat\n\
         done < /proc/self/cgroup; done\n",
    );
    let run = machine.exec("busy");
    let throttled = run.stdout.lines().find_map(|line| {
        let count = line.strip_prefix("nr_throttled ")?;
        count.parse::<u64>().ok()
    });
    assert!(throttled.is_some_and(|count| count > 0), "{run:#?}");
}

#[test]
fn a_limit_that_cannot_be_set_starts_nothing() {
    let machine = if testkit::supervised::is_root() {
        let Some(machine) = Machine::of_ordinary_user() else {
            return;
        };
        machine
    } else {
        Machine::new()
    };
    machine.allow_every_program();
    for (field, value) in [("memory", "64m"), ("pids", "50"), ("cpus", "1")] {
        let field = format!("tools.exec.limits.{field}");
        machine.ok(&["config", "set", &field, value]);
        let run = machine.exec("touch marker");
        if run.code == 0 {
            println!("skipped: this user may set limits");
            return;
        }
        run.refused(1, "LIMITS_UNAVAILABLE");
        assert!(!machine.work().join("marker").exists());
        let run = machine.run(&["exec", "--background", "--", "touch marker"]);
        run.refused(1, "LIMITS_UNAVAILABLE");
        assert!(!machine.work().join("marker").exists());
        machine.ok(&["config", "unset", &field]);
    }
    assert_eq!(machine.exec("touch marker").code, 0);
    assert!(machine.work().join("marker").exists());
}
