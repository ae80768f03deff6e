//! Turns the segments of a judged line into the pipelines of pinned programs of a plan.

use interlock_command::{Analysis, Command, CommandNode, Connector, NodePipeline, Program};
use interlock_plan::{
    PinnedFile, PinnedPath, PlanAction, PlanNext, PlanPipeline, PlanRedirection, PlanStage,
    PlanStream, PlanTarget, TimeFormat,
};
use interlock_policy::{CheckedFiles, Verdict, env};
use interlock_programs::{Executable, Lookup};

use super::{Pin, PrepareError, shell};

/// The commands of a line and their verdict.
pub(super) struct Judgement<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) verdict: &'a Verdict,
}

impl Judgement<'_> {
    /// The files by which an entry was judged, if an entry lets the command run.
    fn files(&self, command: usize) -> Option<&CheckedFiles> {
        let is_by_entry = self.verdict.by_allowlist;
        let judged = is_by_entry.then(|| self.verdict.segments.get(command))?;
        judged?.files.as_ref()
    }
}

/// The recursion is bounded: groups are at most as deep as the analysis follows texts.
pub(super) fn pipelines(
    tree: &[NodePipeline],
    judgement: &Judgement<'_>,
    pin: Pin,
) -> Result<Vec<PlanPipeline>, PrepareError> {
    let pipeline = |pipeline: &NodePipeline| {
        let stages = pipeline.stages.iter().map(|stage| {
            let action = match &stage.node {
                CommandNode::Command(index) => {
                    let command = &judgement.analysis.commands[*index];
                    action(command, judgement.files(*index), pin)?
                }
                CommandNode::Group(tree) => PlanAction::Group {
                    pipelines: pipelines(tree, judgement, pin)?,
                },
            };
            Ok(PlanStage {
                action,
                redirections: stage.redirections.iter().map(redirection).collect(),
            })
        });
        Ok(PlanPipeline {
            stages: stages.collect::<Result<_, PrepareError>>()?,
            timed: pipeline.timed.map(|timed| {
                if timed.posix_format {
                    TimeFormat::Posix
                } else {
                    TimeFormat::Bash
                }
            }),
            next: next(pipeline.next),
        })
    };
    tree.iter().map(pipeline).collect()
}

fn next(connector: Connector) -> PlanNext {
    match connector {
        Connector::And => PlanNext::And,
        Connector::Or => PlanNext::Or,
        Connector::Sequence => PlanNext::Sequence,
        Connector::Background => PlanNext::Background,
        Connector::End => PlanNext::End,
    }
}

fn redirection(redirection: &interlock_command::Redirection) -> PlanRedirection {
    PlanRedirection {
        stream: match redirection.stream {
            interlock_command::Stream::Stdin => PlanStream::Stdin,
            interlock_command::Stream::Stdout => PlanStream::Stdout,
            interlock_command::Stream::Stderr => PlanStream::Stderr,
            interlock_command::Stream::Both => PlanStream::Both,
        },
        target: match redirection.target {
            interlock_command::Target::Null => PlanTarget::Null,
            interlock_command::Target::Stdout => PlanTarget::Stdout,
            interlock_command::Target::Stderr => PlanTarget::Stderr,
        },
    }
}

fn action(
    command: &Command,
    files: Option<&CheckedFiles>,
    pin: Pin,
) -> Result<PlanAction, PrepareError> {
    let argv = command.argv.to_vec();
    let (executable, argv, file) = match &command.program {
        Program::Builtin { .. } => {
            return Ok(PlanAction::Builtin {
                name: command.name().to_owned(),
                arguments: argv[1..].to_vec(),
                cwd: command.cwd.clone(),
            });
        }
        Program::File(lookup) | Program::Closed { lookup, .. } => {
            (found(command.name(), lookup)?, argv, None)
        }
        Program::Script {
            shell,
            options,
            file,
        } => {
            let file = found(command.name(), file)?;
            let mut words = options.clone();
            words.splice(1..1, shell::options(&shell.canonical));
            words.push(file.found.clone());
            words.extend_from_slice(&argv[1..]);
            (shell, words, Some(file))
        }
    };
    let mut passes_on: Vec<PinnedFile> = file.map(pin).transpose()?.into_iter().collect();
    let (executable, argv) = through_wrappers(command, executable, argv, &mut passes_on, pin)?;
    Ok(PlanAction::Execute {
        executable: pin(executable)?,
        argv,
        env: {
            let kept_from = files.iter().flat_map(|files| files.environment.clone());
            assignments(command).into_iter().chain(kept_from).collect()
        },
        cwd: command.cwd.clone(),
        passes_on,
        paths: files
            .iter()
            .flat_map(|files| &files.paths)
            .map(|path| PinnedPath {
                found: path.found.clone(),
                canonical: path.canonical.clone(),
            })
            .collect(),
    })
}

pub(super) fn found<'a>(name: &str, lookup: &'a Lookup) -> Result<&'a Executable, PrepareError> {
    match lookup {
        Lookup::Found(executable) => Ok(executable),
        Lookup::Missing(missing) => Err(PrepareError::Missing {
            name: name.to_owned(),
            missing: missing.to_string(),
        }),
    }
}

/// Wrappers with an effect are started themselves. They get the absolute path of the wrapped
/// program, never a bare name that would be looked up again. Shells have no effect, and neither has
/// `env`: the analysis only looks through `env` without options, whose assignments become those of
/// the command.
fn through_wrappers<'a>(
    command: &'a Command,
    executable: &'a Executable,
    argv: Vec<String>,
    passes_on: &mut Vec<PinnedFile>,
    pin: Pin,
) -> Result<(&'a Executable, Vec<String>), PrepareError> {
    let (mut executable, mut argv) = (executable, argv);
    for layer in command.wrappers.iter().rev() {
        let is_done = matches!(layer.name.as_str(), "env" | "busybox");
        if is_done || interlock_programs::is_shell(&layer.name) {
            continue;
        }
        passes_on.push(pin(executable)?);
        argv[0].clone_from(&executable.found);
        let mut outer = layer.arguments.clone();
        outer.append(&mut argv);
        (executable, argv) = (&layer.executable, outer);
    }
    Ok((executable, argv))
}

/// The assignments of the command, including those of `env`. The verdict has judged them. Only
/// values that the rules replace change here, such as a pager that is turned off.
fn assignments(command: &Command) -> Vec<(String, String)> {
    let pairs = command.assignments.iter().map(|(key, value)| {
        let value = match env::check_override(key, value) {
            Ok(env::OverrideAction::Replace(value)) => value,
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    pairs.collect()
}
