//! Transcripts on disk: what was written is what is read, and what is missing is counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use interlock_transcript::{
    Appended, ChunkStream, Cursor, Gap, LineRange, SessionOutcome, ShownOutput, TranscriptError,
    TranscriptLimits, TranscriptReader, TranscriptStatus, TranscriptWriter,
};

use crate::common::{Account, Place, SMALL, numbered, sizes, used, written};

#[test]
fn chunks_keep_their_stream_order_and_offset() {
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, TranscriptLimits::default()).unwrap();
    let reader = TranscriptReader::open(&place.dir).unwrap();
    assert!(
        reader
            .read_from(Cursor::START, 100)
            .unwrap()
            .chunks
            .is_empty()
    );
    for (stream, text) in [
        (ChunkStream::Stdout, "out 1\n"),
        (ChunkStream::Stderr, "err\n"),
        (ChunkStream::Stdout, "out 2\n"),
    ] {
        let appended = writer.append(stream, text.as_bytes());
        assert_eq!(
            appended,
            Appended {
                kept: text.len() as u64,
                lost: 0
            }
        );
    }
    let batch = reader.read_from(Cursor::START, 1000).unwrap();
    let found: Vec<_> = batch
        .chunks
        .iter()
        .map(|chunk| (chunk.sequence, chunk.stream, chunk.offset, &chunk.bytes[..]))
        .collect();
    assert_eq!(
        found,
        [
            (0, ChunkStream::Stdout, 0, &b"out 1\n"[..]),
            (1, ChunkStream::Stderr, 6, b"err\n"),
            (2, ChunkStream::Stdout, 10, b"out 2\n"),
        ]
    );
    assert!(batch.chunks.is_sorted_by_key(|chunk| chunk.time_ms));
    assert_eq!(
        batch.next,
        Cursor {
            offset: 16,
            lines: 3
        }
    );
    let end = reader.read_from(batch.next, 1000).unwrap();
    assert_eq!(
        (end.chunks.len(), end.next, end.gap),
        (0, batch.next, Gap::default())
    );
}

#[test]
fn only_the_owner_can_read_a_spool() {
    let (place, writer, _) = written(SMALL, &numbered(200_000));
    writer.finish(SessionOutcome::Exited { code: 0 }).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&place.dir), 0o700);
    for entry in fs::read_dir(&place.dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_spool_is_not_made_over_another() {
    let (place, _, _) = written(SMALL, b"x");
    let error = TranscriptWriter::create(&place.dir, SMALL).unwrap_err();
    assert!(matches!(error, TranscriptError::File { .. }), "{error}");
}

#[test]
fn without_a_spool_everything_is_counted() {
    let place = Place::new();
    let error = TranscriptWriter::create(&place.dir.join("no/such"), SMALL).unwrap_err();
    let mut writer = TranscriptWriter::keeping_nothing(&place.dir, &error);
    let appended = writer.append(ChunkStream::Stdout, b"a\nb\n");
    assert_eq!(appended, Appended { kept: 0, lost: 4 });
    let fault = writer.fault().unwrap();
    assert_eq!(fault.lost, Gap { bytes: 4, lines: 2 });
    assert_eq!(fault.reason, error.to_string());
    let totals = writer.totals();
    assert_eq!((totals.bytes, totals.lines, totals.lost_bytes), (4, 2, 4));
}

#[test]
fn the_status_says_how_it_ended_and_what_there_was() {
    for outcome in [
        SessionOutcome::Exited { code: 3 },
        SessionOutcome::Signalled { signal: 9 },
        SessionOutcome::TimedOut { signal: Some(15) },
        SessionOutcome::Lost,
    ] {
        let (place, writer, reader) = written(SMALL, b"one\ntwo\n");
        let running = reader.status().unwrap();
        assert_eq!(
            (running.outcome, running.ended_ms),
            (SessionOutcome::Running, None)
        );
        let finished = writer.finish(outcome).unwrap();
        assert_eq!(reader.status().unwrap(), finished);
        assert_eq!((finished.totals.bytes, finished.totals.lines), (8, 2));
        assert!(finished.ended_ms.unwrap() >= finished.started_ms);
        let mut names: Vec<_> = fs::read_dir(&place.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["head.bytes", "head.index", "status.json"]);
    }
}

#[test]
fn a_status_with_an_unknown_field_is_refused() {
    let (place, writer, reader) = written(SMALL, b"x");
    writer.finish(SessionOutcome::Exited { code: 0 }).unwrap();
    let path = TranscriptStatus::path(&place.dir);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen('{', "{\"extra\":1,", 1)).unwrap();
    assert!(matches!(
        reader.status(),
        Err(TranscriptError::Damaged { .. })
    ));
}

