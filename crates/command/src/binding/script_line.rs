//! The first line of a script, read as the kernel and `env` read it.

use crate::inline::split_string::split;
use crate::names::program_name;

/// What runs a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptLine {
    /// A path, or a name that `env` looks up in PATH.
    pub program: String,
    /// In front of the script.
    pub arguments: Vec<String>,
    pub through_env: Option<String>,
}

/// Reads what stands behind `#!`. The kernel hands everything behind the interpreter on as one
/// argument. `Err` says what cannot be followed.
pub(super) fn read(line: &str) -> Result<ScriptLine, String> {
    let line = line.trim_matches([' ', '\t']);
    let (program, rest) = match line.split_once([' ', '\t']) {
        Some((program, rest)) => (program, rest.trim_matches([' ', '\t'])),
        None => (line, ""),
    };
    if !program.starts_with('/') {
        return Err(format!("`#!{line}` does not name an absolute path"));
    }
    if program_name(program) != "env" {
        return Ok(ScriptLine {
            program: program.to_owned(),
            arguments: (!rest.is_empty())
                .then(|| rest.to_owned())
                .into_iter()
                .collect(),
            through_env: None,
        });
    }
    let not_plain = || format!("`#!{line}`: options of `env` that are not followed");
    let words = match rest.strip_prefix("-S") {
        Some(text) => split(text.trim_start_matches([' ', '\t'])),
        // Without `-S` it is one word, blanks included.
        None => vec![rest.to_owned()],
    };
    let mut words = words.into_iter();
    let name = words.next().unwrap_or_default();
    let is_name = !name.is_empty()
        && !name.starts_with('-')
        && !name.contains(['=', '$', ' ', '\t'])
        && (name.starts_with('/') || !name.contains('/'));
    if !is_name {
        return Err(not_plain());
    }
    let arguments: Vec<String> = words.collect();
    if arguments.iter().any(|word| word.contains("${")) {
        return Err(not_plain());
    }
    Ok(ScriptLine {
        program: name,
        arguments,
        through_env: Some(program.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_hands_on_one_argument_and_env_looks_a_name_up() {
        let read = |line| {
            let line = read(line).ok()?;
            let env = line.through_env.is_some();
            Some((line.program, line.arguments.join("|"), env))
        };
        let line = |program: &str, arguments: &str, env| {
            Some((program.to_owned(), arguments.to_owned(), env))
        };
        assert_eq!(read("/bin/sh"), line("/bin/sh", "", false));
        assert_eq!(read(" /bin/sh -e -u "), line("/bin/sh", "-e -u", false));
        assert_eq!(read("/usr/bin/env python3"), line("python3", "", true));
        assert_eq!(
            read("/usr/bin/env -S node --no-warnings"),
            line("node", "--no-warnings", true)
        );
        for odd in [
            "",
            "sh",
            "/usr/bin/env",
            "/usr/bin/env -i sh",
            "/usr/bin/env python3 -u",
            "/usr/bin/env -S A=1 sh",
            "/usr/bin/env ./tool",
            "/usr/bin/env -S node ${X}",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
