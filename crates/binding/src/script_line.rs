//! Reads the first line of a script as the kernel and `env` do.

use interlock_programs::inline::split_string::split;
use interlock_programs::names::program_name;

/// How often `env` inside `env` is followed.
const MAX_ENV_LEVELS: usize = 8;

/// The command that the kernel makes from the text after `#!`: the interpreter, the rest as one
/// argument, and the script. `Err` says what cannot be followed.
pub(super) fn command(line: &str, script: &str) -> Result<Vec<String>, String> {
    let line = line.trim_matches([' ', '\t']);
    let (program, rest) = match line.split_once([' ', '\t']) {
        Some((program, rest)) => (program, rest.trim_matches([' ', '\t'])),
        None => (line, ""),
    };
    if !program.starts_with('/') {
        return Err(format!("`#!{line}` does not name an absolute path"));
    }
    let mut argv = vec![program.to_owned()];
    argv.extend((!rest.is_empty()).then(|| rest.to_owned()));
    argv.push(script.to_owned());
    Ok(argv)
}

/// Whether the command goes through `env`.
pub(super) fn is_env(argv: &[String]) -> bool {
    argv.first().is_some_and(|name| program_name(name) == "env")
}

/// The command that `env` in a `#!` line starts. Only `-S` is followed, by splitting its text.
/// Options that change the environment or the directory must not be followed.
pub(super) fn behind_env(argv: &[String]) -> Result<Vec<String>, String> {
    let not_plain = || "options of `env` that are not followed".to_owned();
    let mut words: Vec<String> = argv.iter().skip(1).cloned().collect();
    for _ in 0..MAX_ENV_LEVELS {
        let first = words.first().ok_or_else(not_plain)?.clone();
        let (text, rest) = if let Some(text) = first.strip_prefix("--split-string=") {
            (text.to_owned(), 1)
        } else if first == "-S" || first == "--split-string" {
            (words.get(1).ok_or_else(not_plain)?.clone(), 2)
        } else if let Some(text) = first.strip_prefix("-S") {
            (text.to_owned(), 1)
        } else {
            let is_name = !first.is_empty()
                && !first.starts_with('-')
                && !first.contains(['=', '$', ' ', '\t']);
            return if is_name { Ok(words) } else { Err(not_plain()) };
        };
        let mut split = exact_words(&text).ok_or_else(not_plain)?;
        split.extend(words.drain(rest..));
        words = split;
    }
    Err(not_plain())
}

/// The words of `-S`, if every implementation of `env` splits them in the same way: no variables,
/// escapes or comments, and only paired quotes.
fn exact_words(text: &str) -> Option<Vec<String>> {
    if text.contains(['\\', '$', '#', '\n', '\r']) {
        return None;
    }
    let mut quote = None;
    for character in text
        .chars()
        .filter(|character| matches!(character, '"' | '\''))
    {
        quote = match quote {
            None => Some(character),
            Some(open) if open == character => None,
            open => open,
        };
    }
    quote.is_none().then(|| split(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, String> {
        let argv = command(line, "SCRIPT")?;
        if is_env(&argv) {
            behind_env(&argv)
        } else {
            Ok(argv)
        }
    }

    #[test]
    fn the_kernel_hands_on_one_argument_and_env_looks_a_name_up() {
        for (line, expected) in [
            ("/bin/sh", "/bin/sh|SCRIPT"),
            (" /bin/sh -e -u ", "/bin/sh|-e -u|SCRIPT"),
            ("/usr/bin/env python3", "python3|SCRIPT"),
            (
                "/usr/bin/env -S node --no-warnings",
                "node|--no-warnings|SCRIPT",
            ),
            ("/usr/bin/env -Snode", "node|SCRIPT"),
            ("/usr/bin/env --split-string=nice ./x", "nice|./x|SCRIPT"),
            ("/usr/bin/env -S nice ./x", "nice|./x|SCRIPT"),
            (
                "/usr/bin/env -S node '--title=a b'",
                "node|--title=a b|SCRIPT",
            ),
            ("/usr/bin/env -S -S node", "node|SCRIPT"),
        ] {
            assert_eq!(
                words(line).map(|words| words.join("|")).as_deref(),
                Ok(expected)
            );
        }
    }

    #[test]
    fn what_changes_more_than_the_program_is_not_followed() {
        for odd in [
            "",
            "sh",
            "/usr/bin/env -i sh",
            "/usr/bin/env python3 -u",
            "/usr/bin/env -S A=1 sh",
            "/usr/bin/env A=1",
            "/usr/bin/env -S -i sh",
            "/usr/bin/env -S -u A sh",
            "/usr/bin/env -S -C / sh",
            "/usr/bin/env -vS sh",
            "/usr/bin/env -S node ${X}",
            "/usr/bin/env -S node \\c",
            "/usr/bin/env -S node 'open",
            "/usr/bin/env -S sh # x",
        ] {
            assert!(words(odd).is_err(), "{odd}: {:?}", words(odd));
        }
    }
}
