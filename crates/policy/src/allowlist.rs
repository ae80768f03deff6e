//! The allowlist, indexed so that the time for a verdict hardly grows with its length.

use std::collections::HashMap;
use std::sync::OnceLock;

use globset::GlobMatcher;
use sha2::{Digest, Sha256};

use crate::arguments::{ArgumentRule, hex};
use crate::entry::{Entry, EntryError, command_hash};
use crate::pattern;

/// Entries of all scopes that apply to one agent, ready for matching.
#[derive(Debug, Default)]
pub struct Allowlist {
    entries: Vec<Compiled>,
    index: Index,
    /// Exact-command grants by their hash.
    commands: HashMap<String, usize>,
}

/// Where each entry can be found by a property of the program it names.
#[derive(Debug, Default)]
struct Index {
    /// A bare name without wildcards.
    names: HashMap<String, Vec<usize>>,
    /// Bare names with wildcards, the lone `*` among them.
    name_globs: Vec<usize>,
    /// A path without wildcards.
    paths: HashMap<String, Vec<usize>>,
    /// `DIR/*`, by the directory.
    in_directory: HashMap<String, Vec<usize>>,
    /// `DIR/**`, by the directory.
    beneath: HashMap<String, Vec<usize>>,
    /// Any other path pattern that ends in a literal name, by that name.
    basenames: HashMap<String, Vec<usize>>,
    /// The rest.
    path_globs: Vec<usize>,
}

#[derive(Debug)]
struct Compiled {
    entry: Entry,
    /// Where it is written, such as `agents.main.allowlist[3]`.
    origin: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Usable(Box<Usable>),
    /// Remembered without any argument binding.
    Inert,
    Broken(EntryError),
}

#[derive(Debug)]
struct Usable {
    /// The pattern with `~` replaced.
    pattern: String,
    glob: OnceLock<Option<GlobMatcher>>,
    arguments: ArgumentRule,
    cwd: Option<GlobMatcher>,
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
#[derive(Debug, Clone, Copy)]
pub struct Match<'a> {
    pub entry: &'a Entry,
    pub origin: &'a str,
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
}

impl Allowlist {
    /// `entries` with where they are written, in order; `home` replaces `~`.
    pub fn new(entries: Vec<(Entry, String)>, home: Option<&str>) -> Self {
        let mut list = Self::default();
        for (entry, origin) in entries {
            let state = compile(&entry, home);
            let position = list.entries.len();
            if let State::Usable(usable) = &state {
                match command_hash(&usable.pattern) {
                    Some(hash) => {
                        list.commands.insert(hash.to_ascii_lowercase(), position);
                    }
                    None => list.index.add(&usable.pattern, position),
                }
            } else if matches!(state, State::Inert) {
                // Kept findable, so that a miss can say why the entry did not help.
                list.index.add(&entry.pattern, position);
            }
            list.entries.push(Compiled {
                entry,
                origin,
                state,
            });
        }
        list
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries that can never match, with the reason.
    pub fn broken(&self) -> impl Iterator<Item = (&str, &EntryError)> {
        self.entries
            .iter()
            .filter_map(|compiled| match &compiled.state {
                State::Broken(error) => Some((compiled.origin.as_str(), error)),
                _ => None,
            })
    }

    /// The first entry that matches, in the order of the documents.
    pub fn find(&self, candidate: &Candidate<'_>) -> Result<Match<'_>, Option<NearMiss>> {
        let mut positions = self.index.positions(candidate);
        positions.sort_unstable();
        positions.dedup();
        let mut near = None;
        for position in positions {
            let compiled = &self.entries[position];
            match compiled.check(candidate) {
                Ok(()) => {
                    return Ok(Match {
                        entry: &compiled.entry,
                        origin: &compiled.origin,
                    });
                }
                Err(miss) => near = near.or(miss),
            }
        }
        Err(near)
    }

    /// A grant for exactly this command text.
    pub fn find_command(&self, text: &str, cwd: &str, now_ms: u64) -> Option<Match<'_>> {
        if self.commands.is_empty() {
            return None;
        }
        let hash = hex(&Sha256::digest(text.as_bytes()));
        let compiled = &self.entries[*self.commands.get(&hash[..16])?];
        let live = compiled.entry.expires_at.is_none_or(|at| now_ms < at);
        let here = matches!(&compiled.state, State::Usable(usable) if usable.is_for(cwd));
        (live && here).then_some(Match {
            entry: &compiled.entry,
            origin: &compiled.origin,
        })
    }
}

fn compile(entry: &Entry, home: Option<&str>) -> State {
    if let Err(error) = entry.check() {
        return State::Broken(error);
    }
    if entry.is_inert() {
        return State::Inert;
    }
    let arguments = ArgumentRule::parse(entry.arg_pattern.as_deref(), entry.args.as_deref());
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return State::Broken(error.into()),
    };
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
        return State::Broken(EntryError::Pattern(pattern::PatternError::Tilde));
    };
    let cwd_itself = cwd
        .as_deref()
        .and_then(|cwd| cwd.strip_suffix("/**"))
        .map(str::to_owned);
    let cwd = match cwd.map(|cwd| pattern::compile(&cwd)).transpose() {
        Ok(cwd) => cwd,
        Err(error) => return State::Broken(EntryError::Cwd(error)),
    };
    State::Usable(Box::new(Usable {
        pattern,
        glob: OnceLock::new(),
        arguments,
        cwd,
        cwd_itself,
    }))
}

