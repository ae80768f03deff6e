//! The form of a row, and how a row reads arguments.

use super::{FileOperand, FileUse, OperandKind, RefusedArgument};

/// How a program reads its arguments, and which arguments an entry with `paths` may cover.
pub(super) struct ArgumentRow {
    pub names: &'static [&'static str],
    /// Letters of short options without a value.
    pub flags: &'static str,
    /// Letters of short options whose value names no file.
    pub values: &'static str,
    /// Letters of short options whose value, if any, is attached and names no file.
    pub attached: &'static str,
    /// Letters of short options whose value is a file.
    pub files: &'static str,
    pub long_flags: &'static [&'static str],
    /// Options written as `--name VALUE` or `--name=VALUE`.
    pub long_values: &'static [&'static str],
    /// Options written as `--name` or `--name=VALUE`.
    pub long_attached: &'static [&'static str],
    pub long_files: &'static [&'static str],
    /// Options with this many values, none of which names a file.
    pub long_several: &'static [(&'static str, usize)],
    /// Options that are left out on purpose, with the reason for the refusal.
    pub refused: &'static [(&'static str, &'static str)],
    /// Whether `-20` is an option.
    pub numbers: bool,
    /// Whether words that begin with `-` are options.
    pub takes_options: bool,
    /// Whether options may only precede the first operand. After it, some implementations read a
    /// word with a dash as a file, and the next word as another file.
    pub options_first: bool,
    /// Whether a letter with a value takes the next argument even if other option letters follow in
    /// its word. The reading is certain only if the letter is the last of its word.
    pub values_end_clusters: bool,
    /// Whether each word is one option. The text after the letter is its value or part of its name.
    pub one_letter: bool,
    /// Options whose separate value may begin with `-`. For all other options such a word is
    /// refused: if the program takes the value only when attached, the word is another option.
    pub dash_values: &'static [&'static str],
    /// Whether the program may take a value only if it is attached, so that the next word may be an
    /// operand. That word then also counts as a file.
    pub doubtful_values: bool,
    pub operands: OperandRule,
    pub cwd: WorkingDirectory,
    /// A check of what the lists cannot express.
    pub inspect: Option<ArgumentInspection>,
}

/// Checks all arguments together.
pub(super) type ArgumentInspection = fn(&ParsedArguments<'_>) -> Result<(), RefusedArgument>;

/// Operands with their positions, and what they may lead to.
type FoundOperands<'p, 'a> = (&'p [(usize, &'a str)], OperandKind);

/// The meaning of the operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OperandRule {
    /// Files; `-` is standard input.
    Files,
    /// Files but not directories, unless one of these options is present.
    FilesUnless(&'static [&'static str]),
    /// At most this many files, because the program would write the next one.
    AtMost(usize),
    /// First a text, unless one of these options provides it, then files.
    TextThenFiles(&'static [&'static str]),
    /// Texts that name no file.
    Texts,
    /// No operands.
    Nothing,
}

/// When a program reads its working directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkingDirectory {
    Never,
    /// If no file is named.
    WithoutFiles,
    /// If no file is named and one of these options is present.
    WithoutFilesIf(&'static [&'static str]),
}

impl ArgumentRow {
    pub const NONE: Self = Self {
        names: &[],
        flags: "",
        values: "",
        attached: "",
        files: "",
        long_flags: &[],
        long_values: &[],
        long_attached: &[],
        long_files: &[],
        long_several: &[],
        refused: &[],
        numbers: false,
        takes_options: true,
        options_first: false,
        values_end_clusters: false,
        one_letter: false,
        dash_values: &[],
        doubtful_values: false,
        operands: OperandRule::Files,
        cwd: WorkingDirectory::Never,
        inspect: None,
    };

    /// A row for a program that prints its arguments, including words that look like options.
    pub const ANY_WORDS: Self = Self {
        takes_options: false,
        ..Self::NONE
    };

