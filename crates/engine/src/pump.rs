//! The pump, one thread per run, reads the run's output, feeds its input, enforces its time limit,
//! notices its end and ends its tree.
//!
//! A run ends when its process ends, not when the last holder of its pipes does.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;

use super::conductor::LineStop;
use super::registry::StartedProcess;
use super::run::{RunOutcome, RunShared, RunStatus};
use super::tree::{self, Leftover, TreeEnding, TreeProgress};
use super::warm;
use super::{Exit, ForcedEnd, Leftovers, OutputSink, Settings, StreamKind, Usage};
use crate::sandbox::{FarSide, HostTree, RunSandbox};

/// Size of the read buffer: more than a pipe holds, so that one read empties a full pipe.
const BUFFER: usize = 128 * 1024;

/// Capacity that a pipe starts with. A pipe that is found full is widened, so that writer and
/// reader take turns less often. It is not widened much further, because its content should still
/// be in the processor's cache when it is read.
const PIPE: usize = 64 * 1024;
const WIDE_PIPE: usize = 256 * 1024;

/// How often a dedicated process collects ended processes that it has adopted.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// Pause before looking again for processes that exist but did not show in the process table.
const UNSEEN_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Pump {
    pub shared: Arc<RunShared>,
    pub sink: Arc<dyn OutputSink>,
    /// Pipes or terminals that may still deliver output.
    pub outputs: Vec<Output>,
    pub input: Option<Arc<OwnedFd>>,
    /// The run's side of its terminal. It is held so that the terminal survives moments in which no
    /// process has it open.
    pub slave: Option<Arc<OwnedFd>>,
    pub settings: Settings,
    pub sandbox: Option<Arc<RunSandbox>>,
    pub far: Option<Arc<FarSide>>,
    pub tree: Option<Arc<HostTree>>,
    pub time_limit: Option<Duration>,
    /// When adopted processes that have ended were last collected.
    pub collected: Instant,
}

/// The part of the run that must end for the run to end.
pub(super) enum Main {
    Process(StartedProcess),
    /// The conductor, which reports its end by an order.
    Conducted,
}

pub(super) struct Output {
    kind: StreamKind,
    descriptor: Arc<OwnedFd>,
    /// Number of bytes that were in the pipe when the run ended.
    owed: u64,
    is_wide: bool,
}

/// State of a tree that is being ended.
struct TreeEnd {
    ending: TreeEnding,
    why: Why,
    next_step: Instant,
    /// Nothing is left to do: either no process is left, or the rest cannot be ended.
    over: bool,
}

#[derive(Clone, Copy)]
enum Why {
    TimeIsOver,
    Asked(Signal),
}

impl Output {
    pub fn new(kind: StreamKind, descriptor: Arc<OwnedFd>) -> Self {
        Self {
            kind,
            descriptor,
            owed: 0,
            is_wide: false,
        }
    }
}

impl Pump {
    /// Starts the thread, which waits for the message that names what the run consists of. If the
    /// sender is dropped instead, nothing was started and the thread ends silently.
    pub fn start(self) -> io::Result<Sender<Main>> {
        let (sender, receiver) = channel();
        warm::run_in_thread("run", move || {
            if let Ok(main) = receiver.recv() {
                self.run(main);
            }
        })?;
        Ok(sender)
    }

    fn run(mut self, main: Main) {
        let began = Instant::now();
        let mut buffer = vec![0; BUFFER];
        let (status, usage) = self.until_end(main, began, &mut buffer);
        let duration = began.elapsed();
        self.slave = None;
        self.drain(&mut buffer);
        self.shared.orders().input_is_closed = true;
        self.input = None;
        let mut leftovers = tree::name(&self.shared.registry.members());
        // The client has ended by now, but the processes that it controlled may not have. The run
        // ends when they do.
        let far = self.far.take();
        leftovers.extend(far.and_then(|far| far.end()));
        let outcome = RunOutcome {
            status,
            duration,
            leftovers: leftovers.clone(),
            usage,
            may_lack_processes: self
                .sandbox
                .as_ref()
                .is_some_and(|sandbox| sandbox.may_lack_processes()),
            programs: match (&self.sandbox, &self.tree) {
                (Some(own), _) => own.programs(),
                (None, tree) => tree.as_ref().and_then(|tree| tree.programs()),
            },
        };
        self.sink.ended(&outcome);
        self.shared.publish(outcome);
        let survivors = self.after_end(leftovers, &mut buffer);
        self.sink.gone(&survivors);
        self.shared.publish_survivors(survivors);
    }

