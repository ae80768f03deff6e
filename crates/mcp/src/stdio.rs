//! `/mcp/stdio`: connects `interlock mcp` and its client to the gateway. The connection leaves HTTP
//! and carries lines of JSON, like standard input and output.
//!
//! On the gateway's machine, the connection uses the Unix socket. From another machine it comes
//! over the network, from a client whose `gateway.remote` names this gateway. Such a client proves
//! the same as a caller of `/mcp` and has the same rights; its connection ends when its proof is no
//! longer valid.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper_util::rt::TokioIo;
use interlock_access::tcp::{PeerStanding, TcpPeer};
use interlock_access::{Peer, ProvenCaller, identify, refusal};
use interlock_dispatch::work::blocking;
use interlock_host::CallSender;
use interlock_supervisor::PeerOrigin;
use rmcp::ServerHandler;
use rmcp::service::serve_server_with_ct;
use tokio_util::sync::CancellationToken;

use super::caller::{self, ClientProgram, McpCaller};
use super::connection::McpConnection;
use super::lines::CheckedLines;
use super::{Mcp, Offer};

const PROTOCOL: &str = "interlock-mcp";

/// How long a network connection may outlive its proof.
const REVOCATION_LOOK: Duration = Duration::from_secs(2);

/// The client's working directory, its bytes in hexadecimal.
const CWD_HEADER: &str = "x-interlock-cwd";

/// The client's PATH, its bytes in hexadecimal.
const PATH_HEADER: &str = "x-interlock-path";

/// `on` if the operator trusts the client to show prompts to a person.
const ELICITATION_HEADER: &str = "x-interlock-elicitation";

/// The longest line. The largest patch fits, no matter how much of it JSON escapes. A longer line
/// is dropped without an answer.
const MAX_LINE: usize = 32 * 1024 * 1024;

pub(super) async fn handle<S: ServerHandler>(
    Extension((mcp, offer)): Extension<(Arc<Mcp>, Offer<S>)>,
    Extension(who): Extension<ProvenCaller>,
    mut request: Request,
) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        let message = "the other end of this connection is not known";
        return refusal(StatusCode::FORBIDDEN, "forbidden", message);
    };
    let wanted = request.headers().get(header::UPGRADE);
    if wanted.is_none_or(|wanted| wanted.as_bytes() != PROTOCOL.as_bytes()) {
        let message = "this path is for `interlock mcp`";
        return refusal(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message);
    }
    let places = match peer {
        Peer::Local(_) => &mcp.stdio_places,
        Peer::Network(_) => &mcp.network_places,
    };
    let Ok(place) = Arc::clone(places).try_acquire_owned() else {
        let message = "too many MCP clients are connected";
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
    };
    let caller = match peer {
        Peer::Local(origin) => caller(&mcp, &who, origin, request.headers()),
        Peer::Network(_) => {
            let standing = request.extensions().get::<PeerStanding>();
            McpCaller::of_request(&mcp.dispatcher, &who, standing, request.headers())
        }
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let proof = matches!(peer, Peer::Network(_)).then(|| NetworkProof {
        peer,
        tcp: request.extensions().get::<Arc<TcpPeer>>().cloned(),
        headers: request.headers().clone(),
        who,
    });
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let _place = place;
        let Ok(stream) = upgrade.await else {
            return;
        };
        let (read, write) = tokio::io::split(TokioIo::new(stream));
        let stop = mcp.stop.child_token();
        let transport = CheckedLines::new(read, write, MAX_LINE, stop.clone());
        let server = offer(McpConnection::new(&mcp, Some(caller)));
        // The watch ends with the connection.
        let _end = stop.clone().drop_guard();
        if let Some(proof) = proof {
            tokio::spawn(proof.watch(Arc::clone(&mcp), stop.clone()));
        }
        let serving = serve_server_with_ct(server, transport, stop);
        match Box::pin(serving).await {
            Ok(running) => {
                let _ = running.waiting().await;
            }
            Err(error) => tracing::info!(%error, "an MCP client did not begin a conversation"),
        }
    });
    let upgraded = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(PROTOCOL)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, upgraded).into_response()
}

/// The proof of a client behind the network when it connected.
struct NetworkProof {
    peer: Peer,
    tcp: Option<Arc<TcpPeer>>,
    headers: HeaderMap,
    who: ProvenCaller,
}

impl NetworkProof {
    /// Ends the connection when its token is revoked, or when a run holds the connection.
    async fn watch(self, mcp: Arc<Mcp>, stop: CancellationToken) {
        let proof = Arc::new(self);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(REVOCATION_LOOK) => {}
            }
            let standing = match &proof.tcp {
                Some(tcp) => tcp.standing().await,
                None => PeerStanding::Unidentified("it was not looked at".to_owned()),
            };
            let (mcp, known) = (Arc::clone(&mcp), Arc::clone(&proof));
            let now = blocking(move || {
                let host = &mcp.dispatcher.host;
                identify(
                    &mcp.access,
                    host,
                    known.peer,
                    None,
                    &standing,
                    &known.headers,
                )
            });
            let now = now.await;
            if !now.is_ok_and(|now| now.as_ref() == Ok(&proof.who)) {
                tracing::info!("an MCP client proves nothing any more");
                stop.cancel();
                return;
            }
        }
    }
}

fn caller(
    mcp: &Mcp,
    who: &ProvenCaller,
    origin: PeerOrigin,
    headers: &HeaderMap,
) -> Result<McpCaller, Box<Response>> {
    let agent = caller::agent(&mcp.dispatcher, who, headers)?;
    let cwd = match headers.get(CWD_HEADER) {
        None => None,
        Some(value) => {
            let path = path(value.as_bytes()).filter(|path| path.is_absolute());
            let wrong = || {
                let message = "the working directory is not an absolute path";
                let response = refusal(StatusCode::BAD_REQUEST, "invalid_request", message);
                Box::new(response)
            };
            Some(path.ok_or_else(wrong)?)
        }
    };
    let wants_prompts = headers
        .get(ELICITATION_HEADER)
        .is_some_and(|value| value == "on");
    // Inside a run, the agent sets PATH.
    let program = (origin == PeerOrigin::Outside).then(|| {
        let bytes = headers
            .get(PATH_HEADER)
            .and_then(|value| bytes(value.as_bytes()));
        ClientProgram {
            path: bytes.and_then(|bytes| String::from_utf8(bytes).ok()),
        }
    });
    // The owner started this client for the agent.
    let sender = (origin == PeerOrigin::Outside)
        .then(|| CallSender::new(caller::CHANNEL, CallSender::agent_id(agent.as_str())));
    Ok(McpCaller {
        sender,
        owner: format!("stdio:{}/{agent}", uuid::Uuid::new_v4().simple()),
        session_key: caller::session_key(&mcp.dispatcher, who, &agent, headers)?,
        agent,
        program,
        // A run would answer its own questions.
        elicitation: wants_prompts && origin == PeerOrigin::Outside,
        cwd,
    })
}

fn path(hexadecimal: &[u8]) -> Option<PathBuf> {
    let bytes = bytes(hexadecimal)?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

fn bytes(hexadecimal: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = hexadecimal.as_chunks::<2>() else {
        return None;
    };
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok()?;
        let is_plain = pair.iter().all(u8::is_ascii_hexdigit);
        is_plain.then(|| u8::from_str_radix(digits, 16).ok())?
    };
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_from_its_bytes() {
        assert_eq!(path(b"2f746d70"), Some(PathBuf::from("/tmp")));
        for wrong in [&b"2"[..], b"2g", b"+1", b"2f7"] {
            assert_eq!(path(wrong), None);
        }
    }
}
