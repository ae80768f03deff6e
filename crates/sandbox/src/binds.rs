//! Binds: the paths that the owner shows to runs in addition to the workspace. Each is normalized,
//! resolved and checked, and exactly the checked file, by device and inode, is mounted.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use interlock_plan::MountAccess;

use crate::error::SandboxError;
use crate::hidden::{ENGINE_SOCKETS, IN_HOME, IN_SYSTEM, hidden_paths};

/// Directories of the system that a bind may neither show, nor be below, nor contain.
const SYSTEM: [(&str, &str); 7] = [
    ("/etc", "the system's settings"),
    ("/proc", "the system's processes"),
    ("/sys", "the system's devices"),
    ("/dev", "the system's devices"),
    ("/boot", "what the machine starts"),
    ("/var/lib/docker", "containers of the machine"),
    ("/var/lib/containers", "containers of the machine"),
];

/// Directories that hold the homes of all users. Each home contains credentials.
const HOMES: [&str; 3] = ["/home", "/root", "/var/home"];

/// Most homes of other users that are examined.
const MOST_HOMES: usize = 256;

/// Directories of the system that every run sees and that no bind makes writable, because the
/// machine's programs come from there.
const PROGRAMS: [&str; 9] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix",
];

/// Targets that a bind may neither cover, nor be below, nor contain.
const RESERVED_WHOLE: [&str; 14] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc",
    "/proc", "/sys", "/dev", "/run",
];

/// Targets that a bind may neither cover nor contain.
const RESERVED: [&str; 4] = ["/tmp", "/var/tmp", "/workspace", "/agent"];

/// A checked bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckedBind {
    pub source: PathBuf,
    pub target: String,
    pub access: MountAccess,
    pub device: u64,
    pub inode: u64,
    pub owner: (u32, u32),
}

/// The facts about this host that the rules need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BindRules<'a> {
    pub home: Option<&'a Path>,
    /// The state directory, by every path that leads to it.
    pub own: &'a [PathBuf],
    pub workspace: &'a Path,
}

