//! The files that a run without namespaces may open (backend `landlock`). Landlock grants whole
//! hierarchies and takes nothing back below them. A directory of the system that contains something
//! hidden is therefore granted by its children, and anything that cannot be protected in this way
//! is refused here, before anything runs.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use interlock_config::types::Sandbox;
use interlock_plan::{
    MountAccess, SandboxEffects, SandboxMount, SandboxPlan, SandboxTree, SandboxView, UnixSockets,
    WorkspaceAccess,
};

use super::{
    AGENT, Builder, PROCESSORS, PreparedSandbox, SYSTEM, WORKSPACE, below, limits, real, text,
};
use crate::error::SandboxError;
use crate::scope::make_private;

/// The shortcomings of `landlock` compared to the other backends, for the owner who chooses it.
pub const LANDLOCK_LACKS: &[&str] = &[
    "processes of the host exist: they can be counted and not be signalled, read or traced",
    "names, sizes, times and links of files can be seen that cannot be opened",
    "there is no network at all, not even a loopback, and of Unix sockets only pairs",
    "/tmp, /var/tmp and /dev/shm cannot be opened: TMPDIR names a directory of the scope, of no fixed size",
    "/proc shows facts about the machine, and nothing about processes, also not a run's own",
    "there is no /workspace: directories are where they are on the host",
    "no caches of the home directory, no copy-on-write, no previews, no log of programs",
    "no shared memory of System V, no watches on files, and no terminals besides the run's own",
    "a run that is ended is ended process by process, as on the host",
];

/// Files with facts about the machine that programs read, and with nothing about a process.
const FACTS: [&str; 10] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/vm/overcommit_memory",
];

/// Most levels to which a directory of the system is split up. Each level is one directory with
/// something hidden in it.
const MOST_STEPS: usize = 16;

/// The temporary directory, in the directory of the scope.
const TEMPORARY: &str = "tmp";

