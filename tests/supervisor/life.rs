//! How long supervisors live, how many there are, and what they leave alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use interlock_engine::RunStatus;
use interlock_plan::PlanStdin;
use interlock_supervisor::{
    ClientError, Manner, SessionState, SupervisorClient, SupervisorPaths, Waited,
};
use testkit::Machine;
use testkit::plans::{Mark, PATIENCE};
use testkit::supervised::{State, eventually, guards, is_alive, kill, parent, patient};

/// Processes that were started as guards keep nothing of their starter's.
#[test]
fn a_client_that_starts_a_supervisor_gets_its_pipes_back() {
    let machine = Machine::open();
    let exec = machine.command(&["exec", "--background", "--", "sleep 600"]);
    let line = format!(
        "exec {} exec --background -- 'sleep 600' 9>&1 >/dev/null 2>&1",
        crate::BINARY
    );
    let mut child = Command::new("/bin/sh")
        .args(["-c", &line])
        .env_clear()
        .envs(
            exec.get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        )
        .current_dir(machine.work())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(pipe.read_to_end(&mut Vec::new()).unwrap()));
    assert!(child.wait().unwrap().success());
    let client = SupervisorClient::new(
        SupervisorPaths::new(&machine.state()),
        env!("CARGO_PKG_VERSION"),
    );
    let listed = client.list();
    assert!(listed.len() == 1 && listed[0].state == SessionState::Running);
    let read = receiver.recv_timeout(PATIENCE);
    assert_eq!(read, Ok(0), "a process still holds the pipe");
}

#[test]
fn a_supervisor_whose_state_is_removed_ends_after_its_sessions() {
    let state = State::new();
    let session = state.begin("while :; do sleep 600; done");
    let supervisor = state.supervisor();
    // A shim may just make its files there.
    eventually("no state", || {
        fs::remove_dir_all(state.path()).is_ok() || !state.path().exists()
    });
    // Only the run and what looks after it: no further process waits for runs.
    eventually("no waiting shims", || {
        testkit::supervised::children(supervisor.pid).len() == 1
    });
    assert!(is_alive(session.pid) && is_alive(supervisor.pid));
    kill(session.pid);
    eventually("the end of both", || {
        !is_alive(supervisor.pid) && !is_alive(supervisor.guard_pid)
    });
    session.mark.wait_until_none();
}

#[test]
fn a_supervisor_ends_when_it_had_no_session_for_its_time() {
    let state = State::with(&["--idle-ms", "200"]);
    // A session that takes longer than that is a reason to stay.
    let session = state.begin("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.05; done");
    let first = state.supervisor();
    eventually("ten lines", || {
        state.transcript(&session.name).counted() == 10
    });
    assert_eq!(state.supervisor().instance, first.instance);
    kill(first.pid);
    let state = State::with(&["--idle-ms", "200"]);
    assert_eq!(state.run("echo one").shown.text, "one\n");
    eventually("the end of both", || guards(state.path()).is_empty());
    assert!(!state.socket(testkit::supervised::VERSION).exists());
    let reserved = fs::read_dir(state.path().join("sessions")).unwrap().count();
    assert_eq!(reserved, 0);
    assert_eq!(state.run("echo two").shown.text, "two\n");
}

#[test]
fn a_supervisor_does_not_stay_for_sessions_that_have_ended() {
    let state = State::with(&["--idle-ms", "200"]);
    let session = state.begin("echo 1");
    eventually("the end of both", || guards(state.path()).is_empty());
    // What the session wrote is kept all the same, until its time is over.
    assert_eq!(state.transcript(&session.name).counted(), 1);
    state.client.remove_due_sessions();
    assert!(state.path().join("sessions").join(&session.name).exists());
    let status = state
        .path()
        .join("sessions")
        .join(&session.name)
        .join("status.json");
    let text = fs::read_to_string(&status).unwrap();
    let mut changed: serde_json::Value = serde_json::from_str(&text).unwrap();
    changed["session"]["cleanupMs"] = 0.into();
    fs::write(&status, changed.to_string()).unwrap();
    // Another client has not seen it before: what has ended does not change otherwise.
    state.client_of("another").remove_due_sessions();
    assert!(!status.exists());
}

/// A run without the shield can stop every process above it but the one that it runs under.
#[test]
fn a_guard_that_a_run_stops_ends_all_the_same() {
    let state = State::with(&["--idle-ms", "200"]);
    let text = "above() { sed -n 's/^PPid:.//p' /proc/$1/status; }; \
        supervisor=$(above $PPID); kill -STOP $(above $supervisor) $supervisor; echo done";
    let waited = waited_for(&state, text);
    assert!(matches!(waited, Ok(Waited::Ended(_))), "{waited:?}");
    eventually("the end of both", || guards(state.path()).is_empty());
    assert_eq!(state.run("echo next").shown.text, "next\n");
}

