//! What a shell makes of a tilde or a glob, from our tokens and the real directory.

use std::path::Path;

use interlock_command::Word;
use interlock_programs::GlobToken;

/// How a shell reads file names, as far as shells and locales differ.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// `?` stands for a byte, not for a character (dash; every shell in the C locale).
    pub bytes: bool,
    /// `.*` matches `.` and `..` too (dash; bash before 5.2).
    pub dot_entries: bool,
}

/// The words that `word` expands to; the word itself when a glob matches nothing.
pub fn expand(word: &Word, directory: &Path, home: &str, reading: Reading) -> Vec<String> {
    let prefix = if word.tilde { home } else { "" };
    let text = &word.text[usize::from(word.tilde)..];
    let paths = word.glob.as_ref().map_or_else(Vec::new, |glob| {
        paths(&glob.tokens, prefix, directory, reading)
    });
    if paths.is_empty() {
        vec![format!("{prefix}{text}")]
    } else {
        paths
    }
}

fn paths(tokens: &[GlobToken], prefix: &str, directory: &Path, reading: Reading) -> Vec<String> {
    let is_slash = |token: &GlobToken| *token == GlobToken::Literal('/');
    let mut found = vec![prefix.to_owned()];
    for component in tokens.split_inclusive(is_slash) {
        let (name, slash) = match component.split_last() {
            Some((last, name)) if is_slash(last) => (name, "/"),
            _ => (component, ""),
        };
        found = found
            .iter()
            .flat_map(|path| {
                names(name, &directory.join(path), reading)
                    .into_iter()
                    .map(move |name| format!("{path}{name}{slash}"))
            })
            .collect();
    }
    found.retain(|path| directory.join(path).symlink_metadata().is_ok());
    found.sort();
    found
}

/// The entries of a directory that one component matches; a component without a glob stands
/// for itself, whether it exists or not.
fn names(component: &[GlobToken], directory: &Path, reading: Reading) -> Vec<String> {
    let literal: Option<String> = component
        .iter()
        .map(|token| match token {
            GlobToken::Literal(character) => Some(*character),
            _ => None,
        })
        .collect();
    if let Some(literal) = literal {
        return vec![literal];
    }
    let Ok(entries) = directory.read_dir() else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a readable fixture").file_name())
        .map(|name| name.into_string().expect("fixtures have UTF-8 names"))
        .collect();
    if reading.dot_entries {
        names.extend([".".to_owned(), "..".to_owned()]);
    }
    let pattern = units(component, reading);
    let takes_dot = component.first() == Some(&GlobToken::Literal('.'));
    names.retain(|name| {
        (takes_dot || !name.starts_with('.')) && matches(&pattern, &split(name, reading))
    });
    names
}

fn split(name: &str, reading: Reading) -> Vec<char> {
    if reading.bytes {
        name.bytes().map(char::from).collect()
    } else {
        name.chars().collect()
    }
}

/// The tokens with literals in the units that names are split into.
fn units(tokens: &[GlobToken], reading: Reading) -> Vec<GlobToken> {
    tokens
        .iter()
        .flat_map(|token| match token {
            GlobToken::Literal(character) => split(&character.to_string(), reading)
                .into_iter()
                .map(GlobToken::Literal)
                .collect(),
            other => vec![other.clone()],
        })
        .collect()
}

fn matches(pattern: &[GlobToken], name: &[char]) -> bool {
    let Some((token, rest)) = pattern.split_first() else {
        return name.is_empty();
    };
    if *token == GlobToken::Star {
        return (0..=name.len()).any(|taken| matches(rest, &name[taken..]));
    }
    let Some((&first, remaining)) = name.split_first() else {
        return false;
    };
    let fits = match token {
        GlobToken::Literal(character) => *character == first,
        GlobToken::Set { negated, ranges } => {
            let inside = ranges
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&first));
            inside != *negated
        }
        GlobToken::Any | GlobToken::Star => true,
    };
    fits && matches(rest, remaining)
}
