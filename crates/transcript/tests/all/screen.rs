//! The terminal as a person would see it, and what it answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_transcript::keys::CursorMode;
use interlock_transcript::screen::{CursorPosition, Picture, Screen, Size};
use proptest::prelude::*;

const SIZE: Size = Size {
    columns: 20,
    rows: 4,
};

fn drawn(output: &[u8]) -> Screen {
    let mut screen = Screen::new(SIZE);
    let _ = screen.feed(output);
    screen
}

fn rows(output: &[u8]) -> Vec<String> {
    let rows = drawn(output).picture().rows;
    // However the output is cut into pieces, the picture is the same.
    let mut pieces = Screen::new(SIZE);
    for byte in output {
        let _ = pieces.feed(&[*byte]);
    }
    assert_eq!(pieces.picture().rows, rows);
    rows
}

#[test]
fn a_picture_has_rows_cursor_title_and_size() {
    let picture = drawn("one\r\n\x1b]2;a title\x07twö".as_bytes()).picture();
    assert_eq!(
        picture,
        Picture {
            size: SIZE,
            rows: ["one", "twö", "", ""].map(String::from).to_vec(),
            cursor: CursorPosition {
                row: 1,
                column: 3,
                is_visible: true
            },
            title: "a title".to_string(),
            is_alternate: false,
        }
    );
}

#[test]
fn a_session_starts_with_120_columns_and_30_rows() {
    let picture = Screen::new(Size::default()).picture();
    assert_eq!((picture.size.columns, picture.size.rows), (120, 30));
    assert_eq!(picture.rows.len(), 30);
}

#[test]
fn the_alternate_screen_comes_and_goes() {
    let mut screen = drawn(b"shell\x1b[?1049h\x1b[Hfull\x1b[?25l");
    let picture = screen.picture();
    assert!(picture.is_alternate && !picture.cursor.is_visible);
    assert_eq!(picture.rows[0], "full");
    let _ = screen.feed(b"\x1b[?1049l\x1b[?25h");
    let picture = screen.picture();
    assert!(!picture.is_alternate && picture.cursor.is_visible);
    assert_eq!(picture.rows[0], "shell");
}

#[test]
fn a_drawing_makes_the_same_screen_of_another_terminal() {
    for output in [
        &b"plain\r\n\x1b[1;31mred\x1b[m \xe6\xbc\xa2"[..],
        b"shell\x1b[?1049h\x1b[Hfull\x1b[?25l\x1b[?1h\x1b[?2004h",
        b"shell\x1b[?1049hfull\x1b[?1049l",
    ] {
        let screen = drawn(output);
        let copy = drawn(&screen.drawing());
        assert_eq!(copy.picture(), screen.picture());
        assert_eq!(copy.cursor_mode(), screen.cursor_mode());
        assert_eq!(copy.wants_bracketed_paste(), screen.wants_bracketed_paste());
    }
}

#[test]
fn input_modes_are_known() {
    let mut screen = Screen::new(SIZE);
    assert_eq!(screen.cursor_mode(), CursorMode::Normal);
    assert!(!screen.wants_bracketed_paste());
    let _ = screen.feed(b"\x1b[?1h\x1b[?2004h");
    assert_eq!(screen.cursor_mode(), CursorMode::Application);
    assert!(screen.wants_bracketed_paste());
}

