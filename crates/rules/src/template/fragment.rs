//! The format of template files, and the shapes that abbreviate their argument patterns.

use std::collections::BTreeMap;

use interlock_config::Json5Text;
use serde::Deserialize;

use super::TemplateCase;
use crate::error::RulesError;

/// The templates that can be applied, in the order in which they are listed.
pub(super) const TEMPLATES: &[(&str, &str)] = &[
    ("read-only", include_str!("../../templates/read-only.json5")),
    ("project", include_str!("../../templates/project.json5")),
    ("rust", include_str!("../../templates/rust.json5")),
    ("node", include_str!("../../templates/node.json5")),
    ("python", include_str!("../../templates/python.json5")),
    ("go", include_str!("../../templates/go.json5")),
    ("java", include_str!("../../templates/java.json5")),
    ("ruby", include_str!("../../templates/ruby.json5")),
    ("c", include_str!("../../templates/c.json5")),
    ("php", include_str!("../../templates/php.json5")),
    ("dotnet", include_str!("../../templates/dotnet.json5")),
    (
        "containers",
        include_str!("../../templates/containers.json5"),
    ),
    ("github", include_str!("../../templates/github.json5")),
    ("server", include_str!("../../templates/server.json5")),
];

/// The parts that templates include.
pub(super) const PARTS: &[(&str, &str)] = &[
    ("git", include_str!("../../templates/git.json5")),
    ("files", include_str!("../../templates/files.json5")),
    ("make", include_str!("../../templates/make.json5")),
    (
        "pre-commit",
        include_str!("../../templates/pre-commit.json5"),
    ),
    ("docker", include_str!("../../templates/docker.json5")),
    (
        "kubernetes",
        include_str!("../../templates/kubernetes.json5"),
    ),
    ("terraform", include_str!("../../templates/terraform.json5")),
];

/// Shapes: words in capital letters that stand for a pattern in the argument patterns of every
/// template.
const SHAPES: &[(&str, &str)] = &[
    // A relative path of plain names. No name may begin with a dot or a dash, so that it can name
    // neither a hidden file nor an option, and cannot lead out of the directory by itself.
    (
        "NAME",
        r"(?:(?:\./)?[A-Za-z0-9_][A-Za-z0-9_:-]*(?:[./][A-Za-z0-9_][A-Za-z0-9_:-]*)*/?)",
    ),
    // The name of a service, a container, a task or a profile.
    ("UNIT", r"(?:[A-Za-z0-9][A-Za-z0-9@._:-]*)"),
];

/// The prefix of a program's pattern that stands for the directory of the template.
const DIRECTORY: &str = "DIRECTORY/";

/// How deeply shapes may use other shapes.
const MAX_SHAPE_DEPTH: usize = 6;

/// A template file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Fragment {
    pub description: String,
    pub allows: Vec<String>,
    pub include: Vec<String>,
    pub found: Vec<FoundPart>,
    /// Whether the programs of the base are included, for the directory.
    pub base: bool,
    /// Whether the entries apply in every directory.
    pub anywhere: bool,
    /// Shapes of this file, besides those of all files.
    pub shapes: BTreeMap<String, String>,
    pub entries: Vec<FragmentEntry>,
    pub cases: Vec<TemplateCase>,
}

/// A part that is included if the project has a file with this name or ending (`*.sln`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FoundPart {
    pub file: String,
    pub include: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct FragmentEntry {
    pub pattern: String,
    /// Other programs that take the same arguments.
    pub also: Vec<String>,
    pub args: Option<Vec<String>>,
    pub arg_pattern: Option<String>,
    /// A pattern for all arguments, in which each space ends an argument. Unlike in `argPattern`, a
    /// space inside an argument does not match it.
    pub words: Option<String>,
    /// Subcommands. Each gets an entry that allows any further arguments.
    pub subcommands: Vec<String>,
    /// Whether every file that the arguments name must be in the directory.
    pub confined: bool,
    /// Variables that a call may set besides the harmless ones.
    pub env: Vec<String>,
    pub note: Option<String>,
}

