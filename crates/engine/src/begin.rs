//! Turns a checked plan into a run: opens its pipes or terminal, starts the pump, and then starts
//! the first process.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use interlock_plan::{
    PlanAction, PlanNext, PlanPipeline, PlanProgram, PlanStage, PlanStdin, RunPlan,
};
use rustix::process::Pid;

use super::checked::Checked;
use super::conductor::{Announcement, Conductor};
use super::error::StartError;
use super::launcher::{LaunchFailure, LaunchOrder, Launcher, RunConfinement};
use super::pump::{Main, Output, Pump};
use super::registry::StartedProcess;
use super::run::{Run, RunShared};
use super::streams::{self, Null, Streams};
use super::{OutputSink, Settings, StreamKind};

/// Starts a checked plan. The pump starts before the first process does, so that no error can occur
/// after something has run.
pub(super) fn begin(
    plan: &RunPlan,
    (checked, confinement): (Checked, RunConfinement),
    dedicated: bool,
    settings: &Settings,
    sink: Arc<dyn OutputSink>,
) -> Result<Run, StartError> {
    if plan.pty.is_some() && !dedicated && !is_one_process(&plan.program) {
        return Err(StartError::TerminalNeedsDedicatedProcess);
    }
    let descriptors = StartError::system("cannot make the run's pipes");
    let as_the_run = plan.assume_account()?;
    // Pipes and terminals belong to the user of the run, who may open them again by name.
    let sandbox = confinement.sandbox.as_ref().map(|(own, _)| Arc::clone(own));
    let made = sandbox.as_ref().and_then(|sandbox| sandbox.take_terminal());
    let space = sandbox.as_ref().map(|sandbox| sandbox.space());
    let restricted = confinement.restricted.as_ref();
    let space = space.or_else(|| restricted.map(|restricted| restricted.space()));
    let tree = confinement.tree.clone();
    let ends = Ends::open(plan, made).map_err(&descriptors)?;
    drop(as_the_run);
    let slave = ends
        .terminal
        .as_ref()
        .map(|_| Arc::clone(&ends.streams.stdin));
    if let (true, Some(slave)) = (dedicated, &slave) {
        rustix::process::ioctl_tiocsctty(slave)
            .map_err(|error| StartError::system("cannot take the terminal")(error.into()))?;
    }
    let pipe = ends.input.as_ref().filter(|_| plan.pty.is_none());
    let input_pipe = pipe.and_then(|pipe| Some(rustix::fs::fstat(pipe).ok()?.st_ino));
    let shared = RunShared::new(dedicated, ends.terminal, ends.input.is_some());
    let shared = Arc::new(shared.map_err(&descriptors)?);
    let pump = Pump {
        shared: Arc::clone(&shared),
        sink,
        outputs: ends.outputs,
        input: ends.input,
        slave: slave.clone(),
        settings: settings.clone(),
        sandbox,
        far: confinement.far.clone(),
        tree,
        time_limit: plan.timeout_ms.map(Duration::from_millis),
        collected: Instant::now(),
    };
    let to_pump = pump
        .start()
        .map_err(StartError::system("cannot start a thread"))?;
    // The account is assumed only after the pump has started, because the pump writes the
    // transcript and ends the run with the rights of this process. A line's conductor inherits the
    // rights of the run.
    let _as_the_run = plan.assume_account()?;
    let launcher = Launcher::new(plan, (checked, confinement), settings, slave);
    let race_free = launcher.is_race_free();
    let (main, pid) = launch(plan, launcher, ends.streams, &shared)?;
    // The pump waits for exactly this message, so it cannot have ended.
    let _ = to_pump.send(main);
    Ok(Run {
        shared,
        pid,
        race_free,
        input_pipe,
        space,
    })
}

/// Starts a single process right away, or a conductor if the plan is a line of several commands.
fn launch(
    plan: &RunPlan,
    launcher: Launcher,
    streams: Streams,
    shared: &Arc<RunShared>,
) -> Result<(Main, Option<Pid>), StartError> {
    let null = || Null::open().map_err(StartError::system("cannot open /dev/null"));
    match &plan.program {
        PlanProgram::Shell {
            shell,
            options,
            text,
        } => {
            let mut argv = vec![shell.found.clone()];
            argv.extend(options.iter().cloned());
            argv.extend(["-c", "--", text].map(str::to_owned));
            let order = LaunchOrder {
                executable: shell,
                argv: &argv,
                env: &[],
                paths: &[],
                cwd: &plan.cwd.canonical,
                streams: &streams,
                leader: None,
            };
            launch_one(order, &launcher, shared)
        }
        PlanProgram::Inside { text, .. } if let Some(far) = launcher.far_side() => {
            let Some(ssh) = plan.sandbox.as_ref().and_then(|own| own.ssh.as_ref()) else {
                let why = "the plan names no machine".to_owned();
                return Err(StartError::Sandbox(why));
            };
            let order = LaunchOrder {
                executable: &ssh.client,
                argv: &far.run_arguments(plan, text),
                env: &[],
                paths: &[],
                cwd: &plan.cwd.canonical,
                streams: &streams,
                leader: None,
            };
            launch_one(order, &launcher, shared)
        }
        PlanProgram::Inside {
            shell,
            options,
            text,
        } => {
            let mut argv = vec![shell.clone()];
            argv.extend(options.iter().cloned());
            argv.extend(["-c", "--", text].map(str::to_owned));
            let cwd = &plan.cwd.canonical;
            started(launcher.launch_inside(shell, &argv, (cwd, &streams), &shared.registry))
        }
        PlanProgram::Direct { pipelines } => match only_stage(pipelines) {
            Some(PlanStage {
                action:
                    PlanAction::Execute {
                        executable,
                        argv,
                        env,
                        cwd,
                        passes_on: _,
                        paths,
                    },
                redirections,
            }) => {
                let streams = if redirections.is_empty() {
                    streams
                } else {
                    streams.redirected(redirections, &null()?)
                };
                let order = LaunchOrder {
                    executable,
                    argv,
                    env,
                    paths,
                    cwd,
                    streams: &streams,
                    leader: None,
                };
                launch_one(order, &launcher, shared)
            }
            _ => conduct(pipelines, launcher, streams, null()?, shared),
        },
    }
}

