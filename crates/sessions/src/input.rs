//! Input for a running session.

use interlock_transcript::keys::{self, Bracketed};

use super::answer::{KeysSent, Written};
use super::{Process, ProcessError, VisibleSession};

/// At most this much input may wait to be read.
pub const MAX_INPUT_BYTES: usize = 8 * 1024 * 1024;

/// Key presses are short. Longer input is a paste.
pub const MAX_KEYS_BYTES: usize = 1024 * 1024;

/// The input of `send-keys`, sent in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeysInput {
    /// Text that is sent unchanged.
    pub literal: Option<String>,
    /// Hexadecimal bytes, one per item.
    pub hex: Vec<String>,
    /// `Enter`, `C-c`, `M-x`, `Up`, …
    pub keys: Vec<String>,
}

impl Process {
    /// Writes to standard input, and then ends it if `eof` is set. At a terminal, `eof` presses
    /// C-d.
    pub fn write(&self, id: &str, data: &[u8], eof: bool) -> Result<Written, ProcessError> {
        let known = self.writable(id)?;
        self.write_to(&known, data, eof)
    }

    /// Presses keys.
    pub fn send_keys(&self, id: &str, keys: KeysInput) -> Result<KeysSent, ProcessError> {
        let known = self.writable(id)?;
        let words = keys.hex.iter().chain(&keys.keys);
        let bytes =
            words.map(String::len).sum::<usize>() + keys.literal.as_ref().map_or(0, String::len);
        fits(bytes, MAX_KEYS_BYTES)?;
        let warnings = self.with_link(&known, |link| {
            link.send_keys(keys.literal, keys.hex, keys.keys)
        })?;
        Ok(KeysSent {
            session_id: known.id(),
            warnings,
        })
    }

    /// Presses Enter.
    pub fn submit(&self, id: &str) -> Result<Written, ProcessError> {
        let known = self.writable(id)?;
        self.write_to(&known, keys::SUBMIT, false)
    }

    /// Sends text as if pasted. `Bracketed::No` sends it as if typed.
    pub fn paste(
        &self,
        id: &str,
        text: &str,
        bracketed: Bracketed,
    ) -> Result<Written, ProcessError> {
        let known = self.writable(id)?;
        fits(text.len(), MAX_INPUT_BYTES)?;
        self.write_to(&known, &keys::paste(text, bracketed), false)
    }

    fn writable(&self, id: &str) -> Result<VisibleSession, ProcessError> {
        let known = self.running(id)?;
        if !known.session.writable {
            return Err(ProcessError::StdinClosed { id: known.id() });
        }
        Ok(known)
    }

    fn write_to(
        &self,
        known: &VisibleSession,
        bytes: &[u8],
        eof: bool,
    ) -> Result<Written, ProcessError> {
        fits(bytes.len(), MAX_INPUT_BYTES)?;
        self.with_link(known, |link| link.write(bytes, eof))?;
        Ok(Written {
            session_id: known.id(),
            bytes: bytes.len(),
            eof,
        })
    }
}

fn fits(bytes: usize, most: usize) -> Result<(), ProcessError> {
    if bytes > most {
        return Err(ProcessError::InputTooLarge { bytes, most });
    }
    Ok(())
}
