//! What every platform has to do.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlock_store::{ApprovalDecision, SentChatMessage, StoreError};

use crate::address::AddressRefusal;
use crate::message::ChatMessage;
use crate::settings::ChatTarget;

/// A platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelKind {
    Matrix,
    Telegram,
    Slack,
    Discord,
    Ntfy,
    Webhook,
}

impl ChannelKind {
    pub const ALL: [Self; 6] = [
        Self::Matrix,
        Self::Telegram,
        Self::Slack,
        Self::Discord,
        Self::Ntfy,
        Self::Webhook,
    ];

    /// As the config and receipts name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Telegram => "telegram",
            Self::Slack => "slack",
            Self::Discord => "discord",
            Self::Ntfy => "ntfy",
            Self::Webhook => "webhook",
        }
    }

    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The platforms that bring what happened by a socket.
    pub(crate) fn has_socket(self) -> bool {
        match self {
            Self::Slack | Self::Discord => true,
            Self::Matrix | Self::Telegram | Self::Ntfy | Self::Webhook => false,
        }
    }

    /// The platforms that say who answers. They are listened to; the others call by themselves.
    pub fn is_chat(self) -> bool {
        match self {
            Self::Matrix | Self::Telegram | Self::Slack | Self::Discord => true,
            Self::Ntfy | Self::Webhook => false,
        }
    }
}

/// Where a platform keeps a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MessageRef {
    pub chat: String,
    pub message: String,
}

impl MessageRef {
    /// The message that a platform took, by the names that it gave. One without names cannot be edited,
    /// and an answer to it would not be known: it counts as not sent.
    pub(crate) fn named<T: Into<String>>(
        platform: &str,
        chat: Option<T>,
        message: Option<T>,
    ) -> Result<Self, ChatFailure> {
        match (chat, message) {
            (Some(chat), Some(message)) => Ok(Self {
                chat: chat.into(),
                message: message.into(),
            }),
            _ => Err(ChatFailure::Passing(format!("{platform} named no message"))),
        }
    }

    /// Whether the store takes these names.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let Self { chat, message } = self;
        SentChatMessage {
            chat,
            message,
            offers_allow: false,
            is_group: false,
        }
        .check()
    }
}

/// Why a platform did not take something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatFailure {
    /// It will not take it later either. Why, for people; without secrets.
    Refused(String),
    /// It may take it later.
    Passing(String),
    /// It says when to come back. Nothing failed.
    Busy { after: Duration },
}

impl fmt::Display for ChatFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Passing(why) => f.write_str(why),
            Self::Busy { after } => write!(f, "it is busy for {} s", after.as_secs()),
        }
    }
}

/// A call to a platform, in the making.
pub type ChatFuture<'a, T> = BoxFuture<'a, Result<T, ChatFailure>>;

impl From<AddressRefusal> for ChatFailure {
    fn from(refused: AddressRefusal) -> Self {
        match refused {
            AddressRefusal::Unreachable(_) | AddressRefusal::Unresolved(_) => {
                Self::Passing(refused.to_string())
            }
            refused => Self::Refused(refused.to_string()),
        }
    }
}

/// A decision by one tap: a reaction, or a button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChatTap {
    AllowOnce,
    AllowAlways,
    Deny,
}

impl ChatTap {
    /// The word that a button carries.
    pub(crate) fn word(self) -> &'static str {
        self.decision().as_str()
    }

    pub(crate) fn decision(self) -> ApprovalDecision {
        match self {
            Self::AllowOnce => ApprovalDecision::AllowOnce,
            Self::AllowAlways => ApprovalDecision::AllowAlways,
            Self::Deny => ApprovalDecision::Deny,
        }
    }

    pub(crate) fn named(word: &str) -> Option<Self> {
        let all = [Self::AllowOnce, Self::AllowAlways, Self::Deny];
        all.into_iter().find(|tap| tap.word() == word)
    }
}

/// Where something was said, so that it can be replied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatPlace {
    pub chat: String,
    /// The message that was tapped, or that said it.
    pub message: String,
    /// What the platform wants to be answered by, where a tap has that.
    pub interaction: Option<String>,
    /// The platform's id of the event, where the platform may send one event twice: it counts once.
    pub event: Option<String>,
}

