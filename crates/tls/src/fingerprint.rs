//! A certificate's identity: its SHA-256.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The SHA-256 of a certificate in its binary form.
#[derive(Clone, Copy)]
pub struct Fingerprint([u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is the SHA-256 of a certificate: 64 hexadecimal digits")]
pub struct NotAFingerprint;

impl Fingerprint {
    /// The fingerprint of a certificate in its binary form.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Parses hexadecimal digits, with or without colons and the prefix `sha256:`.
    pub fn parse(text: &str) -> Result<Self, NotAFingerprint> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.strip_prefix("sha256:").unwrap_or(&text);
        let digits: Vec<u8> = text
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()
            .ok_or(NotAFingerprint)?;
        let bytes: Vec<u8> = digits
            .chunks(2)
            .filter_map(|pair| Some(pair[0] << 4 | pair.get(1)?))
            .collect();
        match <[u8; 32]>::try_from(bytes) {
            Ok(bytes) if digits.len() == 64 => Ok(Self(bytes)),
            _ => Err(NotAFingerprint),
        }
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        self.0[..].ct_eq(&other.0[..]).into()
    }
}

impl Eq for Fingerprint {}

/// The form that `--tls-fingerprint` accepts.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_fingerprint_is_read_in_the_usual_forms() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        let read = Fingerprint::parse(&plain).unwrap();
        assert_eq!(read, Fingerprint([0xab; 32]));
        assert_eq!(read.to_string(), plain);
        assert_eq!(Fingerprint::parse(&colons).unwrap(), read);
        let named = format!("sha256:{plain}");
        assert_eq!(Fingerprint::parse(&named).unwrap(), read);
        for bad in [
            "",
            "ab",
            &plain[1..],
            &format!("{plain}a"),
            &plain.replace('a', "g"),
        ] {
            assert_eq!(Fingerprint::parse(bad), Err(NotAFingerprint), "{bad}");
        }
    }
}
