//! A transcript by line numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{Account, SMALL, newlines, numbered, written};
use interlock_transcript::{Gap, LinePage, LineRange, TranscriptLimits, TranscriptReader};

fn page(reader: &TranscriptReader, offset: Option<u64>, limit: Option<u64>) -> LinePage {
    reader
        .by_lines(LineRange { offset, limit }, 1 << 20)
        .unwrap()
}

#[test]
fn lines_are_given_by_number_and_from_the_end_by_default() {
    let all = numbered(100_000);
    let lines: Vec<&str> = std::str::from_utf8(&all)
        .unwrap()
        .split_inclusive('\n')
        .collect();
    let total = lines.len() as u64;
    let (_place, _, reader) = written(TranscriptLimits::default(), &all);
    for (offset, limit, from, to) in [
        (None, None, lines.len() - 200, lines.len()),
        (None, Some(3), lines.len() - 3, lines.len()),
        (Some(0), Some(1), 0, 1),
        (Some(5), Some(7), 5, 12),
        (Some(700), None, 700, lines.len()),
        (Some(total - 1), Some(10), lines.len() - 1, lines.len()),
        (Some(3), Some(0), 3, 3),
        (Some(total), None, lines.len(), lines.len()),
        (Some(u64::MAX), Some(u64::MAX), lines.len(), lines.len()),
    ] {
        let found = page(&reader, offset, limit);
        assert_eq!(found.text, lines[from..to].concat(), "{offset:?} {limit:?}");
        assert_eq!(found.first_line, from as u64);
        assert_eq!(found.total_lines, total);
        assert_eq!(found.next_line, (to < lines.len()).then_some(to as u64));
        assert_eq!(found.omitted, Gap::default());
    }
}

#[test]
fn pages_of_bounded_size_make_up_the_whole() {
    let all = numbered(50_000);
    let (_place, _, reader) = written(TranscriptLimits::default(), &all);
    let mut text = String::new();
    let mut next = Some(0);
    while let Some(offset) = next {
        let range = LineRange {
            offset: Some(offset),
            limit: None,
        };
        let page = reader.by_lines(range, 1_000).unwrap();
        assert!(page.text.len() <= 1_000);
        assert!(page.next_line.is_none_or(|next| next > offset));
        text.push_str(&page.text);
        next = page.next_line;
    }
    assert_eq!(text.as_bytes(), all);
}

#[test]
fn a_line_too_long_for_a_page_is_cut_and_the_cut_is_counted() {
    let mut all = vec![b'x'; 10_000];
    all.extend_from_slice(b"\nshort\n");
    let (_place, _, reader) = written(TranscriptLimits::default(), &all);
    let range = LineRange {
        offset: Some(0),
        limit: None,
    };
    let first = reader.by_lines(range, 100).unwrap();
    assert_eq!(
        first.omitted,
        Gap {
            bytes: 9_901,
            lines: 1
        }
    );
    assert!(first.text.starts_with(&"x".repeat(100)));
    assert_eq!(first.next_line, Some(1));
    assert_eq!(page(&reader, first.next_line, None).text, "short\n");
}

#[test]
fn lines_that_are_not_kept_leave_a_note_and_their_numbers() {
    let all = numbered(1_000_000);
    let total = newlines(&all) + u64::from(all.last() != Some(&b'\n'));
    let (_place, _, reader) = written(SMALL, &all);
    let gap = Account::of(&reader, 1 << 20).gap;
    let found = page(&reader, Some(0), None);
    assert_eq!(found.omitted, gap);
    assert_eq!(
        (found.first_line, found.total_lines, found.next_line),
        (0, total, None)
    );
    let note = format!(
        "[{} bytes with {} line ends left out here]\n",
        gap.bytes, gap.lines
    );
    assert_eq!(found.text.matches(&note).count(), 1);
    // A line in the gap: the note first, then what follows it.
    let found = page(&reader, Some(total / 2), Some(3));
    assert_eq!(found.text, note);
    let after = found.next_line.unwrap();
    let found = page(&reader, Some(after), Some(2));
    assert!(found.text.ends_with(" of the stream\n"), "{}", found.text);
    // The last lines are there with their numbers.
    let found = page(&reader, None, Some(2));
    assert!(
        found.text.starts_with(&format!("line {} of", total - 2)),
        "{}",
        found.text
    );
}
