//! The allowlist, indexed so that the time for a verdict hardly grows with its length.

mod index;
mod lists;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::arguments::{ArgumentRule, hex};
use crate::entry::{Entry, EntryError, command_hash};
use crate::env::Unadmitted;
use crate::pattern::{self, LazyGlob};
use index::Index;
pub use lists::EntryLists;

/// Entries of all scopes that apply to one agent, ready for matching.
#[derive(Debug, Default)]
pub struct Allowlist {
    entries: EntryLists,
    /// What is known of each, by its position. It is known once a candidate was compared with the entry:
    /// an allowlist is long, and a command is compared with few of its entries.
    states: Vec<OnceLock<EntryState>>,
    index: Index,
    /// Exact-command grants by their hash.
    commands: HashMap<String, Vec<usize>>,
    /// What `~` stands for.
    home: Option<String>,
}

#[derive(Debug)]
enum EntryState {
    Usable(Box<Usable>),
    /// Remembered without any argument binding.
    Inert,
    Broken(EntryError),
}

#[derive(Debug)]
struct Usable {
    /// The pattern with `~` replaced.
    pattern: String,
    glob: LazyGlob,
    arguments: ArgumentRule,
    cwd: Option<LazyGlob>,
    cwd_itself: Option<String>,
}

/// A program that asks to be matched.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The name if it was invoked through PATH by that name, else `None`.
    pub path_name: Option<&'a str>,
    pub found: &'a str,
    pub canonical: &'a str,
    /// The path as found may be trusted.
    pub protected: bool,
    /// Only an entry that lists the arguments satisfies it.
    pub opaque: bool,
    /// Without the program's name.
    pub arguments: &'a [String],
    pub cwd: &'a str,
    pub now_ms: u64,
}

/// An entry that matched.
#[derive(Debug, Clone)]
pub struct Match<'a> {
    pub entry: &'a Entry,
    /// Where it is written, such as `agents.main.allowlist[3]`.
    pub origin: String,
}

/// What stood closest to matching, for the reason of a miss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearMiss {
    Expired {
        origin: String,
    },
    Arguments {
        origin: String,
    },
    /// The base allows the program something else: what, in words. Every other miss tells more.
    BaseArguments {
        origin: String,
        allows: String,
    },
    Cwd {
        origin: String,
    },
    /// The program is opaque and the entry does not list the arguments.
    Opaque {
        origin: String,
    },
    /// The entry names the path as found, but that way could be altered.
    Unprotected {
        origin: String,
    },
    Inert {
        origin: String,
    },
    /// What only the command itself can tell does not fit.
    Objected {
        origin: String,
        objection: Objection,
        entry: Box<Entry>,
    },
}

/// What an entry wants beyond its pattern, arguments and directory, and does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// The program is called by another name.
    CalledAs,
    /// The content of the script is another one, or cannot be read.
    Content,
    /// The entry was widened by "always", and this is code or an option that starts programs.
    Unforeseen,
    /// The caller sets a variable that the entry does not admit.
    Env(Unadmitted),
    /// "Always" stored the entry for a call with other variables, or other values.
    OtherEnv,
    /// The caller can type into the program, and the entry is not `interactive`.
    Interactive,
    /// The entry is for a run with another terminal or standard input.
    OtherInput,
    /// The line runs without the shield, and the entry wants one.
    Shield,
    /// An argument leads out of the entry's `paths`, or may; why.
    Paths(String),
    /// The entry names a program, and the one that was found by that name lies in the workspace.
    InWorkspace,
    /// Git would obey the files of this directory, which is made to look like a repository.
    BareRepository(String),
}

impl NearMiss {
    /// What the base allows tells least, and an entry for another directory less than one for this.
    fn tells_more_than(&self, other: &Self) -> bool {
        let rank = |miss: &Self| match miss {
            Self::BaseArguments { .. } => 0,
            Self::Cwd { .. } => 1,
            _ => 2,
        };
        rank(other) < 2 && rank(self) > rank(other)
    }

    /// Whether program, arguments and directory are those of the entry.
    fn is_objection(&self) -> bool {
        matches!(self, Self::Objected { .. })
    }
}