/// What a person did. Adapters report new events of persons only: no edits, forwards, quotes, code blocks
/// or taken-back reactions, nothing of bots or webhooks, and nothing of the account itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatUpdate {
    Tapped {
        sender: String,
        place: ChatPlace,
        tap: ChatTap,
        /// The approval that the button itself names, where it can: it must be that of the message.
        names: Option<String>,
        message: TappedMessage,
    },
    Typed {
        sender: String,
        place: ChatPlace,
        text: String,
        /// The message that it replies to, or whose thread it stands in.
        replies_to: Option<String>,
    },
    /// The account's own message was replaced. Interlock replaces no prompt that waits: another program
    /// has the account's token.
    Replaced { place: ChatPlace },
}

impl ChatUpdate {
    pub(crate) fn sender(&self) -> Option<&str> {
        match self {
            Self::Tapped { sender, .. } | Self::Typed { sender, .. } => Some(sender),
            Self::Replaced { .. } => None,
        }
    }

    pub(crate) fn place(&self) -> &ChatPlace {
        match self {
            Self::Tapped { place, .. } | Self::Typed { place, .. } | Self::Replaced { place } => {
                place
            }
        }
    }
}

/// What a platform says of the message whose button was pressed. A program with the account's own token
/// could have replaced the command in it: then the approver decided about another text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TappedMessage {
    /// It was not edited, as far as the platform says.
    Unedited,
    Edited,
    /// It shows this: the title, the block and the note, one behind the other.
    Shows(String),
}

/// What happened since the cursor, and the next one. The cursor is stored when all of it was handled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatUpdates {
    pub updates: Vec<ChatUpdate>,
    pub cursor: Option<String>,
}

/// A message for a chat.
#[derive(Debug, Clone, Copy)]
pub struct NewMessage<'a> {
    pub target: &'a ChatTarget,
    pub message: &'a ChatMessage,
    pub key: &'a str,
}

/// A message that a chat has, and what it shows from now on.
#[derive(Debug, Clone, Copy)]
pub struct MessageEdit<'a> {
    pub at: &'a MessageRef,
    pub message: &'a ChatMessage,
    pub key: &'a str,
}

/// From where on an account is read. Without a cursor, what happened before now is skipped.
#[derive(Debug, Clone, Copy)]
pub struct ReadFrom<'a> {
    pub cursor: Option<&'a str>,
    /// Those whose invitations are accepted.
    pub approvers: &'a [String],
}

/// A platform account. `send` and `edit` are called again after a failure or a crash: where the platform
/// has an idempotency key, `key` makes that one message.
pub trait ChatChannel: fmt::Debug + Send + Sync {
    /// Whether the platform shows this text unaltered.
    fn fits(&self, message: &ChatMessage) -> bool;

    /// At least this long between two messages of one chat.
    fn pause(&self) -> Duration;

    /// Whether persons can type decisions where a message goes.
    fn takes_typed(&self, _target: &ChatTarget) -> bool {
        true
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef>;

    /// What belongs to a message and is sent behind it, once the message is marked. It may fail: the
    /// message can be decided without it.
    fn send_buttons<'a>(&'a self, _of: MessageEdit<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Replaces a message that was sent, with its buttons. Where a platform keeps messages as they are, a
    /// late answer gets the winner.
    fn edit<'a>(&'a self, _edit: MessageEdit<'a>) -> ChatFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Takes a message away, where the platform can.
    fn remove<'a>(&'a self, _at: &'a MessageRef, _key: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Waits for what happens. Only chats ([`ChannelKind::is_chat`]) are asked.
    fn updates<'a>(&'a self, _from: ReadFrom<'a>) -> ChatFuture<'a, ChatUpdates> {
        Box::pin(std::future::pending())
    }

    /// A short answer to one update.
    fn reply<'a>(&'a self, _to: &'a ChatPlace, _text: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Whether the account works: who it is, by the platform's word.
    fn whoami(&self) -> ChatFuture<'_, String>;
}
