//! Entries that hold a script by its content, without any file: the host is a table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use interlock_command::{Host, Source, analyse};
use interlock_policy::{
    AlwaysForm, Ask, BoundContent, CallerInput, Entry, JudgedCall, Layer, Levels, PolicyParts,
    PolicySource as LayerSource, Security, Verdict,
};
use interlock_programs::{
    Executable, FileKind, Glob, GlobBudget, GlobError, Lookup, Resolver, VirtualHost,
};

/// A virtual host whose files have content, and that counts how often it was read.
#[derive(Default)]
struct Files {
    host: VirtualHost,
    content: BTreeMap<String, String>,
    reads: Mutex<Cell<usize>>,
    /// What stands behind `#!` in scripts.
    line: Option<String>,
}

impl Files {
    fn with(path: &str, sha256: &str) -> Self {
        Self {
            content: BTreeMap::from([(path.to_owned(), sha256.to_owned())]),
            ..Self::default()
        }
    }

    fn reads(&self) -> usize {
        self.reads.lock().unwrap().get()
    }
}

impl Resolver for Files {
    fn executable(&self, name: &str, cwd: &str) -> Lookup {
        self.host.executable(name, cwd)
    }

    fn file(&self, path: &str, cwd: &str) -> Lookup {
        self.host.file(path, cwd)
    }

    fn directory(&self, path: &str, cwd: &str) -> Option<String> {
        self.host.directory(path, cwd)
    }

    fn glob(
        &self,
        pattern: &Glob,
        cwd: &str,
        budget: &mut GlobBudget,
    ) -> Result<Vec<String>, GlobError> {
        self.host.glob(pattern, cwd, budget)
    }

    fn script_line(&self, _script: &Executable) -> Option<String> {
        self.line.clone()
    }

    fn content_sha256(&self, file: &Executable) -> Option<String> {
        let reads = self.reads.lock().unwrap();
        reads.set(reads.get() + 1);
        self.content.get(&file.canonical).cloned()
    }

    fn home(&self) -> Option<String> {
        self.host.home()
    }
}

fn judge(files: &dyn Resolver, entries: &[Entry], command: &str) -> Verdict {
    let layer = Layer::new(
        LayerSource::Host,
        "",
        Some(Security::Allowlist),
        Some(Ask::OnMiss),
    );
    let policy = PolicyParts {
        levels: Some(Levels::join(&[layer])),
        entries: entries
            .iter()
            .map(|entry| (entry.clone(), "agents.main.allowlist[0]".to_owned()))
            .collect(),
        ..PolicyParts::default()
    }
    .assemble(None)
    .unwrap();
    let host = Host {
        resolver: files,
        trusted_dirs: &policy.safe_bins.trusted_dirs,
    };
    let analysis = analyse(Source::Text(command.to_owned()), "/w", host).unwrap();
    let call = JudgedCall {
        env: &BTreeMap::new(),
        input: CallerInput::None,
        workspace: &[],
        now_ms: 0,
    };
    policy.judge(&analysis, call, files)
}

