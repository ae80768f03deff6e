//! The tools for MCP clients: the eras of the protocol that begin with `initialize`, and the newest
//! one, which does not.
//!
//! Read `caller` (as whom a client calls), `server` (what it is offered), `call` (one call, its
//! progress and its end), `elicit` (questions to the person at the client), `state` (what a client
//! brings back with an answer), `resources`, then the two doors: `http` and `stdio`.

mod call;
mod caller;
mod elicit;
mod http;
mod resources;
mod server;
mod state;
mod stdio;

use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::routing::{any, get};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::http::StreamableHttp;
use self::state::States;
use crate::access::token::TokenError;
use crate::gateway::Gateway;
use crate::http::Doors;

/// Clients by `interlock mcp` at once.
const MAX_STDIO: usize = 256;

/// What all MCP clients share.
#[derive(Debug)]
struct Mcp {
    gateway: Arc<Gateway>,
    states: States,
    stdio_places: Arc<Semaphore>,
    /// The gateway ends.
    stop: CancellationToken,
}

/// Both doors. Who calls must have been settled before anything of this is reached.
pub(crate) fn routes(
    gateway: &Arc<Gateway>,
    stop: &CancellationToken,
) -> Result<Router<Doors>, TokenError> {
    let mcp = Arc::new(Mcp {
        gateway: Arc::clone(gateway),
        states: States::new()?,
        stdio_places: Arc::new(Semaphore::new(MAX_STDIO)),
        stop: stop.clone(),
    });
    let streamable = Arc::new(StreamableHttp::new(&mcp));
    Ok(Router::new()
        .route("/mcp", any(http::handle).layer(Extension(streamable)))
        .route("/mcp/stdio", get(stdio::handle).layer(Extension(mcp))))
}
