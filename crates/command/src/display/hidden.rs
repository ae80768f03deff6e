//! Characters that are invisible, and characters that look like others.

use std::sync::LazyLock;

/// Whether the character is invisible: control, format, zero-width and bidirectional characters,
/// blanks other than the ASCII blank, and characters without a defined glyph.
pub(super) fn is_hidden(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    let row = HIDDEN.partition_point(|(_, last)| *last < character);
    let is_listed = HIDDEN
        .get(row)
        .is_some_and(|(first, _)| *first <= character);
    is_listed || character.is_control() || character.is_whitespace()
}

/// Whether the character is a mark that is drawn on the preceding character.
pub(super) fn is_combining(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36F}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5BD}'
        | '\u{64B}'..='\u{65F}' | '\u{E31}' | '\u{E34}'..='\u{E3A}' | '\u{E47}'..='\u{E4E}'
        | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}' | '\u{20D0}'..='\u{20FF}'
        | '\u{302A}'..='\u{302F}' | '\u{3099}'..='\u{309A}' | '\u{FE20}'..='\u{FE2F}')
}

/// Ranges of hidden characters in ascending order, with the reason for each.
pub(super) const HIDDEN: &[(char, char)] = &[
    ('\u{AD}', '\u{AD}'),        // soft hyphen
    ('\u{34F}', '\u{34F}'),      // joins graphemes, shows nothing
    ('\u{600}', '\u{605}'),      // Arabic number signs, which hold what follows
    ('\u{61C}', '\u{61C}'),      // direction mark
    ('\u{6DD}', '\u{6DD}'),      // end of verse, which holds what follows
    ('\u{70F}', '\u{70F}'),      // Syriac mark
    ('\u{115F}', '\u{1160}'),    // Hangul fillers
    ('\u{17B4}', '\u{17B5}'),    // Khmer vowels without a look
    ('\u{180B}', '\u{180F}'),    // Mongolian selectors
    ('\u{200B}', '\u{200F}'),    // zero width, direction marks
    ('\u{2028}', '\u{202E}'),    // separators, embeddings, overrides
    ('\u{2060}', '\u{206F}'),    // joiners, isolates, shapes
    ('\u{2800}', '\u{2800}'),    // Braille blank
    ('\u{3164}', '\u{3164}'),    // Hangul filler
    ('\u{E000}', '\u{F8FF}'),    // private use: looks like anything
    ('\u{FE00}', '\u{FE0F}'),    // selectors
    ('\u{FEFF}', '\u{FEFF}'),    // byte order mark
    ('\u{FFA0}', '\u{FFA0}'),    // Hangul filler
    ('\u{FFF0}', '\u{FFFB}'),    // annotation
    ('\u{1BCA0}', '\u{1BCA3}'),  // shorthand formats
    ('\u{1D173}', '\u{1D17A}'),  // musical formats
    ('\u{E0000}', '\u{E0FFF}'),  // tags, selectors
    ('\u{F0000}', '\u{10FFFF}'), // private use
];

/// Finds characters that a reader would take for ASCII characters. Letters count only in a word
/// that could pass for an ASCII word: a word with ASCII letters, or one made only of look-alikes.
/// In a word with ASCII letters every letter of another script counts, because no language mixes
/// them. A sentence in Russian or Greek stays as it is.
pub(super) fn look_alikes(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    if text.is_ascii() {
        return found;
    }
    let mut word = HiddenWord::default();
    for (at, character) in text.char_indices() {
        if is_sign_look_alike(character) {
            word.finish(&mut found);
            found.push(at);
        } else if character.is_alphanumeric() {
            word.add(at, character);
        } else {
            word.finish(&mut found);
        }
    }
    word.finish(&mut found);
    found
}

#[derive(Default)]
struct HiddenWord {
    /// The positions of letters of other scripts, and whether each looks like an ASCII letter.
    foreign: Vec<(usize, bool)>,
    has_ascii_letters: bool,
    has_own_letters: bool,
}

