//! Caches the config in a long-lived process. The file is read again only when it has changed, and
//! the last valid config stays in force while the file is invalid. If the invalid file asks for a
//! sandbox, that is remembered: the last valid config must not run on the host what the owner wants
//! confined.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interlock_config::{ConfigError, ConfigFile};

/// How old a change must be to rely on the file's times. Times of file systems are coarse, so a
/// file that was just changed may change again with the same times.
const STEP: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct ConfigCache(Mutex<CachedConfig>);

#[derive(Debug, Default)]
struct CachedConfig {
    good: Option<Arc<ConfigFile>>,
    /// The file that was read last, valid or not.
    seen: Option<SeenFile>,
    /// How the invalid file asks for a sandbox that this version does not have.
    unmet_sandbox: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct SeenFile {
    stamp: Stamp,
    is_settled: bool,
    is_good: bool,
}

/// Values that change when the file changes. `None` if the file does not exist.
type Stamp = Option<[i64; 7]>;

impl ConfigCache {
    pub(crate) fn load(&self, path: &Path) -> Result<Arc<ConfigFile>, ConfigError> {
        // Take the stamp before reading: a change in between then leads to another read.
        let (stamp, is_settled) = look(path);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.seen.filter(|seen| seen.stamp == stamp);
        if let (
            Some(SeenFile {
                is_settled: true, ..
            }),
            Some(good),
        ) = (before, &kept.good)
        {
            return Ok(Arc::clone(good));
        }
        let loaded = ConfigFile::load(path);
        kept.seen = Some(SeenFile {
            stamp,
            is_settled,
            is_good: loaded.is_ok(),
        });
        let unmet = loaded.as_ref().err().and_then(ConfigError::unmet_sandbox);
        kept.unmet_sandbox = unmet.map(ToString::to_string);
        match (loaded, &kept.good) {
            (Ok(file), _) => {
                let file = Arc::new(file);
                kept.good = Some(Arc::clone(&file));
                Ok(file)
            }
            (Err(error), None) => Err(error),
            (Err(error), Some(good)) => {
                // Log once for each state of the file.
                if before.is_none_or(|seen| seen.is_good) {
                    tracing::error!(%error, "the config cannot be used; the one before it stays in force");
                }
                Ok(Arc::clone(good))
            }
        }
    }

    /// How the last read file asks for an unavailable sandbox. Nothing may run while it does.
    pub(crate) fn unmet_sandbox(&self) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.unmet_sandbox.clone()
    }
}

fn look(path: &Path) -> (Stamp, bool) {
    let Ok(metadata) = std::fs::metadata(path) else {
        // A missing file is always the same.
        return (None, true);
    };
    let stamp = [
        metadata.dev().cast_signed(),
        metadata.ino().cast_signed(),
        metadata.size().cast_signed(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ];
    let changed = u64::try_from(metadata.ctime().max(metadata.mtime())).unwrap_or_default();
    let changed = UNIX_EPOCH + Duration::from_secs(changed);
    let since = SystemTime::now().duration_since(changed);
    (Some(stamp), since.is_ok_and(|since| since > STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_that_cannot_be_used_leaves_the_last_good_one_in_force() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("interlock.json");
        let cache = ConfigCache::default();
        std::fs::write(&path, "{ tools: { deny: 1 } }").unwrap();
        assert!(cache.load(&path).is_err(), "there is none before it");
        std::fs::write(&path, "{ gateway: { port: 4000 } }").unwrap();
        let port = || cache.load(&path).unwrap().config().gateway.port;
        assert_eq!(port(), Some(4000));
        std::fs::write(&path, "{ gateway: { port: \"x\" } }").unwrap();
        assert_eq!(port(), Some(4000));
        assert_eq!(port(), Some(4000));
        std::fs::write(&path, "{ gateway: { port: 5000 } }").unwrap();
        assert_eq!(port(), Some(5000));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(port(), None);
    }

    #[test]
    fn a_file_that_asks_for_a_sandbox_is_remembered_until_it_no_longer_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("interlock.json");
        let cache = ConfigCache::default();
        let unmet_with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            cache.load(&path).unwrap();
            cache.unmet_sandbox()
        };
        assert_eq!(unmet_with("{ gateway: { port: 4000 } }"), None);
        let unmet = unmet_with("{ agents: { defaults: { sandbox: { backend: 'kubernetes' } } } }");
        assert!(unmet.unwrap().contains("not available in this version"));
        // Another mistake says nothing about a sandbox, so the last valid config is in force.
        assert_eq!(unmet_with("{ gateway: { port: 0 } }"), None);
        let unmet = unmet_with("{ agents: { list: [{ id: 'a', sandbox: { kubernetes: {} } }] } }");
        assert!(unmet.is_some());
        let off = "{ agents: { defaults: { sandbox: { mode: 'off' } } } }";
        assert_eq!(unmet_with(off), None);
    }

    #[test]
    fn a_file_that_has_not_changed_for_long_is_not_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("interlock.json");
        std::fs::write(&path, "{}").unwrap();
        let cache = ConfigCache::default();
        let first = cache.load(&path).unwrap();
        // Pretend that the file was read long after it was written.
        cache.0.lock().unwrap().seen.as_mut().unwrap().is_settled = true;
        assert!(Arc::ptr_eq(&first, &cache.load(&path).unwrap()));
    }
}