/// Question, answer; the cursor is in row 2, column 3 (from 1).
const ANSWERS: &[(&[u8], &[u8])] = &[
    (b"\x1b[5n", b"\x1b[0n"),
    (b"\x1b[6n", b"\x1b[2;3R"),
    (b"\x1b[?6n", b"\x1b[?2;3;1R"),
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[0c", b"\x1b[?62;22c"),
    (b"\x1b[>c", b"\x1b[>1;10;0c"),
    (b"\x1b[>0c", b"\x1b[>1;10;0c"),
    (b"\x1b[18t", b"\x1b[8;4;20t"),
    (b"\x1b[?1$p", b"\x1b[?1;2$y"),
    (b"\x1b[?1h\x1b[?1$p", b"\x1b[?1;1$y"),
    (b"\x1b[?7$p", b"\x1b[?7;3$y"),
    (b"\x1b[?25$p", b"\x1b[?25;1$y"),
    (b"\x1b[?1049$p", b"\x1b[?1049;2$y"),
    (b"\x1b[?1006h\x1b[?1006$p", b"\x1b[?1006;1$y"),
    (b"\x1b[?2004$p", b"\x1b[?2004;2$y"),
    (b"\x1b[?2026$p", b"\x1b[?2026;0$y"),
    (b"\x1b[4$p", b"\x1b[4;0$y"),
    (
        b"\x1b[>q",
        concat!("\x1bP>|interlock ", env!("CARGO_PKG_VERSION"), "\x1b\\").as_bytes(),
    ),
    // Two questions, two answers, in order.
    (b"\x1b[5n\x1b[c", b"\x1b[0n\x1b[?62;22c"),
    // Never answered: they would make the terminal type text that a program chose.
    (b"\x1b]2;rm -rf\x07\x1b[21t", b""),
    (b"\x1b]52;c;?\x07", b""),
    (b"\x1bP$qm\x1b\\", b""),
    (b"\x05", b""),
    (b"text\x1b[1;31mred\x1b[m", b""),
];

#[test]
fn questions_of_programs_are_answered() {
    for (question, answer) in ANSWERS {
        let mut screen = Screen::new(SIZE);
        assert_eq!(screen.feed(b"\x1b[2;3H"), b"");
        let found = screen.feed(question);
        assert_eq!(found, *answer, "{}", String::from_utf8_lossy(question));
    }
}

#[test]
fn a_question_cut_in_two_is_answered_once() {
    let mut screen = Screen::new(SIZE);
    assert_eq!(screen.feed(b"\x1b["), b"");
    assert_eq!(screen.feed(b"6n"), b"\x1b[1;1R");
    assert_eq!(screen.feed(b""), b"");
}

#[test]
fn the_cursor_behind_the_last_column_is_reported_in_it() {
    let mut screen = Screen::new(SIZE);
    let answer = screen.feed(b"12345678901234567890\x1b[6n");
    assert_eq!(answer, b"\x1b[1;20R");
    assert_eq!(screen.picture().cursor.column, 19);
}

#[test]
fn endless_questions_get_a_bounded_answer() {
    let mut screen = Screen::new(SIZE);
    let answer = screen.feed(&b"\x1b[6n".repeat(100_000));
    assert!(answer.len() <= 4096);
    assert_eq!(answer.len() % b"\x1b[1;1R".len(), 0, "whole answers only");
}

/// Sequences that full-screen programs use, next to what a person sees.
const SEQUENCES: &[(&str, &[&str])] = &[
    // Lines and boxes, by G0 and by shifting to G1.
    ("\x1b(0lqk\x1b(B x", &["┌─┐ x"]),
    ("\x1b)0\x0ex\x0fx", &["│x"]),
    ("\x1b(0q\x1b7\x1b(B\x1b8q", &["──"]),
    ("\x1b(0q\x1b[!pq", &["─q"]),
    ("\x1b(0\x1b]2;lqk\x07\x1b(B-", &["-"]),
    // Repeating
    ("ab\x1b[3b|", &["abbbb|"]),
    ("ä\x1b[2b", &["äää"]),
    ("宽\x1b[1b|", &["宽宽|"]),
    ("\x1b(0q\x1b(B\x1b[2b", &["───"]),
    // Moving
    ("\x1b[2;3fx", &["", "  x"]),
    ("abc\x1b[2`X", &["aXc"]),
    ("a\x1b[3aX", &["a   X"]),
    ("a\x1b[2eX", &["a", "", " X"]),
    ("a\x1b[sbc\x1b[uX", &["aXc"]),
    ("\x1b[2IX", &["                X"]),
    ("0123456789\x1b[ZX\x1b[2ZY", &["Y1234567X9"]),
    ("a\x1bDb\x1bEc", &["a", " b", "c"]),
    ("bottom\x1b[H\x1bMtop", &["top", "bottom"]),
    // Strings that draw nothing
    ("a\x1bPq#0;2;0;0;0~\x1b\\b", &["ab"]),
    ("a\x1b_Gf=24;AAAA\x1b\\b", &["ab"]),
    ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", &["alinkb"]),
    // Broken off
    ("a\x1b[12\x18b", &["ab"]),
    ("a\x1b[12\x1b[1;5Hb", &["a   b"]),
    ("a\x1b]0;never ends\x18b", &["ab"]),
    ("a\x1b[1\n2Cb", &["a", "             b"]),
];

#[test]
fn sequences_draw_what_a_person_would_see() {
    for (output, expected) in SEQUENCES {
        let mut found = rows(output.as_bytes());
        while found.last().is_some_and(String::is_empty) {
            found.pop();
        }
        assert_eq!(found, *expected, "{output:?}");
    }
}

#[test]
fn a_title_is_one_short_line() {
    let mut output = b"\x1b]2;a\x01b".to_vec();
    output.extend_from_slice(&b"x".repeat(100_000));
    output.extend_from_slice(b"\x07");
    let title = drawn(&output).picture().title;
    assert!(title.starts_with("abx"), "{title}");
    assert_eq!(title.chars().count(), 256);
}

#[test]
fn a_size_out_of_bounds_becomes_the_nearest_one() {
    for (columns, row_count, expected) in [(0, 0, (2, 2)), (u16::MAX, u16::MAX, (1000, 500))] {
        let mut screen = drawn("text 宽宽宽宽宽宽宽宽宽宽".as_bytes());
        screen.resize(Size {
            columns,
            rows: row_count,
        });
        let _ = screen.feed("more 宽宽宽\x1b[999;999H宽宽".as_bytes());
        let picture = screen.picture();
        assert_eq!((picture.size.columns, picture.size.rows), expected);
        assert_eq!(picture.rows.len(), usize::from(expected.1));
    }
}

/// A wide character that a narrower screen cuts in two is what the drawing code has failed on.
#[test]
fn a_screen_goes_on_whatever_resizing_cut() {
    let mut screen = drawn("\x1b]2;title\x07\x1b[1;11H宽".as_bytes());
    screen.resize(Size {
        columns: 11,
        rows: 4,
    });
    let _ = screen.feed(b"\x1b[1;11Hx");
    let answer = screen.feed(b"\x1b[2J\x1b[Hgoes on\x1b[6n");
    let picture = screen.picture();
    assert_eq!(
        (picture.rows[0].as_str(), picture.title.as_str()),
        ("goes on", "title")
    );
    assert_eq!(answer, b"\x1b[1;8R");
    assert!(screen.resets() <= 1);
}

fn sequence_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\x1b[".to_vec()),
        Just(b"\x1b]".to_vec()),
        Just(b"\x1b".to_vec()),
        Just("宽é\u{301}".as_bytes().to_vec()),
        Just(b"\x1b(0".to_vec()),
        Just(b"\x1b[?1049h".to_vec()),
        Just(b"\x1b[2;3r\x1b[?6h".to_vec()),
        "[0-9;?]{0,6}[@-~]".prop_map(String::into_bytes),
        "\\PC{0,30}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_output_and_no_size_breaks_a_screen(
        parts in prop::collection::vec((sequence_like(), 0_u16..40, 0_u16..20), 1..5),
    ) {
        let mut screen = Screen::new(SIZE);
        for (output, columns, rows) in parts {
            let answer = screen.feed(&output);
            prop_assert!(answer.len() <= 4096);
            screen.resize(Size { columns, rows });
            let picture = screen.picture();
            prop_assert_eq!(picture.rows.len(), usize::from(picture.size.rows));
            prop_assert!(picture.cursor.row < picture.size.rows);
            prop_assert!(picture.cursor.column < picture.size.columns);
        }
    }

    #[test]
    fn a_picture_does_not_depend_on_how_output_was_cut(output in sequence_like(), cut in any::<prop::sample::Index>()) {
        let whole = drawn(&output);
        let at = cut.index(output.len() + 1);
        let mut parts = Screen::new(SIZE);
        let _ = parts.feed(&output[..at]);
        let _ = parts.feed(&output[at..]);
        prop_assert_eq!(whole.picture(), parts.picture());
    }
}
