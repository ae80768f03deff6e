//! Remembers the document that was recorded last, in a file beside the database. So an emptied,
//! restored or replaced database is not taken for a first start, and the owner can restore the
//! document.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use crate::audit::AuditHead;

/// The name of the file in the state directory.
pub const RECORDED_NAME: &str = "approvals.recorded";

/// The longest first line of the file, in bytes.
const MAX_LINE: u64 = 200;

/// The audit record that wrote the last document, as the file names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentRecord {
    /// No document was ever recorded in this state directory.
    Never,
    By(AuditHead),
    /// The file exists but cannot be read.
    Unreadable,
}

pub(crate) fn read(state_dir: &Path) -> DocumentRecord {
    let line = || -> io::Result<String> {
        let file = std::fs::File::open(state_dir.join(RECORDED_NAME))?;
        let mut line = String::new();
        BufReader::new(file.take(MAX_LINE)).read_line(&mut line)?;
        Ok(line)
    };
    match line() {
        Ok(line) => line
            .trim_end()
            .parse()
            .map_or(DocumentRecord::Unreadable, DocumentRecord::By),
        Err(error) if error.kind() == io::ErrorKind::NotFound => DocumentRecord::Never,
        Err(_) => DocumentRecord::Unreadable,
    }
}

/// Returns the text of the document that was recorded last.
pub(crate) fn text(state_dir: &Path) -> Option<String> {
    let file = std::fs::read_to_string(state_dir.join(RECORDED_NAME)).ok()?;
    let (_, text) = file.split_once('\n')?;
    Some(text.to_owned())
}

/// Writes the file. The file is on the disk when this returns.
pub(crate) fn write(state_dir: &Path, by: AuditHead, text: &str) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".approvals-recorded-")
        .tempfile_in(state_dir)?;
    file.write_all(format!("{by}\n").as_bytes())?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(state_dir.join(RECORDED_NAME))
        .map_err(|error| error.error)?;
    Ok(())
}
