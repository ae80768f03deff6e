//! All clients that are connected.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_wire::{Event, OperatorScope, Role, event};

use super::client::Client;

#[derive(Debug, Default)]
pub(crate) struct Hub {
    clients: Mutex<HashMap<String, Arc<Client>>>,
    /// Bytes that wait for all of them.
    pub(super) buffered: Arc<AtomicUsize>,
}

impl Hub {
    pub(super) fn add(&self, client: &Arc<Client>) {
        let name = client.connection.clone();
        self.lock().insert(name, Arc::clone(client));
    }

    pub(super) fn remove(&self, client: &Client) {
        self.lock().remove(&client.connection);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Sends an event to every client that may receive it. Presence goes to operators only: a node
    /// has no use for it, and with many nodes it would be most of what is sent.
    pub(crate) fn broadcast(&self, event: &Event) {
        for client in self.all() {
            let is_for_it = client.role == Role::Operator || event.event != event::PRESENCE;
            if is_for_it && event::is_heard_by(&event.event, client.role, &client.scopes) {
                client.broadcast(event);
            }
        }
    }

    /// Clients that can show approvals to an approver, except for the one that asks.
    pub(crate) fn approvers(&self, except: &str) -> Vec<Arc<Client>> {
        let mut clients = self.all();
        clients.retain(|client| {
            client.role == Role::Operator
                && client.scopes.allow(OperatorScope::Approvals)
                && client.connection != except
        });
        clients
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
