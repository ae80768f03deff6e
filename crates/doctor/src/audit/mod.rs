//! The security audit: finds weaknesses in the config, the document, the files and the system.
//!
//! Read `table` (every check with its id and reason) and `subject` (what is checked), then one file
//! for each kind of check. The checks change nothing.

mod channels;
mod entries;
mod exec;
mod files;
mod gateway;
mod safe_bins;
mod shield;
mod subject;
mod table;

use serde::Serialize;

pub(crate) use files::secret_files;
pub use subject::{AuditSubject, audit, audit_host};
pub use table::{SECURITY_CHECKS, SecurityCheck, checks};

/// The severity of a finding, in the order of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// Another user, or a caller without credentials, can get around the policy.
    Critical,
    /// The policy is weaker than the owner may think.
    Warn,
    /// Something should be cleaned up.
    Info,
}

impl FindingSeverity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warn => "warn",
            Self::Info => "info",
        }
    }
}

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecurityFinding {
    /// The stable id for programs.
    pub id: &'static str,
    pub severity: FindingSeverity,
    /// What the finding is about: a key, a path or an entry.
    pub subject: String,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: &'static str,
    /// A command to paste.
    pub fix: String,
}

impl SecurityCheck {
    /// Makes a finding of this check.
    pub fn finding(
        &self,
        severity: FindingSeverity,
        subject: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> SecurityFinding {
        SecurityFinding {
            id: self.id,
            severity,
            subject: subject.into(),
            what: what.into(),
            why: self.why,
            fix: fix.into(),
        }
    }
}

/// Sorts by severity, then by id and subject.
pub fn sort_findings(findings: &mut [SecurityFinding]) {
    findings.sort_by(|one, other| {
        let key = |finding: &SecurityFinding| (finding.severity, finding.id);
        key(one)
            .cmp(&key(other))
            .then_with(|| one.subject.cmp(&other.subject))
    });
}
