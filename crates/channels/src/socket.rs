//! WebSockets over which platforms send events, and the feed that passes the events to the single
//! loop that reads an account.
//!
//! A socket has a task of its own, so that the platform is answered in time, however long an update
//! takes. The task ends with its connection, and the reading loop opens the next one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::address::{ServiceAddress, ServiceStream};
use crate::channel::{ChatFailure, ChatFuture, ChatUpdate, ChatUpdates};
use crate::http::{AbortOnDrop, USUAL_TIME};
use crate::rhythm::until_beat;

/// The largest message and frame of a platform.
const MOST_BYTES: usize = 1024 * 1024;

/// The most updates that wait to be handled. Further ones are not accepted.
const MOST_WAITING: usize = 256;

/// A connection that lasted this long before the platform ended it is reopened at once.
const LIVED: Duration = Duration::from_secs(10);

/// One connection.
pub(crate) struct ServiceSocket(WebSocketStream<Box<dyn ServiceStream>>);

/// What a socket received.
#[derive(Debug)]
pub(crate) enum SocketRead {
    Json(Value),
    /// Nothing for Interlock, but the platform is alive.
    Alive,
    /// The platform closed the socket with this code.
    Closed(Option<u16>),
}

impl ServiceSocket {
    /// Opens a socket. Its path may contain a secret, so no error repeats it.
    pub(crate) async fn open(address: &ServiceAddress, path: &str) -> Result<Self, ChatFailure> {
        let opening = async {
            let stream = address.connect().await.map_err(ChatFailure::from)?;
            let config = WebSocketConfig::default()
                .max_message_size(Some(MOST_BYTES))
                .max_frame_size(Some(MOST_BYTES))
                .read_buffer_size(8 * 1024)
                .write_buffer_size(0);
            let url = format!("wss://{}{path}", address.authority());
            let opened =
                tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await;
            opened
                .map(|(socket, _)| Self(socket))
                .map_err(|error| broke_off(&error))
        };
        in_time(opening).await
    }

    pub(crate) async fn send(&mut self, value: &Value) -> Result<(), ChatFailure> {
        let text = Message::text(value.to_string());
        let sending = async { self.0.send(text).await.map_err(|error| broke_off(&error)) };
        in_time(sending).await
    }

    /// Asks the platform to show that it is alive.
    pub(crate) async fn ping(&mut self) -> Result<(), ChatFailure> {
        let ping = Message::Ping(Vec::new().into());
        let sending = async { self.0.send(ping).await.map_err(|error| broke_off(&error)) };
        in_time(sending).await
    }

    /// Waits for the next message. Dropping this future loses nothing.
    pub(crate) async fn read(&mut self) -> Result<SocketRead, ChatFailure> {
        match self.0.next().await {
            None => Ok(SocketRead::Closed(None)),
            Some(Err(error)) => Err(broke_off(&error)),
            Some(Ok(Message::Close(frame))) => {
                Ok(SocketRead::Closed(frame.map(|frame| frame.code.into())))
            }
            Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                Ok(value) => Ok(SocketRead::Json(value)),
                Err(_) => {
                    let why = "the socket brought something that is not JSON";
                    Err(ChatFailure::Passing(why.to_owned()))
                }
            },
            Some(Ok(_)) => Ok(SocketRead::Alive),
        }
    }

    /// Returns the first message, within the default time limit.
    pub(crate) async fn first(&mut self) -> Result<Value, ChatFailure> {
        let reading = async {
            loop {
                match self.read().await? {
                    SocketRead::Json(value) => return Ok(value),
                    SocketRead::Alive => {}
                    SocketRead::Closed(code) => return Err(closed(code)),
                }
            }
        };
        in_time(reading).await
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, ChatFailure>>) -> Result<T, ChatFailure> {
    match tokio::time::timeout(USUAL_TIME, work).await {
        Ok(done) => done,
        Err(_) => Err(ChatFailure::Passing("no answer in time".to_owned())),
    }
}

/// Returns the failure of a socket that the platform closed.
pub(crate) fn closed(code: Option<u16>) -> ChatFailure {
    ChatFailure::Passing(match code {
        Some(code) => format!("the platform closed the socket with code {code}"),
        None => "the platform closed the socket".to_owned(),
    })
}

fn broke_off(error: &Error) -> ChatFailure {
    let why = match error {
        Error::Http(reply) => format!("the socket was answered with status {}", reply.status()),
        // These errors may repeat the address.
        Error::Url(_) | Error::HttpFormat(_) => "the socket has no usable address".to_owned(),
        error => format!("the socket broke off: {error}"),
    };
    ChatFailure::Passing(why)
}

