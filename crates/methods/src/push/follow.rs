//! Sends pending approvals, and their ends, to the devices that subscribed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use interlock_approvals::PendingApproval;
use interlock_command::display::ShownLine;
use interlock_command::{HighlightStyle, highlight};
use interlock_config::PushDetail;
use interlock_dispatch::work::blocking;
use interlock_host::now_ms;
use interlock_store::{
    ApprovalEnding, Delivery, DeliveryState, PairedDevice, PushSubscription, StoreError,
};
use interlock_wire::{OperatorScope, Role, Scopes};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::broadcast::error::RecvError;

use super::endpoint::{PushAnswered, PushEndpoint, PushRequest};
use super::message::BrowserKeys;
use crate::gateway::Gateway;

/// How long a push waits. If an approval is decided or seen meanwhile, it is not sent, because its
/// approver sits at another screen.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pauses before the further attempts.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// How long a push service keeps a message about an end, which is of no use later.
const END_SECONDS: u64 = 120;

/// How long a signature for a push service is valid.
const SIGNED_SECONDS: u64 = 12 * 60 * 60;

/// The longest command that a notification shows. A body of any other kind has a limit in bytes.
const COMMAND_CHARACTERS: usize = 180;
const BODY_BYTES: usize = 600;

/// Sends notifications until the gateway ends.
pub async fn follow(gateway: Arc<Gateway>) {
    let mut changes = gateway.dispatcher.approvals.changes();
    loop {
        match changes.recv().await {
            Ok(approval) => {
                tokio::spawn(notify(Arc::clone(&gateway), approval));
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "approvals were not sent to phones");
            }
            Err(RecvError::Closed) => return,
        }
    }
}

async fn notify(gateway: Arc<Gateway>, approval: Arc<PendingApproval>) {
    if approval.ended.is_some() {
        return notify_end(&gateway, &approval).await;
    }
    let is_wanted = {
        let gateway = Arc::clone(&gateway);
        blocking(move || !subscribed(&gateway).is_empty()).await
    };
    if !matches!(is_wanted, Ok(true)) {
        return;
    }
    tokio::time::sleep(PATIENCE).await;
    let (reader, id) = (Arc::clone(&gateway), approval.id.clone());
    let devices = blocking(move || {
        if is_open(&reader, &id) {
            subscribed(&reader)
        } else {
            Vec::new()
        }
    });
    let devices = devices.await.unwrap_or_default();
    let sent = devices
        .iter()
        .map(|(device, subscription)| send_question(&gateway, &approval, device, subscription));
    join_all(sent).await;
}

/// Whether an approval is pending and no approver has opened it.
fn is_open(gateway: &Gateway, id: &str) -> bool {
    let stored = gateway.dispatcher.host.store().approval(id);
    stored.is_ok_and(|approval| {
        let mut deliveries = approval.deliveries.iter();
        approval.ended.is_none() && !deliveries.any(|one| one.state == DeliveryState::Seen)
    })
}

/// Returns the devices that may decide and are subscribed.
fn subscribed(gateway: &Gateway) -> Vec<(PairedDevice, PushSubscription)> {
    let devices = gateway.dispatcher.host.store().devices();
    let devices = devices.unwrap_or_default().into_iter();
    let wanted = devices.filter_map(|device| {
        let subscription = device.push.clone()?;
        may_decide(&device).then_some((device, subscription))
    });
    wanted.collect()
}

/// Whether a device may decide about approvals now.
pub fn may_decide(device: &PairedDevice) -> bool {
    let token = device.tokens.get(Role::Operator.as_str());
    token.is_some_and(|token| {
        !token.revoked && Scopes::from_names(&token.scopes).allow(OperatorScope::Approvals)
    })
}

/// Returns the hosts that the owner named.
pub(super) fn named_endpoints(gateway: &Gateway) -> Vec<String> {
    let config = gateway.dispatcher.host.config();
    let named = config.map(|config| config.config().push.endpoints.clone());
    named.ok().flatten().unwrap_or_default()
}

