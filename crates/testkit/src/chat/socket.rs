//! WebSockets of stand-ins. One thread reads and writes one connection at a time.

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use serde_json::Value;
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Message, WebSocket};

use super::ChatCall;
use crate::tls::ServerStream;

/// One connection of a client.
pub struct ChatSocket(WebSocket<ServerStream>);

/// What a client did.
pub enum ClientDid {
    Sent(Value),
    Nothing,
    Left,
}

impl ChatSocket {
    /// Accepts the upgrade request of a client.
    pub(super) fn accept(call: &ChatCall, mut stream: ServerStream) -> Option<Self> {
        let key = call.header("sec-websocket-key");
        let accept = tungstenite::handshake::derive_accept_key(key.trim().as_bytes());
        let reply = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        stream.write_all(reply.as_bytes()).ok()?;
        stream.flush().ok()?;
        let patience = Some(Duration::from_millis(10));
        stream.sock.set_read_timeout(patience).ok()?;
        Some(Self(WebSocket::from_raw_socket(stream, Role::Server, None)))
    }

    pub fn send(&mut self, value: &Value) -> bool {
        self.0.send(Message::text(value.to_string())).is_ok()
    }

    /// Sends any text, such as garbage.
    pub fn send_text(&mut self, text: &str) -> bool {
        self.0.send(Message::text(text.to_owned())).is_ok()
    }

    pub fn close(&mut self, code: u16) {
        let reason = "".into();
        let code = code.into();
        let _ = self.0.close(Some(CloseFrame { code, reason }));
        let _ = self.0.flush();
    }

    /// Waits a moment for what the client does.
    pub fn read(&mut self) -> ClientDid {
        match self.0.read() {
            Ok(Message::Text(text)) => {
                ClientDid::Sent(serde_json::from_str(&text).unwrap_or(Value::Null))
            }
            Ok(Message::Close(_)) => ClientDid::Left,
            Ok(_) => ClientDid::Nothing,
            Err(tungstenite::Error::Io(error))
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                ClientDid::Nothing
            }
            Err(_) => ClientDid::Left,
        }
    }
}
