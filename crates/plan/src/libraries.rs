//! Finds the files that the dynamic loader loads into a native program from other places than the
//! system's own.
//!
//! The search follows the loader's order: `DT_RPATH` of the object and of those that loaded it, or
//! its `DT_RUNPATH`, then the system's directories. In a place that the running user can write, an
//! existing library is bound, and a missing one must not appear. Libraries that a program itself
//! opens later (`dlopen`) are its own responsibility, like every file that it reads.

use std::collections::{BTreeSet, VecDeque};

use interlock_programs::{Executable, FileKind};

use crate::elf::{ElfError, ElfFacts, read};
use crate::identity::{Drift, PinnedFile, open_regular};
use crate::walk::walk;

/// Where distributions store the loader and libraries. Root can write every file; files in these
/// directories are trusted nevertheless, like the kernel.
const SYSTEM_DIRECTORIES: [&str; 8] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
];

/// Subdirectories in which loaders look first, depending on the processor.
const PROCESSOR_DIRECTORIES: [&str; 4] = ["glibc-hwcaps", "tls", "haswell", "x86_64"];

/// At most this many objects, and places that must stay empty, are followed.
const MAX_OBJECTS: usize = 256;
const MAX_PLACES: usize = 2048;

/// The files that are loaded with a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedFiles {
    /// The loader and the libraries that the running user could exchange.
    pub files: Vec<PinnedFile>,
    /// Places where the loader looks before it finds a library. They must stay empty.
    pub absent: Vec<String>,
    /// Whether a place depends on unknown facts, or the file cannot be read.
    pub is_unknown: bool,
}

impl LoadedFiles {
    /// The libraries of the native program at a canonical path. A file that is not ELF loads
    /// nothing in this way.
    pub fn of(program: &str) -> Result<Self, Drift> {
        let mut search = Search::default();
        match facts(program) {
            Ok(facts) => search.follow(program, facts)?,
            Err(ElfError::Other) => {}
            Err(ElfError::Foreign | ElfError::Malformed) => search.loaded.is_unknown = true,
        }
        Ok(search.loaded)
    }
}

/// An object whose libraries are searched for.
struct Object {
    facts: ElfFacts,
    /// The directories of its own `DT_RPATH`, then of the objects that loaded it.
    rpath: Vec<String>,
    runpath: Vec<String>,
}

#[derive(Default)]
struct Search {
    loaded: LoadedFiles,
    /// The names loaded so far. Each is loaded once, no matter how many objects need it.
    names: BTreeSet<String>,
    objects: VecDeque<Object>,
    seen_objects: usize,
}

