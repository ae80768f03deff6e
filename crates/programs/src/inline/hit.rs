//! The findings in an argv.

use serde::Serialize;

/// Why an argument needs a person's attention although its program is trusted. The order is the
/// priority: of several hits in one argv, the smallest kind is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HitKind {
    /// The argv contains program text.
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
    /// The program's name as [`crate::names::program_name`] returns it, including the version.
    pub program: String,
    /// The option under its full name (`-c`, `--eval-command`), or the role of an operand (`inline
    /// program`, `inline command`).
    pub flag: String,
    pub kind: HitKind,
    /// The index in argv of the argument with the option or operand.
    pub arg_index: usize,
    pub reason: &'static str,
}

impl InlineHit {
    /// Returns the short form for messages: `python3 -c`, `awk inline program`.
    pub fn label(&self) -> String {
        format!("{} {}", self.program, self.flag)
    }
}
