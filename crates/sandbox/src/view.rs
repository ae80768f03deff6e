//! Builds what a sandboxed run sees, step by step, and the rest of the value that describes its
//! sandbox.

mod guards;
mod home;
mod restricted;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use interlock_config::types::Sandbox;
use interlock_plan::{
    ContainerPlan, MountAccess, MountOwner, MountTable, ProgramLogRules, SandboxBackend,
    SandboxEffects, SandboxLimits, SandboxMount, SandboxNetworkRules, SandboxPlan, SandboxTree,
    SandboxUser, SandboxView, UnixSockets, WorkspaceAccess,
};

pub use restricted::LANDLOCK_LACKS;

use crate::binds::{BindRules, CheckedBind, check_workspace, check_workspace_in_view};
use crate::container::plan_container;
use crate::elsewhere::check_root;
use crate::error::SandboxError;
use crate::network::{name_files, rules_of};
use crate::scope::{FIRST_HOST_ID, OpenedScope, ScopeOf, ScopeStore, give_to};
use crate::ssh::prepare_far_sandbox;

/// The inputs from which a sandbox is made.
#[derive(Debug, Clone, Copy)]
pub struct SandboxRequest<'a> {
    pub settings: &'a Sandbox,
    /// The backend that the settings name or, if they name none, one that works on this host.
    pub backend: SandboxBackend,
    pub agent: &'a str,
    pub session_key: &'a str,
    /// An existing directory.
    pub workspace: &'a Path,
    /// The working directory as the call names it, on the host or inside. It is absolute.
    pub cwd: &'a str,
    pub state_dir: &'a Path,
    /// Further paths that belong to Interlock, such as a config file elsewhere.
    pub own_paths: &'a [PathBuf],
    pub home: Option<&'a str>,
    pub effects: SandboxEffects,
}

/// A sandbox that is ready to become part of a plan.
#[derive(Debug)]
pub struct PreparedSandbox {
    pub plan: SandboxPlan,
    /// The working directory on the host.
    pub host_cwd: String,
    /// The home directory as the run sees it.
    pub home: String,
    /// The directory for temporary files, if that is not `/tmp`.
    pub temporary: Option<String>,
    /// Tool directories in the home directory that are in the run's PATH.
    pub tool_paths: Vec<String>,
}

/// Directories of the system that every run sees, read-only.
const SYSTEM: [&str; 10] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc",
];

/// Entries of the root that `view: host` does not take from the host.
const NOT_FROM_HOST: [&str; 6] = ["proc", "sys", "dev", "tmp", "run", "lost+found"];

/// The scratch workspace, or the workspace itself.
const WORKSPACE: &str = "/workspace";

/// The workspace, if it is read-only.
const AGENT: &str = "/agent";

const PROCESSORS: &str = "/sys/devices/system/cpu";

const DEFAULT_TMP_BYTES: u64 = 1 << 30;

/// Space that must stay free on a host's file system, if the config does not set it.
const DEFAULT_DISK_FREE_BYTES: u64 = 1 << 30;

/// The home directory inside, if the host has none.
const USUAL_HOME: &str = "/home/sandbox";

/// The user inside, if root owns the workspace: programs that find themselves running as root try
/// what only root can do.
const USUAL_ID: u32 = 1_000;

/// Makes the value, and the directories of the scope.
pub fn prepare_sandbox(request: &SandboxRequest<'_>) -> Result<PreparedSandbox, SandboxError> {
    if request.backend == SandboxBackend::Ssh {
        return prepare_far_sandbox(request);
    }
    let builder = Builder::new(request)?;
    match request.backend {
        SandboxBackend::Landlock => builder.build_restricted(),
        _ => builder.build(),
    }
}

/// Whether runs of a backend see the root of a container.
fn is_container(backend: SandboxBackend) -> bool {
    match backend {
        SandboxBackend::Docker | SandboxBackend::Podman => true,
        SandboxBackend::Native
        | SandboxBackend::Bwrap
        | SandboxBackend::Landlock
        | SandboxBackend::Ssh => false,
    }
}

struct Builder<'a> {
    request: &'a SandboxRequest<'a>,
    access: WorkspaceAccess,
    view: SandboxView,
    workspace: PathBuf,
    found: Metadata,
    home: PathBuf,
    scope: OpenedScope,
    user: SandboxUser,
    binds: Vec<CheckedBind>,
    mounts: Vec<SandboxMount>,
    host_mounts: MountTable,
    /// Directories of scopes outside the state directory.
    other_roots: Vec<PathBuf>,
}

