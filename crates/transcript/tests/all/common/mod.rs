//! What the transcript tests share.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use interlock_transcript::{
    ChunkStream, Cursor, Gap, TranscriptLimits, TranscriptReader, TranscriptWriter,
};

/// A place for one transcript. Gone when dropped.
pub struct Place {
    _temp: tempfile::TempDir,
    pub dir: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("transcript");
        Self { _temp: temp, dir }
    }
}

/// Everything a transcript gives from its start: what came, where, and what did not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Runs of bytes without a gap, by offset.
    pub runs: Vec<(u64, Vec<u8>)>,
    pub gap: Gap,
    pub end: u64,
}

impl Account {
    pub fn of(reader: &TranscriptReader, max_bytes: usize) -> Self {
        let mut account = Self::default();
        let mut cursor = Cursor::START;
        while account.step(reader, &mut cursor, max_bytes) {}
        account
    }

    /// Reads once; `false` when there was nothing.
    pub fn step(
        &mut self,
        reader: &TranscriptReader,
        cursor: &mut Cursor,
        max_bytes: usize,
    ) -> bool {
        let batch = reader.read_from(*cursor, max_bytes).unwrap();
        assert_eq!(cursor.offset, self.end);
        self.end += batch.gap.bytes;
        self.gap.bytes += batch.gap.bytes;
        self.gap.lines += batch.gap.lines;
        for chunk in &batch.chunks {
            assert_eq!(chunk.offset, self.end, "chunks follow each other");
            match self.runs.last_mut() {
                Some((start, run)) if *start + run.len() as u64 == chunk.offset => {
                    run.extend_from_slice(&chunk.bytes);
                }
                _ => self.runs.push((chunk.offset, chunk.bytes.clone())),
            }
            self.end += chunk.bytes.len() as u64;
        }
        assert_eq!(
            batch.next.offset, self.end,
            "the cursor covers each byte once"
        );
        let moved = batch.next != *cursor;
        *cursor = batch.next;
        moved
    }

    pub fn kept(&self) -> u64 {
        self.runs.iter().map(|(_, run)| run.len() as u64).sum()
    }

    /// Every byte is either here, and is the right one, or counted as missing.
    pub fn check_against(&self, all: &[u8]) {
        assert_eq!(self.end, all.len() as u64);
        let mut lines = newlines(all);
        for (start, run) in &self.runs {
            let start = usize::try_from(*start).unwrap();
            assert!(
                all[start..start + run.len()] == run[..],
                "other bytes at {start}"
            );
            lines -= newlines(run);
        }
        assert_eq!(self.kept() + self.gap.bytes, all.len() as u64);
        assert_eq!(self.gap.lines, lines, "newlines in gaps");
    }
}

pub fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// A stream that every test can make again: numbered lines.
pub fn numbered(bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 32);
    let mut number = 0_u64;
    while out.len() < bytes {
        out.extend_from_slice(format!("line {number} of the stream\n").as_bytes());
        number += 1;
    }
    out.truncate(bytes);
    out
}

/// Sizes that look like what pipes give: from one byte to more than a pipe holds.
pub fn sizes() -> impl Iterator<Item = usize> {
    let mut state = 0x2545_f491_u32;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let bound = 1 << (state % 17);
        1 + (state >> 8) as usize % bound
    })
}

/// On disk, index included.
pub fn used(dir: &Path) -> u64 {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "bytes" || extension == "index")
        })
        .map(|entry| entry.metadata().unwrap().len())
        .sum()
}

pub const SMALL: TranscriptLimits = TranscriptLimits {
    max_spool_bytes: 64 * 1024,
};

/// A transcript that holds `bytes`, appended in pieces.
pub fn written(
    limits: TranscriptLimits,
    bytes: &[u8],
) -> (Place, TranscriptWriter, TranscriptReader) {
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, limits).unwrap();
    let mut done = 0;
    for size in sizes() {
        let end = (done + size).min(bytes.len());
        let appended = writer.append(ChunkStream::Stdout, &bytes[done..end]);
        assert_eq!(appended.lost, 0);
        done = end;
        if done == bytes.len() {
            break;
        }
    }
    let reader = TranscriptReader::open(&place.dir).unwrap();
    (place, writer, reader)
}
