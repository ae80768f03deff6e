//! The base `read-only`: the entries that the first start trusts, so that an agent can look around
//! in its workspace without an approval for each command.
//!
//! `paths` narrows each entry to the workspace. `programs::file_operands` says which arguments of
//! these programs name files, and refuses every option that writes, starts a program or follows
//! links. Of other well-known programs, the base allows only the call that shows the version.

use crate::document::{Document, EVERY_AGENT};
use crate::entry::{BASE, Entry};

/// A program of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseProgram {
    pub name: &'static str,
    /// A description of what the entry allows.
    pub allows: &'static str,
    arguments: Option<&'static str>,
    /// Whether the entry allows only the call that shows the version.
    pub only_version: bool,
}

const fn program(name: &'static str, allows: &'static str) -> BaseProgram {
    BaseProgram {
        name,
        allows,
        arguments: None,
        only_version: false,
    }
}

/// An entry that shows a version. The arguments must be those of `programs::version_calls`, one
/// word per call.
const fn version(name: &'static str, arguments: &'static str) -> BaseProgram {
    BaseProgram {
        name,
        allows: "show its version",
        arguments: Some(arguments),
        only_version: true,
    }
}

const LONG: &str = "^--version$";
const LONG_OR_CAPITAL: &str = "^(--version|-V)$";
const LONG_OR_SMALL: &str = "^(--version|-v)$";
const LONG_OR_WORD: &str = "^(--version|-version)$";
const WORD: &str = "^version$";

/// The git subcommands that only read.
const GIT: &str = "^((--no-pager|-P|-C [^ ]+|-c [^ ]+) )*(status|diff|log|show|branch|rev-parse|ls-files|blame|remote|tag|\
     describe|ls-tree|cat-file|merge-base|rev-list|shortlog|reflog|show-ref|for-each-ref|name-rev|check-ignore|grep|\
     config|symbolic-ref|count-objects|diff-tree|cherry|range-diff|show-branch|whatchanged|annotate|stash list|stash show|\
     --version)( |$)";

/// Every program of the base, in display order.
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
    program("id", "show the user and its groups"),
    program("nproc", "show how many processors there are"),
    program("uptime", "show how long the system runs"),
    program("free", "show how much memory is used"),
    program("df", "show how much space file systems have"),
    program("sleep", "wait"),
    program("echo", "print words"),
    program("printf", "print words"),
    program("sort", "sort lines; no -o, no helper program"),
    program("uniq", "leave out repeated lines; no output file"),
    program("shuf", "put lines in another order; no output file"),
    program("bc", "compute"),
    program("cut", "show parts of lines"),
    program("paste", "put lines of files side by side"),
    program("comm", "compare sorted files"),
    program("nl", "number lines"),
    program("od", "show bytes of files"),
    program("column", "line up columns"),
    program("seq", "print numbers"),
    program("basename", "print the last part of a path"),
    program("dirname", "print a path without its last part"),
    program("realpath", "print where a path leads"),
    program("readlink", "print where a link leads"),
    program("md5sum", "show checksums of files; no lists of files"),
    program("sha1sum", "show checksums of files; no lists of files"),
    program("sha224sum", "show checksums of files; no lists of files"),
    program("sha256sum", "show checksums of files; no lists of files"),
    program("sha384sum", "show checksums of files; no lists of files"),
    program("sha512sum", "show checksums of files; no lists of files"),
    program("tac", "show lines in reverse order"),
    program("rev", "show lines backwards"),
    program("fold", "break long lines"),
    program("expand", "turn tabs into blanks"),
    program("unexpand", "turn blanks into tabs"),
    program("join", "join lines of sorted files"),
    program("base64", "show bytes as text, and back"),
    program("xxd", "show bytes of a file; no output file, no -r"),
    program("hexdump", "show bytes of files"),
    program("strings", "show texts in files; no lists of arguments"),
    program("hostname", "show the name of the machine; never set it"),
    program("groups", "show the groups of the user"),
    program("expr", "compute with words"),
    program("diff", "compare files"),
    program("cmp", "compare files"),
    program("jq", "show parts of JSON; no modules, no environment"),
    program("sed", "show parts of files; no -i, no r, w or e"),
    program("awk", "print columns; no files, commands or environment"),
    BaseProgram {
        name: "git",
        allows: "status, diff, log, show, branch --list, rev-parse, ls-files, blame, grep, remote -v, tag --list, \
                 stash list, config of a few settings and other subcommands that only list; -C leads to a directory of the workspace",
        arguments: Some(GIT),
        only_version: false,
    },
    version("python3", LONG_OR_CAPITAL),
    version("python", LONG_OR_CAPITAL),
    version("node", LONG_OR_SMALL),
    version("ruby", LONG_OR_SMALL),
    version("perl", LONG),
    version("go", WORD),
    version("java", LONG_OR_WORD),
    version("javac", LONG_OR_WORD),
    version("gcc", LONG),
    version("g++", LONG),
    version("cc", LONG),
    version("clang", LONG),
    version("make", LONG),
    version("cmake", LONG),
    version("ninja", LONG),
    version("docker", LONG),
    version("podman", LONG),
    version("curl", LONG),
    version("tar", LONG),
    version("psql", LONG),
    version("uv", LONG),
    version("gh", LONG),
    version("openssl", WORD),
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
    /// The document that the first start writes: the cautious levels and the base.
    pub fn starter() -> Self {
        let mut document = Self::cautious();
        document.restore_base();
        document
    }

    /// The base entries that the document holds.
    pub fn base_entries(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.agents.values().flat_map(|scope| &scope.allowlist);
        entries.filter(|entry| entry.is_base())
    }

    /// Removes every base entry and returns how many there were.
    pub fn remove_base(&mut self) -> usize {
        let before = self.base_entries().count();
        for scope in self.agents.values_mut() {
            scope.allowlist.retain(|entry| !entry.is_base());
        }
        self.agents.retain(|_, scope| !scope.is_empty());
        before
    }

    /// Replaces the base entries by those of this version, for every agent. Returns whether
    /// anything changed.
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

    /// Whether all base entries are in the scope of every agent.
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
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::arguments::ArgumentRule;

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
        for program in BASE_PROGRAMS.iter().filter(|one| !one.only_version) {
            assert!(
                interlock_programs::has_row(program.name),
                "{}",
                program.name
            );
        }
    }

    #[test]
    fn versions_are_shown_by_the_calls_of_the_table_and_by_no_others() {
        let mut listed = Vec::new();
        for (name, calls) in interlock_programs::version_calls() {
            let program = BASE_PROGRAMS.iter().find(|one| one.name == name);
            let program = program.unwrap_or_else(|| panic!("{name} is not in the base"));
            assert!(program.only_version, "{name}");
            let rule = ArgumentRule::parse(program.arguments, None).unwrap();
            for words in ["--version", "-version", "version", "-V", "-v", "--help", ""] {
                let words = words.to_owned();
                let is_listed = calls.contains(&[words.as_str()].as_slice());
                assert_eq!(
                    rule.matches(std::slice::from_ref(&words), "/"),
                    is_listed,
                    "{name} {words}"
                );
                let more = [words, "x".to_owned()];
                assert!(!rule.matches(&more, "/"), "{name} {more:?}");
            }
            listed.push(name);
        }
        let versions = BASE_PROGRAMS.iter().filter(|one| one.only_version);
        assert_eq!(versions.count(), listed.len());
        assert_eq!((BASE_PROGRAMS.len(), listed.len()), (88, 23));
    }
}
