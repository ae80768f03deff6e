use super::*;
use crate::patch::{Operation, Patch};

fn hunks(text: &str) -> Vec<Hunk> {
    let patch = Patch::parse(&format!(
        "*** Begin Patch\n*** Update File: f\n{text}\n*** End Patch"
    ))
    .unwrap();
    match patch.operations() {
        [Operation::Update { hunks, .. }] => hunks.clone(),
        other => panic!("not one update: {other:?}"),
    }
}

fn edited(file: &str, text: &str) -> String {
    let edited = edit(file.as_bytes(), &hunks(text))
        .unwrap_or_else(|error| panic!("{file:?} {text:?}: {error:?}"));
    String::from_utf8(edited.bytes).unwrap()
}

#[test]
fn hunks_are_applied() {
    // why, file, hunks, result
    let cases = [
        ("one line", "a\nb\nc\n", "@@\n-b\n+B", "a\nB\nc\n"),
        (
            "two hunks",
            "a\nb\nc\nd\n",
            "@@\n-b\n+B\n@@\n-d\n+D",
            "a\nB\nc\nD\n",
        ),
        (
            "later twin after the first hunk",
            "x\ny\nx\ny\n",
            "@@\n-x\n+1\n@@\n-x\n+2",
            "1\ny\n2\ny\n",
        ),
        (
            "header chooses the twin",
            "f\n x\ng\n x\n",
            "@@ g\n- x\n+ y",
            "f\n x\ng\n y\n",
        ),
        (
            "headers one after another",
            "A\nf\nx\nB\nf\nx\n",
            "@@ B\n@@ f\n-x\n+y",
            "A\nf\nx\nB\nf\ny\n",
        ),
        (
            "header repeated as context",
            "f\nx\nf\nx\n",
            "@@ f\n f\n-x\n+y",
            "f\ny\nf\nx\n",
        ),
        (
            "additions below headers",
            "a\nb\nc\n",
            "@@ a\n+1\n@@ b\n+2",
            "a\n1\nb\n2\nc\n",
        ),
        (
            "additions without a place go to the end",
            "a\n",
            "@@\n+b\n+c",
            "a\nb\nc\n",
        ),
        (
            "end of file with additions",
            "a\n",
            "@@\n+b\n*** End of File",
            "a\nb\n",
        ),
        (
            "additions first, then earlier lines",
            "a\nb\nc\n",
            "@@\n+x\n@@\n a\n-b\n-c\n+B",
            "a\nB\nx\n",
        ),
        (
            "end of file takes the last twin",
            "x\nx\n",
            "@@\n-x\n+y\n*** End of File",
            "x\ny\n",
        ),
        ("deletion only", "a\nb\nc\n", "@@\n a\n-b\n c", "a\nc\n"),
        ("to an empty file", "", "@@\n+a\n+b", "a\nb\n"),
        ("file becomes empty", "a\nb\n", "@@\n-a\n-b", ""),
        ("line without newline becomes empty", "a", "@@\n-a", ""),
        (
            "blank line after the hunk is layout",
            "a\nb\n",
            "@@\n a\n-b\n+c\n\n",
            "a\nc\n",
        ),
        (
            "blank line after additions is layout",
            "a\n\nb\n",
            "@@\n+c\n\n",
            "a\n\nb\nc\n",
        ),
        (
            "blank line that matches is context",
            "a\n\nb\na\nc\n",
            "@@\n-a\n\n",
            "\nb\na\nc\n",
        ),
        // blanks and punctuation
        ("trailing blanks", "a  \nb\n", "@@\n a\n-b\n+c", "a  \nc\n"),
        (
            "surrounding blanks",
            "\ta\nb\n",
            "@@\n a\n-b\n+c",
            "\ta\nc\n",
        ),
        (
            "punctuation",
            "say \u{201c}hi\u{201d}\nb\u{2014}c\n",
            "@@\n say \"hi\"\n-b-c\n+d",
            "say \u{201c}hi\u{201d}\nd\n",
        ),
        (
            "exact match beats an earlier loose one",
            "a \nx\na\nx\n",
            "@@\n-a\n+b",
            "a \nx\nb\nx\n",
        ),
        ("no-break space", "a\u{a0}b\n", "@@\n-a b\n+c", "c\n"),
        // endings
        (
            "windows endings",
            "a\r\nb\r\n",
            "@@\n-b\n+B\n+C",
            "a\r\nB\r\nC\r\n",
        ),
        (
            "bare carriage returns",
            "one\rtwo\rthree\r",
            "@@\n-one\n+uno\n@@\n two\n+\n+x\n three",
            "uno\rtwo\r\rx\rthree\r",
        ),
        (
            "mixed: ending of the replaced line",
            "a\r\nb\rc\nd\r\n",
            "@@\n b\n-c\n+C",
            "a\r\nb\rC\nd\r\n",
        ),
        (
            "mixed: each its own",
            "a\r\nb\nc\r",
            "@@\n-a\n-b\n-c\n+1\n+2\n+3\n+4",
            "1\r\n2\n3\r4\r",
        ),
        (
            "added line takes the ending above",
            "a\r\nb\n",
            "@@\n a\n+x",
            "a\r\nx\r\nb\n",
        ),
        (
            "first line takes the ending below",
            "a\r\n",
            "@@\n+x\n a",
            "x\r\na\r\n",
        ),
        (
            "additions written before removals",
            "a\r\nb\n",
            "@@\n+x\n-a\n b",
            "x\r\nb\n",
        ),
        // final newline
        (
            "missing newline stays missing",
            "a\nb",
            "@@\n-b\n+c",
            "a\nc",
        ),
        (
            "missing newline, appended",
            "a\r\nb",
            "@@\n+c",
            "a\r\nb\r\nc",
        ),
        (
            "missing newline, only line, appended",
            "a",
            "@@\n+b\n+c",
            "a\nb\nc",
        ),
        ("missing newline, last line removed", "a\nb", "@@\n-b", "a"),
        (
            "missing newline, last line grows",
            "a\nb",
            "@@\n-b\n+c\n+d",
            "a\nc\nd",
        ),
        (
            "missing newline, change above",
            "a\nb",
            "@@\n-a\n+A",
            "A\nb",
        ),
        (
            "missing newline, insertion above the last",
            "a\nb",
            "@@\n+x\n b",
            "a\nx\nb",
        ),
        // the rest
        (
            "byte order mark",
            "\u{feff}a\nb\n",
            "@@\n-a\n+A",
            "\u{feff}A\nb\n",
        ),
        (
            "unicode",
            "naïve\n日本\n\u{1f600}\n",
            "@@\n-日本\n+日本語 ✓",
            "naïve\n日本語 ✓\n\u{1f600}\n",
        ),
        (
            "context only changes nothing",
            "a \nb\n",
            "@@\n a\n b",
            "a \nb\n",
        ),
    ];
    for (why, file, text, expected) in cases {
        assert_eq!(edited(file, text), expected, "{why}");
    }
}

