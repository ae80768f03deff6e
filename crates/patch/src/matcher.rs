//! Finds the lines of a hunk in a file, in stages of growing tolerance.
//!
//! The algorithm limits the cost. Only lines that occur in some hunk matter, so each stage numbers
//! those lines, numbers the file's lines once, and then compares numbers. A search visits the
//! places of the hunk's rarest line, or scans the file once if that line is common, whichever is
//! less work. A stage in which a line of the hunk does not occur costs nothing.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::lines::FileLines;

/// How similar two lines must be, from strict to tolerant. A stricter match anywhere wins over a
/// looser match nearby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchStage {
    Exact,
    /// Blanks at the end are ignored.
    TrailingBlanks,
    /// Blanks at both ends are ignored.
    SurroundingBlanks,
    /// In addition, typographic punctuation is equal to its plain counterpart.
    Punctuation,
}

pub(crate) const STAGES: [MatchStage; 4] = [
    MatchStage::Exact,
    MatchStage::TrailingBlanks,
    MatchStage::SurroundingBlanks,
    MatchStage::Punctuation,
];

/// Characters that programs and people write instead of plain characters, with the plain ones.
const PUNCTUATION: [(std::ops::RangeInclusive<char>, char); 9] = [
    ('\u{2010}'..='\u{2015}', '-'),  // hyphens and dashes
    ('\u{2212}'..='\u{2212}', '-'),  // minus sign
    ('\u{2018}'..='\u{201b}', '\''), // single quotation marks
    ('\u{201c}'..='\u{201f}', '"'),  // double quotation marks
    ('\u{00a0}'..='\u{00a0}', ' '),  // no-break space
    ('\u{2002}'..='\u{200a}', ' '),  // typographic spaces
    ('\u{202f}'..='\u{202f}', ' '),  // narrow no-break space
    ('\u{205f}'..='\u{205f}', ' '),  // mathematical space
    ('\u{3000}'..='\u{3000}', ' '),  // ideographic space
];

impl MatchStage {
    /// Returns the part of a line that counts in this stage: two lines match if these parts are
    /// equal.
    pub(crate) fn key(self, line: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Exact => Cow::Borrowed(line),
            Self::TrailingBlanks => Cow::Borrowed(match str::from_utf8(line) {
                Ok(text) => text.trim_end().as_bytes(),
                Err(_) => line.trim_ascii_end(),
            }),
            Self::SurroundingBlanks => Cow::Borrowed(trim(line)),
            Self::Punctuation => match str::from_utf8(line) {
                Ok(text) if !text.is_ascii() => {
                    let plain: String = text.chars().map(plain).collect();
                    Cow::Owned(trim(plain.as_bytes()).to_vec())
                }
                _ => Cow::Borrowed(trim(line)),
            },
        }
    }
}

fn trim(line: &[u8]) -> &[u8] {
    match str::from_utf8(line) {
        Ok(text) => text.trim().as_bytes(),
        Err(_) => line.trim_ascii(),
    }
}

fn plain(character: char) -> char {
    PUNCTUATION
        .iter()
        .find(|(range, _)| range.contains(&character))
        .map_or(character, |(_, plain)| *plain)
}

/// The search was stopped, because the hunks repeat lines so often that they cannot be placed in
/// reasonable time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMuchWork;

/// The most comparisons for one file. This is seconds of work, far more than any honest patch
/// needs.
const MAX_STEPS: usize = 4_000_000_000;

pub(crate) struct HunkMatcher<'a> {
    lines: &'a FileLines<'a>,
    needles: Vec<&'a [u8]>,
    stages: [Option<LineIndex>; STAGES.len()],
    steps: usize,
}

/// The index of one stage: the number of each needle and of each line of the file.
struct LineIndex {
    /// For each needle, the number of its key in this stage.
    numbers: Vec<u32>,
    /// For each line of the file, its number or `NOT_A_NEEDLE`.
    file: Vec<u32>,
    /// For each number, the lines of the file that have it, in ascending order.
    places: Vec<Vec<u32>>,
}

const NOT_A_NEEDLE: u32 = u32::MAX;

