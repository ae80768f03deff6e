//! What waits to be sent to a client, and who sends it.
//!
//! An answer is sent by the thread that has it, if nothing waits before it and the socket takes it.
//! All else is sent by the connection's own task: what goes to many, and what a socket does not take
//! yet.

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

/// What waits for all clients together. A client for which it would become more is too slow.
const MAX_BUFFERED_IN_ALL: usize = 512 * 1024 * 1024;

/// Messages are sent together up to about so many bytes.
pub const SENT_TOGETHER: usize = 16 * 1024;

/// A longer text goes in frames of [`SENT_TOGETHER`]: a connection keeps a buffer as large as the largest
/// frame that it ever sent, so that one long answer would cost its length for as long as the client stays.
const LONG_TEXT: usize = 2 * SENT_TOGETHER;

pub type OutboxSocket = Pin<Box<dyn Sink<Message, Error = Error> + Send>>;

/// A message that is to be sent.
#[derive(Debug)]
pub enum Outgoing {
    Text(String),
    /// What is left of a text whose beginning was sent.
    Rest(Bytes),
    Ping,
    /// Nothing follows it.
    Close(Close),
}

impl Outgoing {
    /// As it counts against what may wait.
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
    /// Bytes that wait for this client.
    own: AtomicUsize,
    /// Bytes that wait for all of them.
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
    /// None once nothing is sent any more.
    socket: Option<OutboxSocket>,
    waiting: VecDeque<Outgoing>,
    /// The bytes of what the socket was given and has not sent; none if it was given nothing.
    on_its_way: Option<usize>,
    /// Wakes the task that sends.
    sender: Option<Waker>,
    /// It ends when all is sent.
    is_last: bool,
    /// The socket is to close.
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

    /// Sends it from here if that is possible at once, and does not take long: meanwhile no other
    /// thread gets at what waits.
    pub fn send(&self, message: Outgoing) {
        if message.len() > SENT_TOGETHER {
            return self.leave(message);
        }
        let mut line = self.push(message);
        let Some(sender) = line.sender.clone() else {
            return;
        };
        // What is on its way already is waited for by the task.
        let is_first = line.on_its_way.is_none();
        if is_first
            && self
                .poll_line(&mut line, &mut Context::from_waker(&sender))
                .is_ready()
        {
            sender.wake();
        }
    }

    /// Leaves it to the task: a sender of many messages does not wait for their sockets.
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

    /// What waits, and what is on its way.
    pub fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Nothing is sent any more.
    pub fn is_over(&self) -> bool {
        self.line().socket.is_none()
    }

    /// Nothing follows what waits now.
    pub fn finish(&self) {
        let mut line = self.line();
        line.is_last = true;
        if let Some(sender) = &line.sender {
            sender.wake_by_ref();
        }
    }

    /// Sends what waits and what comes, until the last is sent or the client does not read. For one
    /// task.
    pub async fn run(&self) {
        poll_fn(|context| {
            let mut line = self.line();
            line.sender = Some(context.waker().clone());
            self.poll_line(&mut line, context)
        })
        .await;
    }

    /// Drops what the client does not read.
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

    /// Ready when it is over.
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
    /// Gives the socket what waits, as much as is sent together, until that is sent.
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

/// The next frame of a text. What is left of it waits in front of all else: frames of one text follow each
/// other.
fn first_frame(mut frame: Bytes, kind: Data, waiting: &mut VecDeque<Outgoing>) -> Message {
    let rest = frame.split_off(frame.len().min(SENT_TOGETHER));
    let is_last = rest.is_empty();
    if !is_last {
        waiting.push_front(Outgoing::Rest(rest));
    }
    Message::Frame(Frame::message(frame, OpCode::Data(kind), is_last))
}

/// Whether a client is alive: since when it owes something, as seen by who writes to it. Time in which this
/// gateway had no time for it does not count.
#[derive(Debug, Default)]
pub struct Pulse {
    /// When it was asked for a sign of life that has not come; 0 if it owes none.
    asked_at_ms: AtomicU64,
    /// Since when something is being sent that it does not take; 0 if nothing is.
    sending_since_ms: AtomicU64,
}

impl Pulse {
    pub fn is_owed(&self) -> bool {
        self.asked_at_ms.load(Ordering::Relaxed) != 0
    }

    /// A sign of life has come.
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

    /// How long it owes something.
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
