//! `channels.list` and `channels.test`.

use std::sync::Arc;

use interlock_wire::results::{
    ChannelListing, ChannelProblem, ChannelTargetRow, ChannelTested, ChannelsTested,
};
use interlock_wire::{WireError, params};

use crate::handlers::{Context, store_failed, work};

/// The service runs only after the gateway has started.
fn not_yet() -> WireError {
    WireError::unavailable("the channels of this gateway are not open yet".to_owned())
}

pub(crate) async fn list(
    context: Context<'_>,
    _: params::ChannelsList,
) -> Result<ChannelListing, WireError> {
    work(context, move |gateway| {
        let service = gateway.channels.service().ok_or_else(not_yet)?;
        service.refresh(&gateway.dispatcher.stop);
        let setup = service.setup();
        let known = gateway.dispatcher.host.store().chat_status();
        let known = known.map_err(store_failed)?;
        let targets = setup.targets.iter().map(|target| {
            let status = known.iter().find(|one| one.target == target.name);
            let count =
                |read: fn(&interlock_store::ChatTargetStatus) -> u64| status.map_or(0, read);
            ChannelTargetRow {
                target: target.name.clone(),
                after_ms: target.after_ms,
                queued: count(|one| one.queued),
                sent: count(|one| one.sent),
                failed: count(|one| one.failed),
            }
        });
        let problems = setup.problems.iter().map(|(key, why)| ChannelProblem {
            key: key.clone(),
            why: why.clone(),
        });
        Ok(ChannelListing {
            accounts: setup
                .accounts
                .iter()
                .map(interlock_channels::AccountSetup::shown)
                .collect(),
            targets: targets.collect(),
            problems: problems.collect(),
        })
    })
    .await
}

pub(crate) async fn test(
    context: Context<'_>,
    asked: params::ChannelsTest,
) -> Result<ChannelsTested, WireError> {
    let service = work(context, |gateway| {
        let service = gateway.channels.service().ok_or_else(not_yet)?;
        service.refresh(&gateway.dispatcher.stop);
        Ok(Arc::clone(service))
    })
    .await?;
    let tested = service.test(asked.target.as_deref()).await;
    if let (Some(target), []) = (&asked.target, tested.as_slice()) {
        let message = format!("there is no target `{target}`");
        return Err(WireError::invalid(message)
            .with("code", "TARGET_NOT_FOUND")
            .with("remediation", "list them: interlock channels list"));
    }
    let targets = tested.into_iter().map(|one| ChannelTested {
        target: one.target,
        account: one.account,
        problem: one.problem,
    });
    Ok(ChannelsTested {
        targets: targets.collect(),
    })
}
