//! What the tests share: scratch directories, globs from text, and the second run of a test
//! program as an ordinary user.

// Each test program uses a part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_programs::{Glob, GlobToken};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const ORDINARY: &str = "INTERLOCK_TEST_AS_ORDINARY_USER";

/// The id of a user and group that own nothing.
pub const ORDINARY_USER: u32 = 65534;

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(!is_root || std::env::var_os(ORDINARY).is_none());
    is_root
}

/// Runs all other tests of the module once more, as a user without rights. `except` is the
/// name of the calling test.
pub fn run_again_as_ordinary_user(module: &str, except: &str) {
    if is_root() {
        let tests = module.split_once("::").map_or("", |(_, inner)| inner);
        run_tests_as_ordinary_user(&[tests, "--skip", except], &[]);
    }
}

/// Runs tests of this program as [`ORDINARY_USER`]; this one must be root's.
pub fn run_tests_as_ordinary_user(arguments: &[&str], environment: &[(&str, &str)]) {
    if Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: there is no setpriv");
        return;
    }
    // The build directory may be closed to others.
    let scratch = TempDir::new().unwrap();
    set_mode(scratch.path(), 0o755);
    let program = scratch.path().join("tests");
    // By another process: a child that another thread starts meanwhile would hold our descriptor for
    // a moment, and a file that is open for writing cannot be executed.
    let copied = Command::new("/bin/cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    set_mode(&program, 0o755);
    let id = ORDINARY_USER.to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(&program)
        .args(arguments)
        .env(ORDINARY, "1")
        .envs(environment.iter().copied())
        .env_remove("TMPDIR")
        .current_dir("/")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !report.contains(" 0 passed"),
        "{report}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A scratch directory by its canonical path, which is made removable again at the end.
pub struct Scratch {
    directory: TempDir,
    path: PathBuf,
}

impl Scratch {
    pub fn new() -> Self {
        Self::of(TempDir::new().unwrap())
    }

    pub fn of(directory: TempDir) -> Self {
        let path = directory.path().canonicalize().unwrap();
        Self { directory, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// The path of something inside.
    pub fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.text())
    }

    pub fn directory(&self, name: &str) -> String {
        fs::create_dir_all(self.path.join(name)).unwrap();
        self.at(name)
    }

    pub fn file(&self, name: &str, content: &[u8], mode: u32) -> String {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        set_mode(&path, mode);
        self.at(name)
    }

    pub fn link(&self, name: &str, target: &str) -> String {
        std::os::unix::fs::symlink(target, self.path.join(name)).unwrap();
        self.at(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        open_all(self.directory.path());
    }
}

fn open_all(directory: &Path) {
    set_mode(directory, 0o700);
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            open_all(&entry.path());
        }
    }
}

pub fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Reads `*`, `?`, `[a-c.]`, `[!a]` and a backslash before what is literal.
pub fn glob(text: &str) -> Glob {
    let mut tokens = Vec::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        tokens.push(match character {
            '*' => GlobToken::Star,
            '?' => GlobToken::Any,
            '\\' => GlobToken::Literal(rest.next().unwrap()),
            '[' => {
                let (inside, after) = rest.as_str().split_once(']').unwrap();
                rest = after.chars();
                set(inside)
            }
            literal => GlobToken::Literal(literal),
        });
    }
    Glob { tokens }
}

fn set(inside: &str) -> GlobToken {
    let (negated, members) = inside
        .strip_prefix('!')
        .map_or((false, inside), |members| (true, members));
    let members: Vec<char> = members.chars().collect();
    let mut ranges = Vec::new();
    let mut index = 0;
    while let Some(first) = members.get(index) {
        if let [_, '-', last, ..] = &members[index..] {
            ranges.push((*first, *last));
            index += 3;
        } else {
            ranges.push((*first, *first));
            index += 1;
        }
    }
    GlobToken::Set { negated, ranges }
}
