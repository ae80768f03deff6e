//! Polling: every reader gets every byte once, whatever the others do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{Place, newlines, numbered};
use interlock_transcript::{
    ChunkStream, Cursor, DEFAULT_POLL_CHARS, Polls, SessionOutcome, TranscriptLimits,
    TranscriptReader, TranscriptWriter,
};

fn transcript(limits: TranscriptLimits) -> (Place, TranscriptWriter, TranscriptReader) {
    let place = Place::new();
    let writer = TranscriptWriter::create(&place.dir, limits).unwrap();
    let reader = TranscriptReader::open(&place.dir).unwrap();
    (place, writer, reader)
}

#[test]
fn a_reader_steals_nothing_from_another() {
    let (_place, mut writer, reader) = transcript(TranscriptLimits::default());
    let mut polls = Polls::default();
    let mut text = |key: &str| {
        polls
            .poll(key, &reader, DEFAULT_POLL_CHARS)
            .unwrap()
            .shown
            .text
    };
    assert_eq!(text("agent:main:main"), "");
    writer.append(ChunkStream::Stdout, b"one\n");
    assert_eq!(text("agent:main:main"), "one\n");
    writer.append(ChunkStream::Stderr, b"two\n");
    assert_eq!(text("agent:other:main"), "one\ntwo\n");
    assert_eq!(text("agent:main:main"), "two\n");
    assert_eq!(text("agent:main:main"), "");
    assert_eq!(text("agent:other:main"), "");
}

#[test]
fn a_character_on_its_way_is_left_for_the_next_poll() {
    let (_place, mut writer, reader) = transcript(TranscriptLimits::default());
    let mut polls = Polls::default();
    let euro = "€".as_bytes();
    writer.append(ChunkStream::Stdout, &[b"a", &euro[..1]].concat());
    assert_eq!(polls.poll("k", &reader, 100).unwrap().shown.text, "a");
    writer.append(ChunkStream::Stdout, &euro[1..2]);
    let waiting = polls.poll("k", &reader, 100).unwrap().shown;
    assert_eq!((waiting.text.as_str(), waiting.total_bytes), ("", 0));
    writer.append(ChunkStream::Stdout, &[&euro[2..], b"b\xe2"].concat());
    assert_eq!(polls.poll("k", &reader, 100).unwrap().shown.text, "€b");
    writer.finish(SessionOutcome::Exited { code: 0 }).unwrap();
    let last = polls.poll("k", &reader, 100).unwrap();
    assert_eq!(last.shown.text, "\u{fffd}", "nothing more will come");
    assert!(last.status.outcome.is_final());
    assert_eq!(polls.poll("k", &reader, 100).unwrap().shown.total_bytes, 0);
}

#[test]
fn what_a_poll_leaves_out_is_counted_and_not_given_again() {
    let (_place, mut writer, reader) = transcript(TranscriptLimits {
        max_spool_bytes: 64 * 1024,
    });
    let mut polls = Polls::default();
    let all = numbered(900_000);
    let (mut total, mut omitted_lines) = (0, 0);
    let mut shown_lines = 0;
    for part in all.chunks(90_000) {
        for chunk in part.chunks(1_000) {
            writer.append(ChunkStream::Stdout, chunk);
        }
        let shown = polls.poll("k", &reader, 1_000).unwrap().shown;
        assert_eq!(shown.total_bytes, shown.shown_bytes + shown.omitted_bytes);
        assert_eq!(shown.shown_bytes, 1_000);
        total += shown.total_bytes;
        omitted_lines += shown.omitted_lines;
        // Where the beginning is gone already, all that is shown comes from the end.
        let head = if shown.text.starts_with('[') { 0 } else { 500 };
        let tail = 1_000 - head;
        shown_lines += newlines(&part[..head]) + newlines(&part[part.len() - tail..]);
    }
    assert_eq!(total, 900_000);
    assert_eq!(omitted_lines + shown_lines, newlines(&all));
}

#[test]
fn cursors_survive_being_stored() {
    let (_place, mut writer, reader) = transcript(TranscriptLimits::default());
    let mut polls = Polls::default();
    writer.append(ChunkStream::Stdout, b"seen\n");
    polls.poll("k", &reader, 100).unwrap();
    let stored = serde_json::to_string(&polls).unwrap();
    let mut again: Polls = serde_json::from_str(&stored).unwrap();
    assert_eq!(again, polls);
    assert_eq!(
        again.cursor("k"),
        Cursor {
            offset: 5,
            lines: 1
        }
    );
    writer.append(ChunkStream::Stdout, b"new\n");
    assert_eq!(again.poll("k", &reader, 100).unwrap().shown.text, "new\n");
}

#[test]
fn the_readers_remembered_are_limited_to_the_latest() {
    let (_place, mut writer, reader) = transcript(TranscriptLimits::default());
    writer.append(ChunkStream::Stdout, b"x");
    let mut polls = Polls::default();
    for number in 0..300 {
        polls.poll(&format!("k{number}"), &reader, 10).unwrap();
    }
    assert_eq!(polls.cursor("k299").offset, 1);
    assert_eq!(polls.cursor("k44").offset, 1);
    assert_eq!(polls.cursor("k43"), Cursor::START);
}
