//! The security audit: what of config, document, files and system is worth the owner's attention.
//!
//! Read `table` (every check with its id and reason), `subject` (what is looked at), then one file for each
//! kind of check. The checks only look; nothing here changes anything.

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

/// How much a finding matters. The order is that of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// Another user, or a caller without credentials, can get around the policy.
    Critical,
    /// The policy holds less than its reader may think.
    Warn,
    /// Something to tidy up.
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

/// One thing that a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecurityFinding {
    /// Stable, for programs.
    pub id: &'static str,
    pub severity: FindingSeverity,
    /// Where it stands: a key, a path, an entry.
    pub subject: String,
    /// What is the case.
    pub what: String,
    /// Why that matters.
    pub why: &'static str,
    /// A command to paste.
    pub fix: String,
}

impl SecurityCheck {
    /// A finding of this check.
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