#[test]
fn a_new_version_takes_the_new_runs_while_the_old_one_drains() {
    let state = State::new();
    let plan = |text: &str| {
        let mut plan = state.shell(text);
        plan.stdin = PlanStdin::Pipe;
        plan
    };
    let (old, new) = (state.client_of("one"), state.client_of("two"));
    let text = "read line; echo got $line";
    let first = testkit::supervised::begin_by(&old, plan(text));
    let second = testkit::supervised::begin_by(&new, plan(text));
    let mut versions: Vec<String> = new
        .supervisors()
        .into_iter()
        .map(|about| about.version)
        .collect();
    versions.sort();
    assert_eq!(versions, ["one", "two"]);
    new.drain();
    // A client that asks for a run now gets a supervisor that is not about to end.
    let third = testkit::supervised::begin_by(&new, plan(text));
    let serving = |client: &SupervisorClient| {
        let mut all = client.supervisors();
        all.retain(|about| !about.draining);
        all
    };
    assert_eq!(serving(&new).len(), 1);
    assert_eq!(serving(&new)[0].version, "two");
    for client in [&old, &new] {
        let listed = client.list();
        assert_eq!(listed.len(), 3, "{listed:#?}");
        assert!(listed.iter().all(|one| one.state == SessionState::Running));
    }
    for (client, session) in [(&new, &first), (&old, &second), (&old, &third)] {
        let link = client.session(&session.name).unwrap();
        link.write(b"it\n", false).unwrap();
        state.end_of(&session.name);
        assert_eq!(state.transcript(&session.name).text(), "got it\n");
    }
    eventually("the end of the old ones", || {
        new.supervisors() == serving(&new)
    });
    eventually("one pair", || {
        let pid = serving(&new)[0].pid;
        let guard = serving(&new)[0].guard_pid;
        guards(state.path())
            .iter()
            .all(|one| *one == pid || *one == guard || parent_or_zero(*one) == pid)
    });
}

fn parent_or_zero(pid: i32) -> i32 {
    let all = testkit::supervised::processes();
    let found = all.iter().find(|process| process.pid == pid);
    found.map_or(0, |process| process.parent)
}

#[test]
fn clients_that_start_at_once_get_one_supervisor() {
    for _ in 0..5 {
        let state = State::new();
        let plan = state.shell("echo hello");
        let order = State::order(&plan, &patient());
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let client = state.client_of(testkit::supervised::VERSION);
                    barrier.wait();
                    let conversation = order.start(&client).unwrap();
                    assert_eq!(
                        testkit::supervised::end_of(&conversation).shown.text,
                        "hello\n"
                    );
                    conversation.taken().unwrap();
                });
            }
        });
        let supervisor = state.supervisor();
        eventually("one pair", || {
            guards(state.path()).iter().all(|one| {
                [supervisor.pid, supervisor.guard_pid].contains(one)
                    || parent_or_zero(*one) == supervisor.pid
            })
        });
    }
}

#[test]
fn a_state_directory_may_have_a_very_long_path() {
    let directory = tempfile::tempdir().unwrap();
    let mut path = fs::canonicalize(directory.path()).unwrap();
    for _ in 0..6 {
        path.push("a-directory-with-a-name-that-is-not-short-at-all");
    }
    let state = State::at(Some(directory), &path.join("state"), &[]);
    assert!(state.socket(testkit::supervised::VERSION).as_os_str().len() > 250);
    let session = state.begin("echo hello; sleep 600");
    eventually("its output", || {
        state.transcript(&session.name).text() == "hello\n"
    });
    let link = state.client.session(&session.name).unwrap();
    link.kill(interlock_engine::Signal::TERM).unwrap();
    session.mark.wait_until_none();
}

