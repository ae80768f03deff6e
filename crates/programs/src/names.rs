//! The name of a program, independent of its path and file ending.

use std::borrow::Cow;

/// Endings of program names on Windows.
const EXECUTABLE_ENDINGS: [&str; 4] = [".exe", ".cmd", ".bat", ".com"];

/// The longest name of a file that the kernel can start, so no table has a longer name.
const MAX_NAME_BYTES: usize = 255;

/// Returns the name by which tables know a program: the last path component (`/` and `\` both
/// separate), in lower case, without `.exe`, `.cmd`, `.bat` or `.com`. A name that is too long for
/// a file stays as written.
///
/// Use it only for lookups that tighten. It must not decide which file runs: `./rg` and
/// `/usr/bin/rg` have the same program name.
pub fn program_name(token: &str) -> Cow<'_, str> {
    // Only the end of a long token is searched. If the separator is further away, the name is too
    // long.
    let tail = token.ceil_char_boundary(token.len().saturating_sub(MAX_NAME_BYTES + 1));
    let separator = token.as_bytes()[tail..]
        .iter()
        .rposition(|byte| matches!(byte, b'/' | b'\\'));
    let last = match separator {
        Some(at) => token[tail + at + 1..].trim(),
        None if tail == 0 => token.trim(),
        None => return Cow::Borrowed(token),
    };
    if last
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    {
        return Cow::Borrowed(without_ending(last));
    }
    let lower = last.to_lowercase();
    let stem = without_ending(&lower).len();
    Cow::Owned(lower[..stem].to_owned())
}

fn without_ending(name: &str) -> &str {
    EXECUTABLE_ENDINGS
        .into_iter()
        .filter_map(|ending| name.strip_suffix(ending))
        .find(|stem| !stem.is_empty())
        .unwrap_or(name)
}

/// Returns the name without a trailing version: `python3.13` and `gcc-12` become `python` and
/// `gcc`. Returns `None` if there is no version to remove, or if nothing else remains.
pub fn without_version(name: &str) -> Option<&str> {
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
            (&format!("/{}/RM", "a".repeat(300)), "rm"),
            (&format!("/bin/{}", "A".repeat(255)), &"a".repeat(255)),
            (&"A".repeat(300), &"A".repeat(300)),
            (&"é".repeat(300), &"é".repeat(300)),
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