impl HiddenWord {
    fn add(&mut self, at: usize, character: char) {
        if character.is_ascii() {
            self.has_ascii_letters |= character.is_ascii_alphabetic();
        } else if is_letter_look_alike(character) {
            self.foreign.push((at, true));
        } else {
            self.has_own_letters = true;
            if is_of_another_script(character) {
                self.foreign.push((at, false));
            }
        }
    }

    fn finish(&mut self, found: &mut Vec<usize>) {
        let word = std::mem::take(self);
        let is_suspect = |is_look_alike: bool| {
            word.has_ascii_letters || (is_look_alike && !word.has_own_letters)
        };
        let foreign = word.foreign.iter();
        let suspect = foreign.filter(|(_, is_look_alike)| is_suspect(*is_look_alike));
        found.extend(suspect.map(|(at, _)| *at));
    }
}

/// Whether the letter belongs to an alphabet that shares shapes with the Latin alphabet.
fn is_of_another_script(character: char) -> bool {
    matches!(character,
        '\u{370}'..='\u{3FF}' | '\u{1F00}'..='\u{1FFF}' // Greek
        | '\u{400}'..='\u{52F}' | '\u{1C80}'..='\u{1C8F}' | '\u{A640}'..='\u{A69F}' // Cyrillic
        | '\u{530}'..='\u{58F}' | '\u{10A0}'..='\u{10FF}' // Armenian, Georgian
        | '\u{13A0}'..='\u{13FF}' | '\u{AB70}'..='\u{ABBF}' // Cherokee
        | '\u{590}'..='\u{6FF}') // Hebrew, Arabic
}

/// Sorts the characters of a table, so that lookups can use binary search.
fn in_order(table: &str) -> Vec<char> {
    let mut characters: Vec<char> = table.chars().collect();
    characters.sort_unstable();
    characters
}

fn is_letter_look_alike(character: char) -> bool {
    static ORDERED: LazyLock<Vec<char>> = LazyLock::new(|| in_order(LETTERS));
    ORDERED.binary_search(&character).is_ok()
        || matches!(character,
            '\u{FF10}'..='\u{FF19}' | '\u{FF21}'..='\u{FF3A}' | '\u{FF41}'..='\u{FF5A}'
            | '\u{1D400}'..='\u{1D7FF}' | '\u{24B6}'..='\u{24E9}' | '\u{1F130}'..='\u{1F189}')
}

/// Cyrillic, Greek, Armenian, Cherokee, phonetic and other letters that look like ASCII letters.
const LETTERS: &str = "\
    \u{410}\u{412}\u{415}\u{405}\u{406}\u{408}\u{41A}\u{41C}\u{41D}\u{41E}\u{420}\u{421}\
    \u{422}\u{425}\u{423}\u{430}\u{435}\u{455}\u{456}\u{458}\u{43E}\u{440}\u{441}\u{443}\
    \u{445}\u{4BB}\u{501}\u{51B}\u{51D}\u{4CF}\u{50D}\u{475}\u{391}\u{392}\u{395}\u{396}\
    \u{397}\u{399}\u{39A}\u{39C}\u{39D}\u{39F}\u{3A1}\u{3A4}\u{3A5}\u{3A7}\u{3B1}\u{3BD}\
    \u{3BF}\u{3C1}\u{3C5}\u{3B9}\u{3BA}\u{3C4}\u{3B3}\u{585}\u{57D}\u{570}\u{578}\u{566}\
    \u{581}\u{555}\u{54F}\u{13AA}\u{13F4}\u{13DF}\u{13A0}\u{13AC}\u{13BB}\u{13AB}\u{13E6}\
    \u{13DE}\u{13B7}\u{13B5}\u{13E2}\u{13A1}\u{13DA}\u{13A2}\u{13D9}\u{13B3}\u{13C3}\u{131}\
    \u{237}\u{251}\u{261}\u{269}\u{28F}\u{262}\u{29F}\u{274}\u{280}\u{A4D0}\u{A4D1}\u{A4D2}\
    \u{A4D3}\u{A4D4}\u{A4D6}\u{A4D7}\u{A4D9}\u{A4DA}\u{A4DC}\u{A4DD}\u{A4DF}\u{A4E0}\u{A4E1}\
    \u{A4E2}\u{A4E3}\u{A4E4}\u{A4E5}\u{A4E6}\u{A4E7}\u{A4E8}\u{A4E9}\u{A4EA}\u{A4EB}\u{A4EC}\
    \u{A4EE}\u{A4EF}\u{A4F0}\u{A4F1}\u{A4F2}\u{A4F3}\u{A4F4}\u{210E}\u{2113}\u{2110}\u{2111}\
    \u{2112}\u{2115}\u{2119}\u{211A}\u{211B}\u{211C}\u{211D}\u{2124}\u{212C}\u{212D}\u{212F}\
    \u{2130}\u{2131}\u{2133}\u{2134}\u{2170}\u{2174}\u{2179}\u{217C}\u{217D}\u{217E}\u{217F}\
    \u{2160}\u{2164}\u{2169}\u{216C}\u{216D}\u{216E}\u{216F}\u{FF2B}\u{2139}\u{212A}";

