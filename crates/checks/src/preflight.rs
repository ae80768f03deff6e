//! Script preflight: a Python or JavaScript script that contains shell syntax is reported instead
//! of run.
//!
//! This helps the caller; it is not a security boundary. It reports only text that cannot be valid
//! in the language, because a false alarm would keep a good script from running. A script that it
//! does not understand runs, and the interpreter reports the error.

mod first_line;
mod javascript;
mod names;
mod operand;
mod python;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use interlock_command::{Analysis, Program, Source};
use interlock_programs::DYNAMIC;
use rustix::fs::{Mode, OFlags};

/// The largest file that is checked.
const MAX_BYTES: u64 = 512 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    JavaScript,
}

/// Shell syntax that was found in a script.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundLanguage {
    /// `$NAME` or `${NAME}`.
    Variable(String),
    /// `$1`, `$@` and similar parameters.
    Parameter(char),
    /// `$(`
    Substitution,
    /// A shell command at the start of the file, by its first word.
    Line(String),
    /// The delimiter of a here-document, which became part of the file.
    Mark(String),
}

/// Shell syntax and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PreflightFinding {
    /// The offset in bytes.
    offset: usize,
    found: FoundLanguage,
}

/// A mistake in a script that would otherwise run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}", self.looks())]
pub struct Mistake {
    /// The file as the command names it.
    file: String,
    /// The line, counted from 1.
    line: usize,
    language: Language,
    found: FoundLanguage,
}

impl Mistake {
    /// The stable code for programs.
    pub fn code(&self) -> &'static str {
        "SCRIPT_SHELL_SYNTAX"
    }

    pub fn line(&self) -> usize {
        self.line
    }

    fn looks(&self) -> String {
        let language = self.language.as_str();
        match &self.found {
            FoundLanguage::Variable(name) => {
                format!("`${name}` looks like a shell variable; {language} has none")
            }
            FoundLanguage::Parameter(name) => {
                format!("`${name}` looks like a parameter of a shell script; {language} has none")
            }
            FoundLanguage::Substitution => {
                format!("`$(` looks like the output of a shell command; in {language} it is not")
            }
            FoundLanguage::Line(word) => {
                format!("`{word} …` looks like a line for a shell, not like {language}")
            }
            FoundLanguage::Mark(mark) => {
                format!("`{mark}` looks like the mark of a here-document, not like {language}")
            }
        }
    }

    /// What to write instead.
    pub fn remedy(&self) -> String {
        match (&self.found, self.language) {
            (FoundLanguage::Variable(name), Language::Python) => {
                format!("write `os.environ[\"{name}\"]`, with `import os`")
            }
            (FoundLanguage::Variable(name), Language::JavaScript) => format!("write `process.env.{name}`"),
            (FoundLanguage::Parameter(_), Language::Python) => "write `sys.argv`, with `import sys`".to_owned(),
            (FoundLanguage::Parameter(_), Language::JavaScript) => "write `process.argv`".to_owned(),
            (FoundLanguage::Substitution, Language::Python) => {
                "write `subprocess.run([…], capture_output=True, text=True).stdout`, with `import subprocess`".to_owned()
            }
            (FoundLanguage::Substitution, Language::JavaScript) => {
                "use `execFileSync` of `node:child_process`".to_owned()
            }
            (FoundLanguage::Line(_), _) => "run shell commands by themselves, and leave only the program in the file".to_owned(),
            (FoundLanguage::Mark(_), _) => "remove the line".to_owned(),
        }
    }
}

impl Language {
    fn as_str(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
        }
    }

    fn check(self, text: &str) -> Option<PreflightFinding> {
        match self {
            Self::Python => python::check(text),
            Self::JavaScript => javascript::check(text),
        }
    }
}

/// Checks every script beneath the working directory that a request would run by name. Returns
/// `None` if there is no mistake.
pub fn preflight(analysis: &Analysis) -> Option<Mistake> {
    if !names_a_runtime(&analysis.source) {
        return None;
    }
    let root = std::fs::canonicalize(&analysis.cwd).ok()?;
    each_command(analysis, |argv, cwd| {
        let (language, word) = operand::script(argv)?;
        let text = read_beneath(&root, &Path::new(cwd).join(word))?;
        let finding = language.check(&text)?;
        let line = text[..finding.offset].matches('\n').count() + 1;
        Some(Mistake {
            file: word.escape_debug().to_string(),
            line,
            language,
            found: finding.found,
        })
    })
}

/// Whether the request may run a script at all. Most requests do not, and need no further check.
fn names_a_runtime(source: &Source) -> bool {
    let named = |text: &str| ["py", "node"].iter().any(|name| text.contains(name));
    match source {
        Source::Text(text) => named(text),
        Source::Argv(argv) => argv.iter().any(|word| named(word)),
    }
}

/// Calls `ask` with each command and the directory in which it would start, and returns the first
/// answer.
fn each_command<T>(
    analysis: &Analysis,
    mut ask: impl FnMut(&[String], &str) -> Option<T>,
) -> Option<T> {
    for command in &analysis.commands {
        if let Some(answer) = ask(&command.argv, &command.cwd) {
            return Some(answer);
        }
    }
    let is_closed = |program: &Program| matches!(program, Program::Closed { .. });
    let hides = analysis.shape.odd().is_some()
        || analysis
            .commands
            .iter()
            .any(|command| is_closed(&command.program));
    if !hides {
        return None;
    }
    let sight = analysis.sight();
    // If the text changes the directory, a name may mean another file than the one found here.
    let moves = sight.commands.iter().any(|seen| {
        let words = [
            "cd", "pushd", "popd", "chdir", "chroot", "ssh", "docker", "podman",
        ];
        words.contains(&seen.argv[0].as_str()) || seen.argv[0] == DYNAMIC
    });
    if moves {
        return None;
    }
    sight
        .commands
        .iter()
        .filter(|seen| !seen.argv.iter().any(|word| word.contains(DYNAMIC)))
        .find_map(|seen| ask(&seen.argv, seen.cwd.as_deref().unwrap_or(&analysis.cwd)))
}

/// Reads a text file that is beneath the root after links are resolved, and not too large.
fn read_beneath(root: &Path, path: &Path) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    if !path.starts_with(root) {
        return None;
    }
    // A pipe or device of that name must not block this process.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(&path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    // The file may be growing, so only the number of bytes that were read counts.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MAX_BYTES || bytes.contains(&0) {
        return None;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