#[test]
fn the_quota_keeps_the_head_and_the_tail_and_counts_the_rest() {
    let all = numbered(1_000_000);
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, SMALL).unwrap();
    let reader = TranscriptReader::open(&place.dir).unwrap();
    let mut done = 0;
    for size in sizes() {
        let end = (done + size).min(all.len());
        assert_eq!(writer.append(ChunkStream::Pty, &all[done..end]).lost, 0);
        done = end;
        assert!(used(&place.dir) <= SMALL.max_spool_bytes);
        assert_eq!(used(&place.dir), writer.stored_bytes());
        if done == all.len() {
            break;
        }
    }
    let account = Account::of(&reader, 10_000);
    account.check_against(&all);
    assert_eq!(account.runs.len(), 2);
    assert_eq!(account.runs[0].0, 0);
    assert!(
        account.runs[0].1.len() > 16 * 1024,
        "half of the quota, but for the index"
    );
    assert!(account.runs[1].1.len() > 14 * 1024);
    let totals = writer
        .finish(SessionOutcome::Exited { code: 0 })
        .unwrap()
        .totals;
    assert_eq!(totals.dropped_bytes, account.gap.bytes);
    assert_eq!(totals.lost_bytes, 0);

    let shown = reader.head_and_tail(200_000).unwrap();
    assert_eq!(shown.total_bytes, 1_000_000);
    assert_eq!(shown.omitted_bytes, account.gap.bytes);
    assert_eq!(shown.gone_bytes, account.gap.bytes);
    assert_eq!(shown.omitted_lines, account.gap.lines);
    let shown = reader.head_and_tail(1_000).unwrap();
    assert_eq!((shown.shown_bytes, shown.omitted_bytes), (1_000, 999_000));
    assert_eq!(shown.gone_bytes, account.gap.bytes);
}

#[test]
fn a_cursor_that_the_rolling_tail_overtook_learns_exactly_what_it_missed() {
    let all = numbered(500_000);
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, SMALL).unwrap();
    let reader = TranscriptReader::open(&place.dir).unwrap();
    writer.append(ChunkStream::Stdout, &all[..100_000]);
    let mut account = Account::default();
    let mut cursor = Cursor::START;
    while account.step(&reader, &mut cursor, 1_000) {}
    assert_eq!(cursor.offset, 100_000);
    writer.append(ChunkStream::Stdout, &all[100_000..]);
    while account.step(&reader, &mut cursor, 1_000) {}
    account.check_against(&all);
}

#[test]
fn a_reader_that_follows_gets_every_byte() {
    let all = numbered(3_000_000);
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, TranscriptLimits::default()).unwrap();
    let reader = TranscriptReader::open(&place.dir).unwrap();
    let account = follow(&mut writer, &reader, &all);
    account.check_against(&all);
    assert_eq!(account.gap, Gap::default());
    assert_eq!(account.runs.len(), 1);
}

#[test]
fn a_reader_that_cannot_keep_up_accounts_for_every_byte() {
    let all = numbered(3_000_000);
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, SMALL).unwrap();
    let reader = TranscriptReader::open(&place.dir).unwrap();
    follow(&mut writer, &reader, &all).check_against(&all);
}

/// Writes `all` in one thread and reads it in another.
fn follow(writer: &mut TranscriptWriter, reader: &TranscriptReader, all: &[u8]) -> Account {
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut account = Account::default();
            let mut cursor = Cursor::START;
            while account.end < all.len() as u64 {
                if !account.step(reader, &mut cursor, 30_000) {
                    thread::yield_now();
                }
            }
            account
        });
        let mut done = 0;
        for size in sizes() {
            let end = (done + size).min(all.len());
            writer.append(ChunkStream::Stdout, &all[done..end]);
            done = end;
            if done == all.len() {
                break;
            }
        }
        reading.join().unwrap()
    })
}

#[test]
fn an_unfinished_record_is_ignored_wherever_it_was_torn() {
    let all = numbered(10_000);
    let (place, writer, reader) = written(SMALL, &all);
    drop(writer);
    let complete = Account::of(&reader, 1_000);
    complete.check_against(&all);
    let index_path = place.dir.join("head.index");
    let index = fs::read(&index_path).unwrap();
    for garbage in [vec![0; 48], vec![0xff; 100], index[..47].to_vec()] {
        let mut torn = index.clone();
        torn.extend_from_slice(&garbage);
        fs::write(&index_path, torn).unwrap();
        assert_eq!(Account::of(&reader, 1_000), complete);
    }
    // Torn within the last record: all chunks but the last.
    for cut in 1..48 {
        fs::write(&index_path, &index[..index.len() - cut]).unwrap();
        let account = Account::of(&reader, 1_000);
        assert!(account.end < complete.end);
        account.check_against(&all[..usize::try_from(account.end).unwrap()]);
    }
    // Bytes that did not reach the file, as after a power cut.
    fs::write(&index_path, &index).unwrap();
    let bytes = OpenOptions::new()
        .write(true)
        .open(place.dir.join("head.bytes"))
        .unwrap();
    bytes.set_len(5_000).unwrap();
    let account = Account::of(&reader, 1_000);
    assert!(account.end <= 5_000);
    account.check_against(&all[..usize::try_from(account.end).unwrap()]);
}