impl Allowlist {
    /// `entries` with where they are written, in order; `home` replaces `~`. They are found by what
    /// stands in them; whether they can be used is looked at when one is found.
    pub fn new(entries: EntryLists, home: Option<&str>) -> Self {
        let mut list = Self {
            home: home.map(str::to_owned),
            states: std::iter::repeat_with(OnceLock::new)
                .take(entries.len())
                .collect(),
            ..Self::default()
        };
        for (position, entry) in entries.iter().enumerate() {
            list.add(entry, position);
        }
        list.entries = entries;
        list
    }

    fn add(&mut self, entry: &Entry, position: usize) {
        match expanded_pattern(entry, self.home.as_deref()) {
            // Kept findable, so that a miss can say why the entry did not help.
            _ if entry.is_inert() => self.index.add(&entry.pattern, None, position),
            // Nothing can be beneath `~` here.
            None => {
                let _ = self.states[position].set(compile(entry, self.home.as_deref()));
            }
            Some(pattern) => match command_hash(&pattern) {
                Some(hash) => {
                    let hash = hash.to_ascii_lowercase();
                    self.commands.entry(hash).or_default().push(position);
                }
                None => self.index.add(&pattern, entry.digest(), position),
            },
        }
    }

    fn at(&self, position: usize) -> Option<ListedAt<'_>> {
        let entry = self.entries.get(position)?;
        let state = self.states.get(position)?;
        Some(ListedAt {
            list: &self.entries,
            position,
            entry,
            state: state.get_or_init(|| compile(entry, self.home.as_deref())),
        })
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The patterns of all entries that can match, with `~` replaced where it can be.
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        let usable = self.entries.iter().filter(|entry| !entry.is_inert());
        usable.map(
            |entry| match (entry.pattern.strip_prefix("~/"), &self.home) {
                (Some(rest), Some(home)) => format!("{home}/{rest}"),
                _ => entry.pattern.clone(),
            },
        )
    }

    /// Path patterns of entries that hold no content: whatever lies at such a path is trusted.
    pub(crate) fn trusted_paths(&self) -> impl Iterator<Item = String> {
        let entries = self.entries.iter();
        let usable = entries.filter(|entry| !entry.is_inert() && entry.bound_file.is_none());
        let paths = usable.filter(|entry| entry.pattern.contains('/'));
        paths.map(
            |entry| match (entry.pattern.strip_prefix("~/"), &self.home) {
                (Some(rest), Some(home)) => format!("{home}/{rest}"),
                _ => entry.pattern.clone(),
            },
        )
    }

    /// Entries that can never match, with where they are written and the reason. Each entry is looked at
    /// for this.
    pub fn broken(&self) -> impl Iterator<Item = (String, &EntryError)> {
        let looked_at = (0..self.len()).filter_map(|position| self.at(position));
        looked_at.filter_map(|listed| listed.broken())
    }

    /// Those among them that are known already: the ones beneath `~` where no home directory is known,
    /// and those that a command was compared with. A document in force has no others.
    pub fn known_broken(&self) -> impl Iterator<Item = (String, &EntryError)> {
        let states = self.states.iter().enumerate();
        let known = states.filter_map(|(position, state)| Some((position, state.get()?)));
        known.filter_map(|(position, _)| self.at(position)?.broken())
    }

    /// The first entry that matches, in the order of the documents. An entry that wants to know more
    /// than the candidate tells does not match.
    pub fn find(&self, candidate: &Candidate<'_>) -> Result<Match<'_>, Option<NearMiss>> {
        self.find_with(candidate, |entry| {
            if entry.called_as.is_some() {
                Some(Objection::CalledAs)
            } else if entry.bound_file.is_some() {
                Some(Objection::Content)
            } else if entry.is_widened() {
                Some(Objection::Unforeseen)
            } else if entry.paths.is_some() {
                Some(Objection::Paths(
                    "where its arguments lead is not known".to_owned(),
                ))
            } else {
                plain_call_objection(entry)
            }
        })
    }

    /// The same. `objection` is asked last, about an entry that matches otherwise: it looks at what
    /// the entry holds of files and names.
    pub(crate) fn find_with(
        &self,
        candidate: &Candidate<'_>,
        objection: impl Fn(&Entry) -> Option<Objection>,
    ) -> Result<Match<'_>, Option<NearMiss>> {
        let mut positions = self.index.positions(candidate);
        positions.sort_unstable();
        positions.dedup();
        let mut near = None;
        for listed in positions.into_iter().filter_map(|at| self.at(at)) {
            let checked = listed.check(candidate);
            let checked = checked.and_then(|()| match objection(listed.entry) {
                None => Ok(()),
                Some(objection) => Err(Some(NearMiss::Objected {
                    origin: listed.origin(),
                    objection,
                    entry: Box::new(listed.entry.clone()),
                })),
            });
            match checked {
                Ok(()) => return Ok(listed.matched()),
                // The first miss tells most, unless a later entry is nearer.
                Err(Some(miss)) if near.as_ref().is_none_or(|near| miss.tells_more_than(near)) => {
                    near = Some(miss);
                }
                Err(Some(miss)) if miss.is_objection() => {
                    near = near.filter(NearMiss::is_objection).or(Some(miss));
                }
                Err(_) => {}
            }
        }
        Err(near)
    }

    /// An entry for exactly this command text, in this directory if it names one. The call sets no
    /// variables and nothing can be typed into the run.
    pub fn find_command(&self, text: &str, cwd: &str, now_ms: u64) -> Option<Match<'_>> {
        self.find_command_with(text, cwd, now_ms, plain_call_objection)
    }

    /// The same. `objection` is asked last, as in [`Self::find_with`].
    pub(crate) fn find_command_with(
        &self,
        text: &str,
        cwd: &str,
        now_ms: u64,
        objection: impl Fn(&Entry) -> Option<Objection>,
    ) -> Option<Match<'_>> {
        if self.commands.is_empty() {
            return None;
        }
        let hash = hex(&Sha256::digest(text.as_bytes()));
        let positions = self.commands.get(&hash[..16])?;
        let mut entries = positions.iter().filter_map(|position| self.at(*position));
        let found = entries.find(|listed| {
            let live = listed.entry.expires_at.is_none_or(|at| now_ms < at);
            live && matches!(listed.state, EntryState::Usable(usable) if usable.covers_directory(cwd))
                && objection(listed.entry).is_none()
        })?;
        Some(found.matched())
    }
}

