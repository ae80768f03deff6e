//! Runs work that waits for processes or the disk outside of the threads that serve connections.

use std::sync::Arc;

use interlock_host::HostError;
use interlock_host::parameters::ParameterError;
use interlock_rules::RulesError;
use interlock_wire::WireError;
use tokio::sync::OwnedSemaphorePermit;

use crate::dispatcher::Dispatcher;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// The tool is not offered to this agent, which does not learn whether it exists.
    #[error("Tool not available: {0}")]
    NotAvailable(String),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the gateway is stopping")]
    Stopping,
}

impl From<RulesError> for CallError {
    fn from(error: RulesError) -> Self {
        Self::Host(error.into())
    }
}

/// How many calls may wait for runs at once: each holds a thread. The runtime has more threads, so
/// that runs do not delay decisions and reads. Further calls wait for a permit.
pub const MAX_WAITING: usize = 512;

/// Does work that lasts as long as a run may.
pub async fn waiting<T: Send + 'static>(
    dispatcher: &Dispatcher,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CallError> {
    let place = Arc::clone(&dispatcher.waiting).acquire_owned().await;
    let place = place.map_err(|_| CallError::Stopping)?;
    blocking(move || {
        let _place = place;
        work()
    })
    .await
}

/// The permit to wait for a run on the calling thread; `None` while all permits are taken.
pub fn waiting_place(dispatcher: &Dispatcher) -> Option<OwnedSemaphorePermit> {
    Arc::clone(&dispatcher.waiting).try_acquire_owned().ok()
}

/// Does work that waits briefly for a process or the disk.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CallError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| CallError::Stopping)
}

impl From<CallError> for WireError {
    fn from(error: CallError) -> Self {
        WireError::unavailable(error.to_string())
    }
}

pub fn unavailable(error: &HostError) -> WireError {
    WireError::unavailable(error.to_string()).with("code", error.code())
}

pub fn store_failed(error: interlock_store::StoreError) -> WireError {
    unavailable(&error.into())
}
