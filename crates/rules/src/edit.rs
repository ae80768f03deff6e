//! Changes the approvals document: reads it, changes it, and replaces it if it has not changed
//! meanwhile. If two writers collide, the second one starts again, so no update is lost.

use std::path::Path;

use interlock_config::{ConfigFile, Diagnostics, EditError, ExecMode, Json5Text};
use interlock_policy::{
    AgentId, Ask, DenyRule, Document, EVERY_AGENT, Entry, Fallback, Preset, Scope, Security,
    agent_path,
};
use interlock_store::{
    ApprovalsStore as _, Author, DocumentStanding, Store, StoreError, StoredDocument,
};

use crate::config_record::append_config_write;
use crate::document::{client_document, document_in_force, import_document, parse_document};
use crate::error::RulesError;
use crate::uses::{keep_uses, take_uses};

/// How often a writer tries again if another writer was first.
const MAX_TRIES: usize = 64;

/// The result of adding an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryEdit {
    Added(Entry),
    /// The document already had the same entry.
    Present(Entry),
}

/// The result of removing entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedEntries {
    pub entries: Vec<Entry>,
    /// How many entries of the base and of templates have the same pattern and stay.
    pub kept: usize,
}

/// The result of adding a deny rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyRuleEdit {
    Added,
    /// The document already had a rule that denies the same.
    Present,
}

/// The deny rules that a removal selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenyRuleSelection {
    /// The only rule with this pattern. It is an error if there are several.
    Only { pattern: String },
    /// Every rule with this pattern.
    Every { pattern: String },
    /// The rule that denies the same.
    Same(DenyRule),
}

impl DenyRuleSelection {
    pub fn pattern(&self) -> &str {
        match self {
            Self::Only { pattern } | Self::Every { pattern } => pattern,
            Self::Same(rule) => &rule.pattern,
        }
    }

    pub fn matches(&self, rule: &DenyRule) -> bool {
        match self {
            Self::Only { pattern } | Self::Every { pattern } => rule.pattern == *pattern,
            Self::Same(selected) => selected.denies_same(rule),
        }
    }

    /// Checks that the selection was unambiguous. Removing a deny rule allows more, so it must be
    /// clear which rule is meant.
    pub fn check_removed(
        &self,
        agent: &str,
        removed: &[(DenyRule, String)],
    ) -> Result<(), RulesError> {
        let pattern = self.pattern();
        if removed.is_empty() {
            return Err(RulesError::Edit {
                code: "RULE_NOT_FOUND",
                message: format!("no such deny rule `{pattern}` for agent {agent}"),
                remedy: "list them: interlock deny list".to_owned(),
            });
        }
        if matches!(self, Self::Only { .. }) && removed.len() > 1 {
            return Err(RulesError::Edit {
                code: "RULE_AMBIGUOUS",
                message: format!(
                    "{} deny rules have the pattern `{pattern}`; none was removed",
                    removed.len()
                ),
                remedy: "name the arguments of the one that is meant (--arg, --arg-pattern), or remove all of them with --all"
                    .to_owned(),
            });
        }
        Ok(())
    }
}

/// The key of a scope: one agent, or `*` for all.
pub(crate) fn scope_key(agent: &str) -> Result<String, RulesError> {
    if agent == EVERY_AGENT {
        return Ok(EVERY_AGENT.to_owned());
    }
    let id = AgentId::new(agent).map_err(|error| RulesError::Edit {
        code: "AGENT_INVALID",
        message: error.to_string(),
        remedy: "name an agent of the config, or `*` for all".to_owned(),
    })?;
    Ok(id.as_str().to_owned())
}

/// The rules of a host: its approvals document, and the levels in its config. Only this type may
/// write them.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRules<'a> {
    pub(crate) store: &'a Store,
    config_path: &'a Path,
}

