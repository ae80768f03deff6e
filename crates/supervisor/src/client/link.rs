//! A connection to a running session.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use interlock_plan::PtySize;
use interlock_transcript::screen::Picture;
use rustix::process::Signal;

use super::ClientError;
use crate::frame;
use crate::message::{SessionAnswer, SessionRequest, SessionStanding};

/// A screen as bytes for a terminal. There are none if the session has no terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    pub bytes: Vec<u8>,
    /// How much output the drawing includes. Output that follows in the transcript is drawn over
    /// it.
    pub total_bytes: u64,
}

/// A connection to a running session.
#[derive(Debug)]
pub struct SessionLink {
    pub(super) stream: UnixStream,
}

impl SessionLink {
    /// Waits until there is more output than this, or until the end.
    pub fn wait(
        &self,
        after_bytes: u64,
        timeout: Duration,
    ) -> Result<SessionStanding, ClientError> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request = SessionRequest::Wait {
            after_bytes,
            timeout_ms,
        };
        match self.ask(&request, &[])?.0 {
            SessionAnswer::Standing { standing } => Ok(standing),
            _ => Err(unexpected()),
        }
    }

    pub fn write(&self, bytes: &[u8], close: bool) -> Result<(), ClientError> {
        self.done(&SessionRequest::Write { close }, bytes)
    }

    /// Sends keys, and returns the parts that were not understood.
    pub fn send_keys(
        &self,
        literal: Option<String>,
        hex: Vec<String>,
        keys: Vec<String>,
    ) -> Result<Vec<String>, ClientError> {
        match self
            .ask(&SessionRequest::Keys { literal, hex, keys }, &[])?
            .0
        {
            SessionAnswer::Keys { warnings } => Ok(warnings),
            _ => Err(unexpected()),
        }
    }

    pub fn paste(&self, text: String, bracketed: bool) -> Result<(), ClientError> {
        self.done(&SessionRequest::Paste { text, bracketed }, &[])
    }

    pub fn resize(&self, size: PtySize) -> Result<(), ClientError> {
        self.done(&SessionRequest::Resize { size }, &[])
    }

    pub fn screen(&self) -> Result<Picture, ClientError> {
        match self.ask(&SessionRequest::Screen, &[])?.0 {
            SessionAnswer::Screen { picture } => Ok(picture),
            _ => Err(unexpected()),
        }
    }

    /// Returns the bytes that draw the screen on another terminal.
    pub fn drawing(&self) -> Result<Drawing, ClientError> {
        match self.ask(&SessionRequest::Drawing, &[])? {
            (SessionAnswer::Drawing { total_bytes }, bytes) => Ok(Drawing { bytes, total_bytes }),
            _ => Err(unexpected()),
        }
    }

    /// Sends a signal. TERM and KILL end the whole tree, and this returns when it is gone.
    pub fn kill(&self, signal: Signal) -> Result<(), ClientError> {
        let signal = signal.as_raw();
        match self.ask(&SessionRequest::Kill { signal }, &[])?.0 {
            SessionAnswer::Done => Ok(()),
            SessionAnswer::StillThere { processes } => Err(ClientError::StillThere(processes)),
            _ => Err(unexpected()),
        }
    }

    /// Moves the run to the background: no call waits for its result anymore. It is listed, and
    /// kept after its end.
    pub fn to_background(&self) -> Result<(), ClientError> {
        self.done(&SessionRequest::Background, &[])
    }

    fn done(&self, request: &SessionRequest, bytes: &[u8]) -> Result<(), ClientError> {
        match self.ask(request, bytes)?.0 {
            SessionAnswer::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    fn ask(
        &self,
        request: &SessionRequest,
        bytes: &[u8],
    ) -> Result<(SessionAnswer, Vec<u8>), ClientError> {
        frame::send_with(&self.stream, request, bytes)?;
        match frame::receive_with(&self.stream)?.ok_or(ClientError::Lost)? {
            (SessionAnswer::Refused { refusal }, _) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }
}

fn unexpected() -> ClientError {
    ClientError::Connection(io::Error::new(
        io::ErrorKind::InvalidData,
        "an answer to something else",
    ))
}
