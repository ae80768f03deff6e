//! The limits of a run, and how they are written.

use std::fmt;
use std::path::Path;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{GroupError, Unavailable, files};

/// The period over which processor time is counted, in microseconds. This is the kernel's default.
const PERIOD_US: u32 = 100_000;

/// The limits of one run. An absent value means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RunLimits {
    /// Memory and swap together.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at one time. All that are in the group count, including the run's shim
    /// and its threads: a caller that puts a shim into the group adds them to the limit.
    pub pids: Option<u64>,
    pub cpus: Option<Cpus>,
}

/// A number of processors, in thousandths. The minimum is a hundredth, which is the least that
/// kernels accept; the maximum is 4096.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Cpus(u32);

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("not a number of processors from 0.01 to 4096: {0}")]
pub struct BadCpus(f64);

impl Cpus {
    const LEAST: f64 = 0.01;
    const MOST: f64 = 4096.0;

    pub fn millis(self) -> u32 {
        self.0
    }

    /// Microseconds of processor time in each period.
    fn quota_us(self) -> u64 {
        u64::from(self.0) * u64::from(PERIOD_US) / 1000
    }
}

impl TryFrom<f64> for Cpus {
    type Error = BadCpus;

    fn try_from(number: f64) -> Result<Self, BadCpus> {
        if !(Self::LEAST..=Self::MOST).contains(&number) {
            return Err(BadCpus(number));
        }
        // The check above guarantees that the value is in range.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Ok(Self((number * 1000.0).round() as u32))
    }
}

impl From<Cpus> for f64 {
    fn from(cpus: Cpus) -> Self {
        Self::from(cpus.0) / 1000.0
    }
}

impl RunLimits {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn asked(&self) -> impl Iterator<Item = RunLimit> {
        let asked = [
            self.memory_bytes.map(|_| RunLimit::Memory),
            self.pids.map(|_| RunLimit::Pids),
            self.cpus.map(|_| RunLimit::Cpus),
        ];
        asked.into_iter().flatten()
    }

    /// Writes one limit, if it is requested, into a group that has its controller.
    pub(super) fn write(
        &self,
        limit: RunLimit,
        version: CgroupVersion,
        group: &Path,
    ) -> Result<(), GroupError> {
        match (limit, version) {
            (RunLimit::Memory, CgroupVersion::V2) => self.memory_bytes.map_or(Ok(()), |bytes| {
                files::write(group, "memory.max", &bytes.to_string())?;
                // Without this, the limit would only mean that the excess is swapped out.
                where_offered(files::write(group, "memory.swap.max", "0"))
            }),
            (RunLimit::Memory, CgroupVersion::V1) => self
                .memory_bytes
                .map_or(Ok(()), |bytes| memory_v1(group, bytes)),
            (RunLimit::Pids, _) => self.pids.map_or(Ok(()), |pids| {
                files::write(group, "pids.max", &pids.to_string())
            }),
            (RunLimit::Cpus, CgroupVersion::V2) => self.cpus.map_or(Ok(()), |cpus| {
                let value = format!("{} {PERIOD_US}", cpus.quota_us());
                files::write(group, "cpu.max", &value)
            }),
            (RunLimit::Cpus, CgroupVersion::V1) => {
                self.cpus.map_or(Ok(()), |cpus| cpus_v1(group, cpus))
            }
        }
    }
}

/// Sets the memory limit so that the limit of memory and swap together is never below that of
/// memory alone, not even for a moment.
fn memory_v1(group: &Path, bytes: u64) -> Result<(), GroupError> {
    const BOTH: &str = "memory.memsw.limit_in_bytes";
    let bytes = bytes.to_string();
    let counts_swap = group.join(BOTH).exists();
    if counts_swap {
        files::write(group, BOTH, "-1")?;
    }
    files::write(group, "memory.limit_in_bytes", &bytes)?;
    if counts_swap {
        files::write(group, BOTH, &bytes)
    } else {
        // The kernel does not count swap, so nothing of this group may be swapped out.
        where_offered(files::write(group, "memory.swappiness", "0"))
    }
}

fn cpus_v1(group: &Path, cpus: Cpus) -> Result<(), GroupError> {
    files::write(group, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
    let quota = cpus.quota_us().to_string();
    match files::write(group, "cpu.cfs_quota_us", &quota) {
        // The value itself is always in range, so a refused value exceeds that of the groups above.
        // They then limit the run to less than was requested, and it inherits that.
        Err(error) if error.errno() == Some(Errno::INVAL) => Ok(()),
        written => written,
    }
}

/// Ignores the absence of a file that not every kernel has.
fn where_offered(written: Result<(), GroupError>) -> Result<(), GroupError> {
    match written {
        Err(error) if error.is_gone() => Ok(()),
        written => written,
    }
}

/// The version of control groups that sets a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// A resource that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunLimit {
    Memory,
    Pids,
    Cpus,
}

impl RunLimit {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpus];

    /// The kernel's name of the controller.
    pub(super) fn controller(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpus => "cpu",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Memory => "limit of memory",
            Self::Pids => "limit of processes",
            Self::Cpus => "limit of processors",
        }
    }
}

/// Requested limits that are not in force. The run must not continue as if they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NotLimited {
    pub refused: Vec<(RunLimit, Unavailable)>,
}

impl NotLimited {
    pub(super) fn unless_empty(refused: Vec<(RunLimit, Unavailable)>) -> Result<(), Self> {
        if refused.is_empty() {
            Ok(())
        } else {
            Err(Self { refused })
        }
    }
}

impl fmt::Display for NotLimited {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (limit, reason)) in self.refused.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            let title = limit.title();
            write!(formatter, "{separator}no {title}: {reason}")?;
        }
        Ok(())
    }
}
