//! Why an approval was not decided, or a decision did not become a run.

use interlock_config::ConfigError;
use interlock_rules::RulesError;
use interlock_store::{ApprovalEnd, ApprovalError, StoreError};

use crate::events::DENIAL_TEXT;

/// Why an approval was not stored or decided, or does not allow a run.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalRefusal {
    #[error(transparent)]
    State(#[from] RulesError),
    #[error("a run must not decide approvals or change policy: {0}")]
    FromRun(String),
    #[error("approval {short_id} has not been decided yet")]
    Undecided { short_id: String },
    #[error("approval {short_id} was denied by {decider}{}", reason.as_ref().map_or(String::new(), |reason| format!(": {reason}")))]
    Denied {
        short_id: String,
        decider: String,
        /// The reason in the approver's words.
        reason: Option<String>,
    },
    #[error("approval {short_id} expired before it was decided")]
    Expired { short_id: String },
    #[error("no approver can be asked: {reason}")]
    FallbackDenied { short_id: String, reason: String },
    #[error("approval {short_id} no longer allows a run: {why}")]
    Ended { short_id: String, why: String },
    #[error("approval {short_id} was used already: {became}; it is not run again")]
    Used { short_id: String, became: String },
    #[error("approval {short_id} is for another request: {what} differs")]
    Mismatch {
        short_id: String,
        what: &'static str,
    },
    #[error("changed since it was asked for: {what}")]
    Drift { what: String },
    #[error("approval {short_id} does not offer {choice}: {why}")]
    NotOffered {
        short_id: String,
        choice: String,
        why: String,
    },
    #[error("approval {short_id} was allowed before, and nothing is stored as `{form}`")]
    NothingStored { short_id: String, form: String },
    #[error("{most} approvals of agent {agent} wait for a decision; no more are taken")]
    TooManyPending { agent: String, most: usize },
    #[error("agent {agent} has {most} remembered entries; no more are stored")]
    TooManyEntries { agent: String, most: usize },
    #[error("no grant `{0}` is in force, or more than one begins with it")]
    NoGrant(String),
    #[error("approval {short_id} is damaged: {problem}")]
    Damaged { short_id: String, problem: String },
}

impl ApprovalRefusal {
    /// The refusal of an approval that an approver denied.
    pub fn denied(short_id: String, ended: &ApprovalEnd) -> Self {
        let decider = ended.decider.clone();
        Self::Denied {
            short_id,
            decider: decider.unwrap_or_else(|| "an approver".to_owned()),
            reason: ended.reason.clone(),
        }
    }

    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::State(error) => error.code(),
            Self::FromRun(_) => "DECISION_FROM_RUN",
            Self::Undecided { .. } => "APPROVAL_PENDING",
            Self::Denied { .. } => "APPROVAL_DENIED",
            Self::Expired { .. } => "APPROVAL_EXPIRED",
            Self::FallbackDenied { .. } => "APPROVAL_FALLBACK_DENIED",
            Self::Ended { .. } => "APPROVAL_ENDED",
            Self::Used { .. } => "APPROVAL_USED",
            Self::Mismatch { .. } => "APPROVAL_REQUEST_MISMATCH",
            Self::Drift { .. } => "APPROVAL_DRIFT",
            Self::NotOffered { .. } => "APPROVAL_NOT_OFFERED",
            Self::NothingStored { .. } => "APPROVAL_ALREADY_DECIDED",
            Self::TooManyPending { .. } => "APPROVAL_TOO_MANY",
            Self::TooManyEntries { .. } => "ENTRY_TOO_MANY",
            Self::NoGrant(_) => "GRANT_NOT_FOUND",
            Self::Damaged { .. } => "APPROVAL_DAMAGED",
        }
    }

    /// Whether an approval that was found rather than named turned out to be the wrong one. Then a
    /// new approval is stored.
    pub fn wants_new_approval(&self) -> bool {
        matches!(
            self,
            Self::Mismatch { .. }
                | Self::Used { .. }
                | Self::Ended { .. }
                | Self::Expired { .. }
                | Self::Damaged { .. }
        )
    }

    /// Whether the approval was denied or no longer allows its run. Then there is no output, and
    /// output of earlier runs does not count.
    pub fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::Denied { .. }
                | Self::Expired { .. }
                | Self::FallbackDenied { .. }
                | Self::Drift { .. }
        )
    }

    /// What to do next.
    pub fn remedy(&self) -> Option<String> {
        let words = match self {
            Self::State(error) => return error.remedy(),
            Self::FromRun(_) => "decide in a terminal that no run has opened",
            Self::Undecided { .. } => "wait until an approver has decided it",
            Self::Denied { .. } => DENIAL_TEXT,
            Self::FallbackDenied { .. } => "ask again when an approver can answer",
            Self::Expired { .. } => {
                "if it is still wanted: without an approval id, the command is judged again"
            }
            Self::Ended { .. } | Self::Used { .. } => {
                "ask again: without an approval id, the command is judged anew"
            }
            Self::Mismatch { .. } => "run exactly what was approved, or ask anew",
            Self::Drift { .. } => "look at what changed, then ask anew",
            Self::NotOffered { .. } => "choose what is offered, or deny it",
            Self::NothingStored { .. } => {
                "add an entry by hand: interlock approvals allowlist add --help"
            }
            Self::TooManyPending { .. } => {
                "decide or withdraw some of them: interlock approvals pending"
            }
            Self::TooManyEntries { .. } => {
                "remove entries that are no longer used: interlock approvals allowlist remove --help"
            }
            Self::NoGrant(_) => "list them: interlock approvals grants",
            Self::Damaged { .. } => "ask anew, and check the records: interlock audit verify",
        };
        Some(words.to_owned())
    }
}

impl From<StoreError> for ApprovalRefusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Approval(ApprovalError::Expired { short_id }) => Self::Expired { short_id },
            StoreError::Approval(ApprovalError::TooManyPending { agent, most }) => {
                Self::TooManyPending { agent, most }
            }
            error => Self::State(error.into()),
        }
    }
}

impl From<ApprovalError> for ApprovalRefusal {
    fn from(error: ApprovalError) -> Self {
        StoreError::from(error).into()
    }
}

impl From<ConfigError> for ApprovalRefusal {
    fn from(error: ConfigError) -> Self {
        Self::State(error.into())
    }
}
