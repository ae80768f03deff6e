//! `push.*`: subscribes a device to notifications, unsubscribes it, and tests them.

use interlock_host::now_ms;
use interlock_store::{Change, PairedDevice, PushSubscription, StoreError};
use interlock_wire::results::{PushChanged, PushKeyShown, PushTested};
use interlock_wire::{WireError, params};
use serde_json::json;

use super::endpoint::{PushAnswered, PushEndpoint};
use super::follow::{named_endpoints, send_to};
use super::message::BrowserKeys;
use crate::handlers::{Context, store_failed, work};

/// `push.key`.
pub(crate) async fn key(
    context: Context<'_>,
    _: params::PushKey,
) -> Result<PushKeyShown, WireError> {
    let device = own_device(context)?;
    work(context, move |gateway| {
        let host = &gateway.dispatcher.host;
        let key = gateway.push.key(host.state_dir());
        let key = key.map_err(|error| WireError::unavailable(error.to_string()))?;
        let known = host.store().device(&device).map_err(store_failed)?;
        Ok(PushKeyShown {
            public_key: key.public_key(),
            subscribed: known.is_some_and(|device| device.push.is_some()),
        })
    })
    .await
}

/// `push.subscribe`.
pub(crate) async fn subscribe(
    context: Context<'_>,
    asked: params::PushSubscribe,
) -> Result<PushChanged, WireError> {
    let refused = |why: String| {
        WireError::invalid(why).with("code", "PUSH_ENDPOINT").with(
            "remediation",
            "interlock config set push.endpoints '[\"https://HOST\"]'",
        )
    };
    BrowserKeys::read(&asked.p256dh, &asked.auth).map_err(|error| refused(error.to_string()))?;
    let named = named_endpoints(context.gateway);
    PushEndpoint::check(&asked.endpoint, &named).map_err(refused)?;
    let subscription = PushSubscription {
        endpoint: asked.endpoint,
        p256dh: asked.p256dh,
        auth: asked.auth,
        subscribed_at_ms: now_ms(),
    };
    change(context, Some(subscription)).await
}

/// `push.unsubscribe`.
pub(crate) async fn unsubscribe(
    context: Context<'_>,
    _: params::PushUnsubscribe,
) -> Result<PushChanged, WireError> {
    change(context, None).await
}

async fn change(
    context: Context<'_>,
    subscription: Option<PushSubscription>,
) -> Result<PushChanged, WireError> {
    let device = own_device(context)?;
    let is_on = subscription.is_some();
    let name = context.client.name().to_owned();
    work(context, move |gateway| {
        let store = gateway.dispatcher.host.store();
        let changed = store.change(|change| {
            let Some(known) = change.device(&device)? else {
                return Ok(false);
            };
            put(change, known, subscription)?;
            let what = if is_on { "push-on" } else { "push-off" };
            let record = json!({ "by": name, "deviceId": device, "what": what });
            change.record_pairing(&record, now_ms())?;
            Ok::<_, StoreError>(true)
        });
        if !changed.map_err(store_failed)? {
            return Err(no_device());
        }
        Ok(PushChanged { subscribed: is_on })
    })
    .await
}

fn put(
    change: &Change<'_>,
    mut device: PairedDevice,
    subscription: Option<PushSubscription>,
) -> Result<(), StoreError> {
    device.push = subscription;
    change.put_device(&device)
}

/// `push.test`: sends a message to the caller's own device.
pub(crate) async fn test(
    context: Context<'_>,
    _: params::PushTest,
) -> Result<PushTested, WireError> {
    let device = own_device(context)?;
    let known = work(context, move |gateway| {
        let store = gateway.dispatcher.host.store();
        store.device(&device).map_err(store_failed)
    })
    .await?;
    let Some((device, subscription)) = known.and_then(|device| {
        let subscription = device.push.clone()?;
        Some((device, subscription))
    }) else {
        return Err(WireError::invalid("this device has no notifications").with("code", "PUSH_OFF"));
    };
    let text = json!({
        "kind": "test",
        "title": "Interlock",
        "body": "Notifications reach this device.",
    });
    let answered = send_to(
        context.gateway,
        &device.device_id,
        &subscription,
        &text,
        60,
        "test",
    );
    Ok(match answered.await {
        PushAnswered::Taken => PushTested::default(),
        PushAnswered::Gone => PushTested {
            problem: Some(
                "the push service knows this device no more: turn it on again".to_owned(),
            ),
        },
        PushAnswered::Failed(why) => PushTested { problem: Some(why) },
    })
}

fn own_device(context: Context<'_>) -> Result<String, WireError> {
    context.client.device.clone().ok_or_else(no_device)
}

fn no_device() -> WireError {
    WireError::invalid("only a paired device gets notifications").with("code", "DEVICE_REQUIRED")
}
