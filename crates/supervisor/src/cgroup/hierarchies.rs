//! Finds out which control groups this system offers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::files::{self, words};
use super::limits::{CgroupVersion, NotLimited, RunLimit, RunLimits};
use super::mounts::{self, CgroupTree, HierarchyKind};
use super::name::{LEAF, PROBE};
use super::{GroupError, Unavailable};

/// Magic numbers of the file systems of control groups.
const MAGIC_V2: i64 = 0x6367_7270;
const MAGIC_V1: i64 = 0x0027_e0eb;

/// Where groups of runs can be made, and which limits can be set there. This is determined once, by
/// really making and removing a directory in each place; it is valid as long as the process stays
/// in its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hierarchies {
    groups: Result<GroupPlace, Unavailable>,
    memory: Result<Controller, Unavailable>,
    pids: Result<Controller, Unavailable>,
    cpus: Result<Controller, Unavailable>,
}

/// A directory in which groups of runs are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupPlace {
    pub parent: PathBuf,
    /// The group of this process itself, to which a run's shim returns when it leaves the run's
    /// group. It is not always `parent`: in version 2, a group whose subgroups have controllers has
    /// no processes of its own.
    pub home: PathBuf,
}

/// The controller that sets a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Controller {
    V2,
    V1(GroupPlace),
}

/// One line of a report on this system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupFinding {
    pub what: &'static str,
    pub found: Result<String, Unavailable>,
}

impl Hierarchies {
    /// Probes the system for the calling process, in its present group.
    pub fn probe() -> Self {
        match own_trees() {
            Ok(trees) => Self::of(&trees, Ground::Kernel),
            Err(reason) => Self::none(&reason),
        }
    }

    /// Makes the value for groups in this directory, which is or mimics a group of version 2. Only
    /// the controllers in its `cgroup.subtree_control` can set limits.
    pub fn at(parent: &Path) -> Self {
        let tree = CgroupTree {
            kind: HierarchyKind::V2,
            top: parent.to_owned(),
            own: parent.to_owned(),
        };
        Self::of(&[tree], Ground::Any)
    }

    /// Makes the value for a system without any groups.
    pub fn none(reason: &Unavailable) -> Self {
        Self {
            groups: Err(reason.clone()),
            memory: Err(reason.clone()),
            pids: Err(reason.clone()),
            cpus: Err(reason.clone()),
        }
    }

    pub(super) fn of(trees: &[CgroupTree], ground: Ground) -> Self {
        let v2 = trees.iter().find(|tree| tree.kind == HierarchyKind::V2);
        let groups = v2.map_or_else(
            || Err(Unavailable::new("control groups v2 are not mounted")),
            |tree| {
                let place = place_v2(&tree.own);
                probe(&place.parent, ground, MAGIC_V2).map(|()| place)
            },
        );
        let enabled = match &groups {
            Ok(place) => enabled_below(&place.parent),
            Err(_) => Vec::new(),
        };
        let controller = |limit: RunLimit| {
            if enabled.iter().any(|name| name == limit.controller()) {
                return Ok(Controller::V2);
            }
            let Some(tree) = trees.iter().find(|tree| tree.has(limit.controller())) else {
                return Err(missing(limit, &groups));
            };
            probe(&tree.own, ground, MAGIC_V1).map(|()| {
                Controller::V1(GroupPlace {
                    parent: tree.own.clone(),
                    home: tree.own.clone(),
                })
            })
        };
        Self {
            memory: controller(RunLimit::Memory),
            pids: controller(RunLimit::Pids),
            cpus: controller(RunLimit::Cpus),
            groups,
        }
    }

    /// Whether a run's processes can be kept together (version 2), and where.
    pub fn groups(&self) -> Result<&Path, &Unavailable> {
        self.groups.as_ref().map(|place| place.parent.as_path())
    }

    /// Whether this limit can be set, and by which version.
    pub fn limit(&self, limit: RunLimit) -> Result<CgroupVersion, &Unavailable> {
        self.controller(limit).map(|controller| match controller {
            Controller::V2 => CgroupVersion::V2,
            Controller::V1(_) => CgroupVersion::V1,
        })
    }

    /// Checks that all of these limits can be set. This is called before a run is started.
    pub fn check(&self, limits: &RunLimits) -> Result<(), NotLimited> {
        let refused = limits
            .asked()
            .filter_map(|limit| Some((limit, self.controller(limit).err()?.clone())));
        NotLimited::unless_empty(refused.collect())
    }

