//! The host that this process runs on: what is in force there, and the runs.

use std::ops::Deref;

use interlock_effects::RunEffects;
use interlock_local::LocalState;
pub(crate) use interlock_local::{FirstStart, HostError, OpenOptions, now_ms, policy};

/// One execution host: its state, with the pipeline that runs commands by it.
#[derive(Debug)]
pub struct LocalHost {
    state: LocalState,
}

/// Everything that reads or changes the state without a run is the state's.
impl Deref for LocalHost {
    type Target = LocalState;

    fn deref(&self) -> &LocalState {
        &self.state
    }
}

impl LocalHost {
    /// Opens the state, as [`LocalState::open`] does.
    pub fn open(options: OpenOptions) -> Result<(Self, FirstStart), HostError> {
        let (state, first) = LocalState::open(options)?;
        Ok((Self { state }, first))
    }

    /// Opens the state for a look or a repair, as [`LocalState::open_for_repair`] does.
    pub fn open_for_repair(options: OpenOptions) -> Result<Self, HostError> {
        let state = LocalState::open_for_repair(options)?;
        Ok(Self { state })
    }

    /// What runs under `cow` changed.
    pub fn effects(&self) -> RunEffects<'_> {
        RunEffects::new(&self.state)
    }
}
