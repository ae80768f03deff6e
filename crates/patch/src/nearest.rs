//! Finds the place in a file that a hunk without a match most likely means. Only messages use it.

use std::collections::HashMap;
use std::ops::Range;

use serde::Serialize;

use crate::lines::FileLines;
use crate::matcher::HunkMatcher;
use crate::parse::shorten;

/// The most similar place in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nearest {
    /// The line of the file, counted from 1, in the place of the expected line.
    pub line: usize,
    /// The text of that line.
    pub text: String,
    /// Why the place is not used although all lines match there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
    /// Which of the hunk's old lines was expected there.
    #[serde(skip)]
    pub(crate) wrong_line: usize,
}

/// The most places of a line that may vote. More frequent lines say little about the place and
/// would make the vote slow.
const MAX_PLACES: usize = 1_000;
/// The most lines that are compared letter by letter if no line of the hunk occurs at all.
const MAX_COMPARED: usize = 20_000;
/// The least similarity with which a line helps the reader.
const MIN_SIMILARITY: f64 = 0.4;

/// Finds the most similar place. Every old line that occurs votes for the start of the hunk that it
/// implies. The start with the most votes wins, and its first differing line is shown. Without
/// votes, the result is the line most similar to the first line that is not blank.
pub(crate) fn nearest(
    lines: &FileLines<'_>,
    matcher: &mut HunkMatcher<'_>,
    needles: &Range<usize>,
    texts: &[&str],
    note_when_complete: &'static str,
) -> Option<Nearest> {
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (offset, needle) in needles.clone().enumerate() {
        if texts[offset].trim().is_empty() {
            continue;
        }
        for place in matcher.loose_places(needle).iter().take(MAX_PLACES) {
            if let Some(start) = (*place as usize).checked_sub(offset) {
                *votes.entry(start).or_default() += 1;
            }
        }
    }
    let best = votes
        .into_iter()
        .max_by_key(|(start, count)| (*count, std::cmp::Reverse(*start)));
    if let Some((start, _)) = best {
        let wrong = needles
            .clone()
            .enumerate()
            .find(|(offset, needle)| !matcher.stands_at(&(*needle..needle + 1), start + offset))
            .map(|(offset, _)| offset);
        let line = (start + wrong.unwrap_or(0)).min(lines.len().checked_sub(1)?);
        let note = wrong.is_none().then_some(note_when_complete);
        return Some(shown(lines, line, wrong.unwrap_or(0), note));
    }
    let (wrong, expected) = texts
        .iter()
        .enumerate()
        .find(|(_, text)| !text.trim().is_empty())?;
    let expected = shorten(expected.trim());
    (0..lines.len().min(MAX_COMPARED))
        .map(|line| {
            let text = String::from_utf8_lossy(lines.text(line));
            (
                line,
                strsim::sorensen_dice(&expected, &shorten(text.trim())),
            )
        })
        .filter(|(_, similarity)| *similarity >= MIN_SIMILARITY)
        .reduce(|best, other| if other.1 > best.1 { other } else { best })
        .map(|(line, _)| shown(lines, line, wrong, None))
}

fn shown(
    lines: &FileLines<'_>,
    line: usize,
    wrong_line: usize,
    note: Option<&'static str>,
) -> Nearest {
    let text = shorten(&String::from_utf8_lossy(lines.text(line)));
    Nearest {
        line: line + 1,
        text,
        note,
        wrong_line,
    }
}
