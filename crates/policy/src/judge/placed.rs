//! Finds the files that programs write when they copy, move and link files, if several arguments
//! together name them.
//!
//! `cp FILE DIRECTORY` writes to `DIRECTORY/FILE`, even through a link of that name. Another
//! program may obey or start such a file later, and `apply_patch` asks about those files too.

use std::path::Path;

use interlock_programs::{DestinationKind, FilePlacement, Lookup};

use super::paths::{PathLook, parent};
use crate::allowlist::Allowlist;
use crate::pattern::{has_wildcard, path_matches};
use crate::protected::PROTECTED_PATHS;
use crate::verdict::CheckedFiles;

/// The most names that are combined from directories and files.
const MAX_NAMES: usize = 8192;

impl PathLook<'_> {
    /// Every file that is written must be covered, and no other program may obey it.
    pub(super) fn placed(
        &self,
        placement: &FilePlacement<'_>,
        program: &str,
        allowlist: &Allowlist,
        checked: &mut CheckedFiles,
    ) -> Result<(), String> {
        if placement
            .sources
            .len()
            .saturating_mul(placement.targets.len())
            > MAX_NAMES
        {
            return Err(format!("it names more than {MAX_NAMES} files"));
        }
        if placement.is_recursive && placement.follows_links {
            return Err(format!("`{program}` would follow links in what it copies"));
        }
        let mut written = Vec::new();
        for target in &placement.targets {
            let end = self.covered(target, &format!("`{target}`"))?;
            let is_directory = end.kind == DestinationKind::Directory;
            if placement.is_recursive && is_directory && placement.is_onto_target {
                return Err(merged(target));
            }
            written.push(end.canonical);
            if !is_directory || placement.is_onto_target {
                continue;
            }
            for source in &placement.sources {
                let name = source.trim_end_matches('/').rsplit('/').next();
                let name = name.filter(|name| !matches!(*name, "" | "." | ".."));
                let Some(name) = name else {
                    return Err(format!(
                        "`{source}` does not say the name of what is written"
                    ));
                };
                let path = format!("{}/{name}", target.trim_end_matches('/'));
                let end = self.covered(&path, &format!("`{path}`, which would be written,"))?;
                if placement.is_recursive && end.kind == DestinationKind::Directory {
                    return Err(merged(&path));
                }
                written.push(end.canonical.clone());
                checked.add(end);
            }
        }
        if placement.moves {
            for source in &placement.sources {
                written.push(self.covered(source, &format!("`{source}`"))?.canonical);
            }
        }
        let brings_programs =
            placement.makes_programs || placement.sources.iter().any(|source| self.starts(source));
        for path in &written {
            let why = self
                .obeyed(path)
                .or_else(|| self.holds_obeyed(path))
                .or_else(|| self.leads_to(path))
                .or_else(|| self.would_start(path, allowlist, brings_programs));
            if let Some(why) = why {
                return Err(format!("`{path}` is a protected path: {why}"));
            }
        }
        Ok(())
    }

    /// Returns a file that settings name, that lies beneath the path and would be replaced with it.
    fn holds_obeyed(&self, canonical: &str) -> Option<String> {
        let named = self.obeyed_at(canonical);
        let beneath = |path: &str| {
            let rest = path.strip_prefix(canonical);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        // Moving a repository as a whole does not change it.
        let found = named
            .iter()
            .find(|name| beneath(&name.path) && !name.path.contains("/.git"));
        found.map(|name| format!("it holds `{}`; {}", name.path, name.reason))
    }

    /// Returns a protected name of a directory above that is a link to the path.
    fn leads_to(&self, canonical: &str) -> Option<String> {
        let above = Path::new(canonical).ancestors().skip(1);
        let above = above.take_while(|directory| {
            let directory = directory.to_str();
            directory.is_some_and(|directory| self.rules.cover(directory))
        });
        for directory in above {
            for row in PROTECTED_PATHS {
                let Some(named) = row.below(directory) else {
                    continue;
                };
                let named = named.to_str()?;
                let end = self.resolver.destination(named, "/");
                let Some(end) = end.filter(|end| end.kind != DestinationKind::Missing) else {
                    continue;
                };
                let rest = canonical.strip_prefix(&*end.canonical);
                let is_it = rest.is_some_and(|rest| {
                    rest.is_empty() || (row.path.ends_with('/') && rest.starts_with('/'))
                });
                if end.canonical != named.trim_end_matches('/') && is_it {
                    return Some(format!("`{named}` leads to it: {}", row.reason));
                }
            }
        }
        None
    }

    /// Returns why a program at the path would be started, by its name or by an entry for its path.
    fn would_start(
        &self,
        canonical: &str,
        allowlist: &Allowlist,
        brings_programs: bool,
    ) -> Option<String> {
        let directory = parent(canonical).unwrap_or("/");
        if self.resolver.is_on_path(directory) {
            return Some(format!(
                "{directory} is on PATH, and programs are started from it"
            ));
        }
        let mut patterns = allowlist.trusted_paths();
        let names_it = patterns.find(|pattern| {
            let is_for_one = !has_wildcard(pattern);
            !matches!(pattern.as_str(), "/**" | "**/*" | "/**/*" | "**/**")
                && (is_for_one || brings_programs)
                && path_matches(pattern, canonical, None)
        });
        names_it.map(|pattern| format!("the allowlist entry `{pattern}` names it"))
    }

    fn starts(&self, source: &str) -> bool {
        let path = format!("./{source}");
        let path = if source.starts_with('/') {
            source
        } else {
            &path
        };
        matches!(self.resolver.executable(path, &self.cwd), Lookup::Found(_))
    }
}

fn merged(directory: &str) -> String {
    format!("`{directory}` is there already, and links in it would be followed")
}
