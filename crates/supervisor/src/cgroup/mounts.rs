//! Finds where the trees of control groups are mounted, and where in them this process is.

use std::path::{Component, Path, PathBuf};

/// One tree, as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupTree {
    pub kind: HierarchyKind,
    /// The highest directory that is visible.
    pub top: PathBuf,
    /// The directory of the group that this process is in.
    pub own: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HierarchyKind {
    V2,
    /// A tree of version 1, with its controllers, or with `name=…` if it has none and a service
    /// manager uses it to keep track of processes.
    V1(Vec<String>),
}

impl CgroupTree {
    pub fn has(&self, controller: &str) -> bool {
        match &self.kind {
            HierarchyKind::V2 => false,
            HierarchyKind::V1(controllers) => controllers.iter().any(|one| one == controller),
        }
    }

    /// The name of the tree for humans.
    pub fn title(&self) -> String {
        match &self.kind {
            HierarchyKind::V2 => "v2".to_owned(),
            HierarchyKind::V1(controllers) => format!("v1 {}", controllers.join(",")),
        }
    }
}

/// A line of `mountinfo` that describes a mount of control groups.
struct CgroupMount {
    version_2: bool,
    /// The mount options, which include the controllers of version 1.
    options: Vec<String>,
    /// The part of the tree that is mounted.
    root: String,
    point: PathBuf,
    read_only: bool,
}

/// Returns all trees in which this process has a visible group, from the texts of
/// `/proc/self/mountinfo` and `/proc/self/cgroup`. If a tree is mounted several times, a writable
/// mount is chosen.
pub(super) fn trees(mountinfo: &str, cgroup: &str) -> Vec<CgroupTree> {
    let mounts: Vec<CgroupMount> = mountinfo.lines().filter_map(mount).collect();
    let own_paths = cgroup.lines().filter_map(own_path);
    own_paths
        .filter_map(|(kind, path)| {
            let visible = mounts.iter().filter(|mount| mount.is_of(&kind));
            let (mount, rest) = visible
                .filter_map(|mount| Some((mount, below(&mount.root, path)?)))
                .min_by_key(|(mount, _)| mount.read_only)?;
            let top = mount.point.clone();
            let own = if rest.as_os_str().is_empty() {
                top.clone()
            } else {
                top.join(rest)
            };
            Some(CgroupTree { kind, top, own })
        })
        .collect()
}

/// Parses `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS…] - TYPE SOURCE SUPER-OPTIONS`.
fn mount(line: &str) -> Option<CgroupMount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point, options) = (before.next()?, before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, super_options) = (after.next()?, after.nth(1).unwrap_or(""));
    let version_2 = match kind {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    Some(CgroupMount {
        version_2,
        options: words(super_options),
        root: unescaped(root),
        point: PathBuf::from(unescaped(point)),
        read_only: words(options)
            .iter()
            .chain(&words(super_options))
            .any(|option| option == "ro"),
    })
}

impl CgroupMount {
    fn is_of(&self, kind: &HierarchyKind) -> bool {
        match kind {
            HierarchyKind::V2 => self.version_2,
            HierarchyKind::V1(controllers) => {
                !self.version_2 && controllers.iter().all(|one| self.options.contains(one))
            }
        }
    }
}

/// Parses `NUMBER:CONTROLLERS:PATH`. The controllers of version 2 are not named.
fn own_path(line: &str) -> Option<(HierarchyKind, &str)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = match (number, controllers) {
        ("0", "") => HierarchyKind::V2,
        _ => HierarchyKind::V1(words(controllers)),
    };
    Some((kind, path))
}

fn words(list: &str) -> Vec<String> {
    list.split(',').map(ToOwned::to_owned).collect()
}

/// Returns the rest of a path below a root, or `None` for a path that is not below it: a group
/// outside the own cgroup namespace is shown with `..`.
fn below(root: &str, path: &str) -> Option<PathBuf> {
    let rest = Path::new(path).strip_prefix(root).ok()?;
    rest.components()
        .all(|component| matches!(component, Component::Normal(_)))
        .then(|| rest.to_owned())
}

/// Decodes spaces and similar characters, which are written as `\040`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if let (
            b'\\',
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ],
        ) = (first, after)
        {
            bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
