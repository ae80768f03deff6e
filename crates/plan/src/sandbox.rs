//! The sandbox of a run: the value that the run, `explain`, prompts and audit records share. It is
//! part of the plan and of its digest, so that the judged and approved sandbox is the one that
//! confines.

use serde::{Deserialize, Serialize};

pub use container::ContainerPlan;
pub use layer::{LayerRecord, layer_directory};
pub use network::{
    AddressReach, HOST_INTERNAL, HostEntry, HostEntryList, HostName, HostVerdict,
    SandboxNetworkRules, TargetHost, is_own_block, plain_address,
};
pub use programs::{DeniedProgram, ProgramLogRules, StartedProgram, StartedPrograms};
pub use remote::{FarRun, SshPlan};
pub use summary::SandboxSummary;

choice! {
    /// The mechanism that makes a sandbox.
    SandboxBackend {
        /// Interlock itself, with namespaces of the kernel.
        Native = "native",
        /// The program bubblewrap makes the namespaces of a scope, and Interlock does the rest.
        Bwrap = "bwrap",
        /// Like `native`, with the root file system of a container that Docker Engine made.
        Docker = "docker",
        /// Like `native`, with the root file system of a container that Podman made.
        Podman = "podman",
        /// Landlock rules and a filter, without namespaces: for hosts that cannot make namespaces.
        Landlock = "landlock",
        /// Another machine, by the system's ssh client.
        Ssh = "ssh",
    }

    /// Which files of the host a run sees.
    SandboxView {
        /// System directories, the workspace and the entries of `binds`.
        Minimal = "minimal",
        /// The whole root, read-only, without the paths of the mask table.
        Host = "host",
    }

    /// The access of a run to the workspace.
    WorkspaceAccess {
        /// The run sees a scratch workspace instead.
        None = "none",
        Ro = "ro",
        Rw = "rw",
        /// The run changes its own layer over the workspace, which is committed when the run ends.
        Cow = "cow",
    }

    /// Which Unix sockets a run may use.
    UnixSockets {
        /// Sockets that the run makes itself.
        Own = "own",
        /// Only pairs of stream sockets.
        None = "none",
    }

    /// What happens to the changes of a run.
    SandboxEffects {
        /// They take effect at once, or are committed when the run ends.
        Direct = "direct",
        /// They are only committed if an approver allows exactly these changes.
        Preview = "preview",
    }

    /// Which programs the processes of a run may start.
    SandboxTree {
        /// All programs that the view shows.
        Off = "off",
        /// All programs that the view shows, except those that deny rules name. Each start is
        /// recorded.
        Log = "log",
        /// The programs that the plan lists, enforced by the kernel.
        Enforce = "enforce",
    }
}

mod container;
mod layer;
mod network;
mod programs;
mod remote;
mod summary;

/// Everything that confines one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxPlan {
    pub backend: SandboxBackend,
    /// The sharers of this sandbox, in words: `agent main`.
    pub scope: String,
    /// The name of the scope's directory: a hash, since ids must never become paths.
    pub scope_id: String,
    /// The scope's directory on the host. A run holds it, so that it is not removed meanwhile.
    pub scope_directory: String,
    pub view: SandboxView,
    pub workspace_access: WorkspaceAccess,
    /// The canonical path on the host.
    pub workspace: String,
    pub user: SandboxUser,
    /// The working directory as the run sees it.
    pub cwd: String,
    /// The mounts of the run, in the order of mounting.
    pub mounts: Vec<SandboxMount>,
    pub unix_sockets: UnixSockets,
    /// The hosts that a run reaches. `None` means only a loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<SandboxNetworkRules>,
    pub limits: SandboxLimits,
    /// With `tree: enforce`, the files that a run may execute, as it sees them, and directories of
    /// such files. `None` means all files that it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executables: Option<Vec<String>>,
    /// With `tree: log`, and in a preview: the started programs are recorded, and these ones
    /// refused. `None` means that they are not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_log: Option<ProgramLogRules>,
    /// Whether the run is a preview, about whose changes an approver decides.
    #[serde(
        default = "SandboxEffects::direct",
        skip_serializing_if = "SandboxEffects::is_direct"
    )]
    pub effects: SandboxEffects,
    /// Workspace paths that the owner protects besides the default ones. They count when the
    /// changes of a run are committed; where a run writes directly, they are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// The container whose root file system a run sees in place of the host's system directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerPlan>,
    /// The machine on which runs are carried out, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshPlan>,
}

impl SandboxEffects {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    fn is_direct(&self) -> bool {
        *self == Self::Direct
    }

    fn direct() -> Self {
        Self::Direct
    }
}

impl SandboxPlan {
    /// Whether runs see another system than this host's, so that no file of this host identifies
    /// their programs.
    pub fn shows_other_system(&self) -> bool {
        self.container.is_some() || self.ssh.is_some()
    }

    /// The path by which a run sees a directory or file of the host, if it is shown at all: through
    /// the mount with the nearest source.
    pub fn path_inside(&self, host_path: &str) -> Option<String> {
        let shown = self.mounts.iter().filter_map(|mount| match mount {
            SandboxMount::Bind { source, target, .. }
            | SandboxMount::Overlay { source, target, .. }
            | SandboxMount::Cache { source, target, .. } => {
                let rest = rest_below(source, host_path)?;
                Some((source.len(), format!("{target}{rest}")))
            }
            _ => None,
        });
        shown
            .max_by_key(|(length, _)| *length)
            .map(|(_, inside)| inside)
    }

