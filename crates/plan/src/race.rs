//! What can still happen between the last check of a file and its use, as an approver reads it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether each file of a run is certain to be the checked one, regardless of other processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RaceFreedom {
    /// No file can be exchanged.
    RaceFree,
    /// These files could be exchanged. Never empty.
    Exposed { risks: Vec<RaceRisk> },
}

impl RaceFreedom {
    pub fn from_risks(risks: Vec<RaceRisk>) -> Self {
        if risks.is_empty() {
            Self::RaceFree
        } else {
            Self::Exposed { risks }
        }
    }

    pub fn is_race_free(&self) -> bool {
        matches!(self, Self::RaceFree)
    }

    /// The files that could be exchanged, and why.
    pub fn risks(&self) -> &[RaceRisk] {
        match self {
            Self::RaceFree => &[],
            Self::Exposed { risks } => risks,
        }
    }
}

/// A file that could be exchanged before its use. Displays as one sentence without a full stop. The
/// path is as the system has it, so a surface must make it visible first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RaceRisk {
    pub path: String,
    pub cause: RaceCause,
}

/// Why a file could be exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RaceCause {
    /// A program opens the file by its path, and another file can be put there.
    PathCanChange,
    /// A program opens the file by its path, and its content can be changed; no snapshot can
    /// replace it.
    ContentCanChange,
    /// The file system cannot keep writers away from a native program while it starts.
    NoLease,
    /// Something could appear here and would be used instead of a bound file.
    CanAppear,
    /// Only a handler of the kernel knows the format and opens the file by its path.
    UnknownFormat,
    /// The dynamic loader searches for libraries in places that cannot be followed.
    LibrariesUnknown,
}

impl RaceCause {
    pub fn explanation(self) -> &'static str {
        match self {
            Self::PathCanChange => {
                "is opened again by its path, and another file can be put there meanwhile"
            }
            Self::ContentCanChange => {
                "is opened again by its path, and its content can be written meanwhile"
            }
            Self::NoLease => {
                "could be written while it starts: its file system keeps no writer away"
            }
            Self::CanAppear => "could appear meanwhile, and would be used instead",
            Self::UnknownFormat => {
                "has a format that only a handler of the kernel knows, which opens it again"
            }
            Self::LibrariesUnknown => "loads libraries from places that cannot be followed",
        }
    }
}

impl fmt::Display for RaceRisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.cause.explanation())
    }
}
