//! Finds where an interpreter's code comes from: the argv itself, one file, or elsewhere.
//!
//! The inline tables say which options are code and which load code. The rows here add what only a
//! binding needs: which other options are known not to affect the code, and where the file is in
//! the arguments. An option that neither table knows may take a value, so the next word may not be
//! the file; then nothing is bound.

use super::detect::read;
use super::grammar::{Grammar, OptionOrder};
use super::hit::HitKind;
use super::matcher::{ParsedLine, parse};
use crate::DYNAMIC;
use crate::names::{program_name, without_version};

mod table;

use table::{Operand, RUNTIMES, Runtime};

/// The origin of the code of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterpreterCode {
    /// The argv contains all of the code.
    Inline { label: String },
    /// One file with this path, at this index in argv.
    File {
        path: String,
        index: usize,
        /// Further code in the argv.
        inline: Option<String>,
        /// Files of the working directory that are read unasked and may name code to load.
        settings: &'static [&'static str],
        expected: &'static str,
    },
    /// The code is read from standard input.
    Stdin { expected: &'static str },
    Elsewhere {
        expected: &'static str,
        found: String,
    },
}

/// Returns `None` if this is not an interpreter, or if the call runs no code (`python --version`).
pub fn interpreter_code(argv: &[String]) -> Option<InterpreterCode> {
    let name = program_name(argv.first()?);
    let runtime = find(&name)?;
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    if matches!(words.as_slice(), [_, only] if runtime.questions.contains(only)) {
        return None;
    }
    let (parsed, hits) =
        read(&name, &words).unwrap_or_else(|| (parse(&words, 1, &PLAIN), Vec::new()));
    let call = RuntimeCall {
        runtime,
        words: &words,
        parsed: &parsed,
    };
    let inspected = hits
        .iter()
        .map(|hit| (hit.kind, hit.flag.as_str(), hit.arg_index, hit.reason));
    call.code(inspected.collect())
}

/// The grammar of interpreters without a table. It knows no options.
const PLAIN: Grammar = Grammar {
    order: OptionOrder::Until(1),
    ..Grammar::GNU
};

/// Whether the plain name is that of an interpreter with a row.
pub(super) fn is_runtime(name: &str) -> bool {
    find(name).is_some()
}

fn find(name: &str) -> Option<&'static Runtime> {
    let by_name = |name: &str| RUNTIMES.iter().find(|row| row.names.contains(&name));
    by_name(name).or_else(|| by_name(without_version(name)?))
}

struct RuntimeCall<'a> {
    runtime: &'static Runtime,
    words: &'a [&'a str],
    parsed: &'a ParsedLine<'a>,
}

type FoundCode<'a> = (HitKind, &'a str, usize, &'static str);