    /// The directory that runs change in a separate layer, if there is one.
    pub fn overlay(&self) -> Option<&SandboxMount> {
        let is_overlay = |mount: &&SandboxMount| matches!(mount, SandboxMount::Overlay { .. });
        self.mounts.iter().find(is_overlay)
    }
}

/// The rest of a path after a directory, if the path is the directory or below it.
fn rest_below<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The user of a sandboxed run, inside and outside of its user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxUser {
    pub uid: u32,
    pub gid: u32,
    pub host_uid: u32,
    pub host_gid: u32,
}

/// The limits of one run. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Thousandths of one processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milli_cpus: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// The size of each private file system in memory.
    pub tmp_bytes: u64,
    /// How much space stays free on file systems of the host that the run writes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
}

/// The owner of a mount's files on the host. Inside, the files belong to the user of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountOwner {
    pub uid: u32,
    pub gid: u32,
}

/// Whether a mount can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountAccess {
    Ro,
    Rw,
}

impl MountAccess {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
        }
    }
}

/// One step of the view of a run. Every path is absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SandboxMount {
    /// A directory or file of the host, with everything that is mounted in it. Device and inode
    /// must be those of the checked one.
    Bind {
        source: String,
        device: u64,
        inode: u64,
        target: String,
        access: MountAccess,
        /// The owner whose files appear as those of the run's user, if the owners differ.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<MountOwner>,
        reason: String,
    },
    /// The root of the scope's container, read-only, except for the places of other mounts.
    Image { image: String },
    /// A directory of the host under a layer that belongs to the run alone. The layer gets the
    /// run's changes, and the directory stays as it is. Mounts within the directory are not shown.
    Overlay {
        source: String,
        device: u64,
        inode: u64,
        target: String,
        /// The owner whose files appear as those of the run's user, if the owners differ.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<MountOwner>,
        reason: String,
    },
    /// A directory of the host under a layer that belongs to the scope. Its runs share what they
    /// write there, and the directory stays as it is. Mounts within the directory are not shown.
    Cache {
        source: String,
        device: u64,
        inode: u64,
        target: String,
        /// The owner whose files appear as those of the run's user, if the owners differ.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<MountOwner>,
        /// The name of the layer in the scope's directory.
        layer: String,
        reason: String,
    },
    /// A second place for what the sandbox shows at `from`.
    Copy {
        from: String,
        target: String,
        access: MountAccess,
        reason: String,
    },
    /// Turns a shown directory or file into a separate mount: it can be neither renamed nor
    /// replaced, and with `ro` not written to.
    Hold {
        target: String,
        access: MountAccess,
        reason: String,
    },
    /// Hides a path. Does nothing if the path does not exist.
    Cover { target: String, reason: String },
    /// A private file system in memory.
    Memory {
        target: String,
        mode: u32,
        reason: String,
    },
    /// A symbolic link.
    Link { target: String, to: String },
    /// The run's own processes at `/proc`, with paths that reach the system covered.
    Processes,
    /// A few devices at `/dev`, and the run's own terminals.
    Devices,
}

impl SandboxMount {
    /// The path at which the run sees the mount.
    pub fn target(&self) -> &str {
        match self {
            Self::Bind { target, .. }
            | Self::Overlay { target, .. }
            | Self::Cache { target, .. }
            | Self::Copy { target, .. }
            | Self::Hold { target, .. }
            | Self::Cover { target, .. }
            | Self::Memory { target, .. }
            | Self::Link { target, .. } => target,
            Self::Image { .. } => "/",
            Self::Processes => "/proc",
            Self::Devices => "/dev",
        }
    }

    /// The path of the host that the mount shows, and whether a run can write to it.
    pub fn shown_source(&self) -> Option<(&str, MountAccess)> {
        match self {
            Self::Bind { source, access, .. } => Some((source, *access)),
            Self::Overlay { source, .. } | Self::Cache { source, .. } => {
                Some((source, MountAccess::Rw))
            }
            _ => None,
        }
    }

    /// The kind of the mount in one word, and its reason.
    pub fn words(&self) -> (&'static str, String) {
        match self {
            Self::Bind {
                access,
                source,
                target,
                reason,
                ..
            } => {
                let from = if source == target {
                    String::new()
                } else {
                    format!("; {source} on the host")
                };
                (access.as_str(), format!("{reason}{from}"))
            }
            Self::Overlay { reason, .. } | Self::Cache { reason, .. } => ("cow", reason.clone()),
            Self::Image { image } => ("ro", format!("the image {image}")),
            Self::Copy { access, reason, .. } => (access.as_str(), reason.clone()),
            Self::Hold { access, reason, .. } => match access {
                MountAccess::Ro => ("protected", reason.clone()),
                MountAccess::Rw => ("held", reason.clone()),
            },
            Self::Cover { reason, .. } => ("hidden", reason.clone()),
            Self::Memory { reason, .. } => ("memory", reason.clone()),
            Self::Link { to, .. } => ("link", format!("to {to}")),
            Self::Processes => (
                "own",
                "its own processes; paths that reach the system are closed".to_owned(),
            ),
            Self::Devices => (
                "own",
                "null zero full random urandom tty, own terminals".to_owned(),
            ),
        }
    }
}
