//! Templates: narrow entries for a kind of work, with a description of what they allow and test
//! cases. If a case fails, nothing may be written.

mod fragment;
mod remove;

use std::collections::BTreeSet;
use std::path::Path;

use interlock_command::Source;
use interlock_policy::{
    AgentId, Ask, BASE_PROGRAMS, CallerInput, Document, EVERY_AGENT, Entry, Layer, Levels, Policy,
    PolicySource as LevelSource, RunRequest, Scope, Security, TEMPLATE_SOURCE, evaluate,
};
use interlock_programs::VirtualHost;
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::edit::{EntryEdit, PolicyRules, scope_key};
use crate::error::RulesError;
use fragment::{Fragment, PARTS, TEMPLATES};
pub use remove::{TemplateRemoval, TemplateRemovalMode};

/// A template for one directory, or several that are applied together.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// The requested names, separated by spaces.
    pub name: String,
    pub description: String,
    /// Descriptions of what the template allows.
    pub allows: Vec<String>,
    /// The names of the included parts.
    pub includes: Vec<String>,
    pub entries: Vec<Entry>,
    #[serde(skip)]
    cases: Vec<TemplateCase>,
}

/// A template as a list shows it.
#[derive(Debug, Clone, Serialize)]
pub struct TemplateSummary {
    pub name: &'static str,
    pub description: String,
}

