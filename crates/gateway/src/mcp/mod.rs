//! The tools for MCP clients: the protocol versions that begin with `initialize`, and the newest
//! one, which does not.
//!
//! Read `caller` (as which agent a client calls), `connection` (what is known of it), `server`
//! (what it is offered), `call` (one call), `progress` (reports during a call), `elicit` (questions
//! to the person at the client), `state` (what a client brings back with an answer), `log`
//! (unrequested messages), `resources`, `roots` (where the client works), then the two transports:
//! `http`, and `stdio` with its `lines`.

mod call;
mod caller;
mod connection;
mod elicit;
mod http;
mod lines;
mod log;
mod progress;
mod resources;
mod roots;
mod server;
mod state;
mod stdio;

use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::routing::{any, get};
use rmcp::ServerHandler;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::connection::{Cancellation, McpConnection};
pub use self::elicit::{ask, shows_forms};
use self::http::StreamableHttp;
pub use self::log::ClientLog;
pub use self::progress::report_progress;
pub(crate) use self::server::McpServer;
use self::state::States;
use crate::access::token::TokenError;
use crate::gateway::Gateway;
use crate::http::Doors;
pub use interlock_dispatch::tools::Progress;

/// Clients by `interlock mcp` at once, on this machine, and as many behind the network.
const MAX_STDIO: usize = 256;

/// Makes what a client at one of the transports is offered.
pub type Offer<S> = fn(McpConnection) -> S;

/// What all MCP clients share.
#[derive(Debug)]
struct Mcp {
    gateway: Arc<Gateway>,
    states: States,
    stdio_places: Arc<Semaphore>,
    /// Of their own, so that no client behind the network takes one from a client of this machine.
    network_places: Arc<Semaphore>,
    /// The gateway ends.
    stop: CancellationToken,
}

/// The routes of both transports. The caller must have been identified before any of them is
/// reached.
pub(crate) fn routes<S: ServerHandler>(
    gateway: &Arc<Gateway>,
    stop: &CancellationToken,
    offer: Offer<S>,
) -> Result<Router<Doors>, TokenError> {
    let mcp = Arc::new(Mcp {
        gateway: Arc::clone(gateway),
        states: States::new()?,
        stdio_places: Arc::new(Semaphore::new(MAX_STDIO)),
        network_places: Arc::new(Semaphore::new(MAX_STDIO)),
        stop: stop.clone(),
    });
    let streamable = Arc::new(StreamableHttp::new(&mcp, offer));
    let by_http = any(http::handle::<S>).layer(Extension(streamable));
    let by_stdio = get(stdio::handle::<S>).layer(Extension((mcp, offer)));
    Ok(Router::new()
        .route("/mcp", by_http)
        .route("/mcp/stdio", by_stdio))
}
