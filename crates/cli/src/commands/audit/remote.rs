//! The chain of a gateway elsewhere. The gateway reads and checks it; a head that was kept here says whether
//! it still holds what it held then.

use std::process::ExitCode;

use interlock_host::{AuditHead, now_ms};
use serde_json::{Value, json};

use super::super::CommandOutcome;
use super::super::approvals::milliseconds;
use super::{ListedRecords, broken, earlier_head, kind, tell_head, tell_intact, tell_records};
use crate::args::{AuditCommand, AuditLogArguments, AuditVerifyArguments, StateArguments};
use crate::failure::Failure;
use crate::gateway_client::{CallFailure, GatewayClient};
use crate::output::visible;

/// Records in one answer.
const PAGE: usize = 500;

pub(super) fn run(
    state: &StateArguments,
    mut gateway: GatewayClient,
    command: &AuditCommand,
) -> CommandOutcome {
    match command {
        AuditCommand::Log(arguments) => {
            tell_records(state, arguments, records(&mut gateway, arguments)?);
        }
        AuditCommand::Verify(arguments) => verify(&mut gateway, arguments)?,
        AuditCommand::Head(arguments) => {
            let answer = call(&mut gateway, "audit.head", &json!({}))?;
            tell_head(&head(&answer["head"])?, arguments.json);
        }
        // It is refused before it gets here.
        AuditCommand::Export(_) => {
            let message = "the whole chain is written on the machine that keeps it";
            return Err(Failure::refused("LOCAL_ONLY", message));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest records that fit.
fn records(
    gateway: &mut GatewayClient,
    arguments: &AuditLogArguments,
) -> Result<ListedRecords, Failure> {
    let mut params = json!({});
    if let Some(word) = &arguments.kind {
        params["kind"] = kind(word)?.as_str().into();
    }
    if let Some(agent) = &arguments.agent {
        params["agentId"] = agent.as_str().into();
    }
    if let Some(since) = &arguments.since {
        let after = now_ms().saturating_sub(milliseconds(since)?);
        params["after"] = after.saturating_sub(1).into();
    }
    if let Some(cursor) = arguments.cursor {
        params["cursor"] = cursor.to_string().into();
    }
    let mut listed = ListedRecords::default();
    while listed.records.len() < arguments.limit {
        params["limit"] = (arguments.limit - listed.records.len()).min(PAGE).into();
        let mut answer = call(gateway, "audit.list", &params)?;
        let page = answer["events"].as_array_mut().map(std::mem::take);
        listed.records.extend(page.unwrap_or_default());
        listed.total = answer["total"].as_u64().or(listed.total);
        listed.next_cursor = answer["nextCursor"].as_str().map(str::to_owned);
        match &listed.next_cursor {
            Some(cursor) => params["cursor"] = cursor.as_str().into(),
            None => break,
        }
    }
    Ok(listed)
}

fn verify(gateway: &mut GatewayClient, arguments: &AuditVerifyArguments) -> Result<(), Failure> {
    let earlier = earlier_head(arguments)?;
    let params = earlier.map_or_else(|| json!({}), |head| json!({ "head": head.to_string() }));
    let answer = call(gateway, "audit.verify", &params)?;
    if answer["intact"] != true {
        let problem = answer["problem"].as_str().unwrap_or("it is not intact");
        return Err(broken(visible(problem)));
    }
    tell_intact(&head(&answer["head"])?, arguments.json);
    Ok(())
}

fn head(told: &Value) -> Result<AuditHead, Failure> {
    let text = told.as_str().unwrap_or_default();
    text.parse().map_err(|error| {
        let message = format!("the head that the gateway says cannot be read: {error}");
        Failure::refused("GATEWAY_REFUSED", message)
    })
}

fn call(gateway: &mut GatewayClient, method: &str, params: &Value) -> Result<Value, Failure> {
    gateway
        .call(method, params)
        .map_err(CallFailure::into_reported)
}
