//! Reads the words after the deciding ones: which of them lead to other code, which are known, and
//! which name files.

use interlock_programs::DYNAMIC;

use super::table::{Elsewhere, ProjectRest};
use super::{CodeOrigin, Leads, ProjectOperands, ProjectOptionStyle, ProjectOptions};

/// The result of reading words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The index after the words that were read.
    pub next: usize,
    /// The first option that leads to other code, with its value.
    pub found: Option<FoundElsewhere>,
    /// The first unknown word.
    pub unknown: Option<String>,
    pub operands: Vec<String>,
    /// Operands that must be beneath the project.
    pub paths: Vec<String>,
    /// The first operand that names code that is fetched or is elsewhere.
    pub package: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundElsewhere {
    pub option: String,
    pub value: String,
    /// The index of the value.
    pub index: usize,
    pub leads: Leads,
}

impl Scanned {
    /// Whether nothing was found that leads elsewhere or is unknown.
    pub(super) fn is_plain(&self) -> bool {
        self.found.is_none() && self.unknown.is_none()
    }

    /// Adds the result of the words before.
    pub(super) fn join(&mut self, front: Self) {
        self.found = worse(front.found, self.found.take());
        self.unknown = front.unknown.or_else(|| self.unknown.take());
    }

    /// The name of an option that loads code or names a program, if there is one.
    pub(super) fn loader(&self) -> Option<String> {
        let found = self.found.as_ref()?;
        (found.leads == Leads::Loader).then(|| format!("`{}`", found.option))
    }

    pub(super) fn origin(&self) -> CodeOrigin {
        let Some(found) = &self.found else {
            return CodeOrigin::Here;
        };
        let (option, path) = (found.option.clone(), found.value.clone());
        match found.leads {
            Leads::Directory => CodeOrigin::Directory { option, path },
            Leads::File => CodeOrigin::File {
                option,
                path,
                index: found.index,
            },
            Leads::Fetched => CodeOrigin::Fetched,
            Leads::Settings | Leads::Module | Leads::Loader => CodeOrigin::Here,
        }
    }

    /// Why nothing of the call may be stored, or `None` if it may.
    pub(super) fn refusal(&self) -> Option<String> {
        if let Some(found) = &self.found {
            let option = &found.option;
            return Some(match found.leads {
                Leads::Directory | Leads::File => format!("`{option}` names another project"),
                Leads::Settings | Leads::Module => {
                    format!("`{option}` names settings or code of its own")
                }
                Leads::Fetched => "it fetches the code that it runs".to_owned(),
                Leads::Loader => format!("`{option}` loads code or names a program"),
            });
        }
        let package = self.package.as_ref()?;
        Some(format!(
            "`{package}` names code that is not part of the project yet"
        ))
    }
}

/// Chooses the worse finding: an option that loads code is worse than one that names a project.
fn worse(first: Option<FoundElsewhere>, second: Option<FoundElsewhere>) -> Option<FoundElsewhere> {
    match (first, second) {
        (Some(first), Some(second)) if second.leads == Leads::Loader => {
            Some(if first.leads == Leads::Loader {
                first
            } else {
                second
            })
        }
        (first, second) => first.or(second),
    }
}

/// Reads options up to the first operand.
pub(super) fn options(
    argv: &[String],
    start: usize,
    known: &ProjectOptions,
    style: ProjectOptionStyle,
) -> Scanned {
    let mut scanned = Scanned {
        next: start,
        ..Scanned::default()
    };
    while let Some(word) = argv.get(scanned.next) {
        if word == "--" {
            scanned.next += 1;
            break;
        }
        if !word.starts_with('-') || word == "-" {
            break;
        }
        option(argv, known, style, &mut scanned);
    }
    scanned
}

/// Reads all words.
pub(super) fn all(
    argv: &[String],
    start: usize,
    rest: &ProjectRest,
    style: ProjectOptionStyle,
) -> Scanned {
    let mut scanned = Scanned {
        next: start,
        ..Scanned::default()
    };
    while let Some(word) = argv.get(scanned.next) {
        if word == "--" {
            scanned.next += 1;
            behind(argv, rest, &mut scanned);
            break;
        }
        if word.starts_with('-') && word != "-" {
            option(argv, &rest.options, style, &mut scanned);
            continue;
        }
        scanned.next += 1;
        operand(word, rest.operands, &mut scanned);
    }
    scanned
}

/// Reads the words after `--`, which go to the program that is run.
fn behind(argv: &[String], rest: &ProjectRest, scanned: &mut Scanned) {
    let Some(known) = rest.behind.filter(|_| rest.is_open) else {
        if rest.is_open && scanned.next < argv.len() {
            scanned.unknown.get_or_insert_with(|| "--".to_owned());
        }
        scanned.next = argv.len();
        return;
    };
    while let Some(word) = argv.get(scanned.next) {
        if word.starts_with('-') && word != "-" {
            option(argv, &known, ProjectOptionStyle::Gnu, scanned);
        } else {
            scanned.next += 1;
            operand(word, ProjectOperands::Names, scanned);
        }
    }
}

