//! Script preflight: a script that was written as if a shell read it is reported, not run.
//!
//! Help for the caller, not a boundary. It says something only where the language cannot mean
//! what is written: a false alarm would keep a good script from running. What is not understood
//! is run, and the interpreter will tell.

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

/// Larger files are not looked at.
const MAX_BYTES: u64 = 512 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    JavaScript,
}

/// What was found in a script instead of its language.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundLanguage {
    /// `$NAME` or `${NAME}`.
    Variable(String),
    /// `$1`, `$@` and their like.
    Parameter(char),
    /// `$(`
    Substitution,
    /// A line for a shell, at the start of the file; its first word.
    Line(String),
    /// The mark of a here-document, which became part of the file.
    Mark(String),
}

/// Something found, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PreflightFinding {
    /// In bytes.
    offset: usize,
    found: FoundLanguage,
}

/// A mistake in a script that would have been run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}", self.looks())]
pub struct Mistake {
    /// As the command names it.
    file: String,
    /// From 1.
    line: usize,
    language: Language,
    found: FoundLanguage,
}

impl Mistake {
    /// Stable, for programs.
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
                format!("`${name}` looks like a shell variable; in {language} it is none")
            }
            FoundLanguage::Parameter(name) => {
                format!(
                    "`${name}` looks like a parameter of a shell script; in {language} it is none"
                )
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

/// Looks into every script beneath the working directory that a request would run by name. `None`
/// where there is nothing to say.
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

/// Most requests have nothing to do with this, and need not be looked through.
fn names_a_runtime(source: &Source) -> bool {
    let named = |text: &str| ["py", "node"].iter().any(|name| text.contains(name));
    match source {
        Source::Text(text) => named(text),
        Source::Argv(argv) => argv.iter().any(|word| named(word)),
    }
}

/// The first answer for a command and the directory that it would start in.
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
    // A text that moves may mean another file than the one that is found from here.
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

/// A text file beneath the root, links included, that is not too large.
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
    // It may be growing: what counts is what was read.
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
