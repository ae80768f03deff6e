//! Programs that choose the names of the files that they write: in a target directory each file
//! keeps its name, so two arguments together name what is written.

/// What `cp`, `mv`, `ln` and `install` put where, what `tee` writes, and what `chmod` changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlacement<'a> {
    pub sources: Vec<&'a str>,
    /// The last operand, and each value that may belong to `-t`.
    pub targets: Vec<&'a str>,
    /// Whether directories are copied with their content, into directories that may already exist.
    pub is_recursive: bool,
    /// Whether a recursive copy includes what links in the sources lead to.
    pub follows_links: bool,
    /// Whether the target itself is written even if it is a directory, and not a name in it.
    pub is_onto_target: bool,
    /// Whether the sources are removed afterwards.
    pub moves: bool,
    /// Whether the mode makes the files programs.
    pub makes_programs: bool,
}

const PROGRAMS: [&str; 6] = ["chmod", "cp", "install", "ln", "mv", "tee"];

/// Reads the arguments generously: an option that may be `-t` or `-r` counts as one.
pub fn file_placement(argv: &[String]) -> Option<FilePlacement<'_>> {
    let name = argv.first()?.rsplit('/').next()?;
    if !PROGRAMS.contains(&name) {
        return None;
    }
    let words: Vec<&str> = argv[1..].iter().map(String::as_str).collect();
    let end = words.iter().position(|word| *word == "--");
    let (front, rest) = words.split_at(end.unwrap_or(words.len()));
    let (options, operands): (Vec<&str>, Vec<&str>) = front
        .iter()
        .partition(|word| word.len() > 1 && word.starts_with('-'));
    let mut sources = operands;
    sources.extend(rest.iter().skip(1));
    let mut targets: Vec<&str> = Vec::new();
    let mut expects_target = false;
    for word in front {
        if expects_target {
            targets.push(word);
        }
        expects_target = false;
        if let Some((option, value)) = word.split_once('=')
            && is_long(option, "--target-directory")
        {
            targets.push(value);
        } else if is_long(word, "--target-directory") {
            expects_target = true;
        } else if let Some((_, value)) = cluster(word).and_then(|letters| letters.split_once('t')) {
            expects_target = value.is_empty();
            targets.extend(Some(value).filter(|value| !value.is_empty()));
        }
    }
    if name == "chmod" {
        // The first operand is the mode.
        targets.extend(sources.drain(..).skip(1));
    } else if name == "tee" {
        targets.append(&mut sources);
    } else if targets.is_empty() {
        targets.extend(sources.pop());
    }
    let has = |letters: &[char], long: &[&str]| {
        options.iter().any(|option| {
            cluster(option).is_some_and(|cluster| cluster.contains(letters))
                || long.iter().any(|long| is_long(option, long))
        })
    };
    Some(FilePlacement {
        sources,
        targets,
        is_recursive: name == "cp" && has(&['r', 'R', 'a'], &["--recursive", "--archive"]),
        follows_links: name == "cp" && has(&['L', 'H'], &["--dereference"]),
        is_onto_target: has(&['T'], &["--no-target-directory"]),
        moves: name == "mv",
        makes_programs: name == "chmod",
    })
}

/// Returns the letters of a word of short options.
fn cluster(word: &str) -> Option<&str> {
    word.strip_prefix('-')
        .filter(|letters| !letters.starts_with('-'))
}

/// Whether a word is a long option or an abbreviation of it.
fn is_long(word: &str, option: &str) -> bool {
    word.len() > 2 && option.starts_with(word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(line: &str) -> (Vec<String>, Vec<String>) {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let placement = file_placement(&argv).unwrap();
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        (owned(&placement.sources), owned(&placement.targets))
    }

    #[test]
    fn sources_and_targets_are_found_in_every_form() {
        let lists = |sources: &[&str], targets: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            (owned(sources), owned(targets))
        };
        for (line, sources, targets) in [
            ("cp a b", vec!["a"], vec!["b"]),
            ("cp -r a b d", vec!["a", "b"], vec!["d"]),
            ("/bin/mv -- -a d", vec!["-a"], vec!["d"]),
            ("cp -t d a", vec!["d", "a"], vec!["d"]),
            ("cp -rtd a b", vec!["a", "b"], vec!["d"]),
            ("cp a --target-directory=d", vec!["a"], vec!["d"]),
            ("cp a --targ d", vec!["a", "d"], vec!["d"]),
            ("chmod +x a b", vec![], vec!["a", "b"]),
            ("tee -a x y", vec![], vec!["x", "y"]),
        ] {
            assert_eq!(read(line), lists(&sources, &targets), "{line}");
        }
        assert_eq!(file_placement(&["cat".to_owned(), "a".to_owned()]), None);
    }
}
