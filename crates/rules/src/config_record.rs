//! Writes audit records about changes of the config.

use std::path::Path;

use interlock_store::{AuditKind, Author, Store};
use serde_json::json;

use crate::clock::now_ms;
use crate::error::RulesError;

/// Records that the config was changed. The config is not in the store, so the record is written
/// after the change.
pub fn record_config_write(
    state_dir: &Path,
    config: &Path,
    keys: &[&str],
    author: &Author,
) -> Result<(), RulesError> {
    append_config_write(&Store::open(state_dir)?, config, keys, author)
}

/// Like [`record_config_write`], with an open store.
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
