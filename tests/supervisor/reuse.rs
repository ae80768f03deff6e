//! One run after another in one process: which process may have a second one, and what that finds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::net::UnixStream;

use interlock_engine::Leftovers;
use interlock_plan::{PtySize, RunPlan};
use interlock_supervisor::cgroup::RunLimits;
use interlock_supervisor::{Manner, SupervisorClient};
use serde_json::{Value, json};
use testkit::supervised::wire::{connect, frame, hello, receive};
use testkit::supervised::{State, end_of, eventually, is_alive, kill, patient};

/// Runs a text that writes numbers, and gives them.
fn numbers(state: &State, plan: &RunPlan, manner: &Manner) -> Option<Vec<i32>> {
    let conversation = state.start(plan, manner).ok()?;
    let text = end_of(&conversation).shown.text;
    conversation.taken().unwrap();
    let words = text.split_ascii_whitespace();
    Some(words.map(|word| word.parse().unwrap()).collect())
}

/// Below which process a run is that leaves nothing behind.
fn shim(state: &State) -> i32 {
    let plan = state.shell("echo $PPID");
    numbers(state, &plan, &patient()).unwrap()[0]
}

/// Whether one of many runs that come later is below this process.
fn has_another_run(state: &State, shim_before: i32) -> bool {
    (0..20).any(|_| shim(state) == shim_before)
}

#[test]
fn a_process_whose_run_left_nothing_behind_has_the_next_one() {
    let state = State::new();
    let all: Vec<i32> = (0..50).map(|_| shim(&state)).collect();
    let different: BTreeSet<&i32> = all.iter().collect();
    assert!(different.len() < all.len() / 2, "{all:?}");
}

/// The agents take turns, so that each finds the process of the other one waiting.
#[test]
fn a_process_has_runs_of_one_agent_only() {
    let state = State::new();
    state.run("true");
    for client in [state.client.clone(), keeping(&state)] {
        let mut used: [Vec<i32>; 3] = Default::default();
        for _ in 0..15 {
            for (number, all) in used.iter_mut().enumerate() {
                all.push(shim_of_agent(&state, &client, &format!("agent-{number}")));
            }
        }
        for (number, own) in used.iter().enumerate() {
            let own: BTreeSet<i32> = own.iter().copied().collect();
            assert!(own.len() < 15, "agent {number} never had a process again");
            for other in &used[number + 1..] {
                let shared: Vec<&i32> = other.iter().filter(|shim| own.contains(shim)).collect();
                assert!(shared.is_empty(), "{shared:?} of {used:?}");
            }
        }
    }
}

/// Below which process a run of this agent is.
fn shim_of_agent(state: &State, client: &SupervisorClient, agent: &str) -> i32 {
    let mut plan = state.shell("echo $PPID");
    agent.clone_into(&mut plan.agent_id);
    let conversation = State::order(&plan, &patient()).start(client).unwrap();
    let shim = end_of(&conversation).shown.text.trim().parse().unwrap();
    conversation.taken().unwrap();
    shim
}

/// A connection to the process of another agent's run starts nothing there.
#[test]
fn a_process_refuses_the_plan_of_another_agent() {
    let state = State::new();
    state.run("true");
    let marker = state.work().join("marker");
    let mut plan = state.shell(&format!("touch {}", marker.display()));
    for (agent, expected) in [("other", Some("SHIM_OF_OTHER_AGENT")), ("main", None)] {
        let mut stream = connect(&state);
        let first = Raw::of(&state.shell("echo $PPID"));
        let mut start = hello(&json!("start"));
        start["agent"] = "main".into();
        stream.write_all(&frame(&start)).unwrap();
        first.send(&mut stream);
        let started = receive(&stream).unwrap();
        assert_eq!(started["Ok"]["session"]["agentId"], "main", "{started}");
        receive(&stream).expect("its end");
        stream.write_all(&frame(&json!("takenForNext"))).unwrap();
        receive(&stream).expect("it takes another order");
        agent.clone_into(&mut plan.agent_id);
        Raw::of(&plan).send(&mut stream);
        let answer = receive(&stream).unwrap();
        assert_eq!(
            answer["Err"]["code"].as_str(),
            expected,
            "{agent}: {answer}"
        );
        if expected.is_some() {
            assert!(receive(&stream).is_none(), "it ends");
            assert!(!marker.exists(), "nothing was started");
        } else {
            receive(&stream).expect("its end");
            assert!(marker.exists());
        }
    }
}

/// An order as it goes over the socket.
struct Raw {
    plan: Value,
    go: Value,
}

impl Raw {
    fn of(plan: &RunPlan) -> Self {
        let order = State::order(plan, &patient());
        let authorized = order.authorized();
        Self {
            plan: json!(plan),
            go: json!({ "authorization": authorized.authorization(), "manner": order.manner }),
        }
    }

    /// Both messages at once: a process that refuses the plan closes the connection behind it.
    fn send(&self, stream: &mut UnixStream) {
        let both = [frame(&self.plan), frame(&self.go)].concat();
        stream.write_all(&both).unwrap();
    }
}

