//! Decides which variables a sandbox may see. A sandbox confines hooks and loaders, but it cannot
//! confine a secret once it has a network. So names that look like secrets are held back here.

use std::collections::{BTreeMap, BTreeSet};

/// An environment, split into what the sandbox gets and what is held back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct SandboxEnv {
    pub allowed: BTreeMap<String, String>,
    /// The names that are held back, sorted.
    pub blocked: BTreeSet<String>,
}

/// Holds back variables whose name looks like a secret, and variables that no program can receive.
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

/// Words that mark a secret if they are one part of a name between underscores.
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

/// Pairs of parts that mark a secret only together: `KEY` alone may be the key of a map.
const SECRET_PAIRS: &[(&str, &str)] = &[
    ("ACCESS", "KEY"),
    ("API", "KEY"),
    ("AUTH", "KEY"),
    ("ENCRYPTION", "KEY"),
    ("PRIVATE", "KEY"),
    ("SIGNING", "KEY"),
];

/// Names without such a word whose value usually contains a password or gives access to a login.
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
