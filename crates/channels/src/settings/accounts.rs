//! Reads the accounts of platforms and their secrets from the config.

use std::collections::BTreeMap;
use std::path::Path;

use interlock_config::ChatSecret;
use interlock_config::types::{
    Config, DiscordAccount, MatrixAccount, SlackAccount, TelegramAccount,
};
use interlock_wire::Secret;

use super::{AccountSetup, ChatSetup, DEFAULT};
use crate::address::ServiceAddress;
use crate::channel::ChannelKind;
use crate::desk::ApprovalDesk;

/// The addresses of the platforms, unless the config sets others.
const TELEGRAM: &str = "https://api.telegram.org";
const SLACK: &str = "https://slack.com/api";
const DISCORD: &str = "https://discord.com/api";
const NTFY: &str = "https://ntfy.sh";

/// The keys of one account, each with its name.
struct AccountKeys<'a> {
    kind: ChannelKind,
    name: &'a str,
    /// The key of the account in the config.
    key: String,
    url: (&'static str, Option<&'a str>),
    allows_private: Option<bool>,
    token: SecretKeys<'a>,
    /// Slack only.
    app_token: Option<SecretKeys<'a>>,
    own_id: Option<String>,
}

/// A secret of an account: the key of its text, and the key of its file.
struct SecretKeys<'a> {
    text: (&'static str, Option<&'a ChatSecret>),
    file: (&'static str, Option<&'a str>),
}

/// Returns the accounts of a channel: the account of its own keys, if any is set, and the named
/// accounts.
fn all_accounts<'a, A: Default + PartialEq>(
    channel: &str,
    own: &'a A,
    named: &'a BTreeMap<String, A>,
) -> Vec<(&'a str, String, &'a A)> {
    let own = (*own != A::default()).then(|| (DEFAULT, format!("channels.{channel}"), own));
    let named = named.iter().map(|(name, account)| {
        let key = format!("channels.{channel}.accounts.{name}");
        (name.as_str(), key, account)
    });
    own.into_iter().chain(named).collect()
}

impl ChatSetup {
    pub(super) fn read_accounts(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        self.read_matrix(config, desk);
        self.read_telegram(config, desk);
        self.read_slack(config, desk);
        self.read_discord(config, desk);
        self.read_ntfy(config, desk);
        self.read_webhook(config, desk);
    }

    fn read_matrix(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        let matrix = &config.channels.matrix;
        let own = MatrixAccount {
            enabled: None,
            homeserver: matrix.homeserver.clone(),
            user_id: matrix.user_id.clone(),
            access_token: matrix.access_token.clone(),
            token_file: matrix.token_file.clone(),
            allow_private_network: matrix.allow_private_network,
        };
        if matrix.enabled == Some(false) {
            return;
        }
        for (name, key, account) in all_accounts("matrix", &own, &matrix.accounts) {
            if account.enabled == Some(false) {
                continue;
            }
            let Some(user) = account.user_id.clone() else {
                self.problem(&format!("{key}.userId"), "is not set");
                continue;
            };
            let keys = AccountKeys {
                kind: ChannelKind::Matrix,
                name,
                key,
                url: ("homeserver", account.homeserver.as_deref()),
                allows_private: account.allow_private_network,
                token: SecretKeys {
                    text: ("accessToken", account.access_token.as_ref()),
                    file: ("tokenFile", account.token_file.as_deref()),
                },
                app_token: None,
                own_id: Some(user),
            };
            self.add_account(desk, keys);
        }
    }

    fn read_telegram(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        let telegram = &config.channels.telegram;
        let own = TelegramAccount {
            enabled: None,
            bot_token: telegram.bot_token.clone(),
            token_file: telegram.token_file.clone(),
            api_root: telegram.api_root.clone(),
            allow_private_network: telegram.allow_private_network,
        };
        if telegram.enabled == Some(false) {
            return;
        }
        for (name, key, account) in all_accounts("telegram", &own, &telegram.accounts) {
            if account.enabled == Some(false) {
                continue;
            }
            let keys = AccountKeys {
                kind: ChannelKind::Telegram,
                name,
                key,
                url: ("apiRoot", account.api_root.as_deref().or(Some(TELEGRAM))),
                allows_private: account.allow_private_network,
                token: SecretKeys {
                    text: ("botToken", account.bot_token.as_ref()),
                    file: ("tokenFile", account.token_file.as_deref()),
                },
                app_token: None,
                own_id: None,
            };
            self.add_account(desk, keys);
        }
    }

