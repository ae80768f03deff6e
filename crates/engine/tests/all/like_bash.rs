//! Plain lines give the same output, exit status and files whether Interlock runs them directly
//! or bash does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use interlock_engine::RunStatus;
use tempfile::TempDir;
use testkit::plans::{PATH, has, plan, run};

const LINES: usize = 500;
const SEED: u64 = 0x1e7e_410c_0de5_eed5;

/// Read nothing, and write the same every time.
const SOURCES: &[&str] = &[
    "/usr/bin/printf abc",
    "/usr/bin/printf 'b\\na\\nc\\n'",
    "/usr/bin/printf '%s-' 1 '2 3' \"four\" $'\\t'",
    "cat f",
    "cat f g",
    "head -n 2 f",
    "sort -r f",
    "wc -l f",
    "sh -c 'exit 0'",
    "sh -c 'exit 3'",
    "sh -c '/usr/bin/printf out; /usr/bin/printf err >&2'",
    "sh -c 'cat f; exit 5'",
    "sh -c 'kill -TERM $$'",
    "sh -c 'false || cat f && true'",
    "sh -c 'cd sub; pwd; cat inner'",
    "sh -c 'cat g | tr a-z A-Z; false'",
    "X=1 sh -c '/usr/bin/printf \"$X\"'",
    "true",
    "false",
    ":",
    "pwd",
    "test -f f",
    "test -d nope",
    "[ abc = abc ]",
    "[ 3 -lt 2 ]",
    "[ ! -e f ]",
    "test f -ef ./f",
    "test -s empty",
    "touch made",
    "rm -f made",
    "cp f copied",
    "mkdir fresh",
    "cat *.txt",
];

/// Read standard input to its end.
const FILTERS: &[&str] = &[
    "cat",
    "tr a-z A-Z",
    "sort",
    "wc -c",
    "tr -d '\\n'",
    "sh -c 'cat; exit 4'",
    "sh -c 'tr a b | tr b c'",
    "tee made",
    "grep -c a",
];

const REDIRECTIONS: &[&str] = &[
    "",
    "",
    "",
    "",
    " 2>&1",
    " >/dev/null",
    " 2>/dev/null",
    " >/dev/null 2>&1",
    " 2>&1 >/dev/null",
    " &>/dev/null",
    " >&2",
    " </dev/null",
];

const CONNECTORS: &[&str] = &[" && ", " || ", "; ", "\n"];

/// The same numbers every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn line(numbers: &mut Numbers) -> String {
    let mut line = String::new();
    if numbers.below(8) == 0 {
        line += "cd sub && cd .. && ";
    }
    for index in 0..=numbers.below(4) {
        if index > 0 {
            line += numbers.one(CONNECTORS);
        }
        line += numbers.one(SOURCES);
        line += numbers.one(REDIRECTIONS);
        for _ in 0..numbers.below(3) {
            line += " | ";
            line += numbers.one(FILTERS);
            line += numbers.one(REDIRECTIONS);
        }
    }
    line
}

fn fill(directory: &Path) {
    fs::write(directory.join("f"), "beta\nalpha\ngamma\n").unwrap();
    fs::write(directory.join("g"), "no newline").unwrap();
    fs::write(directory.join("empty"), "").unwrap();
    fs::write(directory.join("one.txt"), "1\n").unwrap();
    fs::write(directory.join("two.txt"), "2\n").unwrap();
    fs::create_dir(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/inner"), "inner\n").unwrap();
}

fn files(directory: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    fs::read_dir(directory)
        .unwrap()
        .flatten()
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).ok())
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Result {
    stdout: String,
    code: i32,
    files: BTreeMap<String, Option<Vec<u8>>>,
}

fn directly(line: &str, directory: &Path) -> Result {
    let ran = run(&plan(line, directory));
    let code = match ran.outcome.status {
        RunStatus::Exited(code) => code,
        RunStatus::Signaled(signal) => 128 + signal,
        RunStatus::TimedOut => panic!("{line}"),
    };
    Result {
        stdout: ran.stdout,
        code,
        files: files(directory),
    }
}

fn by_bash(line: &str, directory: &Path) -> Result {
    use std::os::unix::process::ExitStatusExt as _;
    let output = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", "--", line])
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .current_dir(fs::canonicalize(directory).unwrap())
        .output()
        .unwrap();
    let status = output.status;
    Result {
        stdout: String::from_utf8(output.stdout).unwrap(),
        code: status
            .code()
            .or_else(|| Some(128 + status.signal()?))
            .unwrap(),
        files: files(directory),
    }
}

/// Two stages of one pipeline that touch the same file: what is left of it is chance in any shell.
fn races_with_itself(line: &str) -> bool {
    let pipelines = line.replace("||", "\n").replace("&&", "\n");
    let mut pipelines = pipelines.split(['\n', ';']);
    pipelines.any(|pipeline| pipeline.contains('|') && pipeline.matches("made").count() > 1)
}

#[test]
fn generated_lines_run_directly_as_they_run_in_bash() {
    if !has("bash") {
        return;
    }
    let mut numbers = Numbers(SEED);
    let mut codes = BTreeMap::new();
    for _ in 0..LINES {
        let line = line(&mut numbers);
        if races_with_itself(&line) {
            continue;
        }
        // `cat *.txt` needs the expansion that a planner does.
        let expanded = line.replace("*.txt", "one.txt two.txt");
        let scratch = TempDir::new().unwrap();
        let place = scratch.path().join("place");
        let mut results = [false, true].map(|direct| {
            let _ = fs::remove_dir_all(&place);
            fs::create_dir(&place).unwrap();
            fill(&place);
            if direct {
                directly(&expanded, &place)
            } else {
                by_bash(&line, &place)
            }
        });
        results.reverse();
        let [direct, bash] = results;
        assert_eq!(direct, bash, "{line}");
        *codes.entry(direct.code).or_insert(0) += 1;
    }
    // The lines are of many kinds.
    assert!(codes.len() >= 6, "{codes:?}");
}