/// What an owner keeps on purpose stays when its shim, and even its supervisor, have ended.
#[test]
fn a_daemon_that_is_to_be_kept_stays() {
    let state = State::new();
    let mut plan =
        state.shell("for i in 1 2; do sleep 600 >/dev/null 2>&1 & echo $! >> pids; done");
    let mark = Mark::on(&mut plan);
    let manner = Manner {
        leftovers: interlock_engine::Leftovers::Keep,
        ..patient()
    };
    let ended = state.run_plan(&plan, &manner);
    assert_eq!(ended.outcome.status, RunStatus::Exited(0));
    assert_eq!(ended.outcome.leftovers.len(), 2);
    let daemons: Vec<i32> = state
        .lines("pids", 2)
        .iter()
        .map(|pid| pid.parse().unwrap())
        .collect();
    let supervisor = state.supervisor();
    eventually("the end of the shim", || {
        daemons.iter().all(|pid| parent(*pid) == supervisor.pid)
    });
    // What another run left is ended, and only that.
    let other = state.begin("sleep 600 & wait");
    kill(parent(other.pid));
    other.mark.wait_until_none();
    assert!(daemons.iter().all(|pid| is_alive(*pid)));
    // One that ends is collected.
    kill(daemons[0]);
    eventually("no zombie", || {
        testkit::supervised::processes()
            .iter()
            .all(|one| one.pid != daemons[0])
    });
    state.client.drain();
    eventually("the end of both", || guards(state.path()).is_empty());
    assert!(is_alive(daemons[1]));
    kill(daemons[1]);
    mark.wait_until_none();
}

/// Runs a text to its end in a thread of its own: what is stopped would never answer.
#[track_caller]
fn waited_for(state: &State, text: &str) -> Result<Waited, ClientError> {
    let client = state.client.clone();
    let order = State::order(&state.shell(text), &patient());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let waited = order.start(&client).and_then(|started| started.wait());
        sender.send(waited)
    });
    receiver
        .recv_timeout(PATIENCE)
        .expect("an answer although a process was stopped")
}

#[test]
fn a_run_that_stops_the_process_above_it_is_waited_for_all_the_same() {
    let state = State::new();
    let waited = waited_for(&state, "kill -STOP $PPID; sleep 0.1; echo done");
    let Ok(Waited::Ended(ended)) = waited else {
        panic!("{waited:?}");
    };
    assert_eq!(ended.shown.text, "done\n");
}

#[test]
fn a_run_that_stops_the_process_above_it_again_and_again_is_ended_and_lost() {
    let state = State::new();
    let waited = waited_for(
        &state,
        "echo $$ > pid; while kill -STOP $PPID; do :; done; sleep 600",
    );
    assert!(matches!(waited, Err(ClientError::Lost)), "{waited:?}");
    let pid = state.lines("pid", 1)[0].parse().unwrap();
    eventually("it has ended", || !is_alive(pid));
    // Others have theirs.
    assert_eq!(state.run("echo fine").shown.text, "fine\n");
}

/// A shell text by which a run freezes its group, the process above it included, or one that it makes
/// for that process. `None` where it has none that it may freeze.
fn freezing(state: &State) -> Option<[String; 2]> {
    let groups = interlock_supervisor::cgroup::Hierarchies::probe();
    let all = |text: &str| format!("{OWN_GROUP}; {text}");
    let own = all("echo 1 > $group/cgroup.freeze; sleep 0.1; echo done");
    let other = all(
        "mkdir $group/other; echo $PPID > $group/other/cgroup.procs; \
         echo 1 > $group/other/cgroup.freeze; sleep 0.1; echo done",
    );
    let can = state.run(&all("test -w $group/cgroup.freeze && echo yes"));
    (groups.groups().is_ok() && can.shown.text == "yes\n").then_some([own, other])
}

/// In version 2, wherever that is mounted.
const OWN_GROUP: &str = "group=$(sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \\([^ ]*\\) .* - cgroup2 .*/\\1/p' \
     /proc/self/mountinfo | head -1)$(sed -n 's/^0:://p' /proc/self/cgroup)";

#[test]
fn a_run_that_freezes_the_process_above_it_is_waited_for_all_the_same() {
    let state = State::new();
    let Some(texts) = freezing(&state) else {
        return println!("skipped: no groups that can be frozen");
    };
    for text in texts {
        let waited = waited_for(&state, &text);
        let Ok(Waited::Ended(ended)) = waited else {
            panic!("{text}: {waited:?}");
        };
        assert_eq!(ended.shown.text, "done\n", "{text}");
    }
}

#[test]
fn a_supervisor_that_a_run_stops_goes_on() {
    let state = State::new();
    let text = "kill -STOP $(sed -n 's/^PPid:.//p' /proc/$PPID/status); echo done";
    for _ in 0..3 {
        let waited = waited_for(&state, text);
        assert!(matches!(waited, Ok(Waited::Ended(_))), "{waited:?}");
    }
    let _ = state.supervisor();
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    testkit::supervised::again_as_ordinary_user(
        module_path!(),
        &["all_of_it_holds", "a_client_that_starts_a_supervisor"],
    );
}
