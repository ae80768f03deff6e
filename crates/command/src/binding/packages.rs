//! Programs that start programs of a project: which word is the program, and where it lies.
//!
//! They are not looked through for trust. Here they only decide whether what they would start can
//! be held on to.

mod table;

use crate::describe::DYNAMIC;
use crate::names::program_name;
use table::{RUNNERS, Runner, Verb};

/// What such a program would start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Runs {
    /// No code of the project.
    Nothing,
    /// The program at this index, with its arguments.
    Behind {
        index: usize,
        /// The word there is a file for this program.
        by: Option<&'static str>,
        places: Places,
        settings: &'static [&'static str],
    },
    Elsewhere {
        expected: &'static str,
        found: String,
    },
}

/// Where a program is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// `node_modules/.bin` of the directory and its parents, then PATH.
    NodeModules,
    /// The same, then the directory of the runner itself; what is in neither is fetched.
    NodeModulesOrFetched,
    /// `.venv/bin` of the directory and its parents, then PATH.
    VirtualEnvironment,
}

/// More parents than this are not searched.
const MAX_PARENTS: usize = 64;

/// The paths where `name` would be found before PATH, first ones first. `runner` is where the
/// program lies that looks for it.
pub(super) fn candidates(places: Places, name: &str, cwd: &str, runner: &str) -> Vec<String> {
    let folder = match places {
        Places::NodeModules | Places::NodeModulesOrFetched => "node_modules/.bin",
        Places::VirtualEnvironment => ".venv/bin",
    };
    let parents = std::path::Path::new(cwd).ancestors().take(MAX_PARENTS);
    let paths = parents.map(|parent| format!("{}/{folder}/{name}", parent.display()));
    let own = runner
        .rsplit_once('/')
        .map(|(own, _)| format!("{own}/{name}"));
    paths
        .chain(own.filter(|_| places == Places::NodeModulesOrFetched))
        .map(|path| path.replace("//", "/"))
        .collect()
}

/// They print something and end, standing alone.
const QUESTIONS: &[&str] = &["--version", "-v", "-V", "--help", "-h", "help", "version"];

/// `None`: no such program.
pub(super) fn read(argv: &[String]) -> Option<Runs> {
    let name = program_name(argv.first()?);
    let runner = RUNNERS
        .iter()
        .find(|runner| runner.names.contains(&name.as_str()))?;
    if matches!(argv, [_, only] if QUESTIONS.contains(&only.as_str())) {
        return Some(Runs::Nothing);
    }
    Some(runner.read(argv).unwrap_or_else(|found| Runs::Elsewhere {
        expected: runner.shape,
        found,
    }))
}

impl Runner {
    fn read(&self, argv: &[String]) -> Result<Runs, String> {
        let scripts = || Err("what its project files say".to_owned());
        let fetched = || Err("a package that is fetched".to_owned());
        if self.flags.is_empty() && self.values.is_empty() && self.verbs.is_empty() {
            return scripts();
        }
        let (verb, at) = if self.verbs.is_empty() {
            (self.otherwise, 0)
        } else {
            let at = self.operand(argv, 1)?;
            let Some(word) = argv.get(at) else {
                // `pnpm` and `npm` alone print help; `yarn` alone installs.
                return if self.otherwise == Verb::Plain {
                    Ok(Runs::Nothing)
                } else {
                    scripts()
                };
            };
            let listed = self
                .verbs
                .iter()
                .find(|(words, _)| words.contains(&word.as_str()));
            (listed.map_or(self.otherwise, |(_, verb)| *verb), at)
        };
        match verb {
            Verb::Plain => Ok(Runs::Nothing),
            Verb::Scripts => scripts(),
            Verb::Fetches => fetched(),
            Verb::IsProgram => self.behind(argv, at),
            Verb::Starts => {
                let at = self.operand(argv, at + 1)?;
                let word = argv.get(at).ok_or("no program: it opens a shell")?;
                if is_package_spec(word) {
                    return fetched();
                }
                self.behind(argv, at)
            }
            Verb::PythonFile => {
                let at = self.operand(argv, at + 1)?;
                let word = argv.get(at).ok_or("no program")?;
                let is_python = |ending: &str| word.to_lowercase().ends_with(ending);
                if word == "-" {
                    Err("code from standard input".to_owned())
                } else if word.contains("://") {
                    Err(format!("`{word}`, an address and not a local file"))
                } else if is_python(".py") || is_python(".pyw") {
                    Ok(Runs::Behind {
                        index: at,
                        by: Some("python"),
                        places: self.places,
                        settings: self.settings,
                    })
                } else {
                    self.behind(argv, at)
                }
            }
        }
    }

    fn behind(&self, argv: &[String], index: usize) -> Result<Runs, String> {
        if argv[index].contains(DYNAMIC) {
            return Err("a program that is only known when it runs".to_owned());
        }
        Ok(Runs::Behind {
            index,
            by: None,
            places: self.places,
            settings: self.settings,
        })
    }

    /// The first operand from `start` on.
    fn operand(&self, argv: &[String], start: usize) -> Result<usize, String> {
        let mut at = start;
        while let Some(word) = argv.get(at) {
            if word == "--" {
                return Ok(at + 1);
            }
            if !word.starts_with('-') || word == "-" {
                break;
            }
            let (option, attached) = match word.split_once('=') {
                Some((option, _)) => (option, true),
                None => (word.as_str(), false),
            };
            if self.values.contains(&option) && !self.flags.contains(&option) {
                at += if attached { 1 } else { 2 };
            } else if self.flags.contains(&option) {
                at += 1;
            } else {
                return Err(format!("`{option}`, an option that may name or fetch code"));
            }
        }
        Ok(at)
    }
}

/// A path, version, scope or address names a package, which need not be a program of the project.
fn is_package_spec(word: &str) -> bool {
    word.contains(['/', '@', ':']) || word.starts_with('.')
}

#[cfg(test)]
mod tests;
