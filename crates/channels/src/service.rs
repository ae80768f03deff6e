//! The tasks of the channels: one that sends and edits what is due, and one for each account that
//! listens.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_config::Config;
use interlock_store::ChatWork;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::answer::{AnswerContext, Handled, Strangers, handle, may_count};
use crate::channel::{
    ChannelKind, ChatChannel, ChatFailure, ChatUpdate, MessageEdit, NewMessage, ReadFrom,
};
use crate::desk::ApprovalDesk;
use crate::discord::DiscordBot;
use crate::matrix::MatrixAccountChannel;
use crate::message::ChatMessage;
use crate::ntfy::{NtfyTickets, NtfyTopic};
use crate::outbox::{ChatMemory, ChatSender, blocking, fall_back_if_failed};
use crate::settings::{AccountSetup, ChatSetup, ChatTarget, account_prefix, approvers};
use crate::slack::SlackWorkspace;
use crate::telegram::TelegramBot;
use crate::webhook::WebhookTarget;

/// How often the service checks for work, while there may be some and while there is none.
const BUSY_LOOK: Duration = Duration::from_millis(500);
const IDLE_LOOK: Duration = Duration::from_secs(5);

/// The most messages of one check.
const AT_ONCE: usize = 500;

/// The pause between two attempts to listen doubles from the first value to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How long an answer waits until the message that it may belong to is marked, and how often the
/// mark is checked.
const MARK_WAIT: Duration = Duration::from_secs(30);
const MARK_LOOK: Duration = Duration::from_millis(50);

/// All channels of one gateway.
#[derive(Debug)]
pub struct ChatService {
    desk: Arc<dyn ApprovalDesk>,
    tickets: NtfyTickets,
    memory: Arc<ChatMemory>,
    strangers: Strangers,
    changed: Notify,
    state: Mutex<ServiceState>,
}

#[derive(Debug, Default)]
struct ServiceState {
    setup: Arc<ChatSetup>,
    /// The parts of the config from which the setup was read.
    config: Option<Config>,
    channels: HashMap<(ChannelKind, String), OpenAccount>,
    /// The chats for which a task is working.
    busy: HashSet<String>,
}

/// An account in use.
#[derive(Debug)]
struct OpenAccount {
    setup: AccountSetup,
    channel: Arc<dyn ChatChannel>,
    stop: CancellationToken,
}

/// Marks a chat as busy until this is dropped, even if the task is aborted.
#[derive(Debug)]
struct ChatTurn {
    service: Arc<ChatService>,
    target: String,
}

impl Drop for ChatTurn {
    fn drop(&mut self) {
        self.service.state().busy.remove(&self.target);
        self.service.look_now();
    }
}

/// A target that received a test message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestedTarget {
    pub target: String,
    /// The account's name, according to the platform.
    pub account: String,
    /// Why the platform did not accept the message, or could not change it.
    pub problem: Option<String>,
}

/// Opens the channel of one account.
pub fn open_channel(setup: &AccountSetup, tickets: &NtfyTickets) -> Arc<dyn ChatChannel> {
    match setup.kind {
        ChannelKind::Matrix => Arc::new(MatrixAccountChannel::new(setup)),
        ChannelKind::Telegram => Arc::new(TelegramBot::new(setup)),
        ChannelKind::Slack => Arc::new(SlackWorkspace::new(setup)),
        ChannelKind::Discord => Arc::new(DiscordBot::new(setup)),
        ChannelKind::Ntfy => Arc::new(NtfyTopic::new(setup, tickets.clone())),
        ChannelKind::Webhook => Arc::new(WebhookTarget::new(setup)),
    }
}

impl ChatService {
    pub fn new(desk: Arc<dyn ApprovalDesk>, tickets: NtfyTickets) -> Self {
        Self {
            desk,
            tickets,
            memory: Arc::default(),
            strangers: Strangers::default(),
            changed: Notify::new(),
            state: Mutex::default(),
        }
    }

    pub fn desk(&self) -> &dyn ApprovalDesk {
        self.desk.as_ref()
    }

    /// Returns the setup in force.
    pub fn setup(&self) -> Arc<ChatSetup> {
        Arc::clone(&self.state().setup)
    }

