//! All connected clients.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_wire::{Event, OperatorScope, Role, event};

use crate::client::Client;
use crate::read_approvals::ReadApprovals;

#[derive(Debug, Default)]
pub struct Hub {
    clients: Mutex<Clients>,
    /// The bytes that wait for all clients together.
    pub buffered: Arc<AtomicUsize>,
    read: ReadApprovals,
}

#[derive(Debug, Default)]
struct Clients {
    by_connection: HashMap<String, Arc<Client>>,
    /// The connections of each device.
    by_device: HashMap<String, Vec<Arc<Client>>>,
}

impl Hub {
    /// Remembers that a client's program read an approval.
    pub fn note_read(&self, client: &Client, approval: &str) {
        self.read.note(&client.reader(), approval);
    }

    /// Whether a client's program read an approval lately, on any connection. Command lines open a
    /// new connection for every request.
    pub fn was_read_by_program(&self, client: &Client, approval: &str) -> bool {
        self.read.contains(&client.reader(), approval)
    }

    pub fn add(&self, client: &Arc<Client>) {
        let mut clients = self.lock();
        if let Some(device) = &client.device {
            let same = clients.by_device.entry(device.clone()).or_default();
            same.push(Arc::clone(client));
        }
        let name = client.connection.clone();
        clients.by_connection.insert(name, Arc::clone(client));
    }

    pub fn remove(&self, client: &Client) {
        let mut clients = self.lock();
        clients.by_connection.remove(&client.connection);
        let Some(device) = &client.device else { return };
        if let Some(same) = clients.by_device.get_mut(device) {
            same.retain(|other| other.connection != client.connection);
            if same.is_empty() {
                clients.by_device.remove(device);
            }
        }
    }

    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock().by_connection.values().cloned().collect()
    }

    /// Returns the connections of one device, in any role.
    pub fn of_device(&self, device: &str) -> Vec<Arc<Client>> {
        let clients = self.lock();
        clients.by_device.get(device).cloned().unwrap_or_default()
    }

    pub fn count(&self) -> usize {
        self.lock().by_connection.len()
    }

    /// Sends an event to every client that may receive it. Presence goes to operators only, because
    /// nodes have no use for it, and with many nodes it would dominate the traffic.
    pub fn broadcast(&self, event: &Event) {
        for client in self.all() {
            let is_for_it = client.role == Role::Operator || event.event != event::PRESENCE;
            if is_for_it && event::is_heard_by(&event.event, client.role, &client.scopes) {
                client.broadcast(event);
            }
        }
    }

    /// Returns the clients that can show approvals to an approver, except the requester.
    pub fn approvers(&self, except: &str) -> Vec<Arc<Client>> {
        let mut clients = self.all();
        clients.retain(|client| {
            client.role == Role::Operator
                && client.scopes.allow(OperatorScope::Approvals)
                && client.connection != except
        });
        clients
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
