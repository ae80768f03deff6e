//! From text or argv to the commands that would run: expansion, wrappers, shells, resolution.
//!
//! [`analyse`] returns one [`Analysis`]. The judge, `explain`, prompts and the runner all use that
//! value, so they cannot disagree about what a command is.

mod carried;
mod expand;
mod git_carried;
mod program;
mod sight;

use std::path::Path;

use interlock_programs::builtins::Builtin;
use interlock_programs::{Executable, GlobBudget, Lookup, Resolver, in_trusted_dir};
use serde::Serialize;

use crate::line::{Connector, Line, Timed};
use crate::odd::{NotPlain, Odd};
use crate::{Argv, Redirection, Span, lex};
use expand::expand_line;

pub use carried::xargs_command;
pub use sight::{SeenCommand, Sight};
pub use sight::{seen_behind, started_by};

/// The longest command text, in bytes. Longer input is refused.
pub const MAX_TEXT_BYTES: usize = 256 * 1024;
/// How many texts within texts (`sh -c` inside `sh -c`) are looked through.
pub const MAX_TEXT_DEPTH: usize = 3;

/// The command that the caller requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Shell command text.
    Text(String),
    /// An exact argument vector, without a shell.
    Argv(Vec<String>),
}

/// The host that the command would run on.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    pub resolver: &'a dyn Resolver,
    /// The directories in which wrappers and shells must lie to be looked through.
    pub trusted_dirs: &'a [String],
}

impl std::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("trusted_dirs", &self.trusted_dirs)
            .finish_non_exhaustive()
    }
}

impl Host<'_> {
    fn trusts(&self, name: &str, executable: &Executable) -> bool {
        let name = name.rsplit('/').next().unwrap_or(name);
        in_trusted_dir(
            &executable.found,
            &executable.canonical,
            name,
            self.trusted_dirs,
        )
    }
}

/// Input that no policy can judge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("the command is empty")]
    Empty,
    #[error("the command holds a NUL character at byte {0}; no program can receive one")]
    Nul(usize),
    #[error("the command has {0} bytes, the limit is {MAX_TEXT_BYTES}")]
    TooLong(usize),
    #[error("the working directory {0:?} is not an absolute path")]
    RelativeCwd(String),
}

impl InputError {
    /// A stable code, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "COMMAND_EMPTY",
            Self::Nul(_) => "COMMAND_NUL",
            Self::TooLong(_) => "COMMAND_TOO_LONG",
            Self::RelativeCwd(_) => "CWD_NOT_ABSOLUTE",
        }
    }
}

/// Everything that is known about a command before it is judged.
#[derive(Debug, Clone)]
pub struct Analysis {
    pub source: Source,
    pub cwd: String,
    pub shape: Shape,
    /// The commands to be judged, without wrappers and `sh -c`. Empty if the text is odd.
    pub commands: Vec<Command>,
    /// The structure of the line, by which the engine runs the commands. Empty if the text is odd.
    pub tree: Vec<NodePipeline>,
    /// The commands as written, for callers that inspect every layer.
    roots: Vec<Root>,
}

impl Analysis {
    /// Returns why Interlock cannot run a builtin of the line itself. Only a shell can run such a
    /// line as it is meant: `cd x; rm y` without the `cd` would be another command.
    pub fn shell_builtin(&self) -> Option<&'static str> {
        self.commands
            .iter()
            .find_map(|command| match command.program {
                Program::Builtin { accepted, .. } => accepted.err(),
                _ => None,
            })
    }
}

#[derive(Debug, Clone)]
pub enum Shape {
    /// Every word is proven, so the line can run without a shell.
    Plain(Line),
    /// An argument vector.
    Argv,
    /// Only a shell knows what the text means.
    Odd(NotPlain),
}

impl Shape {
    pub fn odd(&self) -> Option<&NotPlain> {
        match self {
            Self::Odd(odd) => Some(odd),
            Self::Plain(_) | Self::Argv => None,
        }
    }
}

/// A pipeline of the line, or of a `sh -c` text that was looked through.
#[derive(Debug, Clone)]
pub struct NodePipeline {
    pub stages: Vec<NodeStage>,
    pub timed: Option<Timed>,
    pub next: Connector,
}

#[derive(Debug, Clone)]
pub struct NodeStage {
    pub node: CommandNode,
    pub redirections: Vec<Redirection>,
}

#[derive(Debug, Clone)]
pub enum CommandNode {
    /// An index into [`Analysis::commands`].
    Command(usize),
    /// The pipelines of a `sh -c` text.
    Group(Vec<NodePipeline>),
}