#[test]
fn a_process_that_still_has_one_below_it_has_no_other_run() {
    let state = State::new();
    let keep = Manner {
        leftovers: Leftovers::Keep,
        ..patient()
    };
    let plan = state.shell("sleep 600 >/dev/null 2>&1 & echo $PPID $!");
    let [used, left] = numbers(&state, &plan, &keep).unwrap()[..] else {
        panic!("two numbers");
    };
    assert!(!has_another_run(&state, used));
    assert!(is_alive(left), "it was to stay");
    kill(left);
}

#[test]
fn a_process_that_had_a_terminal_has_no_other_run() {
    let state = State::new();
    let mut plan = state.shell("echo $PPID");
    plan.pty = Some(PtySize {
        columns: 80,
        rows: 24,
    });
    let used = numbers(&state, &plan, &patient()).unwrap()[0];
    assert!(!has_another_run(&state, used));
}

/// It has left its control group for that, and the next run would be in none.
#[test]
fn a_process_whose_run_was_ended_by_force_has_no_other_run() {
    let state = State::new();
    let hasty = Manner {
        grace_ms: 50,
        ..patient()
    };
    let plan = state.shell("(trap '' TERM; sleep 600) >/dev/null 2>&1 & sleep 0.2; echo $PPID");
    let place = |text: &str| state.run(text).shown.text;
    let usual = place("grep -c interlock-run- /proc/$$/cgroup");
    if usual.trim() == "0" {
        println!("skipped: runs have no control group of their own here");
        return;
    }
    for _ in 0..5 {
        let used = numbers(&state, &plan, &hasty).unwrap()[0];
        assert!(!has_another_run(&state, used));
        assert_eq!(place("grep -c interlock-run- /proc/$$/cgroup"), usual);
    }
}

#[test]
fn a_process_that_had_limits_has_no_other_run() {
    let state = State::new();
    let limited = Manner {
        limits: RunLimits {
            pids: Some(50),
            ..RunLimits::default()
        },
        ..patient()
    };
    let plan = state.shell("echo $PPID");
    let Some(used) = numbers(&state, &plan, &limited) else {
        println!("skipped: this user may not set limits");
        return;
    };
    assert!(!has_another_run(&state, used[0]));
}

/// Each sets something on the process above it that the next run would have from there. Not every
/// system has all of them.
const ALTERATIONS: [(&str, &str); 9] = [
    ("a limit", "prlimit --pid $PPID --fsize=1000"),
    ("niceness", "renice -n 5 -p $PPID"),
    (
        "niceness of a further thread",
        "for task in /proc/$PPID/task/*; do renice -n 5 -p ${task##*/}; done; renice -n 0 -p $PPID",
    ),
    ("the policy of scheduling", "chrt -b -p 0 $PPID"),
    ("the priority of reads and writes", "ionice -c 3 -p $PPID"),
    ("processors", "test $(nproc) -gt 1 && taskset -p 1 $PPID"),
    (
        "what is ended when memory runs out",
        "echo 300 > /proc/$PPID/oom_score_adj",
    ),
    (
        "the control group",
        "group=$(sed -n s/^0:://p /proc/$PPID/cgroup); \
         for top in /sys/fs/cgroup /sys/fs/cgroup/unified; do \
         test -e $top/cgroup.procs && echo $PPID > $top${group%/*}/cgroup.procs && break; done; \
         test \"$group\" != \"$(sed -n s/^0:://p /proc/$PPID/cgroup)\"",
    ),
    (
        "a control group of version 1",
        "mkdir -p /sys/fs/cgroup/cpuacct/interlock-test && \
         echo $PPID > /sys/fs/cgroup/cpuacct/interlock-test/cgroup.procs",
    ),
];

#[test]
fn a_process_on_which_its_run_has_set_anything_has_no_other_run() {
    let state = State::new();
    for (what, text) in ALTERATIONS {
        let text = format!("{{ {text}; }} >/dev/null 2>&1 && echo $PPID");
        match numbers(&state, &state.shell(&text), &patient()).unwrap()[..] {
            [used] => assert!(!has_another_run(&state, used), "{what}"),
            _ => println!("skipped: {what} cannot be set here"),
        }
    }
    let made = std::path::Path::new("/sys/fs/cgroup/cpuacct/interlock-test");
    eventually("the test's group is removed", || {
        !made.exists() || std::fs::remove_dir(made).is_ok()
    });
}

/// Others of the same user reach it too, while it waits.
#[test]
fn a_process_that_is_altered_while_it_waits_has_no_other_run_and_costs_none() {
    let state = State::new();
    state.run("true");
    let client = keeping(&state);
    for _ in 0..5 {
        let waiting = shim_of(&state, &client);
        let altered = std::process::Command::new("prlimit")
            .args(["--fsize=1000", "--pid", &waiting.to_string()])
            .status();
        if !altered.is_ok_and(|status| status.success()) {
            println!("skipped: there is no prlimit");
            return;
        }
        for _ in 0..20 {
            assert_ne!(shim_of(&state, &client), waiting);
        }
    }
}