impl<'a> HunkMatcher<'a> {
    /// Prepares the search. `needles` are all lines that will be searched, and searches refer to
    /// them by index.
    pub(crate) fn new(lines: &'a FileLines<'a>, needles: Vec<&'a [u8]>) -> Self {
        Self {
            lines,
            needles,
            stages: [const { None }; STAGES.len()],
            steps: 0,
        }
    }

    /// Returns the first place at or after `from` where the needles `pattern` follow each other.
    pub(crate) fn find(
        &mut self,
        pattern: std::ops::Range<usize>,
        from: usize,
    ) -> Result<Option<usize>, TooMuchWork> {
        for stage in 0..STAGES.len() {
            let index = self.index(stage);
            let (found, steps) = index.find(&index.numbers[pattern.clone()], from);
            self.steps += steps;
            if found.is_some() {
                return Ok(found);
            }
            if self.steps > MAX_STEPS {
                return Err(TooMuchWork);
            }
        }
        Ok(None)
    }

    /// Whether the needles `pattern` match at line `at` in any stage.
    pub(crate) fn stands_at(&mut self, pattern: &std::ops::Range<usize>, at: usize) -> bool {
        (0..STAGES.len()).any(|stage| {
            let index = self.index(stage);
            index.matches(&index.numbers[pattern.clone()], at)
        })
    }

    /// Returns all places of one needle in the most tolerant stage, for the search of the nearest
    /// match.
    pub(crate) fn loose_places(&mut self, needle: usize) -> &[u32] {
        let index = self.index(STAGES.len() - 1);
        &index.places[index.numbers[needle] as usize]
    }

    fn index(&mut self, stage: usize) -> &LineIndex {
        let (lines, needles) = (self.lines, &self.needles);
        self.stages[stage].get_or_insert_with(|| LineIndex::new(STAGES[stage], lines, needles))
    }
}

impl LineIndex {
    fn new(stage: MatchStage, lines: &FileLines<'_>, needles: &[&[u8]]) -> Self {
        let mut known: HashMap<Cow<'_, [u8]>, u32> = HashMap::with_capacity(needles.len());
        let mut numbers = Vec::with_capacity(needles.len());
        for needle in needles {
            let next = u32::try_from(known.len()).unwrap_or(NOT_A_NEEDLE - 1);
            numbers.push(*known.entry(stage.key(needle)).or_insert(next));
        }
        let mut places = vec![Vec::new(); known.len()];
        let mut file = Vec::with_capacity(lines.len());
        for line in 0..lines.len() {
            let number = known.get(&*stage.key(lines.text(line))).copied();
            if let Some(number) = number {
                places[number as usize].push(u32::try_from(line).unwrap_or(u32::MAX));
            }
            file.push(number.unwrap_or(NOT_A_NEEDLE));
        }
        Self {
            numbers,
            file,
            places,
        }
    }

    fn matches(&self, pattern: &[u32], at: usize) -> bool {
        self.file
            .get(at..at + pattern.len())
            .is_some_and(|window| window == pattern)
    }

    /// Returns the first match at or after `from`, and how many comparisons were needed.
    fn find(&self, pattern: &[u32], from: usize) -> (Option<usize>, usize) {
        let Some((offset, places)) = pattern
            .iter()
            .enumerate()
            .map(|(offset, number)| {
                let places = &self.places[*number as usize];
                (
                    offset,
                    &places[places.partition_point(|line| (*line as usize) < from + offset)..],
                )
            })
            .min_by_key(|(_, places)| places.len())
        else {
            return (Some(from), 0);
        };
        if places.len().saturating_mul(pattern.len()) > self.file.len().saturating_sub(from) {
            return self.scan(pattern, from);
        }
        let found = places
            .iter()
            .position(|line| self.matches(pattern, *line as usize - offset))
            .map(|place| places[place] as usize - offset);
        (found, places.len() * pattern.len() + pattern.len())
    }

