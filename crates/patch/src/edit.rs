//! Computes the new bytes of a file: its old bytes with the hunks of one update applied.

use crate::lines::FileLines;
use crate::matcher::{HunkMatcher, TooMuchWork};
use crate::nearest::{self, Nearest};
use crate::parse::shorten;
use crate::patch::{Hunk, HunkLine};

/// A changed file, with the numbers of added and removed lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edited {
    pub(crate) bytes: Vec<u8>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HunkError {
    Mismatch(Mismatch),
    TooMuchWork,
}

/// A hunk whose lines or header are not in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The number of the hunk, counted from 1.
    pub(crate) hunk: usize,
    pub(crate) patch_line: usize,
    pub(crate) expected: String,
    pub(crate) nearest: Option<Nearest>,
}

/// Applies `hunks`, each after the one before it. Lines that are not removed keep their bytes, even
/// if the patch wrote them with other blanks or quotation marks.
pub(crate) fn edit(bytes: &[u8], hunks: &[Hunk]) -> Result<Edited, HunkError> {
    let lines = FileLines::new(bytes);
    let mut edits = locate(&lines, hunks)?;
    // A hunk that adds to the end of the file may precede hunks for earlier lines. The sort is
    // stable, so hunks at the same line keep their order.
    edits.sort_by_key(|edit| edit.at);
    let mut writer = EditWriter::new(&lines);
    for edit in &edits {
        writer.copy_until(edit.at);
        writer.hunk(&edit.hunk.lines[..edit.used]);
    }
    writer.copy_until(lines.len());
    Ok(writer.finish())
}

const BEFORE_CURSOR: &str = "it lies before the place that earlier hunks or headers reached";
const NOT_AT_END: &str = "it is not the end of the file";

/// A hunk and the line of the file where it starts.
struct PlacedHunk<'a> {
    at: usize,
    hunk: &'a Hunk,
    /// How many lines of the hunk count, because blank context at its end may be layout of the
    /// patch.
    used: usize,
}

impl From<TooMuchWork> for HunkError {
    fn from(_: TooMuchWork) -> Self {
        Self::TooMuchWork
    }
}

/// The needles of one hunk in the matcher's list: its headers, then its old lines.
struct Needles {
    headers: std::ops::Range<usize>,
    old: std::ops::Range<usize>,
}

fn locate<'a>(lines: &FileLines<'_>, hunks: &'a [Hunk]) -> Result<Vec<PlacedHunk<'a>>, HunkError> {
    let mut texts: Vec<&[u8]> = Vec::new();
    let mut needles = Vec::with_capacity(hunks.len());
    for hunk in hunks {
        let start = texts.len();
        texts.extend(hunk.headers.iter().map(String::as_bytes));
        let middle = texts.len();
        texts.extend(hunk.lines.iter().filter_map(old_text).map(str::as_bytes));
        needles.push(Needles {
            headers: start..middle,
            old: middle..texts.len(),
        });
    }
    let mut matcher = HunkMatcher::new(lines, texts);
    let mut cursor = 0;
    let mut edits = Vec::with_capacity(hunks.len());
    for (number, (hunk, needles)) in hunks.iter().zip(needles).enumerate() {
        let edit = locate_one(lines, &mut matcher, hunk, number + 1, &needles, &mut cursor)?;
        edits.push(edit);
    }
    Ok(edits)
}

/// Finds one hunk at or after `cursor`, and moves the cursor past the hunk.
fn locate_one<'a>(
    lines: &FileLines<'_>,
    matcher: &mut HunkMatcher<'_>,
    hunk: &'a Hunk,
    number: usize,
    needles: &Needles,
    cursor: &mut usize,
) -> Result<PlacedHunk<'a>, HunkError> {
    let mut header_line = None;
    for (offset, needle) in needles.headers.clone().enumerate() {
        let Some(line) = matcher.find(needle..needle + 1, *cursor)? else {
            return Err(HunkError::Mismatch(Mismatch {
                hunk: number,
                patch_line: hunk.position.first_header + offset,
                expected: shorten(&hunk.headers[offset]),
                nearest: nearest::nearest(
                    lines,
                    matcher,
                    &(needle..needle + 1),
                    &[&hunk.headers[offset]],
                    BEFORE_CURSOR,
                ),
            }));
        };
        header_line = Some(line);
        *cursor = line + 1;
    }
    let all = hunk.lines.len();
    if needles.old.is_empty() {
        // The hunk only adds lines: after the header, or at the end of the file. The end does not
        // move the cursor, so later hunks may still change earlier lines.
        let at = header_line
            .filter(|_| !hunk.end_of_file)
            .map_or(lines.len(), |line| line + 1);
        return Ok(PlacedHunk {
            at,
            hunk,
            used: all,
        });
    }
    let blanks = blank_context_at_end(hunk);
    let shorter = needles.old.start..needles.old.end - blanks;
    for (old, used) in [(&needles.old, all), (&shorter, all - blanks)] {
        if let Some(at) = find_old_lines(lines, matcher, hunk, old, header_line, *cursor)? {
            *cursor = at + old.len();
            return Ok(PlacedHunk { at, hunk, used });
        }
        if blanks == 0 || shorter.is_empty() {
            break;
        }
    }
    Err(HunkError::Mismatch(mismatch(
        lines, matcher, hunk, number, needles,
    )))
}

