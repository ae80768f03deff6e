//! The sources of operators' secrets. Tokens are stored only as hashes. A secret in a file or a
//! variable is never printed.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_config::{Config, GatewayAuthMode};
use interlock_host::{HostError, LocalHost};
use interlock_wire::Secret;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The file in which earlier versions stored the operator token in plain text.
const PLAIN_TOKEN: &str = "gateway.token";

/// The prefix of incomplete files that earlier versions left when they were killed while writing
/// it.
const PLAIN_TOKEN_ASIDE: &str = "gateway.new-";

/// The key of the state directory that signs wake calls.
const WAKE_KEY: &str = "wake.key";

/// The environment variables that may hold a secret. Runs do not get them.
pub const VARIABLES: &[&str] = &[
    "INTERLOCK_GATEWAY_TOKEN",
    "OPENCLAW_GATEWAY_TOKEN",
    "INTERLOCK_GATEWAY_PASSWORD",
    "OPENCLAW_GATEWAY_PASSWORD",
];

const TOKEN_VARIABLES: &[&str] = VARIABLES.split_at(2).0;
const PASSWORD_VARIABLES: &[&str] = VARIABLES.split_at(2).1;

/// A longer secret is a mistake.
const MAX_BYTES: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{0}: others may read it")]
    Readable(PathBuf),
    #[error("{0}: holds no secret")]
    Empty(PathBuf),
    #[error("no random numbers: {0}")]
    Random(String),
    #[error("gateway.auth.mode is `password`, and there is no password")]
    NoPassword,
    #[error("the operator token of an earlier version: {0}")]
    NotTakenOver(#[from] HostError),
}

impl TokenError {
    pub fn remedy(&self) -> String {
        match self {
            Self::Readable(path) => format!("chmod 600 {}", path.display()),
            Self::File { path, .. } | Self::Empty(path) => {
                format!("write the secret into {}, mode 0600", path.display())
            }
            Self::Random(_) => "try again".to_owned(),
            Self::NoPassword => format!(
                "set gateway.auth.passwordFile to a file of mode 0600 that holds it, or {}",
                PASSWORD_VARIABLES[0]
            ),
            Self::NotTakenOver(error) => error.remedy().unwrap_or_default(),
        }
    }
}

/// The secret that operators present on the network, and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperatorAccess {
    /// A token that `gateway token --new` printed.
    MintedToken,
    /// A minted token, or the value of this variable of the gateway's environment.
    TokenVariable(String),
    PasswordFile(PathBuf),
    PasswordVariable(String),
}

impl OperatorAccess {
    /// The secret that a gateway with this config and environment demands.
    pub(super) fn configured(
        config: &Config,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, TokenError> {
        let auth = &config.gateway.auth;
        let variable = |names| Some(from_environment(environment, names)?.0.to_owned());
        if auth.mode == Some(GatewayAuthMode::Password) {
            let file = || auth.password_file.as_ref().map(PathBuf::from);
            let variable = variable(PASSWORD_VARIABLES).map(Self::PasswordVariable);
            return variable
                .or_else(|| file().map(Self::PasswordFile))
                .ok_or(TokenError::NoPassword);
        }
        let variable = variable(TOKEN_VARIABLES).map(Self::TokenVariable);
        Ok(variable.unwrap_or(Self::MintedToken))
    }
}

/// Migrates the operator token that an earlier version stored in plain text: stores its hash, so
/// that clients with the token continue to work, and removes the file. A token that others could
/// read, or that the gateway did not accept, is only removed.
pub fn take_over_plain_token(host: &LocalHost, config: &Config) -> Result<(), TokenError> {
    remove_unfinished(host.state_dir());
    let path = host.state_dir().join(PLAIN_TOKEN);
    let taken = match read_secret(&path) {
        // Where a password is demanded, the token was never accepted.
        Ok(_) if config.gateway.auth.mode == Some(GatewayAuthMode::Password) => false,
        Ok(token) => {
            keep_wake_key(host.state_dir(), &token)?;
            host.take_over_operator_token(&token)?;
            true
        }
        Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(TokenError::Readable(_) | TokenError::Empty(_)) => false,
        Err(error) => return Err(error),
    };
    let failed = |source| TokenError::File {
        path: path.clone(),
        source,
    };
    fs::remove_file(&path).map_err(failed)?;
    // Without a sync, a crash of the machine could undo the removal and leave the plain text
    // behind.
    let directory = fs::File::open(host.state_dir()).map_err(failed)?;
    directory.sync_all().map_err(failed)?;
    if taken {
        tracing::warn!(
            "the operator token of an earlier version is kept as a hash now; removed {}",
            path.display()
        );
    } else {
        tracing::warn!(
            "removed {}: the operator token in it was not in use or open to others, and is worth \
             nothing now; mint another one: interlock gateway token --new",
            path.display()
        );
    }
    Ok(())
}

fn remove_unfinished(state_dir: &Path) {
    for entry in fs::read_dir(state_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name
            .to_str()
            .is_some_and(|name| name.starts_with(PLAIN_TOKEN_ASIDE))
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Keeps the wake key. Receivers of wake calls derived their key from the operator token and must
/// continue with it.
fn keep_wake_key(state_dir: &Path, token: &str) -> Result<(), TokenError> {
    let file = SecretFile::named(state_dir, WAKE_KEY);
    if file.0.exists() {
        return Ok(());
    }
    let key = wake_key_of_token(token).map_or_else(String::new, |key| hexadecimal(&key));
    file.create(&Secret::new(key)).map(drop)
}

/// The key that signs wake calls: derived from the token of the environment, so that holders of the
/// token know it, or else the state directory's own key.
pub(super) fn wake_key(
    state_dir: &Path,
    from_environment: Option<&Secret>,
) -> Result<Vec<u8>, TokenError> {
    if let Some(key) = from_environment.and_then(|token| wake_key_of_token(token.expose())) {
        return Ok(key.to_vec());
    }
    let file = SecretFile::named(state_dir, WAKE_KEY);
    let text = match read_secret(&file.0) {
        Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
            file.create(&Secret::new(hexadecimal(&bytes)))?
        }
        read => read?,
    };
    // The owner may have written any text as the key. A key of this program is 64 digits for 32
    // bytes.
    Ok(bytes_of(&text).unwrap_or_else(|| text.into_bytes()))
}

fn wake_key_of_token(token: &str) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).ok()?;
    mac.update(b"interlock wake v1");
    Some(mac.finalize().into_bytes().into())
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok()?;
        let is_plain = pair.iter().all(u8::is_ascii_hexdigit);
        is_plain.then(|| u8::from_str_radix(digits, 16).ok())?
    };
    pairs.iter().map(byte).collect()
}

