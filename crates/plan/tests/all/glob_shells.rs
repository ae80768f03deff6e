//! Thousands of random patterns over random trees: do bash and dash say the same?

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{Scratch, glob, set_mode};
use interlock_plan::FsResolver;
use interlock_programs::{GlobBudget, Resolver};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TREES: u64 = 40;
const PATTERNS_PER_TREE: usize = 100;

/// What a shell is compared on.
struct Shell {
    program: &'static str,
    locale: &'static str,
    /// Before the patterns, so that one without a match vanishes; dash keeps it instead.
    setup: &'static str,
    /// Characters of file names.
    alphabet: &'static [char],
    /// Whether `.*` leaves out `.` and `..`, and slashes after a wildcard are reduced to one.
    is_bash: bool,
}

const SHELLS: [Shell; 3] = [
    Shell {
        program: "bash",
        locale: "C",
        setup: "shopt -s nullglob\n",
        alphabet: &[
            'a', 'b', 'c', 'B', '.', '-', ' ', '*', '?', '[', ']', '\\', '\'', '\n', '!', '~',
        ],
        is_bash: true,
    },
    // In the C locale a character is a byte; here it is a character, as with us.
    Shell {
        program: "bash",
        locale: "C.UTF-8",
        setup: "shopt -s nullglob\n",
        alphabet: &['a', 'b', '.', 'é', 'ß', '🦀'],
        is_bash: true,
    },
    Shell {
        program: "dash",
        locale: "C",
        setup: "",
        alphabet: &['a', 'b', 'c', 'B', '.', '-'],
        is_bash: false,
    },
];

#[test]
fn the_same_holds_for_an_ordinary_user() {
    crate::support::run_again_as_ordinary_user(
        module_path!(),
        "the_same_holds_for_an_ordinary_user",
    );
}

#[test]
fn bash_expands_alike() {
    compare(&SHELLS[0]);
}

#[test]
fn bash_expands_characters_beyond_ascii_alike() {
    compare(&SHELLS[1]);
}

#[test]
fn dash_expands_alike() {
    compare(&SHELLS[2]);
}

fn compare(shell: &Shell) {
    let version = Command::new(shell.program)
        .args(["-c", "echo $BASH_VERSION"])
        .output();
    let Ok(version) = version else {
        eprintln!("skipped: there is no {}", shell.program);
        return;
    };
    // Before 5.2, bash let `.*` stand for `.` and `..`.
    let version = String::from_utf8(version.stdout).unwrap();
    let skips_dots = shell.is_bash && version_number(&version) >= (5, 2);
    let resolver = FsResolver::new([], None);
    let mut with_results = 0;
    for seed in 1..=TREES {
        let mut random = Random::new(seed);
        let scratch = Scratch::new();
        // Deeper than any pattern climbs: what others do beside it must not show.
        let root = scratch.directory("up/up/up/up/up");
        let names = grow_tree(&mut random, Path::new(&root), shell.alphabet);
        let patterns: Vec<String> = (0..PATTERNS_PER_TREE)
            .map(|_| random.pattern(shell, &names, &root, skips_dots))
            .collect();
        let expected = expand_by_shell(shell, &patterns, Path::new(&root));
        for (pattern, expected) in patterns.iter().zip(expected) {
            let ours = resolver
                .glob(&glob(pattern), &root, &mut GlobBudget::default())
                .unwrap();
            assert_eq!(
                ours, expected,
                "{} and we differ on {pattern:?} (seed {seed})\n{names:#?}",
                shell.program
            );
            with_results += usize::from(!ours.is_empty());
        }
    }
    // A comparison of nothing with nothing would prove little.
    let total = usize::try_from(TREES).unwrap() * PATTERNS_PER_TREE;
    assert!(with_results * 5 > total, "{with_results} of {total}");
}