/// One program that would start, or one builtin of Interlock.
#[derive(Debug, Clone)]
pub struct Command {
    /// The words that are judged, without wrappers. For `SHELL FILE …` they begin with FILE.
    pub argv: Argv,
    /// For each word, whether it was written literally, so that no tilde or glob was expanded.
    pub literal: Vec<bool>,
    pub assignments: Vec<(String, String)>,
    /// The transparent wrappers around the command, from the outermost inwards.
    pub wrappers: Vec<WrapperLayer>,
    pub program: Program,
    pub cwd: String,
    /// The position in the text. Commands from nested texts have the span of the outer command.
    pub span: Option<Span>,
}

impl Command {
    pub fn name(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// Returns the file that an entry for this command must name.
    pub fn executable(&self) -> Option<&Executable> {
        match &self.program {
            Program::File(lookup)
            | Program::Script { file: lookup, .. }
            | Program::Closed { lookup, .. } => lookup.found(),
            Program::Builtin { .. } => None,
        }
    }
}

/// A wrapper or shell that the analysis looked through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrapperLayer {
    pub name: String,
    pub executable: Executable,
    /// The wrapper's own words, before the command that it starts.
    pub arguments: Vec<String>,
}

/// The program that a command starts.
#[derive(Debug, Clone)]
pub enum Program {
    /// A builtin of Interlock. `Err` says why Interlock does not understand these arguments.
    Builtin {
        builtin: Builtin,
        accepted: Result<(), &'static str>,
    },
    File(Lookup),
    /// `SHELL [options] FILE`, which is judged as FILE.
    Script {
        shell: Executable,
        /// The shell's own words, before FILE.
        options: Vec<String>,
        file: Lookup,
    },
    /// A shell or wrapper that the analysis does not look through. No entry satisfies such a shell.
    /// An entry that binds its arguments can satisfy a wrapper.
    Closed {
        lookup: Lookup,
        reason: Closed,
    },
}

/// Why the analysis did not look through a shell or wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    Shell(&'static str),
    /// Only the text after `-c` would run, but running it directly would not mean the same.
    ShellOptions(&'static str),
    /// The text after `-c` is not plain.
    ShellText(NotPlain),
    /// The shell does not lie in a trusted directory.
    UntrustedShell,
    UntrustedWrapper,
    /// The wrapper is blocked, has options that change more than the command, or is one wrapper too
    /// many.
    Wrapper,
}

impl Closed {
    pub fn is_shell(&self) -> bool {
        matches!(
            self,
            Self::Shell(_) | Self::ShellOptions(_) | Self::ShellText(_) | Self::UntrustedShell
        )
    }
}

/// A command as written, still with its wrappers.
#[derive(Debug, Clone)]
struct Root {
    argv: Argv,
    /// `None` after a `cd` that a shell would follow and the analysis does not.
    cwd: Option<String>,
}

/// Analyzes a request. It accepts any input; everything that cannot be proven becomes odd or
/// closed.
pub fn analyse(source: Source, cwd: &str, host: Host<'_>) -> Result<Analysis, InputError> {
    check_input(&source, cwd)?;
    // Entries name directories, not the links and `..` that lead to them.
    let start = host.resolver.directory(".", cwd);
    let start = start.as_deref().unwrap_or(cwd);
    let mut found = AnalysisFindings::default();
    let mut analysis = Analysis {
        source,
        cwd: cwd.to_owned(),
        shape: Shape::Argv,
        commands: Vec::new(),
        tree: Vec::new(),
        roots: Vec::new(),
    };
    match &analysis.source {
        Source::Argv(argv) => {
            let parts = CommandParts {
                argv: argv.clone().into(),
                literal: vec![true; argv.len()],
                assignments: Vec::new(),
                redirections: Vec::new(),
                cwd: start.to_owned(),
                span: None,
            };
            analysis.roots.push(parts.root());
            let stage = AnalysisStep::Program(parts).stage(Vec::new(), host, 0, &mut found);
            analysis.tree.push(NodePipeline {
                stages: vec![stage],
                timed: None,
                next: Connector::End,
            });
        }
        Source::Text(text) => match lex(text) {
            Err(odd) if odd.reason == Odd::Empty => return Err(InputError::Empty),
            Err(odd) => analysis.shape = Shape::Odd(odd),
            Ok(line) => match expand_line(&line, start, host, &mut found.globs) {
                Err(odd) => analysis.shape = Shape::Odd(odd),
                Ok(steps) => {
                    analysis.roots = roots(&steps);
                    analysis.tree = pipelines(&line, steps, &[], host, 0, &mut found);
                    analysis.shape = Shape::Plain(line);
                }
            },
        },
    }
    analysis.commands = found.commands;
    Ok(analysis)
}

