//! Checks of chats: where their secrets lie, and who decides there.

use interlock_config::ChatSecret;
use interlock_config::types::ChatApprovals;

use super::table::checks;
use super::{AuditSubject, FindingSeverity, SecurityFinding};

pub(super) fn check(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let channels = &subject.config.channels;
    let mut secrets: Vec<(String, Option<&ChatSecret>)> = vec![
        (
            "channels.matrix.accessToken".to_owned(),
            channels.matrix.access_token.as_ref(),
        ),
        (
            "channels.telegram.botToken".to_owned(),
            channels.telegram.bot_token.as_ref(),
        ),
        (
            "channels.ntfy.accessToken".to_owned(),
            channels.ntfy.access_token.as_ref(),
        ),
        (
            "channels.webhook.secret".to_owned(),
            channels.webhook.secret.as_ref(),
        ),
        (
            "channels.webhook.decisionSecret".to_owned(),
            channels.webhook.decision_secret.as_ref(),
        ),
    ];
    for (name, account) in &channels.matrix.accounts {
        let key = format!("channels.matrix.accounts.{name}.accessToken");
        secrets.push((key, account.access_token.as_ref()));
    }
    for (name, account) in &channels.telegram.accounts {
        let key = format!("channels.telegram.accounts.{name}.botToken");
        secrets.push((key, account.bot_token.as_ref()));
    }
    for (key, secret) in secrets {
        if matches!(secret, Some(ChatSecret::Inline(_))) {
            findings.push(checks::CHANNEL_INLINE_SECRET.finding(
                FindingSeverity::Warn,
                &key,
                "the secret stands in the config itself: a file of mode 0600 in the state directory is hidden from runs",
                format!("interlock config unset {key}"),
            ));
        }
    }
    for (key, approvals) in [
        ("channels.matrix", &channels.matrix.exec_approvals),
        ("channels.telegram", &channels.telegram.exec_approvals),
    ] {
        check_approvers(key, approvals, findings);
    }
    if channels.ntfy.allow == Some(true) {
        findings.push(checks::CHANNEL_NO_APPROVER.finding(
            FindingSeverity::Warn,
            "channels.ntfy.allow",
            "every subscriber of the topic can allow commands",
            "interlock config unset channels.ntfy.allow",
        ));
    }
}

fn check_approvers(key: &str, approvals: &ChatApprovals, findings: &mut Vec<SecurityFinding>) {
    for approver in approvals.approvers.iter().flatten() {
        if approver.contains('*') {
            findings.push(checks::CHANNEL_WILDCARD.finding(
                FindingSeverity::Warn,
                format!("{key}.execApprovals.approvers"),
                format!("`{approver}` names no approver: ids are compared as they are"),
                format!("interlock config unset {key}.execApprovals.approvers"),
            ));
        }
    }
}
