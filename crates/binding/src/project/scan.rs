//! Reads the words behind the deciding ones: which of them lead elsewhere, which are known, and which
//! name files.

use interlock_programs::DYNAMIC;

use super::table::{Elsewhere, ProjectRest};
use super::{CodeOrigin, Leads, ProjectOperands, ProjectOptionStyle, ProjectOptions};

/// What was found in the words that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Behind what was read.
    pub next: usize,
    /// The first option that leads elsewhere, with its value.
    pub found: Option<FoundElsewhere>,
    /// The first word that no table knows.
    pub unknown: Option<String>,
    pub operands: Vec<String>,
    /// Operands that must lie beneath the project.
    pub paths: Vec<String>,
    /// The first operand that names code which is fetched or lies elsewhere.
    pub package: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundElsewhere {
    pub option: String,
    pub value: String,
    /// Where the value stands.
    pub index: usize,
    pub leads: Leads,
}

impl Scanned {
    /// Nothing was read that says more than a word alone.
    pub(super) fn is_plain(&self) -> bool {
        self.found.is_none() && self.unknown.is_none()
    }

    /// Adds what was read in front.
    pub(super) fn join(&mut self, front: Self) {
        self.found = worse(front.found, self.found.take());
        self.unknown = front.unknown.or_else(|| self.unknown.take());
    }

    /// An option that loads code or names a program, in words.
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

    /// Why nothing of it may be stored.
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

/// Code that is loaded says more than a project that is named.
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

/// Reads everything.
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

/// Words behind `--`, which go to what is run.
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

/// Reads one option at `scanned.next`, with its value.
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

/// Reads the value of an option in a word of its own. A program may take a value only if it is attached: what looks
/// like an option is then one, and is read as such.
fn value(argv: &[String], option: &str, scanned: &mut Scanned) {
    match argv.get(scanned.next) {
        Some(value) if value.len() > 1 && value.starts_with('-') => {
            scanned.unknown.get_or_insert_with(|| option.to_owned());
        }
        Some(_) => scanned.next += 1,
        None => {}
    }
}

/// `-abc`, `-C/dir`, `-j4`: letters in a row, until one of them takes the rest.
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
            // A word is not a row of letters.
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
    // `~` is the shell's: behind an option it stays, or leads to the home directory.
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

/// In the word style one and two dashes mean the same.
fn same_dashes(token: &str, style: ProjectOptionStyle) -> &str {
    match token.strip_prefix("--") {
        Some(_) if style == ProjectOptionStyle::Words => &token[1..],
        _ => token,
    }
}