impl Index {
    fn add(&mut self, pattern: &str, position: usize) {
        let push = |map: &mut HashMap<String, Vec<usize>>, key: &str| {
            map.entry(key.to_owned()).or_default().push(position);
        };
        if !pattern::is_path_pattern(pattern) {
            if pattern::has_wildcard(pattern) {
                self.name_globs.push(position);
            } else {
                push(&mut self.names, pattern);
            }
            return;
        }
        if !pattern::has_wildcard(pattern) {
            return push(&mut self.paths, pattern);
        }
        let (directory, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        if !pattern::has_wildcard(directory) && name == "*" {
            push(&mut self.in_directory, directory);
        } else if !pattern::has_wildcard(directory) && name == "**" {
            push(&mut self.beneath, directory);
        } else if pattern::has_wildcard(name) {
            self.path_globs.push(position);
        } else {
            push(&mut self.basenames, name);
        }
    }

    /// Every entry whose pattern may match; [`Compiled::check`] decides.
    fn positions(&self, candidate: &Candidate<'_>) -> Vec<usize> {
        let mut positions = Vec::new();
        let mut take = |map: &HashMap<String, Vec<usize>>, key: &str| {
            if let Some(found) = map.get(key) {
                positions.extend_from_slice(found);
            }
        };
        if let Some(name) = candidate.path_name {
            take(&self.names, name);
        }
        let found = (candidate.found != candidate.canonical).then_some(candidate.found);
        for path in [Some(candidate.canonical), found].into_iter().flatten() {
            take(&self.paths, path);
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
            take(&self.in_directory, directory);
            take(&self.basenames, name);
            let mut ancestor = Some(directory);
            while let Some(directory) = ancestor {
                take(&self.beneath, directory);
                ancestor = directory.rsplit_once('/').map(|(parent, _)| parent);
            }
        }
        positions.extend_from_slice(&self.name_globs);
        positions.extend_from_slice(&self.path_globs);
        positions
    }
}

impl Usable {
    /// An entry without a directory is for all of them.
    fn is_for(&self, cwd: &str) -> bool {
        self.cwd
            .as_ref()
            .is_none_or(|glob| glob.is_match(cwd) || self.cwd_itself.as_deref() == Some(cwd))
    }
}

impl Compiled {
    /// `Err(None)`: the pattern names another program.
    fn check(&self, candidate: &Candidate<'_>) -> Result<(), Option<NearMiss>> {
        let origin = || self.origin.clone();
        let State::Usable(usable) = &self.state else {
            let inert = matches!(self.state, State::Inert);
            return Err(inert.then(|| NearMiss::Inert { origin: origin() }));
        };
        let Usable {
            pattern,
            glob,
            arguments,
            ..
        } = usable.as_ref();
        match names_program(pattern, glob, candidate) {
            Names::Program => {}
            Names::Another => return Err(None),
            Names::Unprotected => return Err(Some(NearMiss::Unprotected { origin: origin() })),
        }
        if candidate.opaque && !matches!(arguments, ArgumentRule::List(_)) {
            // The lone `*` never meant programs like this one.
            let named = pattern != "*";
            return Err(named.then(|| NearMiss::Opaque { origin: origin() }));
        }
        if !usable.is_for(candidate.cwd) {
            return Err(Some(NearMiss::Cwd { origin: origin() }));
        }
        if !arguments.matches(candidate.arguments, candidate.cwd) {
            return Err(Some(NearMiss::Arguments { origin: origin() }));
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

enum Names {
    Program,
    Another,
    Unprotected,
}

fn names_program(
    pattern: &str,
    glob: &OnceLock<Option<GlobMatcher>>,
    candidate: &Candidate<'_>,
) -> Names {
    let matches = |text: &str| {
        if !pattern::has_wildcard(pattern) {
            return pattern == text;
        }
        glob.get_or_init(|| pattern::compile(pattern).ok())
            .as_ref()
            .is_some_and(|glob| glob.is_match(text))
    };
    if !pattern::is_path_pattern(pattern) {
        let named = pattern == "*" || candidate.path_name.is_some_and(matches);
        return if named {
            Names::Program
        } else {
            Names::Another
        };
    }
    if matches(candidate.canonical) {
        Names::Program
    } else if candidate.found != candidate.canonical && matches(candidate.found) {
        if candidate.protected {
            Names::Program
        } else {
            Names::Unprotected
        }
    } else {
        Names::Another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Allowlist {
        let entries = patterns.iter().enumerate();
        let entries = entries.map(|(i, p)| (Entry::for_pattern(*p), format!("allowlist[{i}]")));
        Allowlist::new(entries.collect(), Some("/home/u"))
    }

    fn program<'a>(name: Option<&'a str>, path: &'a str) -> Candidate<'a> {
        Candidate {
            path_name: name,
            found: path,
            canonical: path,
            protected: true,
            opaque: false,
            arguments: &[],
            cwd: "/w",
            now_ms: 0,
        }
    }

    #[test]
    fn bare_patterns_match_only_through_path() {
        let list = list(&["rg"]);
        assert!(list.find(&program(Some("rg"), "/usr/bin/rg")).is_ok());
        assert!(list.find(&program(None, "/tmp/rg")).is_err());
        assert!(list.find(&program(Some("RG"), "/usr/bin/RG")).is_err());
    }

    #[test]
    fn every_kind_of_path_pattern_is_found_through_the_index() {
        for pattern in [
            "/usr/bin/rg",
            "/usr/bin/*",
            "/usr/**",
            "/**",
            "**/rg",
            "/usr/*/rg",
            "/usr/bin/r*",
            "/usr/b?n/rg",
            "/usr/**/r?",
            "*",
        ] {
            assert!(
                list(&[pattern]).find(&program(None, "/usr/bin/rg")).is_ok(),
                "{pattern}"
            );
        }
        for pattern in [
            "/usr/bin/r",
            "/usr/*",
            "/bin/**",
            "**/g",
            "/usr/bin/rg/**",
            "rg",
            "~/rg",
        ] {
            assert!(
                list(&[pattern])
                    .find(&program(None, "/usr/bin/rg"))
                    .is_err(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn the_path_as_found_counts_only_when_protected() {
        let list = list(&["/usr/bin/python3"]);
        let mut python = program(Some("python3"), "/usr/bin/python3.11");
        python.found = "/usr/bin/python3";
        assert!(list.find(&python).is_ok());
        python.protected = false;
        let near = list.find(&python).unwrap_err();
        assert!(matches!(near, Some(NearMiss::Unprotected { .. })));
    }

    #[test]
    fn expiry_directory_and_arguments_narrow_an_entry() {
        let entry = Entry {
            expires_at: Some(100),
            cwd: Some("/w/**".to_owned()),
            args: Some(vec!["status".to_owned()]),
            ..Entry::for_pattern("git")
        };
        let list = Allowlist::new(vec![(entry, "x".to_owned())], None);
        let arguments = ["status".to_owned()];
        let git = Candidate {
            arguments: &arguments,
            ..program(Some("git"), "/usr/bin/git")
        };
        assert!(list.find(&git).is_ok());
        assert!(
            list.find(&Candidate {
                cwd: "/w/sub",
                ..git
            })
            .is_ok()
        );
        for (candidate, expected) in [
            (Candidate { now_ms: 100, ..git }, "Expired"),
            (Candidate { cwd: "/x", ..git }, "Cwd"),
            (
                Candidate {
                    arguments: &[],
                    ..git
                },
                "Arguments",
            ),
        ] {
            let near = list.find(&candidate).unwrap_err();
            assert!(format!("{near:?}").contains(expected), "{near:?}");
        }
    }

    #[test]
    fn opaque_programs_want_an_entry_that_lists_arguments() {
        let mut sudo = program(Some("sudo"), "/usr/bin/sudo");
        sudo.opaque = true;
        assert!(list(&["sudo", "*", "/usr/bin/*"]).find(&sudo).is_err());
        let entry = Entry {
            args: Some(vec!["ls".to_owned()]),
            ..Entry::for_pattern("sudo")
        };
        let bound = Allowlist::new(vec![(entry, "x".to_owned())], None);
        let arguments = ["ls".to_owned()];
        assert!(
            bound
                .find(&Candidate {
                    arguments: &arguments,
                    ..sudo
                })
                .is_ok()
        );
        assert!(bound.find(&sudo).is_err());
    }

    #[test]
    fn remembered_entries_without_arguments_are_inert() {
        let entry = Entry {
            source: Some("allow-always".to_owned()),
            ..Entry::for_pattern("/usr/bin/rg")
        };
        let list = Allowlist::new(vec![(entry, "x".to_owned())], None);
        let near = list.find(&program(None, "/usr/bin/rg")).unwrap_err();
        assert!(matches!(near, Some(NearMiss::Inert { .. })));
    }

    #[test]
    fn an_exact_command_is_found_by_its_hash() {
        let text = "powershell -NoProfile -Command \"Write-Output hi\"";
        let list = list(&["=command:613b5a60181648fd"]);
        assert!(list.find_command(text, "/w", 0).is_some());
        assert!(list.find_command("other", "/w", 0).is_none());
    }
}
