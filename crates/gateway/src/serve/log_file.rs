//! The log of a gateway that was started in the background is a file of the state directory, and callers can
//! make a gateway log: each line of it is written at once, and what is older goes.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A log that has grown to this is kept under another name, in place of the one before, and begun anew.
const MAX_BYTES: u64 = 10 * 1024 * 1024;

/// Keeps the log of this process short, if it lies in the state directory.
pub(super) fn keep_short(state_dir: &Path) {
    let Ok(log) = fs::read_link("/proc/self/fd/2") else {
        return;
    };
    let Ok(state_dir) = state_dir.canonicalize() else {
        return;
    };
    if log.parent() == Some(state_dir.as_path())
        && let Err(error) = begin_anew(&log, MAX_BYTES)
    {
        tracing::warn!(%error, "the log cannot be begun anew");
    }
}

/// The process goes on writing to the same file, so what it holds is copied.
fn begin_anew(log: &Path, most: u64) -> io::Result<()> {
    let found = fs::symlink_metadata(log)?;
    if !found.is_file() || found.len() <= most {
        return Ok(());
    }
    let mut older = log.as_os_str().to_owned();
    older.push(".1");
    fs::copy(log, PathBuf::from(older))?;
    OpenOptions::new().write(true).open(log)?.set_len(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_log_that_is_too_long_is_begun_anew_and_the_one_before_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("gateway.log");
        let mut writer = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let older = || fs::read_to_string(directory.path().join("gateway.log.1"));
        writer.write_all(b"first\n").unwrap();
        begin_anew(&log, 6).unwrap();
        assert!(older().is_err(), "it is short");
        writer.write_all(b"second\n").unwrap();
        begin_anew(&log, 6).unwrap();
        writer.write_all(b"third\n").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "third\n");
        assert_eq!(older().unwrap(), "first\nsecond\n");
    }
}
