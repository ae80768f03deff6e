//! Sessions outlive whoever asked for them, and nothing outlives its session: clients, services,
//! supervisors, guards and shims are killed here, for real.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod sessions;
mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use interlock_plan::Stdin;
use interlock_run::Status;
use interlock_run::spool::Outcome;
use interlock_run::supervisor::{Client, Listed, Manner, Place, State as Standing};
use sessions::plans::{Mark, PATIENCE, has};
use sessions::{State, Transcript, eventually, guards, is_alive, kill, parent, patient};
use support::Machine;

/// Counts aloud until it is told to stop, and then ends with 7.
const BUILD: &str = "#!/bin/sh
i=0
until [ -e stop ]; do i=$((i+1)); echo $i; sleep 0.01; done
exit 7
";

/// Every way to be forgotten: none of these listens to SIGTERM, and each notes its number in `pids`.
/// The first is the run itself.
const STUBBORN: &str = r#"
trap '' TERM HUP
echo before
stay='trap "" TERM HUP; echo $$ >> pids; while :; do sleep 600; done'
sh -c "$stay" &
setsid sh -c "$stay" &
setsid sh -c "exec <&- >&- 2>&-; $stay" &
(setsid sh -c "(setsid sh -c '$stay' &) ; exit" &)
(exec <&- >&- 2>&-; sh -c "$stay" &) &
echo $$ >> pids
wait
"#;
const STUBBORN_ONES: usize = 6;

/// The machines of root and of an ordinary user, as far as this user can have both.
fn machines() -> Vec<Machine> {
    let mut all = vec![Machine::open()];
    if sessions::is_root()
        && let Some(machine) = Machine::of_ordinary_user()
    {
        machine.allow_every_program();
        all.push(machine);
    }
    all
}

fn client_of(machine: &Machine) -> Client {
    Client::new(Place::new(&machine.state()), env!("CARGO_PKG_VERSION"))
}

