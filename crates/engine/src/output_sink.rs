//! Where the output of a run goes.

use crate::run::RunOutcome;
use crate::tree::Leftover;

/// Where the output of a run goes. Called from the run's own thread, in the order of each
/// stream. While it takes its time, the run may have to wait to write, and neither time-outs nor
/// `kill` come through: it must not block for long.
pub trait OutputSink: Send + Sync + 'static {
    fn output(&self, stream: StreamKind, bytes: &[u8]);

    /// The run has ended, and all of its output was handed over.
    fn ended(&self, _outcome: &RunOutcome) {}

    /// What it left behind is gone too, but for these.
    fn gone(&self, _survivors: &[Leftover]) {}
}

/// Where bytes of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    Stdout,
    Stderr,
    /// Both, as one stream of a terminal.
    Terminal,
}
