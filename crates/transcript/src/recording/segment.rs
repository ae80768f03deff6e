//! A pair of files, bytes and their index, and its writer.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::record::{ChunkRecord, RECORD_SIZE};

/// The name of a segment. Names are ordered: the head, then the tail pieces in the order of
/// writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SegmentName {
    Head,
    Tail(u64),
}

impl SegmentName {
    pub fn bytes_path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}.bytes"))
    }

    pub fn index_path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}.index"))
    }

    /// The segment of an index file.
    pub fn from_index(file_name: &str) -> Option<Self> {
        let stem = file_name.strip_suffix(".index")?;
        if stem == "head" {
            return Some(Self::Head);
        }
        stem.strip_prefix("tail-")?.parse().ok().map(Self::Tail)
    }
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Head => out.write_str("head"),
            Self::Tail(number) => write!(out, "tail-{number}"),
        }
    }
}

/// A segment that is being written.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    pub name: SegmentName,
    bytes: File,
    index: File,
    /// The number of bytes that records of this segment name.
    pub length: u64,
    pub records: u64,
    /// The limit of bytes and index together.
    limit: u64,
}

impl SegmentWriter {
    pub fn create(dir: &Path, name: SegmentName, limit: u64) -> io::Result<Self> {
        // The bytes file is created first, because readers look for index files.
        let bytes = create_private(&name.bytes_path(dir))?;
        let index = create_private(&name.index_path(dir))
            .inspect_err(|_| drop(fs::remove_file(name.bytes_path(dir))))?;
        Ok(Self {
            name,
            bytes,
            index,
            length: 0,
            records: 0,
            limit,
        })
    }

    /// Resets the segment to its initial state.
    pub fn empty(&mut self) -> io::Result<()> {
        if self.records > 0 {
            self.index.set_len(0)?;
            self.bytes.set_len(0)?;
        }
        (self.length, self.records) = (0, 0);
        Ok(())
    }

    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The size on disk, including the index.
    pub fn used(&self) -> u64 {
        self.length + self.records * RECORD_SIZE
    }

    /// How many bytes the next chunk can contain.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used() + RECORD_SIZE)
    }

    /// Writes as many bytes as possible and returns their number. The next call overwrites bytes
    /// that no record names yet, so a failure leaves nothing behind.
    pub fn write_bytes(&self, bytes: &[u8], skip: usize) -> (usize, Option<io::Error>) {
        let mut written = skip;
        while written < bytes.len() {
            match self
                .bytes
                .write_at(&bytes[written..], self.length + written as u64)
            {
                Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }

    /// Makes the bytes just written part of the transcript.
    pub fn commit(&mut self, record: &ChunkRecord) -> io::Result<()> {
        self.index
            .write_all_at(&record.encode(), self.records * RECORD_SIZE)?;
        self.records += 1;
        self.length += u64::from(record.length);
        Ok(())
    }
}

/// Deletes a segment's files. The index goes first, because a reader that finds the index must find
/// the bytes.
pub(super) fn remove(dir: &Path, name: SegmentName) {
    let _ = fs::remove_file(name.index_path(dir));
    let _ = fs::remove_file(name.bytes_path(dir));
}

pub(super) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}
