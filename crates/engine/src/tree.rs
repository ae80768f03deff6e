//! Which processes belong to a run, and how all of them are ended.
//!
//! In a process that is dedicated to one run, the run's tree is exactly the process's descendants.
//! The process is a subreaper, so whatever the run starts ends up below it, however it detaches
//! itself. The descendants of a shielded run end up below process 1 of its namespace, in the
//! namespace of this process's runs. In a process that has several runs, a run's tree is whatever
//! descends from its living stages or is in one of their sessions; a daemon that left both can no
//! longer be distinguished from others there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};

use serde::{Deserialize, Serialize};

use super::StartError;
use super::process_table::{self, ProcessRow};
use super::unsafe_spawn;
use crate::sandbox::RunSandbox;
use crate::shield::RunShield;

const SHARED: u8 = 0;
const DEDICATED: u8 = 1;
const TAKEN: u8 = 2;

static PROCESS: AtomicU8 = AtomicU8::new(SHARED);

/// The shield of this process's run, if it has one. The run's orphans go to process 1 of the
/// agent's PID namespace and are looked for there.
static SHIELD: Mutex<Option<Arc<RunShield>>> = Mutex::new(None);

/// Process 1 of the sandbox of this process's run, or 0 if there is none. It is a child of this
/// process and not part of the run; orphans of the run are below it.
static SANDBOX_INIT: AtomicI32 = AtomicI32::new(0);

/// Time after SIGKILL until remaining processes are given up and reported.
const GIVE_UP: Duration = Duration::from_secs(5);

/// How often the process table is read if it shows nothing although there is something.
const LOOKS: usize = 3;

/// A process of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    pub pid: i32,
    /// The arguments of the process, or its name if it has none.
    pub command: String,
}

/// Dedicates the calling process to one run at a time: from now on, every descendant that loses its
/// parent becomes a child of this process, and all descendants belong to the run. The process also
/// becomes the leader of a new session, which a terminal can belong to.
///
/// Only a process that has no other children and never will may call this.
pub fn dedicate_process() -> io::Result<()> {
    let me = rustix::process::getpid();
    // `setsid` is tried before asking for the session, because below the session of another PID
    // namespace the kernel reports the session as 0.
    if let Err(error) = rustix::process::setsid()
        && !process_table::leads_session(me)
    {
        return Err(error.into());
    }
    rustix::process::set_child_subreaper(Some(me))?;
    unsafe_spawn::ignore_terminal_signals();
    PROCESS.store(DEDICATED, Ordering::SeqCst);
    Ok(())
}

/// Ends every descendant of the calling process, which must be dedicated: first SIGTERM, then
/// SIGKILL after `grace`. Returns once none is left, or returns the processes that could not be
/// ended.
pub fn end_descendants(grace: Duration) -> Vec<Leftover> {
    let mut ending = TreeEnding::new(Signal::TERM, grace);
    loop {
        let scope = TreeScope::Descendants { waited_for: &[] };
        match ending.step(scope.members()) {
            TreeProgress::Gone => return Vec::new(),
            TreeProgress::GaveUp(survivors) => return survivors,
            TreeProgress::Wait(pause) => std::thread::sleep(pause),
        }
    }
}

/// Kills and collects every child of the calling process and everything below, except `kept` and
/// their descendants. Returns whether it found any; if so, the caller should look again soon.
pub fn kill_children_except(kept: &[Pid]) -> bool {
    let me = rustix::process::getpid();
    if has_no_children() {
        return false;
    }
    let rows = process_table::read();
    adopt(&rows, me, kept);
    let is_kept = |row: &&ProcessRow| kept.iter().any(|pid| pid.as_raw_pid() == row.pid);
    let strays: Vec<i32> = rows
        .iter()
        .filter(|row| row.parent == me.as_raw_pid() && !is_kept(row))
        .map(|row| row.pid)
        .collect();
    let roots = rows.iter().filter(|row| strays.contains(&row.pid));
    for row in roots.chain(&below(&rows, &strays, |_| false)) {
        send(row, Signal::KILL);
    }
    !strays.is_empty()
}