fn operand(word: &str, operands: ProjectOperands, scanned: &mut Scanned) {
    scanned.operands.push(word.to_owned());
    match operands {
        ProjectOperands::Any => {}
        ProjectOperands::Names => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_:.,-".contains(c);
            if !word.chars().all(is_name) || word.contains("..") {
                scanned.unknown.get_or_insert_with(|| word.to_owned());
            }
        }
        ProjectOperands::Paths => {
            if word.contains(DYNAMIC) || word.contains("://") {
                scanned.unknown.get_or_insert_with(|| word.to_owned());
            }
            scanned.paths.push(word.to_owned());
        }
        ProjectOperands::Packages => {
            let is_own = matches!(word, "." | "./");
            if !is_own {
                scanned.package.get_or_insert_with(|| word.to_owned());
            }
        }
    }
}

/// Reads the option at `scanned.next` and its value.
fn option(
    argv: &[String],
    known: &ProjectOptions,
    style: ProjectOptionStyle,
    scanned: &mut Scanned,
) {
    let word = argv[scanned.next].as_str();
    let index = scanned.next;
    scanned.next += 1;
    let (typed, attached) = match word.split_once('=') {
        Some((typed, value)) => (typed, Some(value)),
        None => (word, None),
    };
    let typed = same_dashes(typed, style);
    let is = |name: &&str| same_dashes(name, style) == typed;
    if known.flags.contains(&word) || (attached.is_none() && known.flags.iter().any(is)) {
        return;
    }
    if let Some(elsewhere) = known.elsewhere.iter().find(|one| is(&one.option)) {
        let (value, at) = match attached {
            Some(value) => (value, index),
            None => (
                argv.get(scanned.next).map_or("", String::as_str),
                scanned.next,
            ),
        };
        scanned.next += usize::from(attached.is_none() && scanned.next < argv.len());
        return note(elsewhere, value, at, scanned);
    }
    if known.values.iter().any(is) {
        if attached.is_none() {
            value(argv, word, scanned);
        }
        return;
    }
    if word.starts_with("--") || word.len() < 3 {
        scanned.unknown.get_or_insert_with(|| word.to_owned());
        return;
    }
    letters(argv, index, known, style, scanned);
}

/// Reads the value of an option from the next word. The program may accept only an attached value,
/// so a word that looks like an option is read as an option.
fn value(argv: &[String], option: &str, scanned: &mut Scanned) {
    match argv.get(scanned.next) {
        Some(value) if value.len() > 1 && value.starts_with('-') => {
            scanned.unknown.get_or_insert_with(|| option.to_owned());
        }
        Some(_) => scanned.next += 1,
        None => {}
    }
}

/// Reads a cluster of letters such as `-abc`, `-C/dir` or `-j4`, until one of them takes the rest
/// as its value.
fn letters(
    argv: &[String],
    index: usize,
    known: &ProjectOptions,
    style: ProjectOptionStyle,
    scanned: &mut Scanned,
) {
    let word = argv[index].as_str();
    let mut rest = &word[1..];
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        let name = format!("-{letter}");
        if let Some(elsewhere) = known.elsewhere.iter().find(|one| one.option == name) {
            let (value, at) = if rest.is_empty() {
                scanned.next += usize::from(scanned.next < argv.len());
                (argv.get(index + 1).map_or("", String::as_str), index + 1)
            } else {
                (rest.strip_prefix('=').unwrap_or(rest), index)
            };
            return note(elsewhere, value, at, scanned);
        }
        if known.values.contains(&name.as_str()) {
            if rest.is_empty() {
                value(argv, word, scanned);
            }
            return;
        }
        let is_flag = known.flags.contains(&name.as_str());
        if !is_flag || style == ProjectOptionStyle::Words {
            scanned.unknown.get_or_insert_with(|| word.to_owned());
            // In the word style, an option is not a cluster of letters.
            if style == ProjectOptionStyle::Words {
                return;
            }
        }
    }
}

fn note(elsewhere: &Elsewhere, value: &str, index: usize, scanned: &mut Scanned) {
    if elsewhere.when.is_some_and(|when| !when(value)) {
        return;
    }
    // The shell may expand `~` to the home directory.
    let is_outside =
        value.starts_with(['/', '~']) || value.contains("..") || value.contains(DYNAMIC);
    let found = FoundElsewhere {
        option: elsewhere.option.to_owned(),
        value: value.to_owned(),
        index,
        leads: match elsewhere.leads {
            Leads::Module if is_outside => Leads::Loader,
            Leads::Module => Leads::Settings,
            leads => leads,
        },
    };
    scanned.found = worse(scanned.found.take(), Some(found));
}

/// Normalizes dashes: in the word style, one and two dashes mean the same.
fn same_dashes(token: &str, style: ProjectOptionStyle) -> &str {
    match token.strip_prefix("--") {
        Some(_) if style == ProjectOptionStyle::Words => &token[1..],
        _ => token,
    }
}
