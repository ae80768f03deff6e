//! Checks the lines of a transport that does not check JSON itself. A line with a duplicate key is
//! answered with an error and is not processed.

use interlock_wire::json::{duplicate_key, duplicate_key_message};
use rmcp::RoleServer;
use rmcp::model::{ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The size of the read-ahead buffer.
const BUFFER: usize = 64 * 1024;

/// How many refused lines may wait for their answer.
const MAX_REFUSED: usize = 16;

/// A line that is not processed.
struct RefusedLine {
    id: Option<RequestId>,
    key: String,
}

/// The checked lines of a client.
pub(super) struct CheckedLines<W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, DuplexStream, W>,
    refused: mpsc::Receiver<RefusedLine>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> CheckedLines<W> {
    /// Reads in a separate task, which ends with the stream or with `stop`; otherwise the task
    /// would keep the connection open. A line longer than `max_line` is dropped.
    pub(super) fn new(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: W,
        max_line: usize,
        stop: CancellationToken,
    ) -> Self {
        let (checked, inner) = tokio::io::duplex(BUFFER);
        let (refuse, refused) = mpsc::channel(MAX_REFUSED);
        tokio::spawn(async move {
            let checking = check(BufReader::new(read), checked, refuse, max_line);
            tokio::select! {
                () = checking => {}
                () = stop.cancelled() => {}
            }
        });
        let inner = AsyncRwTransport::new_server(inner, write).with_max_line_length(max_line);
        Self { inner, refused }
    }
}

async fn check(
    mut read: BufReader<impl AsyncRead + Unpin>,
    mut checked: DuplexStream,
    refuse: mpsc::Sender<RefusedLine>,
    max_line: usize,
) {
    let mut line = Vec::new();
    let mut is_dropped = false;
    loop {
        let Ok(available) = read.fill_buf().await else {
            return;
        };
        if available.is_empty() {
            return;
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = end.map_or(available, |end| &available[..=end]);
        is_dropped |= line.len().saturating_add(part.len()) > max_line;
        if is_dropped {
            line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        let used = part.len();
        read.consume(used);
        if end.is_none() {
            continue;
        }
        let passed = match duplicate_key(&line) {
            _ if std::mem::take(&mut is_dropped) => true,
            None => checked.write_all(&line).await.is_ok(),
            Some(key) => {
                let refused = RefusedLine {
                    id: id_of(&line),
                    key,
                };
                refuse.send(refused).await.is_ok()
            }
        };
        if !passed {
            return;
        }
        line.clear();
    }
}

/// The id for the error; `None` if the line has no valid id.
fn id_of(line: &[u8]) -> Option<RequestId> {
    let message: Value = serde_json::from_slice(line).ok()?;
    let id = message.get("id")?.clone();
    serde_json::from_value(id).ok()
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for CheckedLines<W> {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let refused = tokio::select! {
                received = self.inner.receive() => return received,
                Some(refused) = self.refused.recv() => refused,
            };
            let error = ErrorData::invalid_request(duplicate_key_message(&refused.key), None);
            let answer = TxJsonRpcMessage::<RoleServer>::error(error, refused.id);
            if self.inner.send(answer).await.is_err() {
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
