//! Messages on a stream. Before its welcome, a client can only make the gateway store little.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use interlock_connections::{OutboxSocket, SENT_TOGETHER, close_frame};
use interlock_wire::Close;
use interlock_wire::frame::{MAX_FRAME_BYTES, MAX_HANDSHAKE_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// How many bytes are read from a client before its welcome: its first message, and room to detect
/// that the message is too long.
const BEFORE_WELCOME: usize = 2 * MAX_HANDSHAKE_BYTES;

/// A message from a client.
#[derive(Debug)]
pub(super) enum Received {
    Text(Utf8Bytes),
    /// A sign of life without content.
    Alive,
    /// A message beyond the limit.
    TooLarge,
    Gone,
}

/// How long, and how much, is read from a client that sent too much before its connection is
/// dropped. With unread bytes, the close frame would be lost.
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_PAUSE: Duration = Duration::from_millis(500);
const DRAIN_BYTES: usize = 2 * MAX_FRAME_BYTES;

pub(super) struct SocketReader<S>(SplitStream<WebSocketStream<Metered<S>>>, Arc<Allowance>);
pub(super) struct SocketWriter<S>(SplitSink<WebSocketStream<Metered<S>>, Message>);

/// Both directions of an upgraded connection.
pub(super) async fn open<S>(stream: S) -> (SocketReader<S>, SocketWriter<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let allowance = Arc::new(Allowance {
        left: AtomicUsize::new(BEFORE_WELCOME),
        has_sent_too_much: AtomicBool::new(false),
    });
    let metered = Metered {
        stream: Some(stream),
        allowance: Arc::clone(&allowance),
        runtime: Handle::current(),
        drain: |runtime, stream| {
            runtime.spawn(drain(stream));
        },
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES))
        .read_buffer_size(8 * 1024)
        .write_buffer_size(SENT_TOGETHER)
        .max_write_buffer_size(usize::MAX);
    let socket = WebSocketStream::from_raw_socket(metered, Role::Server, Some(config)).await;
    let (sink, stream) = socket.split();
    (SocketReader(stream, allowance), SocketWriter(sink))
}

impl<S: AsyncRead + AsyncWrite + Unpin> SocketReader<S> {
    pub(super) async fn next(&mut self) -> Received {
        match self.0.next().await {
            Some(Ok(Message::Text(text))) => Received::Text(text),
            // The protocol has no other messages.
            Some(Ok(
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
            )) => Received::Alive,
            Some(Err(Error::Capacity(_))) => self.too_large(),
            Some(Err(Error::Io(error))) if error.kind() == io::ErrorKind::FileTooLarge => {
                self.too_large()
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => Received::Gone,
        }
    }

    /// Marks the connection: the rest of the message is read and discarded when the connection
    /// ends.
    pub(super) fn too_large(&self) -> Received {
        self.1.has_sent_too_much.store(true, Ordering::Relaxed);
        Received::TooLarge
    }

    /// Permits messages of the protocol's full length from now on.
    pub(super) fn welcome(&self) {
        self.1.left.store(usize::MAX, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> SocketWriter<S> {
    /// Sends a message. Returns whether the connection still exists.
    pub(super) async fn send(&mut self, text: Utf8Bytes) -> bool {
        self.0.send(Message::Text(text)).await.is_ok()
    }

    pub(super) async fn close(&mut self, close: Close) {
        let _ = self.0.send(Message::Close(Some(close_frame(close)))).await;
    }

    /// The socket for a sender with several threads.
    pub(super) fn into_socket(self) -> OutboxSocket
    where
        S: Send + 'static,
    {
        Box::pin(self.0)
    }
}

/// How much may still be read.
struct Allowance {
    left: AtomicUsize,
    has_sent_too_much: AtomicBool,
}

/// A stream that stops reading when its allowance is used up.
struct Metered<S> {
    /// `None` only while it is dropped.
    stream: Option<S>,
    allowance: Arc<Allowance>,
    /// A thread outside of the runtime may drop the last half of a connection.
    runtime: Handle,
    /// Reads and discards the rest. A separate function, because only [`open`] knows that the
    /// stream may outlive its task.
    drain: fn(&Handle, S),
}

impl<S> Metered<S> {
    fn stream(&mut self) -> io::Result<&mut S> {
        self.stream
            .as_mut()
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl<S> Drop for Metered<S> {
    fn drop(&mut self) {
        let sent_too_much = self.allowance.has_sent_too_much.load(Ordering::Relaxed);
        if let Some(stream) = self.stream.take().filter(|_| sent_too_much) {
            (self.drain)(&self.runtime, stream);
        }
    }
}

/// Reads and discards further input, until the client has read that it must disconnect.
async fn drain<S: AsyncRead + Unpin>(mut stream: S) {
    let reading = async {
        let mut bytes = [0; 4096];
        let mut left = DRAIN_BYTES;
        while left > 0 {
            let read = tokio::time::timeout(DRAIN_PAUSE, stream.read(&mut bytes)).await;
            match read {
                Ok(Ok(read)) if read > 0 => left = left.saturating_sub(read),
                _ => return,
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.allowance.left.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Pin::new(self.stream()?).poll_read(context, buffer);
        }
        if left == 0 {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        let mut bytes = [0; 4096];
        let room = left.min(buffer.remaining()).min(bytes.len());
        let mut part = ReadBuf::new(&mut bytes[..room]);
        let polled = Pin::new(self.stream()?).poll_read(context, &mut part);
        let read = part.filled().len();
        buffer.put_slice(part.filled());
        // Only this reader reduces the allowance. A welcome in the meantime takes precedence.
        let _ = self.allowance.left.compare_exchange(
            left,
            left - read,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream()?).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream()?).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream()?).poll_shutdown(context)
    }
}
