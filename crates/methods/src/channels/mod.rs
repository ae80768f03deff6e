//! Approvals in chats: the gateway's side of channels (`ChatDesk`), and the methods that operators
//! call (`methods`). Callbacks of chats arrive at the gateway's HTTP. The channels themselves are
//! in `interlock_channels`.

mod methods;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use interlock_approvals::{ApprovalRefusal, DecisionBy, PendingApproval, StoredDecision};
use interlock_channels::{ApprovalDesk, ChatDecision, ChatService, NtfyTickets};
use interlock_command::display::Secrets;
use interlock_config::ConfigFile;
use interlock_store::{Delivery, DeliveryState, Store};
use interlock_wire::Secret;
use tokio::sync::broadcast::error::RecvError;

use crate::gateway::Gateway;
use crate::handlers::direct_session;

pub(crate) use methods::{list, test};

/// The gateway's state for channels.
#[derive(Debug)]
pub struct ChannelHub {
    pub tickets: NtfyTickets,
    service: OnceLock<Arc<ChatService>>,
}

impl ChannelHub {
    pub fn new(device_key: &Secret) -> Self {
        use hmac::{Hmac, KeyInit as _, Mac as _};
        let mut mac = <Hmac<sha2::Sha256>>::new_from_slice(device_key.expose().as_bytes())
            .unwrap_or_else(|_| unreachable!("a key of any length will do"));
        mac.update(b"interlock ntfy ticket key v1");
        let bytes = mac.finalize().into_bytes();
        let key = bytes.iter().fold(String::new(), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        });
        Self {
            tickets: NtfyTickets::new(Secret::new(key)),
            service: OnceLock::new(),
        }
    }

    /// Returns the service once it runs.
    pub fn service(&self) -> Option<&Arc<ChatService>> {
        self.service.get()
    }
}

/// Runs the channel service until the gateway ends.
pub async fn follow(gateway: Arc<Gateway>) {
    let desk = Arc::new(ChatDesk(
        Arc::downgrade(&gateway),
        Arc::clone(&gateway.dispatcher),
    ));
    let tickets = gateway.channels.tickets.clone();
    let service = Arc::new(ChatService::new(desk, tickets));
    let _ = gateway.channels.service.set(Arc::clone(&service));
    let stop = gateway.dispatcher.stop.clone();
    let mut changes = gateway.dispatcher.approvals.changes();
    drop(gateway);
    let running = tokio::spawn(Arc::clone(&service).run(stop));
    // The store says what is left to do, so that a missed change is found at the next look.
    while let Ok(_) | Err(RecvError::Lagged(_)) = changes.recv().await {
        service.look_now();
    }
    running.abort();
}

/// The gateway as channels see it.
#[derive(Debug)]
struct ChatDesk(Weak<Gateway>, Arc<interlock_dispatch::Dispatcher>);

impl ApprovalDesk for ChatDesk {
    fn store(&self) -> &Store {
        self.1.host.store()
    }

    fn config(&self) -> Option<Arc<ConfigFile>> {
        self.1.host.config().ok()
    }

    fn approval(&self, reference: &str) -> Result<PendingApproval, ApprovalRefusal> {
        self.1.host.approvals().approval(reference, Secrets::Masked)
    }

    fn decide(&self, decision: ChatDecision<'_>) -> Result<StoredDecision, ApprovalRefusal> {
        let Some(gateway) = self.0.upgrade() else {
            return Err(ApprovalRefusal::FromRun("the gateway stops".to_owned()));
        };
        decide(&gateway, decision)
    }

    fn directive(&self, sender: &str, session_key: &str, text: &str) -> Result<String, String> {
        let Some(gateway) = self.0.upgrade() else {
            return Err("the gateway stops".to_owned());
        };
        direct_session(&gateway, sender, session_key, text).map_err(|error| error.message.clone())
    }

    fn is_shown_elsewhere(&self, approval: &PendingApproval) -> bool {
        let is_chat = |one: &Delivery| {
            let kind = one.surface.split([':', '/']).next().unwrap_or_default();
            interlock_channels::ChannelKind::named(kind).is_some()
        };
        let is_shown =
            |one: &&Delivery| matches!(one.state, DeliveryState::Sent | DeliveryState::Seen);
        let mut shown = approval.deliveries.iter().filter(is_shown);
        let approvers = self.1.hub.approvers("").into_iter();
        let mut others = approvers.filter(|client| client.surface() != approval.requester);
        shown.any(|one| !is_chat(one)) || others.next().is_some()
    }

    fn fall_back(&self, id: &str) {
        // If the fallback denies, `fall_back` returns an error. A denial is a valid end here.
        let _ = self.1.host.approvals().fall_back(id);
        if let Ok(approval) = self.approval(id)
            && approval.ended.is_some()
        {
            self.1.approvals.tell(&self.1, approval);
        }
    }

    fn receipts_changed(&self, id: &str) {
        if let Some(gateway) = self.0.upgrade() {
            crate::ui::receipts_changed(&gateway, id);
        }
    }

    fn page(&self, path: &str) -> Option<String> {
        let gateway = self.0.upgrade()?;
        let config = self.config();
        let remote = config.and_then(|file| file.config().gateway.remote.url.clone());
        let base = match remote {
            Some(url) => {
                let url = url
                    .replacen("wss://", "https://", 1)
                    .replacen("ws://", "http://", 1);
                format!("{}{}/", url.trim_end_matches('/'), gateway.ui.base())
            }
            None => gateway.ui.address().to_owned(),
        };
        (!base.is_empty()).then(|| format!("{base}{path}"))
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn path(&self, text: &str) -> PathBuf {
        match self.0.upgrade() {
            Some(gateway) => gateway.path(text),
            None => PathBuf::from(text),
        }
    }
}

/// Decides for a channel. Channels have no other way to decide.
pub fn decide(
    gateway: &Gateway,
    decision: ChatDecision<'_>,
) -> Result<StoredDecision, ApprovalRefusal> {
    let host = &gateway.dispatcher.host;
    let by = DecisionBy {
        decider: decision.decider,
        surface: decision.surface,
        reason: decision.reason,
        has_shown: true,
        outside: gateway.outside,
    };
    let stored =
        host.approvals()
            .decide(decision.id, decision.plan_digest, decision.decision, by)?;
    if !stored.again
        && let Ok(approval) = host.approvals().approval(decision.id, Secrets::Masked)
    {
        let ended = Some(stored.ended.clone());
        let ended = PendingApproval { ended, ..approval };
        gateway
            .dispatcher
            .approvals
            .tell(&gateway.dispatcher, ended);
    }
    Ok(stored)
}
