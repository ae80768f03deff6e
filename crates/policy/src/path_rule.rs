//! The patterns of an entry's `paths`, as they apply to one call.

use globset::GlobMatcher;

use crate::pattern::{self, PatternError};

/// The variable that stands for the workspace of the call, at the start of a pattern.
pub(crate) const WORKSPACE: &str = "${workspace}";

/// Why the `paths` of an entry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathRuleError {
    #[error(
        "the list is empty, so that no file could be named; leave the field out to allow every file"
    )]
    Empty,
    #[error("`{0}`: `{WORKSPACE}` stands only at the start, alone or in front of a `/`")]
    Variable(String),
    #[error("`{0}`: {1}")]
    Pattern(String, PatternError),
    #[error("an exact command has no arguments to look at")]
    ExactCommand,
}

/// Checks the form of the patterns, without knowing the workspace or the home directory.
pub(crate) fn check(patterns: &[String]) -> Result<(), PathRuleError> {
    if patterns.is_empty() {
        return Err(PathRuleError::Empty);
    }
    for text in patterns {
        let wrong = |error| PathRuleError::Pattern(text.clone(), error);
        let rest = match text.strip_prefix(WORKSPACE) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            Some(_) => return Err(PathRuleError::Variable(text.clone())),
            None => {
                pattern::check_path(text).map_err(wrong)?;
                text
            }
        };
        if rest.contains("${") {
            return Err(PathRuleError::Variable(text.clone()));
        }
        if rest.contains('\0') {
            return Err(wrong(PatternError::Nul));
        }
        pattern::parse(rest).map_err(wrong)?;
    }
    Ok(())
}

/// The patterns of an entry, ready for one call.
#[derive(Debug)]
pub(crate) struct PathRules {
    rules: Vec<PathRule>,
}

#[derive(Debug)]
struct PathRule {
    /// The literal beginning of the path, because a workspace may have any name.
    root: String,
    rest: PathRest,
}

#[derive(Debug)]
enum PathRest {
    /// The root and everything beneath it.
    Everything,
    /// A pattern for the rest of the path after the root.
    Glob(GlobMatcher),
}

impl PathRules {
    /// Prepares the patterns. A pattern with an unknown workspace or home directory matches
    /// nothing. A workspace may have several directories.
    pub(crate) fn new(patterns: &[String], workspace: &[String], home: Option<&str>) -> Self {
        let mut rules = Vec::new();
        for text in patterns {
            if text.starts_with(WORKSPACE) {
                let directories = workspace.iter();
                rules.extend(directories.filter_map(|one| PathRule::new(text, Some(one), home)));
            } else {
                rules.extend(PathRule::new(text, None, home));
            }
        }
        Self { rules }
    }

    /// Whether a canonical path is beneath one of the patterns.
    pub(crate) fn cover(&self, canonical: &str) -> bool {
        self.rules.iter().any(|rule| rule.covers(canonical))
    }
}

impl PathRule {
    fn new(text: &str, workspace: Option<&str>, home: Option<&str>) -> Option<Self> {
        let (root, rest) = if let Some(rest) = text.strip_prefix(WORKSPACE) {
            (workspace?, rest)
        } else if let Some(rest) = text.strip_prefix('~') {
            (home?, rest)
        } else {
            ("", text)
        };
        let root = root.trim_end_matches('/').to_owned();
        if let Some(literal) = rest.strip_suffix("/**")
            && !pattern::has_wildcard(literal)
        {
            return Some(Self {
                root: format!("{root}{literal}"),
                rest: PathRest::Everything,
            });
        }
        let glob = pattern::compile(rest).ok()?;
        Some(Self {
            root,
            rest: PathRest::Glob(glob),
        })
    }

    fn covers(&self, canonical: &str) -> bool {
        let Some(rest) = canonical.strip_prefix(self.root.as_str()) else {
            return false;
        };
        match &self.rest {
            PathRest::Everything => rest.is_empty() || rest.starts_with('/'),
            PathRest::Glob(glob) => {
                (rest.is_empty() || rest.starts_with('/')) && glob.is_match(rest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_workspace_is_taken_literally() {
        let rules = |pattern: &str, workspace: &str| {
            let workspace = ["/elsewhere".to_owned(), workspace.to_owned()];
            PathRules::new(&[pattern.to_owned()], &workspace, Some("/home/u"))
        };
        for (pattern, workspace, path, expected) in [
            ("${workspace}/**", "/w", "/w", true),
            ("${workspace}/**", "/w", "/w/a/.b", true),
            ("${workspace}/**", "/w", "/wx/a", false),
            ("${workspace}/**", "/w", "/", false),
            ("${workspace}/**", "/w*", "/w*/a", true),
            ("${workspace}/**", "/w*", "/wx/a", false),
            ("${workspace}/**", "/w[ab]", "/wa/x", false),
            ("${workspace}/src/*.rs", "/w", "/w/src/a.rs", true),
            ("${workspace}/src/*.rs", "/w", "/w/src/a/b.rs", false),
            ("${workspace}", "/w", "/w", true),
            ("${workspace}", "/w", "/w/a", false),
            ("~/x/**", "/w", "/home/u/x/y", true),
            ("/srv/**", "/w", "/srv/a", true),
            ("/srv/**", "/w", "/srvx", false),
            ("**/a", "/w", "/x/a", true),
        ] {
            let covers = rules(pattern, workspace).cover(path);
            assert_eq!(covers, expected, "{pattern} {workspace} {path}");
        }
        let without = PathRules::new(&["${workspace}/**".to_owned()], &[], None);
        assert!(!without.cover("/w"));
    }

    #[test]
    fn odd_patterns_are_refused() {
        for text in [
            "",
            "src/**",
            "${workspace}x",
            "/a/${workspace}",
            "${home}/**",
            "/a\0b",
            "~u/x",
        ] {
            assert!(check(&[text.to_owned()]).is_err(), "{text:?}");
        }
        assert_eq!(check(&[]), Err(PathRuleError::Empty));
        assert_eq!(
            check(&["${workspace}/**".to_owned(), "~/x".to_owned()]),
            Ok(())
        );
    }
}