#[test]
fn other_bytes_of_a_file_survive() {
    let edited = edit(b"\xff\xfe\x00\nplain\n\x80", &hunks("@@\n-plain\n+text")).unwrap();
    assert_eq!(
        edited,
        Edited {
            bytes: b"\xff\xfe\x00\ntext\n\x80".to_vec(),
            added: 1,
            removed: 1
        }
    );
}

#[test]
fn a_mismatch_shows_the_line_and_what_stands_nearest() {
    // file, hunks, hunk, patch line, expected, nearest
    type Case<'a> = (
        &'a str,
        &'a str,
        usize,
        usize,
        &'a str,
        Option<(usize, &'a str)>,
    );
    let cases: [Case<'_>; 8] = [
        ("a\nb\nc\n", "@@\n a\n-x\n c", 1, 5, "x", Some((2, "b"))),
        (
            "a\nb\nc\n",
            "@@\n a\n+new\n-x\n c",
            1,
            6,
            "x",
            Some((2, "b")),
        ),
        (
            "a\nb\nc\nd\n",
            "@@\n-a\n@@\n-c\n-e",
            2,
            7,
            "e",
            Some((4, "d")),
        ),
        (
            "fn main() {\n",
            "@@\n-fn main( ) {",
            1,
            4,
            "fn main( ) {",
            Some((1, "fn main() {")),
        ),
        ("a\n", "@@ missing header\n-a", 1, 3, "missing header", None),
        ("", "@@\n-a", 1, 4, "a", None),
        (
            "a\nb\n",
            "@@\n-a\n*** End of File",
            1,
            4,
            "a",
            Some((1, "a")),
        ),
        ("b\na\n", "@@\n-a\n@@\n-b", 2, 6, "b", Some((1, "b"))),
    ];
    for (file, text, hunk, patch_line, expected, nearest) in cases {
        match edit(file.as_bytes(), &hunks(text)) {
            Err(HunkError::Mismatch(found)) => {
                let near = found
                    .nearest
                    .as_ref()
                    .map(|nearest| (nearest.line, nearest.text.as_str()));
                assert_eq!(
                    (found.hunk, found.patch_line, found.expected.as_str(), near),
                    (hunk, patch_line, expected, nearest),
                    "{file:?} {text:?}"
                );
            }
            other => panic!("{file:?} {text:?}: {other:?}"),
        }
    }
}
