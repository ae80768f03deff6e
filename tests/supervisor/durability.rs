//! Sessions outlive their callers, and nothing outlives its session: clients, services,
//! supervisors, guards and shims are killed here, for real.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use interlock_plan::PlanStdin;
use interlock_supervisor::{ListedSession, SessionState, SupervisorClient, SupervisorPaths};
use interlock_transcript::SessionOutcome;
use testkit::Machine;
use testkit::plans::{PATIENCE, has};
use testkit::supervised::{State, Transcript, eventually, guards, is_alive, kill, parent};

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
    if testkit::supervised::is_root()
        && let Some(machine) = Machine::of_ordinary_user()
    {
        machine.allow_every_program();
        all.push(machine);
    }
    all
}

fn client_of(machine: &Machine) -> SupervisorClient {
    SupervisorClient::new(
        SupervisorPaths::new(&machine.state()),
        env!("CARGO_PKG_VERSION"),
    )
}

fn only(client: &SupervisorClient) -> ListedSession {
    let mut all = client.list();
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// A build whose client is about to be killed.
fn begin_build(
    machine: &Machine,
    client: &SupervisorClient,
    mut command: Command,
) -> (Child, String) {
    machine.script("bin/build", BUILD);
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    // Releases a child that waits for a line; other children read nothing.
    let _ = child.stdin.as_mut().unwrap().write_all(b"go\n");
    eventually("a running build", || {
        let all = client.list();
        all.len() == 1 && transcript(client, &all[0].session.name).counted() > 3
    });
    let listed = only(client);
    assert_eq!(listed.state, SessionState::Running);
    (child, listed.session.name)
}

fn transcript(client: &SupervisorClient, name: &str) -> Transcript {
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
    assert_eq!(only(&client).state, SessionState::Running);
    fs::write(machine.work().join("stop"), "").unwrap();
    eventually("the end", || only(&client).state == SessionState::Ended);
    let listed = only(&client);
    assert_eq!(listed.status.outcome, SessionOutcome::Exited { code: 7 });
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
        let pid = testkit::written(&work.join("pid"));
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

fn stubborn(state: &State) -> testkit::supervised::Session {
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
    assert_eq!(listed.state, SessionState::Lost, "{listed:#?}");
    assert!(listed.session.pid.is_some() && listed.session.command.contains("before"));
}

/// The same on disk, with all that is known.
#[track_caller]
fn is_marked_lost(state: &State, name: &str) {
    eventually("the mark", || {
        state.listed(name).status.outcome != SessionOutcome::Running
    });
    is_lost(state, name);
    let status = state.listed(name).status;
    assert_eq!(status.outcome, SessionOutcome::Lost);
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
    assert_eq!(listed.status.outcome, SessionOutcome::Exited { code: 3 });
    assert_eq!(state.transcript(&brief.name).text(), "done\n");
}

/// Without a client that starts another one.
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
    assert!(!state.socket(testkit::supervised::VERSION).exists());
}

#[test]
fn without_its_guard_a_supervisor_finishes_what_it_has() {
    let state = State::new();
    let mut plan = state.shell("read line; echo got $line; exit 5");
    plan.stdin = PlanStdin::Pipe;
    let session = testkit::supervised::begin_by(&state.client, plan);
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
    assert_eq!(state.listed(&session.name).state, SessionState::Running);
    let link = state.client.session(&session.name).unwrap();
    link.write(b"it\n", false).unwrap();
    eventually("its end", || {
        state.listed(&session.name).status.outcome == SessionOutcome::Exited { code: 5 }
    });
    assert_eq!(state.transcript(&session.name).text(), "got it\n");
    drop(link);
    eventually("the end of the old one", || !is_alive(old.pid));
    // It takes its socket with it.
    eventually("no socket of the old one", || {
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
    plan.stdin = PlanStdin::Pipe;
    let other = testkit::supervised::begin_by(&state.client, plan);
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
    assert_eq!(state.listed(&other.name).state, SessionState::Running);
    assert_eq!(state.supervisor().instance, supervisor.instance);
    let refused = state.client.session(&session.name).unwrap_err();
    assert_eq!(refused.code(), "SESSION_NOT_RUNNING");
    link.kill(interlock_engine::Signal::TERM).unwrap();
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
    // No process has marked it, and still it is known.
    is_lost(&state, &session.name);
    assert_eq!(state.run("echo new").shown.text, "new\n");
    is_marked_lost(&state, &session.name);
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    // Those with a machine have their own for this user.
    testkit::supervised::again_as_ordinary_user(
        module_path!(),
        &["all_of_it_holds", "a_build_goes_on"],
    );
}
