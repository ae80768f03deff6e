//! Accounts, targets and approvers, by the config in force.

use std::path::Path;

use interlock_config::types::{ChatApprovals, Config, MachineApprovals};
use interlock_config::{ChatSecret, ChatSwitch, ChatTargets};
use interlock_wire::Secret;
use regex::Regex;

use crate::address::ServiceAddress;
use crate::channel::ChannelKind;
use crate::desk::ApprovalDesk;

/// The account that the keys of a channel itself are for.
const DEFAULT: &str = "default";

/// Where Telegram's bot interface is.
const TELEGRAM: &str = "https://api.telegram.org";
const NTFY: &str = "https://ntfy.sh";

/// One account of a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountSetup {
    pub kind: ChannelKind,
    pub name: String,
    pub address: ServiceAddress,
    /// The account's own id, where the config has it: it never decides.
    pub own_id: Option<String>,
    pub token: Secret,
    /// Of ntfy.
    pub topic: Option<String>,
    /// Of ntfy: *Allow once* is offered as well.
    pub allows: bool,
}

impl AccountSetup {
    /// As lists name it.
    pub fn shown(&self) -> String {
        match self.name.as_str() {
            DEFAULT => self.kind.as_str().to_owned(),
            name => format!("{}/{name}", self.kind.as_str()),
        }
    }

    /// Under which its place in the platform's stream is kept.
    pub fn cursor_name(&self) -> String {
        let own = self.own_id.as_deref().unwrap_or_default();
        format!("{}/{}/{own}", self.kind.as_str(), self.name)
    }
}

/// One chat to which approvals go.
#[derive(Debug, Clone)]
pub struct ChatTarget {
    /// The surface of its receipts: `matrix:!room:example.org`.
    pub name: String,
    pub kind: ChannelKind,
    pub account: String,
    /// The platform's id of a room, a chat or a user.
    pub to: String,
    pub thread: Option<String>,
    pub after_ms: u64,
    filters: Vec<ChatFilter>,
}

/// Which approvals a target wants.
#[derive(Debug, Clone, Default)]
struct ChatFilter {
    agents: Option<Vec<String>>,
    sessions: Option<Vec<String>>,
}

impl ChatFilter {
    fn new(agents: Option<&Vec<String>>, sessions: Option<&Vec<String>>) -> Self {
        Self {
            agents: agents.cloned(),
            sessions: sessions.cloned(),
        }
    }

    fn wants(&self, agent: &str, session_key: &str) -> bool {
        let is_agent = |one: &String| one.eq_ignore_ascii_case(agent);
        let is_session = |one: &String| {
            session_key.contains(one.as_str())
                || Regex::new(one).is_ok_and(|pattern| pattern.is_match(session_key))
        };
        let agents = self.agents.as_ref();
        let sessions = self.sessions.as_ref();
        agents.is_none_or(|list| list.iter().any(is_agent))
            && sessions.is_none_or(|list| list.iter().any(is_session))
    }
}

impl ChatTarget {
    pub fn wants(&self, agent: &str, session_key: &str) -> bool {
        self.filters
            .iter()
            .any(|filter| filter.wants(agent, session_key))
    }
}

/// All of it, and what is wrong with the rest.
#[derive(Debug, Clone, Default)]
pub struct ChatSetup {
    pub accounts: Vec<AccountSetup>,
    pub targets: Vec<ChatTarget>,
    /// A key, and why what it asks for is not done.
    pub problems: Vec<(String, String)>,
}

impl ChatSetup {
    pub fn read(config: &Config, desk: &dyn ApprovalDesk) -> Self {
        let mut setup = Self::default();
        setup.read_accounts(config, desk);
        setup.read_targets(config);
        setup
    }

    pub fn account(&self, kind: ChannelKind, name: &str) -> Option<&AccountSetup> {
        let mut accounts = self.accounts.iter();
        accounts.find(|one| one.kind == kind && one.name == name)
    }

    pub fn target(&self, name: &str) -> Option<&ChatTarget> {
        self.targets.iter().find(|one| one.name == name)
    }

    /// Whether an id is one of Interlock's own accounts. These never decide.
    pub fn is_own(&self, kind: ChannelKind, id: &str) -> bool {
        let mut accounts = self.accounts.iter();
        accounts.any(|one| one.kind == kind && one.own_id.as_deref() == Some(id))
    }

