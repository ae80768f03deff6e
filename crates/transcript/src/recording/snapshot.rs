//! The segments of a transcript at one moment. Their files are held open, so they stay readable
//! when the writer deletes them, and only requested parts are loaded.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::TranscriptError;
use super::record::{ChunkRecord, RECORD, RECORD_SIZE, newlines};
use super::segment::SegmentName;

/// A point in the stream, and the number of newlines before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StreamMark {
    pub offset: u64,
    pub lines: u64,
}

/// The place of a record. `record` may be one past a segment's last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordPlace {
    pub segment: usize,
    pub record: u64,
}

#[derive(Debug)]
pub(super) struct TranscriptSnapshot {
    pub segments: Vec<SegmentView>,
}

impl TranscriptSnapshot {
    pub fn take(dir: &Path) -> Result<Self, TranscriptError> {
        // A further attempt is only needed if the writer rolls through its whole tail in the
        // meantime.
        const ATTEMPTS: usize = 64;
        for _ in 0..ATTEMPTS {
            if let Some(segments) = open_all(dir)? {
                return Ok(Self { segments });
            }
        }
        Err(TranscriptError::Damaged {
            path: dir.to_path_buf(),
            reason: "its files vanish faster than they can be opened".to_string(),
        })
    }

    /// The position after the last kept byte.
    pub fn end(&self) -> Result<StreamMark, TranscriptError> {
        let Some(view) = self.segments.last() else {
            return Ok(StreamMark::default());
        };
        let last = view.record(view.records - 1)?;
        let bytes = view.read(last.position, last.length as usize)?;
        Ok(StreamMark {
            offset: last.end(),
            lines: last.lines_before + newlines(&bytes),
        })
    }

    /// The number of bytes kept at or after `offset`.
    pub fn kept_from(&self, offset: u64) -> Result<u64, TranscriptError> {
        let place = self.locate(offset)?;
        let mut kept = 0;
        for view in self.segments.iter().skip(place.segment) {
            kept += view.record(view.records - 1)?.position_end();
        }
        if let Some(view) = self.segments.get(place.segment) {
            let record = view.record(place.record)?;
            kept -= record.position + offset.saturating_sub(record.offset);
        }
        Ok(kept)
    }

    /// The record that contains `offset`, or the next record after it.
    pub fn locate(&self, offset: u64) -> Result<RecordPlace, TranscriptError> {
        self.first_where(|record| record.end() > offset)
    }

    /// The first record for which `holds` is true. It must be false for all records before that one
    /// and true from there on.
    pub fn first_where(
        &self,
        holds: impl Fn(&ChunkRecord) -> bool,
    ) -> Result<RecordPlace, TranscriptError> {
        for (segment, view) in self.segments.iter().enumerate() {
            if !holds(&view.record(view.records - 1)?) {
                continue;
            }
            let (mut low, mut high) = (0, view.records - 1);
            while low < high {
                let middle = low + (high - low) / 2;
                if holds(&view.record(middle)?) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            return Ok(RecordPlace {
                segment,
                record: low,
            });
        }
        Ok(RecordPlace {
            segment: self.segments.len(),
            record: 0,
        })
    }

    /// The record before a place, if there is one.
    pub fn before(
        &self,
        place: RecordPlace,
    ) -> Result<Option<(&SegmentView, ChunkRecord)>, TranscriptError> {
        let (view, record) = if place.record > 0 {
            (self.segments.get(place.segment), place.record - 1)
        } else {
            let Some(view) = place
                .segment
                .checked_sub(1)
                .and_then(|segment| self.segments.get(segment))
            else {
                return Ok(None);
            };
            (Some(view), view.records - 1)
        };
        match view {
            Some(view) => Ok(Some((view, view.record(record)?))),
            None => Ok(None),
        }
    }
}

/// One segment with at least one record.
#[derive(Debug)]
pub(super) struct SegmentView {
    path: PathBuf,
    bytes: File,
    index: File,
    pub records: u64,
}

impl SegmentView {
    pub fn record(&self, number: u64) -> Result<ChunkRecord, TranscriptError> {
        self.try_record(number)?
            .ok_or_else(|| TranscriptError::Damaged {
                path: self.path.clone(),
                reason: format!("record {number} is not one"),
            })
    }