    /// Sends a test message to one target or to all, and waits until the platform has changed it.
    pub async fn test(&self, name: Option<&str>) -> Vec<TestedTarget> {
        let wanted: Vec<_> = {
            let state = self.state();
            let targets = state.setup.targets.iter();
            let chosen = targets.filter(|target| name.is_none_or(|name| target.name == name));
            let opened = chosen.filter_map(|target| {
                let open = state.channels.get(&(target.kind, target.account.clone()))?;
                Some((target.clone(), Arc::clone(&open.channel)))
            });
            opened.collect()
        };
        let mut tested = Vec::new();
        for (target, channel) in wanted {
            let known = channel.whoami().await;
            let problem = match &known {
                Ok(_) => self.round_trip(channel.as_ref(), &target).await.err(),
                Err(failure) => Some(failure.to_string()),
            };
            tested.push(TestedTarget {
                target: target.name,
                account: known.unwrap_or_default(),
                problem,
            });
        }
        tested
    }

    /// Sends a test message and changes it, as the message of an approval changes when the approval
    /// ends: the platform must take it, name it, and find it again by that name. The error says which
    /// step failed.
    async fn round_trip(
        &self,
        channel: &dyn ChatChannel,
        target: &ChatTarget,
    ) -> Result<(), String> {
        let message = |block: &str| ChatMessage {
            title: "Interlock".to_owned(),
            block: block.to_owned(),
            link: self.desk.page(""),
            ..ChatMessage::default()
        };
        let works = message("This chat gets approvals. Nothing is to be decided now.");
        let is_chat = target.kind.is_chat();
        let first = message("A test: this text changes in a moment. Nothing is to be decided now.");
        let key = format!("test-{}", interlock_approvals::clock::now());
        let new = NewMessage {
            target,
            message: if is_chat { &first } else { &works },
            key: &key,
        };
        let at = channel
            .send(new)
            .await
            .map_err(|failure| failure.to_string())?;
        if !is_chat {
            return Ok(());
        }
        tokio::time::sleep(channel.pause()).await;
        let edit = MessageEdit {
            at: &at,
            message: &works,
            key: &format!("{key}-changed"),
        };
        let changed = channel.edit(edit).await;
        changed.map_err(|failure| format!("the message arrived, but cannot be changed: {failure}"))
    }