fn hash(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn held(pattern: &str, path: &str, sha256: String) -> Entry {
    Entry {
        bound_file: Some(BoundContent {
            path: path.to_owned(),
            sha256,
            ..BoundContent::default()
        }),
        ..Entry::for_pattern(pattern)
    }
}

#[test]
fn an_entry_with_content_matches_that_content_alone() {
    let files = Files::with("/w/x.sh", &hash('a'));
    let allows = |entry: Entry, command: &str| judge(&files, &[entry], command).outcome.is_allow();
    assert!(allows(held("/w/x.sh", "/w/x.sh", hash('a')), "./x.sh"));
    assert!(allows(held("/w/x.sh", "/w/x.sh", hash('A')), "./x.sh 1 2"));
    assert!(!allows(held("/w/x.sh", "/w/x.sh", hash('b')), "./x.sh"));
    assert!(!allows(held("/w/*", "/w/y.sh", hash('a')), "./x.sh"));
    // A native program is held by its own content, which is not known here.
    assert!(!allows(held("rg", "/usr/bin/rg", hash('a')), "rg x"));
    assert!(!allows(held("*", "/w/x.sh", hash('a')), "rg x"));
}

#[test]
fn content_that_is_not_known_is_no_match() {
    let entry = held("/w/x.sh", "/w/x.sh", hash('a'));
    let verdict = judge(&VirtualHost::new(), std::slice::from_ref(&entry), "./x.sh");
    assert_eq!(verdict.reason.code, "entry-content");
    // Another entry for the same program still matches.
    let both = [entry, Entry::for_pattern("/w/x.sh")];
    assert!(
        judge(&VirtualHost::new(), &both, "./x.sh")
            .outcome
            .is_allow()
    );
}

#[test]
fn files_are_read_only_where_an_entry_asks() {
    let files = Files::with("/w/x.sh", &hash('a'));
    let other = [
        Entry::for_pattern("/w/x.sh"),
        held("/w/y.sh", "/w/y.sh", hash('a')),
    ];
    assert!(judge(&files, &other, "./x.sh").outcome.is_allow());
    let narrow = Entry {
        args: Some(vec!["no".to_owned()]),
        ..held("/w/x.sh", "/w/x.sh", hash('a'))
    };
    let broad = Entry::for_pattern("/w/x.sh");
    assert!(judge(&files, &[narrow, broad], "./x.sh").outcome.is_allow());
    assert_eq!(files.reads(), 0);
}

#[test]
fn a_verdict_names_the_entries_it_rests_on_and_what_they_hold() {
    let files = Files::with("/w/x.sh", &hash('a'));
    let entry = Entry {
        id: Some("one".to_owned()),
        ..held("/w/x.sh", "/w/x.sh", hash('a'))
    };
    let verdict = judge(&files, &[entry], "./x.sh");
    let [used] = verdict.entries.as_slice() else {
        panic!("{:?}", verdict.entries);
    };
    assert_eq!(used.key, "one");
    let held = used.held.as_ref().unwrap();
    assert_eq!(held.content.sha256, hash('a'));
    assert_eq!(
        held.binding.sole_script().unwrap().file.canonical,
        "/w/x.sh"
    );
    assert!(judge(&files, &[], "./x.sh").entries.is_empty());
}

#[test]
fn what_always_stores_of_a_script_satisfies_the_same_script() {
    let files = Files::with("/w/x.sh", &hash('a'));
    let verdict = judge(&files, &[], "./x.sh go");
    let remember = verdict.remember;
    assert_eq!(remember.entries.len(), 1);
    let forms: Vec<AlwaysForm> = remember.wider.iter().map(|wider| wider.form).collect();
    assert_eq!(forms, [AlwaysForm::Leading(1)]);
    let edited = Files::with("/w/x.sh", &hash('b'));
    let all = std::iter::once(&remember.entries).chain(remember.wider.iter().map(|w| &w.entries));
    for entries in all {
        assert!(judge(&files, entries, "./x.sh go").outcome.is_allow());
        assert!(!judge(&edited, entries, "./x.sh go").outcome.is_allow());
    }
}

/// A native program that the running user could alter.
fn own_program(sha256: &str) -> Files {
    let mut files = Files::with("/home/u/bin/tool", sha256);
    let path = "/home/u/bin/tool";
    let tool = Executable {
        kind: FileKind::Native,
        ..VirtualHost::describe(path, path)
    };
    files.host.insert("tool", tool);
    files
}

#[test]
fn what_always_stores_of_a_program_in_a_writable_place_holds_its_content() {
    let files = own_program(&hash('a'));
    let remember = judge(&files, &[], "tool go").remember;
    let [entry] = remember.entries.as_slice() else {
        panic!("{remember:?}");
    };
    assert_eq!(entry.bound_file.as_ref().unwrap().sha256, hash('a'));
    assert!(
        judge(&files, &remember.entries, "tool go")
            .outcome
            .is_allow()
    );
    let replaced = own_program(&hash('b'));
    let verdict = judge(&replaced, &remember.entries, "tool go");
    assert_eq!(verdict.reason.code, "entry-content");
    // A program that only root could alter is trusted by its path.
    let remember = judge(&files, &[], "rg go").remember;
    assert_eq!(remember.entries[0].bound_file, None);
}

/// An interpreter that the running user could alter takes part in what is held.
#[test]
fn an_interpreter_in_a_writable_place_is_held_with_its_script() {
    let with = |interpreter: char| {
        let mut files = own_program(&hash(interpreter));
        files.content.insert("/w/x.sh".to_owned(), hash('c'));
        files.line = Some("/home/u/bin/tool".to_owned());
        let path = "/home/u/bin/tool";
        let tool = Executable {
            kind: FileKind::Native,
            ..VirtualHost::describe(path, path)
        };
        files.host.insert(path, tool);
        files
    };
    let remember = judge(&with('a'), &[], "./x.sh").remember;
    let also = &remember.entries[0].bound_file.as_ref().unwrap().also;
    assert_eq!(also.len(), 1, "{also:?}");
    assert!(
        judge(&with('a'), &remember.entries, "./x.sh")
            .outcome
            .is_allow()
    );
    assert!(
        !judge(&with('b'), &remember.entries, "./x.sh")
            .outcome
            .is_allow()
    );
}

/// The whole program is offered for filters and readers of the system, and for nothing else.
#[test]
fn the_whole_program_is_offered_by_the_table() {
    let offers = |files: &Files, command: &str| {
        let remember = judge(files, &[], command).remember;
        let mut forms = remember.wider.iter();
        forms.any(|wider| wider.form == AlwaysForm::Program)
    };
    let files = Files::default();
    for command in [
        "cat x",
        "grep -r x .",
        "ls -l",
        "sha256sum x",
        "/usr/bin/stat x",
    ] {
        assert!(offers(&files, command), "{command}");
    }
    for command in [
        "rg x",
        "sort x",
        "uniq x",
        "git log",
        "make",
        "cargo build",
        "tree",
        "date",
        "diff a b",
        "curl x",
        "tool",
        "xxd a",
        "file x",
        "jq . x",
        "docker ps",
        "npm test",
        "./x.sh",
    ] {
        assert!(!offers(&files, command), "{command}");
    }
    // Another program under the name of one of them.
    let mut files = own_program(&hash('a'));
    files
        .content
        .insert("/home/u/bin/cat".to_owned(), hash('a'));
    let path = "/home/u/bin/cat";
    let cat = Executable {
        kind: FileKind::Native,
        ..VirtualHost::describe(path, path)
    };
    files.host.insert("cat", cat);
    assert!(!offers(&files, "cat x"));
}

#[test]
fn forms_are_written_as_they_are_read() {
    for text in ["exact", "leading:1", "leading:12", "program"] {
        assert_eq!(text.parse::<AlwaysForm>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "leading",
        "leading:",
        "leading:0",
        "leading:-1",
        "Program",
        "exact ",
    ] {
        assert!(text.parse::<AlwaysForm>().is_err(), "{text}");
    }
}