impl Fragment {
    pub(super) fn read(name: &str, text: &str) -> Result<Self, RulesError> {
        let broken = |message: String| RulesError::Edit {
            code: "TEMPLATE_INVALID",
            message: format!("template {name}: {message}"),
            remedy: "report it: the templates are part of the program".to_owned(),
        };
        let text = Json5Text::parse_bytes(name, text.as_bytes());
        let value = text.map_err(|problem| broken(problem.to_string()))?.value();
        serde_json::from_value(value).map_err(|error| broken(error.to_string()))
    }
}

impl FragmentEntry {
    /// The argument pattern of the entry.
    pub(super) fn argument_pattern(&self, shapes: &BTreeMap<String, String>) -> Option<String> {
        if let Some(words) = &self.words {
            // A pattern with NUL is compared with the arguments, each followed by NUL.
            let words = filled(words, shapes, 0).replace(' ', "\0");
            return Some(format!("^(?:{words})$"));
        }
        let pattern = self.arg_pattern.as_deref()?;
        Some(filled(pattern, shapes, 0))
    }

    /// The patterns of all programs of the entry.
    pub(super) fn programs(&self, directory: &str) -> Vec<String> {
        let all = std::iter::once(&self.pattern).chain(&self.also);
        let here = format!("{}/", directory.trim_end_matches('/'));
        all.map(|pattern| match pattern.strip_prefix(DIRECTORY) {
            Some(rest) => format!("{here}{rest}"),
            None => pattern.clone(),
        })
        .collect()
    }
}

/// Replaces every word in capital letters that is a shape.
fn filled(pattern: &str, shapes: &BTreeMap<String, String>, depth: usize) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(start) = rest.find(|one: char| one.is_ascii_uppercase()) {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let end = from
            .find(|one: char| !one.is_ascii_uppercase() && one != '_')
            .unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let own = shapes.get(word).map(String::as_str);
        let shared = SHAPES.iter().find(|(known, _)| *known == word);
        match own.or(shared.map(|(_, shape)| *shape)) {
            Some(shape) if depth < MAX_SHAPE_DEPTH => {
                out.push_str(&filled(shape, shapes, depth + 1));
            }
            _ => out.push_str(word),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Joined by blanks that may be left out, an option with a word run on to it would read as two
    /// arguments: `systemctl --state=xstatus reboot` as `status reboot`.
    #[test]
    fn no_pattern_lets_two_arguments_run_together() {
        for (name, text) in TEMPLATES.iter().chain(PARTS) {
            let fragment = Fragment::read(name, text).unwrap();
            let patterns = fragment.entries.iter();
            for pattern in patterns.filter_map(|entry| entry.arg_pattern.as_deref()) {
                assert!(!pattern.contains(" ?"), "{name}: {pattern}");
            }
        }
    }

    #[test]
    fn only_whole_words_in_capitals_are_shapes() {
        let shapes = BTreeMap::from([
            ("TAG".to_owned(), "(?:t UNIT_X)".to_owned()),
            ("LOOP".to_owned(), "LOOP".to_owned()),
        ]);
        for (pattern, expected) in [
            ("a TAG b", "a (?:t UNIT_X) b"),
            ("TAGS -DTAG [A-Z]", "TAGS -DTAG [A-Z]"),
            ("GOPATH", "GOPATH"),
            ("LOOP", "LOOP"),
        ] {
            assert_eq!(filled(pattern, &shapes, 0), expected);
        }
    }

    #[test]
    fn a_blank_ends_an_argument() {
        let entry = FragmentEntry {
            pattern: "DIRECTORY/**/gradlew".to_owned(),
            also: vec!["gradle".to_owned()],
            words: Some("get (-n [a-z]+ )*pods ".to_owned()),
            ..FragmentEntry::default()
        };
        assert_eq!(
            entry.argument_pattern(&BTreeMap::new()).as_deref(),
            Some("^(?:get\0(-n\0[a-z]+\0)*pods\0)$")
        );
        assert_eq!(
            entry.programs("/srv/app/"),
            ["/srv/app/**/gradlew", "gradle"]
        );
    }
}
