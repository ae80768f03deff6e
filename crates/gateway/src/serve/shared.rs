//! A connection that can still be written to after the HTTP server gave it up. A caller whose
//! headers do not arrive in time gets an answer that says so.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// How long the last message to a caller may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\n\
content-type: application/json\r\n\
content-length: 102\r\n\
connection: close\r\n\
\r\n\
{\"ok\":false,\"error\":{\"type\":\"request_timeout\",\"message\":\"the headers did not come within 10 seconds\"}}";

/// One stream with two owners: the server, and the task that observes its end.
pub(super) struct SharedStream<S>(Arc<SharedInner<S>>);

struct SharedInner<S> {
    stream: Mutex<S>,
    /// Whether the caller has begun a request that the server has not read completely. The first
    /// request counts from the start.
    is_expected: AtomicBool,
}

impl<S> Clone for SharedStream<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> SharedStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Arc::new(SharedInner {
            stream: Mutex::new(stream),
            is_expected: AtomicBool::new(true),
        }))
    }

    /// Between two requests the caller owes nothing, until it sends the first byte of the next one.
    pub(super) fn owes_nothing(&self) {
        self.0.is_expected.store(false, Ordering::Relaxed);
    }
}

impl<S: AsyncWrite + Unpin> SharedStream<S> {
    /// Answers that the headers came too late, if the caller has begun a request.
    pub(super) async fn say_too_slow(mut self) {
        if self.0.is_expected.load(Ordering::Relaxed) {
            let said = async {
                self.write_all(TOO_SLOW).await?;
                self.shutdown().await
            };
            let _ = tokio::time::timeout(LAST_WORDS, said).await;
        }
    }

    fn with<T>(&self, act: impl FnOnce(Pin<&mut S>) -> T) -> T {
        let mut stream = self.0.stream.lock().unwrap_or_else(PoisonError::into_inner);
        act(Pin::new(&mut *stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for SharedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.with(|stream| stream.poll_read(context, buffer));
        if buffer.filled().len() > before {
            self.0.is_expected.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SharedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(context))
    }

    fn is_write_vectored(&self) -> bool {
        self.with(|stream| stream.is_write_vectored())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write_vectored(context, parts))
    }
}