async fn send_question(
    gateway: &Arc<Gateway>,
    approval: &PendingApproval,
    device: &PairedDevice,
    subscription: &PushSubscription,
) {
    let left = u64::try_from(approval.expires_at_ms).unwrap_or_default();
    let left = Duration::from_millis(left.saturating_sub(now_ms()));
    let (id, digest) = (&approval.id, &approval.plan_digest);
    let Some(nonce) = gateway.push.nonce(&device.device_id, id, digest, left) else {
        return;
    };
    let text = json!({
        "kind": "asked",
        "id": id,
        "digest": digest,
        "nonce": nonce,
        "title": "Interlock: approval",
        "body": body(approval, detail(gateway)),
    });
    let seconds = left.as_secs().max(1);
    let mut answered = send_to(gateway, &device.device_id, subscription, &text, seconds, id).await;
    for pause in PAUSES {
        if !matches!(answered, PushAnswered::Failed(_)) {
            break;
        }
        tokio::time::sleep(pause).await;
        answered = send_to(gateway, &device.device_id, subscription, &text, seconds, id).await;
    }
    let (state, why) = match answered {
        PushAnswered::Taken => {
            gateway.push.note_pushed(id, &device.device_id);
            (DeliveryState::Sent, None)
        }
        PushAnswered::Gone => (
            DeliveryState::Failed,
            Some("not subscribed any more".to_owned()),
        ),
        PushAnswered::Failed(why) => (DeliveryState::Failed, Some(why)),
    };
    let name = device.display_name.as_deref().unwrap_or("a device");
    let name: String = ShownLine::new(name).as_str().chars().take(80).collect();
    let delivery = Delivery {
        surface: format!("push:{name}"),
        state,
        at_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
        detail: why.map(|why| why.chars().take(200).collect()),
    };
    record(gateway, id, delivery).await;
}

/// Records the delivery, for the card and the audit.
async fn record(gateway: &Arc<Gateway>, id: &str, delivery: Delivery) {
    let (writer, id) = (Arc::clone(gateway), id.to_owned());
    let recorded = blocking(move || {
        let written = writer
            .dispatcher
            .host
            .store()
            .record_delivery(&id, &delivery);
        if matches!(written, Ok(true)) {
            crate::ui::receipts_changed(&writer, &id);
        }
        written
    });
    if let Ok(Err(error)) = recorded.await {
        tracing::warn!(%error, "a receipt was not recorded");
    }
}

async fn notify_end(gateway: &Arc<Gateway>, approval: &PendingApproval) {
    let devices = gateway.push.take_pushed(&approval.id);
    let Some(ended) = approval.ended.as_ref().filter(|_| !devices.is_empty()) else {
        return;
    };
    let word = match ended.ending {
        ending if ending.allows() => "Allowed",
        ApprovalEnding::Expired => "Expired",
        ApprovalEnding::Withdrawn => "Withdrawn",
        _ => "Denied",
    };
    let by = ended
        .decider
        .as_deref()
        .map(|by| format!(" by {}", ShownLine::new(by)));
    let text = json!({
        "kind": "ended",
        "id": approval.id,
        "title": "Interlock",
        "body": format!("{word}{}", by.unwrap_or_default()),
    });
    let store = Arc::clone(gateway);
    let known = blocking(move || {
        let read = devices.iter().filter_map(|id| {
            let device = store.dispatcher.host.store().device(id).ok()??;
            let subscription = device.push.clone()?;
            Some((device.device_id, subscription))
        });
        read.collect::<Vec<_>>()
    });
    let known = known.await.unwrap_or_default();
    let sent = known.iter().map(|(id, subscription)| {
        send_to(gateway, id, subscription, &text, END_SECONDS, &approval.id)
    });
    join_all(sent).await;
}

/// Sends one message. If the subscription no longer exists, it is forgotten.
pub(super) async fn send_to(
    gateway: &Arc<Gateway>,
    device: &str,
    subscription: &PushSubscription,
    text: &Value,
    ttl_seconds: u64,
    subject: &str,
) -> PushAnswered {
    let prepared = prepare(gateway, subscription, text);
    let (endpoint, body, authorization) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return PushAnswered::Failed(why),
    };
    let topic = URL_SAFE_NO_PAD.encode(&Sha256::digest(subject.as_bytes())[..24]);
    let request = PushRequest {
        body: &body,
        authorization: &authorization,
        topic: &topic,
        ttl_seconds,
    };
    let answered = endpoint.post(&request).await;
    if answered == PushAnswered::Gone {
        let (gateway, device) = (Arc::clone(gateway), device.to_owned());
        let gone = subscription.clone();
        let forgotten = blocking(move || forget(&gateway, &device, &gone)).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(%error, "a subscription that is gone was not forgotten");
        }
    }
    answered
}

