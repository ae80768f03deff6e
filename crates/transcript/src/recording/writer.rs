//! Writes a transcript: never blocks on a reader, never fails, never exceeds its quota.

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::record::{ChunkRecord, ChunkStream, MAX_CHUNK, RECORD_SIZE, newlines};
use super::segment::{self, SegmentName, SegmentWriter};
use super::status::{self, SessionOutcome, Totals, TranscriptStatus};
use super::{Gap, TranscriptError};
use crate::session_record::SessionRecord;

/// The disk quota of one transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptLimits {
    /// The quota for bytes and index together. One half is for the head, the other for the rolling
    /// tail.
    pub max_spool_bytes: u64,
}

impl TranscriptLimits {
    /// The least quota. With less, the index alone would fill it.
    pub const MIN_SPOOL_BYTES: u64 = 16 * 1024;
    /// The tail rolls by this fraction of its size.
    const TAIL_PIECES: u64 = 16;

    fn quota(self) -> u64 {
        self.max_spool_bytes.max(Self::MIN_SPOOL_BYTES)
    }

    fn head(self) -> u64 {
        self.quota() / 2
    }

    fn tail(self) -> u64 {
        self.quota() - self.head()
    }

    fn piece(self) -> u64 {
        self.tail() / Self::TAIL_PIECES
    }
}

impl Default for TranscriptLimits {
    /// `tools.exec.maxSpoolBytes`
    fn default() -> Self {
        Self {
            max_spool_bytes: 1 << 30,
        }
    }
}

/// The result of one `append`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    pub kept: u64,
    pub lost: u64,
}

/// The first of several consecutive failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub reason: String,
    pub time_ms: u64,
    /// The loss so far in these consecutive failures.
    pub lost: Gap,
}

/// The only writer of a session's transcript. Every `append` is in the files when it returns, so
/// readers in other processes see it at once. Nothing is synced to disk.
#[derive(Debug)]
pub struct TranscriptWriter {
    dir: PathBuf,
    limits: TranscriptLimits,
    /// `None` if no file could be made: then all bytes are counted as lost.
    current: Option<SegmentWriter>,
    /// The full pieces of the tail, oldest first.
    full_tail: VecDeque<FullPiece>,
    next_tail: u64,
    next_sequence: u64,
    started_ms: u64,
    last_time_ms: u64,
    totals: Totals,
    fault: Option<Fault>,
    head_used: u64,
    session: Option<SessionRecord>,
}

#[derive(Debug)]
struct FullPiece {
    name: SegmentName,
    used: u64,
    length: u64,
}

impl TranscriptWriter {
    /// Makes the directory, which must not exist yet, and its files, all for the owner only.
    pub fn create(dir: &Path, limits: TranscriptLimits) -> Result<Self, TranscriptError> {
        let mut writer = Self::prepare(dir, limits)?;
        writer.begin(None)?;
        Ok(writer)
    }

    /// Makes the directory and the files ahead of time, for a session that begins later.
    pub fn prepare(dir: &Path, limits: TranscriptLimits) -> Result<Self, TranscriptError> {
        DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .map_err(TranscriptError::file("create", dir))?;
        let head = SegmentWriter::create(dir, SegmentName::Head, limits.head())
            .map_err(TranscriptError::file("create the head in", dir))?;
        status::hold_reserve(dir);
        Ok(Self::with(dir, limits, Some(head)))
    }

    /// Reuses the files of an unneeded transcript that never had a status for another session,
    /// whose directory must not exist. This is cheaper than new files. `None` if that fails; then
    /// the files are gone.
    pub fn made_new(mut self, dir: &Path, limits: TranscriptLimits) -> Option<Self> {
        let is_plain = self.next_tail == 1 && self.session.is_none() && self.fault.is_none();
        let mut head = self.current.take().filter(|_| is_plain);
        let emptied = head.as_mut().is_some_and(|head| head.empty().is_ok());
        let here = rustix::fs::CWD;
        let only_new = rustix::fs::RenameFlags::NOREPLACE;
        if !emptied || rustix::fs::renameat_with(here, &self.dir, here, dir, only_new).is_err() {
            self.remove();
            return None;
        }
        let mut writer = Self::with(dir, limits, head);
        writer.set_limits(limits);
        Some(writer)
    }