/// A file of mode 0600 in the state directory, with a secret that only this program uses.
#[derive(Debug, Clone)]
pub struct SecretFile(PathBuf);

impl SecretFile {
    pub fn named(state_dir: &Path, name: &str) -> Self {
        Self(state_dir.join(name))
    }

    /// Reads the secret, or generates it if there is no file yet.
    pub fn read_or_create(&self) -> Result<String, TokenError> {
        self.read_or_create_as(|| {
            Secret::generate().map_err(|error| TokenError::Random(error.to_string()))
        })
    }

    /// Like [`Self::read_or_create`], for a secret of another form.
    pub fn read_or_create_as(
        &self,
        make: impl FnOnce() -> Result<Secret, TokenError>,
    ) -> Result<String, TokenError> {
        match read_secret(&self.0) {
            Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.create(&make()?)
            }
            read => read,
        }
    }

    /// Writes the file under a temporary name and links it: no reader ever sees an incomplete
    /// secret, and the first writer wins.
    fn create(&self, secret: &Secret) -> Result<String, TokenError> {
        let failed = |source| TokenError::File {
            path: self.0.clone(),
            source,
        };
        let aside = self
            .0
            .with_extension(format!("new-{}", uuid::Uuid::new_v4().simple()));
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&aside)
            .map_err(failed)?;
        let written = writeln!(file, "{}", secret.expose()).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&aside, &self.0));
        let _ = fs::remove_file(&aside);
        match linked {
            Ok(()) => Ok(secret.expose().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_secret(&self.0),
            Err(error) => Err(failed(error)),
        }
    }
}

/// The token that the gateway's own environment holds.
pub(super) fn token_of_environment(environment: &BTreeMap<String, String>) -> Option<Secret> {
    from_environment(environment, TOKEN_VARIABLES).map(|(_, token)| Secret::new(token))
}

pub(super) fn password(
    file: Option<&str>,
    environment: &BTreeMap<String, String>,
) -> Result<Option<Secret>, TokenError> {
    let password = match (from_environment(environment, PASSWORD_VARIABLES), file) {
        (Some((_, password)), _) => Some(password.to_owned()),
        (None, Some(file)) => Some(read_secret(Path::new(file))?),
        (None, None) => None,
    };
    Ok(password.map(Secret::new))
}

/// The name and value of the first variable that is set.
fn from_environment<'a>(
    environment: &'a BTreeMap<String, String>,
    names: &[&'a str],
) -> Option<(&'a str, &'a str)> {
    let values = names
        .iter()
        .filter_map(|name| Some((*name, environment.get(*name)?.trim())));
    values.into_iter().find(|(_, value)| !value.is_empty())
}

/// Reads the secret in a file. Others must not be able to read the file.
pub fn read_secret(path: &Path) -> Result<String, TokenError> {
    let failed = |source| TokenError::File {
        path: path.to_owned(),
        source,
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(TokenError::Readable(path.to_owned()));
    }
    if metadata.len() > MAX_BYTES {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let text = text.trim();
    if text.is_empty() {
        return Err(TokenError::Empty(path.to_owned()));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_made_once_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::named(directory.path(), "devices.key");
        let first = file.read_or_create().unwrap();
        assert_eq!(first.len(), 43);
        assert_eq!(file.read_or_create().unwrap(), first);
        assert_eq!(fs::metadata(&file.0).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = SecretFile::named(directory.path(), "devices.key");
        file.read_or_create().unwrap();
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o644)).unwrap();
        let error = file.read_or_create().unwrap_err();
        assert!(matches!(error, TokenError::Readable(_)));
        assert!(error.remedy().starts_with("chmod 600"));
    }

    #[test]
    fn wake_calls_are_signed_with_one_key_for_good() {
        let directory = tempfile::tempdir().unwrap();
        let own = wake_key(directory.path(), None).unwrap();
        assert_eq!(own.len(), 32);
        assert_eq!(wake_key(directory.path(), None).unwrap(), own);
        let token = Secret::new("a token of the environment");
        let known = wake_key(directory.path(), Some(&token)).unwrap();
        assert_eq!(known, wake_key_of_token(token.expose()).unwrap());
        assert_ne!(known, own);
    }
}