    /// Wakes the service, because an approval was requested or has ended.
    pub fn look_now(&self) {
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until the gateway ends.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let service = Arc::clone(&self);
            let handle_stop = stop.clone();
            let looked = blocking(move || service.look(&handle_stop)).await;
            let Some((work, may_have_more)) = looked else {
                return;
            };
            self.begin(work);
            let pause = if may_have_more { BUSY_LOOK } else { IDLE_LOOK };
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Reads the config and the work that is due.
    fn look(self: &Arc<Self>, stop: &CancellationToken) -> (Vec<ChatWork>, bool) {
        self.refresh(stop);
        let store = self.desk.store();
        let now = interlock_approvals::clock::now();
        let may_have_more = store.has_chat_work().unwrap_or(false);
        if !may_have_more {
            return (Vec::new(), false);
        }
        match store.chat_work(now, AT_ONCE) {
            Ok(work) => (work, true),
            Err(error) => {
                tracing::warn!(%error, "chat messages cannot be read");
                (Vec::new(), true)
            }
        }
    }

    /// Applies a changed config: accounts that are new or different are opened, and others are
    /// closed. An operator who lists or tests channels right after a change must see it applied.
    pub fn refresh(self: &Arc<Self>, stop: &CancellationToken) {
        let Some(file) = self.desk.config() else {
            return;
        };
        let config = Config {
            channels: file.config().channels.clone(),
            approvals: file.config().approvals.clone(),
            commands: file.config().commands.clone(),
            ..Config::default()
        };
        let mut state = self.state();
        if state.config.as_ref() == Some(&config) {
            return;
        }
        let setup = ChatSetup::read(&config, self.desk.as_ref());
        for (key, why) in &setup.problems {
            tracing::warn!("{key} {why}");
        }
        let targets: Vec<(String, u64)> = setup
            .targets
            .iter()
            .map(|target| (target.name.clone(), target.after_ms))
            .collect();
        if let Err(error) = self.desk.store().set_chat_targets(&targets) {
            tracing::warn!(%error, "the targets of approvals were not stored");
            return;
        }
        state.channels.retain(|_, open| {
            let stays = setup.accounts.contains(&open.setup);
            if !stays {
                open.stop.cancel();
            }
            stays
        });
        for account in &setup.accounts {
            let key = (account.kind, account.name.clone());
            if state.channels.contains_key(&key) {
                continue;
            }
            let channel = open_channel(account, &self.tickets);
            let ending = stop.child_token();
            let open = OpenAccount {
                setup: account.clone(),
                channel: Arc::clone(&channel),
                stop: ending.clone(),
            };
            state.channels.insert(key, open);
            if account.kind.is_chat() {
                let listening = Arc::clone(self).listen(account.clone(), channel);
                tokio::runtime::Handle::current().spawn(async move {
                    tokio::select! {
                        () = listening => {}
                        () = ending.cancelled() => {}
                    }
                });
            }
        }
        state.setup = Arc::new(setup);
        state.config = Some(config);
    }

    /// Starts a task for every chat that has work and no task yet.
    fn begin(self: &Arc<Self>, work: Vec<ChatWork>) {
        let mut by_target: HashMap<String, Vec<ChatWork>> = HashMap::new();
        for one in work {
            by_target.entry(one.target.clone()).or_default().push(one);
        }
        for (name, work) in by_target {
            let mut state = self.state();
            if state.busy.contains(&name) {
                continue;
            }
            let target = state.setup.target(&name).cloned();
            let open = target.as_ref().and_then(|target| {
                let key = (target.kind, target.account.clone());
                let open = state.channels.get(&key)?;
                let cursor_name = target.kind.is_chat().then(|| open.setup.cursor_name());
                Some((Arc::clone(&open.channel), cursor_name))
            });
            state.busy.insert(name.clone());
            drop(state);
            let service = Arc::clone(self);
            let turn = ChatTurn {
                service: Arc::clone(self),
                target: name,
            };
            tokio::spawn(async move {
                match (target, open) {
                    (Some(target), Some((channel, cursor_name))) => {
                        let sender = ChatSender {
                            desk: Arc::clone(&service.desk),
                            channel,
                            target,
                            memory: Arc::clone(&service.memory),
                            cursor_name,
                        };
                        sender.work(work).await;
                    }
                    _ => service.give_up(work).await,
                }
                drop(turn);
            });
        }
    }

    /// Gives up the work of a target that the owner has removed.
    async fn give_up(&self, work: Vec<ChatWork>) {
        let desk = Arc::clone(&self.desk);
        blocking(move || {
            let store = desk.store();
            let now = interlock_approvals::clock::now();
            for one in work {
                let (id, name) = (&one.approval_id, &one.target);
                let noted = if one.is_queued && !one.has_ended {
                    store.chat_not_sent(
                        id,
                        name,
                        None,
                        "the target is not configured any more",
                        now,
                    )
                } else if one.is_queued {
                    store.chat_dropped(id, name)
                } else {
                    store.chat_shown(id, name, one.wanted, true)
                };
                if let Err(error) = noted {
                    tracing::warn!(%error, "a chat message was not given up");
                }
                fall_back_if_failed(desk.as_ref(), id);
            }
        })
        .await;
    }

    /// Listens to one account until it is closed.
    async fn listen(self: Arc<Self>, account: AccountSetup, channel: Arc<dyn ChatChannel>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (service, name) = (Arc::clone(&self), account.cursor_name());
            let kind = account.kind;
            let known = blocking(move || {
                let cursor = service.desk.store().chat_cursor(&name).ok().flatten();
                let config = service.desk.config();
                let approvers = config.map_or_else(Vec::new, |file| approvers(file.config(), kind));
                (cursor, approvers)
            });
            let Some((cursor, approvers)) = known.await else {
                return;
            };
            let asked = Instant::now();
            let from = ReadFrom {
                cursor: cursor.as_deref(),
                approvers: &approvers,
            };
            match channel.updates(from).await {
                Ok(found) => {
                    pause = FIRST_PAUSE;
                    let brought = found.updates.len();
                    for update in found.updates {
                        self.answer(&account, &channel, update).await;
                    }
                    let next = found.cursor.filter(|next| Some(next) != cursor.as_ref());
                    let is_further = match next {
                        Some(next) => self.store_place(&account, next, cursor.is_none()).await,
                        None => false,
                    };
                    // A server that does not wait for events, or that returns the same ones again,
                    // must not be asked without a pause. Events from a socket arrive without being
                    // asked for.
                    let is_new = is_further || kind.has_socket();
                    if cursor.is_some() && (brought == 0 || !is_new) {
                        tokio::time::sleep(FIRST_PAUSE.saturating_sub(asked.elapsed())).await;
                    }
                }
                Err(failure) => {
                    let name = account.cursor_name();
                    tracing::warn!(%failure, name, "a channel cannot be read");
                    let wanted = match failure {
                        ChatFailure::Busy { after } => after,
                        // A refusal will not pass in a moment.
                        ChatFailure::Refused(_) => LONGEST_PAUSE,
                        ChatFailure::Passing(_) => Duration::ZERO,
                    };
                    tokio::time::sleep(pause.max(wanted)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Stores how far an account was read. Returns whether the cursor was stored.
    async fn store_place(
        self: &Arc<Self>,
        account: &AccountSetup,
        place: String,
        is_first: bool,
    ) -> bool {
        let (service, name) = (Arc::clone(self), account.cursor_name());
        let stored = blocking(move || {
            let store = service.desk.store();
            let stored = if is_first {
                store.begin_chat_cursor(&name, &place)
            } else {
                store.set_chat_cursor(&name, &place)
            };
            if let Err(error) = &stored {
                tracing::warn!(%error, "the place in a chat was not stored");
            }
            stored.is_ok()
        });
        stored.await.unwrap_or(false)
    }

    async fn answer(
        self: &Arc<Self>,
        account: &AccountSetup,
        channel: &Arc<dyn ChatChannel>,
        update: ChatUpdate,
    ) {
        let place = update.place();
        if let (Some(event), Some(sender)) = (&place.event, update.sender())
            && !self.is_first(account, sender, event).await
        {
            return;
        }
        let said = self.handle(account, &update).await;
        // A button waits for its answer, even if the answer is empty.
        let is_owed = place.interaction.is_some();
        if said.is_some() || is_owed {
            let text = said.unwrap_or_default();
            if let Err(failure) = channel.reply(place, &text).await {
                tracing::debug!(%failure, "an answer was not sent");
            }
        }
        self.look_now();
    }

    /// Whether an event arrived for the first time. If that is unknown, the event does not count.
    async fn is_first(self: &Arc<Self>, account: &AccountSetup, sender: &str, event: &str) -> bool {
        let id = format!("{}:{event}", account_prefix(account.kind, &account.name));
        let (service, kind, sender) = (Arc::clone(self), account.kind, sender.to_owned());
        let is_first = blocking(move || {
            let config = service.desk.config();
            let counts = config.is_none_or(|file| may_count(file.config(), kind, &sender));
            let now = interlock_approvals::clock::now();
            !counts || matches!(service.desk.store().use_chat_id(&id, now), Ok(true))
        });
        is_first.await.unwrap_or(false)
    }

    /// Handles an update. The answer to a message that is still being sent waits until the message
    /// is marked.
    async fn handle(
        self: &Arc<Self>,
        account: &AccountSetup,
        update: &ChatUpdate,
    ) -> Option<String> {
        let until = Instant::now() + MARK_WAIT;
        loop {
            let (service, update) = (Arc::clone(self), update.clone());
            let (kind, account) = (account.kind, account.name.clone());
            let handled = blocking(move || {
                let setup = service.setup();
                let context = AnswerContext {
                    desk: service.desk.as_ref(),
                    setup: &setup,
                    kind,
                    account: &account,
                    strangers: &service.strangers,
                };
                handle(context, &update)
            });
            match handled.await? {
                Handled::NotYet(_) if Instant::now() < until => {
                    tokio::time::sleep(MARK_LOOK).await;
                }
                Handled::Done(said) | Handled::NotYet(said) => return said,
            }
        }
    }
}