impl<'a> Builder<'a> {
    fn new(request: &'a SandboxRequest<'a>) -> Result<Self, SandboxError> {
        let settings = request.settings;
        let look = |source| SandboxError::File {
            what: "cannot look at the workspace",
            path: request.workspace.to_owned(),
            source,
        };
        let workspace = std::fs::canonicalize(request.workspace).map_err(look)?;
        let found = std::fs::metadata(&workspace).map_err(look)?;
        let home = request.home.filter(|home| home.starts_with('/'));
        let home = home.map_or_else(
            || PathBuf::from(USUAL_HOME),
            |home| std::fs::canonicalize(home).unwrap_or_else(|_| PathBuf::from(home)),
        );
        let state_dir = real(request.state_dir);
        let host_mounts = MountTable::read();
        let mut own = host_mounts.other_paths(&state_dir);
        own.push(state_dir.clone());
        let store = ScopeStore::new(&state_dir);
        let root = settings.workspace_root.as_deref().map(|named| {
            let beside = [(workspace.as_path(), "the workspace")];
            check_root(named, &state_dir, &beside)
        });
        let root = root.transpose()?;
        let mut other_roots = store.other_roots();
        other_roots.extend(root.clone());
        own.extend(other_roots.iter().cloned());
        check_workspace(&workspace, &own, Some(&home))?;
        if settings.view == Some(SandboxView::Host) {
            check_workspace_in_view(&workspace, &home)?;
        }
        for path in settings.protect.iter().flatten() {
            if !is_plain_path(path) {
                return Err(SandboxError::Setting {
                    key: "protect",
                    value: path.clone(),
                    rule: "it is not a plain path below the workspace".to_owned(),
                });
            }
        }
        let is_root = rustix::process::geteuid().is_root();
        let of = ScopeOf {
            settings,
            agent: request.agent,
            session_key: request.session_key,
            workspace: &workspace,
            effects: request.effects,
            root: root.as_deref(),
        };
        let scope = store.open(of, is_root)?;
        let access = settings.workspace_access.unwrap_or(WorkspaceAccess::None);
        let rules = BindRules {
            home: Some(&home),
            own: &own,
            workspace: &workspace,
        };
        let of_container = is_container(request.backend).then_some(&settings.docker.binds);
        let listed = settings
            .binds
            .iter()
            .chain(of_container.into_iter().flatten());
        let listed = listed.flatten();
        let binds: Vec<CheckedBind> = listed
            .map(|bind| rules.check(bind))
            .collect::<Result<_, _>>()?;
        let user = user_of(request, (&workspace, &found), &binds, &scope, access)?;
        for directory in [&scope.home, &scope.scratch] {
            if is_root {
                give_to(directory, user.host_uid, user.host_gid)?;
            }
        }
        Ok(Self {
            request,
            access,
            view: settings.view.unwrap_or(SandboxView::Minimal),
            workspace,
            found,
            home,
            scope,
            user,
            binds,
            mounts: Vec::new(),
            host_mounts,
            other_roots,
        })
    }

