//! The key of the state directory, with which authorizations are made.

use std::io::{self, Write};
use std::path::Path;

use interlock_run::AuthorizationKey;

use crate::local::HostError;

const NAME: &str = "run.key";
const LENGTH: usize = 32;

/// Reads the key; the first one to ask makes it.
pub(super) fn load_or_create(state_dir: &Path) -> Result<AuthorizationKey, HostError> {
    let path = state_dir.join(NAME);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(state_dir, &path).and_then(|()| read(&path))
        }
        outcome => outcome,
    }
    .map_err(|error| HostError::Edit {
        code: "RUN_KEY_UNUSABLE",
        message: format!("{}: {error}", path.display()),
        remedy: "remove the file: a new key is made, and nothing else is lost".to_owned(),
    })
}

fn read(path: &Path) -> io::Result<AuthorizationKey> {
    let bytes = std::fs::read(path)?;
    let key: [u8; LENGTH] = bytes
        .try_into()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not a key of 32 bytes"))?;
    Ok(AuthorizationKey::from_bytes(key))
}

/// Complete before it has its name, and never in place of another one.
fn create(state_dir: &Path, path: &Path) -> io::Result<()> {
    let mut key = [0; LENGTH];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    // Mode 0600 from the start.
    let mut file = tempfile::Builder::new()
        .prefix(".run-key-")
        .tempfile_in(state_dir)?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
