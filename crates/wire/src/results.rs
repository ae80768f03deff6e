//! The result of each method, as the gateway writes and clients read it.
//!
//! The order of fields is their order on the wire. Every field has a default, because a client may
//! read the result of a gateway of another version. Unknown fields are ignored.

mod channels;
mod config;
mod exec;
mod nodes;
mod pairing;
mod policy;
mod processes;
mod relayed;
mod sandbox;
mod sessions;
mod system;
mod tools;
mod ui;

pub use channels::{
    ChannelListing, ChannelProblem, ChannelTargetRow, ChannelTested, ChannelsTested,
};
pub use config::*;
pub use exec::*;
pub use nodes::*;
pub use pairing::*;
pub use policy::*;
pub use processes::*;
pub use relayed::Relayed;
pub use sandbox::*;
pub use sessions::*;
pub use system::*;
pub use tools::*;
pub use ui::*;

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;

/// Reads a value for which a foreign gateway may use another type. Such a value counts as absent.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}