/// Claims this process for the run that is about to start. Returns whether the process is
/// dedicated.
pub(super) fn claim_process(shield: Option<&Arc<RunShield>>) -> Result<bool, StartError> {
    match PROCESS.compare_exchange(DEDICATED, TAKEN, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {
            *SHIELD.lock().unwrap_or_else(PoisonError::into_inner) = shield.cloned();
            SANDBOX_INIT.store(0, Ordering::SeqCst);
            Ok(true)
        }
        // Orphans of several runs could not be distinguished from each other.
        Err(SHARED) if shield.is_some() => Err(StartError::Shield(
            "a shielded run needs a process of its own".to_owned(),
        )),
        Err(SHARED) => Ok(false),
        Err(_) => Err(StartError::Taken),
    }
}

/// Records that the run of this process is in a sandbox.
pub(super) fn claim_sandbox(sandbox: &RunSandbox) {
    SANDBOX_INIT.store(sandbox.init().as_raw_pid(), Ordering::SeqCst);
}

/// Records that the sandbox has ended: the number of its process 1 may now belong to another
/// process.
pub(super) fn release_sandbox() {
    SANDBOX_INIT.store(0, Ordering::SeqCst);
}

/// Undoes the claim of a run that did not start after all.
pub(super) fn release_process() {
    PROCESS.store(DEDICATED, Ordering::SeqCst);
}

/// Makes room for another run in a dedicated process, if no process of the last run is alive.
pub fn renew_process() -> bool {
    has_nothing_left()
        && PROCESS
            .compare_exchange(TAKEN, DEDICATED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
}

/// The rule by which processes belong to a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum TreeScope<'a> {
    /// Everything below this process. `waited_for` are the stages whose exit status the engine
    /// waits for.
    Descendants { waited_for: &'a [Pid] },
    /// Everything that descends from these stages or is in one of their sessions, including ended
    /// ones.
    Stages {
        waited_for: &'a [Pid],
        sessions: &'a [Pid],
    },
}

impl TreeScope<'_> {
    /// Returns all living members.
    pub fn members(self) -> Vec<ProcessRow> {
        match self {
            Self::Descendants { waited_for } => {
                let me = rustix::process::getpid();
                let init = SANDBOX_INIT.load(Ordering::SeqCst);
                if init != 0 && is_sandbox_empty(me.as_raw_pid(), init) {
                    return Vec::new();
                }
                let mut members = Vec::new();
                // Processes that move while the table is read can be missed. An empty result is
                // therefore not believed as long as there are children.
                for _ in 0..LOOKS {
                    let orphans = orphans();
                    let rows = process_table::read();
                    let is_orphan = |row: &ProcessRow| orphans.contains(&row.pid);
                    members = below(&rows, &[me.as_raw_pid()], is_orphan);
                    members.retain(|row| row.pid != init);
                    adopt(&rows, me, waited_for);
                    if !members.is_empty() || has_nothing_left() {
                        break;
                    }
                }
                members
            }
            Self::Stages {
                waited_for,
                sessions,
            } => {
                let rows = process_table::read();
                let raw = |pids: &[Pid]| pids.iter().map(|pid| pid.as_raw_pid()).collect();
                let stages: Vec<i32> = raw(waited_for);
                let sessions: Vec<i32> = raw(sessions);
                // If a number leads a session again although its stage was collected, it now
                // belongs to an unrelated process.
                let sessions: Vec<i32> = [stages.clone(), sessions]
                    .concat()
                    .into_iter()
                    .filter(|session| {
                        stages.contains(session) || !rows.iter().any(|row| row.pid == *session)
                    })
                    .collect();
                let mut members = below(&rows, &stages, |row| sessions.contains(&row.session));
                members.extend(
                    rows.into_iter()
                        .filter(|row| stages.contains(&row.pid) && !row.is_zombie()),
                );
                members.sort_by_key(|row| row.pid);
                members.dedup_by_key(|row| row.pid);
                members
            }
        }
    }
}