#[test]
fn damage_within_the_index_is_said_and_not_guessed_around() {
    let (place, _, reader) = written(SMALL, &numbered(20_000));
    let path = place.dir.join("head.index");
    let mut index = fs::read(&path).unwrap();
    index[50] ^= 1;
    fs::write(&path, index).unwrap();
    let error = reader.read_from(Cursor::START, 100_000).unwrap_err();
    assert!(matches!(error, TranscriptError::Damaged { .. }), "{error}");
}

#[test]
fn a_short_output_is_shown_whole() {
    let (_place, _, reader) = written(SMALL, "grüße\n".as_bytes());
    let shown = reader.head_and_tail(6).unwrap();
    assert_eq!(
        shown,
        ShownOutput {
            text: "grüße\n".to_string(),
            total_bytes: 8,
            shown_bytes: 8,
            ..ShownOutput::default()
        }
    );
}

#[test]
fn a_long_output_shows_head_and_tail_and_splits_no_character() {
    let (_place, _, reader) = written(SMALL, "äöü\näöü\näöü\n".as_bytes());
    let shown = reader.head_and_tail(5).unwrap();
    assert_eq!(
        shown,
        ShownOutput {
            text: "äö\n[12 bytes with 2 line ends left out here]\nöü\n".to_string(),
            total_bytes: 21,
            shown_bytes: 9,
            omitted_bytes: 12,
            omitted_lines: 2,
            gone_bytes: 0,
        }
    );
    assert_eq!(reader.head_and_tail(0).unwrap().omitted_bytes, 21);
}

#[test]
fn invalid_utf8_is_replaced() {
    let (_place, _, reader) = written(SMALL, b"a\xff\xfeb\xe2\x82");
    let shown = reader.head_and_tail(100).unwrap();
    assert_eq!(shown.text, "a\u{fffd}\u{fffd}b\u{fffd}");
    assert_eq!((shown.shown_bytes, shown.omitted_bytes), (6, 0));
}

#[test]
fn many_small_chunks_read_back() {
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, TranscriptLimits::default()).unwrap();
    let all = numbered(20_000);
    for byte in &all {
        writer.append(ChunkStream::Pty, &[*byte]);
    }
    let reader = TranscriptReader::open(&place.dir).unwrap();
    Account::of(&reader, 7).check_against(&all);
    let range = LineRange {
        offset: Some(0),
        limit: None,
    };
    let page = reader.by_lines(range, 1 << 20).unwrap();
    assert_eq!(page.text.as_bytes(), all);
}

#[test]
fn a_foreign_file_in_the_directory_changes_nothing() {
    let all = numbered(5_000);
    let (place, _, reader) = written(SMALL, &all);
    for name in ["tail-x.index", "other.index", "tail-1.bytes", ".index"] {
        let mut file = fs::File::create(place.dir.join(name)).unwrap();
        file.write_all(b"not from Interlock").unwrap();
    }
    Account::of(&reader, 1_000).check_against(&all);
}

#[test]
fn a_cursor_is_found_by_its_offset() {
    let bytes = numbered(200_000);
    let lines = |offset: usize| {
        let newlines = bytes[..offset].split(|byte| *byte == b'\n').count() - 1;
        newlines as u64
    };
    let (_place, _writer, reader) = written(SMALL, &bytes);
    let whole = Account::of(&reader, 4096);
    assert!(whole.gap.bytes > 0, "nothing was given up");
    for (start, run) in &whole.runs {
        for step in (0..run.len()).step_by(997) {
            let offset = usize::try_from(*start).unwrap() + step;
            let cursor = reader.cursor_at(offset as u64).unwrap();
            let expected = Cursor {
                offset: offset as u64,
                lines: lines(offset),
            };
            assert_eq!(cursor, expected);
        }
    }
    let end = Cursor {
        offset: bytes.len() as u64,
        lines: lines(bytes.len()),
    };
    assert_eq!(reader.cursor_at(bytes.len() as u64).unwrap(), end);
    assert_eq!(reader.cursor_at(u64::MAX).unwrap(), end);
}