/// The result of a test case of a template.
#[derive(Debug, Clone, Serialize)]
pub struct TemplateCaseResult {
    pub command: String,
    pub expected: String,
    pub verdict: String,
    pub pass: bool,
    pub reason: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateCase {
    command: String,
    expect: ExpectedVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExpectedVerdict {
    Allow,
    Ask,
}

/// The names and descriptions of all templates.
pub fn templates() -> Result<Vec<TemplateSummary>, RulesError> {
    let summary = |(name, text): &(&'static str, &str)| {
        Ok(TemplateSummary {
            name,
            description: Fragment::read(name, text)?.description,
        })
    };
    TEMPLATES.iter().map(summary).collect()
}

impl Template {
    /// Combines the templates with these names for a directory, whose path must be canonical.
    pub fn of(names: &[impl AsRef<str>], directory: &Path) -> Result<Self, RulesError> {
        Self::build(names, directory, PartChoice::Found)
    }

    /// Like [`Self::of`], with all optional parts, because the files of the project that added them
    /// may be gone.
    fn with_every_part(names: &[impl AsRef<str>], directory: &Path) -> Result<Self, RulesError> {
        Self::build(names, directory, PartChoice::Every)
    }

    fn build(
        names: &[impl AsRef<str>],
        directory: &Path,
        choice: PartChoice,
    ) -> Result<Self, RulesError> {
        let directory_text = directory.to_str().filter(|text| !text.contains(['*', '?']));
        let Some(directory_text) = directory_text else {
            return Err(RulesError::Edit {
                code: "TEMPLATE_DIRECTORY",
                message: format!(
                    "{} cannot stand in a pattern: it holds `*`, `?` or text that is not UTF-8",
                    directory.display()
                ),
                remedy: "name another directory with --dir".to_owned(),
            });
        };
        let mut template = Self {
            name: String::new(),
            description: String::new(),
            allows: Vec::new(),
            includes: Vec::new(),
            entries: Vec::new(),
            cases: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        for name in names {
            let name = name.as_ref();
            let known = TEMPLATES.iter().find(|(known, _)| *known == name);
            let (name, text) = known.ok_or_else(|| unknown(name))?;
            let whole = Fragment::read(name, text)?;
            push_word(&mut template.name, name);
            push_word(&mut template.description, &whole.description);
            if seen.insert((*name).to_owned()) {
                let place = (directory, directory_text, choice);
                template.add(name, whole, place, &mut seen)?;
            }
        }
        let asked_for = names.iter().map(AsRef::as_ref);
        let asked_for: BTreeSet<&str> = asked_for.collect();
        template
            .includes
            .retain(|part| !asked_for.contains(part.as_str()));
        Ok(template)
    }

    /// Adds a fragment and the parts that it includes, each once. Inclusions have at most two
    /// levels.
    fn add(
        &mut self,
        name: &str,
        fragment: Fragment,
        (directory, text, choice): (&Path, &str, PartChoice),
        seen: &mut BTreeSet<String>,
    ) -> Result<(), RulesError> {
        let beneath = format!("{}/**", text.trim_end_matches('/'));
        self.allows.extend(fragment.allows);
        self.cases.extend(fragment.cases);
        if fragment.base {
            // A program that only prints its version needs no entry per directory.
            let readers = BASE_PROGRAMS.iter().filter(|program| !program.only_version);
            self.entries.extend(readers.map(|program| Entry {
                id: None,
                source: Some(source(name)),
                paths: Some(vec![beneath.clone()]),
                ..program.entry()
            }));
        }
        for item in fragment.entries {
            let arg_pattern = item.argument_pattern(&fragment.shapes);
            for program in item.programs(text) {
                let entry = Entry {
                    arg_pattern: arg_pattern.clone(),
                    args: item.args.clone(),
                    cwd: (!fragment.anywhere).then(|| beneath.clone()),
                    paths: item.confined.then(|| vec![beneath.clone()]),
                    env: item.env.clone(),
                    source: Some(source(name)),
                    note: item.note.clone(),
                    ..Entry::for_pattern(program)
                };
                if item.subcommands.is_empty() {
                    self.entries.push(entry);
                    continue;
                }
                for subcommand in &item.subcommands {
                    let args = Some(vec![subcommand.clone(), "**".to_owned()]);
                    self.entries.push(Entry {
                        args,
                        ..entry.clone()
                    });
                }
            }
        }
        let found = fragment.found.into_iter();
        let found =
            found.filter(|part| choice == PartChoice::Every || is_found(directory, &part.file));
        let parts = fragment.include.into_iter();
        for part in parts.chain(found.map(|part| part.include)) {
            if !seen.insert(part.clone()) {
                continue;
            }
            let mut known = PARTS.iter().chain(TEMPLATES);
            let Some((part_name, part_text)) = known.find(|(known, _)| *known == part) else {
                return Err(unknown(&part));
            };
            self.includes.push(part);
            let part_read = Fragment::read(part_name, part_text)?;
            self.add(part_name, part_read, (directory, text, choice), seen)?;
        }
        Ok(())
    }
}

/// Which optional parts are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartChoice {
    /// Parts whose file exists in the project.
    Found,
    Every,
}

fn push_word(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

/// Whether a file of the project exists in the directory or one level beneath.
fn is_found(directory: &Path, file: &str) -> bool {
    if is_in(directory, file) {
        return true;
    }
    let beneath = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut beneath = beneath.take(1000);
    beneath.any(|entry| {
        // Do not follow links, which may lead out of the project.
        entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_in(&entry.path(), file)
    })
}

fn is_in(directory: &Path, file: &str) -> bool {
    let Some(ending) = file.strip_prefix('*') else {
        return directory.join(file).is_file();
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries = entries.take(1000);
    entries.any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().ends_with(ending)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    })
}

fn source(name: &str) -> String {
    format!("{TEMPLATE_SOURCE}{name}")
}

fn unknown(name: &str) -> RulesError {
    let names: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();
    RulesError::Edit {
        code: "TEMPLATE_UNKNOWN",
        message: format!("no template `{name}`"),
        remedy: format!("name one of {}", names.join(", ")),
    }
}

/// Fails if entries for this directory would cover more than a project.
pub fn check_template_directory(directory: &Path, home: Option<&str>) -> Result<(), RulesError> {
    let home = home.map(Path::new);
    let home = home.map(|home| std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned()));
    let holds_home = home.is_some_and(|home| home.starts_with(directory));
    if directory.parent().is_some() && !holds_home {
        return Ok(());
    }
    Err(RulesError::Edit {
        code: "TEMPLATE_DIRECTORY",
        message: format!(
            "{} holds more than a project: `/` and the home directory are none",
            directory.display()
        ),
        remedy: "name the directory of a project with --dir".to_owned(),
    })
}

impl PolicyRules<'_> {
    /// Judges the cases of a template. Commands that it must allow are judged by the document with
    /// its entries, and commands that it must not allow by its entries alone. `policy` makes the
    /// policy of an agent from a document.
    pub fn try_template<E: From<RulesError>>(
        self,
        template: &Template,
        agent: &str,
        directory: &str,
        policy: impl Fn(&Document, &AgentId) -> Result<Policy, E>,
    ) -> Result<Vec<TemplateCaseResult>, E> {
        let key = scope_key(agent)?;
        let (mut proposed, _) = self.document()?;
        let scope = proposed.agents.entry(key.clone()).or_default();
        scope.allowlist.extend(template.entries.iter().cloned());
        let own = Scope {
            allowlist: template.entries.clone(),
            ..Scope::default()
        };
        let mut alone = Document::default();
        alone.agents.insert(key.clone(), own);
        let agent = if key == EVERY_AGENT {
            AgentId::default()
        } else {
            AgentId::new(&key).unwrap_or_default()
        };
        let with_all = with_template_levels(policy(&proposed, &agent)?);
        let by_itself = with_template_levels(policy(&alone, &agent)?);
        let judge = |case: &TemplateCase| {
            let policy = match case.expect {
                ExpectedVerdict::Allow => &with_all,
                ExpectedVerdict::Ask => &by_itself,
            };
            judge(case, policy, directory)
        };
        Ok(template.cases.iter().map(judge).collect())
    }