impl RuntimeCall<'_> {
    fn code(&self, inspected: Vec<FoundCode<'_>>) -> Option<InterpreterCode> {
        let file = match self.file() {
            Ok(file) => file,
            Err(found) => return Some(self.elsewhere(found)),
        };
        let dash = file.as_ref().filter(|(path, _)| path == STDIN);
        let is_stdin = dash.is_some();
        // The file is followed by the arguments of its program.
        let end = match &file {
            Some((_, index)) if !self.has_file_option() => *index,
            _ => self.words.len(),
        };
        let options = self.parsed.options.iter().filter_map(|option| {
            let rule = option.hit()?;
            Some((rule.kind, option.name.as_str(), option.index, rule.reason))
        });
        let hits: Vec<FoundCode<'_>> = options
            .chain(inspected)
            .filter(|(_, name, index, _)| *index < end && !self.is_file_option(name))
            .collect();
        let text = hits.iter().find(|(kind, ..)| *kind == HitKind::Code);
        let end = match text {
            Some((_, _, index, _)) if self.runtime.text_ends_options => index + 1,
            _ => end,
        };
        let loads = hits.iter().find(|(kind, _, index, _)| {
            *index < end && !matches!(kind, HitKind::Code | HitKind::WritesFile)
        });
        if let Some((_, name, _, reason)) = loads {
            return Some(self.elsewhere(format!("`{name}`: {reason}")));
        }
        if let Some(name) = self.unknown_option(end) {
            let found = format!("`{name}`, an option that may load code or take a value");
            return Some(self.elsewhere(found));
        }
        let label = text.map(|(_, name, ..)| format!("{} {name}", self.words[0]));
        // The text is in the word itself, or follows the option.
        let text_words = |index: usize| 1 + usize::from(self.words[index].starts_with('-'));
        if let Some((.., index, _)) = text
            && self.words[*index..]
                .iter()
                .take(text_words(*index))
                .any(|word| word.contains(DYNAMIC))
        {
            return Some(self.elsewhere("a text that is only known when it runs".to_owned()));
        }
        match (file, label) {
            (Some(_), None) if is_stdin => Some(InterpreterCode::Stdin {
                expected: self.runtime.shape,
            }),
            (Some(_), Some(_)) if is_stdin && self.runtime.file_besides_text => {
                Some(self.elsewhere("`-`: the code is read from standard input".to_owned()))
            }
            (Some((path, index)), inline) if inline.is_none() || self.runtime.file_besides_text => {
                Some(InterpreterCode::File {
                    path,
                    index,
                    inline,
                    settings: self.runtime.settings,
                    expected: self.runtime.shape,
                })
            }
            (_, Some(label)) => Some(InterpreterCode::Inline { label }),
            (_, None) if self.runtime.reads_stdin => Some(InterpreterCode::Stdin {
                expected: self.runtime.shape,
            }),
            (_, None) => None,
        }
    }

    fn elsewhere(&self, found: String) -> InterpreterCode {
        InterpreterCode::Elsewhere {
            expected: self.runtime.shape,
            found,
        }
    }

    fn is_file_option(&self, name: &str) -> bool {
        self.runtime.file_options.contains(&name)
    }

    fn has_file_option(&self) -> bool {
        self.parsed.has(self.runtime.file_options)
    }

    /// Returns the word that names the file, and its index. Returns `Err` if the word names
    /// something else.
    fn file(&self) -> Result<Option<(String, usize)>, String> {
        let options = self.parsed.options.iter();
        let mut named = options.filter(|option| self.is_file_option(&option.name));
        if let Some(option) = named.next() {
            if named.next().is_some() {
                return Err("several files".to_owned());
            }
            let path = option.value.unwrap_or_default();
            let index = option.end.saturating_sub(1);
            return check_path(path).map(|()| Some((path.to_owned(), index)));
        }
        let operands = &self.parsed.operands;
        let operand = match self.runtime.operand {
            Operand::None => None,
            Operand::First => operands.first(),
            Operand::BehindRun { bare } => {
                let first = operands.first().map(|&index| self.words[index]);
                if first == Some("run") {
                    let file = operands.get(1);
                    // A script of the project may have this name, but a path is always a file.
                    let is_path = |word: &str| word.starts_with(['/', '.']);
                    if let Some(&index) = file
                        && !bare
                        && !is_path(self.words[index])
                        && check_path(self.words[index]).is_ok()
                    {
                        let word = self.words[index];
                        return Err(format!(
                            "`{word}`, which may be a script of the project: write `./{word}`"
                        ));
                    }
                    file
                } else {
                    operands.first().filter(|&&index| {
                        let word = self.words[index];
                        word == "-" || word.contains(['/', '.', ':']) || word.contains(DYNAMIC)
                    })
                }
            }
        };
        let Some(&index) = operand else {
            return match (self.runtime.operand, operands.first()) {
                (Operand::BehindRun { .. }, Some(&index)) if self.words[index] != "run" => {
                    match self.words[index] {
                        "eval" => Ok(None),
                        word => Err(format!("the subcommand `{word}`")),
                    }
                }
                _ => Ok(None),
            };
        };
        let word = self.words[index];
        if self.runtime.not_files.contains(&word) {
            return Err(format!("the subcommand `{word}`"));
        }
        check_path(word).map(|()| Some((word.to_owned(), index)))
    }

    fn unknown_option(&self, end: usize) -> Option<&str> {
        // A program without its own code or file is an ordinary program.
        let matters = self.runtime.reads_stdin || self.has_file_option();
        let options = self.parsed.options.iter().filter(|_| matters);
        let unknown = options.filter(|option| {
            let name = option.name.as_str();
            let harmless = |known: &&str| match known.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => *known == name,
            };
            // A word that was read as a value may be the file if the option takes no value.
            let took_a_word = option.end > option.index + 1;
            option.index < end
                && option.rule.is_none()
                && !self.is_file_option(name)
                && !self.runtime.with_value.contains(&name)
                && (took_a_word || !self.runtime.harmless.iter().any(harmless))
        });
        unknown.map(|option| option.name.as_str()).next()
    }
}

/// The file name that means standard input.
const STDIN: &str = "-";

/// Refuses words that look like a path but are not, and files whose content cannot be pinned.
fn check_path(word: &str) -> Result<(), String> {
    let scheme = word.split(':').next().unwrap_or_default();
    let has_scheme = scheme.len() < word.len()
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if word.is_empty() {
        Err("an empty name".to_owned())
    } else if word.contains(DYNAMIC) {
        Err("a file that is only known when it runs".to_owned())
    } else if word.contains("{}") {
        Err("`{}`, which stands for files that are only known when it runs".to_owned())
    } else if has_scheme {
        Err(format!("`{word}`, an address and not a local file"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
