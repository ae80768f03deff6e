//! The operator's secrets: read from files of mode 0600 or from the environment, compared in
//! constant time, never printed.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use interlock_config::{Config, GatewayAuthMode};
use interlock_wire::Secret;
use serde::{Deserialize, Serialize};

/// The file in the state directory.
const TOKEN_FILE: &str = "gateway.token";

/// Where the environment may hold a secret. Runs do not get these.
pub(crate) const VARIABLES: &[&str] = &[
    "INTERLOCK_GATEWAY_TOKEN",
    "OPENCLAW_GATEWAY_TOKEN",
    "INTERLOCK_GATEWAY_PASSWORD",
    "OPENCLAW_GATEWAY_PASSWORD",
];

const TOKEN_VARIABLES: &[&str] = VARIABLES.split_at(2).0;
const PASSWORD_VARIABLES: &[&str] = VARIABLES.split_at(2).1;

/// Longer secrets are mistakes.
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
    /// Nobody could come in by the network.
    #[error("gateway.auth.mode is `password`, and there is no password")]
    NoPassword,
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
        }
    }
}

/// Where the secret is that operators show by the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperatorSecret {
    TokenFile(PathBuf),
    /// In this variable of the gateway's environment.
    TokenVariable(String),
    PasswordFile(PathBuf),
    PasswordVariable(String),
}

impl OperatorSecret {
    /// As a gateway with this config and environment takes it.
    pub fn of(
        state_dir: &Path,
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
        let file = || TokenFile::of(state_dir, auth.token_file.as_deref()).0;
        let variable = variable(TOKEN_VARIABLES).map(Self::TokenVariable);
        Ok(variable.unwrap_or_else(|| Self::TokenFile(file())))
    }
}

/// The file with the operator token of a state directory.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    pub fn of(state_dir: &Path, configured: Option<&str>) -> Self {
        Self(configured.map_or_else(|| state_dir.join(TOKEN_FILE), PathBuf::from))
    }

    /// Another secret of the state directory, that nobody types.
    pub(crate) fn named(state_dir: &Path, name: &str) -> Self {
        Self(state_dir.join(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The token; it is made if there is no file yet.
    pub fn read_or_create(&self) -> Result<String, TokenError> {
        match read_secret(&self.0) {
            Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.create()
            }
            read => read,
        }
    }

    /// Written aside and linked: nobody ever reads half of it, and whoever is first wins.
    fn create(&self) -> Result<String, TokenError> {
        let token = Secret::generate().map_err(|error| TokenError::Random(error.to_string()))?;
        let token = token.expose().to_owned();
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
        let written = writeln!(file, "{token}").and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&aside, &self.0));
        let _ = fs::remove_file(&aside);
        match linked {
            Ok(()) => Ok(token),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_secret(&self.0),
            Err(error) => Err(failed(error)),
        }
    }
}

pub(super) fn operator_token(
    state_dir: &Path,
    configured: Option<&str>,
    environment: &BTreeMap<String, String>,
) -> Result<Secret, TokenError> {
    let token = match from_environment(environment, TOKEN_VARIABLES) {
        Some((_, token)) => token.to_owned(),
        None => TokenFile::of(state_dir, configured).read_or_create()?,
    };
    Ok(Secret::new(token))
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

/// The name and the value of the first that is set.
fn from_environment<'a>(
    environment: &'a BTreeMap<String, String>,
    names: &[&'a str],
) -> Option<(&'a str, &'a str)> {
    let values = names
        .iter()
        .filter_map(|name| Some((*name, environment.get(*name)?.trim())));
    values.into_iter().find(|(_, value)| !value.is_empty())
}

fn read_secret(path: &Path) -> Result<String, TokenError> {
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
    fn a_token_is_made_once_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = TokenFile::of(directory.path(), None);
        let first = file.read_or_create().unwrap();
        assert_eq!(first.len(), 43);
        assert_eq!(file.read_or_create().unwrap(), first);
        assert_eq!(fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = TokenFile::of(directory.path(), None);
        file.read_or_create().unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let error = file.read_or_create().unwrap_err();
        assert!(matches!(error, TokenError::Readable(_)));
        assert!(error.remedy().starts_with("chmod 600"));
    }
}
