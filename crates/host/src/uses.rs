//! When entries were last used: kept beside the document, and shown with it.

use std::collections::{BTreeMap, BTreeSet};

use interlock_policy::{Document, Entry, agent_path};
use interlock_store::{EntryUse, StoredDocument};

use crate::local::{HostError, LocalHost};

impl LocalHost {
    /// The document with the last use of each entry, for people. It is not the stored one: whoever
    /// writes it back would write the uses into it.
    pub fn document_with_uses(&self) -> Result<(Document, StoredDocument), HostError> {
        let (mut document, stored) = self.document()?;
        let uses = self.store().entry_uses()?;
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

    /// Takes out again what [`Self::document_with_uses`] put in, so that a document that was shown and
    /// is written back unchanged is no other one.
    pub(crate) fn without_uses(&self, document: &Document) -> Result<Document, HostError> {
        let uses = self.store().entry_uses()?;
        let mut document = document.clone();
        each_entry(&mut document, |entry, key| {
            let is_known = uses.iter().any(|last| {
                last.entry == key && u64::try_from(last.used_at_ms).ok() == entry.last_used_at
            });
            if is_known {
                entry.last_used_at = None;
                entry.last_used_command = None;
                entry.last_resolved_path = None;
            }
        });
        Ok(document)
    }

    /// Forgets the uses of entries that were removed.
    pub(crate) fn forget_uses(&self) -> Result<(), HostError> {
        let (mut document, _) = self.document()?;
        let mut present = BTreeSet::new();
        each_entry(&mut document, |_, key| {
            present.insert(key);
        });
        self.store().forget_entry_uses(&present)?;
        Ok(())
    }
}

/// Every entry with the name under which its use is recorded.
fn each_entry(document: &mut Document, mut visit: impl FnMut(&mut Entry, String)) {
    for (agent, scope) in &mut document.agents {
        let path = agent_path(agent);
        for (index, entry) in scope.allowlist.iter_mut().enumerate() {
            let key = entry.use_key(&format!("{path}.allowlist[{index}]"));
            visit(entry, key);
        }
    }
}