impl BindRules<'_> {
    /// Checks a bind of the form `SOURCE:TARGET[:ro|rw]`.
    pub fn check(self, bind: &str) -> Result<CheckedBind, SandboxError> {
        let refused = |rule: String| SandboxError::Bind {
            bind: bind.to_owned(),
            rule,
        };
        let parts: Vec<&str> = bind.split(':').collect();
        let (source, target, access) = match parts[..] {
            [source, target] | [source, target, "ro"] => (source, target, MountAccess::Ro),
            [source, target, "rw"] => (source, target, MountAccess::Rw),
            _ => return Err(refused("it is not SOURCE:TARGET[:ro|rw]".to_owned())),
        };
        let source = self.expand(source);
        if !source.is_absolute() {
            return Err(refused("its source is not an absolute path".to_owned()));
        }
        self.check_source(&normalized(&source)).map_err(refused)?;
        let real = deepest_real(&source).map_err(|error| {
            refused(format!("{} cannot be looked at: {error}", source.display()))
        })?;
        self.check_source(&real).map_err(refused)?;
        if access == MountAccess::Rw {
            check_writable(&real).map_err(refused)?;
        }
        self.check_target(target).map_err(refused)?;
        let found = std::fs::symlink_metadata(&real);
        let found = found.map_err(|_| refused(format!("{} does not exist", real.display())))?;
        if !found.is_dir() && !found.is_file() {
            return Err(refused(format!(
                "{} is neither a directory nor a file",
                real.display()
            )));
        }
        Ok(CheckedBind {
            source: real,
            target: target.trim_end_matches('/').to_owned(),
            access,
            device: found.dev(),
            inode: found.ino(),
            owner: (found.uid(), found.gid()),
        })
    }

    /// Whether the bind rules allow showing this path.
    pub fn may_show(self, source: &Path) -> bool {
        self.check_source(source).is_ok()
    }

    fn expand(self, text: &str) -> PathBuf {
        match (text.strip_prefix("~"), self.home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                home.join(rest.trim_start_matches('/'))
            }
            _ => PathBuf::from(text),
        }
    }

    fn check_source(self, source: &Path) -> Result<(), String> {
        if source.parent().is_none() {
            return Err("`/` is everything".to_owned());
        }
        if let Some(homes) = HOMES.iter().find(|homes| Path::new(homes) == source) {
            return Err(format!(
                "{homes} is blocked: it holds home directories, with credentials"
            ));
        }
        for (blocked, what) in self.blocked() {
            let real = std::fs::canonicalize(&blocked).unwrap_or_else(|_| blocked.clone());
            for blocked in [&blocked, &real] {
                if source == blocked {
                    return Err(format!("{} is blocked: {what}", blocked.display()));
                }
                if source.starts_with(blocked) {
                    let source = source.display();
                    return Err(format!(
                        "{source} lies below {}, which is blocked: {what}",
                        blocked.display()
                    ));
                }
                if blocked.starts_with(source) {
                    let source = source.display();
                    return Err(format!(
                        "{source} lies above {}, which is blocked: {what}",
                        blocked.display()
                    ));
                }
            }
        }
        Ok(())
    }

    fn blocked(self) -> Vec<(PathBuf, &'static str)> {
        let system = SYSTEM
            .iter()
            .map(|(path, what)| (PathBuf::from(path), *what));
        let sockets = ENGINE_SOCKETS
            .iter()
            .map(|row| (PathBuf::from(row.path), row.reason));
        let keys = IN_SYSTEM
            .iter()
            .filter(|row| row.is_blocked_as_bind())
            .map(|row| (PathBuf::from(row.path), row.reason));
        let others = other_homes();
        let homes = others.iter().map(PathBuf::as_path).chain(self.home);
        let credentials: Vec<(PathBuf, &'static str)> = homes
            .flat_map(|home| {
                IN_HOME
                    .iter()
                    .map(move |row| (home.join(row.path), row.reason))
            })
            .collect();
        let own = self
            .own
            .iter()
            .map(|path| (path.clone(), "Interlock itself"));
        system
            .chain(sockets)
            .chain(keys)
            .chain(credentials)
            .chain(own)
            .collect()
    }

    fn check_target(self, target: &str) -> Result<(), String> {
        let path = Path::new(target);
        if !path.is_absolute() || path.parent().is_none() {
            return Err(format!(
                "its target `{target}` is not an absolute path below `/`"
            ));
        }
        let is_plain =
            |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let is_normal = normalized(path).to_str() == Some(target.trim_end_matches('/'));
        if !path.components().all(is_plain) || !is_normal {
            return Err(format!("its target `{target}` is not a plain path"));
        }
        for reserved in RESERVED_WHOLE {
            if path.starts_with(reserved) || Path::new(reserved).starts_with(path) {
                return Err(format!(
                    "its target `{target}` would cover {reserved}, which is reserved"
                ));
            }
        }
        let own = self.home.into_iter().chain([self.workspace]);
        for reserved in RESERVED.iter().map(Path::new).chain(own) {
            if reserved.starts_with(path) {
                let reserved = reserved.display();
                return Err(format!(
                    "its target `{target}` would cover {reserved}, which is reserved"
                ));
            }
        }
        Ok(())
    }
}

/// Checks that a bind may be writable, as far as the system's directories are concerned.
fn check_writable(source: &Path) -> Result<(), String> {
    let of_system = PROGRAMS
        .iter()
        .find(|path| source.starts_with(path) || Path::new(path).starts_with(source));
    match of_system {
        None => Ok(()),
        Some(path) => Err(format!(
            "{} is not for writing: programs of the machine lie in {path}",
            source.display()
        )),
    }
}

/// Returns the homes of the machine's users, because a gateway of root could show any of them.
fn other_homes() -> Vec<PathBuf> {
    let below = HOMES.iter().filter(|homes| **homes != "/root");
    let listed = below.filter_map(|homes| std::fs::read_dir(homes).ok());
    let found = listed.flatten().flatten().map(|entry| entry.path());
    found
        .take(MOST_HOMES)
        .chain([PathBuf::from("/root")])
        .collect()
}

/// Checks that a directory may be the workspace of a sandbox. Credentials below it are covered; a
/// workspace in a system directory or in one of Interlock's own is refused.
pub(crate) fn check_workspace(
    workspace: &Path,
    own: &[PathBuf],
    home: Option<&Path>,
) -> Result<(), SandboxError> {
    let refused = |rule: String| SandboxError::Workspace {
        path: workspace.to_owned(),
        rule,
    };
    if workspace.parent().is_none() {
        return Err(refused("`/` is everything".to_owned()));
    }
    let system = SYSTEM
        .iter()
        .map(|(path, what)| (PathBuf::from(path), *what));
    let other = ["/run", "/usr", "/bin", "/sbin", "/lib", "/lib64"]
        .map(|path| (PathBuf::from(path), "the system"));
    let own = own.iter().map(|path| (path.clone(), "Interlock itself"));
    let credentials = home.into_iter().flat_map(|home| {
        let keys = [".ssh", ".gnupg", ".aws", ".kube", ".docker"];
        keys.into_iter()
            .map(move |name| (home.join(name), "credentials"))
    });
    for (blocked, what) in system.chain(other).chain(own).chain(credentials) {
        if workspace.starts_with(&blocked) {
            return Err(refused(format!("it lies in {}: {what}", blocked.display())));
        }
    }
    Ok(())
}