    fn problem(&mut self, key: &str, why: &str) {
        self.problems.push((key.to_owned(), why.to_owned()));
    }

    fn read_accounts(&mut self, config: &Config, desk: &dyn ApprovalDesk) {
        let matrix = &config.channels.matrix;
        if matrix.enabled != Some(false) {
            let own = interlock_config::types::MatrixAccount {
                enabled: None,
                homeserver: matrix.homeserver.clone(),
                user_id: matrix.user_id.clone(),
                access_token: matrix.access_token.clone(),
                token_file: matrix.token_file.clone(),
                allow_private_network: matrix.allow_private_network,
            };
            let has_own = own != interlock_config::types::MatrixAccount::default();
            let own = has_own.then_some((DEFAULT, "channels.matrix".to_owned(), &own));
            let named = matrix.accounts.iter().map(|(name, account)| {
                let key = format!("channels.matrix.accounts.{name}");
                (name.as_str(), key, account)
            });
            for (name, key, account) in own.into_iter().chain(named) {
                if account.enabled == Some(false) {
                    continue;
                }
                let Some(user) = account.user_id.clone() else {
                    self.problem(&format!("{key}.userId"), "is not set");
                    continue;
                };
                self.add_account(
                    desk,
                    (ChannelKind::Matrix, name, &key),
                    ("homeserver", account.homeserver.as_deref()),
                    account.allow_private_network,
                    ("accessToken", account.access_token.as_ref()),
                    ("tokenFile", account.token_file.as_deref()),
                    Some(user),
                );
            }
        }
        let telegram = &config.channels.telegram;
        if telegram.enabled != Some(false) {
            let own = interlock_config::types::TelegramAccount {
                enabled: None,
                bot_token: telegram.bot_token.clone(),
                token_file: telegram.token_file.clone(),
                api_root: telegram.api_root.clone(),
                allow_private_network: telegram.allow_private_network,
            };
            let has_own = own != interlock_config::types::TelegramAccount::default();
            let own = has_own.then_some((DEFAULT, "channels.telegram".to_owned(), &own));
            let named = telegram.accounts.iter().map(|(name, account)| {
                let key = format!("channels.telegram.accounts.{name}");
                (name.as_str(), key, account)
            });
            for (name, key, account) in own.into_iter().chain(named) {
                if account.enabled == Some(false) {
                    continue;
                }
                self.add_account(
                    desk,
                    (ChannelKind::Telegram, name, &key),
                    ("apiRoot", account.api_root.as_deref().or(Some(TELEGRAM))),
                    account.allow_private_network,
                    ("botToken", account.bot_token.as_ref()),
                    ("tokenFile", account.token_file.as_deref()),
                    None,
                );
            }
        }
        let ntfy = &config.channels.ntfy;
        if ntfy.enabled != Some(false)
            && let Some(topic) = &ntfy.topic
        {
            let key = (ChannelKind::Ntfy, DEFAULT, "channels.ntfy");
            let url = ntfy.url.as_deref().or(Some(NTFY));
            let has_token = ntfy.access_token.is_some() || ntfy.token_file.is_some();
            let none = ChatSecret::Inline(String::new());
            let token = if has_token {
                ntfy.access_token.as_ref()
            } else {
                // Topics of a server that asks for none.
                Some(&none)
            };
            let file = ("tokenFile", ntfy.token_file.as_deref());
            let private = ntfy.allow_private_network;
            self.add_account(
                desk,
                key,
                ("url", url),
                private,
                ("accessToken", token),
                file,
                None,
            );
            if let Some(account) = self.accounts.last_mut()
                && account.kind == ChannelKind::Ntfy
            {
                account.topic = Some(topic.clone());
                account.allows = ntfy.allow == Some(true);
            }
        }
        let webhook = &config.channels.webhook;
        if webhook.enabled != Some(false)
            && let Some(url) = &webhook.url
        {
            self.add_account(
                desk,
                (ChannelKind::Webhook, DEFAULT, "channels.webhook"),
                ("url", Some(url.as_str())),
                webhook.allow_private_network,
                ("secret", webhook.secret.as_ref()),
                ("secretFile", webhook.secret_file.as_deref()),
                None,
            );
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the keys of an account, each with its name"
    )]
    fn add_account(
        &mut self,
        desk: &dyn ApprovalDesk,
        (kind, name, key): (ChannelKind, &str, &str),
        (url_key, url): (&str, Option<&str>),
        allows_private: Option<bool>,
        (token_key, token): (&str, Option<&ChatSecret>),
        (file_key, file): (&str, Option<&str>),
        own_id: Option<String>,
    ) {
        let Some(url) = url else {
            return self.problem(&format!("{key}.{url_key}"), "is not set");
        };
        let address = match ServiceAddress::check(url, allows_private == Some(true)) {
            Ok(address) => address,
            Err(refused) => return self.problem(&format!("{key}.{url_key}"), &refused.to_string()),
        };
        let token = match read_secret(desk, token, file) {
            Ok(Some(token)) => token,
            Ok(None) => return self.problem(&format!("{key}.{token_key}"), "is not set"),
            Err(why) => {
                let at = if file.is_some() { file_key } else { token_key };
                return self.problem(&format!("{key}.{at}"), &why);
            }
        };
        self.accounts.push(AccountSetup {
            kind,
            name: name.to_owned(),
            address,
            own_id,
            token,
            topic: None,
            allows: false,
        });
    }

