//! How an approval ends: by an approver's decision, by the fallback, by expiry, or by withdrawal.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::MAX_LEASE_DAYS;
use crate::pending::ApprovalError;

/// An approver's decision. This is the only decision enum of the workspace; messages carry its
/// words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalDecision {
    AllowOnce,
    /// Allows the run, and runs of the same content until the session ends.
    AllowSession,
    /// Allows the run once, and stores entries so that the same needs no further approval.
    AllowAlways,
    /// Allows the run, and runs of the same content in this session, for a time or a number of
    /// runs.
    Lease(Lease),
    Deny,
}

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The terms of a lease. The approved run itself is the first of its uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The duration from the decision on, counted in whole milliseconds.
    pub expires_in: Duration,
    /// `None` if the uses are unlimited.
    pub max_uses: Option<NonZeroU32>,
}

impl Lease {
    /// The longest lease that a decision may name.
    pub const LONGEST: Self = Self {
        expires_in: Duration::from_secs(MAX_LEASE_DAYS * DAY_SECONDS),
        max_uses: None,
    };

    /// Refuses a lease longer than [`MAX_LEASE_DAYS`].
    pub(crate) fn check(self) -> Result<(), ApprovalError> {
        if self.expires_in <= Self::LONGEST.expires_in {
            return Ok(());
        }
        let days = self.expires_in.as_secs().div_ceil(DAY_SECONDS);
        Err(ApprovalError::LeaseTooLong { days })
    }

    pub(crate) fn milliseconds(self) -> i64 {
        i64::try_from(self.expires_in.as_millis()).unwrap_or(i64::MAX)
    }
}

impl ApprovalDecision {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowSession => "allow-session",
            Self::AllowAlways => "allow-always",
            Self::Lease(_) => "lease",
            Self::Deny => "deny",
        }
    }

    /// Returns the decision that a word names. A lease must have terms, and no other decision may
    /// have any.
    pub fn from_word(word: &str, lease: Option<Lease>) -> Option<Self> {
        match (word, lease) {
            ("lease", Some(lease)) => Some(Self::Lease(lease)),
            (_, Some(_)) => None,
            (word, None) => {
                let mut plain = Self::WITHOUT_TERMS.into_iter();
                plain.find(|decision| decision.as_str() == word)
            }
        }
    }

    /// Returns the offered decision that a word names. A lease is offered with the longest terms.
    pub fn offered_as(word: &str) -> Option<Self> {
        let lease = (word == "lease").then_some(Lease::LONGEST);
        Self::from_word(word, lease)
    }

    const WITHOUT_TERMS: [Self; 4] = [
        Self::AllowOnce,
        Self::AllowSession,
        Self::AllowAlways,
        Self::Deny,
    ];

    pub fn allows(self) -> bool {
        self != Self::Deny
    }

    /// Whether the decision allows further runs of the same content.
    pub(crate) fn grants(self) -> bool {
        matches!(self, Self::AllowSession | Self::Lease(_))
    }
}

/// The reason why an approval is no longer pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalEnding {
    Decision(ApprovalDecision),
    /// `askFallback` stood in for an approver, and allowed.
    FallbackAllow,
    /// `askFallback` stood in for an approver, and denied.
    FallbackDeny,
    Expired,
    /// The caller withdrew the approval.
    Withdrawn,
}

impl ApprovalEnding {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decision(decision) => decision.as_str(),
            Self::FallbackAllow => "fallback-allow",
            Self::FallbackDeny => "fallback-deny",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    pub fn allows(self) -> bool {
        match self {
            Self::Decision(decision) => decision.allows(),
            Self::FallbackAllow => true,
            Self::FallbackDeny | Self::Expired | Self::Withdrawn => false,
        }
    }

    /// Returns the ending that a word names, if there is one. The word does not hold the terms of a
    /// lease.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::from_columns(word, Some(0), None)
    }

    /// Whether both endings are stored alike: times count in whole milliseconds.
    pub(crate) fn is_same(self, other: Self) -> bool {
        let stored = |ending: Self| (ending.as_str(), ending.lease_columns());
        stored(self) == stored(other)
    }

    /// Returns the terms of a lease as they are stored: milliseconds and uses.
    pub(crate) fn lease_columns(self) -> (Option<i64>, Option<u32>) {
        match self {
            Self::Decision(ApprovalDecision::Lease(lease)) => {
                let uses = lease.max_uses.map(NonZeroU32::get);
                (Some(lease.milliseconds()), uses)
            }
            _ => (None, None),
        }
    }

    /// Returns the ending that these columns stand for, if there is one.
    pub(crate) fn from_columns(
        word: &str,
        lease_for_ms: Option<i64>,
        lease_max_uses: Option<u32>,
    ) -> Option<Self> {
        let plain = [
            Self::Decision(ApprovalDecision::AllowOnce),
            Self::Decision(ApprovalDecision::AllowSession),
            Self::Decision(ApprovalDecision::AllowAlways),
            Self::Decision(ApprovalDecision::Deny),
            Self::FallbackAllow,
            Self::FallbackDeny,
            Self::Expired,
            Self::Withdrawn,
        ];
        if word != "lease" {
            return plain.into_iter().find(|ending| ending.as_str() == word);
        }
        let milliseconds = u64::try_from(lease_for_ms?).ok()?;
        Some(Self::Decision(ApprovalDecision::Lease(Lease {
            expires_in: Duration::from_millis(milliseconds),
            max_uses: lease_max_uses.and_then(NonZeroU32::new),
        })))
    }
}

/// How, when and by whom an approval was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalEnd {
    pub ending: ApprovalEnding,
    /// `None` if no approver decided.
    pub decider: Option<String>,
    /// The reason for a denial, in the approver's words.
    pub reason: Option<String>,
    pub at_ms: i64,
}

impl fmt::Display for ApprovalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.ending {
            ApprovalEnding::Decision(ApprovalDecision::Deny) => "denied",
            ending => ending.as_str(),
        })?;
        if let Some(decider) = &self.decider {
            write!(f, " by {decider}")?;
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