/// Refuses a workspace in a hidden directory if the view shows the rest of the host, because the
/// workspace could not be shown without its siblings.
pub(crate) fn check_workspace_in_view(workspace: &Path, home: &Path) -> Result<(), SandboxError> {
    let above = hidden_paths(Some(home))
        .into_iter()
        .find(|(hidden, _)| workspace.starts_with(hidden));
    match above {
        None => Ok(()),
        Some((hidden, reason)) => Err(SandboxError::Workspace {
            path: workspace.to_owned(),
            rule: format!(
                "it lies in {}, which `view: host` hides: {reason}; use `view: minimal`",
                hidden.display()
            ),
        }),
    }
}

/// Removes `.` and `..` lexically.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            _ => {}
        }
    }
    out
}

/// Returns the real path. Links are resolved as far as the path exists.
fn deepest_real(path: &Path) -> io::Result<PathBuf> {
    let mut rest = Vec::new();
    let mut at = path;
    loop {
        match std::fs::canonicalize(at) {
            Ok(real) => {
                let joined = rest.iter().rev().fold(real, |path, name| path.join(name));
                return Ok(normalized(&joined));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (at.parent(), at.components().next_back()) else {
                    return Err(error);
                };
                rest.push(name.as_os_str().to_owned());
                at = parent;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_shows_nothing_that_is_blocked_by_any_path() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let home = root.join("home");
        let state = root.join("state/interlock");
        let data = root.join("data");
        for directory in [&home.join(".ssh"), &state, &data, &root.join("w")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::os::unix::fs::symlink("/etc", data.join("etc")).unwrap();
        std::os::unix::fs::symlink(home.join(".ssh"), data.join("keys")).unwrap();
        std::os::unix::fs::symlink(&root, data.join("up")).unwrap();
        let workspace = root.join("w");
        let rules = BindRules {
            home: Some(&home),
            own: std::slice::from_ref(&state),
            workspace: &workspace,
        };
        let data = data.to_str().unwrap();
        let root_text = root.to_str().unwrap();
        for (source, rule) in [
            ("/".to_owned(), "`/` is everything"),
            ("/etc".to_owned(), "/etc is blocked"),
            ("/etc/ssl".to_owned(), "lies below /etc"),
            ("/proc".to_owned(), "/proc is blocked"),
            ("/home/../etc".to_owned(), "/etc is blocked"),
            ("/var/run/docker.sock".to_owned(), "is blocked"),
            ("~/.ssh".to_owned(), "is blocked"),
            ("~".to_owned(), "lies above"),
            (root_text.to_owned(), "lies above"),
            (format!("{root_text}/state"), "lies above"),
            (format!("{root_text}/state/interlock/x"), "lies below"),
            ("relative".to_owned(), "not an absolute path"),
            (format!("{data}/etc"), "/etc is blocked"),
            (format!("{data}/etc/ssl"), "lies below /etc"),
            (format!("{data}/keys"), "is blocked"),
            (format!("{data}/up"), "lies above"),
            (format!("{data}/up/state/interlock"), "is blocked"),
            (format!("{data}/missing"), "does not exist"),
            ("/dev/null".to_owned(), "lies below /dev"),
        ] {
            let refused = rules.check(&format!("{source}:/data")).unwrap_err();
            assert_eq!(refused.code(), "SANDBOX_BIND");
            let text = refused.to_string();
            assert!(text.contains(rule) && text.contains(&source), "{text}");
        }
        for target in [
            "/",
            "/usr/x",
            "/etc",
            "/proc/x",
            "/tmp",
            "/workspace",
            "x",
            "/a/../etc",
            "/home",
        ] {
            let target = if target == "/home" { root_text } else { target };
            assert!(
                rules.check(&format!("{data}:{target}")).is_err(),
                "{target}"
            );
        }
        let fine = rules.check(&format!("{data}:/data:rw")).unwrap();
        assert_eq!(
            (fine.access, fine.target.as_str()),
            (MountAccess::Rw, "/data")
        );
        assert_eq!(
            rules.check(&format!("{data}:/data")).unwrap().access,
            MountAccess::Ro
        );
    }
}
