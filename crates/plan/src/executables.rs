//! The files that the kernel executes besides a program itself: the interpreter in the first line
//! of a script, and the loader that a native program names.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;

use interlock_programs::{Lookup, Resolver};

use crate::elf;

/// The kernel reads this much of a first line.
const FIRST_LINE: usize = 256;

/// The depth of scripts with script interpreters. The kernel follows fewer.
const MAX_DEPTH: usize = 8;

/// These files and everything that the kernel executes with them, as canonical paths. The resolver
/// looks up the name in a first line with `env NAME`.
pub fn executable_closure(
    programs: impl IntoIterator<Item = String>,
    resolver: &impl Resolver,
) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for program in programs {
        add(&program, resolver, &mut all, MAX_DEPTH);
    }
    all
}

fn add(program: &str, resolver: &impl Resolver, all: &mut BTreeSet<String>, depth: usize) {
    let Ok(canonical) = std::fs::canonicalize(program) else {
        return;
    };
    let Some(canonical) = canonical.to_str().map(str::to_owned) else {
        return;
    };
    if !all.insert(canonical.clone()) || depth == 0 {
        return;
    }
    let Ok(file) = File::open(&canonical) else {
        return;
    };
    let next: Vec<String> = match first_line(&file) {
        Some(line) => named_by(&line, resolver),
        None => {
            let facts = elf::read(&file).ok();
            facts
                .and_then(|facts| facts.interpreter)
                .into_iter()
                .collect()
        }
    };
    for program in next {
        add(&program, resolver, all, depth - 1);
    }
}

/// The text after `#!`.
fn first_line(file: &File) -> Option<String> {
    let mut head = Vec::new();
    file.take(FIRST_LINE as u64).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Some(String::from_utf8_lossy(line).trim().to_owned())
}

/// The interpreter of a first line. If it is `env`, also the program that `env` starts.
fn named_by(line: &str, resolver: &impl Resolver) -> Vec<String> {
    let mut words = line.split_ascii_whitespace();
    let Some(interpreter) = words.next() else {
        return Vec::new();
    };
    let mut named = vec![interpreter.to_owned()];
    if interpreter.ends_with("/env") {
        let is_option = |word: &&str| word.starts_with('-') || word.contains('=');
        if let Some(name) = words.find(|word| !is_option(word))
            && let Lookup::Found(found) = resolver.executable(name, "/")
        {
            named.push(found.canonical);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsResolver;

    #[test]
    fn scripts_bring_their_interpreters_and_programs_their_loader() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let script = root.join("script");
        std::fs::write(&script, "#!/usr/bin/env -S sh -e\nexit 0\n").unwrap();
        let resolver = FsResolver::from_path_value("/bin:/usr/bin", None);
        let script = script.to_str().unwrap().to_owned();
        let all = executable_closure([script.clone(), "/nowhere".to_owned()], &resolver);
        let real = |path: &str| std::fs::canonicalize(path).unwrap().display().to_string();
        for expected in [script, real("/usr/bin/env"), real("/bin/sh")] {
            assert!(all.contains(&expected), "{expected}: {all:?}");
        }
        let is_loader = |path: &String| path.contains("ld-");
        assert!(all.iter().any(is_loader), "{all:?}");
        assert!(!all.contains("/nowhere"));
    }
}
