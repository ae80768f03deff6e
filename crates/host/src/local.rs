//! The host of this process: the policy in force there, and its runs.

use std::ops::Deref;

use interlock_effects::RunEffects;
use interlock_local::LocalState;
pub(crate) use interlock_local::{FirstStart, HostError, OpenOptions, now_ms, policy};

/// One execution host: its state and the pipeline that runs commands.
#[derive(Debug)]
pub struct LocalHost {
    state: LocalState,
}

/// Reading and changing the state without a run is the task of [`LocalState`].
impl Deref for LocalHost {
    type Target = LocalState;

    fn deref(&self) -> &LocalState {
        &self.state
    }
}

impl LocalHost {
    /// Opens the state like [`LocalState::open`].
    pub fn open(options: OpenOptions) -> Result<(Self, FirstStart), HostError> {
        let (state, first) = LocalState::open(options)?;
        Ok((Self { state }, first))
    }

    /// Opens the state for inspection or repair, like [`LocalState::open_for_repair`].
    pub fn open_for_repair(options: OpenOptions) -> Result<Self, HostError> {
        let state = LocalState::open_for_repair(options)?;
        Ok(Self { state })
    }

    /// The changes of runs under `cow`.
    pub fn effects(&self) -> RunEffects<'_> {
        RunEffects::new(&self.state)
    }
}
