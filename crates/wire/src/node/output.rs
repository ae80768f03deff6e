//! The output of a run on a node: how much of it is kept, and how its end is reported.

/// How many bytes of both streams together are kept.
pub const MAX_OUTPUT_BYTES: usize = 200_000;
/// How many characters of the end an event contains.
pub const EVENT_OUTPUT_CHARS: usize = 20_000;
/// The mark in place of dropped output.
pub const TRUNCATED: &str = "... (truncated)";

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// The output as it arrives. The first bytes of both streams together are kept.
#[derive(Debug, Clone, Default)]
pub struct RunOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    dropped: u64,
}

impl RunOutput {
    pub fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let kept = self.stdout.len() + self.stderr.len();
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept).min(bytes.len());
        let (keep, drop) = bytes.split_at(room);
        match stream {
            OutputStream::Stdout => self.stdout.extend_from_slice(keep),
            OutputStream::Stderr => self.stderr.extend_from_slice(keep),
        }
        self.dropped += drop.len() as u64;
    }

    /// Counts bytes that were written and cannot be had any more.
    pub fn lose(&mut self, bytes: u64) {
        self.dropped = self.dropped.saturating_add(bytes);
    }

    /// How many bytes were not kept.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Both streams as text. If output was dropped, the mark is appended to stderr, or to stdout if
    /// stderr is blank.
    pub fn finish(self) -> (String, String) {
        let mut stdout = String::from_utf8_lossy(&self.stdout).into_owned();
        let mut stderr = String::from_utf8_lossy(&self.stderr).into_owned();
        if self.dropped > 0 {
            let marked = if stderr.trim().is_empty() {
                &mut stdout
            } else {
                &mut stderr
            };
            marked.push('\n');
            marked.push_str(TRUNCATED);
        }
        (stdout, stderr)
    }
}

/// The output for an event: both streams and the error, one below the other, shortened to the end.
/// Characters are counted in UTF-16, as other programs of the protocol count them.
pub fn event_output(stdout: &str, stderr: &str, error: Option<&str>) -> String {
    let parts = [stdout, stderr, error.unwrap_or_default()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let joined = parts.join("\n");
    let text = joined.trim();
    let mut room = EVENT_OUTPUT_CHARS;
    let mut start = text.len();
    for (index, character) in text.char_indices().rev() {
        match room.checked_sub(character.len_utf16()) {
            Some(left) => room = left,
            None => return format!("{TRUNCATED} {}", &text[start..]),
        }
        start = index;
    }
    text.to_owned()
}
