//! `/mcp`: streamable HTTP. Where the protocol has sessions, only the client that opened a session
//! may use it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use interlock_access::ProvenCaller;
use interlock_access::tcp::PeerStanding;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager as _};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::caller::McpCaller;
use super::connection::McpConnection;
use super::{Mcp, Offer};

const SESSION_HEADER: &str = "mcp-session-id";

/// An MCP session without activity ends after this time. Its background runs continue.
const IDLE: Duration = Duration::from_mins(30);

/// How many MCP sessions one caller may have. A further one ends the least recently used, because
/// many clients never end theirs.
const MAX_SESSIONS: usize = 64;

pub(super) struct StreamableHttp<S: ServerHandler> {
    mcp: Arc<Mcp>,
    service: StreamableHttpService<S, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<SessionId, Owned>>,
}

#[derive(Debug)]
struct Owned {
    owner: String,
    used: Instant,
}

impl<S: ServerHandler> StreamableHttp<S> {
    pub(super) fn new(mcp: &Arc<Mcp>, max_body: usize, offer: Offer<S>) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(IDLE);
        // Some clients mistake the empty event that sets the retry delay for a broken message.
        sessions.session_config.sse_retry = None;
        let sessions = Arc::new(sessions);
        let config = StreamableHttpServerConfig::default()
            .with_sse_retry(None)
            .with_max_request_body_bytes(max_body)
            .with_cancellation_token(mcp.stop.child_token())
            // Host and Origin were already checked for all paths.
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let shared = Arc::clone(mcp);
        Self {
            mcp: Arc::clone(mcp),
            service: StreamableHttpService::new(
                move || Ok(offer(McpConnection::new(&shared, None))),
                Arc::clone(&sessions),
                config,
            ),
            sessions,
            owners: Mutex::default(),
        }
    }

    /// Whether the caller may use a session. A session of another client is answered like an
    /// unknown one.
    fn may_use(&self, session: &str, caller: &McpCaller) -> bool {
        let mut owners = self.owners();
        match owners.get_mut(session) {
            Some(owned) if owned.owner == caller.owner => {
                owned.used = Instant::now();
                true
            }
            _ => false,
        }
    }

    /// Records the owner of a new session, before the client learns its id.
    async fn opened(&self, session: &str, caller: &McpCaller) {
        let living: Vec<SessionId> = self
            .sessions
            .sessions
            .read()
            .await
            .keys()
            .cloned()
            .collect();
        let surplus = {
            let mut owners = self.owners();
            owners.retain(|id, _| living.contains(id));
            let owned = Owned {
                owner: caller.owner.clone(),
                used: Instant::now(),
            };
            owners.insert(session.into(), owned);
            let mut own: Vec<(Instant, SessionId)> = owners
                .iter()
                .filter(|(_, owned)| owned.owner == caller.owner)
                .map(|(id, owned)| (owned.used, id.clone()))
                .collect();
            own.sort();
            let surplus = own.len().saturating_sub(MAX_SESSIONS);
            own.truncate(surplus);
            for (_, id) in &own {
                owners.remove(id);
            }
            own
        };
        for (_, id) in surplus {
            if let Err(error) = self.sessions.close_session(&id).await {
                tracing::warn!(%error, "a session did not end");
            }
        }
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Owned>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn handle<S: ServerHandler>(
    Extension(http): Extension<Arc<StreamableHttp<S>>>,
    Extension(who): Extension<ProvenCaller>,
    mut request: Request,
) -> Response {
    let standing = request.extensions().get::<PeerStanding>();
    let caller =
        match McpCaller::of_request(&http.mcp.dispatcher, &who, standing, request.headers()) {
            Ok(caller) => caller,
            Err(response) => return *response,
        };
    let session = request.headers().get(SESSION_HEADER);
    if let Some(session) = session {
        let is_own = session
            .to_str()
            .is_ok_and(|session| http.may_use(session, &caller));
        if !is_own {
            return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
        }
    }
    let opens = session.is_none() && request.method() == Method::POST;
    request.extensions_mut().insert(caller.clone());
    let response = http.service.handle(request).await.map(Body::new);
    let opened = response.headers().get(SESSION_HEADER);
    if let Some(session) = opened.and_then(|session| session.to_str().ok())
        && opens
    {
        http.opened(session, &caller).await;
    }
    response
}
