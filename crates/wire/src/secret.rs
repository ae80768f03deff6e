//! A text that proves something: a token or a password. It is never printed, and comparing it takes
//! the same time for every guess.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A secret that this program holds.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Generates 32 random bytes, written as 43 characters.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self::new(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Whether the guess is right. The hashes are compared, so the time of the comparison reveals
    /// neither content nor length. An empty secret never matches, because it would protect nothing.
    #[must_use]
    pub fn matches(&self, guess: &str) -> bool {
        let equal = Sha256::digest(self.0.as_bytes())[..].ct_eq(&Sha256::digest(guess)[..]);
        bool::from(equal) && !self.0.is_empty()
    }

    /// The text itself, for sending or storing. It must never be logged or compared.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// For tests and for values that are compared as a whole. Also takes constant time.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_empty() && other.0.is_empty() || self.matches(&other.0)
    }
}

impl Eq for Secret {}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}
