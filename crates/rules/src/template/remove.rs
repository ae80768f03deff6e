//! Removes a template: exactly the entries that it wrote, unless they were edited.

use std::collections::BTreeSet;
use std::path::Path;

use interlock_policy::{Document, Entry, Scope, quote};
use serde::Serialize;

use super::{TEMPLATES, Template, source};
use crate::edit::{PolicyRules, scope_key};
use crate::error::RulesError;

/// The result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRemoval {
    pub removed: Vec<Entry>,
    /// Entries with the source of the template that differ from it, because they were edited or
    /// another version wrote them. They stay.
    pub edited: Vec<Entry>,
    /// Entries that another template for the same directory also has. They stay.
    pub shared: Vec<Entry>,
    /// The templates that have the shared entries.
    pub shared_with: Vec<&'static str>,
}

impl PolicyRules<'_> {
    /// Removes the entries of templates for a directory from the list of an agent or of `*`. With
    /// [`TemplateRemovalMode::Look`], nothing is written.
    pub fn remove_template(
        self,
        names: &[String],
        directory: &Path,
        agent: &str,
        mode: TemplateRemovalMode,
    ) -> Result<TemplateRemoval, RulesError> {
        let key = scope_key(agent)?;
        let take_back = |document: &mut Document| {
            let scope = document.agents.entry(key.clone()).or_default();
            let removal = take_back(scope, names, directory)?;
            if *scope == Scope::default() {
                document.agents.remove(&key);
            }
            if removal == TemplateRemoval::default() {
                return Err(not_applied(document, names, directory, agent));
            }
            Ok(removal)
        };
        let looked = take_back(&mut self.document()?.0)?;
        // If there is nothing to remove, the document is not written.
        if mode == TemplateRemovalMode::Look || looked.removed.is_empty() {
            return Ok(looked);
        }
        Ok(self.edit_document(take_back)?.0)
    }
}

/// Whether entries are removed or only listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateRemovalMode {
    Look,
    Remove,
}

fn take_back(
    scope: &mut Scope,
    names: &[String],
    directory: &Path,
) -> Result<TemplateRemoval, RulesError> {
    let mut applied = Vec::new();
    for name in names {
        if is_applied(scope, name, directory)? {
            applied.push(name.clone());
        }
    }
    if applied.is_empty() {
        return Ok(TemplateRemoval::default());
    }
    let removed_template = Template::with_every_part(&applied, directory)?;
    let parts: BTreeSet<String> = removed_template
        .entries
        .iter()
        .filter_map(|entry| entry.source.clone())
        .collect();
    let others = other_templates(scope, &parts, directory)?;
    let mut removal = TemplateRemoval::default();
    let mut shared_with = BTreeSet::new();
    scope.allowlist.retain(|entry| {
        if !entry
            .source
            .as_ref()
            .is_some_and(|source| parts.contains(source))
        {
            return true;
        }
        if !removed_template.wrote(entry) {
            if is_for_directory(entry, directory) {
                removal.edited.push(entry.clone());
            }
            return true;
        }
        if let Some(other) = others.iter().find(|other| other.template.wrote(entry)) {
            shared_with.insert(other.name);
            removal.shared.push(entry.clone());
            return true;
        }
        removal.removed.push(entry.clone());
        false
    });
    removal.shared_with = shared_with.into_iter().collect();
    Ok(removal)
}

/// Whether the list has entries of the template itself. Entries of shared parts, such as those for
/// git, may come from another template. A template that consists only of shared parts counts as
/// applied.
fn is_applied(scope: &Scope, name: &str, directory: &Path) -> Result<bool, RulesError> {
    let template = Template::with_every_part(&[name], directory)?;
    let own = source(name);
    let is_own = |entry: &&Entry| entry.source.as_ref() == Some(&own);
    if !template.entries.iter().any(|entry| is_own(&entry)) {
        return Ok(true);
    }
    let mut entries = scope.allowlist.iter().filter(is_own);
    Ok(entries.any(|entry| template.wrote(entry) || is_for_directory(entry, directory)))
}

/// A template for the same directory that is not removed.
struct StayingTemplate {
    name: &'static str,
    template: Template,
}

/// The templates that have own entries in the list and are not among the removed parts.
fn other_templates(
    scope: &Scope,
    parts: &BTreeSet<String>,
    directory: &Path,
) -> Result<Vec<StayingTemplate>, RulesError> {
    let mut staying = Vec::new();
    for (name, _) in TEMPLATES {
        let own = source(name);
        if parts.contains(&own) {
            continue;
        }
        let template = Template::with_every_part(&[name], directory)?;
        let is_own = |entry: &&Entry| entry.source.as_ref() == Some(&own);
        let mut entries = scope.allowlist.iter().filter(is_own);
        if entries.any(|entry| template.wrote(entry)) {
            staying.push(StayingTemplate { name, template });
        }
    }
    Ok(staying)
}

impl Template {
    /// Whether this template writes an identical entry.
    fn wrote(&self, entry: &Entry) -> bool {
        let mut own = self.entries.iter();
        own.any(|own| own.source == entry.source && own.has_terms_of(entry))
    }
}

/// The path pattern of entries for a directory.
fn beneath(directory: &Path) -> String {
    format!(
        "{}/**",
        directory.display().to_string().trim_end_matches('/')
    )
}

/// Whether an entry names this directory or no directory.
fn is_for_directory(entry: &Entry, directory: &Path) -> bool {
    let own = beneath(directory);
    let paths = entry.paths.iter().flatten();
    let mut named = entry.cwd.iter().chain(paths).peekable();
    named.peek().is_none() || named.any(|pattern| *pattern == own)
}

/// The error for templates that are not applied here. It names another directory or agent that has
/// them.
fn not_applied(document: &Document, names: &[String], directory: &Path, agent: &str) -> RulesError {
    let own: BTreeSet<String> = names.iter().map(|name| source(name)).collect();
    let own_scopes = document.agents.iter();
    let elsewhere = own_scopes.into_iter().find_map(|(key, scope)| {
        let mut entries = scope.allowlist.iter();
        let entry = entries.find(|entry| {
            entry
                .source
                .as_ref()
                .is_some_and(|source| own.contains(source))
        })?;
        let directory = entry.cwd.as_deref().or_else(|| {
            let paths = entry.paths.as_ref()?;
            paths.first().map(String::as_str)
        });
        Some((
            key.clone(),
            directory
                .and_then(|pattern| pattern.strip_suffix("/**"))
                .map(str::to_owned),
        ))
    });
    let names = names.join(" ");
    let remedy = match elsewhere {
        Some((key, directory)) => {
            let directory = directory.map_or(String::new(), |directory| {
                format!(" --dir {}", quote(&directory))
            });
            format!(
                "it is applied elsewhere: interlock policy template remove --agent {}{directory} {names}",
                quote(&key)
            )
        }
        None => "see which entries there are: interlock approvals allowlist list".to_owned(),
    };
    RulesError::Edit {
        code: "TEMPLATE_NOT_APPLIED",
        message: format!(
            "no entry of {names} for {} is in the list of agent {agent}; nothing was removed",
            directory.display()
        ),
        remedy,
    }
}
