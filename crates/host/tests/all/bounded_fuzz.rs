//! The fuzz targets over their seeds and over mutations of them: the same for everyone, in a few
//! seconds, without a fuzzer. `INTERLOCK_FUZZ_RUNS` asks for more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Of all targets together.
const DEFAULT_RUNS: usize = 20_000;
const MAX_BYTES: usize = 4096;

/// Bytes that turn one kind of thing into another, for shells, JSON5, regular expressions and patches.
#[rustfmt::skip]
const TOKENS: &[&str] = &[
    "'", "\"", "\\", "`", "$(", ")", "((", "))", "${", "}", "{", "[", "]", "[[ ", " ]]", "|", "||", "&&",
    ";", ";;", "&", "\n", "<<E\n", "\nE\n", "<(", ">", "2>&1", "#", "*", "?", "~", "=", "a[", " ", "\t",
    "\0", "\r", "é", "\u{200b}", "\u{2028}", "\u{ff}", "case x in a) ", "esac", "if ", "; then ", "; fi",
    "for x in ", "; do ", "; done", "eval '", "sudo -x ", "env -S '", "sh -c '", "rm ", "-exec ", "//",
    "/*", "*/", ",", ":", "null", "1e9", "0x", "\\u0041", "(?i)", "{1,9}", "\\p{", "(?P<a>", "+", "^",
    "\n@@\n", "\n*** End of File\n", "\n*** Update File: ", "\n*** Move to: ", "\n+", "\n-", "\n ",
];

#[test]
fn the_targets_hold_over_seeds_and_their_mutations() {
    let runs = std::env::var("INTERLOCK_FUZZ_RUNS");
    let runs = runs.map_or(DEFAULT_RUNS, |runs| runs.parse().unwrap());
    for (name, target) in targets::TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in &seeds {
            check(name, *target, seed);
        }
        let state = name
            .bytes()
            .fold(1, |state, byte| state * 31 + u64::from(byte));
        let mut mutator = Mutator(state);
        for _ in 0..runs / targets::TARGETS.len() {
            check(name, *target, &mutator.mutation(&seeds));
        }
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let entries = fs::read_dir(root.join(target)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Says which bytes broke it: they can be put into a file under `fuzz/seeds`.
fn check(name: &str, target: targets::Target, data: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(data))) {
        eprintln!("{name} fails on {:?}", String::from_utf8_lossy(data));
        std::panic::resume_unwind(panic);
    }
}

/// Xorshift: small, and the same everywhere.
struct Mutator(u64);

impl Mutator {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn mutation(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut data = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(8) {
            let at = self.below(data.len() + 1);
            let end = (at + 1 + self.below(16)).min(data.len());
            match self.below(7) {
                0 => insert(&mut data, at, TOKENS[self.below(TOKENS.len())].as_bytes()),
                1 => drop(data.drain(at..end)),
                2 => {
                    let part = data[at..end].to_vec();
                    let to = self.below(data.len() + 1);
                    insert(&mut data, to, &part);
                }
                3 => {
                    let part = data[at..end].to_vec();
                    let times = 1 << self.below(6);
                    insert(&mut data, at, &part.repeat(times));
                }
                4 => {
                    let other = &seeds[self.below(seeds.len())];
                    let from = self.below(other.len() + 1);
                    data.truncate(at);
                    data.extend_from_slice(&other[from..]);
                }
                5 => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    let times = 1 << self.below(8);
                    insert(&mut data, at, token.repeat(times).as_bytes());
                }
                _ => {
                    if let Some(byte) = data.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
            data.truncate(MAX_BYTES);
        }
        data
    }
}

fn insert(data: &mut Vec<u8>, at: usize, part: &[u8]) {
    data.splice(at..at, part.iter().copied());
}
