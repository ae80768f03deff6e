//! The audit records of changes of the config.

use std::path::Path;

use interlock_store::{AuditKind, Author, Store};
use serde_json::json;

use crate::clock::now_ms;
use crate::error::RulesError;

/// Records that a config was changed. The config is a file of its own, so this comes after it.
pub fn record_config_write(
    state_dir: &Path,
    config: &Path,
    keys: &[&str],
    author: &Author,
) -> Result<(), RulesError> {
    append_config_write(&Store::open(state_dir)?, config, keys, author)
}

/// The same in a store that is open.
pub(crate) fn append_config_write(
    store: &Store,
    config: &Path,
    keys: &[&str],
    author: &Author,
) -> Result<(), RulesError> {
    let record = json!({
        "document": "config",
        "keys": keys,
        "path": config.display().to_string(),
        "who": author.as_str(),
    });
    let at = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    store.append(AuditKind::PolicyWrite, &record, at)?;
    Ok(())
}