    fn try_record(&self, number: u64) -> Result<Option<ChunkRecord>, TranscriptError> {
        let mut encoded = [0; RECORD];
        self.index
            .read_exact_at(&mut encoded, number * RECORD_SIZE)
            .map_err(TranscriptError::file("read", &self.path))?;
        Ok(ChunkRecord::decode(&encoded))
    }

    /// Up to `count` records, starting with `first`.
    pub fn records(&self, first: u64, count: u64) -> Result<Vec<ChunkRecord>, TranscriptError> {
        let count = count.min(self.records.saturating_sub(first));
        let mut encoded = vec![0; usize::try_from(count).unwrap_or(0) * RECORD];
        self.index
            .read_exact_at(&mut encoded, first * RECORD_SIZE)
            .map_err(TranscriptError::file("read", &self.path))?;
        let (records, _) = encoded.as_chunks::<RECORD>();
        records
            .iter()
            .map(|record| {
                ChunkRecord::decode(record).ok_or_else(|| TranscriptError::Damaged {
                    path: self.path.clone(),
                    reason: "it holds something that is not a record".to_string(),
                })
            })
            .collect()
    }

    /// Reads exactly `length` bytes.
    pub fn read(&self, position: u64, length: usize) -> Result<Vec<u8>, TranscriptError> {
        let mut bytes = vec![0; length];
        self.bytes
            .read_exact_at(&mut bytes, position)
            .map_err(TranscriptError::file("read", &self.path))?;
        Ok(bytes)
    }

    /// The end of the bytes that records name. Reading ahead stops there.
    pub fn length(&self) -> Result<u64, TranscriptError> {
        Ok(self.record(self.records - 1)?.position_end())
    }
}

/// Opens all segments. `None` if the newest tail piece was deleted before it could be opened: then
/// the listing is outdated.
fn open_all(dir: &Path) -> Result<Option<Vec<SegmentView>>, TranscriptError> {
    let mut newest = SegmentName::Head;
    for entry in fs::read_dir(dir).map_err(TranscriptError::file("list", dir))? {
        let entry = entry.map_err(TranscriptError::file("list", dir))?;
        if let Some(name) = entry.file_name().to_str().and_then(SegmentName::from_index) {
            newest = newest.max(name);
        }
    }
    // Pieces are made in order and deleted oldest first. Going down from the newest one, the first
    // missing piece means that it and all before it are gone, and no piece in between can be
    // overlooked.
    let mut views = Vec::new();
    if let SegmentName::Tail(number) = newest {
        for piece in (1..=number).rev() {
            match open(dir, SegmentName::Tail(piece))? {
                Some(view) => views.push(view),
                None if piece == number => return Ok(None),
                None => break,
            }
        }
    }
    views.extend(open(dir, SegmentName::Head)?);
    views.reverse();
    views.retain(|view| view.records > 0);
    Ok(Some(views))
}

fn open(dir: &Path, name: SegmentName) -> Result<Option<SegmentView>, TranscriptError> {
    let found = |path: &Path| match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TranscriptError::file("open", path)(error)),
    };
    let path = name.index_path(dir);
    let Some(index) = found(&path)? else {
        return Ok(None);
    };
    let Some(bytes) = found(&name.bytes_path(dir))? else {
        return Ok(None);
    };
    let length = |file: &File| {
        file.metadata()
            .map(|metadata| metadata.len())
            .map_err(TranscriptError::file("read", &path))
    };
    // The index is measured first, because the writer puts bytes before records.
    let records = length(&index)? / RECORD_SIZE;
    let available = length(&bytes)?;
    let mut view = SegmentView {
        path: path.clone(),
        bytes,
        index,
        records,
    };
    // An unfinished end, left by a crash, is not part of the transcript.
    while view.records > 0 {
        match view.try_record(view.records - 1)? {
            Some(last) if last.position_end() <= available => break,
            _ => view.records -= 1,
        }
    }
    Ok(Some(view))
}