    fn read_targets(&mut self, config: &Config) {
        let exec = &config.approvals.exec;
        // The only mode of this version; the check of the file refuses others.
        let goes_to_targets = exec.mode.as_deref().is_none_or(|mode| mode == "targets");
        if exec.enabled == Some(true) && goes_to_targets {
            let filter = ChatFilter::new(exec.agent_filter.as_ref(), exec.session_filter.as_ref());
            for (at, target) in exec.targets.iter().enumerate() {
                let key = format!("approvals.exec.targets[{at}]");
                let Some(kind) = ChannelKind::named(&target.channel) else {
                    self.problem(&key, "names no channel of this version");
                    continue;
                };
                let shown_there = chat_approvals(config, kind).and_then(|one| one.target);
                if shown_there == Some(ChatTargets::Dm) {
                    let why = format!(
                        "is not used: channels.{}.execApprovals.target is dm",
                        kind.as_str()
                    );
                    self.problem(&key, &why);
                    continue;
                }
                let account = target.account_id.as_deref().unwrap_or(DEFAULT);
                let to = match (&target.to, kind) {
                    (Some(to), _) => to.clone(),
                    (None, ChannelKind::Ntfy | ChannelKind::Webhook) => String::new(),
                    (None, _) => {
                        self.problem(&format!("{key}.to"), "is not set");
                        continue;
                    }
                };
                let after = target.after_sec.unwrap_or(0);
                let thread = target.thread_id.clone();
                self.add_target(kind, account, to, thread, after, filter.clone(), &key);
            }
        }
        for kind in [ChannelKind::Matrix, ChannelKind::Telegram] {
            let Some(own) = chat_approvals(config, kind) else {
                continue;
            };
            let is_wanted = matches!(own.target, None | Some(ChatTargets::Dm | ChatTargets::Both));
            if !is_wanted || own.enabled == Some(ChatSwitch::Off) {
                continue;
            }
            let accounts = self.accounts.iter().filter(|one| one.kind == kind);
            let Some(account) = accounts.map(|one| one.name.clone()).next() else {
                continue;
            };
            let filter = ChatFilter::new(own.agent_filter.as_ref(), own.session_filter.as_ref());
            for approver in approvers(config, kind) {
                let key = format!("channels.{}.execApprovals.approvers", kind.as_str());
                let after = own.after_sec.unwrap_or(0);
                self.add_target(kind, &account, approver, None, after, filter.clone(), &key);
            }
        }
        for kind in [ChannelKind::Ntfy, ChannelKind::Webhook] {
            let own = machine_approvals(config, kind);
            if let (Some(own), Some(_)) = (own, self.account(kind, DEFAULT)) {
                let filter =
                    ChatFilter::new(own.agent_filter.as_ref(), own.session_filter.as_ref());
                let after = own.after_sec.unwrap_or(0);
                let key = format!("channels.{}", kind.as_str());
                self.add_target(kind, DEFAULT, String::new(), None, after, filter, &key);
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what a target is, from two places of the config"
    )]
    fn add_target(
        &mut self,
        kind: ChannelKind,
        account: &str,
        to: String,
        thread: Option<String>,
        after_sec: u64,
        filter: ChatFilter,
        key: &str,
    ) {
        let Some(known) = self.account(kind, account) else {
            let why = format!("has no account: channels.{}.{account}", kind.as_str());
            return self.problem(key, &why);
        };
        let to = match &known.topic {
            Some(topic) => topic.clone(),
            None => to,
        };
        let account_part = if account == DEFAULT {
            String::new()
        } else {
            format!("/{account}")
        };
        let thread_part = thread.as_ref().map(|thread| format!("#{thread}"));
        let kind_name = kind.as_str();
        let name = match to.as_str() {
            "" => format!("{kind_name}{account_part}"),
            to => format!(
                "{kind_name}{account_part}:{to}{}",
                thread_part.unwrap_or_default()
            ),
        };
        let after_ms = after_sec * 1000;
        // Two ways to one chat are one message.
        if let Some(same) = self.targets.iter_mut().find(|one| one.name == name) {
            same.after_ms = same.after_ms.min(after_ms);
            same.filters.push(filter);
            return;
        }
        self.targets.push(ChatTarget {
            name,
            kind,
            account: account.to_owned(),
            to,
            thread,
            after_ms,
            filters: vec![filter],
        });
    }
}

/// What the config says of decisions in a chat.
pub(crate) fn chat_approvals(config: &Config, kind: ChannelKind) -> Option<&ChatApprovals> {
    match kind {
        ChannelKind::Matrix => Some(&config.channels.matrix.exec_approvals),
        ChannelKind::Telegram => Some(&config.channels.telegram.exec_approvals),
        ChannelKind::Ntfy | ChannelKind::Webhook => None,
    }
}

/// The same for channels that identify no approver.
pub(crate) fn machine_approvals(config: &Config, kind: ChannelKind) -> Option<&MachineApprovals> {
    match kind {
        ChannelKind::Ntfy => Some(&config.channels.ntfy.exec_approvals),
        ChannelKind::Webhook => Some(&config.channels.webhook.exec_approvals),
        ChannelKind::Matrix | ChannelKind::Telegram => None,
    }
}

/// The approvers of a channel, by exact ids. `*` is none.
pub(crate) fn approvers(config: &Config, kind: ChannelKind) -> Vec<String> {
    let Some(own) = chat_approvals(config, kind) else {
        return Vec::new();
    };
    let is_id = |id: &&str| !id.is_empty() && !id.contains('*');
    if let Some(listed) = &own.approvers {
        let ids = listed.iter().map(String::as_str).filter(is_id);
        return ids.map(str::to_owned).collect();
    }
    let owners = config.commands.owner_allow_from.iter().flatten();
    let prefix = format!("{}:", kind.as_str());
    let ids = owners.filter_map(|owner| owner.strip_prefix(&prefix));
    ids.filter(is_id).map(str::to_owned).collect()
}

/// Whether decisions are taken in a chat.
pub(crate) fn takes_decisions(config: &Config, kind: ChannelKind) -> bool {
    let own = chat_approvals(config, kind);
    own.is_some_and(|own| own.enabled != Some(ChatSwitch::Off))
        && !approvers(config, kind).is_empty()
}

/// The decisions that the owner lets a channel take; none is all.
pub(crate) fn taken_decisions(config: &Config, kind: ChannelKind) -> Option<&[String]> {
    match chat_approvals(config, kind) {
        Some(own) => own.decisions.as_deref(),
        None => machine_approvals(config, kind)?.decisions.as_deref(),
    }
}

/// The names of variables that hold secrets of channels. Runs do not inherit them.
pub fn secret_variables(config: &Config) -> Vec<String> {
    let channels = &config.channels;
    let matrix = channels.matrix.accounts.values();
    let telegram = channels.telegram.accounts.values();
    let secrets = [
        channels.matrix.access_token.as_ref(),
        channels.telegram.bot_token.as_ref(),
        channels.ntfy.access_token.as_ref(),
        channels.webhook.secret.as_ref(),
        channels.webhook.decision_secret.as_ref(),
    ];
    let secrets = secrets
        .into_iter()
        .chain(matrix.map(|account| account.access_token.as_ref()))
        .chain(telegram.map(|account| account.bot_token.as_ref()));
    let names = secrets.flatten().filter_map(|secret| match secret {
        ChatSecret::Variable(name) => Some(name.clone()),
        ChatSecret::Inline(_) => None,
    });
    names.collect()
}

/// A secret by the config: its file first, else its text or variable.
pub(crate) fn read_secret(
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

/// The secret of decisions by webhook. None where they are not switched on, and where it is the secret of
/// Interlock's own calls: one of these could be sent back.
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
