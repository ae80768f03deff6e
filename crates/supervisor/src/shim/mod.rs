//! The shim, the process of a run: it waits for its order, carries it out, answers requests about
//! it until nothing of the run is left, and then waits for the next order or ends.
//!
//! The shim is forked ahead of time, with the session's name and files ready. It is a subreaper, so
//! everything that the run starts stays below it. It holds no listening socket, and no descriptor
//! except the one to the supervisor; when that is closed, it ends the run and itself.
//!
//! The shim has one run at a time. It takes another run only of the same agent, and only if the
//! last one left nothing behind that a new process would not have: no process, no conversation, no
//! terminal, no limits, and nothing that the run has set on the shim itself. After a sandboxed run,
//! it takes only further runs of the same scope from the same client, and makes the sandbox of the
//! next run ahead while it waits.

mod confinement;
mod conversation;
mod inherited;
mod live;
mod protected_paths;
mod runs;
mod scoping;
mod shielding;
mod space_watch;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_engine::sandbox::{ScopeNamespaces, SpareSandbox};
use interlock_engine::{
    AuthorizationKey, Leftovers, OpenedPlan, Settings, Signal, StartError, tree,
};
use interlock_plan::{PlanStdin, RunPlan, SandboxBackend, SandboxPlan};
use interlock_transcript::{
    SessionRecord, TranscriptError, TranscriptLimits, TranscriptWriter, screen,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use uuid::Uuid;

use super::frame;
use super::handover::{self, Note};
use super::message::{ALTERED, Go, OTHER_AGENT, ShimReport, StartedRun, SupervisorRefusal};
use super::paths::SupervisorPaths;
use super::supervisor::continue_parent;
use super::unsafe_process;
use crate::cgroup::{Hierarchies, RunLimits};
use crate::names;
use confinement::Confinement;
use inherited::Inherited;
use live::{Live, RunBounds};
use protected_paths::WrittenWorkspace;
use scoping::ScopeAsker;
use shielding::AgentShield;

/// How long clients that are being answered may take once everything else is done. This is longer
/// than any single wait for a client.
const LAST_ANSWERS: Duration = Duration::from_secs(15);

/// A run that ends this soon is not announced before its result, and needs no files.
const BRIEF: Duration = Duration::from_millis(25);

/// Most runs of one shim, one after the other. Then a new process takes its place.
const MOST_RUNS: usize = 256;

/// Most processes left behind on purpose that are reported to the supervisor, because a report must
/// be short.
const MOST_LEFT_ALONE: usize = 64;

/// The values that a shim gets when it is forked.
#[derive(Debug)]
pub(super) struct Birth {
    pub place: SupervisorPaths,
    pub instance: String,
    /// The soft limit of open files that runs get.
    pub open_files: Option<u64>,
    pub hierarchies: Hierarchies,
    /// Limits that its run will probably have.
    pub limits: RunLimits,
    /// The name of its control group, if it can have one.
    pub group: String,
    pub control: OwnedFd,
}

/// How the process of a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShimEnding {
    Good,
    Bad,
}

