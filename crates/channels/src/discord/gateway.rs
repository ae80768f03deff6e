//! Discord's gateway socket: hello, identify or resume, heartbeats, and the events that Interlock
//! reads.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::DiscordAccount;
use super::read::{DiscordIdentity, read_message, read_tap};
use crate::address::ServiceAddress;
use crate::channel::ChatFailure;
use crate::http::ServiceCall;
use crate::rhythm::until_beat;
use crate::socket::{FeedSender, OpenSocket, ServiceSocket, SocketRead, closed};

/// The bot needs to read only direct messages. Button presses arrive without an intent.
const INTENTS: u64 = 1 << 12;

/// Every socket's host is below this domain.
const DOMAIN: &str = "discord.gg";
const PATH: &str = "/?v=10&encoding=json";

/// The most interactions that are acknowledged at once. Discord shows further ones as failed.
const ACKNOWLEDGED_AT_ONCE: usize = 16;

/// The longest wait for a new start. Discord renews the number of starts each day.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

const DISPATCH: u64 = 0;
const HEARTBEAT: u64 = 1;
const IDENTIFY: u64 = 2;
const RESUME: u64 = 6;
const RECONNECT: u64 = 7;
const INVALID_SESSION: u64 = 9;
const HELLO: u64 = 10;
const HEARTBEAT_ACK: u64 = 11;

/// Codes after which Discord accepts no new connection, because the token or the intents are wrong.
const HOPELESS: [u16; 6] = [4004, 4010, 4011, 4012, 4013, 4014];

/// A session that can be resumed. Discord then sends the events that were missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DiscordSession {
    id: String,
    url: String,
    sequence: u64,
    application: String,
    user: String,
}

impl DiscordSession {
    fn read(cursor: &str) -> Option<Self> {
        serde_json::from_str(cursor).ok()
    }