    fn build(mut self) -> Result<PreparedSandbox, SandboxError> {
        let container = self.container()?;
        match &container {
            Some(container) => self.mounts.push(SandboxMount::Image {
                image: format!("{} ({})", container.image, container.image_id),
            }),
            None => self.system()?,
        }
        let network = match self.request.effects {
            SandboxEffects::Direct => rules_of(self.request.settings)?,
            // A preview reaches nothing. The approver sees what it asks for.
            SandboxEffects::Preview => Some(SandboxNetworkRules::default()),
        };
        if network.is_some() {
            for file in name_files(&self.scope.directory)? {
                let source = text(&file.source)?;
                let reason = "names are those of the scope";
                self.bind(&source, file.target, MountAccess::Ro, reason)?;
            }
        }
        self.mounts.push(SandboxMount::Processes);
        self.mounts.push(SandboxMount::Devices);
        for (target, mode) in [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755)] {
            self.mounts.push(SandboxMount::Memory {
                target: target.to_owned(),
                mode,
                reason: "private to the scope, and shared by its runs".to_owned(),
            });
        }
        if Path::new(PROCESSORS).is_dir() {
            self.bind(
                PROCESSORS,
                PROCESSORS,
                MountAccess::Ro,
                "how many processors there are",
            )?;
        }
        let is_home_shown =
            self.home.starts_with(&self.workspace) && self.access != WorkspaceAccess::None;
        let tool_paths = if is_home_shown {
            Vec::new()
        } else {
            self.home_directory()?
        };
        self.workspace_itself()?;
        for bind in std::mem::take(&mut self.binds) {
            self.push_bind(&bind);
        }
        self.guards();
        let cwd = self.copies_and_cwd()?;
        let protect = self.protect_on_commit();
        let plan = SandboxPlan {
            backend: self.request.backend,
            scope: self.scope.record.scope.clone(),
            scope_id: self.scope.record.id.clone(),
            scope_directory: text(&self.scope.directory)?,
            view: self.view,
            workspace_access: self.access,
            workspace: text(&self.workspace)?,
            user: self.user,
            cwd: String::new(),
            mounts: self.mounts,
            unix_sockets: self
                .request
                .settings
                .network
                .unix_sockets
                .unwrap_or(UnixSockets::Own),
            network,
            limits: limits(self.request.settings, self.request.backend),
            // Nothing may be executed until the judge adds what the command names.
            executables: match self.request.settings.tree {
                Some(SandboxTree::Enforce) => Some(Vec::new()),
                None | Some(SandboxTree::Off | SandboxTree::Log) => None,
            },
            // The judge adds the refused programs.
            program_log: (self.request.settings.tree == Some(SandboxTree::Log)
                || self.request.effects == SandboxEffects::Preview)
                .then(ProgramLogRules::default),
            effects: self.request.effects,
            protect,
            container,
            ssh: None,
        };
        let inside = plan.path_inside(&cwd).unwrap_or_else(|| cwd.clone());
        Ok(PreparedSandbox {
            plan: SandboxPlan {
                cwd: inside,
                ..plan
            },
            host_cwd: cwd,
            home: text(&self.home)?,
            temporary: None,
            tool_paths,
        })
    }

    /// Returns the container of the scope, if the backend uses containers.
    fn container(&self) -> Result<Option<ContainerPlan>, SandboxError> {
        let settings = self.request.settings;
        if !is_container(self.request.backend) {
            return Ok(None);
        }
        let refused = |key, value: &str, rule: &str| {
            Err(SandboxError::Setting {
                key,
                value: value.to_owned(),
                rule: rule.to_owned(),
            })
        };
        if self.view == SandboxView::Host {
            return refused(
                "view",
                "host",
                "a container shows its image, and not the host",
            );
        }
        if settings.tree == Some(SandboxTree::Enforce) {
            let rule = "which programs an image holds is not known before it runs; use `native` or `bwrap`";
            return refused("tree", "enforce", rule);
        }
        if let Some(network) = settings
            .docker
            .network
            .as_deref()
            .filter(|one| *one != "none")
        {
            let rule =
                "a container has no network; `sandbox.network` lists the hosts that runs reach";
            return refused("docker.network", network, rule);
        }
        if settings.docker.read_only_root == Some(false) {
            let rule = "the root of a container is read-only, and no run is root in it";
            return refused("docker.readOnlyRoot", "false", rule);
        }
        let homes = (text(&self.home)?, text(&self.scope.home)?);
        plan_container(
            settings,
            self.request.backend,
            &text(&self.scope.directory)?,
            (&homes.0, &homes.1),
            self.request.state_dir,
        )
        .map(Some)
    }

    /// Shows the system read-only: the usual directories, or everything in the root.
    fn system(&mut self) -> Result<(), SandboxError> {
        let names: Vec<String> = match self.view {
            SandboxView::Minimal => SYSTEM.iter().map(|&name| name.to_owned()).collect(),
            SandboxView::Host => {
                let list = std::fs::read_dir("/").map_err(|source| SandboxError::File {
                    what: "cannot list",
                    path: PathBuf::from("/"),
                    source,
                })?;
                let mut names: Vec<String> = list
                    .flatten()
                    .filter_map(|entry| entry.file_name().into_string().ok())
                    .filter(|name| !NOT_FROM_HOST.contains(&name.as_str()))
                    .map(|name| format!("/{name}"))
                    .collect();
                names.sort();
                names
            }
        };
        for name in names {
            let Ok(found) = std::fs::symlink_metadata(&name) else {
                continue;
            };
            if found.is_symlink() {
                if let Ok(to) = std::fs::read_link(&name)
                    && let Some(to) = to.to_str()
                {
                    self.mounts.push(SandboxMount::Link {
                        target: name,
                        to: to.to_owned(),
                    });
                }
            } else if found.is_dir() || found.is_file() {
                self.bind(&name, &name, MountAccess::Ro, "the system")?;
            }
        }
        if self.view == SandboxView::Minimal {
            self.mounts.push(SandboxMount::Link {
                target: "/var/run".to_owned(),
                to: "/run".to_owned(),
            });
        }
        Ok(())
    }

    fn workspace_itself(&mut self) -> Result<(), SandboxError> {
        let path = text(&self.workspace)?;
        let owner = self.mapped_owner(&self.found);
        let access = match self.access {
            WorkspaceAccess::None => return Ok(()),
            WorkspaceAccess::Ro => MountAccess::Ro,
            WorkspaceAccess::Rw => MountAccess::Rw,
            WorkspaceAccess::Cow => {
                self.mounts.push(SandboxMount::Overlay {
                    source: path.clone(),
                    device: self.found.dev(),
                    inode: self.found.ino(),
                    target: path,
                    owner,
                    reason: "the workspace, under a layer of the run".to_owned(),
                });
                return Ok(());
            }
        };
        self.mounts.push(SandboxMount::Bind {
            source: path.clone(),
            device: self.found.dev(),
            inode: self.found.ino(),
            target: path,
            access,
            owner,
            reason: "the workspace".to_owned(),
        });
        Ok(())
    }

    /// Returns the owner whose files must appear as those of the run's user, if any.
    fn mapped_owner(&self, found: &Metadata) -> Option<MountOwner> {
        let is_other_user = self.user.host_uid != rustix::process::geteuid().as_raw();
        is_other_user.then(|| MountOwner {
            uid: found.uid(),
            gid: found.gid(),
        })
    }

    fn push_bind(&mut self, bind: &CheckedBind) {
        let is_other_user = self.user.host_uid != rustix::process::geteuid().as_raw();
        let (uid, gid) = bind.owner;
        self.mounts.push(SandboxMount::Bind {
            source: bind.source.display().to_string(),
            device: bind.device,
            inode: bind.inode,
            target: bind.target.clone(),
            access: bind.access,
            owner: is_other_user.then_some(MountOwner { uid, gid }),
            reason: "sandbox.binds".to_owned(),
        });
    }

    fn bind(
        &mut self,
        source: &str,
        target: &str,
        access: MountAccess,
        reason: &str,
    ) -> Result<(), SandboxError> {
        let found = std::fs::symlink_metadata(source).map_err(|error| SandboxError::File {
            what: "cannot look at",
            path: PathBuf::from(source),
            source: error,
        })?;
        self.mounts.push(SandboxMount::Bind {
            source: source.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            target: target.to_owned(),
            access,
            owner: None,
            reason: reason.to_owned(),
        });
        Ok(())
    }

    /// Shows the workspace again at its fixed names, and returns the working directory on the host.
    fn copies_and_cwd(&mut self) -> Result<String, SandboxError> {
        let workspace = text(&self.workspace)?;
        let scratch = text(&self.scope.scratch)?;
        let copy = |target: &str, access| SandboxMount::Copy {
            from: workspace.clone(),
            target: target.to_owned(),
            access,
            reason: "the workspace by its fixed name".to_owned(),
        };
        match self.access {
            WorkspaceAccess::Rw | WorkspaceAccess::Cow => {
                self.mounts.push(copy(WORKSPACE, MountAccess::Rw));
            }
            WorkspaceAccess::Ro => {
                self.mounts.push(copy(AGENT, MountAccess::Ro));
                self.bind(
                    &scratch,
                    WORKSPACE,
                    MountAccess::Rw,
                    "the scratch workspace",
                )?;
            }
            WorkspaceAccess::None => {
                self.bind(
                    &scratch,
                    WORKSPACE,
                    MountAccess::Rw,
                    "the scratch workspace",
                )?;
            }
        }
        let cwd = self.request.cwd;
        let outside = || SandboxError::WorkingDirectory {
            path: cwd.to_owned(),
            shown: match self.access {
                WorkspaceAccess::None => WORKSPACE.to_owned(),
                WorkspaceAccess::Ro => format!("{workspace}, {AGENT} and {WORKSPACE}"),
                WorkspaceAccess::Rw | WorkspaceAccess::Cow => {
                    format!("{workspace} and {WORKSPACE}")
                }
            },
        };
        let named = match (self.access, below(WORKSPACE, cwd), below(AGENT, cwd)) {
            (WorkspaceAccess::Rw | WorkspaceAccess::Cow, Some(rest), _)
            | (WorkspaceAccess::Ro, _, Some(rest)) => {
                format!("{workspace}{rest}")
            }
            (_, Some(rest), _) => format!("{scratch}{rest}"),
            // A call that names no directory starts in the workspace, which is not shown.
            (WorkspaceAccess::None, None, _) => match below(&workspace, cwd) {
                Some(rest) => format!("{scratch}{rest}"),
                None => cwd.to_owned(),
            },
            _ => cwd.to_owned(),
        };
        let real = std::fs::canonicalize(&named).map_err(|_| outside())?;
        let real = text(&real)?;
        let is_shown = |mount: &SandboxMount| match mount {
            SandboxMount::Bind { source, reason, .. }
            | SandboxMount::Overlay { source, reason, .. } => {
                let is_own = *source == workspace || *source == scratch;
                (is_own || reason == "sandbox.binds") && below(source, &real).is_some()
            }
            _ => false,
        };
        if self.mounts.iter().any(is_shown) {
            Ok(real)
        } else {
            Err(outside())
        }
    }
}

