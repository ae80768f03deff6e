//! The tools for MCP clients: the protocol versions that begin with `initialize`, and the newest
//! one, which does not.
//!
//! Read `caller` (as which agent a client calls), `connection` (what is known of it), `server`
//! (what it is offered), `call` (one call), `progress` (reports during a call), `elicit` (questions
//! to the person at the client), `state` (what a client brings back with an answer), `log`
//! (unrequested messages), `resources`, `roots` (where the client works), then the two transports:
//! `http`, and `stdio` with its `lines`.

#![forbid(unsafe_code)]

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
use interlock_access::SecretAccess;
use interlock_access::token::TokenError;
use interlock_dispatch::Dispatcher;
use rmcp::ServerHandler;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::connection::{Cancellation, McpConnection};
pub use self::elicit::{ask, shows_forms};
use self::http::StreamableHttp;
pub use self::log::ClientLog;
pub use self::progress::report_progress;
pub use self::server::McpServer;
use self::state::States;
pub use interlock_dispatch::tools::Progress;

/// Clients by `interlock mcp` at once, on this machine, and as many behind the network.
const MAX_STDIO: usize = 256;

/// Makes what a client at one of the transports is offered.
pub type Offer<S> = fn(McpConnection) -> S;

/// What the server of all MCP clients is made of.
#[derive(Debug)]
pub struct McpParts {
    pub dispatcher: Arc<Dispatcher>,
    pub access: Arc<SecretAccess>,
    /// What the server says of its own version.
    pub version: &'static str,
    /// The largest call by HTTP.
    pub max_body: usize,
    /// The gateway ends.
    pub stop: CancellationToken,
}

/// What all MCP clients share.
#[derive(Debug)]
struct Mcp {
    dispatcher: Arc<Dispatcher>,
    access: Arc<SecretAccess>,
    version: &'static str,
    states: States,
    stdio_places: Arc<Semaphore>,
    /// Of their own, so that no client behind the network takes one from a client of this machine.
    network_places: Arc<Semaphore>,
    /// The gateway ends.
    stop: CancellationToken,
}

/// The routes of both transports. The caller must have been identified before any of them is
/// reached.
pub fn routes<S: ServerHandler, T: Clone + Send + Sync + 'static>(
    parts: McpParts,
    offer: Offer<S>,
) -> Result<Router<T>, TokenError> {
    let mcp = Arc::new(Mcp {
        dispatcher: parts.dispatcher,
        access: parts.access,
        version: parts.version,
        states: States::new()?,
        stdio_places: Arc::new(Semaphore::new(MAX_STDIO)),
        network_places: Arc::new(Semaphore::new(MAX_STDIO)),
        stop: parts.stop,
    });
    let streamable = Arc::new(StreamableHttp::new(&mcp, parts.max_body, offer));
    let by_http = any(http::handle::<S>).layer(Extension(streamable));
    let by_stdio = get(stdio::handle::<S>).layer(Extension((mcp, offer)));
    Ok(Router::new()
        .route("/mcp", by_http)
        .route("/mcp/stdio", by_stdio))
}
