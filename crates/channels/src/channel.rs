//! The interface that every platform implements.

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

    /// Returns the name in the config and in receipts.
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

    /// Whether the platform sends its events over a socket.
    pub(crate) fn has_socket(self) -> bool {
        match self {
            Self::Slack | Self::Discord => true,
            Self::Matrix | Self::Telegram | Self::Ntfy | Self::Webhook => false,
        }
    }

    /// Whether the platform identifies who answers. Such platforms are listened to. The others call
    /// Interlock themselves.
    pub fn is_chat(self) -> bool {
        match self {
            Self::Matrix | Self::Telegram | Self::Slack | Self::Discord => true,
            Self::Ntfy | Self::Webhook => false,
        }
    }
}

/// The platform's ids of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MessageRef {
    pub chat: String,
    pub message: String,
}

impl MessageRef {
    /// Returns the message that a platform accepted, by the ids that it returned. A message without
    /// ids counts as not sent, because it could not be edited and answers to it could not be
    /// recognized.
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

    /// Checks that the store accepts these ids.
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

/// Why a platform did not accept a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatFailure {
    /// The platform will not accept it later either. The reason is for people and contains no
    /// secrets.
    Refused(String),
    /// The platform may accept it later.
    Passing(String),
    /// The platform says when to try again. Nothing failed.
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

/// A call to a platform in progress.
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

/// A decision by one tap: a reaction or a button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChatTap {
    AllowOnce,
    AllowAlways,
    Deny,
}

impl ChatTap {
    /// Returns the word that a button carries.
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

/// Where a person answered, so that Interlock can reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatPlace {
    pub chat: String,
    /// The message that was tapped, or that contains the text.
    pub message: String,
    /// The id that the platform expects in the reply to a tap, if it uses one.
    pub interaction: Option<String>,
    /// The platform's id of the event, if the platform may send an event twice. It counts once.
    pub event: Option<String>,
}

/// What a person did. Adapters report only new events of persons: no edits, forwards, quotes, code
/// blocks or removed reactions, nothing from bots or webhooks, and nothing from the account itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatUpdate {
    Tapped {
        sender: String,
        place: ChatPlace,
        tap: ChatTap,
        /// The approval that the button itself names, if it can. It must be the message's approval.
        names: Option<String>,
        message: TappedMessage,
    },
    Typed {
        sender: String,
        place: ChatPlace,
        text: String,
        /// The message that the text replies to, or whose thread contains it.
        replies_to: Option<String>,
    },
    /// The account's own message was replaced. Interlock never replaces a pending prompt, so
    /// another program has the account's token.
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

/// What a platform reports about the message whose button was pressed. A program with the account's
/// own token could have replaced the command in it. Then the approver would have decided about
/// another text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TappedMessage {
    /// The message was not edited, according to the platform.
    Unedited,
    Edited,
    /// The message shows this text: the title, the block and the note, concatenated.
    Shows(String),
}

/// The updates since the cursor, and the next cursor. It is stored after all of them were handled.
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

/// A message that a chat has, and what it will show.
#[derive(Debug, Clone, Copy)]
pub struct MessageEdit<'a> {
    pub at: &'a MessageRef,
    pub message: &'a ChatMessage,
    pub key: &'a str,
}

/// Where reading an account begins. Without a cursor, earlier events are skipped.
#[derive(Debug, Clone, Copy)]
pub struct ReadFrom<'a> {
    pub cursor: Option<&'a str>,
    /// The senders whose invitations are accepted.
    pub approvers: &'a [String],
}

/// A platform account. `send` and `edit` are called again after a failure or a crash. If the
/// platform has idempotency keys, `key` prevents a second message.
pub trait ChatChannel: fmt::Debug + Send + Sync {
    /// Whether the platform shows this text unaltered.
    fn fits(&self, message: &ChatMessage) -> bool;

    /// Returns the shortest pause between two messages of one chat.
    fn pause(&self) -> Duration;

    /// Whether people can type decisions where a message goes.
    fn takes_typed(&self, _target: &ChatTarget) -> bool {
        true
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef>;

    /// Sends what belongs to a message, once the message is marked as sent. It may fail, because
    /// the approval can be decided without it.
    fn send_buttons<'a>(&'a self, _of: MessageEdit<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Replaces a sent message and its buttons. If a platform cannot edit messages, a late answer
    /// gets the decision that won as its reply.
    fn edit<'a>(&'a self, _edit: MessageEdit<'a>) -> ChatFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Removes a message, if the platform can.
    fn remove<'a>(&'a self, _at: &'a MessageRef, _key: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Waits for updates. Only chats ([`ChannelKind::is_chat`]) are asked for them.
    fn updates<'a>(&'a self, _from: ReadFrom<'a>) -> ChatFuture<'a, ChatUpdates> {
        Box::pin(std::future::pending())
    }

    /// Sends a short reply to one update.
    fn reply<'a>(&'a self, _to: &'a ChatPlace, _text: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Checks that the account works. Returns its name, according to the platform.
    fn whoami(&self) -> ChatFuture<'_, String>;
}
