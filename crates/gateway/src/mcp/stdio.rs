//! `/mcp/stdio`: what `interlock mcp` connects its client with. The connection leaves HTTP and
//! carries lines of JSON, as standard input and output would.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper_util::rt::TokioIo;
use interlock_run::supervisor::PeerOrigin;
use rmcp::ServerHandler;
use rmcp::service::serve_server_with_ct;

use super::caller::{self, ClientProgram, McpCaller};
use super::connection::McpConnection;
use super::lines::CheckedLines;
use super::{Mcp, Offer};
use crate::access::{Peer, ProvenCaller};
use crate::http::refusal;

const PROTOCOL: &str = "interlock-mcp";

/// The client's working directory, its bytes in hexadecimal.
const CWD_HEADER: &str = "x-interlock-cwd";

/// The client's PATH, its bytes in hexadecimal.
const PATH_HEADER: &str = "x-interlock-path";

/// `on`: the operator trusts the client to show prompts to a person.
const ELICITATION_HEADER: &str = "x-interlock-elicitation";

/// The longest line: the largest patch fits, however much of it JSON must escape. A longer one is
/// dropped, and has no answer.
const MAX_LINE: usize = 32 * 1024 * 1024;

pub(super) async fn handle<S: ServerHandler>(
    Extension((mcp, offer)): Extension<(Arc<Mcp>, Offer<S>)>,
    Extension(who): Extension<ProvenCaller>,
    mut request: Request,
) -> Response {
    let Some(Peer::Local(origin)) = request.extensions().get::<Peer>().copied() else {
        let message = "only by the gateway's Unix socket";
        return refusal(StatusCode::FORBIDDEN, "forbidden", message);
    };
    let wanted = request.headers().get(header::UPGRADE);
    if wanted.is_none_or(|wanted| wanted.as_bytes() != PROTOCOL.as_bytes()) {
        let message = "this path is for `interlock mcp`";
        return refusal(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message);
    }
    let Ok(place) = Arc::clone(&mcp.stdio_places).try_acquire_owned() else {
        let message = "too many MCP clients are connected";
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
    };
    let caller = match caller(&mcp, &who, origin, request.headers()) {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let _place = place;
        let Ok(stream) = upgrade.await else {
            return;
        };
        let (read, write) = tokio::io::split(TokioIo::new(stream));
        let transport = CheckedLines::new(read, write, MAX_LINE);
        let server = offer(McpConnection::new(&mcp, Some(caller)));
        let serving = serve_server_with_ct(server, transport, mcp.stop.child_token());
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

fn caller(
    mcp: &Mcp,
    who: &ProvenCaller,
    origin: PeerOrigin,
    headers: &HeaderMap,
) -> Result<McpCaller, Box<Response>> {
    let agent = caller::agent(&mcp.gateway, who, headers)?;
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
    // Inside a run it is the agent that sets PATH.
    let program = (origin == PeerOrigin::Outside).then(|| {
        let bytes = headers
            .get(PATH_HEADER)
            .and_then(|value| bytes(value.as_bytes()));
        ClientProgram {
            path: bytes.and_then(|bytes| String::from_utf8(bytes).ok()),
        }
    });
    Ok(McpCaller {
        owner: format!("stdio:{}/{agent}", uuid::Uuid::new_v4().simple()),
        session_key: caller::session_key(&mcp.gateway, who, &agent, headers)?,
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