/// A connection that is ready: its cursor, and the function that reads it until it ends.
pub(crate) struct OpenSocket {
    pub(crate) cursor: String,
    pub(crate) follow: Box<dyn FnOnce(FeedSender) -> BoxFuture<'static, ChatFailure> + Send>,
}

/// One update that waits to be handled, with the cursor behind it.
#[derive(Debug)]
struct FedUpdate {
    update: ChatUpdate,
    cursor: String,
}

/// Takes the events of a connection.
#[derive(Debug, Clone)]
pub(crate) struct FeedSender {
    updates: mpsc::Sender<FedUpdate>,
    latest: Arc<Mutex<Option<String>>>,
}

impl FeedSender {
    /// Feeds an update. Returns whether there was room. An update that was not accepted is not
    /// acknowledged, so that the platform may send it again.
    pub(crate) fn feed(&self, update: ChatUpdate, cursor: &str) -> bool {
        let cursor = cursor.to_owned();
        let is_taken = self.updates.try_send(FedUpdate { update, cursor }).is_ok();
        if !is_taken {
            tracing::warn!("a chat brings more answers than can be handled");
        }
        is_taken
    }

    /// Moves the cursor behind everything that was fed.
    pub(crate) fn advance(&self, cursor: &str) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some(cursor.to_owned());
    }
}

#[derive(Debug)]
struct OpenFeed {
    updates: mpsc::Receiver<FedUpdate>,
    task: AbortOnDrop<ChatFailure>,
    since: Instant,
}

/// The state of a channel with a socket.
#[derive(Debug, Default)]
pub(crate) struct SocketFeed {
    open: tokio::sync::Mutex<Option<OpenFeed>>,
    /// The cursor of the open connection, or `None` if no connection is open.
    latest: Arc<Mutex<Option<String>>>,
}

impl SocketFeed {
    fn latest(&self) -> Option<String> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone()
    }

    /// Waits for updates, and opens a connection if there is none. Without a cursor, it returns as
    /// soon as there is a connection.
    pub(crate) async fn updates(
        &self,
        cursor: Option<&str>,
        open: impl Fn(Option<String>) -> ChatFuture<'static, OpenSocket>,
    ) -> Result<ChatUpdates, ChatFailure> {
        if cursor.is_none()
            && let Some(cursor) = self.latest()
        {
            return Ok(nothing_new(Some(cursor)));
        }
        let mut held = self.open.lock().await;
        // Continues where the last connection ended, or where the account was read to before.
        let mut from = cursor.map(str::to_owned);
        loop {
            let feed = match &mut *held {
                Some(feed) => feed,
                None => {
                    let opened = open(from.clone()).await?;
                    held.insert(self.begin(opened))
                }
            };
            let Some(_) = cursor else {
                return Ok(nothing_new(self.latest()));
            };
            let known = self.latest();
            match tokio::time::timeout(until_beat(), feed.updates.recv()).await {
                Err(_) => return Ok(nothing_new(known)),
                Ok(Some(first)) => return Ok(all_waiting(first, &mut feed.updates)),
                Ok(None) => {
                    let ended = (&mut feed.task.0).await;
                    let has_lived = feed.since.elapsed() >= LIVED;
                    from = self.latest().or(from);
                    *held = None;
                    let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
                    *latest = None;
                    drop(latest);
                    let failure = ended.unwrap_or_else(|_| closed(None));
                    if !has_lived || !matches!(failure, ChatFailure::Passing(_)) {
                        return Err(failure);
                    }
                    tracing::debug!(%failure, "a socket is opened again");
                }
            }
        }
    }

    fn begin(&self, opened: OpenSocket) -> OpenFeed {
        let (sender, updates) = mpsc::channel(MOST_WAITING);
        let sender = FeedSender {
            updates: sender,
            latest: Arc::clone(&self.latest),
        };
        sender.advance(&opened.cursor);
        OpenFeed {
            updates,
            task: AbortOnDrop(tokio::spawn((opened.follow)(sender))),
            since: Instant::now(),
        }
    }
}

fn nothing_new(cursor: Option<String>) -> ChatUpdates {
    ChatUpdates {
        updates: Vec::new(),
        cursor,
    }
}

fn all_waiting(first: FedUpdate, waiting: &mut mpsc::Receiver<FedUpdate>) -> ChatUpdates {
    let mut found = ChatUpdates {
        updates: vec![first.update],
        cursor: Some(first.cursor),
    };
    while let Ok(next) = waiting.try_recv() {
        found.updates.push(next.update);
        found.cursor = Some(next.cursor);
    }
    found
}