    /// Removes an unneeded transcript.
    pub fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }

    /// Sets the start of the session, if it differs from the creation of its files.
    pub fn set_started(&mut self, started_ms: u64) {
        self.started_ms = started_ms;
    }

    /// Writes the first status. From then on the session can be read.
    pub fn begin(&mut self, session: Option<SessionRecord>) -> Result<(), TranscriptError> {
        self.session = session;
        self.status(SessionOutcome::Running).write(&self.dir)
    }

    /// Changes the record of the session.
    pub fn describe(
        &mut self,
        change: impl FnOnce(&mut SessionRecord),
    ) -> Result<(), TranscriptError> {
        if let Some(session) = &mut self.session {
            change(session);
        }
        self.status(SessionOutcome::Running).write(&self.dir)
    }

    pub fn session(&self) -> Option<&SessionRecord> {
        self.session.as_ref()
    }

    /// Changes the quota. To reach a smaller one, the oldest pieces of the tail are dropped; the
    /// written head stays.
    pub fn set_limits(&mut self, limits: TranscriptLimits) {
        self.limits = limits;
        if let Some(current) = &mut self.current {
            current.set_limit(match current.name {
                SegmentName::Head => limits.head(),
                SegmentName::Tail(_) => limits.piece(),
            });
        }
        while self.stored_bytes() > limits.quota() && self.drop_oldest() {}
    }

    /// A writer for a session that must run although `create` failed, for example on a full disk.
    /// It keeps nothing and counts everything.
    pub fn keeping_nothing(dir: &Path, reason: &TranscriptError) -> Self {
        let mut writer = Self::with(dir, TranscriptLimits::default(), None);
        writer.fault = Some(Fault {
            reason: reason.to_string(),
            time_ms: writer.started_ms,
            lost: Gap::default(),
        });
        writer
    }

    fn with(dir: &Path, limits: TranscriptLimits, current: Option<SegmentWriter>) -> Self {
        let now = now_ms();
        Self {
            dir: dir.to_path_buf(),
            limits,
            current,
            full_tail: VecDeque::new(),
            next_tail: 1,
            next_sequence: 0,
            started_ms: now,
            last_time_ms: now,
            totals: Totals::default(),
            fault: None,
            head_used: 0,
            session: None,
        }
    }

    /// Appends the session's output. Returns after a few writes to files at most. Bytes that cannot
    /// be written are counted as lost, and the next call tries again.
    pub fn append(&mut self, stream: ChunkStream, bytes: &[u8]) -> Appended {
        self.last_time_ms = self.last_time_ms.max(now_ms());
        let mut done = 0;
        while done < bytes.len() {
            match self.append_chunk(stream, &bytes[done..]) {
                Ok(count) => {
                    done += count;
                    self.fault = None;
                }
                Err(PartlyRefused { kept, error }) => {
                    done += kept;
                    self.lose(&bytes[done..], error.as_ref());
                    break;
                }
            }
        }
        Appended {
            kept: done as u64,
            lost: (bytes.len() - done) as u64,
        }
    }

    /// Sets the record of the session for the next write of its status.
    pub fn set_session(&mut self, session: SessionRecord) {
        self.session = Some(session);
    }

    /// Writes the final status, including lost and dropped bytes.
    pub fn finish(mut self, outcome: SessionOutcome) -> Result<TranscriptStatus, TranscriptError> {
        self.last_time_ms = self.last_time_ms.max(now_ms());
        let status = TranscriptStatus {
            ended_ms: Some(self.last_time_ms),
            ..self.status(outcome)
        };
        status.write(&self.dir)?;
        status::release_reserve(&self.dir);
        Ok(status)
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Why the newest bytes could not be kept, if they could not.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The size on disk, including the index, for a limit over all sessions.
    pub fn stored_bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, SegmentWriter::used);
        self.head_used + self.full_tail.iter().map(|piece| piece.used).sum::<u64>() + current
    }

    fn status(&self, outcome: SessionOutcome) -> TranscriptStatus {
        TranscriptStatus {
            outcome,
            started_ms: self.started_ms,
            ended_ms: None,
            totals: self.totals,
            session: self.session.clone(),
        }
    }

    /// Writes the longest chunk that fits, and returns its length.
    fn append_chunk(&mut self, stream: ChunkStream, bytes: &[u8]) -> Result<usize, PartlyRefused> {
        self.make_room()?;
        let Some(segment) = self.current.as_mut() else {
            return Err(PartlyRefused::default());
        };
        let room = usize::try_from(segment.room()).unwrap_or(usize::MAX);
        let chunk = &bytes[..bytes.len().min(room).min(MAX_CHUNK)];
        let mut written = 0;
        let mut refusal = None;
        while written < chunk.len() {
            let Some(segment) = self.current.as_ref() else {
                break;
            };
            let (count, error) = segment.write_bytes(chunk, written);
            written = count;
            if let Some(error) = error {
                if status::is_full(&error) && self.drop_oldest() {
                    continue;
                }
                refusal = Some(error);
                break;
            }
        }
        let kept = self.commit(stream, &chunk[..written])?;
        match refusal {
            None => Ok(kept),
            Some(error) => Err(PartlyRefused {
                kept,
                error: Some(error),
            }),
        }
    }

    fn commit(&mut self, stream: ChunkStream, chunk: &[u8]) -> Result<usize, PartlyRefused> {
        if chunk.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(segment) = self.current.as_mut() else {
                return Err(PartlyRefused::default());
            };
            let record = ChunkRecord {
                sequence: self.next_sequence,
                offset: self.totals.bytes,
                position: segment.length,
                lines_before: self.totals.lines,
                time_ms: self.last_time_ms,
                length: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
                stream,
            };
            match segment.commit(&record) {
                Ok(()) => break,
                Err(error) if status::is_full(&error) && self.drop_oldest() => {}
                Err(error) => {
                    return Err(PartlyRefused {
                        kept: 0,
                        error: Some(error),
                    });
                }
            }
        }
        self.next_sequence += 1;
        self.totals.bytes += chunk.len() as u64;
        self.totals.lines += newlines(chunk);
        Ok(chunk.len())
    }

    /// Ensures room for at least one byte in the current segment. Rolls the tail if the segment is
    /// full.
    fn make_room(&mut self) -> Result<(), PartlyRefused> {
        let Some(current) = self.current.as_ref() else {
            return Err(PartlyRefused::default());
        };
        if current.room() > 0 {
            return Ok(());
        }
        // Less than the tail's half, if the head already took more than its own half.
        let tail = self
            .limits
            .quota()
            .saturating_sub(self.head_used)
            .clamp(self.limits.piece(), self.limits.tail());
        let in_tail: u64 = self.full_tail.iter().map(|piece| piece.used).sum::<u64>()
            + match current.name {
                SegmentName::Head => 0,
                SegmentName::Tail(_) => current.used(),
            };
        let mut over = (in_tail + self.limits.piece()).saturating_sub(tail);
        while over > 0 {
            let before = self.full_tail.front().map_or(0, |piece| piece.used);
            if !self.drop_oldest() {
                break;
            }
            over = over.saturating_sub(before);
        }
        let name = SegmentName::Tail(self.next_tail);
        let next = loop {
            match SegmentWriter::create(&self.dir, name, self.limits.piece()) {
                Ok(next) => break next,
                Err(error) if status::is_full(&error) && self.drop_oldest() => {}
                Err(error) => {
                    return Err(PartlyRefused {
                        kept: 0,
                        error: Some(error),
                    });
                }
            }
        };
        self.next_tail += 1;
        if let Some(full) = self.current.replace(next) {
            match full.name {
                SegmentName::Head => self.head_used = full.used(),
                SegmentName::Tail(_) => self.full_tail.push_back(FullPiece {
                    name: full.name,
                    used: full.used(),
                    length: full.length,
                }),
            }
        }
        Ok(())
    }

    /// Drops the oldest full piece of the tail; `false` if there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.full_tail.pop_front() else {
            return false;
        };
        segment::remove(&self.dir, oldest.name);
        self.totals.dropped_bytes += oldest.length;
        true
    }

    fn lose(&mut self, bytes: &[u8], error: Option<&io::Error>) {
        let gap = Gap {
            bytes: bytes.len() as u64,
            lines: newlines(bytes),
        };
        self.totals.bytes += gap.bytes;
        self.totals.lines += gap.lines;
        self.totals.lost_bytes += gap.bytes;
        let time_ms = self.last_time_ms;
        let fault = self.fault.get_or_insert_with(|| Fault {
            reason: error.map_or_else(|| "no spool".to_string(), ToString::to_string),
            time_ms,
            lost: Gap::default(),
        });
        fault.lost.bytes += gap.bytes;
        fault.lost.lines += gap.lines;
    }
}

/// A chunk of which a part was kept before its file refused the rest.
#[derive(Debug, Default)]
struct PartlyRefused {
    kept: usize,
    error: Option<io::Error>,
}

const _: () = assert!(
    TranscriptLimits::MIN_SPOOL_BYTES / 2 / TranscriptLimits::TAIL_PIECES > RECORD_SIZE * 2,
    "the smallest piece of a tail holds a record and some bytes"
);

pub fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