impl Builder<'_> {
    /// Makes the value, and the directories of the scope.
    pub(super) fn build_restricted(mut self) -> Result<PreparedSandbox, SandboxError> {
        self.refuse_unkept()?;
        let hidden: Vec<PathBuf> = self.hidden().into_iter().map(|(path, _)| path).collect();
        for name in SYSTEM {
            // Of a link, only its target can be granted, and the target is in this list itself.
            if std::fs::symlink_metadata(name).is_ok_and(|found| found.is_dir()) {
                self.grant_apart(Path::new(name), &hidden, "the system", MOST_STEPS)?;
            }
        }
        for fact in FACTS.into_iter().chain([PROCESSORS]) {
            if Path::new(fact).exists() {
                self.bind(fact, fact, MountAccess::Ro, "facts about the machine")?;
            }
        }
        self.mounts.push(SandboxMount::Devices);
        let mut tool_paths = Vec::new();
        for tools in self.tools()? {
            if hidden.iter().any(|path| path.starts_with(&tools)) {
                continue;
            }
            tool_paths.extend(self.push_tools(&tools)?);
        }
        let home = text(&self.scope.home)?;
        let temporary = self.scope.directory.join(TEMPORARY);
        make_private(&temporary)?;
        let temporary = text(&temporary)?;
        let access = MountAccess::Rw;
        self.bind(&home, &home, access, "the private home of the scope")?;
        self.bind(&temporary, &temporary, access, "private temporary files")?;
        let (workspace, scratch) = (text(&self.workspace)?, text(&self.scope.scratch)?);
        let cwd = match self.access {
            WorkspaceAccess::None => {
                self.bind(&scratch, &scratch, access, "the scratch workspace")?;
                self.directory_of((&workspace, &scratch), &scratch)?
            }
            WorkspaceAccess::Ro => {
                self.grant_whole(&workspace, MountAccess::Ro, &hidden)?;
                self.bind(&scratch, &scratch, access, "the scratch workspace")?;
                self.directory_of((&workspace, &scratch), &workspace)?
            }
            WorkspaceAccess::Rw | WorkspaceAccess::Cow => {
                self.grant_whole(&workspace, access, &hidden)?;
                self.directory_of((&workspace, &workspace), &workspace)?
            }
        };
        for bind in std::mem::take(&mut self.binds) {
            let source = text(&bind.source)?;
            if source != bind.target {
                return Err(SandboxError::Bind {
                    bind: format!("{source}:{}", bind.target),
                    rule: "the backend `landlock` shows every path where it is on the host"
                        .to_owned(),
                });
            }
            refuse_hidden_below(&source, &hidden)?;
            self.push_bind(&bind);
        }
        let protect = self.protect_on_commit();
        let settings = self.request.settings;
        let plan = SandboxPlan {
            backend: self.request.backend,
            scope: self.scope.record.scope.clone(),
            scope_id: self.scope.record.id.clone(),
            scope_directory: text(&self.scope.directory)?,
            view: self.view,
            workspace_access: self.access,
            workspace,
            user: self.user,
            cwd: cwd.clone(),
            mounts: self.mounts,
            unix_sockets: UnixSockets::None,
            network: None,
            limits: limits(settings, self.request.backend),
            // Nothing may be executed until the judge adds what the command names.
            executables: (settings.tree == Some(SandboxTree::Enforce)).then(Vec::new),
            program_log: None,
            effects: self.request.effects,
            protect,
            container: None,
            ssh: None,
        };
        Ok(PreparedSandbox {
            plan,
            host_cwd: cwd,
            home,
            temporary: Some(temporary),
            tool_paths,
        })
    }

    /// Refuses every setting that promises what Landlock cannot enforce.
    fn refuse_unkept(&self) -> Result<(), SandboxError> {
        let settings = self.request.settings;
        if let Some((key, value, rule)) = unkept(settings, self.access) {
            return Err(SandboxError::Setting {
                key,
                value,
                rule: format!("{rule}; use `native` or `bwrap`, or another value"),
            });
        }
        if self.request.effects == SandboxEffects::Preview {
            return Err(SandboxError::Setting {
                key: "backend",
                value: "landlock".to_owned(),
                rule: "it makes no copy-on-write layer, which a preview needs".to_owned(),
            });
        }
        if self.user.host_uid == 0 && settings.allow_host_root != Some(true) {
            return Err(SandboxError::Setting {
                key: "backend",
                value: "landlock".to_owned(),
                rule: "it cannot map ids, and no sandboxed run is root on the host; run Interlock as an ordinary user, or set allowHostRoot to true".to_owned(),
            });
        }
        // Under `rw`, nothing below the workspace can be protected from writes.
        if self.access == WorkspaceAccess::Rw
            && let Some((path, reason)) = self.protected().into_iter().next()
        {
            return Err(SandboxError::Workspace {
                path: self.workspace.clone(),
                rule: format!(
                    "workspaceAccess is `rw`, and the backend `landlock` cannot protect {} ({reason}); use `native` or `bwrap`, or workspaceAccess \"none\" or \"ro\"",
                    path.display()
                ),
            });
        }
        Ok(())
    }

    /// Grants read access to a directory of the system, without what is hidden in it.
    fn grant_apart(
        &mut self,
        directory: &Path,
        hidden: &[PathBuf],
        reason: &str,
        steps: usize,
    ) -> Result<(), SandboxError> {
        if hidden.iter().any(|path| directory.starts_with(path)) {
            return Ok(());
        }
        let contains_hidden = hidden
            .iter()
            .any(|path| path.starts_with(directory) && std::fs::symlink_metadata(path).is_ok());
        if !contains_hidden {
            let name = text(directory)?;
            return self.bind(&name, &name, MountAccess::Ro, reason);
        }
        if steps == 0 {
            return Ok(());
        }
        // A directory that cannot be listed is not granted, because its user cannot read it either.
        let Ok(list) = std::fs::read_dir(directory) else {
            return Ok(());
        };
        let mut entries: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for entry in entries {
            let Ok(found) = std::fs::symlink_metadata(&entry) else {
                continue;
            };
            // The target of a link is granted at its own path, or not at all. A name that is not
            // valid UTF-8 cannot be part of the value.
            if (found.is_dir() || found.is_file()) && entry.to_str().is_some() {
                self.grant_apart(&entry, hidden, reason, steps - 1)?;
            }
        }
        Ok(())
    }

    /// Grants the workspace, which must not contain anything hidden.
    fn grant_whole(
        &mut self,
        path: &str,
        access: MountAccess,
        hidden: &[PathBuf],
    ) -> Result<(), SandboxError> {
        if let Some(found) = first_below(path, hidden) {
            return Err(SandboxError::Workspace {
                path: self.workspace.clone(),
                rule: format!(
                    "it contains {}, which the backend `landlock` cannot hide there",
                    found.display()
                ),
            });
        }
        let found: &Metadata = &self.found;
        self.mounts.push(SandboxMount::Bind {
            source: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            target: path.to_owned(),
            access,
            owner: None,
            reason: "the workspace".to_owned(),
        });
        Ok(())
    }

    /// Returns the working directory, which is in the workspace or the scratch workspace, by the
    /// host's path or a fixed name.
    fn directory_of(
        &self,
        (workspace, scratch): (&str, &str),
        usual: &str,
    ) -> Result<String, SandboxError> {
        let cwd = self.request.cwd;
        let outside = || SandboxError::WorkingDirectory {
            path: cwd.to_owned(),
            shown: usual.to_owned(),
        };
        let named = match (below(WORKSPACE, cwd), below(AGENT, cwd), self.access) {
            (Some(rest), _, _) => format!("{scratch}{rest}"),
            (None, Some(rest), WorkspaceAccess::Ro) => format!("{workspace}{rest}"),
            // A call that names no directory starts in the workspace, which is not granted.
            (None, _, WorkspaceAccess::None) => match below(workspace, cwd) {
                Some(rest) => format!("{scratch}{rest}"),
                None => cwd.to_owned(),
            },
            _ => cwd.to_owned(),
        };
        let found = text(&std::fs::canonicalize(&named).map_err(|_| outside())?)?;
        let mut roots = vec![scratch.to_owned()];
        if self.access != WorkspaceAccess::None {
            roots.push(workspace.to_owned());
        }
        roots.extend(self.binds.iter().map(|bind| bind.target.clone()));
        if roots.iter().any(|root| below(root, &found).is_some()) {
            Ok(found)
        } else {
            Err(outside())
        }
    }
}

