//! Checks of chats: where their secrets are stored, and who can decide there.

use std::path::Path;

use interlock_config::types::ChatApprovals;
use interlock_config::{ChatSecret, Config};

use super::files::{is_readable_by_runs, quoted};
use super::subject::expanded;
use super::table::checks;
use super::{AuditSubject, FindingSeverity, SecurityFinding};

/// A secret of a channel: its place in the config, its key and text, and the key and path of its
/// file.
type ChannelSecret<'a> = (
    String,
    (&'static str, Option<&'a ChatSecret>),
    (&'static str, Option<&'a str>),
);

/// All secrets that the config of chats can contain.
fn secrets(config: &Config) -> Vec<ChannelSecret<'_>> {
    let channels = &config.channels;
    let (matrix, telegram) = (&channels.matrix, &channels.telegram);
    let (slack, discord) = (&channels.slack, &channels.discord);
    let (ntfy, webhook) = (&channels.ntfy, &channels.webhook);
    let named = |channel: &str, name: &str| format!("channels.{channel}.accounts.{name}");
    let mut all: Vec<ChannelSecret<'_>> = Vec::new();
    let mut add = |at: String, text, file| all.push((at, text, file));
    macro_rules! secret {
        ($at:expr, $of:expr, $text:literal $text_field:ident, $file:literal $file_field:ident) => {
            add(
                $at,
                ($text, $of.$text_field.as_ref()),
                ($file, $of.$file_field.as_deref()),
            )
        };
    }
    secret!("channels.matrix".to_owned(), matrix, "accessToken" access_token, "tokenFile" token_file);
    for (name, account) in &matrix.accounts {
        secret!(named("matrix", name), account, "accessToken" access_token, "tokenFile" token_file);
    }
    secret!("channels.telegram".to_owned(), telegram, "botToken" bot_token, "tokenFile" token_file);
    for (name, account) in &telegram.accounts {
        secret!(named("telegram", name), account, "botToken" bot_token, "tokenFile" token_file);
    }
    secret!("channels.slack".to_owned(), slack, "botToken" bot_token, "tokenFile" token_file);
    secret!("channels.slack".to_owned(), slack, "appToken" app_token, "appTokenFile" app_token_file);
    for (name, account) in &slack.accounts {
        secret!(named("slack", name), account, "botToken" bot_token, "tokenFile" token_file);
        secret!(named("slack", name), account, "appToken" app_token, "appTokenFile" app_token_file);
    }
    secret!("channels.discord".to_owned(), discord, "token" token, "tokenFile" token_file);
    for (name, account) in &discord.accounts {
        secret!(named("discord", name), account, "token" token, "tokenFile" token_file);
    }
    secret!("channels.ntfy".to_owned(), ntfy, "accessToken" access_token, "tokenFile" token_file);
    secret!("channels.webhook".to_owned(), webhook, "secret" secret, "secretFile" secret_file);
    secret!("channels.webhook".to_owned(), webhook, "decisionSecret" decision_secret, "decisionSecretFile" decision_secret_file);
    all
}

/// Finds files with secrets that runs can read. The shield hides only the state directory, not
/// other files of the user.
pub(super) fn check_files(
    config: &Config,
    state_dir: &Path,
    home: Option<&str>,
    findings: &mut Vec<SecurityFinding>,
) {
    for (at, _, (key, file)) in secrets(config) {
        let Some(path) = file.and_then(|file| expanded(file, home)) else {
            continue;
        };
        if !is_readable_by_runs(config, state_dir, &path) {
            continue;
        }
        let (key, name) = (
            format!("{at}.{key}"),
            at.replace("channels.", "").replace('.', "-"),
        );
        let inside = state_dir.join(format!(
            "channel-{name}-{key}.secret",
            key = &key[at.len() + 1..]
        ));
        findings.push(checks::CHANNEL_SECRET_FILE.finding(
            FindingSeverity::Warn,
            &key,
            format!(
                "{} is outside the state directory, where runs of this user can read it",
                path.display()
            ),
            format!(
                "mv {} {} && interlock config set {key} {}",
                quoted(&path),
                quoted(&inside),
                quoted(&inside)
            ),
        ));
    }
}

pub(super) fn check(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let channels = &subject.config.channels;
    for (at, (key, secret), _) in secrets(&subject.config) {
        let key = format!("{at}.{key}");
        if matches!(secret, Some(ChatSecret::Inline(_))) {
            findings.push(checks::CHANNEL_INLINE_SECRET.finding(
                FindingSeverity::Warn,
                &key,
                "the secret is in the config itself: a file of mode 0600 in the state directory is hidden from runs",
                format!("interlock config unset {key}"),
            ));
        }
    }
    for (key, approvals) in [
        ("channels.matrix", &channels.matrix.exec_approvals),
        ("channels.telegram", &channels.telegram.exec_approvals),
        ("channels.slack", &channels.slack.exec_approvals),
        ("channels.discord", &channels.discord.exec_approvals),
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