/// Why the entry does not satisfy a call without variables that nothing can be typed into.
fn plain_call_objection(entry: &Entry) -> Option<Objection> {
    if entry.terminal == Some(true) || (entry.is_remembered() && entry.interactive) {
        return Some(Objection::OtherInput);
    }
    (entry.is_remembered() && !entry.env.is_empty()).then_some(Objection::OtherEnv)
}

impl Usable {
    fn covers_directory(&self, cwd: &str) -> bool {
        self.cwd
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(cwd) || self.cwd_itself.as_deref() == Some(cwd))
    }
}

/// The pattern with `~` replaced; none where nothing can be beneath it, or beneath the directory.
fn expanded_pattern<'a>(entry: &'a Entry, home: Option<&str>) -> Option<Cow<'a, str>> {
    if let Some(cwd) = &entry.cwd {
        pattern::expand_home(cwd, home)?;
    }
    if !entry.pattern.starts_with('~') || !pattern::is_path_pattern(&entry.pattern) {
        return Some(Cow::Borrowed(&entry.pattern));
    }
    pattern::expand_home(&entry.pattern, home).map(Cow::Owned)
}

fn compile(entry: &Entry, home: Option<&str>) -> EntryState {
    let arguments = match entry.arguments() {
        Ok(arguments) => arguments,
        Err(error) => return EntryState::Broken(error),
    };
    if entry.is_inert() {
        return EntryState::Inert;
    }
    let expanded = if pattern::is_path_pattern(&entry.pattern) {
        pattern::expand_home(&entry.pattern, home)
    } else {
        Some(entry.pattern.clone())
    };
    let cwd = match &entry.cwd {
        Some(cwd) => pattern::expand_home(cwd, home).map(Some),
        None => Some(None),
    };
    let (Some(pattern), Some(cwd)) = (expanded, cwd) else {
        // `~` with no home directory: nothing can be beneath it.
        return EntryState::Broken(EntryError::Pattern(pattern::PatternError::Tilde));
    };
    let cwd_itself = cwd
        .as_deref()
        .and_then(|cwd| cwd.strip_suffix("/**"))
        .map(str::to_owned);
    let cwd = match cwd.map(|cwd| LazyGlob::new(&cwd)).transpose() {
        Ok(cwd) => cwd,
        Err(error) => return EntryState::Broken(EntryError::Cwd(error)),
    };
    let glob = match LazyGlob::new(&pattern) {
        Ok(glob) => glob,
        Err(error) => return EntryState::Broken(error.into()),
    };
    EntryState::Usable(Box::new(Usable {
        pattern,
        glob,
        arguments,
        cwd,
        cwd_itself,
    }))
}

