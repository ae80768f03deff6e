//! What a sandbox may see. Confinement holds hooks and loaders inside, but nothing holds a secret
//! inside once the sandbox has a network: so here names that look like secrets are held back.

use std::collections::{BTreeMap, BTreeSet};

/// An environment sorted into what a sandbox gets and what is held back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct SandboxEnv {
    pub allowed: BTreeMap<String, String>,
    /// Names held back, sorted.
    pub blocked: BTreeSet<String>,
}

/// Holds back variables whose name looks like a secret, and those no program can receive.
pub fn for_sandbox(env: &BTreeMap<String, String>) -> SandboxEnv {
    let mut sorted = SandboxEnv::default();
    for (key, value) in env {
        if looks_secret(key) || key.is_empty() || key.contains(['=', '\0']) || value.contains('\0')
        {
            sorted.blocked.insert(key.clone());
        } else {
            sorted.allowed.insert(key.clone(), value.clone());
        }
    }
    sorted
}

/// Words that, as one part of a name between underscores, say that the value is a secret.
const SECRET_WORDS: &[&str] = &[
    "APIKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PRIVATEKEY",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];

/// Pairs of parts that are secrets only together: `KEY` alone may be a key of a map.
const SECRET_PAIRS: &[(&str, &str)] = &[
    ("ACCESS", "KEY"),
    ("API", "KEY"),
    ("AUTH", "KEY"),
    ("ENCRYPTION", "KEY"),
    ("PRIVATE", "KEY"),
    ("SIGNING", "KEY"),
];

/// Names without such a word whose value usually holds a password or opens a login.
const SECRET_NAMES: &[&str] = &[
    "AMQP_URL",
    "DATABASE_URL",
    "MONGODB_URI",
    "PGPASSWORD",
    "REDIS_URL",
    "SSH_AUTH_SOCK",
];

fn looks_secret(key: &str) -> bool {
    let upper = key.to_ascii_uppercase();
    let parts: Vec<&str> = upper.split(['_', '-', '.']).collect();
    SECRET_NAMES.contains(&upper.as_str())
        || parts.iter().any(|part| SECRET_WORDS.contains(part))
        || parts.windows(2).any(
            |pair| matches!(pair, [first, second] if SECRET_PAIRS.contains(&(*first, *second))),
        )
}
