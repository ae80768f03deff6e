//! What a transcript costs, next to plain files. Run with `cargo bench -p interlock-transcript`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::io::Write as _;

use divan::Bencher;
use divan::counter::BytesCount;
use interlock_transcript::screen::{Screen, Size};
use interlock_transcript::{
    ChunkStream, LineRange, TranscriptLimits, TranscriptReader, TranscriptWriter,
};
use tempfile::TempDir;

const PLACE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/transcript-bench");
const TOTAL: usize = 100_000_000;
/// What a pipe gives at most, and what a program that prints line by line gives.
const CHUNKS: [usize; 3] = [65_536, 4_096, 100];

fn main() {
    divan::main();
    let _ = fs::remove_dir_all(PLACE);
}

/// Returned by each measurement, so that it is deleted outside of it and the disk is not kept busy with old output.
fn place() -> TempDir {
    fs::create_dir_all(PLACE).unwrap();
    tempfile::tempdir_in(PLACE).unwrap()
}

fn writer(limits: TranscriptLimits) -> (TempDir, TranscriptWriter) {
    let place = place();
    let writer = TranscriptWriter::create(&place.path().join("s"), limits).unwrap();
    (place, writer)
}

fn lines(bytes: usize) -> Vec<u8> {
    b"some line of output that a build might print, number n\n"
        .iter()
        .copied()
        .cycle()
        .take(bytes)
        .collect()
}

fn append_all(writer: &mut TranscriptWriter, bytes: &[u8], chunk: usize) {
    for piece in bytes.chunks(chunk) {
        writer.append(ChunkStream::Stdout, piece);
    }
}

#[divan::bench(args = CHUNKS, sample_count = 5, sample_size = 1)]
fn spool_100_mb(bencher: Bencher, chunk: usize) {
    let bytes = lines(TOTAL);
    bencher
        .counter(BytesCount::new(TOTAL))
        .with_inputs(|| writer(TranscriptLimits::default()))
        .bench_local_values(|(place, mut writer)| {
            append_all(&mut writer, &bytes, chunk);
            (place, writer)
        });
}

#[divan::bench(args = CHUNKS, sample_count = 5, sample_size = 1)]
fn plain_file_100_mb(bencher: Bencher, chunk: usize) {
    let bytes = lines(TOTAL);
    bencher
        .counter(BytesCount::new(TOTAL))
        .with_inputs(|| {
            let place = place();
            let file = File::create(place.path().join("f")).unwrap();
            (place, file)
        })
        .bench_local_values(|(place, mut file)| {
            for piece in bytes.chunks(chunk) {
                file.write_all(piece).unwrap();
            }
            (place, file)
        });
}

/// The quota is a tenth of the output: most of it rolls through the tail.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn rolling_tail_100_mb(bencher: Bencher) {
    let bytes = lines(TOTAL);
    let limits = TranscriptLimits {
        max_spool_bytes: TOTAL as u64 / 10,
    };
    bencher
        .counter(BytesCount::new(TOTAL))
        .with_inputs(|| writer(limits))
        .bench_local_values(|(place, mut writer)| {
            append_all(&mut writer, &bytes, 65_536);
            (place, writer)
        });
}

fn written() -> (TempDir, TranscriptReader) {
    let (place, mut writer) = writer(TranscriptLimits::default());
    append_all(&mut writer, &lines(TOTAL), 4_096);
    let reader = TranscriptReader::open(&place.path().join("s")).unwrap();
    (place, reader)
}

#[divan::bench(sample_count = 20)]
fn head_and_tail_of_100_mb(bencher: Bencher) {
    let (_place, reader) = written();
    bencher.bench_local(|| reader.head_and_tail(200_000).unwrap());
}

#[divan::bench(sample_count = 20)]
fn last_200_lines_of_100_mb(bencher: Bencher) {
    let (_place, reader) = written();
    bencher.bench_local(|| reader.by_lines(LineRange::default(), 1 << 20).unwrap());
}

#[divan::bench(sample_count = 20)]
fn create_and_append_once(bencher: Bencher) {
    bencher.with_inputs(place).bench_local_values(|place| {
        let dir = place.path().join("s");
        let mut writer = TranscriptWriter::create(&dir, TranscriptLimits::default()).unwrap();
        writer.append(ChunkStream::Stdout, b"hello\n");
        (place, writer)
    });
}

#[divan::bench(sample_count = 10)]
fn screen_1_mb(bencher: Bencher) {
    let bytes = lines(1_000_000);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .with_inputs(|| Screen::new(Size::default()))
        .bench_local_values(|mut screen| screen.feed(&bytes));
}
