//! Messages on a stream: two lengths, JSON, and the bytes that belong to it.
//!
//! A reader takes exactly one frame and not a byte more, because the stream may be handed to
//! another process between two frames.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message, including its bytes.
pub(super) const MAX_FRAME: usize = 32 * 1024 * 1024;

/// Longest first message of a connection, which comes from an unknown peer and is short.
pub(super) const MAX_HELLO: usize = 4 * 1024;

const HEADER: usize = 8;

/// Sends a message in one write, so that a short message arrives in one piece.
pub(super) fn send(stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    send_with(stream, message, &[])
}

pub(super) fn send_with(
    mut stream: impl Write,
    message: &impl Serialize,
    bytes: &[u8],
) -> io::Result<()> {
    stream.write_all(&encode(message, bytes)?)
}

pub(super) fn encode(message: &impl Serialize, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - HEADER;
    if length + bytes.len() > MAX_FRAME {
        return Err(too_long());
    }
    let lengths = [length, bytes.len()].map(|length| u32::try_from(length).unwrap_or(u32::MAX));
    frame[..4].copy_from_slice(&lengths[0].to_le_bytes());
    frame[4..HEADER].copy_from_slice(&lengths[1].to_le_bytes());
    frame.extend_from_slice(bytes);
    Ok(frame)
}

/// Returns the next message. `None` if the other side has closed the stream.
pub(super) fn receive<T: DeserializeOwned>(stream: impl Read) -> io::Result<Option<T>> {
    Ok(receive_with(stream)?.map(|(message, _)| message))
}

pub(super) fn receive_with<T: DeserializeOwned>(
    mut stream: impl Read,
) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut incoming = Incoming::new(MAX_FRAME);
    while !incoming.is_complete() {
        let count = match stream.read(incoming.wanted()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        if count == 0 {
            return if incoming.is_empty() {
                Ok(None)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        incoming.got(count)?;
    }
    incoming.message().map(Some)
}

/// A frame that is being received, for a reader that must not wait.
#[derive(Debug)]
pub(super) struct Incoming {
    limit: usize,
    buffer: Vec<u8>,
    /// Number of bytes in the buffer that are filled.
    filled: usize,
    /// Length of the JSON, once the header was received.
    json: Option<usize>,
}

impl Incoming {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: vec![0; HEADER],
            filled: 0,
            json: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    pub fn is_complete(&self) -> bool {
        self.json.is_some() && self.filled == self.buffer.len()
    }

    /// Returns the part of the buffer for the next bytes.
    pub fn wanted(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Records that this many bytes were put there.
    pub fn got(&mut self, count: usize) -> io::Result<()> {
        self.filled += count;
        if self.json.is_none() && self.filled == HEADER {
            let length = |at: usize| {
                let bytes = [0, 1, 2, 3].map(|index| self.buffer[at + index]);
                usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
            };
            let (json, bytes) = (length(0), length(4));
            let total = json.saturating_add(bytes);
            if total > self.limit {
                return Err(too_long());
            }
            self.json = Some(json);
            self.buffer.resize(HEADER + total, 0);
        }
        Ok(())
    }

    pub fn message<T: DeserializeOwned>(mut self) -> io::Result<(T, Vec<u8>)> {
        let json = HEADER + self.json.unwrap_or(0);
        let bytes = self.buffer.split_off(json);
        Ok((serde_json::from_slice(&self.buffer[HEADER..])?, bytes))
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the message is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_whole_and_takes_nothing_of_the_next() {
        let mut stream = Vec::new();
        send_with(&mut stream, &"first", &[0, 255]).unwrap();
        send(&mut stream, &7).unwrap();
        let mut reader = stream.as_slice();
        let first: (String, Vec<u8>) = receive_with(&mut reader).unwrap().unwrap();
        assert_eq!(first, ("first".to_owned(), vec![0, 255]));
        assert_eq!(receive::<u8>(&mut reader).unwrap(), Some(7));
        assert_eq!(receive::<u8>(&mut reader).unwrap(), None);
    }

    #[test]
    fn lengths_that_promise_too_much_cost_no_memory() {
        let header = [u32::MAX.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        assert!(receive::<u8>(header.as_slice()).is_err());
        let mut hello = Incoming::new(MAX_HELLO);
        let header = [5_000_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
        hello.wanted().copy_from_slice(&header);
        assert!(hello.got(HEADER).is_err());
    }

    #[test]
    fn a_stream_that_ends_in_a_frame_is_an_error() {
        let mut stream = Vec::new();
        send(&mut stream, &"whole").unwrap();
        for end in 1..stream.len() {
            assert!(receive::<String>(&stream[..end]).is_err(), "{end}");
        }
    }
}
