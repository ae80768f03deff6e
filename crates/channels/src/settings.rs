//! Accounts, targets and approvers, by the config in force.

use interlock_config::types::{ChatApprovals, Config, MachineApprovals};
use interlock_config::{ChatSwitch, ChatTargets};
use interlock_wire::Secret;
use regex::Regex;

use crate::address::ServiceAddress;
use crate::channel::ChannelKind;
use crate::desk::ApprovalDesk;

mod accounts;

pub use accounts::{secret_variables, webhook_secret};

/// The name of the account that a channel's own keys describe.
const DEFAULT: &str = "default";

/// One account of a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountSetup {
    pub kind: ChannelKind,
    pub name: String,
    pub address: ServiceAddress,
    /// The account's own id, if the config has it. This id never decides.
    pub own_id: Option<String>,
    pub token: Secret,
    /// Slack only: opens the socket that brings events.
    pub app_token: Option<Secret>,
    /// ntfy only.
    pub topic: Option<String>,
    /// ntfy only: whether *Allow once* is offered as well.
    pub allows: bool,
}

impl AccountSetup {
    /// Returns the name that lists show.
    pub fn shown(&self) -> String {
        account_prefix(self.kind, &self.name)
    }

    /// Returns the name under which the account's cursor is stored.
    pub fn cursor_name(&self) -> String {
        let own = self.own_id.as_deref().unwrap_or_default();
        format!("{}/{}/{own}", self.kind.as_str(), self.name)
    }
}

/// One chat that receives approvals.
#[derive(Debug, Clone)]
pub struct ChatTarget {
    /// The surface of its receipts, such as `matrix:!room:example.org`.
    pub name: String,
    pub kind: ChannelKind,
    pub account: String,
    /// The platform's id of a room, a chat or a user.
    pub to: String,
    pub thread: Option<String>,
    pub after_ms: u64,
    filters: Vec<ChatFilter>,
}

/// The approvals that a target wants.
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

/// The accounts and targets of the config, and the problems with the rest.
#[derive(Debug, Clone, Default)]
pub struct ChatSetup {
    pub accounts: Vec<AccountSetup>,
    pub targets: Vec<ChatTarget>,
    /// Keys that have no effect, each with the reason.
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

    /// Whether an id is one of Interlock's own accounts, which never decide.
    pub fn is_own(&self, kind: ChannelKind, id: &str) -> bool {
        let mut accounts = self.accounts.iter();
        accounts.any(|one| one.kind == kind && one.own_id.as_deref() == Some(id))
    }

    fn problem(&mut self, key: &str, why: &str) {
        self.problems.push((key.to_owned(), why.to_owned()));
    }

    fn read_targets(&mut self, config: &Config) {
        let exec = &config.approvals.exec;
        // This version has only this mode. The check of the config refuses others.
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
                let names_person = target.to.as_deref().is_some_and(|to| is_person(kind, to));
                if shown_there == Some(ChatTargets::Channel) && names_person {
                    let why = format!(
                        "is not used: it names a person, and channels.{}.execApprovals.target is channel",
                        kind.as_str()
                    );
                    self.problem(&format!("{key}.to"), &why);
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
        for kind in ChannelKind::ALL {
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
                // An id of Discord does not reveal whether it is a channel's or a user's.
                let approver = match kind {
                    ChannelKind::Discord => format!("user:{approver}"),
                    _ => approver,
                };
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
        let front = account_prefix(kind, account);
        let thread_part = thread.as_ref().map(|thread| format!("#{thread}"));
        let name = match to.as_str() {
            "" => front,
            to => format!("{front}:{to}{}", thread_part.unwrap_or_default()),
        };
        let after_ms = after_sec.saturating_mul(1000);
        // A chat that is configured twice receives one message.
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

/// Whether a target is a person, who receives a direct message.
fn is_person(kind: ChannelKind, to: &str) -> bool {
    match kind {
        ChannelKind::Matrix => to.starts_with('@'),
        ChannelKind::Telegram => to.parse::<i64>().is_ok_and(|id| id > 0),
        // Ids of direct conversations begin with D.
        ChannelKind::Slack => to.starts_with(['U', 'W', 'D']) || to.starts_with("user:"),
        ChannelKind::Discord => to.starts_with("user:"),
        ChannelKind::Ntfy | ChannelKind::Webhook => false,
    }
}

/// Returns the prefix of the names of an account's targets.
pub(crate) fn account_prefix(kind: ChannelKind, account: &str) -> String {
    match account {
        DEFAULT => kind.as_str().to_owned(),
        name => format!("{}/{name}", kind.as_str()),
    }
}

/// Returns the config for decisions in a chat.
pub(crate) fn chat_approvals(config: &Config, kind: ChannelKind) -> Option<&ChatApprovals> {
    match kind {
        ChannelKind::Matrix => Some(&config.channels.matrix.exec_approvals),
        ChannelKind::Telegram => Some(&config.channels.telegram.exec_approvals),
        ChannelKind::Slack => Some(&config.channels.slack.exec_approvals),
        ChannelKind::Discord => Some(&config.channels.discord.exec_approvals),
        ChannelKind::Ntfy | ChannelKind::Webhook => None,
    }
}

/// Returns the config for decisions in channels that do not identify approvers.
pub(crate) fn machine_approvals(config: &Config, kind: ChannelKind) -> Option<&MachineApprovals> {
    match kind {
        ChannelKind::Ntfy => Some(&config.channels.ntfy.exec_approvals),
        ChannelKind::Webhook => Some(&config.channels.webhook.exec_approvals),
        ChannelKind::Matrix | ChannelKind::Telegram | ChannelKind::Slack | ChannelKind::Discord => {
            None
        }
    }
}

/// Returns the approvers of a channel, by exact ids. `*` names no approver.
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

/// Whether a chat takes decisions.
pub(crate) fn takes_decisions(config: &Config, kind: ChannelKind) -> bool {
    let own = chat_approvals(config, kind);
    own.is_some_and(|own| own.enabled != Some(ChatSwitch::Off))
        && !approvers(config, kind).is_empty()
}

/// Returns the decisions that the owner lets a channel take. `None` means all.
pub(crate) fn taken_decisions(config: &Config, kind: ChannelKind) -> Option<&[String]> {
    match chat_approvals(config, kind) {
        Some(own) => own.decisions.as_deref(),
        None => machine_approvals(config, kind)?.decisions.as_deref(),
    }
}
