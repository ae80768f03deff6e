//! Tests the text form of a view against hostile texts.

use super::*;

fn view() -> ApprovalView {
    let mut view = ApprovalView::default();
    view.field(ViewLabel::Command, "ls");
    view.field(ViewLabel::Env, "A=1\nin        /safe");
    view.field(ViewLabel::Env, "B=2");
    view.warning(ViewLabel::Terminal, "80 by 24");
    view.block(ViewBlock {
        label: ViewLabel::Script,
        title: ShownLine::new("/w/x\ny.sh"),
        lines: ["one", "two"].map(ShownLine::new).to_vec(),
        left_out_lines: 0,
        is_diff: false,
    });
    view
}

#[test]
fn every_line_is_labelled_marked_or_continued() {
    let expected = "command   ls\n\
        env       A=1\\u{A}in        /safe\n          B=2\n\
        terminal  80 by 24\n\
        script    /w/x\\u{A}y.sh\n          | one\n          | two\n";
    assert_eq!(view().text(ViewDetail::Prompt, "open"), expected);
}

/// A terminal breaks a long line anywhere, and the rest would look like a line of the prompt.
#[test]
fn a_line_that_is_wider_than_the_terminal_goes_on_behind_a_mark() {
    let mut view = ApprovalView::default();
    view.field(
        ViewLabel::Directory,
        &format!("/{}in        /safe", "x".repeat(29)),
    );
    view.block(ViewBlock {
        label: ViewLabel::Script,
        title: ShownLine::new("s"),
        lines: vec![ShownLine::new(&format!(
            "{}agent     owner",
            "y".repeat(30)
        ))],
        left_out_lines: 0,
        is_diff: false,
    });
    let lines = view.lines(ViewDetail::Prompt, Some(30), "open");
    let drawn: Vec<(&str, &str, &str)> = lines
        .iter()
        .map(|line| (line.label, line.mark, line.text.as_str()))
        .collect();
    let wide = format!("/{}", "x".repeat(29));
    assert_eq!(
        drawn,
        [
            ("in", "", wide.as_str()),
            ("", "> ", "in        /safe"),
            ("script", "", "s"),
            ("", "| ", &"y".repeat(30)),
            ("", "|> ", "agent     owner"),
        ]
    );
}

#[test]
fn what_is_left_out_is_counted_and_how_it_is_opened_is_said() {
    let mut view = view();
    let lines: Vec<ShownLine> = (0..30_000)
        .map(|n| ShownLine::new(&format!("line {n}")))
        .collect();
    view.block(ViewBlock {
        label: ViewLabel::Patch,
        title: ShownLine::new("p"),
        lines,
        left_out_lines: 0,
        is_diff: true,
    });
    assert!(!view.is_whole_in_prompt());
    let prompt = view.lines(ViewDetail::Prompt, None, "open it");
    let shown = prompt.iter().filter(|line| line.is_diff).count();
    let last = &prompt.last().unwrap().text;
    assert_eq!(*last, format!("… {} more lines: open it", 30_000 - shown));
    let whole = view.lines(ViewDetail::Whole, None, "open it");
    assert_eq!(whole.iter().filter(|line| line.is_diff).count(), 30_000);
    let bounded = view.bounded(1000);
    assert!(bounded.left_out_lines() > 29_000);
    assert!(
        bounded
            .text(ViewDetail::Whole, "")
            .contains("more lines are not shown")
    );
    assert_eq!(view.bounded(1 << 20).left_out_lines(), 0);
}

/// A node is another machine: its texts must not look like lines of the prompt either.
#[test]
fn what_is_read_from_another_host_is_made_visible() {
    let hostile = serde_json::json!({ "maskedSecrets": 0, "parts": [
        { "type": "field", "label": "race", "value": "a\nin        /safe\u{202e}" },
        { "type": "block", "label": "script", "title": "t\nx", "lines": ["y\nz"] },
    ]});
    let read: ApprovalView = serde_json::from_value(hostile).unwrap();
    let expected =
        "race      a\\u{A}in        /safe\\u{202E}\nscript    t\\u{A}x\n          | y\\u{A}z\n";
    assert_eq!(read.text(ViewDetail::Whole, ""), expected);
}
