//! Command texts at random, the same ones for the same seed: some grown from a small grammar that
//! likes odd corners, some plausible lines that were then damaged, some mere soup.

use crate::pieces::{
    ASSIGNED, BARE, BLANKS, COMMENTS, CONNECTORS, DOLLAR_QUOTED, DOUBLE, ESCAPED, GLOBS, NAMES,
    ODD_BLANKS, ODD_CONNECTORS, ODD_GLOBS, ODD_NAMES, ODD_PIECES, ODD_REDIRECTIONS, ODD_TILDES,
    OURS, PLAUSIBLE, REDIRECTIONS, SHADOWED, SHELL_WORDS, SINGLE, SOUP, TILDES,
};

/// SplitMix64: small, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a small bound");
        usize::try_from(self.next() % bound).expect("below a small bound")
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

pub struct Generator {
    random: Random,
    everyday: Vec<&'static str>,
}

impl Generator {
    /// `everyday`: further plausible lines to damage.
    pub fn new(seed: u64, everyday: Vec<&'static str>) -> Self {
        Self {
            random: Random::new(seed),
            everyday,
        }
    }

    pub fn text(&mut self) -> String {
        match self.random.below(8) {
            0..=2 => self.line(),
            3..=5 => self.damaged(),
            _ => self.soup(),
        }
    }

    fn soup(&mut self) -> String {
        let length = 1 + self.random.below(9);
        (0..length).map(|_| self.random.pick(SOUP)).collect()
    }

    /// Odd pieces are rare, for one is enough to make a line not plain.
    fn is_odd(&mut self) -> bool {
        self.random.below(1000) < 50
    }

