//! The tools for MCP clients: for the protocol versions that begin with `initialize`, and for the
//! newest version, which does not.
//!
//! Read `caller` (which agent a client calls as), `connection` (the facts about a client), `server`
//! (what a client is offered), `call` (one call), `progress` (reports during a call), `elicit`
//! (questions to the person at the client), `state` (state that a client returns with an answer),
//! `log` (unrequested messages), `resources`, `roots` (where the client works), then the two
//! transports: `http`, and `stdio` with its `lines`.

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

/// How many `interlock mcp` clients may be connected at once: this many on this machine, and as
/// many behind the network.
const MAX_STDIO: usize = 256;

/// Makes the server object for a client at one of the transports.
pub type Offer<S> = fn(McpConnection) -> S;

/// The parts of the server for all MCP clients.
#[derive(Debug)]
pub struct McpParts {
    pub dispatcher: Arc<Dispatcher>,
    pub access: Arc<SecretAccess>,
    /// The version that the server reports.
    pub version: &'static str,
    /// The size limit of an HTTP request.
    pub max_body: usize,
    /// Cancelled when the gateway ends.
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
    /// Separate places, so that a client behind the network never takes one from a client of this
    /// machine.
    network_places: Arc<Semaphore>,
    /// Cancelled when the gateway ends.
    stop: CancellationToken,
}

/// The routes of both transports. Every caller must be identified before it reaches one of them.
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
