//! Chats that show approvals.

use crate::results::{ChannelListing, ChannelsTested};
use crate::schema::TEXT;

params! {
    /// Lists the accounts and targets of chats, the state of their messages, and the parts of the
    /// config that are not used. An Interlock extension.
    ChannelsList for "channels.list" -> ChannelListing {}
}
params! {
    /// Sends a test message to every target, or to one. An Interlock extension.
    ChannelsTest for "channels.test" -> ChannelsTested {
        optional {
            /// The name of one target in `channels.list`.
            target "target": String = TEXT,
        }
    }
}
