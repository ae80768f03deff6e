//! WebSockets that platforms send their events by, and the feed that carries these to the one loop that
//! reads an account.
//!
//! A socket has a task of its own: it answers the platform in time, however long an update takes to be
//! handled. The task ends with its connection; the loop that reads opens the next one.

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

/// The largest message, and frame, of a platform.
const MOST_BYTES: usize = 1024 * 1024;

/// Updates that wait to be handled. What comes beyond them is not taken.
const MOST_WAITING: usize = 256;

/// A connection that lived for so long and was ended by the platform is opened again at once.
const LIVED: Duration = Duration::from_secs(10);

/// One connection.
pub(crate) struct ServiceSocket(WebSocketStream<Box<dyn ServiceStream>>);

/// What a socket brought.
#[derive(Debug)]
pub(crate) enum SocketRead {
    Json(Value),
    /// Nothing that is for Interlock, but the platform is there.
    Alive,
    /// The platform closed it, with this code.
    Closed(Option<u16>),
}

impl ServiceSocket {
    /// Opens a socket. Its path may hold a secret: no error repeats it.
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

    /// Asks whether the platform is there.
    pub(crate) async fn ping(&mut self) -> Result<(), ChatFailure> {
        let ping = Message::Ping(Vec::new().into());
        let sending = async { self.0.send(ping).await.map_err(|error| broke_off(&error)) };
        in_time(sending).await
    }

    /// Waits for what comes. It may be given up at any time, and loses nothing by that.
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

    /// The first message, within the usual time.
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

/// The platform closed the socket.
pub(crate) fn closed(code: Option<u16>) -> ChatFailure {
    ChatFailure::Passing(match code {
        Some(code) => format!("the platform closed the socket with code {code}"),
        None => "the platform closed the socket".to_owned(),
    })
}

fn broke_off(error: &Error) -> ChatFailure {
    let why = match error {
        Error::Http(reply) => format!("the socket was answered with status {}", reply.status()),
        // These may repeat the address.
        Error::Url(_) | Error::HttpFormat(_) => "the socket has no usable address".to_owned(),
        error => format!("the socket broke off: {error}"),
    };
    ChatFailure::Passing(why)
}

/// A connection that is ready: its place in the platform's stream, and what reads it until it ends.
pub(crate) struct OpenSocket {
    pub(crate) cursor: String,
    pub(crate) follow: Box<dyn FnOnce(FeedSender) -> BoxFuture<'static, ChatFailure> + Send>,
}

/// One update on its way, with the place in the stream behind it.
#[derive(Debug)]
struct FedUpdate {
    update: ChatUpdate,
    cursor: String,
}

/// Where a connection puts what happened.
#[derive(Debug, Clone)]
pub(crate) struct FeedSender {
    updates: mpsc::Sender<FedUpdate>,
    latest: Arc<Mutex<Option<String>>>,
}

impl FeedSender {
    /// Whether there was room. An update that was not taken is not answered, so that the platform may
    /// send it again.
    pub(crate) fn feed(&self, update: ChatUpdate, cursor: &str) -> bool {
        let cursor = cursor.to_owned();
        let is_taken = self.updates.try_send(FedUpdate { update, cursor }).is_ok();
        if !is_taken {
            tracing::warn!("a chat brings more answers than can be handled");
        }
        is_taken
    }

    /// The place in the stream, behind everything that was fed.
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

/// What a channel with a socket keeps.
#[derive(Debug, Default)]
pub(crate) struct SocketFeed {
    open: tokio::sync::Mutex<Option<OpenFeed>>,
    /// The place in the stream of the open connection; none while none is open.
    latest: Arc<Mutex<Option<String>>>,
}

impl SocketFeed {
    fn latest(&self) -> Option<String> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone()
    }

    /// Waits for what happens, with a connection that is opened where none is. Without a cursor, it is
    /// enough that there is one.
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
        // Where the last connection ended, or where the account was read to before.
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