    /// Returns the findings for a report to humans.
    pub fn findings(&self) -> Vec<CgroupFinding> {
        let mut findings = vec![CgroupFinding {
            what: "groups of runs",
            found: match &self.groups {
                Ok(place) => Ok(format!("v2, in {}", place.parent.display())),
                Err(reason) => Err(reason.clone()),
            },
        }];
        findings.extend(RunLimit::ALL.map(|limit| CgroupFinding {
            what: limit.title(),
            found: match self.controller(limit) {
                Ok(Controller::V2) => Ok("v2".to_owned()),
                Ok(Controller::V1(place)) => Ok(format!("v1, in {}", place.parent.display())),
                Err(reason) => Err(reason.clone()),
            },
        }));
        findings
    }

    pub(super) fn v2(&self) -> Option<&GroupPlace> {
        self.groups.as_ref().ok()
    }

    pub(super) fn controller(&self, limit: RunLimit) -> Result<&Controller, &Unavailable> {
        match limit {
            RunLimit::Memory => self.memory.as_ref(),
            RunLimit::Pids => self.pids.as_ref(),
            RunLimit::Cpus => self.cpus.as_ref(),
        }
    }

    /// Returns where groups of version 1 may be, each directory once.
    pub(super) fn v1(&self) -> Vec<&GroupPlace> {
        let mut places: Vec<&GroupPlace> = Vec::new();
        for limit in RunLimit::ALL {
            if let Ok(Controller::V1(place)) = self.controller(limit)
                && !places.contains(&place)
            {
                places.push(place);
            }
        }
        places
    }
}

/// Whether a directory must be on the file system that it is said to be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ground {
    Kernel,
    /// A directory that mimics a tree is allowed.
    Any,
}

/// Returns the trees of the calling process.
pub(super) fn own_trees() -> Result<Vec<CgroupTree>, Unavailable> {
    let read = |path: &str| {
        fs::read_to_string(path)
            .map_err(|error| Unavailable::new(format!("cannot read {path}: {}", words(&error))))
    };
    let trees = mounts::trees(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
    if trees.is_empty() {
        return Err(Unavailable::new("control groups are not mounted"));
    }
    Ok(trees)
}

/// Returns the place of new groups: below the own group, or beside it if it is the leaf that
/// [`super::lead_own_group`] made.
fn place_v2(own: &Path) -> GroupPlace {
    let parent = match own.parent() {
        Some(parent) if files::file_name(own) == Some(LEAF) => parent,
        _ => own,
    };
    GroupPlace {
        parent: parent.to_owned(),
        home: own.to_owned(),
    }
}

/// Tests a directory by making and removing a group.
fn probe(parent: &Path, ground: Ground, magic: i64) -> Result<(), Unavailable> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let cannot = |error: GroupError| Unavailable::new(error.to_string());
    if ground == Ground::Kernel {
        let found = rustix::fs::statfs(parent)
            .map_err(|errno| cannot(GroupError::file("cannot look at", parent)(errno.into())))?;
        // The field has another type on other architectures.
        #[allow(clippy::useless_conversion)]
        if i64::from(found.f_type) != magic {
            return Err(Unavailable::new(format!(
                "something else is mounted over {}",
                parent.display()
            )));
        }
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = parent.join(format!("{PROBE}{}-{number}", std::process::id()));
    fs::create_dir(&directory)
        .map_err(|error| cannot(GroupError::file("cannot make a group in", parent)(error)))?;
    // A group that is left over is found and removed by `sweep`.
    files::remove_tree(&directory).map_err(cannot)
}

/// Returns the controllers that groups in this directory have.
fn enabled_below(parent: &Path) -> Vec<String> {
    let text = files::read(parent, "cgroup.subtree_control").unwrap_or_default();
    text.split_whitespace().map(ToOwned::to_owned).collect()
}

fn missing(limit: RunLimit, groups: &Result<GroupPlace, Unavailable>) -> Unavailable {
    let controller = limit.controller();
    let place = match groups {
        Ok(place) => place,
        Err(reason) => return reason.clone(),
    };
    let offered = files::read(&place.parent, "cgroup.controllers").unwrap_or_default();
    let parent = place.parent.display();
    Unavailable::new(
        if offered.split_whitespace().any(|name| name == controller) {
            format!("the {controller} controller is not turned on for groups in {parent}")
        } else {
            format!("there is no {controller} controller in {parent}")
        },
    )
}
