//! The messages that wait to be sent to a client, and the thread that sends them.
//!
//! The thread that has an answer sends it, if no message waits before it and the socket accepts it.
//! The connection's own task sends the rest: broadcasts, and what the socket does not accept yet.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::Sink;
use interlock_rules::now_ms;
use interlock_wire::Close;
use interlock_wire::hello::MAX_BUFFERED_BYTES;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

/// The limit of bytes that wait for all clients together. A client whose message would exceed it is
/// too slow.
const MAX_BUFFERED_IN_ALL: usize = 512 * 1024 * 1024;

/// About how many bytes of messages are sent together.
pub const SENT_TOGETHER: usize = 16 * 1024;

/// A longer text is sent in frames of [`SENT_TOGETHER`]. A connection keeps a buffer as large as
/// the largest frame that it ever sent, so that one long answer would otherwise occupy its length
/// until the client disconnects.
const LONG_TEXT: usize = 2 * SENT_TOGETHER;

pub type OutboxSocket = Pin<Box<dyn Sink<Message, Error = Error> + Send>>;

/// A message that is to be sent.
#[derive(Debug)]
pub enum Outgoing {
    Text(String),
    /// The rest of a text whose beginning was sent.
    Rest(Bytes),
    Ping,
    /// The last message.
    Close(Close),
}

impl Outgoing {
    /// Returns the bytes that count against the limits.
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Rest(rest) => rest.len(),
            Self::Ping | Self::Close(_) => 0,
        }
    }
}

pub struct Outbox {
    line: Mutex<OutboxLine>,
    /// The bytes that wait for this client.
    own: AtomicUsize,
    /// The bytes that wait for all clients.
    all: Arc<AtomicUsize>,
    pub pulse: Pulse,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("own", &self.own)
            .field("pulse", &self.pulse)
            .finish_non_exhaustive()
    }
}

struct OutboxLine {
    /// `None` once nothing more is sent.
    socket: Option<OutboxSocket>,
    waiting: VecDeque<Outgoing>,
    /// The bytes that the socket accepted and has not sent yet. `None` if it has nothing to send.
    on_its_way: Option<usize>,
    /// Wakes the sending task.
    sender: Option<Waker>,
    /// Whether the sending task ends once everything is sent.
    is_last: bool,
    /// Whether the close frame was passed to the socket.
    is_closing: bool,
}

impl Outbox {
    pub fn new(socket: OutboxSocket, all: Arc<AtomicUsize>) -> Self {
        Self {
            line: Mutex::new(OutboxLine {
                socket: Some(socket),
                waiting: VecDeque::new(),
                on_its_way: None,
                sender: None,
                is_last: false,
                is_closing: false,
            }),
            own: AtomicUsize::new(0),
            all,
            pulse: Pulse::default(),
        }
    }

    /// Sends a message from this thread if the socket accepts it at once. Long messages are left to
    /// the task, because no other thread can use the queue meanwhile.
    pub fn send(&self, message: Outgoing) {
        if message.len() > SENT_TOGETHER {
            return self.leave(message);
        }
        let mut line = self.push(message);
        let Some(sender) = line.sender.clone() else {
            return;
        };
        // If the socket is already sending, the task waits for it.
        let is_first = line.on_its_way.is_none();
        if is_first
            && self
                .poll_line(&mut line, &mut Context::from_waker(&sender))
                .is_ready()
        {
            sender.wake();
        }
    }

    /// Leaves a message to the task, so that a sender of many messages need not wait for their
    /// sockets.
    pub fn leave(&self, message: Outgoing) {
        let line = self.push(message);
        if let Some(sender) = &line.sender
            && line.on_its_way.is_none()
        {
            sender.wake_by_ref();
        }
    }

    pub fn has_room(&self, bytes: usize) -> bool {
        let all = self.all.load(Ordering::Relaxed);
        self.bytes().saturating_add(bytes) <= MAX_BUFFERED_BYTES
            && all.saturating_add(bytes) <= MAX_BUFFERED_IN_ALL
    }

    /// Returns the bytes that wait and those that are being sent.
    pub fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Whether nothing more is sent.
    pub fn is_over(&self) -> bool {
        self.line().socket.is_none()
    }

    /// Ends the sending task once all messages are sent.
    pub fn finish(&self) {
        let mut line = self.line();
        line.is_last = true;
        if let Some(sender) = &line.sender {
            sender.wake_by_ref();
        }
    }

    /// Sends all messages until the last one is sent or the connection fails. Only one task may
    /// call this.
    pub async fn run(&self) {
        poll_fn(|context| {
            let mut line = self.line();
            line.sender = Some(context.waker().clone());
            self.poll_line(&mut line, context)
        })
        .await;
    }

    /// Drops the messages that the client does not read.
    pub fn give_up(&self) {
        let mut line = self.line();
        line.socket = None;
        let waiting: usize = line.waiting.drain(..).map(|message| message.len()).sum();
        self.count_off(waiting + line.on_its_way.take().unwrap_or_default());
        self.pulse.sent();
    }