fn only(client: &Client) -> Listed {
    let mut all = client.list();
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// A build whose client is about to be killed.
fn begin_build(machine: &Machine, client: &Client, mut command: Command) -> (Child, String) {
    machine.script("bin/build", BUILD);
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    // Whoever waits to be let go; others read nothing.
    let _ = child.stdin.as_mut().unwrap().write_all(b"go\n");
    eventually("a running build", || {
        let all = client.list();
        all.len() == 1 && transcript(client, &all[0].session.name).counted() > 3
    });
    let listed = only(client);
    assert_eq!(listed.state, Standing::Running);
    (child, listed.session.name)
}

fn transcript(client: &Client, name: &str) -> Transcript {
    Transcript::read(&client.place().session(name))
}

/// It goes on after its client is gone, and a new client sees all of it.
fn goes_on(machine: &Machine, name: &str) {
    let client = client_of(machine);
    let at_kill = transcript(&client, name).counted();
    eventually("output after the kill", || {
        transcript(&client, name).counted() > at_kill + 3
    });
    eventually("the background", || only(&client).session.background);
    assert_eq!(only(&client).state, Standing::Running);
    fs::write(machine.work().join("stop"), "").unwrap();
    eventually("the end", || only(&client).state == Standing::Ended);
    let listed = only(&client);
    assert_eq!(listed.status.outcome, Outcome::Exited { code: 7 });
    let all = transcript(&client, name);
    assert_eq!(listed.status.totals.lines, all.counted());
    assert_eq!(listed.status.totals.bytes, all.bytes.len() as u64);
    assert_eq!(all.gap, 0);
}

#[test]
fn a_build_goes_on_when_its_client_is_killed() {
    for machine in machines() {
        let client = client_of(&machine);
        let command = machine.command(&["exec", "--", "build"]);
        let (mut child, name) = begin_build(&machine, &client, command);
        child.kill().unwrap();
        child.wait().unwrap();
        goes_on(&machine, &name);
    }
}

/// Groups as a service manager makes them, in every tree in which this process can.
struct Service(Vec<PathBuf>);

impl Service {
    fn new() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let name = format!("durability-{}.service", std::process::id());
        let mut groups = Vec::new();
        for line in own.lines() {
            let parts: Vec<&str> = line.splitn(3, ':').collect();
            let [_, controllers, path] = parts[..] else {
                continue;
            };
            let wanted = controllers.is_empty()
                || controllers.starts_with("name=")
                || ["freezer", "pids", "memory"].contains(&controllers);
            let is_mount = |mount: &&str| {
                let kind = if controllers.is_empty() {
                    mount.contains(" - cgroup2 ")
                } else {
                    mount.contains(" - cgroup ") && mount.ends_with(&format!(",{controllers}"))
                };
                // All of the tree must be mounted, else the path means another place.
                kind && mount.split(' ').nth(3) == Some("/")
            };
            if let (true, Some(mount)) = (wanted, mounts.lines().find(is_mount)) {
                let point = Path::new(mount.split(' ').nth(4).unwrap());
                let group = point.join(path.trim_start_matches('/')).join(&name);
                if fs::create_dir(&group).is_ok() {
                    groups.push(group);
                }
            }
        }
        if groups.is_empty() {
            println!("skipped: no control group can be made here");
            return None;
        }
        Some(Self(groups))
    }

    fn members(&self) -> Vec<i32> {
        let lists = self.0.iter().map(|group| group.join("cgroup.procs"));
        let text: String = lists
            .map(|list| fs::read_to_string(list).unwrap_or_default())
            .collect();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    fn end(&self) {
        eventually("the end of the service", || {
            self.members().into_iter().for_each(kill);
            self.members().is_empty()
        });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for group in &self.0 {
            eventually("an empty group", || {
                !group.exists() || fs::remove_dir(group).is_ok()
            });
        }
    }
}

#[test]
fn a_build_goes_on_when_the_service_of_its_client_is_ended() {
    let Some(service) = Service::new() else {
        return;
    };
    let machine = Machine::open();
    let client = client_of(&machine);
    // Waits in the group until it is let go.
    let mut waiter = Command::new("/bin/sh");
    let exec = machine.command(&["exec", "--", "build"]);
    let environment: Vec<_> = exec
        .get_envs()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
        .collect();
    waiter
        .args([
            "-c",
            "echo $$ > pid; until [ -e go ]; do sleep 0.01; done; exec \"$@\" </dev/null",
            "waiter",
        ])
        .arg(exec.get_program())
        .args(exec.get_args())
        .env_clear()
        .envs(environment)
        .current_dir(machine.work());
    let work = machine.work();
    let groups = service.0.clone();
    // In the group before it is let go.
    let mover = std::thread::spawn(move || {
        let pid = support::written(&work.join("pid"));
        for group in &groups {
            fs::write(group.join("cgroup.procs"), pid.trim()).unwrap();
        }
        fs::write(work.join("go"), "").unwrap();
        pid.trim().parse::<i32>().unwrap()
    });
    let (mut child, name) = begin_build(&machine, &client, waiter);
    let waiter = mover.join().unwrap();
    assert!(service.members().contains(&waiter));
    service.end();
    child.wait().unwrap();
    goes_on(&machine, &name);
}

/// Processes that were started as guards keep nothing of their starter's.
#[test]
fn whoever_starts_a_supervisor_gets_their_pipes_back() {
    let machine = Machine::open();
    let exec = machine.command(&["exec", "--background", "--", "sleep 600"]);
    let line = format!(
        "exec {} exec --background -- 'sleep 600' 9>&1 >/dev/null 2>&1",
        support::BINARY
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
    assert_eq!(only(&client_of(&machine)).state, Standing::Running);
    let read = receiver.recv_timeout(PATIENCE);
    assert_eq!(read, Ok(0), "somebody still holds the pipe");
}

fn stubborn(state: &State) -> sessions::Session {
    let _ = fs::remove_file(state.work().join("pids"));
    let session = state.begin(STUBBORN);
    state.lines("pids", STUBBORN_ONES);
    eventually("the first words", || {
        state.transcript(&session.name).text() == "before\n"
    });
    session
}

#[track_caller]
fn is_lost(state: &State, name: &str) {
    let listed = state.listed(name);
    assert_eq!(listed.state, Standing::Lost, "{listed:#?}");
    assert!(listed.session.pid.is_some() && listed.session.command.contains("before"));
}

/// The same on disk, with all that is known.
#[track_caller]
fn is_marked_lost(state: &State, name: &str) {
    eventually("the mark", || {
        state.listed(name).status.outcome != Outcome::Running
    });
    is_lost(state, name);
    let status = state.listed(name).status;
    assert_eq!(status.outcome, Outcome::Lost);
    assert_eq!((status.totals.bytes, status.totals.lines), (7, 1));
    assert!(
        status
            .ended_ms
            .is_some_and(|ended| ended >= status.started_ms)
    );
    assert_eq!(state.transcript(name).text(), "before\n");
}

#[test]
fn a_killed_supervisor_takes_everything_with_it_and_the_next_one_says_so() {
    if !has("setsid") {
        return;
    }
    let state = State::new();
    let session = stubborn(&state);
    let brief = state.begin("echo done; exit 3");
    state.end_of(&brief.name);
    let before = state.supervisor();
    kill(before.pid);
    // At once, while the guard is still cleaning up.
    let ended = state.run("echo new");
    assert_eq!(ended.shown.text, "new\n");
    let after = state.supervisor();
    assert_ne!((after.pid, &after.instance), (before.pid, &before.instance));
    session.mark.wait_until_none();
    assert!(!is_alive(before.guard_pid));
    is_marked_lost(&state, &session.name);
    let listed = state.listed(&brief.name);
    assert_eq!(listed.status.outcome, Outcome::Exited { code: 3 });
    assert_eq!(state.transcript(&brief.name).text(), "done\n");
}

/// Without anybody who starts another one.
#[test]
fn a_guard_cleans_up_after_its_supervisor_by_itself() {
    if !has("setsid") {
        return;
    }
    let state = State::new();
    let session = stubborn(&state);
    let before = state.supervisor();
    kill(before.pid);
    session.mark.wait_until_none();
    eventually("the end of the guard", || guards(state.path()).is_empty());
    is_marked_lost(&state, &session.name);
    assert!(!state.socket(sessions::VERSION).exists());
}

#[test]
fn without_its_guard_a_supervisor_finishes_what_it_has() {
    let state = State::new();
    let mut plan = state.shell("read line; echo got $line; exit 5");
    plan.stdin = Stdin::Pipe;
    let session = state.begin_by(&state.client, plan);
    let old = state.supervisor();
    kill(old.guard_pid);
    eventually("stepping aside", || state.client.supervisors()[0].draining);
    let ended = state.run("echo new");
    assert_eq!(ended.shown.text, "new\n");
    let new = state
        .client
        .supervisors()
        .into_iter()
        .find(|about| !about.draining)
        .unwrap();
    assert_ne!((new.pid, new.guard_pid), (old.pid, old.guard_pid));
    // Still there, and can be talked to.
    assert_eq!(state.listed(&session.name).state, Standing::Running);
    let link = state.client.session(&session.name).unwrap();
    link.write(b"it\n", false).unwrap();
    eventually("its end", || {
        state.listed(&session.name).status.outcome == Outcome::Exited { code: 5 }
    });
    assert_eq!(state.transcript(&session.name).text(), "got it\n");
    drop(link);
    eventually("the end of the old one", || !is_alive(old.pid));
    // It takes its door with it.
    eventually("no door of the old one", || {
        let doors = fs::read_dir(state.path().join("supervisor")).unwrap();
        doors
            .flatten()
            .all(|door| !door.file_name().to_str().unwrap().contains('~'))
    });
}

#[test]
fn a_killed_shim_takes_its_own_run_with_it_and_no_other() {
    if !has("setsid") {
        return;
    }
    let state = State::new();
    let mut plan = state.shell("read line; echo got $line; read line");
    plan.stdin = Stdin::Pipe;
    let other = state.begin_by(&state.client, plan);
    let session = stubborn(&state);
    let supervisor = state.supervisor();
    let shim = parent(session.pid);
    assert_eq!(parent(shim), supervisor.pid);
    kill(shim);
    session.mark.wait_until_none();
    is_marked_lost(&state, &session.name);
    let link = state.client.session(&other.name).unwrap();
    link.write(b"it\n", false).unwrap();
    assert!(link.wait(0, PATIENCE / 2).unwrap().total_bytes > 0);
    assert_eq!(state.listed(&other.name).state, Standing::Running);
    assert_eq!(state.supervisor().instance, supervisor.instance);
    let refused = state.client.session(&session.name).unwrap_err();
    assert_eq!(refused.code(), "SESSION_NOT_RUNNING");
    link.kill(interlock_run::Signal::TERM).unwrap();
    other.mark.wait_until_none();
}

#[test]
fn when_supervisor_and_guard_are_killed_together_nothing_is_left_either() {
    if !has("setsid") {
        return;
    }
    let state = State::new();
    let session = stubborn(&state);
    let before = state.supervisor();
    kill(before.guard_pid);
    kill(before.pid);
    session.mark.wait_until_none();
    eventually("the end of all shims", || guards(state.path()).is_empty());
    // Nobody has marked it, and still it is known.
    is_lost(&state, &session.name);
    assert_eq!(state.run("echo new").shown.text, "new\n");
    is_marked_lost(&state, &session.name);
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
        sessions::children(supervisor.pid).len() == 1
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
    assert!(!state.socket(sessions::VERSION).exists());
    let reserved = fs::read_dir(state.path().join("sessions")).unwrap().count();
    assert_eq!(reserved, 0);
    assert_eq!(state.run("echo two").shown.text, "two\n");
}

#[test]
fn a_new_version_takes_the_new_runs_while_the_old_one_drains() {
    let state = State::new();
    let plan = |text: &str| {
        let mut plan = state.shell(text);
        plan.stdin = Stdin::Pipe;
        plan
    };
    let (old, new) = (state.client_of("one"), state.client_of("two"));
    let text = "read line; echo got $line";
    let first = state.begin_by(&old, plan(text));
    let second = state.begin_by(&new, plan(text));
    let mut versions: Vec<String> = new
        .supervisors()
        .into_iter()
        .map(|about| about.version)
        .collect();
    versions.sort();
    assert_eq!(versions, ["one", "two"]);
    new.drain();
    // Whoever asks for a run now gets a supervisor that is not about to end.
    let third = state.begin_by(&new, plan(text));
    let serving = |client: &Client| {
        let mut all = client.supervisors();
        all.retain(|about| !about.draining);
        all
    };
    assert_eq!(serving(&new).len(), 1);
    assert_eq!(serving(&new)[0].version, "two");
    for client in [&old, &new] {
        let listed = client.list();
        assert_eq!(listed.len(), 3, "{listed:#?}");
        assert!(listed.iter().all(|one| one.state == Standing::Running));
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
    let all = sessions::processes();
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
                    let client = state.client_of(sessions::VERSION);
                    barrier.wait();
                    let conversation = client.start(&order).unwrap();
                    assert_eq!(sessions::end_of(&conversation).shown.text, "hello\n");
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
    assert!(state.socket(sessions::VERSION).as_os_str().len() > 250);
    let session = state.begin("echo hello; sleep 600");
    eventually("its output", || {
        state.transcript(&session.name).text() == "hello\n"
    });
    let link = state.client.session(&session.name).unwrap();
    link.kill(interlock_run::Signal::TERM).unwrap();
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
        leftovers: interlock_run::Leftovers::Keep,
        ..patient()
    };
    let ended = state.run_plan(&plan, &manner);
    assert_eq!(ended.outcome.status, Status::Exited(0));
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
        sessions::processes()
            .iter()
            .all(|one| one.pid != daemons[0])
    });
    state.client.drain();
    eventually("the end of both", || guards(state.path()).is_empty());
    assert!(is_alive(daemons[1]));
    kill(daemons[1]);
    mark.wait_until_none();
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    // Those with a machine have their own for this user.
    sessions::again_as_ordinary_user(&["all_of_it_holds", "a_build_goes_on", "whoever_starts"]);
}