/// Runs the shim until it ends.
pub(super) fn run(birth: &Birth) -> ShimEnding {
    if tree::dedicate_process().is_err() {
        return ShimEnding::Bad;
    }
    // The shim ends when the supervisor does, but not before it has cleaned up.
    unsafe_process::ignore_termination();
    let mut confinement = Confinement::expecting(birth);
    let inherited = Inherited::now();
    interlock_engine::warm_up();
    let mut last = None;
    let mut spare = None;
    let mut served = ServedAgent::default();
    for further in (0..MOST_RUNS).rev() {
        let (mut name, mut transcript) = reserve(&birth.place, spare.take());
        let Some(connection) = runs::next(birth, last.take(), || served.make_spare()) else {
            return unused(birth, &name);
        };
        // The shim may have waited for a long time, and the directory may have been removed
        // meanwhile.
        if !birth.place.session(&name).exists() {
            (name, transcript) = reserve(&birth.place, None);
        }
        let carried_out = carry_out(
            birth,
            &connection,
            name.clone(),
            transcript,
            &mut confinement,
            (&inherited, &mut served),
        );
        let live = match carried_out {
            Ok(live) => live,
            Err(refusal) => {
                let _ = frame::send(&*connection, &Err::<StartedRun, _>(refusal));
                return unused(birth, &name);
            }
        };
        drop(connection);
        let Some(over) = serve(birth, &live) else {
            return ShimEnding::Bad;
        };
        if over.kept.is_none() {
            spare = live.forget();
        }
        let orderer = live.next_orderer();
        let confined = live.is_sandboxed();
        if further == 0
            || (confined && !(served.is_confined() && orderer.is_some()))
            || !is_as_new(&live, &over, &confinement)
            // Changed limits would keep this process from doing its own work until the next order.
            || !inherited.has_same_limits()
        {
            if let Some(transcript) = spare {
                transcript.remove();
            }
            report_over(birth, over, None);
            break;
        }
        if confined {
            let _ = handover::send_report(&birth.control, &ShimReport::ScopeLeft);
        }
        last = Some(Last {
            orderer,
            agent: served.agent.clone().unwrap_or_default(),
            over,
            confined,
        });
    }
    ShimEnding::Good
}

/// The previous run, of which nothing is left.
struct Last {
    over: RunRemains,
    /// Only runs of this agent may follow.
    agent: String,
    /// The client of the previous run, which may have another order.
    orderer: Option<Arc<UnixStream>>,
    /// Whether the run was sandboxed, so that only the same client may have another order.
    confined: bool,
}

/// What a run left behind.
#[derive(Default)]
struct RunRemains {
    kept: Option<String>,
    survivors: usize,
    left_alone: Vec<i32>,
}

/// The agent whose runs a process has had, and what it keeps for further runs of that agent.
#[derive(Default)]
struct ServedAgent {
    agent: Option<String>,
    shield: Option<AgentShield>,
    /// Where the last run was confined, if it was.
    last_scope: Option<(SandboxPlan, ScopeNamespaces)>,
    /// The sandbox for the next run.
    spare: Option<SpareSandbox>,
}

impl ServedAgent {
    /// Binds the process to the agent of its first plan, and after a sandboxed run to the same
    /// scope, because anything that one agent leaves in a process must not reach another agent.
    fn bind_to(&mut self, plan: &RunPlan) -> Result<(), SupervisorRefusal> {
        if let Some((last, _)) = &self.last_scope {
            let next = plan.sandbox.as_ref();
            if next.is_none_or(|next| next.scope_id != last.scope_id) {
                let message = "this process had a run in another sandbox";
                return Err(SupervisorRefusal::new(OTHER_AGENT, message));
            }
        }
        let agent = plan.agent_id.as_str();
        match &self.agent {
            Some(own) if own != agent => {
                let message = "this process had a run of another agent";
                Err(SupervisorRefusal::new(OTHER_AGENT, message))
            }
            Some(_) => Ok(()),
            None => {
                self.agent = Some(agent.to_owned());
                Ok(())
            }
        }
    }

    /// Keeps what the next run of the same scope needs. If that fails, there is no next run.
    fn remember_scope(&mut self, plan: &RunPlan, scope: Option<&ScopeNamespaces>) {
        let copy = scope.and_then(|scope| scope.try_clone().ok());
        self.last_scope = plan.sandbox.clone().zip(copy);
    }

    fn is_confined(&self) -> bool {
        self.last_scope.is_some()
    }

    /// Makes the sandbox of the next run, if there is none yet.
    fn make_spare(&mut self) {
        let made = self.last_scope.as_ref();
        self.spare = made.and_then(|(plan, scope)| SpareSandbox::make(plan, scope));
    }
}

/// Reports the end of a run. `waits_for` is the agent whose next run the process takes, or `None`
/// if the process ends.
fn report_over(birth: &Birth, over: RunRemains, waits_for: Option<String>) {
    let RunRemains {
        kept,
        survivors,
        left_alone,
    } = over;
    let report = ShimReport::Over {
        kept,
        survivors,
        left_alone,
        waits_for,
    };
    let _ = handover::send_report(&birth.control, &report);
    // The run may have stopped the supervisor, which would then not receive the report.
    continue_parent();
}

