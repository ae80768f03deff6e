//! The records that `netd` makes of each connection, and their way into the audit: lines of JSON in
//! one file of the state directory. `netd` appends, and a process that has the store takes them
//! from there.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

/// Name of the file, below the state directory.
const NAME: &str = "network.jsonl";

/// Most bytes of a journal whose records no process takes. Beyond that, no connection is allowed:
/// what cannot be recorded must not happen.
const MOST_BYTES: u64 = 32 << 20;

/// The outcome of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionVerdict {
    Allowed,
    Denied,
    /// The connection was allowed, but could not be made.
    Failed,
}

/// One connection of a sandboxed run, or one lookup of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionRecord {
    pub scope_id: String,
    /// The scope in words, such as `agent main`.
    pub scope: String,
    /// The run that made the connection, if an approver was asked about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The requested name or address.
    pub host: String,
    /// `None` for the lookup of a name that does not exist inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The address that was dialed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    pub verdict: ConnectionVerdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The approver's decision that allowed the connection, if no entry does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_by: Option<String>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub at_ms: u64,
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The file for `netd`, which opens it before it gives up the right to do so.
#[derive(Debug, Clone)]
pub struct ConnectionJournal {
    file: Arc<File>,
}

impl ConnectionJournal {
    /// Returns the path of a state directory's journal.
    pub fn path(state_dir: &Path) -> PathBuf {
        state_dir.join(NAME)
    }

    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// Whether the journal has space for another record.
    pub(crate) fn has_room(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|found| found.len() < MOST_BYTES)
    }

    /// Appends a record completely or not at all.
    pub(crate) fn append(&self, record: &ConnectionRecord) {
        let Ok(mut line) = serde_json::to_vec(record) else {
            return;
        };
        line.push(b'\n');
        if rustix::fs::flock(&*self.file, FlockOperation::LockExclusive).is_ok() {
            let _ = (&*self.file).write_all(&line);
            let _ = rustix::fs::flock(&*self.file, FlockOperation::Unlock);
        }
    }
}

/// The file for the process that moves its records into the audit.
#[derive(Debug)]
pub struct ConnectionJournalReader {
    file: File,
}

impl ConnectionJournalReader {
    /// Opens the journal. `None` if no sandbox of this state directory has had a network yet.
    pub fn open(state_dir: &Path) -> io::Result<Option<Self>> {
        let opened = File::options()
            .read(true)
            .write(true)
            .open(ConnectionJournal::path(state_dir));
        match opened {
            Ok(file) => Ok(Some(Self { file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands every record to `keep`, and removes the records once `keep` has stored them. A line
    /// that is not a record is passed as text, so that nothing is dropped silently.
    pub fn take<E: From<io::Error>>(
        mut self,
        keep: impl FnOnce(Vec<Result<ConnectionRecord, String>>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.file.metadata()?.len() == 0 {
            return Ok(());
        }
        rustix::fs::flock(&self.file, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        let mut text = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().filter(|line| !line.is_empty());
        let records = lines.map(|line| {
            let clipped = || line.chars().take(256).collect();
            serde_json::from_str(line).map_err(|_| clipped())
        });
        keep(records.collect())?;
        self.file.set_len(0)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(host: &str) -> ConnectionRecord {
        ConnectionRecord {
            scope_id: "00".to_owned(),
            scope: "agent main".to_owned(),
            run_id: None,
            host: host.to_owned(),
            port: Some(443),
            address: None,
            verdict: ConnectionVerdict::Denied,
            reason: Some("not in network.allow".to_owned()),
            allowed_by: None,
            bytes_sent: 0,
            bytes_received: 0,
            at_ms: 1,
        }
    }

    #[test]
    fn records_are_taken_once_and_none_is_lost_to_a_failure() {
        let directory = std::env::temp_dir().join(format!("journal-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        assert!(ConnectionJournalReader::open(&directory).unwrap().is_none());
        let journal = ConnectionJournal::open(&ConnectionJournal::path(&directory)).unwrap();
        journal.append(&record("a.test"));
        journal.append(&record("b.test"));
        let take = |keep: bool| {
            let mut taken = Vec::new();
            let reader = ConnectionJournalReader::open(&directory).unwrap().unwrap();
            let result = reader.take(|records| {
                taken.extend(records);
                if keep {
                    Ok(())
                } else {
                    Err(io::Error::other("full"))
                }
            });
            assert_eq!(result.is_ok(), keep);
            taken
        };
        assert_eq!(take(false).len(), 2);
        assert_eq!(take(true), [Ok(record("a.test")), Ok(record("b.test"))]);
        journal.append(&record("c.test"));
        assert_eq!(take(true), [Ok(record("c.test"))]);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
