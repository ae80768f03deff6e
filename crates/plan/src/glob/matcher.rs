//! Matches a file name against one component of a glob.

use interlock_programs::GlobToken;

/// One component, prepared for comparison with many names.
///
/// The time for a name is at most its length times that of the pattern: after a later `*` was
/// reached, an earlier one is never tried again.
#[derive(Debug)]
pub(super) struct ComponentMatcher {
    pieces: Vec<GlobPiece>,
    /// The least number of characters in a matching name.
    shortest: usize,
    /// Whether names that start with a dot match. Only a literal dot matches them.
    shows_hidden: bool,
}

/// Characters are stored as numbers, so that a byte of invalid UTF-8 has a number too.
#[derive(Debug)]
enum GlobPiece {
    Run,
    Any,
    One(u32),
    /// Inclusive ranges, sorted and disjoint.
    Set {
        negated: bool,
        ranges: Vec<(u32, u32)>,
    },
}

/// Bytes of invalid UTF-8 get numbers above every character. No literal or range equals them; `*`,
/// `?` and negated sets accept each as one character.
const BEYOND_CHARACTERS: u32 = char::MAX as u32 + 1;

impl ComponentMatcher {
    /// `component` must not contain `/`.
    pub(super) fn new(component: &[GlobToken]) -> Self {
        let mut pieces = Vec::with_capacity(component.len());
        for token in component {
            match token {
                GlobToken::Star if matches!(pieces.last(), Some(GlobPiece::Run)) => {}
                GlobToken::Star => pieces.push(GlobPiece::Run),
                GlobToken::Any => pieces.push(GlobPiece::Any),
                GlobToken::Literal(character) => pieces.push(GlobPiece::One(u32::from(*character))),
                GlobToken::Set { negated, ranges } => pieces.push(GlobPiece::Set {
                    negated: *negated,
                    ranges: sorted_apart(ranges),
                }),
            }
        }
        Self {
            shortest: pieces
                .iter()
                .filter(|piece| !matches!(piece, GlobPiece::Run))
                .count(),
            shows_hidden: component.first() == Some(&GlobToken::Literal('.')),
            pieces,
        }
    }

    /// `characters` is a buffer that the caller reuses for the next name.
    pub(super) fn matches(&self, name: &[u8], characters: &mut Vec<u32>) -> bool {
        if name.first() == Some(&b'.') && !self.shows_hidden {
            return false;
        }
        characters.clear();
        for chunk in name.utf8_chunks() {
            characters.extend(chunk.valid().chars().map(u32::from));
            let bytes = chunk.invalid().iter();
            characters.extend(bytes.map(|byte| BEYOND_CHARACTERS + u32::from(*byte)));
        }
        characters.len() >= self.shortest && self.matches_characters(characters)
    }

    fn matches_characters(&self, name: &[u32]) -> bool {
        let (mut piece, mut position) = (0, 0);
        // After the last `*`: the next piece, and the present end of the star's run.
        let mut run: Option<(usize, usize)> = None;
        loop {
            match self.pieces.get(piece) {
                None if position == name.len() => return true,
                Some(GlobPiece::Run) => {
                    piece += 1;
                    run = Some((piece, position));
                    continue;
                }
                Some(wanted) if name.get(position).is_some_and(|next| wanted.accepts(*next)) => {
                    piece += 1;
                    position += 1;
                    continue;
                }
                _ => {}
            }
            match run {
                Some((behind, end)) if end < name.len() => {
                    run = Some((behind, end + 1));
                    (piece, position) = (behind, end + 1);
                }
                _ => return false,
            }
        }
    }
}

impl GlobPiece {
    fn accepts(&self, character: u32) -> bool {
        match self {
            Self::Run | Self::Any => true,
            Self::One(wanted) => *wanted == character,
            Self::Set { negated, ranges } => {
                let after = ranges.partition_point(|(first, _)| *first <= character);
                let inside = after > 0 && character <= ranges[after - 1].1;
                inside != *negated
            }
        }
    }
}

/// Sorts and joins ranges. Backward ranges contain nothing.
fn sorted_apart(ranges: &[(char, char)]) -> Vec<(u32, u32)> {
    let mut sorted: Vec<(u32, u32)> = ranges
        .iter()
        .filter(|(first, last)| first <= last)
        .map(|(first, last)| (u32::from(*first), u32::from(*last)))
        .collect();
    sorted.sort_unstable();
    sorted.dedup_by(|next, previous| {
        let joins = next.0 <= previous.1;
        if joins {
            previous.1 = previous.1.max(next.1);
        }
        joins
    });
    sorted
}

#[cfg(test)]
mod tests;
