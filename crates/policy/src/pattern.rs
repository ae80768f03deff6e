//! Path patterns: `*` and `?` stay within one component, `**` crosses components. No other
//! character is special: a bracket or brace in a path stands for itself.

use std::sync::OnceLock;

use globset::{Glob, GlobBuilder, GlobMatcher};

/// No path is longer on Linux (`PATH_MAX`), so no longer pattern matches one.
pub(crate) const MAX_PATTERN_BYTES: usize = 4096;

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern holds a NUL character")]
    Nul,
    #[error("`~` stands only at the start, for the home directory; write the whole path instead")]
    Tilde,
    #[error("the pattern is not absolute: begin it with `/`, `~/` or `**/`")]
    Relative,
    #[error("the pattern has {0} bytes; no path has more than {MAX_PATTERN_BYTES}")]
    TooLong(usize),
    #[error("{0}")]
    Glob(String),
}

/// Whether the pattern is for paths. A pattern that begins with `=command:` is not.
pub fn is_path_pattern(pattern: &str) -> bool {
    pattern.contains('/') || pattern.starts_with('~')
}

pub(crate) fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// Checks the form of a pattern, without knowing the home directory.
pub(crate) fn check_path(pattern: &str) -> Result<(), PatternError> {
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    if pattern.contains('\0') {
        return Err(PatternError::Nul);
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(PatternError::TooLong(pattern.len()));
    }
    if pattern.starts_with('~') && pattern != "~" && !pattern.starts_with("~/") {
        return Err(PatternError::Tilde);
    }
    if !pattern.starts_with(['/', '~']) && !pattern.starts_with("**/") {
        return Err(PatternError::Relative);
    }
    Ok(())
}

/// Replaces a leading `~` by the home directory. Returns `None` if the home directory is not known.
pub(crate) fn expand_home(pattern: &str, home: Option<&str>) -> Option<String> {
    match pattern.strip_prefix('~') {
        Some(rest) => home.map(|home| format!("{}{rest}", home.trim_end_matches('/'))),
        None => Some(pattern.to_owned()),
    }
}

/// A checked pattern that is compiled when it is first matched, because most never are.
#[derive(Debug)]
pub(crate) struct LazyGlob {
    glob: Glob,
    matcher: OnceLock<GlobMatcher>,
}

impl LazyGlob {
    pub(crate) fn new(pattern: &str) -> Result<Self, PatternError> {
        Ok(Self {
            glob: parse(pattern)?,
            matcher: OnceLock::new(),
        })
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.matcher
            .get_or_init(|| self.glob.compile_matcher())
            .is_match(text)
    }
}

/// Compiles a pattern whose only special characters are `*` and `?`.
pub(crate) fn compile(pattern: &str) -> Result<GlobMatcher, PatternError> {
    parse(pattern).map(|glob| glob.compile_matcher())
}

pub(crate) fn parse(pattern: &str) -> Result<Glob, PatternError> {
    let mut escaped = String::with_capacity(pattern.len() + 8);
    for character in pattern.chars() {
        if matches!(character, '[' | ']' | '{' | '}' | '\\' | '!' | ',') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    GlobBuilder::new(&escaped)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| PatternError::Glob(error.kind().to_string()))
}

/// Whether a path pattern matches a path. The path is normalized as text first.
pub fn path_matches(pattern: &str, path: &str, home: Option<&str>) -> bool {
    if check_path(pattern).is_err() {
        return false;
    }
    let path = interlock_programs::join("/", path);
    expand_home(pattern, home)
        .and_then(|pattern| compile(&pattern).ok())
        .is_some_and(|glob| glob.is_match(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_a_component_and_double_stars_cross() {
        for (pattern, path, expected) in [
            ("/usr/bin/*", "/usr/bin/rg", true),
            ("/usr/bin/*", "/usr/bin/sub/rg", false),
            ("/usr/**", "/usr/bin/sub/rg", true),
            ("**/git", "/usr/bin/git", true),
            ("**/git", "/usr/bin/agit", false),
            ("~/Projects/**/bin/rg", "/home/u/Projects/a/b/bin/rg", true),
            ("/opt/tools/**", "/opt/tools/sub/../../escape", false),
            ("/tmp/a?b", "/tmp/acb", true),
            ("/tmp/a?b", "/tmp/a/b", false),
            ("/tmp/[ab]", "/tmp/a", false),
            ("/tmp/[ab]", "/tmp/[ab]", true),
            ("/tmp/{a,b}", "/tmp/a", false),
            ("/tmp/{a,b}", "/tmp/{a,b}", true),
            ("/tmp/x", "/TMP/x", false),
            ("", "/tmp/x", false),
            ("bin/rg", "/bin/rg", false),
        ] {
            assert_eq!(
                path_matches(pattern, path, Some("/home/u")),
                expected,
                "{pattern} {path}"
            );
        }
        assert!(!path_matches("~/x", "/x", None));
    }
}