impl Search {
    fn follow(&mut self, program: &str, facts: ElfFacts) -> Result<(), Drift> {
        if let Some(loader) = &facts.interpreter {
            if loader.starts_with('/') {
                if !is_of_the_system(loader) {
                    self.bind(loader)?;
                }
            } else {
                // The kernel resolves the path in the directory in which the program is started.
                self.loaded.is_unknown = true;
            }
        }
        self.add(program, facts, &[]);
        while let Some(object) = self.objects.pop_front() {
            for name in &object.facts.needed {
                self.library(name, &object)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, facts: ElfFacts, inherited: &[String]) {
        self.seen_objects += 1;
        if self.seen_objects > MAX_OBJECTS {
            self.loaded.is_unknown = true;
            return;
        }
        let origin = match path.rsplit_once('/') {
            Some(("", _)) | None => "/",
            Some((directory, _)) => directory,
        };
        let mut expand = |list: &Option<String>| self.directories(list.as_deref(), origin);
        let runpath = expand(&facts.runpath);
        let mut rpath = Vec::new();
        if facts.runpath.is_none() {
            rpath = expand(&facts.rpath);
            rpath.extend_from_slice(inherited);
        }
        // Without search directories of its own, the system finds all libraries of the object.
        if !rpath.is_empty()
            || !runpath.is_empty()
            || facts.needed.iter().any(|name| name.contains('/'))
        {
            self.objects.push_back(Object {
                facts,
                rpath,
                runpath,
            });
        }
    }

    /// A list of directories with `$ORIGIN` replaced.
    fn directories(&mut self, list: Option<&str>, origin: &str) -> Vec<String> {
        let mut directories = Vec::new();
        for entry in list.into_iter().flat_map(|list| list.split(':')) {
            let entry = entry
                .replace("${ORIGIN}", origin)
                .replace("$ORIGIN", origin);
            if !entry.starts_with('/') || entry.contains('$') || entry.contains('\0') {
                // The directory is relative to the run's directory, or depends on the machine.
                self.loaded.is_unknown = true;
            } else if !directories.contains(&entry) {
                directories.push(entry);
            }
        }
        directories
    }

    fn library(&mut self, name: &str, object: &Object) -> Result<(), Drift> {
        if name.is_empty() || !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        if name.contains('/') {
            if !name.starts_with('/') || name.contains('$') {
                self.loaded.is_unknown = true;
            } else if !is_of_the_system(name) {
                self.found(name, &object.rpath)?;
            }
            return Ok(());
        }
        for directory in object.rpath.iter().chain(&object.runpath) {
            let place = format!("{}/{name}", directory.trim_end_matches('/'));
            let is_there = std::fs::symlink_metadata(&place).is_ok();
            if is_of_the_system(directory) {
                if is_there {
                    return self.follow_system(&place, object);
                }
                continue;
            }
            self.watch_processor_directories(directory);
            if is_there {
                // A loader skips files for other machines.
                if self.found(&place, &object.rpath)? {
                    return Ok(());
                }
            } else {
                self.must_stay_absent(place);
            }
        }
        let mut system = SYSTEM_DIRECTORIES.iter().flat_map(|directory| {
            let machine = format!("{directory}/{}-linux-gnu/{name}", std::env::consts::ARCH);
            [machine, format!("{directory}/{name}")]
        });
        match system.find(|place| std::fs::metadata(place).is_ok_and(|found| found.is_file())) {
            Some(place) => self.follow_system(&place, object),
            // Only the loader's own cache can find the library.
            None => {
                self.loaded.is_unknown |= !object.rpath.is_empty();
                Ok(())
            }
        }
    }

    /// Follows a trusted library of the system: its dependencies are searched for in the `DT_RPATH`
    /// of the objects that loaded it.
    fn follow_system(&mut self, path: &str, object: &Object) -> Result<(), Drift> {
        if object.rpath.is_empty() {
            return Ok(());
        }
        let canonical = std::fs::canonicalize(path).map_err(|error| Drift::of(path, &error))?;
        let canonical = canonical.to_string_lossy();
        match facts(&canonical) {
            Ok(facts) => self.add(&canonical, facts, &object.rpath),
            Err(_) => self.loaded.is_unknown = true,
        }
        Ok(())
    }

    /// Binds a library and follows it. `false` if the loader would continue its search.
    fn found(&mut self, path: &str, rpath: &[String]) -> Result<bool, Drift> {
        let canonical = self.bind(path)?;
        match facts(&canonical) {
            Ok(facts) => {
                self.add(&canonical, facts, rpath);
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    fn bind(&mut self, path: &str) -> Result<String, Drift> {
        let walked = walk(path).map_err(|error| Drift::of(path, &error.into()))?;
        let canonical = String::from_utf8(walked.canonical).map_err(|_| Drift::Unreadable {
            path: path.to_owned(),
            reason: "its path is not valid UTF-8".to_owned(),
        })?;
        let pinned = PinnedFile::with_content(&Executable {
            found: path.to_owned(),
            canonical: canonical.clone(),
            kind: FileKind::Native,
            protected: false,
            mutable: true,
        })?;
        if !self.loaded.files.contains(&pinned) {
            self.loaded.files.push(pinned);
        }
        Ok(canonical)
    }

    fn watch_processor_directories(&mut self, directory: &str) {
        for name in PROCESSOR_DIRECTORIES {
            let place = format!("{}/{name}", directory.trim_end_matches('/'));
            if std::fs::symlink_metadata(&place).is_ok() {
                self.loaded.is_unknown = true;
            } else {
                self.must_stay_absent(place);
            }
        }
    }

    fn must_stay_absent(&mut self, place: String) {
        if self.loaded.absent.contains(&place) {
            return;
        }
        if self.loaded.absent.len() < MAX_PLACES {
            self.loaded.absent.push(place);
        } else {
            self.loaded.is_unknown = true;
        }
    }
}

fn facts(path: &str) -> Result<ElfFacts, ElfError> {
    let file = open_regular(path).map_err(|_| ElfError::Malformed)?;
    read(&file)
}

/// Whether the running user could exchange nothing on the path. For root: whether the file is where
/// the system stores its libraries.
fn is_of_the_system(path: &str) -> bool {
    let Ok(walked) = walk(path) else {
        return false;
    };
    if walked.weakness.is_some() {
        return false;
    }
    if !rustix::process::geteuid().is_root() {
        return !walked.mutable;
    }
    let canonical = String::from_utf8_lossy(&walked.canonical);
    SYSTEM_DIRECTORIES.iter().any(|directory| {
        let rest = canonical.strip_prefix(directory);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests;
