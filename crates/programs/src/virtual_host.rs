//! A host that consists of a table and reads no files, for policy tests, benchmarks and unit tests.

use std::collections::BTreeMap;

use crate::{
    Destination, DestinationKind, Executable, FileKind, GitRemotes, Glob, GlobBudget, GlobError,
    Lookup, Resolver,
};

/// A virtual host. Names that are not listed resolve to `/usr/bin/NAME`, paths to themselves. Files
/// under `/usr`, `/bin`, `/sbin`, `/lib` and `/opt` are native, owned by root and protected. All
/// others belong to the user and are scripts unless the table says otherwise.
#[derive(Debug, Clone, Default)]
pub struct VirtualHost {
    table: BTreeMap<String, Executable>,
}

pub const VIRTUAL_HOME: &str = "/home/u";

impl VirtualHost {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry with every property given. For an entry with default properties, see
    /// [`Self::describe`].
    pub fn insert(&mut self, name: impl Into<String>, executable: Executable) {
        self.table.insert(name.into(), executable);
    }

    /// Returns the default properties of a path that is found as `found` and leads to `canonical`.
    pub fn describe(found: &str, canonical: &str) -> Executable {
        let system = |path: &str| {
            ["/usr/", "/bin/", "/sbin/", "/lib/", "/opt/"]
                .iter()
                .any(|root| path.starts_with(root))
        };
        let protected = system(found) && system(canonical);
        Executable {
            found: found.to_owned(),
            canonical: canonical.to_owned(),
            kind: if system(canonical) {
                FileKind::Native
            } else {
                FileKind::Script
            },
            protected,
            mutable: !protected,
        }
    }
}

impl Resolver for VirtualHost {
    fn executable(&self, name: &str, cwd: &str) -> Lookup {
        if let Some(executable) = self.table.get(name) {
            return Lookup::Found(executable.clone());
        }
        let found = if name.contains('/') {
            join(cwd, name)
        } else {
            format!("/usr/bin/{name}")
        };
        Lookup::Found(match self.table.get(&found) {
            Some(executable) => executable.clone(),
            None => Self::describe(&found, &found),
        })
    }

    fn file(&self, path: &str, cwd: &str) -> Lookup {
        if let Some(executable) = self.table.get(path) {
            return Lookup::Found(executable.clone());
        }
        let found = join(cwd, path);
        Lookup::Found(Self::describe(&found, &found))
    }

    fn directory(&self, path: &str, cwd: &str) -> Option<String> {
        Some(join(cwd, path))
    }

    fn glob(
        &self,
        _pattern: &Glob,
        _cwd: &str,
        _budget: &mut GlobBudget,
    ) -> Result<Vec<String>, GlobError> {
        Ok(Vec::new())
    }

    /// Every path is a file, unless the table gives it another destination. Each directory contains
    /// a git repository, and no directory is itself a repository.
    fn destination(&self, path: &str, cwd: &str) -> Option<Destination> {
        let found = join(cwd, path);
        let listed = self.table.get(path).or_else(|| self.table.get(&found));
        let canonical = listed.map_or_else(|| found.clone(), |file| file.canonical.clone());
        let is_git = canonical.ends_with("/.git") || canonical.contains("/.git/");
        let name = canonical.rsplit('/').next().unwrap_or_default();
        let kind = match name {
            ".git" => DestinationKind::Directory,
            "objects" | "refs" if is_git => DestinationKind::Directory,
            "HEAD" | "objects" | "refs" if !is_git => DestinationKind::Missing,
            _ => DestinationKind::File,
        };
        Some(Destination {
            found,
            canonical,
            kind,
        })
    }

    /// Returns a repository without remotes.
    fn git_remotes(&self, _cwd: &str) -> Option<GitRemotes> {
        Some(GitRemotes::default())
    }

    fn home(&self) -> Option<String> {
        Some(VIRTUAL_HOME.to_owned())
    }
}

/// Joins and normalizes a path as text, without the file system.
pub fn join(cwd: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let base = if path.starts_with('/') { "" } else { cwd };
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
