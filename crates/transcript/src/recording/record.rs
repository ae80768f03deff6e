//! One entry of the index: the position of a chunk in the stream and in its file.

/// The source of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChunkStream {
    Stdout,
    Stderr,
    /// A pseudo-terminal has one stream only.
    Pty,
}

impl ChunkStream {
    const CODES: [(Self, u8); 3] = [(Self::Stdout, 1), (Self::Stderr, 2), (Self::Pty, 3)];

    fn code(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Pty => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::CODES
            .iter()
            .find(|(_, known)| *known == code)
            .map(|(stream, _)| *stream)
    }
}

/// The longest chunk. Reading one takes no more memory than this.
pub(super) const MAX_CHUNK: usize = 64 * 1024;

/// The size of an encoded record.
pub(super) const RECORD: usize = 48;
/// The same size for file positions.
pub(super) const RECORD_SIZE: u64 = RECORD as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRecord {
    /// The number of the chunk among all that were kept, including those that the rolling tail
    /// dropped later.
    pub sequence: u64,
    /// The offset of the first byte in the whole stream.
    pub offset: u64,
    /// The offset of the first byte in the segment's file.
    pub position: u64,
    /// The number of newlines in the whole stream before this chunk, kept or not. With it, a binary
    /// search finds every line number.
    pub lines_before: u64,
    pub time_ms: u64,
    pub length: u32,
    pub stream: ChunkStream,
}

impl ChunkRecord {
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    pub fn position_end(&self) -> u64 {
        self.position.saturating_add(u64::from(self.length))
    }

    /// | bytes | 0..8 | 8..16 | 16..24 | 24..32 | 32..40 | 40..44 | 44 | 45..48 |
    /// | --- | --- | --- | --- | --- | --- | --- | --- | --- |
    /// | little-endian | sequence | offset | position | lines before | time ms | length | stream | check |
    pub fn encode(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        out[0..8].copy_from_slice(&self.sequence.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.position.to_le_bytes());
        out[24..32].copy_from_slice(&self.lines_before.to_le_bytes());
        out[32..40].copy_from_slice(&self.time_ms.to_le_bytes());
        out[40..44].copy_from_slice(&self.length.to_le_bytes());
        out[44] = self.stream.code();
        let check = check(&out[..45]);
        out[45..48].copy_from_slice(&check);
        out
    }

    /// Decodes a record. `None` for bytes that no writer finished: torn, zeroed by a crash, or
    /// foreign.
    pub fn decode(bytes: &[u8; RECORD]) -> Option<Self> {
        if check(&bytes[..45]) != bytes[45..48] {
            return None;
        }
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let mut four = [0; 4];
        four.copy_from_slice(&bytes[40..44]);
        let length = u32::from_le_bytes(four);
        if length == 0 || length as usize > MAX_CHUNK {
            return None;
        }
        Some(Self {
            sequence: word(0),
            offset: word(8),
            position: word(16),
            lines_before: word(24),
            time_ms: word(32),
            length,
            stream: ChunkStream::from_code(bytes[44])?,
        })
    }
}

/// FNV-1a folded to three bytes. It detects accidents, not forgery: a process that can write the
/// transcript need not forge it.
fn check(bytes: &[u8]) -> [u8; 3] {
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    let [a, b, c, d] = hash.to_le_bytes();
    [a ^ d, b, c]
}

pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD_A: ChunkRecord = ChunkRecord {
        sequence: 7,
        offset: 1 << 40,
        position: 12,
        lines_before: 99,
        time_ms: 1_700_000_000_000,
        length: 64,
        stream: ChunkStream::Stderr,
    };

    #[test]
    fn a_record_reads_back_as_written() {
        for (stream, _) in ChunkStream::CODES {
            let record = ChunkRecord { stream, ..RECORD_A };
            assert_eq!(ChunkRecord::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn a_record_with_any_bit_flipped_or_no_bits_is_not_a_record() {
        assert_eq!(ChunkRecord::decode(&[0; RECORD]), None);
        let good = RECORD_A.encode();
        for bit in 0..RECORD * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ChunkRecord::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn a_record_cut_at_any_byte_and_filled_with_zeros_is_not_a_record() {
        let good = RECORD_A.encode();
        for cut in 0..RECORD {
            let mut torn = good;
            torn[cut..].fill(0);
            assert!(
                torn == good || ChunkRecord::decode(&torn).is_none(),
                "cut {cut}"
            );
        }
    }
}
