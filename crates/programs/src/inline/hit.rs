//! What was found in an argv.

use serde::Serialize;

/// Why an argument deserves a person's look although its program is trusted. The order is the
/// order of telling: of several hits in one argv the smallest kind is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HitKind {
    /// Program text stands in the argv.
    Code,
    /// An option or operand names a program that will be started.
    ProgramOption,
    /// An option loads code from somewhere else: a module, plug-in, script or library.
    LoadsCode,
    /// An option points at another configuration, repository or project, which may name programs.
    OtherConfig,
    /// An option makes a program that otherwise only reads write, replace or remove a file.
    WritesFile,
}

/// One finding in an argv.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InlineHit {
    /// The program's name as [`crate::names::program_name`] gives it, version included.
    pub program: String,
    /// The option under its full name (`-c`, `--eval-command`), or what an operand is
    /// (`inline program`, `inline command`).
    pub flag: String,
    pub kind: HitKind,
    /// Index in argv of the argument that holds the option or operand.
    pub arg_index: usize,
    pub reason: &'static str,
}

impl InlineHit {
    /// The short form for messages: `python3 -c`, `awk inline program`.
    pub fn label(&self) -> String {
        format!("{} {}", self.program, self.flag)
    }
}
