//! The receiver of a run's output.

use crate::run::RunOutcome;
use crate::tree::Leftover;

/// Receives the output of a run. The run's own thread calls it, in the order of each stream. It
/// must not block for long: meanwhile the run may have to wait to write, and neither the time limit
/// nor `kill` takes effect.
pub trait OutputSink: Send + Sync + 'static {
    fn output(&self, stream: StreamKind, bytes: &[u8]);

    /// The run has ended, and all of its output has been delivered.
    fn ended(&self, _outcome: &RunOutcome) {}

    /// Everything that the run left behind is gone too, except these processes.
    fn gone(&self, _survivors: &[Leftover]) {}
}

/// The stream that bytes of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    Stdout,
    Stderr,
    /// Standard output and error, as the single stream of a terminal.
    Terminal,
}
