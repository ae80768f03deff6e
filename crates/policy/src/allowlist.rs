//! The allowlist. An index keeps the time for a verdict almost independent of its length.

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

/// The entries of all scopes that apply to one agent, ready for matching.
#[derive(Debug, Default)]
pub struct Allowlist {
    entries: EntryLists,
    /// The state of each entry, by its position. It is computed when a candidate is first compared
    /// with the entry, because an allowlist is long and a command is compared with few entries.
    states: Vec<OnceLock<EntryState>>,
    index: Index,
    /// Grants for one exact command, by their hash.
    commands: HashMap<String, Vec<usize>>,
    /// The home directory that replaces `~`.
    home: Option<String>,
}

#[derive(Debug)]
enum EntryState {
    Usable(Box<Usable>),
    /// A remembered entry that binds no arguments.
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

/// A program that is compared with the entries.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The name if the program was invoked through PATH by that name, else `None`.
    pub path_name: Option<&'a str>,
    pub found: &'a str,
    pub canonical: &'a str,
    /// Whether the path as found may be trusted.
    pub protected: bool,
    /// Whether only an entry that lists the arguments satisfies the program.
    pub opaque: bool,
    /// The arguments, without the program's name.
    pub arguments: &'a [String],
    pub cwd: &'a str,
    pub now_ms: u64,
}

/// An entry that matched.
#[derive(Debug, Clone)]
pub struct Match<'a> {
    pub entry: &'a Entry,
    /// Where the entry is written, such as `agents.main.allowlist[3]`.
    pub origin: String,
}

/// The entry that came closest to matching, for the reason of a miss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearMiss {
    Expired {
        origin: String,
    },
    Arguments {
        origin: String,
    },
    /// The base allows the program with other arguments; `allows` describes them. Every other miss
    /// is more informative.
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
    /// The entry names the path as found, but users other than root could alter that path.
    Unprotected {
        origin: String,
    },
    Inert {
        origin: String,
    },
    /// The entry matches, but a property of the call itself does not fit.
    Objected {
        origin: String,
        objection: Objection,
        entry: Box<Entry>,
    },
}

/// A requirement of an entry, beyond pattern, arguments and directory, that the call does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// The program is called by another name.
    CalledAs,
    /// The content of the script has changed or cannot be read.
    Content,
    /// "Always" widened the entry, and this call passes code or an option that starts programs.
    Unforeseen,
    /// The caller sets a variable that the entry does not admit.
    Env(Unadmitted),
    /// "Always" stored the entry for a call with other variables or other values.
    OtherEnv,
    /// The caller can type into the program, and the entry is not `interactive`.
    Interactive,
    /// The entry is for runs with another terminal or standard input.
    OtherInput,
    /// The line runs without the shield, and the entry requires the shield.
    Shield,
    /// An argument leads out of the entry's `paths`, or may do so. The text says why.
    Paths(String),
    /// The entry gives a program by name, and the program found by that name lies in the workspace.
    InWorkspace,
    /// Git would obey the files of this directory, which looks like a repository.
    BareRepository(String),
}

impl NearMiss {
    /// A miss of the base is the least informative, then a miss for another directory.
    fn tells_more_than(&self, other: &Self) -> bool {
        let rank = |miss: &Self| match miss {
            Self::BaseArguments { .. } => 0,
            Self::Cwd { .. } => 1,
            _ => 2,
        };
        rank(other) < 2 && rank(self) > rank(other)
    }

    /// Whether program, arguments and directory match the entry.
    fn is_objection(&self) -> bool {
        matches!(self, Self::Objected { .. })
    }
}

impl Allowlist {
    /// Builds the allowlist from `entries` in order; `home` replaces `~`. Entries are indexed by
    /// their text. Whether an entry is usable is checked only when a candidate meets it.
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
            // Inert entries stay findable, so that a miss can say why the entry did not help.
            _ if entry.is_inert() => self.index.add(&entry.pattern, None, position),
            // Without a home directory, nothing can lie beneath `~`.
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

    /// The patterns of all entries that can match, with `~` replaced if the home directory is
    /// known.
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        let usable = self.entries.iter().filter(|entry| !entry.is_inert());
        usable.map(
            |entry| match (entry.pattern.strip_prefix("~/"), &self.home) {
                (Some(rest), Some(home)) => format!("{home}/{rest}"),
                _ => entry.pattern.clone(),
            },
        )
    }

    /// Path patterns of entries that bind no content: any file at such a path is trusted.
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

    /// Entries that can never match, with their origin and the reason. This compiles every entry.
    pub fn broken(&self) -> impl Iterator<Item = (String, &EntryError)> {
        let looked_at = (0..self.len()).filter_map(|position| self.at(position));
        looked_at.filter_map(|listed| listed.broken())
    }

    /// The broken entries that are known already: entries beneath `~` without a home directory, and
    /// entries that a command was compared with. A document in force has no others.
    pub fn known_broken(&self) -> impl Iterator<Item = (String, &EntryError)> {
        let states = self.states.iter().enumerate();
        let known = states.filter_map(|(position, state)| Some((position, state.get()?)));
        known.filter_map(|(position, _)| self.at(position)?.broken())
    }

    /// Returns the first entry that matches, in the order of the documents. An entry with a
    /// requirement that the candidate cannot answer does not match.
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

    /// Like [`Self::find`], with further requirements. `objection` is called last, only for an
    /// entry that matches otherwise, because it compares the files and names of the entry.
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
                // The first miss is reported, unless a later one is more informative.
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

    /// Returns an entry for exactly this command text, in this directory if the entry names one.
    /// The call sets no variables, and the caller cannot type into the run.
    pub fn find_command(&self, text: &str, cwd: &str, now_ms: u64) -> Option<Match<'_>> {
        self.find_command_with(text, cwd, now_ms, plain_call_objection)
    }

    /// Like [`Self::find_command`]; `objection` is called last, as in [`Self::find_with`].
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

/// Why the entry does not satisfy a call that sets no variables and takes no typed input.
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

/// Returns the pattern with `~` replaced, or `None` if the pattern or the directory needs a home
/// directory and there is none.
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
        // Without a home directory, nothing can lie beneath `~`.
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

/// An entry at its position in the lists, with its state.
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

    /// Returns `Err(None)` if the pattern names another program.
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
            // The lone `*` was never meant to include opaque programs.
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