/// Removes the directory of a name that was never announced, because nothing was started.
fn unused(birth: &Birth, name: &str) -> ShimEnding {
    let _ = std::fs::remove_dir_all(birth.place.session(name));
    report_over(birth, RunRemains::default(), None);
    ShimEnding::Good
}

/// Whether the next run finds the same state as in a new process. A subreaper without children
/// proves that nothing of the last run lives.
fn is_as_new(live: &Live, over: &RunRemains, confinement: &Confinement) -> bool {
    over.survivors == 0
        && over.left_alone.is_empty()
        && live.is_quiet()
        && live.record().is_some_and(|record| !record.pty)
        && confinement.is_unlimited()
        && !confinement.was_left()
        && tree::renew_process()
}

/// Whether nothing but this process itself has changed its state since it was born. This is checked
/// right before a run starts, because not only the last run but any run of the same user can reach
/// it.
fn is_untouched(confinement: &Confinement, inherited: &Inherited) -> bool {
    confinement.is_in_place() && inherited.is_unchanged()
}

/// Reserves a name that no session of the state directory has, with the files for its transcript,
/// either spare or new.
fn reserve(place: &SupervisorPaths, spare: Option<TranscriptWriter>) -> (String, TranscriptWriter) {
    let mut name = names::session_name(|name| place.session(name).exists());
    let limits = TranscriptLimits::default();
    if let Some(transcript) = spare.and_then(|spare| spare.made_new(&place.session(&name), limits))
    {
        return (name, transcript);
    }
    loop {
        let directory = place.session(&name);
        match TranscriptWriter::prepare(&directory, limits) {
            Ok(transcript) => return (name, transcript),
            // Another shim took the name first.
            Err(TranscriptError::File { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                name = names::session_name(|name| place.session(name).exists());
            }
            // A run need not fail because its output cannot be kept. The result reports it.
            Err(error) => return (name, TranscriptWriter::keeping_nothing(&directory, &error)),
        }
    }
}

/// Reads the two parts of the order, and starts the run.
fn carry_out(
    birth: &Birth,
    connection: &Arc<UnixStream>,
    name: String,
    mut transcript: TranscriptWriter,
    confinement: &mut Confinement,
    (inherited, served): (&Inherited, &mut ServedAgent),
) -> Result<Arc<Live>, SupervisorRefusal> {
    let plan = runs::read_plan(birth, connection)?;
    served.bind_to(&plan)?;
    let shield = AgentShield::of(&mut served.shield, birth, &plan)?;
    let scope = scoping::join_scope(birth, &plan, ScopeAsker::Announced)?;
    let opened = OpenedPlan::open_in(plan, shield).with_spare(served.spare.take());
    let plan = opened.plan().clone();
    let Go {
        authorization,
        manner,
    } = runs::read_go(connection)?;
    let key = AuthorizationKey::read(&birth.place.run_key()).map_err(|error| {
        SupervisorRefusal::new(
            "RUN_KEY_UNUSABLE",
            format!("the key of the state directory: {error}"),
        )
    })?;
    // Nothing is made for a run before it is known that the run may start.
    key.verify(&authorization, &plan.digest())
        .map_err(StartError::from)
        .map_err(|error| SupervisorRefusal::new(error.code(), error.to_string()))?;
    let is_complete = scope.is_some() || !plan.sandbox.as_ref().is_some_and(scoping::has_keeper);
    let scope = if is_complete {
        scope
    } else {
        scoping::join_scope(birth, &plan, ScopeAsker::Authorized)?
    };
    served.remember_scope(&plan, scope.as_ref());
    let opened = opened.in_scope(scope);
    transcript.set_limits(TranscriptLimits {
        max_spool_bytes: manner.max_spool_bytes,
    });
    let screen = plan.pty.map(|size| {
        screen::Screen::new(screen::Size {
            columns: size.columns,
            rows: size.rows,
        })
    });
    if !is_untouched(confinement, inherited) {
        let message = "another process has altered the process of the run";
        return Err(SupervisorRefusal::new(ALTERED, message));
    }
    let limited = confinement.limit(birth, manner.limits);
    if !is_limited_otherwise(&plan, manner.limits) {
        limited?;
    }
    let group = confinement.group.clone();
    let directory = birth.place.session(&name);
    let live = Live::new(
        directory,
        transcript,
        screen,
        manner.clone(),
        RunBounds {
            group,
            time_limit_ms: plan.timeout_ms,
            workspace: WrittenWorkspace::of(plan.sandbox.as_ref()),
        },
    )
    .map_err(|error| SupervisorRefusal::new("START_FAILED", error.to_string()))?;
    let settings = Settings {
        grace: Duration::from_millis(manner.grace_ms),
        leftovers: manner.leftovers,
        open_files: birth.open_files,
        first_without_memory: manner.limits.memory_bytes.is_some(),
        require_race_free: manner.require_race_free,
        forced_end: confinement.forced_end(),
        run_id: manner.run_id.clone(),
        ..Settings::default()
    };
    let started = interlock_engine::start(
        opened,
        &authorization,
        &key,
        &settings,
        live::Sink(Arc::clone(&live)),
    );
    let run = started
        .map_err(|error: StartError| SupervisorRefusal::new(error.code(), error.to_string()))?;
    let record = SessionRecord {
        id: Uuid::new_v4().to_string(),
        run_id: manner.run_id.clone(),
        owner: manner.owner.clone(),
        title: names::title(&plan.command),
        pid: run.pid(),
        shim: Some(rustix::process::getpid().as_raw_pid()),
        pty: plan.pty.is_some(),
        writable: is_writable(&plan),
        input_pipe: run.input_pipe(),
        race_free: run.is_race_free(),
        shield: Some(plan.shield),
        tree: plan.tree.as_ref().map(interlock_plan::PlanTree::level),
        background: false,
        cleanup_ms: manner.cleanup_ms,
        supervisor: birth.instance.clone(),
        out_of_memory: false,
        protected_created: Vec::new(),
        programs: None,
        agent_id: plan.agent_id,
        session_key: plan.session_key,
        command: plan.command,
        cwd: plan.cwd.requested,
        name,
    };
    live.begin(run, record, Arc::clone(connection), |record| {
        tell_begun(birth, record);
    });
    Ok(live)
}

/// Whether a sandbox enforces these limits without a control group. It can only count processes by
/// itself.
fn is_limited_otherwise(plan: &RunPlan, limits: RunLimits) -> bool {
    let only_processes = RunLimits {
        pids: limits.pids,
        ..RunLimits::default()
    };
    // Without a namespace of its own, all processes of the user would count.
    let is_separate = |own: &&SandboxPlan| own.backend != SandboxBackend::Landlock;
    let own = plan.sandbox.as_ref().filter(is_separate);
    let own = own.and_then(|own| own.limits.pids);
    own.is_some() && own == limits.pids && limits == only_processes
}

fn is_writable(plan: &RunPlan) -> bool {
    plan.pty.is_some() || plan.stdin == PlanStdin::Pipe
}

/// Serves the run until nothing is left of it except what it reports. Returns `None` if the
/// supervisor is gone.
fn serve(birth: &Birth, live: &Arc<Live>) -> Option<RunRemains> {
    let waits = ResultWait::new(live);
    if waits.until.is_none_or(|until| until > waits.announce_at) {
        waits.for_brief_run(live);
    }
    live.announce(|record| tell_begun(birth, record));
    space_watch::begin(live);
    let mut last_answers = None;
    loop {
        let over = live.is_over();
        let until = if over && !live.has_orderer() {
            Some(*last_answers.get_or_insert_with(|| Instant::now() + LAST_ANSWERS))
        } else {
            waits.until(live)
        };
        if over
            && !live.has_orderer()
            && (live.is_quiet() || until.is_some_and(|until| Instant::now() >= until))
        {
            break;
        }
        if !wait(birth, live, until) {
            // The supervisor is gone, and so are all of its clients.
            live.abandon();
            let _ = live.run().kill(Signal::KILL);
            return None;
        }
        live.answer();
        waits.act(live);
    }
    let kept = live.kept();
    let mut left_alone = Vec::new();
    let mut survivors = live.survivors();
    let mut unseen = 0;
    if live.manner().leftovers == Leftovers::Keep {
        left_alone.extend(survivors.drain(..).map(|survivor| survivor.pid));
        left_alone.truncate(MOST_LEFT_ALONE);
    } else if survivors.is_empty() && !tree::has_nothing_left() {
        // A process that exists although no look has shown it is left to the supervisor.
        unseen = 1;
    }
    Some(RunRemains {
        kept,
        survivors: survivors.len() + unseen,
        left_alone,
    })
}

fn tell_begun(birth: &Birth, record: &SessionRecord) {
    let name = record.name.clone();
    let _ = handover::send_report(&birth.control, &ShimReport::Begun { name });
}

/// The times that govern the result: when the session is announced, and until when the client that
/// ordered the run waits for its end.
struct ResultWait {
    announce_at: Instant,
    /// When the session goes to the background.
    until: Option<Instant>,
}

impl ResultWait {
    fn new(live: &Live) -> Self {
        let now = Instant::now();
        let wait = live.manner().wait_ms.map(Duration::from_millis);
        Self {
            announce_at: now + BRIEF,
            until: wait.and_then(|wait| now.checked_add(wait)),
        }
    }

    /// Waits for a very short run, which is not announced because its result says everything. A run
    /// with much output is announced, because its quota depends on the other sessions.
    fn for_brief_run(&self, live: &Live) {
        let left = self.announce_at.saturating_duration_since(Instant::now());
        let mut events = [
            PollFd::new(live.ended_event(), PollFlags::IN),
            PollFd::new(live.wake_event(), PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut events, Some(&timespec(left)));
    }

    fn until(&self, live: &Live) -> Option<Instant> {
        match live.answered_until() {
            None if live.has_orderer() => self.until,
            until => until,
        }
    }

    fn act(&self, live: &Live) {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| Instant::now() >= until);
        if is_over(live.answered_until()) {
            live.orderer_is_gone();
        } else if is_over(self.until) {
            live.give_way();
        }
    }
}

/// Waits for the next event, and acts on it. Returns `false` if the supervisor is gone.
fn wait(birth: &Birth, live: &Arc<Live>, until: Option<Instant>) -> bool {
    let orderer = live.orderer();
    let pause = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
    let mut polled = vec![
        PollFd::new(&birth.control, PollFlags::IN),
        PollFd::new(live.wake_event(), PollFlags::IN),
    ];
    if let Some(orderer) = &orderer {
        polled.push(PollFd::new(&**orderer, PollFlags::IN));
        if live.answered_until().is_none() {
            polled.push(PollFd::new(live.ended_event(), PollFlags::IN));
        }
    }
    if rustix::event::poll(&mut polled, pause.as_ref()).is_err() {
        return true;
    }
    let ready = |index: usize| {
        polled
            .get(index)
            .is_some_and(|polled| !polled.revents().is_empty())
    };
    if ready(1) {
        live.clear_wake_event();
    }
    if ready(2)
        && let Some(orderer) = &orderer
        && !conversation::hear_orderer(live, orderer)
    {
        live.orderer_is_gone();
    }
    !ready(0) || take_note(birth, live)
}

fn take_note(birth: &Birth, live: &Arc<Live>) -> bool {
    match handover::receive_note(&birth.control) {
        Ok(Some(Note::Connection(connection))) => {
            conversation::serve(live, UnixStream::from(connection));
            true
        }
        Ok(Some(Note::Quota(max_spool_bytes))) => {
            live.set_limits(TranscriptLimits { max_spool_bytes });
            true
        }
        Ok(Some(Note::Drain)) => {
            live.drain();
            true
        }
        // Runs that join the scope from now on would share nothing with this run.
        Ok(Some(Note::ScopeGone)) => {
            live.run().request_end(Signal::KILL);
            true
        }
        // A second order is not for this process, and its sender sees the connection close. A run
        // that has started needs no other shield.
        Ok(Some(
            Note::Start(_)
            | Note::Shield(..)
            | Note::ShieldFailed(_)
            | Note::Scope(_)
            | Note::ScopeAbsent
            | Note::ScopeFailed(_),
        )) => true,
        Ok(None) | Err(_) => false,
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
