//! Real shells, in which every command is a recorder: it writes down how it was called and
//! returns the status that the trial asks for.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use interlock_programs::builtins::{ShellWord, shell_word};
use tempfile::TempDir;

use crate::expand::Reading;
use crate::pieces::{FILES, PROGRAMS};

/// Variables whose values the recorders write down.
pub const WATCHED: [&str; 6] = ["A", "B", "FOO", "_x", "N1", "RUST_BACKTRACE"];

/// Records that are not whole.
struct Torn;

/// What recorders return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    AllSucceed,
    AllFail,
    /// A command fails if it has an odd number of words.
    Mixed,
}

impl Mode {
    pub fn succeeds(self, words: usize) -> bool {
        match self {
            Self::AllSucceed => true,
            Self::AllFail => false,
            Self::Mixed => words.is_multiple_of(2),
        }
    }
}

/// One text, evaluated once.
#[derive(Debug, Clone)]
pub struct Trial {
    pub text: String,
    pub mode: Mode,
    /// Every word that our reading knows; each becomes a recorder, so that a word which a shell
    /// takes for a command does not go unseen.
    pub words: BTreeSet<String>,
    pub expected: Vec<Record>,
}

/// How one command was called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub argv: Vec<String>,
    /// Stdin, stdout and stderr: `n` is the null device, `o` and `e` what the shell itself has
    /// as stdout and stderr, `p` anything else, which can only be a pipe.
    pub streams: String,
    /// The values of [`WATCHED`]: empty, or `=` and the value.
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bash,
    Dash,
}

pub struct Shell {
    pub kind: Kind,
    program: PathBuf,
    scratch: TempDir,
    /// The directory that globs meet, deep enough that no `..` leaves the scratch directory.
    pub directory: PathBuf,
    pub home: String,
    dot_entries: bool,
}

