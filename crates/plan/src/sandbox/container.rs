//! The container of a scope whose sandbox shows an image in place of this system.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The container whose root file system a run sees. The plan names the image by its id, so that
/// another image under the same name makes another plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerPlan {
    /// The socket of the engine's API.
    pub socket: String,
    pub name: String,
    /// The image as the config names it.
    pub image: String,
    /// The id that the name stood for at judgment: `sha256:…`.
    pub image_id: String,
    /// A command that runs once in a new container. If it fails, the container is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_command: Option<String>,
    /// The home directory as runs see it, and its place on the host.
    pub home: String,
    pub home_source: String,
    /// The variables of the image, then those of the config.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
