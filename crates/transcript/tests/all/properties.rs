//! Whatever is appended, in whatever pieces, is read back or counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{Account, Place, newlines, used};
use interlock_transcript::{
    ChunkStream, Cursor, LineRange, Polls, SessionOutcome, ShownOutput, TranscriptLimits,
    TranscriptReader, TranscriptWriter,
};
use proptest::prelude::*;

type Append = (ChunkStream, Vec<u8>);

fn stream() -> impl Strategy<Value = ChunkStream> {
    prop_oneof![
        Just(ChunkStream::Stdout),
        Just(ChunkStream::Stderr),
        Just(ChunkStream::Pty)
    ]
}

/// Any bytes, with more newlines and more incomplete characters than chance would give.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(
            prop_oneof![any::<u8>(), Just(b'\n'), Just(0xe2), Just(0x82)],
            0..400
        ),
        "[a-z\\n€𝄞]{0,200}".prop_map(String::into_bytes),
        (0_usize..30_000).prop_map(|length| vec![b'.'; length]),
    ]
}

fn appends() -> impl Strategy<Value = Vec<Append>> {
    prop::collection::vec((stream(), bytes()), 0..40)
}

fn written(
    limits: TranscriptLimits,
    appends: &[Append],
) -> (Place, TranscriptWriter, TranscriptReader) {
    let place = Place::new();
    let mut writer = TranscriptWriter::create(&place.dir, limits).unwrap();
    for (stream, bytes) in appends {
        let appended = writer.append(*stream, bytes);
        assert_eq!((appended.kept, appended.lost), (bytes.len() as u64, 0));
    }
    let reader = TranscriptReader::open(&place.dir).unwrap();
    (place, writer, reader)
}

fn joined(appends: &[Append]) -> Vec<u8> {
    appends
        .iter()
        .flat_map(|(_, bytes)| bytes.clone())
        .collect()
}

