//! The key of the state directory that signs authorizations.

use std::io::{self, Write};
use std::path::Path;

use interlock_engine::AuthorizationKey;

use crate::local::HostError;

const LENGTH: usize = 32;

/// Reads the key. The first call creates it.
pub(super) fn load_or_create(path: &Path) -> Result<AuthorizationKey, HostError> {
    match AuthorizationKey::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(path).and_then(|()| AuthorizationKey::read(path))
        }
        outcome => outcome,
    }
    .map_err(|error| HostError::Setup {
        code: "RUN_KEY_UNUSABLE",
        message: format!("{}: {error}", path.display()),
        remedy: "remove the file: a new key is made, and nothing else is lost".to_owned(),
    })
}

/// Creates the key file. The file is complete before it gets its name, and it never replaces an
/// existing key.
fn create(path: &Path) -> io::Result<()> {
    let mut key = [0; LENGTH];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    // Mode 0600 from the start.
    let mut file = tempfile::Builder::new()
        .prefix(".run-key-")
        .tempfile_in(path.parent().unwrap_or(Path::new("/")))?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