fn launch_one(
    order: LaunchOrder<'_>,
    launcher: &Launcher,
    shared: &RunShared,
) -> Result<(Main, Option<Pid>), StartError> {
    started(launcher.launch(order, &shared.registry))
}

fn started(
    launched: Result<StartedProcess, LaunchFailure>,
) -> Result<(Main, Option<Pid>), StartError> {
    match launched {
        Ok(process) => {
            let pid = process.pid;
            Ok((Main::Process(process), Some(pid)))
        }
        Err(LaunchFailure::Error(error)) => Err(error),
        Err(LaunchFailure::Stopped) => Err(StartError::Invalid("ended before it began".to_owned())),
    }
}

/// Starts a conductor for the line and waits until its first command runs.
fn conduct(
    pipelines: &[PlanPipeline],
    launcher: Launcher,
    streams: Streams,
    null: Null,
    shared: &Arc<RunShared>,
) -> Result<(Main, Option<Pid>), StartError> {
    let (announce, announced) = sync_channel(1);
    let conductor = Conductor {
        launcher: Arc::new(launcher),
        registry: Arc::clone(&shared.registry),
        null,
        announcement: Announcement::new(announce),
    };
    let pipelines = pipelines.to_vec();
    let to_report = Arc::clone(shared);
    std::thread::Builder::new()
        .name("run line".to_owned())
        .spawn(move || {
            let result = conductor.run(&pipelines, &streams);
            // The run must hold nothing open when it is reported as ended.
            drop((conductor, streams));
            to_report.order(|orders| orders.conducted = Some(result));
        })
        .map_err(StartError::system("cannot start a thread"))?;
    // The sender is dropped without a message if the line is empty and there was nothing to start.
    let pid = announced.recv().unwrap_or(Ok(None))?;
    Ok((Main::Conducted, pid))
}

/// Returns the only stage of a line that consists of a single program.
fn only_stage(pipelines: &[PlanPipeline]) -> Option<&PlanStage> {
    match pipelines {
        [
            PlanPipeline {
                stages,
                timed: None,
                next: PlanNext::End | PlanNext::Sequence,
            },
        ] => match stages.as_slice() {
            [stage] if matches!(stage.action, PlanAction::Execute { .. }) => Some(stage),
            _ => None,
        },
        _ => None,
    }
}

fn is_one_process(program: &PlanProgram) -> bool {
    match program {
        PlanProgram::Shell { .. } | PlanProgram::Inside { .. } => true,
        PlanProgram::Direct { pipelines } => only_stage(pipelines).is_some(),
    }
}

/// Both ends of everything that connects a run with the engine.
struct Ends {
    streams: Streams,
    outputs: Vec<Output>,
    input: Option<Arc<OwnedFd>>,
    terminal: Option<Arc<OwnedFd>>,
}

impl Ends {
    /// Opens what the plan asks for. `terminal` is the engine's side of a terminal that the sandbox
    /// has already made.
    fn open(plan: &RunPlan, terminal: Option<OwnedFd>) -> io::Result<Self> {
        if let Some(size) = plan.pty {
            let (engine, run) = streams::terminal(terminal, size)?;
            let (engine, run) = (Arc::new(engine), Arc::new(run));
            return Ok(Self {
                streams: Streams {
                    stdin: Arc::clone(&run),
                    stdout: Arc::clone(&run),
                    stderr: run,
                },
                outputs: vec![Output::new(StreamKind::Terminal, Arc::clone(&engine))],
                input: Some(Arc::clone(&engine)),
                terminal: Some(engine),
            });
        }
        let (stdin, input) = match plan.stdin {
            PlanStdin::Null => (Null::for_reading()?, None),
            PlanStdin::Pipe => {
                let (read, write) = streams::pipe()?;
                streams::set_nonblocking(&write)?;
                (Arc::new(read), Some(Arc::new(write)))
            }
        };
        let (read_stdout, stdout) = streams::pipe()?;
        let (read_stderr, stderr) = streams::pipe()?;
        Ok(Self {
            streams: Streams {
                stdin,
                stdout: Arc::new(stdout),
                stderr: Arc::new(stderr),
            },
            outputs: vec![
                Output::new(StreamKind::Stdout, Arc::new(read_stdout)),
                Output::new(StreamKind::Stderr, Arc::new(read_stderr)),
            ],
            input,
            terminal: None,
        })
    }
}
