//! The workspaces of agents: their paths, their creation, and whether one of them contains the
//! config.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use interlock_config::Config;
use interlock_policy::AgentId;

use crate::state::{HostError, LocalState};

/// How many links are followed before a path counts as a loop.
const MAX_LINKS: usize = 40;

/// Why a call has no directory to start in.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error(
        "the agent `{0}` has no workspace: neither XDG_DATA_HOME nor HOME names a directory for it"
    )]
    Required(AgentId),
    #[error("the workspace {} cannot be made: {source}", path.display())]
    NotMade {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Host(#[from] HostError),
}

impl WorkspaceError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Required(_) => "WORKDIR_REQUIRED",
            Self::NotMade { .. } => "WORKSPACE_NOT_MADE",
            Self::Host(error) => error.code(),
        }
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Required(_) | Self::NotMade { .. } => Some(
                "name an absolute workdir, or have the owner set agents.list[].workspace for this agent"
                    .to_owned(),
            ),
            Self::Host(error) => error.remedy(),
        }
    }
}

/// The refusal of a config that starts a program although an agent could change the config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "gateway.wake.command is not accepted from {}: {why}",
    config.display()
)]
pub struct ConfigInWorkspace {
    pub config: PathBuf,
    why: String,
}

impl ConfigInWorkspace {
    pub const CODE: &'static str = "CONFIG_IN_WORKSPACE";

    pub fn remedy() -> &'static str {
        "move the workspace or the config file, so that no agent's workspace contains the config file"
    }
}

impl LocalState {
    /// Checks whether `gateway.wake.command` of this config may be used. It must not be used if the
    /// workspace of any agent contains the config file, a link on the path to it, or another name
    /// of it.
    pub fn check_wake_command(&self, config: &Config) -> Result<(), ConfigInWorkspace> {
        let command = config.gateway.wake.command.as_deref();
        if command.is_none_or(<[String]>::is_empty) {
            return Ok(());
        }
        let refused = |why: String| ConfigInWorkspace {
            config: self.config_path().to_owned(),
            why,
        };
        let places = places_of(self.config_path())
            .map_err(|error| refused(format!("it cannot be found: {error}")))?;
        for workspace in self.workspaces(config) {
            let holds = |place: &PathBuf| contains(&workspace, place);
            if places.iter().any(holds) {
                let why = format!("the workspace {} contains it", workspace.display());
                return Err(refused(why));
            }
        }
        match std::fs::metadata(self.config_path()) {
            Ok(metadata) if metadata.nlink() > 1 => Err(refused(
                "it has more than one name, and an agent may have another one".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// All workspaces of agents, and the directory with the workspaces that no config names.
    fn workspaces(&self, config: &Config) -> Vec<PathBuf> {
        let of_agents = config.agents.list.iter().map(|agent| &agent.workspace);
        let named = of_agents.chain([&config.agents.defaults.workspace]);
        let home = self.home();
        let named = named.flatten().filter_map(|text| path_in_home(text, home));
        let unnamed = default_workspaces(self.data_home(), home);
        named.chain(unnamed).collect()
    }
}

/// Creates the private directory of an agent.
pub(crate) fn make(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether a directory is `/` or contains the home directory. Such a workspace would contain files
/// that run later, and everything else of the owner.
pub(crate) fn is_too_wide(directory: &Path, home: Option<&Path>) -> bool {
    let real = |home: &Path| std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    directory.parent().is_none() || home.is_some_and(|home| real(home).starts_with(directory))
}

/// A path of the config with `~` expanded to the home directory.
pub(crate) fn path_in_home(text: &str, home: Option<&str>) -> Option<PathBuf> {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            Some(Path::new(home?).join(rest.trim_start_matches('/')))
        }
        _ => Some(PathBuf::from(text)),
    }
}

/// The parent directory of workspaces that no config names.
pub(crate) fn default_workspaces(data: Option<&str>, home: Option<&str>) -> Option<PathBuf> {
    let is_usable = |path: &PathBuf| path.is_absolute();
    let data = data.map(PathBuf::from).filter(is_usable);
    let data = data.or_else(|| {
        let home = home.filter(|home| !home.is_empty())?;
        Some(Path::new(home).join(".local/share")).filter(is_usable)
    })?;
    Some(data.join("interlock/workspaces"))
}

/// The file at a path and every link on the way to it, each with the canonical path of its
/// directory.
fn places_of(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut places = Vec::new();
    let mut next = std::path::absolute(path)?;
    for _ in 0..MAX_LINKS {
        let (Some(parent), Some(name)) = (next.parent(), next.file_name()) else {
            return Ok(places);
        };
        places.push(next.clone());
        let real = std::fs::canonicalize(parent)?.join(name);
        places.push(real.clone());
        match std::fs::read_link(&real) {
            Ok(target) => next = real.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(places),
        }
    }
    Err(std::io::Error::other("too many links"))
}

/// Whether a workspace contains a path. It is compared by name, and also by device and inode of the
/// directories above the path.
pub fn contains(workspace: &Path, place: &Path) -> bool {
    if std::path::absolute(workspace).is_ok_and(|workspace| place.starts_with(workspace)) {
        return true;
    }
    let id = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let Some(workspace_id) = id(workspace) else {
        return false;
    };
    place
        .ancestors()
        .any(|above| id(above) == Some(workspace_id))
}
