//! A workspace in a temporary directory, and how to look at it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use interlock_patch::{ApplyOptions, Patch, ReservedPaths};

/// Files by their path; a link is its target after `-> `.
pub type Tree = BTreeMap<String, Vec<u8>>;

pub struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    pub fn with(files: &[(&str, &str)]) -> Self {
        let place = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.root()).unwrap();
        write(&place.root(), &tree(files));
        place
    }

    pub fn root(&self) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join("w")
    }

    /// A path next to the workspace that does not exist yet.
    pub fn outside(&self) -> PathBuf {
        self.temp.path().join("outside")
    }

    pub fn options(&self) -> ApplyOptions {
        ApplyOptions {
            root: self.root(),
            workspace_only: true,
            journal_dir: self.temp.path().join("journal"),
            reserved: ReservedPaths::default(),
        }
    }

    pub fn tree(&self) -> Tree {
        read(&self.root())
    }

    /// No file written aside, no empty directory in between, no journal.
    pub fn assert_nothing_left_over(&self) {
        let hidden: Vec<_> = self
            .tree()
            .into_keys()
            .filter(|name| name.contains(".interlock-patch-"))
            .collect();
        assert!(hidden.is_empty(), "left over: {hidden:?}");
        let journals: Vec<_> = fs::read_dir(self.options().journal_dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension() != Some("lock".as_ref()))
            .collect();
        assert!(journals.is_empty(), "left over: {journals:?}");
    }
}

pub fn patch(operations: &str) -> Patch {
    Patch::parse(&format!("*** Begin Patch\n{operations}\n*** End Patch")).unwrap()
}

pub fn tree(files: &[(&str, &str)]) -> Tree {
    files
        .iter()
        .map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec()))
        .collect()
}

pub fn write(root: &Path, tree: &Tree) {
    for (path, content) in tree {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

pub fn read(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(name, [b"-> ", target.as_os_str().as_bytes()].concat());
            } else if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The directories below `root`.
pub fn directories(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                found.push(
                    path.strip_prefix(root)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                );
                open.push(path);
            }
        }
    }
    found.sort();
    found
}
