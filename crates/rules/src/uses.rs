//! The last use of each entry, which is stored beside the document and shown with it.

use std::collections::{BTreeMap, BTreeSet};

use interlock_policy::{Document, Entry, agent_path};
use interlock_store::{Change, EntryUse, StoreError, StoredDocument};
use serde_json::Value;

use crate::edit::PolicyRules;
use crate::error::RulesError;

impl PolicyRules<'_> {
    /// The document as clients get it: with the last use of each entry, and without the secret of
    /// the approval socket. The hash is that of the stored document, which does not contain uses: a
    /// use between reading and writing must not make a client's write fail.
    pub fn shown_document(self) -> Result<(Value, StoredDocument), RulesError> {
        let (document, stored) = self.document_with_uses()?;
        let mut file: Value = serde_json::from_str(&document.to_json()).unwrap_or_default();
        if let Some(socket) = file.get_mut("socket").and_then(Value::as_object_mut) {
            socket.remove("token");
        }
        Ok((file, stored))
    }

    /// The document with the last use of each entry.
    pub fn document_with_uses(self) -> Result<(Document, StoredDocument), RulesError> {
        let (mut document, stored) = self.document()?;
        let uses = self.store.entry_uses()?;
        let uses: BTreeMap<&str, &EntryUse> = uses
            .iter()
            .map(|used| (used.entry.as_str(), used))
            .collect();
        each_entry(&mut document, |entry, key| {
            let Some(last) = uses.get(key.as_str()) else {
                return;
            };
            let used_at = u64::try_from(last.used_at_ms).unwrap_or_default();
            if entry.last_used_at.is_none_or(|at| at <= used_at) {
                entry.last_used_at = Some(used_at);
                entry.last_used_command = Some(last.command.clone());
                entry.last_resolved_path.clone_from(&last.resolved);
            }
        });
        Ok((document, stored))
    }

    /// Forgets the uses of entries that were removed.
    pub fn forget_uses(self) -> Result<(), RulesError> {
        let (mut document, _) = self.document()?;
        let mut present = BTreeSet::new();
        each_entry(&mut document, |_, key| {
            present.insert(key);
        });
        self.store.forget_entry_uses(&present)?;
        Ok(())
    }
}

/// Removes the last uses from a document before it is stored, because they must not be part of its
/// hash. The removed uses are returned; they matter only for a document of another program.
pub(crate) fn take_uses(document: &mut Document) -> Vec<EntryUse> {
    let mut uses = Vec::new();
    each_entry(document, |entry, key| {
        let command = entry.last_used_command.take();
        let resolved = entry.last_resolved_path.take();
        if let Some(at) = entry.last_used_at.take() {
            uses.push(EntryUse {
                entry: key,
                used_at_ms: i64::try_from(at).unwrap_or(i64::MAX),
                command: command.unwrap_or_default(),
                resolved,
            });
        }
    });
    uses
}

/// Stores the uses of an imported document. Uses that are already known are newer and stay.
pub(crate) fn keep_uses(change: &Change<'_>, uses: &[EntryUse]) -> Result<(), StoreError> {
    uses.iter().try_for_each(|used| change.use_entry(used))
}

/// Visits every entry with the key under which its use is recorded.
fn each_entry(document: &mut Document, mut visit: impl FnMut(&mut Entry, String)) {
    for (agent, scope) in &mut document.agents {
        let path = agent_path(agent);
        for (index, entry) in scope.allowlist.iter_mut().enumerate() {
            let key = entry.use_key(&format!("{path}.allowlist[{index}]"));
            visit(entry, key);
        }
    }
}