/// Whether only process 1 is left of a sandbox. Whatever a sandboxed run starts is below a child of
/// this process or, once its parent has ended, below a child of process 1. A process changes its
/// parent and enters the new parent's list in one step, so that no process is missed between the
/// two looks. This saves reading all processes of the machine.
fn is_sandbox_empty(me: i32, init: i32) -> bool {
    process_table::children(me).is_some_and(|children| children == [init])
        && process_table::children(init).is_some_and(|children| children.is_empty())
}

/// Whether this process has no child at all, running or ended. A subreaper without children has no
/// descendants.
pub fn has_no_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(
        rustix::process::waitid(WaitId::All, options),
        Err(Errno::CHILD)
    )
}

/// Whether [`has_no_children`] holds and process 1 of the namespace has adopted no orphan of a
/// shielded run.
pub fn has_nothing_left() -> bool {
    has_no_children() && orphans().is_empty()
}

/// Returns the orphans of this process's shielded run that process 1 of its namespace has adopted.
fn orphans() -> Vec<i32> {
    let shield = SHIELD
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    shield.map_or_else(Vec::new, |shield| shield.orphans())
}

/// Kills these processes and everything below them.
pub fn kill_all(pids: &[i32]) {
    let rows = process_table::read();
    for row in below(&rows, &[], |row| pids.contains(&row.pid)) {
        send(&row, Signal::KILL);
    }
}

/// Returns the children of this process, including ended ones.
pub(super) fn children() -> Vec<ProcessRow> {
    let me = rustix::process::getpid().as_raw_pid();
    let mut rows = process_table::read();
    rows.retain(|row| row.parent == me);
    rows
}

/// Collects ended processes that this subreaper has adopted.
pub fn collect_adopted(waited_for: &[Pid]) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(rustix::process::waitid(WaitId::All, options), Ok(Some(_))) {
        adopt(
            &process_table::read(),
            rustix::process::getpid(),
            waited_for,
        );
    }
}

