//! Runs a plain line without a shell: `&& || ;`, `&`, pipes, groups and the builtins.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use interlock_plan::{PlanAction, PlanNext, PlanPipeline, PlanStage};
use rustix::process::{Pid, Signal};

use super::error::StartError;
use super::launcher::{self, LaunchFailure, LaunchOrder, Launcher};
use super::registry::{Registry, StartedProcess};
use super::streams::{Null, Streams, pipe};
use super::{Exit, Usage, builtins, time_report};

/// Plays the part of a shell. It is cheap to clone: a background list or a group in a pipeline gets
/// its own conductor, as it would get its own subshell.
#[derive(Debug, Clone)]
pub(super) struct Conductor {
    pub launcher: Arc<Launcher>,
    pub registry: Arc<Registry>,
    pub null: Null,
    pub announcement: Announcement,
}

/// Reports once to the starter of the run how the first command went. As long as nothing has run at
/// all, an error is an error of the start.
#[derive(Debug, Clone)]
pub(super) struct Announcement(Arc<Mutex<Option<Sender>>>);

/// Sends the first process, if the line begins with one.
type Sender = SyncSender<Result<Option<Pid>, StartError>>;

/// Why the line ends here, whatever follows in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStop {
    /// A command was ended by this signal.
    Signal(i32),
    /// The run is being ended, or never began.
    Ended,
}

/// A running part of a pipeline.
enum Part {
    Process(StartedProcess),
    Group(JoinHandle<Result<(i32, Usage), LineStop>>),
    Done(i32),
}

impl Announcement {
    pub fn new(sender: Sender) -> Self {
        Self(Arc::new(Mutex::new(Some(sender))))
    }

    fn take(&self) -> Option<Sender> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn started(&self, pid: Option<Pid>) {
        if let Some(sender) = self.take() {
            let _ = sender.send(Ok(pid));
        }
    }

    /// Reports the error, or hands it back if something has already run.
    fn failed(&self, error: StartError) -> Option<StartError> {
        match self.take() {
            Some(sender) => {
                let _ = sender.send(Err(error));
                None
            }
            None => Some(error),
        }
    }
}

impl Conductor {
    /// Runs all pipelines and returns the exit status of the last one that ran.
    pub fn run(
        &self,
        pipelines: &[PlanPipeline],
        streams: &Streams,
    ) -> Result<(i32, Usage), LineStop> {
        let mut status = 0;
        let mut used = Usage::default();
        for list in pipelines
            .split_inclusive(|one| matches!(one.next, PlanNext::Sequence | PlanNext::Background))
        {
            if list
                .last()
                .is_some_and(|last| last.next == PlanNext::Background)
            {
                self.run_in_background(list, streams)?;
                status = 0;
            } else {
                let (ended, usage) = self.run_list(list, streams)?;
                status = ended;
                used += usage;
            }
        }
        Ok((status, used))
    }

    /// Runs `a && b || c`: each pipeline runs or not depending on the status of the last one that
    /// ran.
    fn run_list(&self, list: &[PlanPipeline], streams: &Streams) -> Result<(i32, Usage), LineStop> {
        let mut status = 0;
        let mut used = Usage::default();
        let mut before = PlanNext::Sequence;
        for pipeline in list {
            let runs = match before {
                PlanNext::And => status == 0,
                PlanNext::Or => status != 0,
                PlanNext::Sequence | PlanNext::Background | PlanNext::End => true,
            };
            if runs {
                let (ended, usage) = self.run_pipeline(pipeline, streams)?;
                status = ended;
                used += usage;
            }
            before = pipeline.next;
        }
        Ok((status, used))
    }

    /// Starts the list without waiting for it. As in any shell without job control, it reads no
    /// input.
    fn run_in_background(&self, list: &[PlanPipeline], streams: &Streams) -> Result<(), LineStop> {
        let conductor = self.clone();
        let list = list.to_vec();
        let streams = Streams {
            stdin: Arc::clone(&self.null.read),
            ..streams.clone()
        };
        self.thread("background", move || {
            let _ = conductor.run_list(&list, &streams);
        })?;
        Ok(())
    }

    fn run_pipeline(
        &self,
        pipeline: &PlanPipeline,
        streams: &Streams,
    ) -> Result<(i32, Usage), LineStop> {
        let began = Instant::now();
        let (status, used) = match pipeline.stages.as_slice() {
            [stage] => self.run_alone(stage, streams)?,
            stages => self.run_piped(stages, streams)?,
        };
        if let Some(format) = pipeline.timed {
            let report = time_report::report(format, began.elapsed(), used);
            let _ = builtins::write_all(&streams.stderr, report.as_bytes());
        }
        Ok((status, used))
    }

    fn run_alone(&self, stage: &PlanStage, streams: &Streams) -> Result<(i32, Usage), LineStop> {
        let streams = streams.redirected(&stage.redirections, &self.null);
        if let PlanAction::Group { pipelines } = &stage.action {
            return self.run(pipelines, &streams);
        }
        let part = self.begin(stage, streams, None)?;
        self.finish(part)
    }

