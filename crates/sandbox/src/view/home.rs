//! The home directory of a run: it is private, with tools of the real home read-only and its caches
//! copy-on-write.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use interlock_plan::{MountAccess, SandboxBackend, SandboxMount, SandboxView};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::{Builder, MAPS_IDS, cannot_map_ids, is_plain_path, text};
use crate::error::SandboxError;
use crate::hidden::hidden_paths;
use crate::scope::open_to_owner;

/// The tools of the home directory that are shown if the config does not list any.
const TOOLS: [&str; 11] = [
    ".cargo/bin",
    ".rustup",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".volta",
    ".bun/bin",
    ".deno/bin",
    ".local/bin",
    "go/bin",
];

/// The caches of the home directory that are shown if the config does not list any: files that
/// package managers fetched and can fetch again.
const CACHES: [&str; 15] = [
    ".cargo/registry",
    ".cargo/git",
    ".npm",
    ".cache/pip",
    ".cache/uv",
    ".cache/yarn",
    ".cache/pnpm",
    ".local/share/pnpm/store",
    ".bun/install/cache",
    "go/pkg",
    ".cache/go-build",
    ".m2/repository",
    ".gradle/caches",
    ".nuget/packages",
    ".cache/composer",
];

/// Most caches, because each is a file system of its own in every run.
const MOST_CACHES: usize = 48;

/// A directory of the real home that a run sees.
enum HomePart {
    Tools,
    Cache,
}

