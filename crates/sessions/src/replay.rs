//! Draws the last picture of an ended session's terminal from its transcript.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use interlock_plan::PtySize;
use interlock_transcript::screen::{Picture, Screen, Size};
use interlock_transcript::{Cursor, TranscriptReader};

use super::ProcessError;

/// How much of the end is drawn. Full-screen programs begin by clearing the screen.
const LAST_BYTES: u64 = 1 << 20;

pub(super) fn last_picture(directory: &Path) -> Result<Picture, ProcessError> {
    let spool = TranscriptReader::open(directory)?;
    let end = spool.cursor_at(u64::MAX)?;
    let mut cursor = spool.cursor_at(end.offset.saturating_sub(LAST_BYTES))?;
    let mut screen = Screen::new(size(directory).unwrap_or_default());
    // The drawing may begin in the middle: the first whole line is better than half an escape
    // sequence.
    let mut at_line_start = cursor == Cursor::START;
    loop {
        let batch = spool.read_from(cursor, 1 << 16)?;
        if batch.next == cursor {
            return Ok(screen.picture());
        }
        for chunk in &batch.chunks {
            let mut bytes = chunk.bytes.as_slice();
            if !at_line_start {
                let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                    continue;
                };
                bytes = &bytes[end + 1..];
                at_line_start = true;
            }
            // The program that would read the replies is gone.
            let _ = screen.feed(bytes);
        }
        cursor = batch.next;
    }
}

/// Records the size of the terminal for [`last_picture`], which otherwise uses the default size.
pub(super) fn note_size(directory: &Path, size: PtySize) {
    let new = directory.join("size.new");
    let text = format!("{}x{}\n", size.columns, size.rows);
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&new);
    if file.is_ok_and(|mut file| file.write_all(text.as_bytes()).is_ok()) {
        let _ = fs::rename(new, path(directory));
    }
}

fn size(directory: &Path) -> Option<Size> {
    let text = fs::read_to_string(path(directory)).ok()?;
    let (columns, rows) = text.trim_end().split_once('x')?;
    Some(Size {
        columns: columns.parse().ok()?,
        rows: rows.parse().ok()?,
    })
}

fn path(directory: &Path) -> PathBuf {
    directory.join("size")
}