/// Forgets a subscription, unless a newer one has replaced it.
fn forget(gateway: &Gateway, device: &str, gone: &PushSubscription) -> Result<(), StoreError> {
    gateway.dispatcher.host.store().change(|change| {
        if let Some(mut known) = change.device(device)?
            && known.push.as_ref() == Some(gone)
        {
            known.push = None;
            change.put_device(&known)?;
        }
        Ok(())
    })
}

fn prepare(
    gateway: &Gateway,
    subscription: &PushSubscription,
    text: &Value,
) -> Result<(PushEndpoint, Vec<u8>, String), String> {
    // The owner's list may have changed since the device subscribed.
    let endpoint = PushEndpoint::check(&subscription.endpoint, &named_endpoints(gateway))?;
    let keys = BrowserKeys::read(&subscription.p256dh, &subscription.auth);
    let keys = keys.map_err(|error| error.to_string())?;
    let body = keys.encrypt(text.to_string().as_bytes());
    let body = body.map_err(|error| error.to_string())?;
    let key = gateway.push.key(gateway.dispatcher.host.state_dir());
    let key = key.map_err(|error| error.to_string())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let until = now.map_or(0, |now| now.as_secs()) + SIGNED_SECONDS;
    let authorization = key.authorization(&endpoint.origin(), &contact(gateway), until);
    let authorization = authorization.map_err(|error| error.to_string())?;
    Ok((endpoint, body, authorization))
}

/// Returns the contact for push services: the address of this gateway, if the owner configured one.
fn contact(gateway: &Gateway) -> String {
    let config = gateway.dispatcher.host.config().ok();
    let remote = config.and_then(|config| config.config().gateway.remote.url.clone());
    let host = remote.as_deref().and_then(crate::host_of);
    host.map_or_else(
        || "mailto:interlock@localhost".to_owned(),
        |host| format!("https://{host}/"),
    )
}

/// Returns how much a notification says, as the owner chose.
fn detail(gateway: &Gateway) -> PushDetail {
    let config = gateway.dispatcher.host.config().ok();
    let detail = config.and_then(|config| config.config().push.detail);
    detail.unwrap_or(PushDetail::Summary)
}

/// Returns the text that a lock screen shows.
fn body(approval: &PendingApproval, detail: PushDetail) -> String {
    let command = &approval.command;
    let place = approval.node.as_deref().unwrap_or(&approval.host);
    let who = format!(
        "{} on {}",
        ShownLine::new(&approval.agent),
        ShownLine::new(place)
    );
    let who = if approval.view.elevated.leaves() {
        format!("{who} (elevated)")
    } else {
        who
    };
    let is_short = command.left_out == 0 && command.text.chars().count() <= COMMAND_CHARACTERS;
    let text = match detail {
        PushDetail::None => "An approval waits.".to_owned(),
        PushDetail::Command if is_short && approval.view.masked_secrets == 0 => {
            format!("{who}: {}", command.text)
        }
        PushDetail::Command | PushDetail::Summary => {
            format!("{who} asks to run {}", programs(&command.text))
        }
    };
    let end = text.floor_char_boundary(BODY_BYTES.min(text.len()));
    text[..end].to_owned()
}

/// Returns the names of the programs in a command whose hidden characters were made visible.
fn programs(shown: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for found in highlight(shown) {
        let name = found.span.of(shown);
        let name = name.rsplit('/').next().unwrap_or(name);
        if found.style == HighlightStyle::Program && !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return "a command".to_owned();
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_programs_only() {
        assert_eq!(
            programs("/usr/bin/git push origin main && rm -rf /x | git log"),
            "git, rm"
        );
        assert_eq!(programs(""), "a command");
    }
}
