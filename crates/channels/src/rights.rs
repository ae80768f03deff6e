//! Decides which decisions a channel may take, by the approval, the owner's config, and how much
//! was shown.

use interlock_approvals::PendingApproval;
use interlock_store::ApprovalDecision;

use crate::channel::ChannelKind;
use crate::desk::ApprovalDesk;
use crate::settings::{taken_decisions, takes_decisions};

/// The decisions that a target may take about an approval, by the owner's config and the approval
/// itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatRights {
    /// The words of the decisions that count. If empty, the target takes none.
    pub(crate) decisions: Vec<&'static str>,
    /// Why nothing can be allowed there.
    pub(crate) no_allow: Option<&'static str>,
    /// Whether decisions can be typed there.
    pub(crate) is_typed: bool,
}

impl ChatRights {
    pub(crate) fn has(&self, decision: ApprovalDecision) -> bool {
        self.decisions.contains(&decision.as_str())
    }

    pub(crate) fn offers_allow(&self) -> bool {
        let is_allow = |word: &&str| *word != ApprovalDecision::Deny.as_str();
        self.decisions.iter().any(is_allow)
    }

    /// Limits the rights to buttons, where nothing else is read. Decisions that need a second step
    /// or terms are removed.
    pub(crate) fn buttons_only(&mut self) {
        let is_button = |word: &&str| matches!(*word, "allow-once" | "deny");
        self.decisions.retain(is_button);
        self.is_typed = false;
    }

    pub(crate) fn deny_only(&mut self, why: &'static str) {
        self.decisions
            .retain(|word| *word == ApprovalDecision::Deny.as_str());
        self.no_allow = self.no_allow.or(Some(why));
    }
}

/// Returns the decisions about an approval whose whole view is shown. `taken` are the words that
/// the owner lets a channel take. `None` means all.
fn rights(approval: &PendingApproval, taken: Option<&[String]>) -> ChatRights {
    let offered = approval.offered.iter().map(|one| one.as_str());
    let is_taken = |word: &&'static str| {
        taken.is_none_or(|taken| taken.iter().any(|one| one.as_str() == *word))
    };
    let mut rights = ChatRights {
        decisions: offered.filter(is_taken).collect(),
        no_allow: None,
        is_typed: true,
    };
    let view = &approval.view;
    if approval.binding == "unbound" {
        rights.deny_only("it is unbound: open it to allow it");
    } else if view.elevated.leaves() {
        rights.deny_only("it leaves its sandbox: open it to allow it");
    } else if view.masked_secrets > 0 {
        rights.deny_only("secrets are masked here: open it to allow it");
    } else if view.left_out_lines() > 0 || approval.command.left_out > 0 {
        rights.deny_only("not all of it is shown here: open it to allow it");
    }
    rights
}

/// Returns what a channel may decide about an approval that it shows whole.
pub(crate) fn target_rights(
    desk: &dyn ApprovalDesk,
    kind: ChannelKind,
    approval: &PendingApproval,
) -> ChatRights {
    let none = ChatRights {
        decisions: Vec::new(),
        is_typed: true,
        no_allow: Some("decisions are not taken in this chat"),
    };
    let Some(config) = desk.config() else {
        return none;
    };
    let config = config.config();
    let takes = match kind {
        ChannelKind::Matrix | ChannelKind::Telegram | ChannelKind::Slack | ChannelKind::Discord => {
            takes_decisions(config, kind)
        }
        ChannelKind::Ntfy => true,
        ChannelKind::Webhook => {
            let webhook = &config.channels.webhook;
            webhook.decision_secret.is_some() || webhook.decision_secret_file.is_some()
        }
    };
    if !takes {
        return none;
    }
    let mut rights = rights(approval, taken_decisions(config, kind));
    match kind {
        ChannelKind::Ntfy => {
            let allows = config.channels.ntfy.allow == Some(true);
            rights
                .decisions
                .retain(|word| *word == "deny" || (allows && *word == "allow-once"));
        }
        // A lease has terms, which a webhook cannot express.
        ChannelKind::Webhook => rights.decisions.retain(|word| *word != "lease"),
        ChannelKind::Matrix | ChannelKind::Telegram | ChannelKind::Slack | ChannelKind::Discord => {
        }
    }
    rights
}

/// Returns the words of the decisions that a message of this kind of channel offers now.
pub fn chat_offers(
    desk: &dyn ApprovalDesk,
    kind: ChannelKind,
    approval: &PendingApproval,
    was_whole: bool,
) -> Vec<&'static str> {
    let mut rights = target_rights(desk, kind, approval);
    if !was_whole {
        rights.deny_only("it was not shown whole here: open it to allow it");
    }
    rights.decisions
}