/// The findings so far, including those in nested texts.
#[derive(Debug, Default)]
struct AnalysisFindings {
    commands: Vec<Command>,
    /// The remaining budget for the globs of the whole request.
    globs: GlobBudget,
}

impl AnalysisFindings {
    fn push(&mut self, command: Command) -> CommandNode {
        self.commands.push(command);
        CommandNode::Command(self.commands.len() - 1)
    }
}

/// Returns the programs as written, each with the directory in which it would start.
fn roots(steps: &[Vec<AnalysisStep>]) -> Vec<Root> {
    let mut lost = false;
    let mut roots = Vec::new();
    for step in steps.iter().flatten() {
        match step {
            AnalysisStep::Builtin(_, Builtin::Cd, accepted) => lost |= accepted.is_err(),
            AnalysisStep::Builtin(..) => {}
            AnalysisStep::Program(parts) => {
                let mut root = parts.root();
                if lost {
                    root.cwd = None;
                }
                roots.push(root);
            }
        }
    }
    roots
}

fn check_input(source: &Source, cwd: &str) -> Result<(), InputError> {
    if !Path::new(cwd).is_absolute() {
        return Err(InputError::RelativeCwd(cwd.to_owned()));
    }
    let (length, nul) = match source {
        Source::Text(text) => (text.len(), text.find('\0')),
        Source::Argv(argv) => (
            argv.iter().map(String::len).sum(),
            argv.iter().find_map(|word| word.find('\0')),
        ),
    };
    if length > MAX_TEXT_BYTES {
        return Err(InputError::TooLong(length));
    }
    if let Some(position) = nul {
        return Err(InputError::Nul(position));
    }
    let empty = match source {
        Source::Text(text) => text.trim().is_empty(),
        Source::Argv(argv) => argv.first().is_none_or(String::is_empty),
    };
    if empty {
        return Err(InputError::Empty);
    }
    Ok(())
}

/// One command of a line after expansion, still with its wrappers.
struct CommandParts {
    argv: Argv,
    literal: Vec<bool>,
    assignments: Vec<(String, String)>,
    redirections: Vec<Redirection>,
    cwd: String,
    span: Option<Span>,
}

impl CommandParts {
    fn root(&self) -> Root {
        Root {
            argv: self.argv.clone(),
            cwd: Some(self.cwd.clone()),
        }
    }

    /// Removes the first words.
    fn skip(&mut self, count: usize) {
        self.argv = self.argv.tail(count);
        self.literal.drain(..count.min(self.literal.len()));
    }

    fn into_command(self, wrappers: Vec<WrapperLayer>, program: Program) -> Command {
        Command {
            argv: self.argv,
            literal: self.literal,
            assignments: self.assignments,
            wrappers,
            program,
            cwd: self.cwd,
            span: self.span,
        }
    }
}

enum AnalysisStep {
    Builtin(CommandParts, Builtin, Result<(), &'static str>),
    Program(CommandParts),
}

impl AnalysisStep {
    fn is_shell_builtin(&self) -> bool {
        matches!(self, Self::Builtin(_, _, Err(_)))
    }

    /// Appends the commands of this step and returns their stage.
    fn stage(
        self,
        wrappers: Vec<WrapperLayer>,
        host: Host<'_>,
        depth: usize,
        out: &mut AnalysisFindings,
    ) -> NodeStage {
        match self {
            Self::Builtin(mut parts, builtin, accepted) => {
                let redirections = std::mem::take(&mut parts.redirections);
                let program = Program::Builtin { builtin, accepted };
                NodeStage {
                    node: out.push(parts.into_command(wrappers, program)),
                    redirections,
                }
            }
            Self::Program(mut parts) => {
                let redirections = std::mem::take(&mut parts.redirections);
                NodeStage {
                    node: program::commands(parts, wrappers, host, depth, out),
                    redirections,
                }
            }
        }
    }
}

/// Assembles the steps of a line in the line's structure.
fn pipelines(
    line: &Line,
    steps: Vec<Vec<AnalysisStep>>,
    wrappers: &[WrapperLayer],
    host: Host<'_>,
    depth: usize,
    out: &mut AnalysisFindings,
) -> Vec<NodePipeline> {
    let pairs = line.pipelines.iter().zip(steps);
    pairs
        .map(|(pipeline, steps)| NodePipeline {
            stages: steps
                .into_iter()
                .map(|step| step.stage(wrappers.to_vec(), host, depth, out))
                .collect(),
            timed: pipeline.timed,
            next: pipeline.next,
        })
        .collect()
}