    fn cursor(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn identity(&self) -> DiscordIdentity {
        DiscordIdentity {
            application: self.application.clone(),
            user: self.user.clone(),
        }
    }
}

/// A connection on which Discord has said hello.
struct GreetedSocket {
    socket: ServiceSocket,
    heartbeat: Duration,
}

/// Opens a connection: it resumes the session of the cursor, or begins a new one.
pub(super) async fn open(
    account: Arc<DiscordAccount>,
    cursor: Option<String>,
) -> Result<OpenSocket, ChatFailure> {
    let known = cursor.as_deref().and_then(DiscordSession::read);
    if let Some(session) = known {
        match resume(&account, session).await {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            Err(failure) => tracing::debug!(%failure, "a session of Discord is not resumed"),
        }
    }
    identify(account).await
}

/// Returns `None` if Discord no longer knows the session.
async fn resume(
    account: &Arc<DiscordAccount>,
    session: DiscordSession,
) -> Result<Option<OpenSocket>, ChatFailure> {
    let (address, _) = account.0.address.socket(&session.url, DOMAIN)?;
    let mut greeted = greet(&address).await?;
    let wanted = json!({ "op": RESUME, "d": {
        "token": account.0.token.expose(),
        "session_id": session.id,
        "seq": session.sequence,
    } });
    greeted.socket.send(&wanted).await?;
    let first = loop {
        let message = greeted.socket.first().await?;
        match message["op"].as_u64() {
            Some(INVALID_SESSION) => return Ok(None),
            Some(DISPATCH) => break message,
            Some(HEARTBEAT) => beat(&mut greeted.socket, session.sequence).await?,
            _ => {}
        }
    };
    Ok(Some(opened(
        Arc::clone(account),
        greeted,
        session,
        Some(first),
    )))
}

async fn identify(account: Arc<DiscordAccount>) -> Result<OpenSocket, ChatFailure> {
    // This call also needs the token, so that a wrong one is refused before it counts as a start.
    let known = account.ask(ServiceCall::get("/gateway/bot"));
    let known = known.await?;
    let limit = &known["session_start_limit"];
    if limit["remaining"] == 0 {
        let after = limit["reset_after"].as_u64().unwrap_or(60_000);
        let after = Duration::from_millis(after).min(LONGEST_WAIT);
        return Err(ChatFailure::Busy { after });
    }
    let url = known["url"].as_str().unwrap_or_default();
    let (address, _) = account.0.address.socket(url, DOMAIN)?;
    let mut greeted = greet(&address).await?;
    let wanted = json!({ "op": IDENTIFY, "d": {
        "token": account.0.token.expose(),
        "intents": INTENTS,
        "properties": { "os": std::env::consts::OS, "browser": "interlock", "device": "interlock" },
    } });
    greeted.socket.send(&wanted).await?;
    let ready = loop {
        let message = greeted.socket.first().await?;
        match message["op"].as_u64() {
            Some(DISPATCH) if message["t"] == "READY" => break message,
            Some(HEARTBEAT) => beat(&mut greeted.socket, 0).await?,
            Some(INVALID_SESSION | RECONNECT) => {
                let why = "Discord does not begin a session now";
                return Err(ChatFailure::Passing(why.to_owned()));
            }
            _ => {}
        }
    };
    let (sequence, ready) = (ready["s"].as_u64(), &ready["d"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let session = (|| {
        Some(DiscordSession {
            id: text(&ready["session_id"])?,
            url: text(&ready["resume_gateway_url"])?,
            sequence: sequence?,
            application: text(&ready["application"]["id"])?,
            user: text(&ready["user"]["id"])?,
        })
    })();
    let session = session.ok_or_else(|| {
        ChatFailure::Passing("Discord does not say which application this is".to_owned())
    })?;
    Ok(opened(account, greeted, session, None))
}

/// Connects, and reads the interval of heartbeats that Discord expects.
async fn greet(address: &ServiceAddress) -> Result<GreetedSocket, ChatFailure> {
    let mut socket = ServiceSocket::open(address, PATH).await?;
    let hello = socket.first().await?;
    let every = hello["d"]["heartbeat_interval"].as_u64();
    match every.filter(|_| hello["op"] == HELLO) {
        Some(every) => Ok(GreetedSocket {
            socket,
            heartbeat: Duration::from_millis(every.clamp(1_000, 600_000)),
        }),
        None => Err(ChatFailure::Passing("Discord says no hello".to_owned())),
    }
}

async fn beat(socket: &mut ServiceSocket, sequence: u64) -> Result<(), ChatFailure> {
    socket
        .send(&json!({ "op": HEARTBEAT, "d": sequence }))
        .await
}

fn opened(
    account: Arc<DiscordAccount>,
    greeted: GreetedSocket,
    session: DiscordSession,
    first: Option<Value>,
) -> OpenSocket {
    OpenSocket {
        cursor: session.cursor(),
        follow: Box::new(move |feed| {
            Box::pin(async move {
                let following = DiscordStream {
                    own: session.identity(),
                    account,
                    session,
                    feed,
                    acknowledging: Arc::new(Semaphore::new(ACKNOWLEDGED_AT_ONCE)),
                };
                match following.follow(greeted, first).await {
                    Ok(failure) | Err(failure) => failure,
                }
            })
        }),
    }
}

/// The events of one connection.
struct DiscordStream {
    account: Arc<DiscordAccount>,
    own: DiscordIdentity,
    session: DiscordSession,
    feed: FeedSender,
    acknowledging: Arc<Semaphore>,
}

impl DiscordStream {
    /// Reads a connection until it ends.
    async fn follow(
        mut self,
        greeted: GreetedSocket,
        first: Option<Value>,
    ) -> Result<ChatFailure, ChatFailure> {
        let GreetedSocket {
            mut socket,
            heartbeat,
        } = greeted;
        if let Some(first) = first {
            self.dispatched(&first);
        }
        // The first heartbeat comes early, so that not all programs send theirs at the same time.
        let mut next_beat = Instant::now() + (heartbeat / 2).min(until_beat());
        let mut is_answered = true;
        loop {
            let read = tokio::select! {
                read = socket.read() => read?,
                () = tokio::time::sleep_until(next_beat) => {
                    if !is_answered {
                        return Ok(ChatFailure::Passing("Discord answers no heartbeat".to_owned()));
                    }
                    beat(&mut socket, self.session.sequence).await?;
                    // A heartbeat may be earlier than Discord asks for.
                    next_beat = Instant::now() + heartbeat.min(until_beat());
                    is_answered = false;
                    continue;
                }
            };
            let message = match read {
                SocketRead::Json(message) => message,
                SocketRead::Alive => continue,
                SocketRead::Closed(Some(code)) if HOPELESS.contains(&code) => {
                    let why = format!("Discord refuses the bot with code {code}");
                    return Ok(ChatFailure::Refused(why));
                }
                SocketRead::Closed(code) => return Ok(closed(code)),
            };
            match message["op"].as_u64() {
                Some(DISPATCH) => self.dispatched(&message),
                Some(HEARTBEAT) => beat(&mut socket, self.session.sequence).await?,
                Some(HEARTBEAT_ACK) => is_answered = true,
                Some(RECONNECT) => {
                    let why = "Discord ends the connection for another one";
                    return Ok(ChatFailure::Passing(why.to_owned()));
                }
                Some(INVALID_SESSION) => {
                    if message["d"] != true {
                        // The session cannot be resumed, so the next connection begins a new one.
                        self.feed.advance("");
                    }
                    let why = "Discord has ended the session";
                    return Ok(ChatFailure::Passing(why.to_owned()));
                }
                _ => {}
            }
        }
    }

    fn dispatched(&mut self, message: &Value) {
        if let Some(sequence) = message["s"].as_u64() {
            self.session.sequence = sequence;
        }
        let cursor = self.session.cursor();
        let event = &message["d"];
        match message["t"].as_str() {
            Some("MESSAGE_CREATE") => {
                if let Some(update) = read_message(event, &self.own) {
                    self.feed.feed(update, &cursor);
                }
            }
            Some("INTERACTION_CREATE") => self.tapped(event, &cursor),
            _ => {}
        }
        self.feed.advance(&cursor);
    }

    /// Acknowledges a button before the press is handled, because Discord waits three seconds and a
    /// decision may take longer.
    fn tapped(&self, event: &Value, cursor: &str) {
        let Some((update, id, token)) = read_tap(event, &self.own) else {
            return;
        };
        let Ok(turn) = Arc::clone(&self.acknowledging).try_acquire_owned() else {
            return;
        };
        let (account, feed) = (Arc::clone(&self.account), self.feed.clone());
        let cursor = cursor.to_owned();
        tokio::spawn(async move {
            if let Err(failure) = account.acknowledge(&id, &token).await {
                tracing::debug!(%failure, "a button was not acknowledged");
            }
            feed.feed(update, &cursor);
            drop(turn);
        });
    }
}