/// Returns the first setting that cannot be enforced: its key, its value and the reason.
fn unkept(
    settings: &Sandbox,
    access: WorkspaceAccess,
) -> Option<(&'static str, String, &'static str)> {
    let network = &settings.network;
    let names = network.allow.iter().flatten().next();
    if access == WorkspaceAccess::Cow {
        let why = "Landlock makes no copy-on-write layer";
        return Some(("workspaceAccess", "cow".to_owned(), why));
    }
    if settings.view == Some(SandboxView::Host) {
        let why = "Landlock cannot take back what lies in a directory that it grants";
        return Some(("view", "host".to_owned(), why));
    }
    if let Some(name) = names {
        let why = "Landlock knows ports and no hosts, so that runs have no network";
        return Some(("network.allow", name.clone(), why));
    }
    if network.ask == Some(true) {
        let why = "Landlock knows ports and no hosts, so that runs have no network";
        return Some(("network.ask", "true".to_owned(), why));
    }
    if network.unix_sockets == Some(UnixSockets::Own) {
        let why = "Landlock of this version cannot tell a run's own sockets from the host's";
        return Some(("network.unixSockets", "own".to_owned(), why));
    }
    if settings.tree == Some(SandboxTree::Log) {
        let why = "the one place where the kernel asks is taken by the attributes of files";
        return Some(("tree", "log".to_owned(), why));
    }
    if let Some(size) = &settings.limits.tmp {
        let why = "temporary files are in a directory, whose size cannot be held";
        return Some(("limits.tmp", size.clone(), why));
    }
    if let Some(cache) = settings.home.caches.iter().flatten().next() {
        let why = "Landlock makes no copy-on-write layer";
        return Some(("home.caches", cache.clone(), why));
    }
    None
}

/// Refuses a bind that contains anything hidden.
fn refuse_hidden_below(source: &str, hidden: &[PathBuf]) -> Result<(), SandboxError> {
    match first_below(source, hidden) {
        None => Ok(()),
        Some(found) => Err(SandboxError::Bind {
            bind: source.to_owned(),
            rule: format!(
                "it contains {}, which the backend `landlock` cannot hide there",
                found.display()
            ),
        }),
    }
}

/// Returns the first hidden path that exists in a directory.
fn first_below<'h>(directory: &str, hidden: &'h [PathBuf]) -> Option<&'h PathBuf> {
    let directory = real(Path::new(directory));
    hidden
        .iter()
        .find(|path| path.starts_with(&directory) && std::fs::symlink_metadata(path).is_ok())
}