/// An entry at its place in the lists, with what is known of it.
#[derive(Clone, Copy)]
struct ListedAt<'a> {
    list: &'a EntryLists,
    position: usize,
    entry: &'a Entry,
    state: &'a EntryState,
}

impl<'a> ListedAt<'a> {
    fn origin(&self) -> String {
        self.list.origin(self.position)
    }

    fn matched(&self) -> Match<'a> {
        Match {
            entry: self.entry,
            origin: self.origin(),
        }
    }

    fn broken(&self) -> Option<(String, &'a EntryError)> {
        match self.state {
            EntryState::Broken(error) => Some((self.origin(), error)),
            EntryState::Usable(_) | EntryState::Inert => None,
        }
    }

    /// `Err(None)`: the pattern names another program.
    fn check(&self, candidate: &Candidate<'_>) -> Result<(), Option<NearMiss>> {
        let origin = || self.origin();
        let EntryState::Usable(usable) = self.state else {
            let inert = matches!(self.state, EntryState::Inert);
            return Err(inert.then(|| NearMiss::Inert { origin: origin() }));
        };
        let Usable {
            pattern,
            glob,
            arguments,
            ..
        } = usable.as_ref();
        match names_program(pattern, glob, candidate) {
            PatternNames::Program => {}
            PatternNames::Another => return Err(None),
            PatternNames::Unprotected => {
                return Err(Some(NearMiss::Unprotected { origin: origin() }));
            }
        }
        if candidate.opaque && !matches!(arguments, ArgumentRule::List(_)) {
            // The lone `*` never meant programs like this one.
            let named = pattern != "*";
            return Err(named.then(|| NearMiss::Opaque { origin: origin() }));
        }
        if !usable.covers_directory(candidate.cwd) {
            return Err(Some(NearMiss::Cwd { origin: origin() }));
        }
        if !arguments.matches(candidate.arguments, candidate.cwd) {
            return Err(Some(match &self.entry.note {
                Some(note) if self.entry.is_base() => NearMiss::BaseArguments {
                    origin: origin(),
                    allows: note.clone(),
                },
                _ => NearMiss::Arguments { origin: origin() },
            }));
        }
        if self
            .entry
            .expires_at
            .is_some_and(|at| candidate.now_ms >= at)
        {
            return Err(Some(NearMiss::Expired { origin: origin() }));
        }
        Ok(())
    }
}

enum PatternNames {
    Program,
    Another,
    Unprotected,
}

fn names_program(pattern: &str, glob: &LazyGlob, candidate: &Candidate<'_>) -> PatternNames {
    let matches = |text: &str| {
        if !pattern::has_wildcard(pattern) {
            return pattern == text;
        }
        glob.is_match(text)
    };
    if !pattern::is_path_pattern(pattern) {
        let named = pattern == "*" || candidate.path_name.is_some_and(matches);
        return if named {
            PatternNames::Program
        } else {
            PatternNames::Another
        };
    }
    if matches(candidate.canonical) {
        PatternNames::Program
    } else if candidate.found != candidate.canonical && matches(candidate.found) {
        if candidate.protected {
            PatternNames::Program
        } else {
            PatternNames::Unprotected
        }
    } else {
        PatternNames::Another
    }
}

#[cfg(test)]
mod tests;