    fn either(&mut self, usual: &[&'static str], odd: &[&'static str]) -> &'static str {
        let choices = if self.is_odd() { odd } else { usual };
        self.random.pick(choices)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        if self.random.percent(5) {
            line.push_str(
                self.random
                    .pick(&[" ", "\n", "\t", "# c\n", "\\\n", "#\\\n"]),
            );
        }
        self.command(&mut line);
        while self.random.percent(40) {
            line.push_str(self.either(CONNECTORS, ODD_CONNECTORS));
            self.command(&mut line);
        }
        match self.random.below(40) {
            0 | 1 => line.push_str(self.random.pick(COMMENTS)),
            2 => line.push_str(
                self.random
                    .pick(&[";", "&", " ;", "\n", " &\n", ";\n", " \\\n"]),
            ),
            3 if self.is_odd() => line.push_str(self.random.pick(CONNECTORS)),
            _ => {}
        }
        line
    }

    fn command(&mut self, line: &mut String) {
        if self.random.percent(4) {
            line.push_str(
                self.random
                    .pick(&["time ", "time ", "time -p ", "time\t", "time -- "]),
            );
        }
        while self.random.percent(10) {
            if self.random.percent(70) {
                line.push_str(self.random.pick(ASSIGNED));
                line.push_str(self.either(&["="], &["+=", "= ", "\\=", "[0]="]));
                if self.random.percent(80) {
                    self.word(line);
                }
            } else if self.random.percent(10) {
                line.push_str("time");
            } else {
                line.push_str(self.either(REDIRECTIONS, ODD_REDIRECTIONS));
            }
            self.blank(line);
        }
        self.name(line);
        while self.random.percent(60) {
            let redirection = self.random.percent(12);
            // Now and then nothing stands between a word and a redirection.
            if !(redirection && self.random.percent(40)) {
                self.blank(line);
            }
            if redirection {
                line.push_str(self.either(REDIRECTIONS, ODD_REDIRECTIONS));
            } else {
                self.word(line);
            }
        }
    }

    fn blank(&mut self, line: &mut String) {
        line.push_str(self.either(BLANKS, ODD_BLANKS));
    }

    fn name(&mut self, line: &mut String) {
        match self.random.below(100) {
            0..=6 => line.push_str(self.random.pick(OURS)),
            7..=10 => line.push_str(self.random.pick(SHADOWED)),
            11..=13 => {
                let word = self.random.pick(SHELL_WORDS);
                self.disguise(word, line);
            }
            14..=17 => {
                let word = self.random.pick(ODD_NAMES);
                self.disguise(word, line);
            }
            18..=20 => self.word(line),
            21..=32 => line.push_str(self.random.pick(ODD_NAMES)),
            _ => line.push_str(self.random.pick(NAMES)),
        }
    }

    /// The same word, perhaps written with quotes.
    fn disguise(&mut self, word: &str, line: &mut String) {
        let middle = word.char_indices().nth(1).map_or(0, |(index, _)| index);
        let (head, tail) = word.split_at(middle);
        let written = match self.random.below(6) {
            0 => format!("'{word}'"),
            1 => format!("\"{word}\""),
            2 => format!("\\{word}"),
            3 => format!("{head}''{tail}"),
            4 => format!("{head}\"{tail}\""),
            _ => word.to_owned(),
        };
        line.push_str(&written);
    }

    fn word(&mut self, line: &mut String) {
        let pieces = 1 + self.random.below(3) * self.random.below(2);
        for _ in 0..pieces {
            let piece = match self.random.below(100) {
                0..=13 => self.random.pick(SINGLE),
                14..=27 => self.random.pick(DOUBLE),
                28..=39 => self.random.pick(ESCAPED),
                40..=44 => self.random.pick(DOLLAR_QUOTED),
                45..=56 => self.either(GLOBS, ODD_GLOBS),
                57..=61 => self.either(TILDES, ODD_TILDES),
                62 => self.either(NAMES, SHELL_WORDS),
                _ => self.either(BARE, ODD_PIECES),
            };
            line.push_str(piece);
        }
    }

    fn damaged(&mut self) -> String {
        let mut line = match self.random.below(3) {
            0 => self.random.pick(PLAUSIBLE).to_owned(),
            1 => {
                let index = self.random.below(self.everyday.len());
                self.everyday[index].to_owned()
            }
            _ => self.line(),
        };
        for _ in 0..=self.random.below(3) {
            self.damage(&mut line);
        }
        line
    }

    fn damage(&mut self, line: &mut String) {
        let at = self.boundary(line);
        let next = line[at..].chars().next();
        match (self.random.below(8), next) {
            // Delete, double or swap one character.
            (0, Some(character)) => line.replace_range(at..at + character.len_utf8(), ""),
            (1, Some(character)) => line.insert(at, character),
            (2, Some(character)) => {
                line.remove(at);
                let to = self.boundary(line);
                line.insert(to, character);
            }
            // Quote a stretch of the line, whatever it holds.
            (3, _) => {
                let other = self.boundary(line);
                let quote = self.random.pick(&["'", "\"", "'", "\"", "$'", "`"]);
                let closing = quote.trim_start_matches('$');
                line.insert_str(at.max(other), closing);
                line.insert_str(at.min(other), quote);
            }
            (4, _) => line.insert_str(at, self.random.pick(&["\\", "\\", "\\\n", " \\\n"])),
            _ => {
                let table = [
                    BLANKS,
                    BLANKS,
                    ODD_BLANKS,
                    CONNECTORS,
                    REDIRECTIONS,
                    REDIRECTIONS,
                    SINGLE,
                    DOUBLE,
                    ESCAPED,
                    GLOBS,
                    TILDES,
                    BARE,
                    BARE,
                    DOLLAR_QUOTED,
                    ODD_PIECES,
                    COMMENTS,
                ];
                let choices = table[self.random.below(table.len())];
                let piece = self.random.pick(choices);
                line.insert_str(at, piece);
            }
        }
    }

    /// Any place between two characters.
    fn boundary(&mut self, line: &str) -> usize {
        let count = line.chars().count();
        let wanted = self.random.below(count + 1);
        line.char_indices()
            .nth(wanted)
            .map_or(line.len(), |(index, _)| index)
    }
}