/// Head and tail lengths, from the text and the counts: the one pair that fits both.
fn parts(shown: &ShownOutput, all: &str) -> (usize, usize) {
    let note = format!(
        "[{} bytes with {} line ends left out here]\n",
        shown.omitted_bytes, shown.omitted_lines
    );
    let Some((head, tail)) = shown.text.split_once(&note) else {
        assert_eq!(shown.text, all);
        return (all.len(), 0);
    };
    let shown_bytes = usize::try_from(shown.shown_bytes).unwrap();
    // The note starts a line of its own, so a newline may have been put before it.
    let head = if head.len() + tail.len() == shown_bytes {
        head
    } else {
        head.strip_suffix('\n').unwrap()
    };
    assert_eq!(head.len() + tail.len(), shown_bytes);
    assert!(all.starts_with(head) && all.ends_with(tail));
    (head.len(), tail.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_stream_reads_back_as_the_same_bytes_in_order(appends in appends(), step in 500_usize..5_000) {
        let (_place, _writer, reader) = written(TranscriptLimits::default(), &appends);
        let mut cursor = Cursor::START;
        let mut found: Vec<Append> = Vec::new();
        let mut sequence = 0;
        loop {
            let batch = reader.read_from(cursor, step).unwrap();
            prop_assert!(batch.gap.is_empty());
            if batch.chunks.is_empty() {
                break;
            }
            for chunk in batch.chunks {
                prop_assert_eq!(chunk.sequence, sequence);
                sequence += 1;
                found.push((chunk.stream, chunk.bytes));
            }
            cursor = batch.next;
        }
        for wanted in [ChunkStream::Stdout, ChunkStream::Stderr, ChunkStream::Pty] {
            let only = |list: &[Append]| -> Vec<u8> {
                list.iter()
                    .filter(|(stream, _)| *stream == wanted)
                    .flat_map(|(_, bytes)| bytes.clone())
                    .collect()
            };
            prop_assert!(only(&found) == only(&appends));
        }
        prop_assert!(joined(&found) == joined(&appends));
    }

    #[test]
    fn within_any_quota_every_byte_is_kept_or_counted(
        appends in appends(),
        quota in 0_u64..200_000,
        step in 500_usize..5_000,
    ) {
        let all = joined(&appends);
        let limits = TranscriptLimits { max_spool_bytes: quota };
        let (place, writer, reader) = written(limits, &appends);
        let most = quota.max(TranscriptLimits::MIN_SPOOL_BYTES);
        prop_assert!(used(&place.dir) <= most, "{} of {most}", used(&place.dir));
        let account = Account::of(&reader, step);
        account.check_against(&all);
        // A gap only where there was no room: the head and most of the tail are full then.
        if !account.gap.is_empty() {
            prop_assert!(used(&place.dir) > most * 3 / 4);
            prop_assert_eq!(account.runs.len(), 2);
        }
        let totals = writer.finish(SessionOutcome::Exited { code: 0 }).unwrap().totals;
        prop_assert_eq!(totals.bytes, all.len() as u64);
        prop_assert_eq!(totals.lines, newlines(&all));
        prop_assert_eq!(totals.dropped_bytes, account.gap.bytes);
        prop_assert_eq!(Account::of(&reader, step), account);
    }

    #[test]
    fn head_and_tail_are_exact_for_text(
        texts in prop::collection::vec("[a-z\\n€𝄞]{0,200}", 0..20),
        max_chars in 0_usize..1_500,
    ) {
        let appends: Vec<Append> = texts
            .iter()
            .map(|text| (ChunkStream::Stdout, text.as_bytes().to_vec()))
            .collect();
        let all = texts.concat();
        let (_place, _writer, reader) = written(TranscriptLimits::default(), &appends);
        let shown = reader.head_and_tail(max_chars).unwrap();
        prop_assert_eq!(shown.total_bytes, all.len() as u64);
        prop_assert_eq!(shown.shown_bytes + shown.omitted_bytes, shown.total_bytes);
        prop_assert_eq!(shown.gone_bytes, 0);
        let (head, tail) = parts(&shown, &all);
        let omitted = &all[head..all.len() - tail];
        prop_assert_eq!(shown.omitted_bytes, omitted.len() as u64);
        prop_assert_eq!(shown.omitted_lines, newlines(omitted.as_bytes()));
        let shown_chars = all.chars().count() - omitted.chars().count();
        prop_assert_eq!(shown_chars, max_chars.min(all.chars().count()));
    }

    #[test]
    fn head_and_tail_add_up_for_any_bytes_and_quota(
        appends in appends(),
        quota in 0_u64..100_000,
        max_chars in 0_usize..3_000,
    ) {
        let all = joined(&appends);
        let (_place, _writer, reader) = written(TranscriptLimits { max_spool_bytes: quota }, &appends);
        let gap = Account::of(&reader, 4_096).gap;
        let shown = reader.head_and_tail(max_chars).unwrap();
        prop_assert_eq!(shown.total_bytes, all.len() as u64);
        prop_assert_eq!(shown.shown_bytes + shown.omitted_bytes, shown.total_bytes);
        prop_assert_eq!(shown.gone_bytes, gap.bytes);
        prop_assert!(shown.omitted_bytes >= gap.bytes);
        prop_assert!(shown.omitted_lines >= gap.lines);
        let whole = String::from_utf8_lossy(&all);
        if gap.is_empty() && whole.chars().count() <= max_chars {
            prop_assert_eq!(shown.text, whole);
        }
    }

    #[test]
    fn lines_are_those_of_the_text(
        texts in prop::collection::vec("[a-z\\n€]{0,100}", 0..20),
        offset in prop::option::of(0_u64..60),
        limit in prop::option::of(0_u64..60),
    ) {
        let appends: Vec<Append> = texts
            .iter()
            .map(|text| (ChunkStream::Pty, text.as_bytes().to_vec()))
            .collect();
        let all = texts.concat();
        let lines: Vec<&str> = all.split_inclusive('\n').collect();
        let (_place, _writer, reader) = written(TranscriptLimits::default(), &appends);
        let page = reader.by_lines(LineRange { offset, limit }, 1 << 20).unwrap();
        let count = usize::try_from(limit.unwrap_or(match offset {
            Some(_) => u64::MAX,
            None => 200,
        })).unwrap();
        let from = offset.map_or(lines.len().saturating_sub(count), |offset| {
            usize::try_from(offset).unwrap().min(lines.len())
        });
        let to = from.saturating_add(count).min(lines.len());
        prop_assert_eq!(page.text, lines[from..to].concat());
        prop_assert_eq!(page.total_lines, lines.len() as u64);
        prop_assert_eq!(page.first_line, from as u64);
        prop_assert_eq!(page.next_line, (to < lines.len()).then_some(to as u64));
    }

    #[test]
    fn pages_always_come_to_an_end(
        appends in appends(),
        quota in 0_u64..60_000,
        page_bytes in 1_usize..3_000,
    ) {
        let all = joined(&appends);
        let (_place, _writer, reader) = written(TranscriptLimits { max_spool_bytes: quota }, &appends);
        let mut next = Some(0);
        while let Some(offset) = next {
            let range = LineRange { offset: Some(offset), limit: None };
            let page = reader.by_lines(range, page_bytes).unwrap();
            prop_assert_eq!(
                page.total_lines,
                newlines(&all) + u64::from(all.last().is_some_and(|byte| *byte != b'\n'))
            );
            prop_assert!(page.next_line.is_none_or(|next| next > offset));
            next = page.next_line;
        }
    }

    #[test]
    fn polls_of_several_readers_each_cover_everything(
        appends in appends(),
        who in prop::collection::vec(0_usize..3, 0..40),
        quota in 0_u64..100_000,
    ) {
        let place = Place::new();
        let limits = TranscriptLimits { max_spool_bytes: quota };
        let mut writer = TranscriptWriter::create(&place.dir, limits).unwrap();
        let reader = TranscriptReader::open(&place.dir).unwrap();
        let mut polls = Polls::default();
        let mut seen = [(0, 0); 3];
        let mut poll = |index: usize, seen: &mut [(u64, u64); 3]| {
            let shown = polls.poll(&index.to_string(), &reader, 100).unwrap().shown;
            seen[index].0 += shown.shown_bytes;
            seen[index].1 += shown.omitted_bytes;
        };
        for (index, (stream, bytes)) in appends.iter().enumerate() {
            writer.append(*stream, bytes);
            if let Some(who) = who.get(index) {
                poll(*who, &mut seen);
            }
        }
        writer.finish(SessionOutcome::Exited { code: 0 }).unwrap();
        for index in 0..3 {
            poll(index, &mut seen);
            prop_assert_eq!(seen[index].0 + seen[index].1, joined(&appends).len() as u64);
        }
    }
}