    /// Works until the main process has ended and, if the tree is to be ended, until the tree is
    /// gone.
    fn until_end(&mut self, main: Main, began: Instant, buffer: &mut [u8]) -> (RunStatus, Usage) {
        let mut main = Some(main);
        let mut deadline = self.time_limit.and_then(|limit| began.checked_add(limit));
        let mut end: Option<TreeEnd> = None;
        let mut ended = None;
        loop {
            let until = match &end {
                Some(end) => Some(end.next_step),
                None => deadline,
            };
            self.poll(main.as_ref(), until, buffer);
            if ended.is_none() {
                ended = self.ended(main.as_ref());
                if ended.is_some() {
                    main = None;
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                deadline = None;
                if ended.is_none() && end.is_none() {
                    end = Some(self.begin_end(Signal::TERM, Why::TimeIsOver));
                }
            }
            if let Some(signal) = self.shared.orders().end.take() {
                match &mut end {
                    Some(end) if signal == Signal::KILL => {
                        end.ending.kill_now();
                        end.next_step = Instant::now();
                    }
                    Some(_) => {}
                    None => end = Some(self.begin_end(signal, Why::Asked(signal))),
                }
            }
            if let Some(end) = &mut end {
                self.step(end);
            }
            match (&end, ended) {
                (None, Some((result, usage))) => return (status(result, None), usage),
                (Some(end), Some((result, usage))) if end.over => {
                    return (status(result, Some(end.why)), usage);
                }
                (Some(end), None) if end.over && end.next_step <= Instant::now() => {
                    // The process cannot be ended, and is reported among the leftovers.
                    if let Some(Main::Process(process)) = &main {
                        self.shared.registry.disown(process.pid);
                    }
                    return (
                        status(Err(LineStop::Ended), Some(end.why)),
                        Usage::default(),
                    );
                }
                _ => {}
            }
        }
    }

    fn begin_end(&self, signal: Signal, why: Why) -> TreeEnd {
        self.shared.registry.stop();
        self.shared.registry.note_signal(signal);
        TreeEnd {
            ending: TreeEnding::new(signal, self.settings.grace),
            why,
            next_step: Instant::now(),
            over: false,
        }
    }

    fn step(&self, end: &mut TreeEnd) {
        let now = Instant::now();
        if end.over || now < end.next_step {
            return;
        }
        match self.end_step(&mut end.ending) {
            TreeProgress::Wait(pause) => end.next_step = now + pause,
            // The thread that waits for the last process needs a moment to see that it has ended.
            // Reading the process table may have taken longer than that.
            TreeProgress::Gone => {
                end.over = true;
                end.next_step = Instant::now() + Duration::from_secs(1);
            }
            TreeProgress::GaveUp(_) => {
                end.over = true;
                end.next_step = now;
            }
        }
    }

    /// Takes one step towards the end of the tree. If force is needed and everything can be ended
    /// in one step, that is done first: then no process can escape by forking.
    fn end_step(&self, ending: &mut TreeEnding) -> TreeProgress {
        let members = self.shared.registry.members();
        if !members.is_empty() {
            self.force(ending);
        }
        ending.step(members)
    }

    /// Ends everything in one step, if it is time for force and there is a way to do it.
    fn force(&self, ending: &TreeEnding) {
        if ending.is_forced()
            && let Some(ForcedEnd(end)) = &self.settings.forced_end
        {
            end();
        }
    }

    /// Returns how the main process or the line ended, if it has ended.
    fn ended(&self, main: Option<&Main>) -> Option<(Result<Exit, LineStop>, Usage)> {
        match main? {
            Main::Process(process) => {
                let mut poll = [PollFd::new(&process.descriptor, PollFlags::IN)];
                let ready = rustix::event::poll(&mut poll, Some(&Timespec::default()));
                (ready == Ok(1)).then(|| {
                    let (exit, usage) = self.shared.registry.collect(process.pid);
                    (Ok(exit), usage)
                })
            }
            Main::Conducted => match self.shared.orders().conducted? {
                Ok((code, usage)) => Some((Ok(Exit::Code(code)), usage)),
                Err(stop) => Some((Err(stop), Usage::default())),
            },
        }
    }

    /// Waits until something happens, but not longer than `until`, and moves bytes.
    fn poll(&mut self, main: Option<&Main>, until: Option<Instant>, buffer: &mut [u8]) {
        let mut pause = until.map(|until| until.saturating_duration_since(Instant::now()));
        if self.shared.registry.is_dedicated() {
            // This is not done in every round, because it may have to read the whole process table.
            if self.collected.elapsed() >= COLLECT_EVERY {
                self.collected = Instant::now();
                self.shared.registry.collect_adopted();
            }
            pause = Some(pause.map_or(COLLECT_EVERY, |pause| pause.min(COLLECT_EVERY)));
        }
        let waiting = !self.shared.orders().input.is_empty();
        let shared = Arc::clone(&self.shared);
        let mut polled = Vec::with_capacity(self.outputs.len() + 3);
        for output in &self.outputs {
            polled.push(PollFd::new(&*output.descriptor, PollFlags::IN));
        }
        polled.push(PollFd::new(shared.wake(), PollFlags::IN));
        if let Some(Main::Process(process)) = main {
            polled.push(PollFd::new(&process.descriptor, PollFlags::IN));
        }
        if let (true, Some(input)) = (waiting, &self.input) {
            polled.push(PollFd::new(&**input, PollFlags::OUT));
        }
        wait(&mut polled, pause);
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        drop(polled);
        if ready.get(self.outputs.len()) == Some(&true) {
            let _ = rustix::io::read(shared.wake(), &mut [0; 8]);
        }
        self.read(&ready, buffer, StreamDestination::Sink);
        self.feed();
    }

    /// Reads once from every output that is ready, and drops outputs that have reached their end.
    fn read(&mut self, ready: &[bool], buffer: &mut [u8], destination: StreamDestination) {
        let mut index = 0;
        self.outputs.retain_mut(|output| {
            let is_ready = ready.get(index) == Some(&true);
            index += 1;
            if !is_ready {
                return true;
            }
            match rustix::io::read(&*output.descriptor, &mut *buffer) {
                // A terminal that no process has open reports an error instead of end of file.
                Ok(0) | Err(Errno::IO) => false,
                Ok(length) => {
                    if length >= PIPE && !output.is_wide {
                        output.is_wide = true;
                        // Terminals have no capacity to set, and a pipe's user may have reached
                        // their limit.
                        let _ = rustix::pipe::fcntl_setpipe_size(&*output.descriptor, WIDE_PIPE);
                    }
                    output.owed = output.owed.saturating_sub(length as u64);
                    if destination == StreamDestination::Sink {
                        self.sink
                            .output(output.kind, buffer.get(..length).unwrap_or_default());
                    }
                    true
                }
                Err(Errno::AGAIN | Errno::INTR) => true,
                Err(_) => false,
            }
        });
    }

    /// Writes as much of the waiting input as the run accepts.
    fn feed(&mut self) {
        let mut orders = self.shared.orders();
        while let Some(input) = &self.input {
            let (front, _) = orders.input.as_slices();
            if front.is_empty() {
                if orders.close_input {
                    orders.input_is_closed = true;
                    self.input = None;
                }
                return;
            }
            match rustix::io::write(&**input, front) {
                Ok(written) => {
                    orders.input.drain(..written);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    orders.input.clear();
                    orders.input_is_closed = true;
                    self.input = None;
                }
            }
        }
    }

    /// Reads the remaining output after the end. Bytes that are already in the pipes are always
    /// read; what other holders of the pipes still write is read only for a fixed time.
    fn drain(&mut self, buffer: &mut [u8]) {
        let until = Instant::now() + self.settings.drain;
        for output in &mut self.outputs {
            output.owed = rustix::io::ioctl_fionread(&*output.descriptor).unwrap_or(0);
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let owed = self.outputs.iter().any(|output| output.owed > 0);
            if self.outputs.is_empty() || (left.is_zero() && !owed) {
                return;
            }
            let mut polled: Vec<PollFd<'_>> = self
                .outputs
                .iter()
                .map(|output| PollFd::new(&*output.descriptor, PollFlags::IN))
                .collect();
            wait(&mut polled, Some(left));
            let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
            drop(polled);
            if left.is_zero() && !ready.contains(&true) {
                return;
            }
            self.read(&ready, buffer, StreamDestination::Sink);
        }
    }

    /// Handles what the run left behind, and returns the processes that stay.
    fn after_end(&mut self, leftovers: Vec<Leftover>, buffer: &mut [u8]) -> Vec<Leftover> {
        // Nothing in a sandbox outlives its run, even if other leftovers are left alone.
        if let Some(sandbox) = self.sandbox.take() {
            self.shared.registry.stop();
            sandbox.end();
            tree::release_sandbox();
        } else if self.settings.leftovers == Leftovers::Keep {
            while !self.outputs.is_empty() {
                self.discard(buffer);
                if self.shared.orders().end.is_some() {
                    break;
                }
            }
            if self.shared.orders().end.is_none() {
                return leftovers;
            }
        }
        self.shared.registry.stop();
        self.outputs.clear();
        let mut ending = TreeEnding::new(Signal::TERM, self.settings.grace);
        loop {
            let pause = match self.end_step(&mut ending) {
                TreeProgress::GaveUp(survivors) => return survivors,
                TreeProgress::Wait(pause) => pause,
                TreeProgress::Gone if self.shared.registry.is_empty() => return Vec::new(),
                TreeProgress::Gone if ending.is_given_up() => {
                    return tree::name(&self.shared.registry.children());
                }
                // A process moved while the table was read, or has not been collected yet.
                TreeProgress::Gone => {
                    self.force(&ending);
                    UNSEEN_PAUSE
                }
            };
            let mut polled = [PollFd::new(self.shared.wake(), PollFlags::IN)];
            wait(&mut polled, Some(pause));
            let _ = rustix::io::read(self.shared.wake(), &mut [0; 8]);
            if self.shared.orders().end.take() == Some(Signal::KILL) {
                ending.kill_now();
            }
        }
    }

    /// Reads and discards output, so that a daemon that is left alone can continue to write.
    fn discard(&mut self, buffer: &mut [u8]) {
        let shared = Arc::clone(&self.shared);
        let mut polled: Vec<PollFd<'_>> = self
            .outputs
            .iter()
            .map(|output| PollFd::new(&*output.descriptor, PollFlags::IN))
            .chain([PollFd::new(shared.wake(), PollFlags::IN)])
            .collect();
        wait(&mut polled, None);
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        drop(polled);
        let _ = rustix::io::read(shared.wake(), &mut [0; 8]);
        self.read(&ready, buffer, StreamDestination::Nowhere);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamDestination {
    Sink,
    Nowhere,
}

fn status(result: Result<Exit, LineStop>, end: Option<Why>) -> RunStatus {
    match (end, result) {
        (Some(Why::TimeIsOver), _) => RunStatus::TimedOut,
        (_, Ok(Exit::Code(code))) => RunStatus::Exited(code),
        (_, Ok(Exit::Signal(signal)) | Err(LineStop::Signal(signal))) => {
            RunStatus::Signaled(signal)
        }
        (Some(Why::Asked(signal)), Err(LineStop::Ended)) => RunStatus::Signaled(signal.as_raw()),
        (None, Err(LineStop::Ended)) => RunStatus::Exited(126),
    }
}

/// Waits for `pause` at most. An interrupted wait counts as a wake-up.
fn wait(polled: &mut [PollFd<'_>], pause: Option<Duration>) {
    let pause = pause.map(|pause| Timespec {
        tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(pause.subsec_nanos()),
    });
    let _ = rustix::event::poll(polled, pause.as_ref());
}
