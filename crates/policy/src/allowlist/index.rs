//! Indexes entries by the program that they name.

use std::collections::{HashMap, HashSet};

use super::Candidate;
use crate::arguments;
use crate::pattern;

/// Positions of entries, by the form of their pattern.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Bare names without wildcards.
    names: HashMap<String, Vec<usize>>,
    /// Bare names with wildcards, including the lone `*`.
    name_globs: Vec<usize>,
    /// Paths without wildcards.
    paths: HashMap<String, Vec<usize>>,
    /// Patterns `DIR/*`, by the directory.
    in_directory: HashMap<String, Vec<usize>>,
    /// Patterns `DIR/**`, by the directory.
    beneath: HashMap<String, Vec<usize>>,
    /// Any other path patterns that end in a literal name, by that name.
    basenames: HashMap<String, Vec<usize>>,
    /// All other path patterns.
    path_globs: Vec<usize>,
    /// Remembered grants, by the digest of directory and arguments, because one program may have
    /// very many grants.
    digests: HashMap<String, Vec<usize>>,
    /// Patterns of grants with a digest. The first grant of each pattern is also indexed by the
    /// pattern, so that a miss can say that the arguments differ.
    with_digest: HashSet<String>,
}

impl Index {
    /// Adds an entry. `digest` is the digest of directory and arguments if the entry is for exactly
    /// these.
    pub(super) fn add(&mut self, pattern: &str, digest: Option<String>, position: usize) {
        if let Some(digest) = digest {
            self.digests.entry(digest).or_default().push(position);
            if !self.with_digest.insert(pattern.to_owned()) {
                return;
            }
        }
        self.add_pattern(pattern, position);
    }

    fn add_pattern(&mut self, pattern: &str, position: usize) {
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

    /// Returns every entry whose pattern may match. The caller must still compare the entry itself.
    pub(super) fn positions(&self, candidate: &Candidate<'_>) -> Vec<usize> {
        let mut positions = Vec::new();
        let mut take = |map: &HashMap<String, Vec<usize>>, key: &str| {
            if let Some(found) = map.get(key) {
                positions.extend_from_slice(found);
            }
        };
        if let Some(name) = candidate.path_name {
            take(&self.names, name);
        }
        if !self.digests.is_empty() {
            let digest = arguments::digest(candidate.arguments, candidate.cwd);
            take(&self.digests, &digest);
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