/// Reads the document, lets `change` edit it, and stores it. If another writer was first, starts
/// again.
pub fn edit_document<T>(
    store: &Store,
    mut change: impl FnMut(&mut Document) -> Result<T, RulesError>,
) -> Result<(T, StoredDocument), RulesError> {
    for _ in 0..MAX_TRIES {
        let (mut document, stored) = document_in_force(store)?;
        let outcome = change(&mut document)?;
        match store.replace_document(Some(&stored.hash), &document.to_json()) {
            Ok(stored) => return Ok((outcome, stored)),
            Err(StoreError::DocumentChanged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StoreError::DocumentChanged { current_hash: None }.into())
}

impl<'a> PolicyRules<'a> {
    pub fn new(store: &'a Store, config_path: &'a Path) -> Self {
        Self { store, config_path }
    }

    /// The document in force, with the hash that a change has to name.
    pub fn document(self) -> Result<(Document, StoredDocument), RulesError> {
        document_in_force(self.store)
    }

    /// Whether the document is recorded in the audit. An unrecorded document is not an error here.
    pub fn document_standing(self) -> Result<DocumentStanding, RulesError> {
        Ok(self.store.document_standing()?)
    }

    /// Edits the document in force: see [`edit_document`].
    pub fn edit_document<T>(
        self,
        change: impl FnMut(&mut Document) -> Result<T, RulesError>,
    ) -> Result<(T, StoredDocument), RulesError> {
        edit_document(self.store, change)
    }

    /// Replaces the whole document. With `base_hash`, only if the document in force still has that
    /// hash.
    pub fn set_document(
        self,
        name: &str,
        text: &[u8],
        base_hash: Option<&str>,
    ) -> Result<StoredDocument, RulesError> {
        self.put_document(&parse_document(name, text)?, base_hash)
    }

    /// Replaces the document with one from a client, if the document in force is still the one that
    /// the client has read. A client must not change the secret of the approval socket, so it
    /// stays.
    pub fn replace_document(
        self,
        file: &serde_json::Value,
        base_hash: &str,
        author: &Author,
    ) -> Result<StoredDocument, RulesError> {
        let mut document = client_document("exec approvals", file)?;
        document.socket = self.document()?.0.socket;
        take_uses(&mut document);
        for scope in document.agents.values_mut() {
            for entry in &mut scope.allowlist {
                entry
                    .id
                    .get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
            }
        }
        let store = self.store;
        let changed = store.change(|change| {
            change.replace_document_as(author, Some(base_hash), &document.to_json())
        });
        Ok(changed?)
    }

    /// Like [`Self::set_document`], for a document of another program. An unreadable part is left
    /// out and reported, if leaving it out loosens nothing.
    pub fn import_document(
        self,
        name: &str,
        text: &[u8],
        base_hash: Option<&str>,
    ) -> Result<(StoredDocument, Diagnostics), RulesError> {
        let (mut document, left_out) = import_document(name, text)?;
        let uses = take_uses(&mut document);
        let stored = self.put_document(&document, base_hash)?;
        self.store.change(|change| keep_uses(change, &uses))?;
        Ok((stored, left_out))
    }

    fn put_document(
        self,
        document: &Document,
        base_hash: Option<&str>,
    ) -> Result<StoredDocument, RulesError> {
        let mut document = document.clone();
        take_uses(&mut document);
        // The socket's token is never shown to editors, so a document without a token keeps the
        // current one.
        let replace = |current: &mut Document| {
            let socket = current.socket.take();
            *current = document.clone();
            if document
                .socket
                .as_ref()
                .and_then(|socket| socket.token.as_ref())
                .is_none()
            {
                current.socket = socket;
            }
        };
        if let Some(hash) = base_hash {
            let (mut current, _) = self.document()?;
            replace(&mut current);
            return Ok(self
                .store
                .replace_document(Some(hash), &current.to_json())?);
        }
        let ((), stored) = self.edit_document(|current| {
            replace(current);
            Ok(())
        })?;
        Ok(stored)
    }

    /// Adds an entry for an agent or `*`.
    pub fn add_entry(self, agent: &str, entry: &Entry) -> Result<EntryEdit, RulesError> {
        let key = scope_key(agent)?;
        entry.check().map_err(|error| RulesError::Edit {
            code: "ENTRY_INVALID",
            message: error.to_string(),
            remedy: "see `interlock approvals allowlist add --help`".to_owned(),
        })?;
        let (edit, _) = self.edit_document(|document| {
            let scope = document.agents.entry(key.clone()).or_default();
            let same = |other: &&Entry| other.has_terms_of(entry);
            if let Some(present) = scope.allowlist.iter().find(same) {
                return Ok(EntryEdit::Present(present.clone()));
            }
            let mut entry = entry.clone();
            entry
                .id
                .get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
            scope.allowlist.push(entry.clone());
            Ok(EntryEdit::Added(entry))
        })?;
        Ok(edit)
    }

    /// Removes every entry of an agent or `*` whose pattern or id is `which`.
    pub fn remove_entry(self, agent: &str, which: &str) -> Result<RemovedEntries, RulesError> {
        let key = scope_key(agent)?;
        let (removed, _) = self.edit_document(|document| {
            let Some(scope) = document.agents.get_mut(&key) else {
                return Err(no_such_entry(&key, which));
            };
            let removed = take_named_entries(&mut scope.allowlist, which);
            if removed.entries.is_empty() {
                return Err(no_such_entry(&key, which));
            }
            if scope.is_empty() {
                document.agents.remove(&key);
            }
            Ok(removed)
        })?;
        Ok(removed)
    }

    /// Requires an entry for the programs of skills, for all agents.
    pub fn disallow_skills(self) -> Result<(), RulesError> {
        self.edit_document(|document| {
            let scopes = document.agents.values_mut();
            for scope in scopes.chain([&mut document.defaults]) {
                scope.auto_allow_skills = scope.auto_allow_skills.map(|_| false);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Adds a deny rule for an agent or `*`.
    pub fn add_deny_rule(self, agent: &str, rule: &DenyRule) -> Result<DenyRuleEdit, RulesError> {
        let key = scope_key(agent)?;
        rule.check().map_err(|error| RulesError::Edit {
            code: "RULE_INVALID",
            message: error.to_string(),
            remedy: "see `interlock deny add --help`".to_owned(),
        })?;
        let (edit, _) = self.edit_document(|document| {
            let scope = document.agents.entry(key.clone()).or_default();
            if scope.deny.iter().any(|other| other.denies_same(rule)) {
                return Ok(DenyRuleEdit::Present);
            }
            scope.deny.push(rule.clone());
            Ok(DenyRuleEdit::Added)
        })?;
        Ok(edit)
    }

    /// Removes deny rules of an agent or `*`. The defaults of the document apply to every agent, so
    /// they belong to `*`. Returns each removed rule with where it was written.
    pub fn remove_deny_rules(
        self,
        agent: &str,
        which: &DenyRuleSelection,
    ) -> Result<Vec<(DenyRule, String)>, RulesError> {
        let key = scope_key(agent)?;
        let (removed, _) = self.edit_document(|document| {
            let mut removed = Vec::new();
            let mut take = |rules: &mut Vec<DenyRule>, scope: &str| {
                let gone = rules.extract_if(.., |rule| which.matches(rule));
                removed.extend(gone.map(|rule| (rule, format!("{scope}.deny"))));
            };
            if let Some(scope) = document.agents.get_mut(&key) {
                take(&mut scope.deny, &agent_path(&key));
            }
            if key == EVERY_AGENT {
                take(&mut document.defaults.deny, "defaults");
            }
            if document.agents.get(&key).is_some_and(Scope::is_empty) {
                document.agents.remove(&key);
            }
            which.check_removed(&key, &removed)?;
            Ok(removed)
        })?;
        Ok(removed)
    }

    /// Writes a preset to the config and to the document's defaults. A preset only sets levels: if
    /// the config turns a sandbox on, commands stay in it.
    pub fn apply_preset(self, preset: Preset) -> Result<(), RulesError> {
        let (security, ask, fallback) = preset.levels();
        let has_sandbox = ConfigFile::load(self.config_path)?.config().has_sandbox();
        let exec_host = (!has_sandbox).then_some("gateway");
        self.set_levels(Some(security), Some(ask), Some(fallback), exec_host)
    }

    /// Sets values in the config (`tools.exec.*`) and in the document's defaults.
    ///
    /// The two cannot change at the same instant. In between, the stricter of the two applies,
    /// because layers join by strictness. So the policy is never looser than both before and after.
    pub fn set_levels(
        self,
        security: Option<Security>,
        ask: Option<Ask>,
        fallback: Option<Fallback>,
        exec_host: Option<&str>,
    ) -> Result<(), RulesError> {
        let change_config = || {
            ConfigFile::edit(self.config_path, |text| {
                let (security, ask) = in_place_of_mode(text, security, ask)?;
                let mut set = |key: &str, value: Option<&str>| match value {
                    Some(value) => text.set(&exec_key(key), &value.into()),
                    None => Ok(()),
                };
                set("host", exec_host)?;
                set("security", security.map(Security::as_str))?;
                set("ask", ask.map(Ask::as_str))
            })
        };
        // Write the config first: if it is invalid, the document must not change.
        change_config()?;
        let keys: Vec<&str> = [
            ("tools.exec.host", exec_host.is_some()),
            ("tools.exec.security", security.is_some()),
            ("tools.exec.ask", ask.is_some()),
        ]
        .iter()
        .filter_map(|(key, is_set)| is_set.then_some(*key))
        .collect();
        append_config_write(self.store, self.config_path, &keys, &Author::default())?;
        self.edit_document(|document| {
            let Scope {
                security: old_security,
                ask: old_ask,
                ask_fallback,
                ..
            } = &mut document.defaults;
            *old_security = security.or(*old_security);
            *old_ask = ask.or(*old_ask);
            *ask_fallback = fallback.or(*ask_fallback);
            Ok(())
        })?;
        Ok(())
    }
}

/// Replaces `mode` by the two levels that it means. A mode conflicts with either level beside it,
/// and a change of one level must not reset the other one.
fn in_place_of_mode(
    text: &mut Json5Text,
    security: Option<Security>,
    ask: Option<Ask>,
) -> Result<(Option<Security>, Option<Ask>), EditError> {
    if security.is_none() && ask.is_none() {
        return Ok((None, None));
    }
    let mode = text.get(&exec_key("mode"));
    text.unset(&exec_key("mode"))?;
    let Some(mode) = mode.and_then(|mode| serde_json::from_value::<ExecMode>(mode).ok()) else {
        return Ok((security, ask));
    };
    let (mode_security, mode_ask) = mode.policy();
    let absent = |key: &str| text.get(&exec_key(key)).is_none();
    Ok((
        security.or_else(|| absent("security").then_some(mode_security)),
        ask.or_else(|| absent("ask").then_some(mode_ask)),
    ))
}

fn exec_key(key: &str) -> interlock_config::KeyPath {
    interlock_config::KeyPath::root()
        .key("tools")
        .key("exec")
        .key(key)
}

/// Removes the entry with this id, or the entries with this pattern. If the owner has entries with
/// the pattern, those of the base and of templates stay: each can be removed by its id, and all of
/// them by the command for the base or the template.
pub fn take_named_entries(list: &mut Vec<Entry>, which: &str) -> RemovedEntries {
    let is_id = |entry: &Entry| entry.id.as_deref() == Some(which);
    let is_named = |entry: &Entry| entry.pattern == which || is_id(entry);
    let is_own = |entry: &Entry| is_named(entry) && !entry.is_shipped();
    let only_own = list.iter().any(is_own) && !list.iter().any(is_id);
    let is_removed = |entry: &Entry| {
        if only_own {
            is_own(entry)
        } else {
            is_named(entry)
        }
    };
    let named = list.iter().filter(|entry| is_named(entry)).count();
    let entries: Vec<Entry> = list
        .iter()
        .filter(|entry| is_removed(entry))
        .cloned()
        .collect();
    list.retain(|entry| !is_removed(entry));
    RemovedEntries {
        kept: named - entries.len(),
        entries,
    }
}

fn no_such_entry(agent: &str, which: &str) -> RulesError {
    RulesError::Edit {
        code: "ENTRY_NOT_FOUND",
        message: format!("no entry `{which}` for agent {agent}"),
        remedy: "list them: interlock approvals allowlist list".to_owned(),
    }
}
