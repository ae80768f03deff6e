//! SHA-256 in lower-case hexadecimal.

use sha2::{Digest, Sha256};

pub(crate) fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble & 15)]);
    let hash = Sha256::digest(bytes);
    hash.iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}