/// Defines `__record NAME [ARGUMENT…]` in any POSIX shell. One `printf` writes one record, so
/// that the commands of a pipeline cannot write into each other's.
const RECORD: &str = r#"
__record() {
  __streams=
  for __fd in 0 1 2; do
    if command test /dev/fd/$__fd -ef /dev/null; then __streams="${__streams}n"
    elif command test /dev/fd/$__fd -ef "$__stdout"; then __streams="${__streams}o"
    elif command test /dev/fd/$__fd -ef "$__stderr"; then __streams="${__streams}e"
    else __streams="${__streams}p"
    fi
  done
  command printf '%s\0' "$__trial" "$__streams" WATCHED "$#" "ARGUMENTS" >&9
  case $__mode in
    succeed) return 0 ;;
    fail) return 1 ;;
    *) return $(($# % 2)) ;;
  esac
}
"#;

/// Bash flushes at every newline, so recorders put this in its place. No plain text holds it.
const NEWLINE: char = '\u{2}';

impl Shell {
    /// `None` if the shell is not installed.
    pub fn find(kind: Kind) -> Option<Self> {
        let name = match kind {
            Kind::Bash => "bash",
            Kind::Dash => "dash",
        };
        let path = std::env::var_os("PATH")?;
        let program = std::env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|program| program.is_file())?;
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let root = scratch.path();
        let home = root.join("home");
        let directory = root.join("1/2/3/4/work");
        let recorder = format!(
            "#!{}\n. \"$__library\"\n__record \"${{0#\"$__bin\"/}}\" \"$@\"\n",
            program.display()
        );
        for file in FILES {
            write(&directory.join(file), "");
        }
        for file in ["x", ".y", "z.rs"] {
            write(&home.join(file), "");
        }
        for file in PROGRAMS {
            write_executable(&directory.join(file), &recorder);
        }
        write_executable(&home.join("bin/tool"), &recorder);
        write_executable(&root.join("recorder"), &recorder);
        fs::create_dir(root.join("bin")).expect("a new directory");
        let mut shell = Self {
            kind,
            program,
            directory,
            home: home.into_os_string().into_string().expect("UTF-8"),
            scratch,
            dot_entries: false,
        };
        write(&shell.file("library"), &shell.library());
        shell.dot_entries = shell.matches_dot_entries();
        Some(shell)
    }

    pub fn reading(&self, locale: &str) -> Reading {
        Reading {
            bytes: self.kind == Kind::Dash || locale == "C",
            dot_entries: self.dot_entries,
        }
    }

    /// The trials that did not go as expected, with what happened instead.
    pub fn disagreements(&self, trials: &[Trial], locale: &str) -> Vec<(Trial, String)> {
        if self.run(trials, locale).is_none() {
            return Vec::new();
        }
        let alone: Vec<_> = trials
            .iter()
            .filter_map(|trial| {
                let difference = self.run(std::slice::from_ref(trial), locale)?;
                Some((trial.clone(), difference))
            })
            .collect();
        assert!(!alone.is_empty(), "trials disagree only when run together");
        alone
    }

    /// What is different from the expectation, if anything. Commands of one pipeline write at the
    /// same time, and a long record may be written in pieces: torn ones are recorded anew.
    fn run(&self, trials: &[Trial], locale: &str) -> Option<String> {
        const TRIES: usize = 5;
        let mut tries = (0..TRIES).filter_map(|_| self.attempt(trials, locale).ok());
        tries
            .next()
            .unwrap_or_else(|| Some(format!("the records were torn {TRIES} times")))
    }

    fn attempt(&self, trials: &[Trial], locale: &str) -> Result<Option<String>, Torn> {
        self.make_recorders(trials);
        let mut script = self.prelude(trials);
        for (index, trial) in trials.iter().enumerate() {
            let mode = match trial.mode {
                Mode::AllSucceed => "succeed",
                Mode::AllFail => "fail",
                Mode::Mixed => "mixed",
            };
            let text = quote(&trial.text);
            let eval = match self.kind {
                Kind::Bash => "eval --",
                Kind::Dash => "eval",
            };
            writeln!(script, "__trial={index} __mode={mode}\n{eval} {text}\nwait").expect("memory");
        }
        script.push_str("exit 0\n");
        fs::write(self.file("script"), script).expect("a script");
        fs::write(self.file("records"), "").expect("a file");
        let status = self
            .command(locale)
            .arg(self.file("script"))
            .status()
            .expect("a shell that starts");
        let complaint = self.complaint();
        let mut found: Vec<Vec<Record>> = vec![Vec::new(); trials.len()];
        for (index, record) in self.records().ok_or(Torn)? {
            found.get_mut(index).ok_or(Torn)?.push(record);
        }
        for (trial, mut found) in trials.iter().zip(found) {
            let mut expected = trial.expected.clone();
            expected.sort();
            found.sort();
            if expected != found {
                return Ok(Some(format!("dispatched {found:?}\n  {complaint}")));
            }
        }
        let differs = !complaint.is_empty() || !status.success();
        Ok(differs.then(|| format!("dispatched as expected, but {status}, {complaint}")))
    }

    fn command(&self, locale: &str) -> Command {
        let mut command = Command::new(&self.program);
        if self.kind == Kind::Bash {
            command.args(["--norc", "--noprofile"]);
        }
        let stdout = File::create(self.file("stdout")).expect("a file");
        let stderr = File::create(self.file("stderr")).expect("a file");
        command
            .env_clear()
            .env("LC_ALL", locale)
            .env("HOME", &self.home)
            .env("PATH", self.file("bin"))
            .env("__bin", self.file("bin"))
            .env("__library", self.file("library"))
            .env("__stdout", self.file("stdout"))
            .env("__stderr", self.file("stderr"))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr);
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn library(&self) -> String {
        let without_newlines = match self.kind {
            Kind::Bash => r"//$'\n'/$'\x02'",
            Kind::Dash => "",
        };
        let watched = WATCHED.map(|name| {
            let value = format!("${{{name}{without_newlines}}}");
            format!("\"${{{name}+=}}{value}\"")
        });
        let arguments = format!("${{@{without_newlines}}}");
        RECORD
            .replace("WATCHED", &watched.join(" "))
            .replace("ARGUMENTS", &arguments)
    }

    /// Names that can be functions become functions, which cost no process. In bash every
    /// other name reaches `command_not_found_handle`, in dash a link to the recorder.
    fn prelude(&self, trials: &[Trial]) -> String {
        let mut script = self.library();
        script.push_str("exec 9>>\"${__stdout%/*}/records\"\nexport __trial __mode\n");
        let mut functions: BTreeSet<&str> = words(trials).filter(|w| is_function(w)).collect();
        functions.extend([
            "cd", "true", "false", "pwd", "test", "echo", "printf", "kill",
        ]);
        if self.kind == Kind::Bash {
            script.push_str("TIMEFORMAT=\ncommand_not_found_handle() { __record \"$@\"; }\n");
            script.push_str("function : { __record : \"$@\"; }\n");
            script.push_str("function [ { __record [ \"$@\"; }\n");
        }
        for name in functions {
            writeln!(script, "{name}() {{ __record {name} \"$@\"; }}").expect("memory");
        }
        script
    }

    fn make_recorders(&self, trials: &[Trial]) {
        let bin = self.file("bin");
        if self.kind == Kind::Bash {
            return;
        }
        for word in words(trials).filter(|word| is_link(word) && !is_function(word)) {
            let link = bin.join(word);
            if link.symlink_metadata().is_err() {
                symlink(self.file("recorder"), link).expect("a new link");
            }
        }
    }

    /// What the shell itself said on stderr; `time -p` is allowed to report.
    fn complaint(&self) -> String {
        let stderr = fs::read(self.file("stderr")).expect("a file");
        let stdout = fs::read(self.file("stdout")).expect("a file");
        String::from_utf8_lossy(&[stdout, stderr].concat())
            .lines()
            .filter(|line| {
                let first = line.split(' ').next();
                !matches!(first, Some("real" | "user" | "sys"))
            })
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// `None` if they are not whole.
    fn records(&self) -> Option<Vec<(usize, Record)>> {
        let bytes = fs::read(self.file("records")).expect("a file");
        let text = String::from_utf8_lossy(&bytes).replace(NEWLINE, "\n");
        let mut fields = text.split('\0');
        let mut records = Vec::new();
        while let Some(index) = fields.next().filter(|field| !field.is_empty()) {
            let mut next = || fields.next().map(str::to_owned);
            let streams = next()?;
            let values = WATCHED.iter().map(|_| next()).collect::<Option<_>>()?;
            let count: usize = next()?.parse().ok()?;
            let argv = (0..count).map(|_| next()).collect::<Option<_>>()?;
            let record = Record {
                argv,
                streams,
                values,
            };
            records.push((index.parse().ok()?, record));
        }
        Some(records)
    }

    fn matches_dot_entries(&self) -> bool {
        let probe = "set -- .*; test \"$1\" = .";
        self.command("C")
            .args(["-c", probe])
            .status()
            .expect("a shell that starts")
            .success()
    }
}

fn words(trials: &[Trial]) -> impl Iterator<Item = &str> {
    trials
        .iter()
        .flat_map(|trial| trial.words.iter().map(String::as_str))
}

/// Names that a function may have in every shell.
fn is_function(word: &str) -> bool {
    let mut characters = word.chars();
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    characters.next().is_some_and(starts)
        && characters.all(|c| starts(c) || c.is_ascii_digit())
        && shell_word(word) == ShellWord::Program
}

/// Names that a file in PATH may have.
pub fn is_link(word: &str) -> bool {
    !matches!(word, "" | "." | "..") && !word.contains(['/', '\0']) && word.len() < 200
}

/// The text as one word of a script.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn write(path: &Path, content: &str) {
    let parent = path.parent().expect("a path with a parent");
    fs::create_dir_all(parent).expect("a new directory");
    fs::write(path, content).expect("a new file");
}

fn write_executable(path: &Path, content: &str) {
    write(path, content);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("my own file");
}
