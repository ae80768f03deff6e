//! The container of a scope, where the sandbox shows an image in place of this system.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The container whose root file system a run sees. The image is named by its id, so that another image
/// under the same name is another plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerPlan {
    /// The socket of the engine's API.
    pub socket: String,
    pub name: String,
    /// As the config names it.
    pub image: String,
    /// What the name stood for when the run was judged: `sha256:…`.
    pub image_id: String,
    /// Runs once in a new container, which is removed if it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_command: Option<String>,
    /// The home directory as runs see it, and where it lies on the host.
    pub home: String,
    pub home_source: String,
    /// Variables that the image sets, and then those of the config.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