fn version_number(text: &str) -> (u32, u32) {
    let mut numbers = text.trim().split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// All patterns in one process. Each gives the number of its words, then the words.
fn expand_by_shell(shell: &Shell, patterns: &[String], cwd: &Path) -> Vec<Vec<String>> {
    let mut script = shell.setup.to_owned();
    for pattern in patterns {
        script.push_str("set -- ");
        script.push_str(pattern);
        script.push_str("\nprintf '%s\\0' \"$#\" \"$@\"\n");
    }
    let output = Command::new(shell.program)
        .args(["-c", &script])
        .env("LC_ALL", shell.locale)
        .current_dir(cwd)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_terminator('\0').map(str::to_owned);
    let results = patterns
        .iter()
        .map(|pattern| {
            let count = words.next().unwrap().parse().unwrap();
            let words: Vec<String> = words.by_ref().take(count).collect();
            // No file name for dash needs a backslash or holds a wildcard.
            let is_itself = !shell.is_bash && words == [pattern.as_str()];
            if is_itself { Vec::new() } else { words }
        })
        .collect();
    assert_eq!(words.next(), None);
    results
}

/// Files, directories, links to all of them and to nothing, directories with few permissions.
/// Gives the names that occur.
fn grow_tree(random: &mut Random, root: &Path, alphabet: &[char]) -> Vec<String> {
    let mut names = Vec::new();
    let mut directories = vec![root.to_owned()];
    for _ in 0..30 {
        let name = random.name(alphabet);
        let parent: &PathBuf = random.choose(&directories);
        let path = parent.join(&name);
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        match random.below(10) {
            0..4 => fs::write(&path, b"").unwrap(),
            4..8 => {
                fs::create_dir(&path).unwrap();
                directories.push(path);
            }
            8 => {
                let target: &PathBuf = random.choose(&directories);
                std::os::unix::fs::symlink(target, &path).unwrap();
            }
            _ => {
                let target = random.name(alphabet);
                std::os::unix::fs::symlink(target, &path).unwrap();
            }
        }
        names.push(name);
    }
    // Children first: afterwards their parent may be closed.
    for directory in directories[1..].iter().rev() {
        if random.below(5) == 0 {
            set_mode(directory, *random.choose(&[0o000, 0o111, 0o444]));
        }
    }
    names
}

/// A small generator, so that a seed gives the same cases on every machine (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 16) % bound as u64).unwrap()
    }

    fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn name(&mut self, alphabet: &[char]) -> String {
        loop {
            let length = 1 + self.below(3);
            let name: String = (0..length).map(|_| *self.choose(alphabet)).collect();
            if name != "." && name != ".." {
                return name;
            }
        }
    }

    /// A pattern with a wildcard, as shell text that [`glob`] reads alike.
    fn pattern(&mut self, shell: &Shell, names: &[String], root: &str, skips_dots: bool) -> String {
        loop {
            let mut text = match self.below(8) {
                0 => "./".to_owned(),
                1 => ".//".to_owned(),
                2 => format!("{root}/"),
                3 => format!("{root}//./"),
                _ => String::new(),
            };
            let mut has_wildcard = false;
            for index in 0..=self.below(4) {
                if index > 0 {
                    let twice = self.below(10) == 0 && (shell.is_bash || !has_wildcard);
                    text.push_str(if twice { "//" } else { "/" });
                }
                let component = self.component(shell, names);
                let is_wild = component.contains(['*', '?', '[']) && !is_literal(&component);
                // Dash, and bash before 5.2, list `.` and `..` for these.
                if is_wild && component.starts_with('.') && !skips_dots {
                    text.push('*');
                } else {
                    text.push_str(&component);
                }
                has_wildcard |= is_wild;
            }
            if self.below(6) == 0 {
                text.push('/');
            }
            if has_wildcard {
                return text;
            }
        }
    }

    fn component(&mut self, shell: &Shell, names: &[String]) -> String {
        let name = self.choose(names).clone();
        if name.contains('\n') {
            // A newline cannot be escaped by a backslash.
            return "*".to_owned();
        }
        match self.below(12) {
            0 => "*".to_owned(),
            1 => ".".to_owned(),
            2 => "..".to_owned(),
            3 => escape(&name),
            4 => "[!.]*".to_owned(),
            5 => ".*".to_owned(),
            _ => name
                .chars()
                .map(|character| self.generalise(character, shell))
                .collect(),
        }
    }

    /// Something that may well match this character of an existing name.
    fn generalise(&mut self, character: char, shell: &Shell) -> String {
        let literal = escape(&character.to_string());
        match self.below(10) {
            0 => "*".to_owned(),
            1 => format!("{literal}*"),
            2 => format!("*{literal}"),
            3 => "?".to_owned(),
            4 => "**".to_owned(),
            5 if character.is_alphanumeric() => format!("[{character}]"),
            5 => "[a-c]".to_owned(),
            6 => "[!b]".to_owned(),
            7 => "[!a-b.]".to_owned(),
            8 => escape(&self.choose(shell.alphabet).to_string().replace('\n', "a")),
            _ => literal,
        }
    }
}

fn is_literal(component: &str) -> bool {
    let mut characters = component.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '*' | '?' | '[' => return false,
            _ => {}
        }
    }
    true
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii() && !character.is_ascii_alphanumeric() && !"./-_".contains(character)
        {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