/// What outlives the run is ended before another client gets its process.
#[test]
fn the_next_run_finds_nothing_of_the_last() {
    let state = State::new();
    let hide = "(setsid sleep 600 >/dev/null 2>&1 &) ; cd /; umask 077; export SECRET=1; ulimit -n 20; echo $PPID";
    let look =
        "echo $PPID; umask; ulimit -n; pwd; echo SECRET=$SECRET; ps -o pid= --ppid $PPID | wc -l";
    let usual = state.run(look).shown.text;
    let usual: Vec<&str> = usual.lines().skip(1).collect();
    let mut used = BTreeSet::new();
    let mut met = false;
    for _ in 0..20 {
        used.extend(numbers(&state, &state.shell(hide), &patient()).unwrap());
        let found = state.run(look).shown.text;
        let (shim, found) = found.split_once('\n').unwrap();
        met |= used.contains(&shim.parse().unwrap());
        assert_eq!(found.lines().collect::<Vec<_>>(), usual);
    }
    assert!(met, "no run was below a process of one before it");
}

/// The caller of a run knows its name: it must not mean another one soon after.
#[test]
fn every_run_has_a_name_and_files_of_its_own() {
    let state = State::new();
    let mut names = BTreeSet::new();
    for number in 0..30 {
        // Some write too much for an answer, and are kept in files; some write nothing.
        let text = match number % 3 {
            0 => "true",
            1 => "echo small",
            _ => "head -c 100000 /dev/zero | tr '\\0' x",
        };
        let conversation = state.start(&state.shell(text), &patient()).unwrap();
        let ended = end_of(&conversation);
        let expected = [0, 6, 100_000][number % 3];
        assert_eq!(ended.totals.bytes, expected, "{text}");
        assert_eq!(ended.shown.text.len() as u64, expected);
        assert!(names.insert(conversation.started().session.name.clone()));
        conversation.taken().unwrap();
    }
    eventually("nothing is kept of what was taken", || {
        state.client.list().is_empty()
    });
}

/// A client that lives long keeps the processes of its runs for the next ones.
fn keeping(state: &State) -> SupervisorClient {
    let client = state.client.clone();
    client.prepare();
    client
}

/// Below which process a run of this client is.
fn shim_of(state: &State, client: &SupervisorClient) -> i32 {
    let order = State::order(&state.shell("echo $PPID"), &patient());
    let conversation = order.start(client).unwrap();
    let shim = end_of(&conversation).shown.text.trim().parse().unwrap();
    conversation.taken().unwrap();
    shim
}

#[test]
fn a_client_that_lives_long_keeps_the_processes_of_its_runs() {
    let state = State::new();
    // Until a supervisor is there, there is nothing to keep.
    state.run("true");
    let client = keeping(&state);
    let all: Vec<i32> = (0..60).map(|_| shim_of(&state, &client)).collect();
    let own: BTreeSet<i32> = all.iter().copied().collect();
    assert!(own.len() < all.len() / 4, "{all:?}");
    // Those that wait for it are not given to others, and die with it at the latest.
    let other = state.client_of(&state.supervisor().version);
    let others: BTreeSet<i32> = (0..5).map(|_| shim_of(&state, &other)).collect();
    let last = *all.last().unwrap();
    assert!(!others.contains(&last), "{others:?} and {last}");
}

#[test]
fn a_process_that_was_killed_while_it_waited_for_its_client_costs_no_run() {
    let state = State::new();
    state.run("true");
    let client = keeping(&state);
    for _ in 0..5 {
        let waiting = shim_of(&state, &client);
        kill(waiting);
        eventually("it is dead", || !is_alive(waiting));
        assert_ne!(shim_of(&state, &client), waiting);
    }
}

/// What was announced is known to the supervisor, which has to hear of its end.
#[test]
fn a_run_that_others_could_see_gives_its_process_back() {
    let state = State::new();
    state.run("true");
    let client = keeping(&state);
    let order = State::order(&state.shell("sleep 0.2; echo $PPID"), &patient());
    let conversation = order.start(&client).unwrap();
    assert!(conversation.started().session.pid.is_some());
    end_of(&conversation);
    conversation.taken().unwrap();
    eventually("nothing runs", || state.supervisor().running == 0);
    shim_of(&state, &client);
}

#[test]
fn a_supervisor_that_drains_does_not_wait_for_clients_that_keep_its_processes() {
    let state = State::new();
    state.run("true");
    let client = keeping(&state);
    let before = shim_of(&state, &client);
    let supervisor = state.supervisor();
    client.drain();
    eventually("it has ended", || !is_alive(supervisor.pid));
    assert!(!is_alive(before));
    // The next run has a supervisor again.
    assert_ne!(shim_of(&state, &client), before);
}