    fn push(&self, message: Outgoing) -> MutexGuard<'_, OutboxLine> {
        let mut line = self.line();
        if line.socket.is_some() {
            let bytes = message.len();
            self.own.fetch_add(bytes, Ordering::Relaxed);
            self.all.fetch_add(bytes, Ordering::Relaxed);
            line.waiting.push_back(message);
        }
        line
    }

    /// Returns `Ready` when nothing more is to be sent.
    fn poll_line(&self, line: &mut OutboxLine, context: &mut Context<'_>) -> Poll<()> {
        while !line.is_closing || line.on_its_way.is_some() {
            if line.waiting.is_empty() && line.on_its_way.is_none() {
                let is_over = line.is_last || line.socket.is_none();
                return if is_over {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                };
            }
            if line.on_its_way.is_none() {
                self.pulse.sends(now_ms());
            }
            if ready!(line.poll_send(&self.pulse, context)).is_err() {
                line.socket = None;
                return Poll::Ready(());
            }
            self.count_off(line.on_its_way.take().unwrap_or_default());
            self.pulse.sent();
        }
        Poll::Ready(())
    }

    fn count_off(&self, bytes: usize) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn line(&self) -> MutexGuard<'_, OutboxLine> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutboxLine {
    /// Passes waiting messages to the socket, up to [`SENT_TOGETHER`] bytes, and waits until they
    /// are sent.
    fn poll_send(&mut self, pulse: &Pulse, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(Error::AlreadyClosed));
        };
        let on_its_way = self.on_its_way.get_or_insert_default();
        while *on_its_way < SENT_TOGETHER && !self.waiting.is_empty() && !self.is_closing {
            ready!(socket.as_mut().poll_ready(context))?;
            let Some(message) = self.waiting.pop_front() else {
                break;
            };
            let whole = message.len();
            let message = match message {
                Outgoing::Text(text) if text.len() > LONG_TEXT => {
                    first_frame(text.into(), Data::Text, &mut self.waiting)
                }
                Outgoing::Text(text) => Message::text(text),
                Outgoing::Rest(rest) => first_frame(rest, Data::Continue, &mut self.waiting),
                Outgoing::Ping => {
                    pulse.asks(now_ms());
                    Message::Ping(Vec::new().into())
                }
                Outgoing::Close(close) => {
                    self.is_closing = true;
                    Message::Close(Some(close_frame(close)))
                }
            };
            let left = match self.waiting.front() {
                Some(Outgoing::Rest(rest)) => rest.len(),
                _ => 0,
            };
            *on_its_way += whole - left;
            socket.as_mut().start_send(message)?;
        }
        socket.as_mut().poll_flush(context)
    }
}

/// Returns the next frame of a text. Its rest waits in front of all other messages, because the
/// frames of one text must follow each other.
fn first_frame(mut frame: Bytes, kind: Data, waiting: &mut VecDeque<Outgoing>) -> Message {
    let rest = frame.split_off(frame.len().min(SENT_TOGETHER));
    let is_last = rest.is_empty();
    if !is_last {
        waiting.push_front(Outgoing::Rest(rest));
    }
    Message::Frame(Frame::message(frame, OpCode::Data(kind), is_last))
}

/// Tracks whether a client is alive: since when an answer or a read is overdue. Times are taken
/// when this gateway actually writes, so that its own delays do not count.
#[derive(Debug, Default)]
pub struct Pulse {
    /// When the client was asked to show that it is alive and has not answered. 0 if no answer is
    /// due.
    asked_at_ms: AtomicU64,
    /// Since when the client has not accepted what is being sent. 0 if nothing is being sent.
    sending_since_ms: AtomicU64,
}

impl Pulse {
    pub fn is_owed(&self) -> bool {
        self.asked_at_ms.load(Ordering::Relaxed) != 0
    }

    /// Records that the client showed that it is alive.
    pub fn heard(&self) {
        self.asked_at_ms.store(0, Ordering::Relaxed);
    }

    fn asks(&self, now_ms: u64) {
        self.asked_at_ms.store(now_ms, Ordering::Relaxed);
    }

    fn sends(&self, now_ms: u64) {
        self.sending_since_ms.store(now_ms, Ordering::Relaxed);
    }

    fn sent(&self) {
        self.sending_since_ms.store(0, Ordering::Relaxed);
    }

    /// Returns how long the client's answer or read has been overdue.
    pub fn silence(&self, now_ms: u64) -> Duration {
        let since = |time: &AtomicU64| match time.load(Ordering::Relaxed) {
            0 => 0,
            time => now_ms.saturating_sub(time),
        };
        let longest = since(&self.asked_at_ms).max(since(&self.sending_since_ms));
        Duration::from_millis(longest)
    }
}

pub fn close_frame(close: Close) -> CloseFrame {
    CloseFrame {
        code: CloseCode::from(close.code),
        reason: close.reason.into(),
    }
}

#[cfg(test)]
mod tests;