/// Returns the user of the run. If Interlock runs as root, that is never root of the host, unless
/// the owner permits it and ids cannot be mapped.
fn user_of(
    request: &SandboxRequest<'_>,
    (workspace, found): (&Path, &Metadata),
    binds: &[CheckedBind],
    scope: &OpenedScope,
    access: WorkspaceAccess,
) -> Result<SandboxUser, SandboxError> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let same = SandboxUser {
        uid,
        gid,
        host_uid: uid,
        host_gid: gid,
    };
    let Some(number) = scope.record.host_id else {
        return Ok(same);
    };
    if request.backend == SandboxBackend::Landlock {
        // Ids are mapped by mounts, and this backend makes none. A run of root is refused in
        // `build_restricted` unless the owner permits it.
        return Ok(same);
    }
    let mut sources = Vec::new();
    if access != WorkspaceAccess::None {
        sources.push(workspace.to_owned());
    }
    sources.extend(binds.iter().map(|bind| bind.source.clone()));
    if let Some((path, kind)) = sources.into_iter().find_map(cannot_map_ids) {
        return if request.settings.allow_host_root == Some(true) {
            Ok(same)
        } else {
            Err(SandboxError::CannotMapIds { path, kind })
        };
    }
    let or_usual = |id: u32| if id == 0 { USUAL_ID } else { id };
    let host = FIRST_HOST_ID + number;
    Ok(SandboxUser {
        uid: or_usual(found.uid()),
        gid: or_usual(found.gid()),
        host_uid: host,
        host_gid: host,
    })
}

