//! Chats that show approvals.

use crate::results::{ChannelListing, ChannelsTested};
use crate::schema::TEXT;

params! {
    /// The accounts and targets of chats, how their messages fare, and what of the config is not used.
    /// An Interlock extension.
    ChannelsList for "channels.list" -> ChannelListing {}
}
params! {
    /// Sends a message to every target, or to one, to see whether it arrives. An Interlock extension.
    ChannelsTest for "channels.test" -> ChannelsTested {
        optional {
            /// The name of one target, as `channels.list` has it.
            target "target": String = TEXT,
        }
    }
}
