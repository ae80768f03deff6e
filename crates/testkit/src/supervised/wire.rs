//! Messages to a supervisor, byte for byte, from a peer that need not be a real client.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::{State, VERSION};
use crate::plans::PATIENCE;

/// Returns a message as it is sent over the socket: two lengths, JSON, bytes.
pub fn frame(message: &Value) -> Vec<u8> {
    let text = serde_json::to_vec(message).unwrap();
    let mut frame = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
    frame.extend(0_u32.to_le_bytes());
    frame.extend(text);
    frame
}

pub fn hello(purpose: &Value) -> Value {
    json!({ "protocol": 1, "version": VERSION, "purpose": purpose })
}

pub fn connect(state: &State) -> UnixStream {
    UnixStream::connect(state.socket(VERSION)).unwrap()
}

/// Returns the next message, or `None` if the connection is closed.
pub fn receive(mut stream: &UnixStream) -> Option<Value> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut header = [0; 8];
    if let Err(error) = stream.read_exact(&mut header) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no answer");
        return None;
    }
    let length = u32::from_le_bytes(header[..4].try_into().unwrap());
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

/// Sends bytes and returns the code of the refusal, or `None` if the connection is only closed.
pub fn refusal(state: &State, bytes: &[u8]) -> Option<String> {
    let mut stream = connect(state);
    // The supervisor may refuse the message before it has read all of it.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let answer = receive(&stream)?;
    Some(answer["Err"]["code"].as_str().unwrap().to_owned())
}