    fn read_slack(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        let slack = &config.channels.slack;
        let own = SlackAccount {
            enabled: None,
            bot_token: slack.bot_token.clone(),
            token_file: slack.token_file.clone(),
            app_token: slack.app_token.clone(),
            app_token_file: slack.app_token_file.clone(),
            api_root: slack.api_root.clone(),
            allow_private_network: slack.allow_private_network,
        };
        if slack.enabled == Some(false) {
            return;
        }
        for (name, key, account) in all_accounts("slack", &own, &slack.accounts) {
            if account.enabled == Some(false) {
                continue;
            }
            let keys = AccountKeys {
                kind: ChannelKind::Slack,
                name,
                key,
                url: ("apiRoot", account.api_root.as_deref().or(Some(SLACK))),
                allows_private: account.allow_private_network,
                token: SecretKeys {
                    text: ("botToken", account.bot_token.as_ref()),
                    file: ("tokenFile", account.token_file.as_deref()),
                },
                app_token: Some(SecretKeys {
                    text: ("appToken", account.app_token.as_ref()),
                    file: ("appTokenFile", account.app_token_file.as_deref()),
                }),
                own_id: None,
            };
            self.add_account(desk, keys);
        }
    }

    fn read_discord(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        let discord = &config.channels.discord;
        let own = DiscordAccount {
            enabled: None,
            token: discord.token.clone(),
            token_file: discord.token_file.clone(),
            api_root: discord.api_root.clone(),
            allow_private_network: discord.allow_private_network,
        };
        if discord.enabled == Some(false) {
            return;
        }
        for (name, key, account) in all_accounts("discord", &own, &discord.accounts) {
            if account.enabled == Some(false) {
                continue;
            }
            let keys = AccountKeys {
                kind: ChannelKind::Discord,
                name,
                key,
                url: ("apiRoot", account.api_root.as_deref().or(Some(DISCORD))),
                allows_private: account.allow_private_network,
                token: SecretKeys {
                    text: ("token", account.token.as_ref()),
                    file: ("tokenFile", account.token_file.as_deref()),
                },
                app_token: None,
                own_id: None,
            };
            self.add_account(desk, keys);
        }
    }

    fn read_ntfy(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        let ntfy = &config.channels.ntfy;
        let (None | Some(true), Some(topic)) = (ntfy.enabled, &ntfy.topic) else {
            return;
        };
        let has_token = ntfy.access_token.is_some() || ntfy.token_file.is_some();
        let none = ChatSecret::Inline(String::new());
        let token = if has_token {
            ntfy.access_token.as_ref()
        } else {
            // A topic on a server that needs no token.
            Some(&none)
        };
        let keys = AccountKeys {
            kind: ChannelKind::Ntfy,
            name: DEFAULT,
            key: "channels.ntfy".to_owned(),
            url: ("url", ntfy.url.as_deref().or(Some(NTFY))),
            allows_private: ntfy.allow_private_network,
            token: SecretKeys {
                text: ("accessToken", token),
                file: ("tokenFile", ntfy.token_file.as_deref()),
            },
            app_token: None,
            own_id: None,
        };
        if let Some(account) = self.add_account(desk, keys) {
            account.topic = Some(topic.clone());
            account.allows = ntfy.allow == Some(true);
        }
    }

    fn read_webhook(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        let webhook = &config.channels.webhook;
        let (None | Some(true), Some(url)) = (webhook.enabled, &webhook.url) else {
            return;
        };
        let keys = AccountKeys {
            kind: ChannelKind::Webhook,
            name: DEFAULT,
            key: "channels.webhook".to_owned(),
            url: ("url", Some(url.as_str())),
            allows_private: webhook.allow_private_network,
            token: SecretKeys {
                text: ("secret", webhook.secret.as_ref()),
                file: ("secretFile", webhook.secret_file.as_deref()),
            },
            app_token: None,
            own_id: None,
        };
        self.add_account(desk, keys);
    }

