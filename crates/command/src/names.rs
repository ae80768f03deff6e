//! What a program is called, whatever path and file ending it is written with.

/// Endings that Windows adds to the name of a program.
const EXECUTABLE_ENDINGS: [&str; 4] = [".exe", ".cmd", ".bat", ".com"];

/// The name by which tables know a program: the last path component (`/` and `\` both separate),
/// lower-case, without `.exe`, `.cmd`, `.bat` or `.com`.
///
/// For looking things up that may only tighten. It must not be used to decide which file runs:
/// `./rg` and `/usr/bin/rg` have the same program name.
pub fn program_name(token: &str) -> String {
    let last = token.rsplit('/').next().unwrap_or(token);
    let last = last.rsplit('\\').next().unwrap_or(last);
    let mut name = last.trim().to_lowercase();
    for ending in EXECUTABLE_ENDINGS {
        if let Some(stem) = name.strip_suffix(ending)
            && !stem.is_empty()
        {
            name.truncate(stem.len());
            break;
        }
    }
    name
}

/// The name without a trailing version: `python3.13` and `gcc-12` become `python` and `gcc`.
/// `None` if there is no version to remove, or nothing else.
pub(crate) fn without_version(name: &str) -> Option<&str> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if stem.len() == name.len() {
        return None;
    }
    let stem = stem.strip_suffix('-').unwrap_or(stem);
    (!stem.is_empty()).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_is_the_lower_case_basename_without_a_windows_ending() {
        for (token, name) in [
            ("rg", "rg"),
            ("/usr/bin/Rscript", "rscript"),
            ("C:\\Tools\\XARGS.EXE", "xargs"),
            ("npm.cmd", "npm"),
            ("python3.13", "python3.13"),
            (".exe", ".exe"),
            ("dir/", ""),
            ("", ""),
        ] {
            assert_eq!(program_name(token), name, "{token}");
        }
    }

    #[test]
    fn a_trailing_version_is_removed_with_its_dash() {
        assert_eq!(without_version("python3.13"), Some("python"));
        assert_eq!(without_version("gcc-12"), Some("gcc"));
        assert_eq!(without_version("guile"), None);
        assert_eq!(without_version("3.1"), None);
    }
}
