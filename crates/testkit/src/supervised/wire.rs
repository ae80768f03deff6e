//! Messages to a supervisor, byte for byte, from a peer that need not be a client.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::{State, VERSION};
use crate::plans::PATIENCE;

/// A message as it goes over the socket: two lengths, JSON, bytes.
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

/// The next message; none when the connection is closed.
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

/// Says this, and reads the code of the refusal; none where the connection is only closed.
pub fn refusal(state: &State, bytes: &[u8]) -> Option<String> {
    let mut stream = connect(state);
    // It may be refused before all of it is read.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let answer = receive(&stream)?;
    Some(answer["Err"]["code"].as_str().unwrap().to_owned())
}