/// Whether the character looks like a sign with a meaning to the shell.
fn is_sign_look_alike(character: char) -> bool {
    static ORDERED: LazyLock<Vec<char>> = LazyLock::new(|| in_order(SIGNS));
    ORDERED.binary_search(&character).is_ok()
        || matches!(character, '\u{FF01}'..='\u{FF0F}' | '\u{FF1A}'..='\u{FF20}' | '\u{FF3B}'..='\u{FF40}' | '\u{FF5B}'..='\u{FF5E}' | '\u{FE50}'..='\u{FE6B}')
}

const SIGNS: &str = "\
    \u{2010}\u{2011}\u{2012}\u{2212}\u{2043}\u{2D7}\u{FE58}\u{FF0F}\u{2215}\u{2044}\u{29F8}\
    \u{2571}\u{27CB}\u{FF3C}\u{2216}\u{29F5}\u{29F9}\u{2024}\u{2025}\u{201A}\u{66B}\u{A4F8}\
    \u{FF61}\u{FF1B}\u{FE14}\u{FF1A}\u{2236}\u{2F8}\u{2D0}\u{703}\u{704}\u{FE30}\u{A4FD}\
    \u{FF01}\u{1C3}\u{2223}\u{1C0}\u{2758}\u{FFE8}\u{23D0}\u{1801}\u{2016}\u{2035}\u{2032}\
    \u{2B9}\u{2BA}\u{2CB}\u{FF40}\u{2CA}\u{FF07}\u{FF02}\u{3003}\u{275B}\u{275C}\u{275D}\
    \u{275E}\u{2039}\u{203A}\u{2C2}\u{2C3}\u{FF1C}\u{FF1E}\u{276E}\u{276F}\u{FE64}\u{FE65}\
    \u{FF04}\u{FE69}\u{FF06}\u{FE60}\u{FF03}\u{FE5F}\u{FF0A}\u{2217}\u{204E}\u{2218}\u{FF1D}\
    \u{A78A}\u{1400}\u{FF5E}\u{223C}\u{2DC}\u{FE4F}\u{FF3F}\u{2CD}\u{2053}\u{301C}\u{2768}\
    \u{2769}\u{FE59}\u{FE5A}\u{3014}\u{3015}\u{FF5B}\u{FF5D}\u{2774}\u{2775}\u{FF3B}\u{FF3D}\
    \u{2772}\u{2773}\u{37E}";

#[cfg(test)]
mod tests {
    #[test]
    fn no_ascii_character_looks_like_another() {
        assert!(!super::SIGNS.chars().any(|c| c.is_ascii()));
        assert!(!super::LETTERS.chars().any(|c| c.is_ascii()));
    }
}