    /// Searches by Knuth, Morris and Pratt: in one pass, however repetitive file and pattern are.
    fn scan(&self, pattern: &[u32], from: usize) -> (Option<usize>, usize) {
        let mut borders = vec![0; pattern.len()];
        let mut length = 0;
        for at in 1..pattern.len() {
            while length > 0 && pattern[at] != pattern[length] {
                length = borders[length - 1];
            }
            if pattern[at] == pattern[length] {
                length += 1;
            }
            borders[at] = length;
        }
        let mut matched = 0;
        for (passed, number) in self.file[from.min(self.file.len())..].iter().enumerate() {
            while matched > 0 && *number != pattern[matched] {
                matched = borders[matched - 1];
            }
            if *number == pattern[matched] {
                matched += 1;
            }
            if matched == pattern.len() {
                return (Some(from + passed + 1 - matched), passed + pattern.len());
            }
        }
        (
            None,
            self.file.len() - from.min(self.file.len()) + pattern.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(file: &str, pattern: &[&str], from: usize) -> Option<usize> {
        let lines = FileLines::new(file.as_bytes());
        let needles: Vec<&[u8]> = pattern.iter().map(|line| line.as_bytes()).collect();
        HunkMatcher::new(&lines, needles)
            .find(0..pattern.len(), from)
            .unwrap()
    }

    #[test]
    fn the_strictest_stage_that_matches_anywhere_ahead_wins() {
        let cases: [(&str, &[&str], usize, Option<usize>); 11] = [
            ("a\nb\nc\n", &["b"], 0, Some(1)),
            ("a\nb\na\nb\n", &["a", "b"], 1, Some(2)),
            ("a \na\n", &["a"], 0, Some(1)),
            ("  a\na  \n", &["a"], 0, Some(1)),
            ("x\n  a\n", &["a"], 0, Some(1)),
            (
                "say \u{201c}hi\u{201d} \u{2014} ok\n",
                &["say \"hi\" - ok"],
                0,
                Some(0),
            ),
            ("a\u{a0}b\n", &["a b"], 0, Some(0)),
            ("a\nb\n", &["b", "c"], 0, None),
            ("a\n", &["a"], 1, None),
            ("a\n", &["a"], 9, None),
            ("", &["a"], 0, None),
        ];
        for (file, pattern, from, expected) in cases {
            assert_eq!(
                find(file, pattern, from),
                expected,
                "{file:?} {pattern:?} from {from}"
            );
        }
    }

    #[test]
    fn the_scan_and_the_search_by_rarest_line_agree_with_a_plain_search() {
        // Every file over two letters up to length 9 against every pattern up to length 3.
        for length in 0..=9 {
            for bits in 0..1_u32 << length {
                let letters: Vec<&str> = (0..length)
                    .map(|at| if bits >> at & 1 == 0 { "a" } else { "b" })
                    .collect();
                let file = letters.join("\n");
                for (count, pattern_bits) in
                    (1..=3).flat_map(|count| (0..1_u32 << count).map(move |bits| (count, bits)))
                {
                    let pattern: Vec<&str> = (0..count)
                        .map(|at| {
                            if pattern_bits >> at & 1 == 0 {
                                "a"
                            } else {
                                "b"
                            }
                        })
                        .collect();
                    let expected = letters.windows(count).position(|window| window == pattern);
                    assert_eq!(
                        find(&file, &pattern, 0),
                        expected,
                        "{letters:?} {pattern:?}"
                    );
                    let lines = FileLines::new(file.as_bytes());
                    let needles: Vec<&[u8]> = pattern.iter().map(|line| line.as_bytes()).collect();
                    let index = LineIndex::new(MatchStage::Exact, &lines, &needles);
                    assert_eq!(
                        index.scan(&index.numbers, 0).0,
                        expected,
                        "{letters:?} {pattern:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_not_text_only_match_by_their_text_neighbours() {
        let lines = FileLines::new(b"\xff\xfe\nplain\n");
        let mut matcher = HunkMatcher::new(&lines, vec![b"plain", "\u{fffd}\u{fffd}".as_bytes()]);
        assert_eq!(matcher.find(0..1, 0), Ok(Some(1)));
        assert_eq!(matcher.find(1..2, 0), Ok(None));
    }
}