    /// Reads the arguments from `start` on.
    pub fn file_use<'a>(
        &self,
        argv: &[&'a str],
        start: usize,
    ) -> Result<FileUse<'a>, RefusedArgument> {
        let parsed = self.parse(argv, start)?;
        if let Some(inspect) = self.inspect {
            inspect(&parsed)?;
        }
        let mut files: Vec<FileOperand<'a>> = parsed.files.clone();
        let named_before = files.len();
        let (operands, wants) = self.file_operands(&parsed)?;
        files.extend(
            operands
                .iter()
                .map(|&(index, path)| FileOperand { index, path, wants }),
        );
        let names_none = files.len() == named_before;
        let reads_cwd = match self.cwd {
            WorkingDirectory::Never => false,
            WorkingDirectory::WithoutFiles => names_none,
            WorkingDirectory::WithoutFilesIf(options) => names_none && parsed.has_any(options),
        };
        files.retain(|operand| operand.path != "-");
        Ok(FileUse {
            reads_cwd,
            ..FileUse::of(files)
        })
    }

    /// Returns the operands that are files, and what they may lead to.
    fn file_operands<'p, 'a>(
        &self,
        parsed: &'p ParsedArguments<'a>,
    ) -> Result<FoundOperands<'p, 'a>, RefusedArgument> {
        let operands = parsed.operands.as_slice();
        match self.operands {
            OperandRule::Files => Ok((operands, OperandKind::Any)),
            OperandRule::FilesUnless(options) => {
                let wants = if parsed.has_any(options) {
                    OperandKind::Any
                } else {
                    OperandKind::NotDirectory
                };
                Ok((operands, wants))
            }
            OperandRule::AtMost(most) => match operands.get(most) {
                None => Ok((operands, OperandKind::Any)),
                Some(&(index, _)) => Err(RefusedArgument::new(index, "it would be written to")),
            },
            OperandRule::TextThenFiles(options) => {
                let skipped = usize::from(!parsed.has_any(options)).min(operands.len());
                Ok((&operands[skipped..], OperandKind::Any))
            }
            OperandRule::Texts => Ok((&[], OperandKind::Any)),
            OperandRule::Nothing => match operands.first() {
                None => Ok((&[], OperandKind::Any)),
                Some(&(index, _)) => {
                    Err(RefusedArgument::new(index, "no operand is expected here"))
                }
            },
        }
    }

    pub fn parse<'a>(
        &self,
        argv: &[&'a str],
        start: usize,
    ) -> Result<ParsedArguments<'a>, RefusedArgument> {
        let mut parsed = ParsedArguments::default();
        let mut index = start;
        while let Some(&word) = argv.get(index) {
            if !self.takes_options {
                parsed.operands.push((index, word));
                index += 1;
                continue;
            }
            let is_option = word.len() > 1 && word.starts_with('-');
            if self.options_first && is_option && !parsed.operands.is_empty() {
                let why = "it stands behind the first operand, where it may be a file by itself";
                return Err(RefusedArgument::new(index, why));
            }
            if word == "--" {
                let rest = argv.iter().enumerate().skip(index + 1);
                parsed.operands.extend(rest.map(|(at, &word)| (at, word)));
                break;
            }
            let taken = if let Some(long) = word.strip_prefix("--") {
                self.long(long, index, argv, &mut parsed)?
            } else if is_option {
                self.cluster(word, index, argv, &mut parsed)?
            } else {
                parsed.operands.push((index, word));
                0
            };
            index += 1 + taken;
        }
        Ok(parsed)
    }

    /// Reads one long option and returns how many further arguments it takes.
    fn long<'a>(
        &self,
        long: &'a str,
        index: usize,
        argv: &[&'a str],
        parsed: &mut ParsedArguments<'a>,
    ) -> Result<usize, RefusedArgument> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let has = |list: &[&str]| list.contains(&name);
        let next = argv.get(index + 1).copied();
        let mut note =
            |value: Option<&'a str>| parsed.options.push((format!("--{name}"), value, index));
        if has(self.long_attached) || (has(self.long_flags) && value.is_none()) {
            note(value);
            return Ok(0);
        }
        if has(self.long_values) {
            note(value.or(next));
            if value.is_none() {
                self.separate_value(&format!("--{name}"), index + 1, next, parsed)?;
            }
            return Ok(usize::from(value.is_none()));
        }
        if has(self.long_files) {
            note(value.or(next));
            if value.is_none() {
                self.separate_value(&format!("--{name}"), index + 1, next, parsed)?;
            }
            let at = index + usize::from(value.is_none());
            parsed.file(at, value.or(next));
            return Ok(usize::from(value.is_none()));
        }
        if let Some((_, count)) = self.long_several.iter().find(|(known, _)| *known == name)
            && value.is_none()
        {
            note(None);
            return Ok(*count);
        }
        Err(RefusedArgument::new(
            index,
            self.reason(&format!("--{name}")),
        ))
    }

    /// Reads a cluster of short options and returns how many further arguments it takes.
    fn cluster<'a>(
        &self,
        word: &'a str,
        index: usize,
        argv: &[&'a str],
        parsed: &mut ParsedArguments<'a>,
    ) -> Result<usize, RefusedArgument> {
        if self.numbers && word[1..].bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(0);
        }
        for (at, letter) in word.char_indices().skip(1) {
            let rest = &word[at + letter.len_utf8()..];
            let mut note =
                |value: Option<&'a str>| parsed.options.push((format!("-{letter}"), value, index));
            if self.one_letter && self.flags.contains(letter) && !rest.is_empty() {
                let why = "each option stands in a word of its own";
                return Err(RefusedArgument::new(index, why));
            }
            if self.flags.contains(letter) {
                note(None);
            } else if self.attached.contains(letter) {
                note(Some(rest));
                return Ok(0);
            } else if self.values.contains(letter) || self.files.contains(letter) {
                if self.values_end_clusters && !rest.is_empty() {
                    let why = "the value of an option stands in a word of its own";
                    return Err(RefusedArgument::new(index, why));
                }
                let next = argv.get(index + 1).copied();
                let (value, taken) = if rest.is_empty() {
                    (next, 1)
                } else {
                    (Some(rest), 0)
                };
                note(value);
                if taken == 1 {
                    self.separate_value(&format!("-{letter}"), index + 1, value, parsed)?;
                }
                if self.files.contains(letter) {
                    parsed.file(index + taken, value);
                }
                return Ok(taken);
            } else {
                return Err(RefusedArgument::new(
                    index,
                    self.reason(&format!("-{letter}")),
                ));
            }
        }
        Ok(0)
    }

    /// Checks a word that may or may not be the value of the preceding option.
    fn separate_value<'a>(
        &self,
        option: &str,
        index: usize,
        value: Option<&'a str>,
        parsed: &mut ParsedArguments<'a>,
    ) -> Result<(), RefusedArgument> {
        let Some(value) = value else {
            return Ok(());
        };
        let is_option = value.len() > 1 && value.starts_with('-');
        let digits = value.strip_prefix('-').unwrap_or(value);
        let is_number = digits.starts_with(|first: char| first.is_ascii_digit());
        if is_option && !is_number && !self.dash_values.contains(&option) {
            let why = "it may be an option by itself: attach the value to the option in front";
            return Err(RefusedArgument::new(index, why));
        }
        if self.doubtful_values {
            parsed.file(index, Some(value));
        }
        Ok(())
    }

    fn reason(&self, option: &str) -> &'static str {
        let known = self.refused.iter().find(|(name, _)| *name == option);
        known.map_or(UNKNOWN_OPTION, |(_, why)| why)
    }
}

pub(super) const UNKNOWN_OPTION: &str =
    "the option is not known to name no file, to write nothing and to start no program";

/// The result of reading the arguments by a row.
#[derive(Debug, Default)]
pub(super) struct ParsedArguments<'a> {
    /// Options with dashes, value and position.
    pub options: Vec<(String, Option<&'a str>, usize)>,
    pub operands: Vec<(usize, &'a str)>,
    /// Values of options that are files.
    pub files: Vec<FileOperand<'a>>,
}

impl<'a> ParsedArguments<'a> {
    pub fn has_any(&self, options: &[&str]) -> bool {
        let mut names = self.options.iter();
        names.any(|(name, _, _)| options.contains(&name.as_str()))
    }

    /// Adds a file. If the value is missing, the program itself reports the error.
    fn file(&mut self, index: usize, path: Option<&'a str>) {
        if self.files.iter().any(|known| known.index == index) {
            return;
        }
        self.files.extend(path.map(|path| FileOperand {
            index,
            path,
            wants: OperandKind::Any,
        }));
    }
}