/// File systems that can map ids, by their magic numbers.
const MAPS_IDS: [(u64, &str); 7] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0xf2f5_2010, "f2fs"),
    (0xe0f5_e1e2, "erofs"),
    (0xca45_1a4e, "bcachefs"),
];

fn cannot_map_ids(path: PathBuf) -> Option<(PathBuf, String)> {
    let found = rustix::fs::statfs(&path).ok()?;
    let kind = u64::try_from(found.f_type).unwrap_or_default();
    let is_able = MAPS_IDS.iter().any(|(number, _)| *number == kind);
    (!is_able).then(|| (path, format!("type {kind:#x}")))
}

pub(crate) fn limits(settings: &Sandbox, backend: SandboxBackend) -> SandboxLimits {
    let own = &settings.limits;
    let size = |text: &Option<String>| text.as_deref().and_then(interlock_config::types::byte_size);
    let docker = &settings.docker;
    let smaller =
        |one: Option<u64>, other: Option<u64>| match other.filter(|_| is_container(backend)) {
            Some(other) => Some(one.map_or(other, |one| one.min(other))),
            None => one,
        };
    SandboxLimits {
        memory_bytes: smaller(size(&own.memory), size(&docker.memory)),
        pids: smaller(own.pids, docker.pids_limit),
        milli_cpus: smaller(own.cpus.map(milli), docker.cpus.map(milli)),
        output_bytes: size(&own.output_bytes),
        tmp_bytes: size(&own.tmp).unwrap_or(DEFAULT_TMP_BYTES),
        disk_free_bytes: Some(size(&own.disk_free).unwrap_or(DEFAULT_DISK_FREE_BYTES)),
    }
}

/// The schema allows only numbers between 0.01 and 4096.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn milli(cpus: f64) -> u64 {
    (cpus.clamp(0.001, 1e6) * 1000.0).round() as u64
}

pub(crate) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether a path consists only of names: it is not absolute and has no `..`.
fn is_plain_path(path: &str) -> bool {
    let is_name = |part| matches!(part, std::path::Component::Normal(_));
    !path.is_empty() && Path::new(path).components().all(is_name)
}

/// Returns the rest of a path after a directory, if the path is that directory or below it.
fn below<'p>(directory: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn text(path: &Path) -> Result<String, SandboxError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| SandboxError::File {
            what: "not text:",
            path: path.to_owned(),
            source: std::io::ErrorKind::InvalidInput.into(),
        })
}

#[cfg(test)]
mod tests;