impl Builder<'_> {
    /// Sets up a private home directory, with tools and caches of the real one. Returns the
    /// directories in it where programs are found.
    pub(super) fn home_directory(&mut self) -> Result<Vec<String>, SandboxError> {
        // With `view: host`, the owner's home stays visible, except to a user that cannot enter it.
        let is_other_user = self.user.host_uid != rustix::process::geteuid().as_raw();
        let shown = self
            .shown_by(&text(&self.home)?)
            .map(|index| &self.mounts[index]);
        let is_shown = matches!(shown, Some(SandboxMount::Bind { .. }));
        let is_private = self.view != SandboxView::Host || is_other_user || !is_shown;
        // A directory comes before its content. Tools win over a cache of the same name.
        let mut parts: BTreeMap<PathBuf, HomePart> = BTreeMap::new();
        for cache in self.caches()? {
            parts.insert(cache, HomePart::Cache);
        }
        if is_private {
            let (home, own) = (text(&self.home)?, text(&self.scope.home)?);
            let reason = "the private home of the scope";
            self.bind(&own, &home, MountAccess::Rw, reason)?;
            for tools in self.tools()? {
                parts.insert(tools, HomePart::Tools);
            }
        }
        if is_private {
            for source in parts.keys() {
                if let Ok(rest) = source.strip_prefix(&self.home) {
                    clear_way(&self.scope.home, rest)?;
                }
            }
        }
        let mut paths = Vec::new();
        for (source, part) in parts {
            match part {
                HomePart::Cache => self.push_cache(&source)?,
                HomePart::Tools => paths.extend(self.push_tools(&source)?),
            }
        }
        Ok(paths)
    }

    /// Returns the directories with tools, by their paths on the host.
    pub(super) fn tools(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let listed = self.request.settings.home.tools.clone();
        let usual: &[&str] = match self.request.backend {
            // Programs of the host need not work with the libraries of an image.
            SandboxBackend::Docker | SandboxBackend::Podman | SandboxBackend::Ssh => &[],
            SandboxBackend::Native | SandboxBackend::Bwrap | SandboxBackend::Landlock => &TOOLS,
        };
        let listed = listed.unwrap_or_else(|| usual.iter().map(|&name| name.to_owned()).collect());
        let mut tools = Vec::new();
        for name in listed {
            let source = self.below_home("home.tools", &name)?;
            tools.extend(source.filter(|source| !source.starts_with(&self.workspace)));
        }
        Ok(tools)
    }

    /// Returns the directories with caches, by their paths on the host.
    fn caches(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let listed = self.request.settings.home.caches.clone();
        let is_chosen = listed.is_some();
        let listed = listed.unwrap_or_else(|| CACHES.iter().map(|&name| name.to_owned()).collect());
        if listed.len() > MOST_CACHES {
            return Err(SandboxError::Setting {
                key: "home.caches",
                value: listed.len().to_string(),
                rule: format!("at most {MOST_CACHES} directories are shown"),
            });
        }
        let hidden = hidden_paths(Some(&self.home));
        let mut caches = Vec::new();
        for name in listed {
            let Some(source) = self.below_home("home.caches", &name)? else {
                continue;
            };
            let refused = |rule: String| {
                Err(SandboxError::Setting {
                    key: "home.caches",
                    value: name.clone(),
                    rule,
                })
            };
            if let Some((path, reason)) = hidden.iter().find(|(path, _)| source.starts_with(path)) {
                return refused(format!("{} is hidden: {reason}", path.display()));
            }
            // The workspace itself shows everything in it.
            if source.starts_with(&self.workspace) {
                continue;
            }
            match self.why_not_layered(&source) {
                None => caches.push(source),
                // A cache that the owner did not choose is omitted.
                Some(_) if !is_chosen => {}
                Some(why) => return refused(why),
            }
        }
        Ok(caches)
    }

    /// Returns why a directory cannot be shown under a layer of the scope, if it cannot.
    fn why_not_layered(&self, source: &Path) -> Option<String> {
        let state = &self.scope.directory;
        if state.starts_with(source) {
            return Some("the state directory of Interlock lies in it".to_owned());
        }
        if self.host_mounts.has_mount_below(source) {
            return Some("another file system is mounted in it".to_owned());
        }
        let kind = rustix::fs::statfs(state).map(|found| found.f_type).ok()?;
        let kind = u64::try_from(kind).unwrap_or_default();
        if !MAPS_IDS.iter().any(|(number, _)| *number == kind) {
            return Some(format!(
                "the file system of the state directory (type {kind:#x}) cannot hold a layer; use ext4, xfs, btrfs or tmpfs"
            ));
        }
        let is_other_user = self.user.host_uid != rustix::process::geteuid().as_raw();
        let cannot = cannot_map_ids(source.to_owned()).filter(|_| is_other_user);
        cannot.map(|(_, kind)| format!("its file system ({kind}) cannot map ids"))
    }

    /// Returns a directory that the config names relative to the home directory, or `None` if it
    /// does not exist or is reached only by a link, which could lead to anything.
    fn below_home(&self, key: &'static str, name: &str) -> Result<Option<PathBuf>, SandboxError> {
        let path = Path::new(name);
        if !is_plain_path(name) {
            return Err(SandboxError::Setting {
                key,
                value: name.to_owned(),
                rule: "it is not a plain path below the home directory".to_owned(),
            });
        }
        // Collecting the components removes a trailing `/`.
        let source: PathBuf = self.home.join(path).components().collect();
        let is_real = std::fs::canonicalize(&source).is_ok_and(|real| real == source);
        Ok((is_real && source.is_dir()).then_some(source))
    }

    pub(super) fn push_tools(&mut self, source: &Path) -> Result<Vec<String>, SandboxError> {
        let target = text(source)?;
        self.bind(&target, &target, MountAccess::Ro, "tools of the owner")?;
        let mut paths = Vec::new();
        for below in ["", "/bin", "/shims"] {
            let directory = format!("{target}{below}");
            if (below.is_empty() && target.ends_with("/bin"))
                || (!below.is_empty() && Path::new(&directory).is_dir())
            {
                paths.push(directory);
            }
        }
        Ok(paths)
    }

    fn push_cache(&mut self, source: &Path) -> Result<(), SandboxError> {
        let found = std::fs::symlink_metadata(source).map_err(|error| SandboxError::File {
            what: "cannot look at",
            path: source.to_owned(),
            source: error,
        })?;
        let target = text(source)?;
        self.mounts.push(SandboxMount::Cache {
            source: target.clone(),
            device: found.dev(),
            inode: found.ino(),
            owner: self.mapped_owner(&found),
            layer: layer_name(&target),
            target,
            reason: "a cache of the owner, under a layer of the scope".to_owned(),
        });
        Ok(())
    }
}

/// Removes whatever is in the way of a directory in the private home, and makes the directories
/// that lead there accessible. A run can put a link or a file in their place, and then no later run
/// of the scope could be set up. No link is followed, so everything that is removed is in the
/// private home.
fn clear_way(home: &Path, rest: &Path) -> Result<(), SandboxError> {
    let failed = |error: Errno| SandboxError::File {
        what: "cannot clear the way in the private home:",
        path: home.join(rest),
        source: error.into(),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut place = rustix::fs::open(home, flags, Mode::empty()).map_err(failed)?;
    for name in rest {
        open_to_owner(&place).map_err(failed)?;
        match rustix::fs::openat(&place, name, flags, Mode::empty()) {
            Ok(next) => place = next,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let removed = rustix::fs::unlinkat(&place, name, AtFlags::empty());
                return removed.map_err(failed);
            }
            // Missing directories are made later.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Returns a name of fixed length for any path.
fn layer_name(path: &str) -> String {
    let hash = Sha256::digest(path.as_bytes());
    let digits = hash.iter().take(8).map(|byte| format!("{byte:02x}"));
    digits.collect()
}
