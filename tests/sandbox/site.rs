//! A machine whose runs are sandboxed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Machine, Run};

/// What most rows assume.
pub const USUAL: &str = "mode: 'all', workspaceAccess: 'rw'";

pub struct Site {
    pub machine: Machine,
}

impl Site {
    /// With these settings of `agents.defaults.sandbox`.
    pub fn started(machine: Machine, settings: &str) -> Self {
        let site = Self { machine };
        site.machine.start();
        site.configure(settings);
        site
    }

    pub fn configure(&self, settings: &str) {
        let text = format!("{{ agents: {{ defaults: {{ sandbox: {{ {settings} }} }} }} }}");
        self.machine.configure(&text);
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

/// Runs a test on a machine of this user and, where this is root, on one of an ordinary user.
pub fn everywhere(settings: &str, test: impl Fn(&Site)) {
    test(&Site::started(Machine::new(), settings));
    if testkit::is_root()
        && let Some(machine) = Machine::of_ordinary_user()
    {
        test(&Site::started(machine, settings));
    }
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
