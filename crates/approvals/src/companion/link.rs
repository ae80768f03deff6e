//! Lines over a socket. A link never blocks its caller and never grows without bound.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// The limit of a line from the host. It holds an approval with the difference of a script, as a
/// string within a string.
pub(super) const MAX_FROM_HOST: usize = 2 * 1024 * 1024;

/// The limit of a line from the companion, which is a decision.
pub(super) const MAX_FROM_COMPANION: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    longest_line: usize,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("it closed the connection")]
    Closed,
    #[error("a line is longer than {0} bytes")]
    TooLong(usize),
    #[error("a line is not UTF-8")]
    NotText,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Link {
    pub fn new(stream: UnixStream, longest_line: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            longest_line,
        })
    }

    /// Sends a line, now or with the next [`Self::lines`].
    pub fn say(&mut self, line: &str) -> Result<(), LinkError> {
        self.outgoing.extend_from_slice(line.as_bytes());
        self.outgoing.push(b'\n');
        self.flush()
    }

    /// Waits at most `patience` for the socket, and returns the complete lines that arrived.
    pub fn lines(&mut self, patience: Duration) -> Result<Vec<String>, LinkError> {
        self.wait(patience);
        self.flush()?;
        let mut buffer = [0; 8192];
        let mut is_closed = false;
        // Further bytes are left to the next call.
        while self.incoming.len() <= self.longest_line {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    is_closed = true;
                    break;
                }
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut lines = Vec::new();
        if let Some(end) = self.incoming.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.incoming.split_off(end + 1);
            let whole = std::mem::replace(&mut self.incoming, rest);
            for line in whole[..end].split(|byte| *byte == b'\n') {
                let line = std::str::from_utf8(line).map_err(|_| LinkError::NotText)?;
                lines.push(line.to_owned());
            }
        }
        if self.incoming.len() > self.longest_line {
            return Err(LinkError::TooLong(self.longest_line));
        }
        // Lines that arrived before the end of the connection still count.
        if is_closed && lines.is_empty() {
            return Err(LinkError::Closed);
        }
        Ok(lines)
    }

    /// Whether every line was sent.
    pub fn is_sent(&self) -> bool {
        self.outgoing.is_empty()
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, patience: Duration) {
        let mut wanted = PollFlags::IN;
        if !self.outgoing.is_empty() {
            wanted |= PollFlags::OUT;
        }
        let time = Timespec::try_from(patience).unwrap_or_default();
        // The following read or write reports any error.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.stream, wanted)], Some(&time));
    }
}