    /// Adds the entries of a template for an agent or `*` in one change. Existing entries stay
    /// unchanged.
    pub fn apply_template(
        self,
        template: &Template,
        agent: &str,
    ) -> Result<Vec<EntryEdit>, RulesError> {
        let key = scope_key(agent)?;
        let (edits, _) = self.edit_document(|document| {
            let scope = document.agents.entry(key.clone()).or_default();
            let mut edits = Vec::with_capacity(template.entries.len());
            for entry in &template.entries {
                let same = |other: &&Entry| other.has_terms_of(entry);
                if let Some(present) = scope.allowlist.iter().find(same) {
                    edits.push(EntryEdit::Present(present.clone()));
                    continue;
                }
                let mut entry = entry.clone();
                entry.id = Some(uuid::Uuid::new_v4().to_string());
                scope.allowlist.push(entry.clone());
                edits.push(EntryEdit::Added(entry));
            }
            Ok(edits)
        })?;
        Ok(edits)
    }
}

/// Sets the levels under which entries decide, because cases test what entries mean.
fn with_template_levels(mut policy: Policy) -> Policy {
    let levels = Layer::new(
        LevelSource::Host,
        "",
        Some(Security::Allowlist),
        Some(Ask::OnMiss),
    );
    policy.levels = Levels::join(&[levels]);
    policy
}

/// Judges a case on a virtual host without files, because cases test what the entries mean, not
/// what is installed.
fn judge(case: &TemplateCase, policy: &Policy, directory: &str) -> TemplateCaseResult {
    let request = RunRequest {
        source: Source::Text(case.command.clone()),
        cwd: directory.to_owned(),
        env: std::collections::BTreeMap::new(),
        input: CallerInput::None,
        workspace: vec![directory.to_owned()],
        now_ms: now_ms(),
    };
    let (verdict, reason) = match evaluate(request, policy, &VirtualHost::new()) {
        Ok(evaluation) => {
            let verdict = evaluation.verdict;
            (verdict.outcome.as_str(), verdict.reason.message)
        }
        Err(error) => ("deny", error.to_string()),
    };
    let (expected, pass) = match case.expect {
        ExpectedVerdict::Allow => ("allow", verdict == "allow"),
        ExpectedVerdict::Ask => ("ask", verdict != "allow"),
    };
    TemplateCaseResult {
        command: case.command.clone(),
        expected: expected.to_owned(),
        verdict: verdict.to_owned(),
        pass,
        reason,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_template_has_words_entries_that_compile_and_cases() {
        let directory = Path::new("/srv/project");
        for summary in templates().unwrap() {
            let template = Template::of(&[summary.name], directory).unwrap();
            assert!(!template.allows.is_empty(), "{}", summary.name);
            assert!(template.cases.len() > 5, "{}", summary.name);
            for entry in &template.entries {
                assert_eq!(entry.check(), Ok(()), "{}: {entry:?}", summary.name);
                let is_bound = entry.args.is_some() || entry.arg_pattern.is_some();
                assert!(
                    is_bound || entry.paths.is_some(),
                    "{}: {entry:?}",
                    summary.name
                );
            }
        }
    }

    #[test]
    fn a_directory_that_would_be_a_pattern_is_refused() {
        assert!(Template::of(&["rust"], Path::new("/srv/a*")).is_err());
        assert!(Template::of(&["rust"], Path::new("/srv/a?")).is_err());
        assert!(Template::of(&["rust", "perl"], Path::new("/srv/a")).is_err());
    }
}