    /// Starts every stage, then waits for all of them. The status is that of the last stage.
    fn run_piped(&self, stages: &[PlanStage], streams: &Streams) -> Result<(i32, Usage), LineStop> {
        let mut parts = Vec::with_capacity(stages.len());
        let begun = self.begin_all(stages, streams, &mut parts);
        let mut status = 0;
        let mut used = Usage::default();
        let mut stop = begun.err();
        for part in parts {
            match self.finish(part) {
                Ok((ended, usage)) => {
                    status = ended;
                    used += usage;
                }
                Err(why) => stop = Some(why),
            }
        }
        match stop {
            Some(why) => Err(why),
            None => Ok((status, used)),
        }
    }

    /// Starts all stages. Even after an error, `parts` holds every stage that was started, and the
    /// caller has to wait for all of them.
    fn begin_all(
        &self,
        stages: &[PlanStage],
        streams: &Streams,
        parts: &mut Vec<Part>,
    ) -> Result<(), LineStop> {
        let mut leader = None;
        let mut input = Arc::clone(&streams.stdin);
        for (index, stage) in stages.iter().enumerate() {
            let is_last = index + 1 == stages.len();
            let (next_input, output) = if is_last {
                (Arc::clone(&self.null.read), Arc::clone(&streams.stdout))
            } else {
                match pipe() {
                    Ok((read, write)) => (Arc::new(read), Arc::new(write)),
                    Err(source) => {
                        let what = "cannot make a pipe";
                        let error = StartError::System { what, source };
                        parts.push(Part::Done(self.not_started(error, "|", streams)?));
                        return Ok(());
                    }
                }
            };
            let own = Streams {
                stdin: input,
                stdout: output,
                stderr: Arc::clone(&streams.stderr),
            };
            input = next_input;
            let own = own.redirected(&stage.redirections, &self.null);
            let part = self.begin(stage, own, leader)?;
            if let Part::Process(process) = &part {
                leader = leader.or(Some(process.pid));
            }
            parts.push(part);
        }
        Ok(())
    }

    /// Starts one stage. The streams are dropped with it, so that no other process keeps one of its
    /// pipes open.
    fn begin(
        &self,
        stage: &PlanStage,
        streams: Streams,
        leader: Option<Pid>,
    ) -> Result<Part, LineStop> {
        if self.registry.is_stopped() {
            return Err(LineStop::Ended);
        }
        match &stage.action {
            PlanAction::Execute {
                executable,
                argv,
                env,
                cwd,
                passes_on: _,
                paths,
            } => {
                let order = LaunchOrder {
                    executable,
                    argv,
                    env,
                    paths,
                    cwd,
                    streams: &streams,
                    leader,
                };
                match self.launcher.launch(order, &self.registry) {
                    Ok(process) => {
                        self.announcement.started(Some(process.pid));
                        Ok(Part::Process(process))
                    }
                    Err(LaunchFailure::Stopped) => Err(LineStop::Ended),
                    Err(LaunchFailure::Error(error)) => {
                        let name = argv.first().map_or("", String::as_str);
                        Ok(Part::Done(self.not_started(error, name, &streams)?))
                    }
                }
            }
            PlanAction::Builtin {
                name,
                arguments,
                cwd,
            } => {
                self.announcement.started(None);
                let status = builtins::run(name, arguments, cwd, &self.launcher, &streams);
                Ok(Part::Done(status))
            }
            PlanAction::Group { pipelines } => {
                let conductor = self.clone();
                let pipelines = pipelines.clone();
                let group = self.thread("group", move || conductor.run(&pipelines, &streams))?;
                Ok(Part::Group(group))
            }
        }
    }

    fn finish(&self, part: Part) -> Result<(i32, Usage), LineStop> {
        match part {
            Part::Done(status) => Ok((status, Usage::default())),
            // A panic in a group is a defect. The line must not continue as if the group had
            // succeeded.
            Part::Group(group) => group.join().unwrap_or(Err(LineStop::Ended)),
            Part::Process(process) => {
                let (exit, usage) = self.registry.wait(&process);
                match exit {
                    Exit::Code(code) => Ok((code, usage)),
                    Exit::Signal(signal) if self.ends_line(signal) => Err(LineStop::Signal(signal)),
                    Exit::Signal(signal) => Ok((128 + signal, usage)),
                }
            }
        }
    }

    /// Whether this signal ends the whole line. A shell also receives the signals that are meant
    /// for its whole line and ends by them: those that the owner requested, and those that a
    /// terminal's keys send.
    fn ends_line(&self, signal: i32) -> bool {
        let from_keys = [Signal::INT, Signal::QUIT].map(Signal::as_raw);
        self.registry.was_requested(signal)
            || (self.launcher.has_terminal() && from_keys.contains(&signal))
    }

    /// Handles a command that cannot be started. If it is the first command of all, the start
    /// itself fails; otherwise only that command fails.
    fn not_started(
        &self,
        error: StartError,
        name: &str,
        streams: &Streams,
    ) -> Result<i32, LineStop> {
        match self.announcement.failed(error) {
            None => {
                self.registry.stop();
                Err(LineStop::Ended)
            }
            Some(error) => {
                let status = launcher::exit_status(&error);
                let reason = launcher::reason(&error);
                Ok(builtins::complain(streams, name, &reason, status))
            }
        }
    }

    fn thread<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, LineStop> {
        std::thread::Builder::new()
            .name(format!("run {name}"))
            .spawn(work)
            .map_err(|source| {
                let what = "cannot start a thread";
                self.announcement
                    .failed(StartError::System { what, source });
                self.registry.stop();
                LineStop::Ended
            })
    }
}
