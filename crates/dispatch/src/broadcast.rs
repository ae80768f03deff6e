//! Events for every client.

use interlock_wire::Event;
use serde::Serialize;

use crate::dispatcher::Dispatcher;

/// Sends an event to every client that may receive it.
pub fn broadcast(dispatcher: &Dispatcher, name: &str, payload: &impl Serialize) {
    if let Ok(event) = Event::new(name, payload) {
        let event = event.with_state_version(dispatcher.state_version());
        dispatcher.hub.broadcast(&event);
    }
}