fn adopt(rows: &[ProcessRow], me: Pid, waited_for: &[Pid]) {
    for row in rows {
        if row.parent == me.as_raw_pid()
            && row.is_zombie()
            && let Some(pid) = Pid::from_raw(row.pid)
            && !waited_for.contains(&pid)
        {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Returns the living processes below `roots`, those that satisfy `is_member`, and everything below
/// these. The roots are this process or children of it that were not collected yet, so that their
/// numbers cannot belong to other processes.
///
/// The rows were read one after the other. In between, a number may have passed to an unrelated
/// process, whose children must not be mistaken for children of its predecessor. A parent therefore
/// counts only if it is still the same process now, after its children were read, and if it is not
/// younger than they are. A process that is left out for this reason has lost its parent, and
/// belongs to a root the next time.
fn below(
    rows: &[ProcessRow],
    roots: &[i32],
    is_member: impl Fn(&ProcessRow) -> bool,
) -> Vec<ProcessRow> {
    let mut inside: BTreeSet<i32> = roots.iter().copied().collect();
    let mut found: Vec<&ProcessRow> = Vec::new();
    let mut waiting: Vec<(i32, u64)> = roots.iter().map(|root| (*root, 0)).collect();
    for row in rows.iter().filter(|row| is_member(row)) {
        if inside.insert(row.pid) {
            found.push(row);
            waiting.push((row.pid, row.started));
        }
    }
    while let Some((parent, started)) = waiting.pop() {
        let children = rows
            .iter()
            .filter(|row| row.parent == parent && row.started >= started);
        let children: Vec<&ProcessRow> =
            children.filter(|row| !inside.contains(&row.pid)).collect();
        let is_sure = || roots.contains(&parent) || process_table::is_same(parent, started);
        if children.is_empty() || !is_sure() {
            continue;
        }
        for row in children {
            inside.insert(row.pid);
            found.push(row);
            waiting.push((row.pid, row.started));
        }
    }
    found.retain(|row| !row.is_zombie());
    found.sort_by_key(|row| row.pid);
    found.into_iter().cloned().collect()
}

/// Describes processes for a report.
pub(super) fn name(rows: &[ProcessRow]) -> Vec<Leftover> {
    rows.iter()
        .map(|row| Leftover {
            pid: row.pid,
            command: process_table::command(row),
        })
        .collect()
}

/// Ends a tree step by step, so that its caller can keep reading the output meanwhile.
#[derive(Debug)]
pub(super) struct TreeEnding {
    first: Signal,
    kill_at: Instant,
    give_up_at: Instant,
    /// Every process that was ever seen, by number and start time, with the last signal that it
    /// got. A process that loses its parent while the tree is being ended therefore stays known.
    known: BTreeMap<(i32, u64), (ProcessRow, Signal)>,
    pause: Duration,
}

#[derive(Debug)]
pub(super) enum TreeProgress {
    Gone,
    /// The next step is due after this time at the latest.
    Wait(Duration),
    GaveUp(Vec<Leftover>),
}

impl TreeEnding {
    pub fn new(first: Signal, grace: Duration) -> Self {
        let now = Instant::now();
        let kill_at = if first == Signal::KILL {
            now
        } else {
            now + grace
        };
        Self {
            first,
            kill_at,
            give_up_at: kill_at + GIVE_UP,
            known: BTreeMap::new(),
            pause: Duration::from_millis(2),
        }
    }

    /// Whether remaining processes now get SIGKILL.
    pub fn is_forced(&self) -> bool {
        Instant::now() >= self.kill_at
    }

    /// Whether everything has had enough time to end.
    pub fn is_given_up(&self) -> bool {
        Instant::now() >= self.give_up_at
    }

    /// Ends the grace period now.
    pub fn kill_now(&mut self) {
        let now = Instant::now();
        if now < self.kill_at {
            self.kill_at = now;
            self.give_up_at = now + GIVE_UP;
        }
    }

    /// Signals every process that was not signaled yet. `members` are all that live now.
    pub fn step(&mut self, members: Vec<ProcessRow>) -> TreeProgress {
        let now = Instant::now();
        let signal = if now >= self.kill_at {
            Signal::KILL
        } else {
            self.first
        };
        self.known
            .retain(|_, (row, _)| process_table::still_there(row));
        for row in members {
            // A process that got no signal yet is recorded with this harmless one.
            self.known
                .entry((row.pid, row.started))
                .or_insert((row, Signal::CONT));
        }
        if self.known.is_empty() {
            return TreeProgress::Gone;
        }
        for (row, sent) in self.known.values_mut() {
            if *sent != signal {
                send(row, signal);
                *sent = signal;
            }
        }
        if now >= self.give_up_at {
            let rows: Vec<ProcessRow> = self.known.values().map(|(row, _)| row.clone()).collect();
            return TreeProgress::GaveUp(name(&rows));
        }
        self.pause = (self.pause * 2).min(Duration::from_millis(50));
        TreeProgress::Wait(if now < self.kill_at {
            self.pause.min(self.kill_at - now)
        } else {
            self.pause
        })
    }
}

/// Signals exactly this process: the descriptor is opened first, and then the number must still
/// belong to the process that was seen.
fn send(row: &ProcessRow, signal: Signal) {
    let Some(pid) = Pid::from_raw(row.pid) else {
        return;
    };
    let Ok(descriptor) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if process_table::still_there(row) {
        let _ = rustix::process::pidfd_send_signal(&descriptor, signal);
        if signal != Signal::KILL {
            // A stopped process acts on no other signal until it continues.
            let _ = rustix::process::pidfd_send_signal(&descriptor, Signal::CONT);
        }
    }
}
