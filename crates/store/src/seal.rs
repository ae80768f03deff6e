//! Seals prove that this program wrote a row that lets something run, and not another program that
//! can write the database.
//!
//! The audit chain shows that a record was changed, but a process that can write the database can
//! also write a whole chain. So the approvals document, decisions and grants carry a seal, made
//! with a key in a file beside the database. Without the key no seal can be made, and a row without
//! its seal lets nothing run.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The name of the key file in the state directory.
pub const SEAL_KEY_NAME: &str = "store.key";

const LENGTH: usize = 32;

/// Separates these hashes from every other use of SHA-256.
const DOMAIN: &[u8] = b"interlock seal v1\0";

/// The key of a state directory.
pub(crate) struct SealKey([u8; LENGTH]);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

impl SealKey {
    /// Reads the key. The first process that needs the key creates it. Rows that an earlier key
    /// sealed count as unsealed.
    pub(crate) fn load_or_create(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join(SEAL_KEY_NAME);
        match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(&path, state_dir)?;
                read(&path)
            }
            key => key,
        }
    }

    /// Returns the seal of a row. It covers the kind of the row and all of its values.
    pub(crate) fn seal(&self, what: &str, values: &impl Serialize) -> [u8; LENGTH] {
        // Different values have different JSON texts: strings are quoted, and list items are
        // separated.
        let text = serde_json::to_string(&(what, values)).unwrap_or_default();
        let inner = Sha256::new().chain_update(DOMAIN).chain_update(self.0);
        let inner = inner.chain_update(text.as_bytes()).finalize();
        let outer = Sha256::new().chain_update(DOMAIN).chain_update(self.0);
        outer.chain_update(inner).finalize().into()
    }

    pub(crate) fn is_sealed(
        &self,
        what: &str,
        values: &impl Serialize,
        seal: Option<&[u8]>,
    ) -> bool {
        let own = self.seal(what, values);
        let Some(seal) = seal.filter(|seal| seal.len() == LENGTH) else {
            return false;
        };
        // The comparison takes constant time, because its duration must not reveal the seal.
        let differs = |(a, b): (&u8, &u8)| a ^ b;
        own.iter()
            .zip(seal)
            .map(differs)
            .fold(0, |all, one| all | one)
            == 0
    }
}

fn read(path: &Path) -> io::Result<SealKey> {
    let mut key = [0; LENGTH];
    let mut file = std::fs::File::open(path)?;
    file.read_exact(&mut key)?;
    Ok(SealKey(key))
}

/// Creates the key file. The file is complete before it gets its name, and it never replaces
/// another key.
fn create(path: &Path, state_dir: &Path) -> io::Result<()> {
    let mut key = [0; LENGTH];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let mut file = tempfile::Builder::new()
        .prefix(".store-key-")
        .tempfile_in(state_dir)?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