    /// Adds an account, or the problem with it.
    fn add_account(
        &mut self,
        desk: &dyn ApprovalDesk,
        keys: AccountKeys<'_>,
    ) -> Option<&mut AccountSetup> {
        match read_account(desk, keys) {
            Ok(account) => {
                self.accounts.push(account);
                self.accounts.last_mut()
            }
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }
}

fn read_account(
    desk: &dyn ApprovalDesk,
    keys: AccountKeys<'_>,
) -> Result<AccountSetup, (String, String)> {
    let key = keys.key;
    let (url_key, url) = keys.url;
    let at_url = |why: String| (format!("{key}.{url_key}"), why);
    let url = url.ok_or_else(|| at_url("is not set".to_owned()))?;
    let address = ServiceAddress::check(url, keys.allows_private == Some(true));
    let address = address.map_err(|refused| at_url(refused.to_string()))?;
    let secret = |secret: SecretKeys<'_>| {
        let ((text_key, text), (file_key, file)) = (secret.text, secret.file);
        match read_secret(desk, text, file) {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err((format!("{key}.{text_key}"), "is not set".to_owned())),
            Err(why) => {
                let at = if file.is_some() { file_key } else { text_key };
                Err((format!("{key}.{at}"), why))
            }
        }
    };
    Ok(AccountSetup {
        kind: keys.kind,
        name: keys.name.to_owned(),
        address,
        own_id: keys.own_id,
        token: secret(keys.token)?,
        app_token: keys.app_token.map(secret).transpose()?,
        topic: None,
        allows: false,
    })
}

/// Returns the names of variables that hold secrets of channels. Runs do not inherit them.
pub fn secret_variables(config: &Config) -> Vec<String> {
    let channels = &config.channels;
    let (matrix, telegram) = (&channels.matrix, &channels.telegram);
    let (slack, discord) = (&channels.slack, &channels.discord);
    let slack_accounts = slack.accounts.values();
    let secrets = [
        matrix.access_token.as_ref(),
        telegram.bot_token.as_ref(),
        slack.bot_token.as_ref(),
        slack.app_token.as_ref(),
        discord.token.as_ref(),
        channels.ntfy.access_token.as_ref(),
        channels.webhook.secret.as_ref(),
        channels.webhook.decision_secret.as_ref(),
    ];
    let secrets = secrets
        .into_iter()
        .chain(
            matrix
                .accounts
                .values()
                .map(|one| one.access_token.as_ref()),
        )
        .chain(telegram.accounts.values().map(|one| one.bot_token.as_ref()))
        .chain(slack_accounts.flat_map(|one| [one.bot_token.as_ref(), one.app_token.as_ref()]))
        .chain(discord.accounts.values().map(|one| one.token.as_ref()));
    let names = secrets.flatten().filter_map(|secret| match secret {
        ChatSecret::Variable(name) => Some(name.clone()),
        ChatSecret::Inline(_) => None,
    });
    names.collect()
}

/// Reads a secret from its file, or else from its text or variable.
fn read_secret(
    desk: &dyn ApprovalDesk,
    secret: Option<&ChatSecret>,
    file: Option<&str>,
) -> Result<Option<Secret>, String> {
    if let Some(file) = file {
        return read_file(&desk.path(file)).map(Some);
    }
    match secret {
        None => Ok(None),
        Some(ChatSecret::Inline(text)) => Ok(Some(Secret::new(text.as_str()))),
        Some(ChatSecret::Variable(name)) => match desk.variable(name) {
            Some(text) if !text.trim().is_empty() => Ok(Some(Secret::new(text.trim()))),
            _ => Err(format!("the variable {name} is not set for the gateway")),
        },
    }
}

/// Returns the secret that signs decisions by webhook. Returns `None` if such decisions are not
/// enabled, or if the secret equals the one that signs Interlock's own calls, because such a call
/// could be sent back as a decision.
pub fn webhook_secret(config: &Config, desk: &dyn ApprovalDesk) -> Option<Secret> {
    let webhook = &config.channels.webhook;
    if webhook.enabled == Some(false) {
        return None;
    }
    let (secret, file) = (&webhook.decision_secret, &webhook.decision_secret_file);
    let own = read_secret(desk, secret.as_ref(), file.as_deref());
    let (secret, file) = (&webhook.secret, &webhook.secret_file);
    let outgoing = read_secret(desk, secret.as_ref(), file.as_deref());
    let own = own.ok().flatten().filter(|own| !own.is_empty())?;
    (outgoing.ok().flatten().as_ref() != Some(&own)).then_some(own)
}

fn read_file(path: &Path) -> Result<Secret, String> {
    const MOST: u64 = 16 * 1024;
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("{shown} cannot be read: {error}");
    let known = std::fs::metadata(path).map_err(cannot)?;
    if !known.is_file() || known.len() > MOST {
        return Err(format!("{shown} is no file of a token"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if known.permissions().mode() & 0o077 != 0 {
            return Err(format!("{shown} can be read by others: chmod 600 {shown}"));
        }
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    match text.trim() {
        "" => Err(format!("{shown} is empty")),
        text => Ok(Secret::new(text)),
    }
}
