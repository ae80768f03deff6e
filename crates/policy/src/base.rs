//! The base `read-only`: what the first start trusts, so that an agent can look around in its workspace
//! without a question for each look.
//!
//! Each entry is narrowed to the workspace by `paths`; `command::file_operands` says which arguments of
//! these programs name files and refuses every option that writes, starts a program or follows links.

use crate::document::{Document, EVERY_AGENT};
use crate::entry::{BASE, Entry};

/// A program of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseProgram {
    pub name: &'static str,
    /// What the entry allows, in words.
    pub allows: &'static str,
    arguments: Option<&'static str>,
}

const fn program(name: &'static str, allows: &'static str) -> BaseProgram {
    BaseProgram {
        name,
        allows,
        arguments: None,
    }
}

/// The subcommands of git that only read.
const GIT: &str =
    "^(--no-pager )?(status|diff|log|show|branch|rev-parse|ls-files|blame|--version)( |$)";

/// Every program of the base, in the order in which it is shown.
pub const BASE_PROGRAMS: &[BaseProgram] = &[
    program("ls", "list directories"),
    program("cat", "show files"),
    program("head", "show the beginning of files"),
    program("tail", "show the end of files"),
    program("wc", "count lines, words and bytes"),
    program("rg", "search files; no preprocessor, no archives"),
    program("grep", "search files"),
    program("find", "find files; no -exec, -ok, -delete, -fprint"),
    program("tree", "list directories as a tree"),
    program("stat", "show size, times and owner of files"),
    program("file", "tell what kind of content files have"),
    program("du", "show how much space files take"),
    program("pwd", "show the working directory"),
    program("which", "show where a program is found"),
    program("date", "show the time; never set it"),
    program("uname", "show the name and version of the system"),
    program("whoami", "show the name of the user"),
    program("echo", "print words"),
    program("printf", "print words"),
    program("sort", "sort lines; no -o, no helper program"),
    program("uniq", "leave out repeated lines; no output file"),
    program("cut", "show parts of lines"),
    program("diff", "compare files"),
    program("cmp", "compare files"),
    program("jq", "show parts of JSON; no modules, no environment"),
    program("sed", "show parts of files; no -i, no r, w or e"),
    program("awk", "print columns; no files, commands or environment"),
    BaseProgram {
        name: "git",
        allows: "status, diff, log, show, branch --list, rev-parse, ls-files, blame",
        arguments: Some(GIT),
    },
];

impl BaseProgram {
    pub fn entry(&self) -> Entry {
        Entry {
            id: Some(format!("base-{}", self.name)),
            arg_pattern: self.arguments.map(str::to_owned),
            source: Some(BASE.to_owned()),
            note: Some(self.allows.to_owned()),
            paths: Some(vec!["${workspace}/**".to_owned()]),
            ..Entry::for_pattern(self.name)
        }
    }
}

impl Document {
    /// What the first start writes: the cautious levels, and the base.
    pub fn starter() -> Self {
        let mut document = Self::cautious();
        document.restore_base();
        document
    }

    /// The entries of the base that the document holds.
    pub fn base_entries(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.agents.values().flat_map(|scope| &scope.allowlist);
        entries.filter(|entry| entry.is_base())
    }

    /// Takes every entry of the base out. How many there were.
    pub fn remove_base(&mut self) -> usize {
        let before = self.base_entries().count();
        for scope in self.agents.values_mut() {
            scope.allowlist.retain(|entry| !entry.is_base());
        }
        self.agents.retain(|_, scope| !scope.is_empty());
        before
    }

    /// Puts the base in place as this version has it, for every agent. Whether that changed anything.
    pub fn restore_base(&mut self) -> bool {
        let wanted: Vec<Entry> = BASE_PROGRAMS.iter().map(BaseProgram::entry).collect();
        if self.base_entries().eq(&wanted) && self.is_base_shared() {
            return false;
        }
        self.remove_base();
        let scope = self.agents.entry(EVERY_AGENT.to_owned()).or_default();
        scope.allowlist.extend(wanted);
        true
    }

    /// The entries of the base stand where they are for every agent.
    fn is_base_shared(&self) -> bool {
        let own = self.agents.get(EVERY_AGENT);
        let shared = own.map_or(0, |scope| {
            scope
                .allowlist
                .iter()
                .filter(|entry| entry.is_base())
                .count()
        });
        shared == self.base_entries().count()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_base_can_be_read_back_and_restored_once() {
        let document = Document::starter();
        let written = serde_json::from_str(&document.to_json()).unwrap();
        let read = Document::from_json(&written).unwrap();
        assert_eq!(read, document);
        let mut changed = document.clone();
        assert!(!changed.restore_base());
        assert_eq!(changed.remove_base(), BASE_PROGRAMS.len());
        assert_eq!(changed, Document::cautious());
        assert!(changed.restore_base());
        assert_eq!(changed, document);
    }

    #[test]
    fn every_program_of_the_base_is_read_by_a_row() {
        for program in BASE_PROGRAMS {
            assert!(interlock_command::has_row(program.name), "{}", program.name);
        }
    }
}
