//! A machine whose runs are sandboxed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Machine, Run};

/// What most rows assume.
pub const USUAL: &str = "mode: 'all', workspaceAccess: 'rw'";

pub struct Site {
    pub machine: Machine,
    /// What the config names, if anything.
    backend: Option<&'static str>,
}

impl Site {
    /// With these settings of `agents.defaults.sandbox`.
    pub fn started(machine: Machine, settings: &str) -> Self {
        Self::with_backend(machine, settings, None)
    }

    fn with_backend(machine: Machine, settings: &str, backend: Option<&'static str>) -> Self {
        let site = Self { machine, backend };
        site.machine.start();
        site.configure(settings);
        site
    }

    pub fn configure(&self, settings: &str) {
        let settings = self.settings(settings);
        let text = format!("{{ agents: {{ defaults: {{ sandbox: {{ {settings} }} }} }} }}");
        self.machine.configure(&text);
    }

    /// These settings, and the backend of this site.
    pub fn settings(&self, settings: &str) -> String {
        match self.backend {
            Some(backend) => format!("{settings}, backend: '{backend}'"),
            None => settings.to_owned(),
        }
    }

    /// Whether bubblewrap makes the namespaces.
    pub fn is_bubblewrap(&self) -> bool {
        self.backend == Some("bwrap")
    }

    /// Shell text, inside.
    pub fn inside(&self, text: &str) -> Run {
        self.machine.run(&["exec", "--timeout", "60", "--", text])
    }

    /// The same, which has to succeed; what it wrote.
    pub fn says(&self, text: &str) -> String {
        let run = self.inside(text);
        assert_eq!(run.code, 0, "{text}: {run:#?}");
        run.stdout
    }

    /// The result of a run as data.
    pub fn result(&self, text: &str) -> serde_json::Value {
        let arguments = ["exec", "--json", "--timeout", "60", "--", text];
        self.machine.run(&arguments).json()
    }

    pub fn work(&self) -> PathBuf {
        self.machine.work()
    }

    pub fn home(&self) -> PathBuf {
        self.machine.root().join("home")
    }

    /// A file of the machine's owner.
    pub fn owned(&self, path: &Path, content: &str) {
        let parent = path.parent().unwrap();
        if !parent.exists() {
            self.host(&["/usr/bin/mkdir", "-p", parent.to_str().unwrap()]);
        }
        self.machine.write_private(path, content);
    }

    /// A program of the machine's owner, on the host.
    pub fn host(&self, words: &[&str]) -> Run {
        let mut command: Command = self.machine.other_program(words[0]);
        command.args(&words[1..]);
        let output = command.output().unwrap();
        let run = Run::of(&output);
        assert_eq!(run.code, 0, "{words:?}: {run:#?}");
        run
    }
}

/// Runs a test without namespaces, on a machine of an ordinary user and, where this is root, on one of root,
/// who has to permit it.
pub fn with_landlock(settings: &str, test: impl Fn(&Site)) {
    let landlock = Some("landlock");
    if testkit::is_root() {
        let settings = format!("{settings}, allowHostRoot: true");
        test(&Site::with_backend(Machine::new(), &settings, landlock));
        if let Some(machine) = Machine::of_ordinary_user() {
            test(&Site::with_backend(machine, &settings, landlock));
        }
    } else {
        test(&Site::with_backend(Machine::new(), settings, landlock));
    }
}

/// Runs a test on a machine of this user and, where this is root, on one of an ordinary user.
pub fn everywhere(settings: &str, test: impl Fn(&Site)) {
    test(&Site::started(Machine::new(), settings));
    if testkit::is_root()
        && let Some(machine) = Machine::of_ordinary_user()
    {
        test(&Site::started(machine, settings));
    }
}

/// The same, and once more with namespaces that bubblewrap made.
pub fn with_every_backend(settings: &str, test: impl Fn(&Site)) {
    everywhere(settings, &test);
    if !has_bubblewrap() {
        return;
    }
    let bwrap = Some("bwrap");
    test(&Site::with_backend(Machine::new(), settings, bwrap));
    if testkit::is_root()
        && let Some(machine) = Machine::of_ordinary_user()
    {
        test(&Site::with_backend(machine, settings, bwrap));
    }
}

pub fn has_bubblewrap() -> bool {
    let is_there = Path::new("/usr/bin/bwrap").exists();
    if !is_there {
        println!("skipped: bubblewrap is not installed");
    }
    is_there
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let list = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = list
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