fn find_old_lines(
    lines: &FileLines<'_>,
    matcher: &mut HunkMatcher<'_>,
    hunk: &Hunk,
    old: &std::ops::Range<usize>,
    header_line: Option<usize>,
    cursor: usize,
) -> Result<Option<usize>, TooMuchWork> {
    // The first line of a hunk often repeats the header. It then means that same line, not a later
    // line with the same text.
    let earliest = header_line.unwrap_or(cursor);
    if hunk.end_of_file {
        let at = lines
            .len()
            .checked_sub(old.len())
            .filter(|at| *at >= earliest);
        return Ok(at.filter(|at| matcher.stands_at(old, *at)));
    }
    if let Some(line) = header_line.filter(|line| matcher.stands_at(old, *line)) {
        return Ok(Some(line));
    }
    matcher.find(old.clone(), cursor)
}

fn blank_context_at_end(hunk: &Hunk) -> usize {
    let blank =
        |line: &&HunkLine| matches!(line, HunkLine::Context(text) if text.trim().is_empty());
    hunk.lines.iter().rev().take_while(blank).count()
}

fn old_text(line: &HunkLine) -> Option<&str> {
    match line {
        HunkLine::Context(text) | HunkLine::Remove(text) => Some(text),
        HunkLine::Add(_) => None,
    }
}

fn mismatch(
    lines: &FileLines<'_>,
    matcher: &mut HunkMatcher<'_>,
    hunk: &Hunk,
    number: usize,
    needles: &Needles,
) -> Mismatch {
    let texts: Vec<&str> = hunk.lines.iter().filter_map(old_text).collect();
    let note = if hunk.end_of_file {
        NOT_AT_END
    } else {
        BEFORE_CURSOR
    };
    let nearest = nearest::nearest(lines, matcher, &needles.old, &texts, note);
    let wrong = nearest.as_ref().map_or(0, |nearest| nearest.wrong_line);
    let old_lines = hunk
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| old_text(line).is_some());
    let offset = old_lines.map(|(offset, _)| offset).nth(wrong).unwrap_or(0);
    Mismatch {
        hunk: number,
        patch_line: hunk.position.first_line + offset,
        expected: shorten(texts.get(wrong).copied().unwrap_or_default()),
        nearest,
    }
}

/// Writes the new file from top to bottom.
struct EditWriter<'a> {
    lines: &'a FileLines<'a>,
    /// The next line of the file that is not yet copied, changed or dropped.
    at: usize,
    out: Vec<u8>,
    /// The length of the line ending that was written last.
    last_ending: usize,
    /// Whether a line was written that has no ending yet.
    open: bool,
    added: usize,
    removed: usize,
}

impl<'a> EditWriter<'a> {
    fn new(lines: &'a FileLines<'a>) -> Self {
        let mut out = Vec::with_capacity(lines.range(0, lines.len()).len() + 64);
        out.extend_from_slice(lines.prefix());
        Self {
            lines,
            at: 0,
            out,
            last_ending: 0,
            open: false,
            added: 0,
            removed: 0,
        }
    }

    fn copy_until(&mut self, line: usize) {
        if line <= self.at {
            return;
        }
        self.close(self.at);
        self.out.extend_from_slice(self.lines.range(self.at, line));
        self.note_ending(self.lines.ending(line - 1));
        self.at = line;
    }

    fn hunk(&mut self, hunk_lines: &[HunkLine]) {
        // A block of removed and added lines without context between them: the n-th added line
        // replaces the n-th removed line and takes its ending.
        let mut removed: Vec<&[u8]> = Vec::new();
        let mut added: Vec<&str> = Vec::new();
        for line in hunk_lines {
            match line {
                HunkLine::Remove(_) => {
                    removed.push(self.lines.ending(self.at));
                    self.at += 1;
                }
                HunkLine::Add(text) => added.push(text),
                HunkLine::Context(_) => {
                    self.block(&mut removed, &mut added);
                    self.copy_until(self.at + 1);
                }
            }
        }
        self.block(&mut removed, &mut added);
    }

    fn block(&mut self, removed: &mut Vec<&[u8]>, added: &mut Vec<&str>) {
        let fallback = self.lines.ending_near(self.at - removed.len());
        for (index, text) in added.iter().enumerate() {
            self.close(self.at);
            let ending = removed
                .get(index)
                .or(removed.last())
                .copied()
                .filter(|ending| !ending.is_empty());
            let ending = ending.unwrap_or(fallback);
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(ending);
            self.note_ending(ending);
        }
        self.added += added.len();
        self.removed += removed.len();
        removed.clear();
        added.clear();
    }

    fn note_ending(&mut self, ending: &[u8]) {
        self.last_ending = ending.len();
        self.open = ending.is_empty();
    }

    /// Ends the line that was written last, if it was the file's last line without a newline.
    fn close(&mut self, before: usize) {
        if self.open {
            let ending = self.lines.ending_near(before);
            self.out.extend_from_slice(ending);
            self.note_ending(ending);
        }
    }

    fn finish(mut self) -> Edited {
        if self.lines.lacks_final_newline() {
            self.out.truncate(self.out.len() - self.last_ending);
        }
        Edited {
            bytes: self.out,
            added: self.added,
            removed: self.removed,
        }
    }
}

#[cfg(test)]
mod tests;
