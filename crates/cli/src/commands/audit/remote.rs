//! The audit chain of a remote gateway. The gateway reads and checks it. A head that was stored
//! here shows whether the chain still contains everything that it contained then.

use std::process::ExitCode;

use interlock_approvals::AuditHead;
use interlock_arguments::{AuditCommand, AuditLogArguments, AuditVerifyArguments, StateArguments};
use interlock_client::{CallFailure, GatewayClient};
use interlock_console::output::visible;
use interlock_console::{CommandOutcome, Failure, milliseconds};
use interlock_host::now_ms;
use interlock_wire::params::{self, AuditList, AuditVerify, Params};

use super::{ListedRecords, broken, earlier_head, kind, print_records, tell_head, tell_intact};

/// How many records one request reads.
const PAGE: usize = 500;

pub(super) fn run(
    state: &StateArguments,
    mut gateway: GatewayClient,
    command: &AuditCommand,
) -> CommandOutcome {
    match command {
        AuditCommand::Log(arguments) => {
            print_records(state, arguments, records(&mut gateway, arguments)?);
        }
        AuditCommand::Verify(arguments) => verify(&mut gateway, arguments)?,
        AuditCommand::Head(arguments) => {
            let answer = request(&mut gateway, &params::AuditHead::default())?;
            tell_head(&head(&answer.head)?, arguments.json);
        }
        // The reach of the command refuses it before it gets here.
        AuditCommand::Export(_) | AuditCommand::Archive(_) => {
            let message = "the whole chain is written on the machine that keeps it";
            return Err(Failure::refused("LOCAL_ONLY", message));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest matching records, up to the limit.
fn records(
    gateway: &mut GatewayClient,
    arguments: &AuditLogArguments,
) -> Result<ListedRecords, Failure> {
    let kind = arguments.kind.as_deref().map(kind).transpose()?;
    let since = arguments.since.as_deref().map(milliseconds).transpose()?;
    let mut params = AuditList {
        kind: kind.map(|kind| kind.as_str().to_owned()),
        agent_id: arguments.agent.clone(),
        after: since.map(|since| now_ms().saturating_sub(since).saturating_sub(1)),
        cursor: arguments.cursor.map(|cursor| cursor.to_string()),
        ..AuditList::default()
    };
    let mut listed = ListedRecords::default();
    while listed.records.len() < arguments.limit {
        let count = (arguments.limit - listed.records.len()).min(PAGE);
        params.limit = u64::try_from(count).ok();
        let page = request(gateway, &params)?;
        listed.records.extend(page.events);
        listed.total = page.total.or(listed.total);
        listed.next_cursor.clone_from(&page.next_cursor);
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            break;
        }
    }
    Ok(listed)
}

fn verify(gateway: &mut GatewayClient, arguments: &AuditVerifyArguments) -> Result<(), Failure> {
    let earlier = earlier_head(arguments)?;
    let params = AuditVerify {
        head: earlier.map(|head| head.to_string()),
    };
    let answer = request(gateway, &params)?;
    if !answer.intact {
        let problem = answer.problem.as_deref().unwrap_or("it is not intact");
        return Err(broken(visible(problem)));
    }
    tell_intact(&head(&answer.head.unwrap_or_default())?, arguments.json);
    Ok(())
}

fn head(text: &str) -> Result<AuditHead, Failure> {
    text.parse().map_err(|error| {
        let message = format!("the head that the gateway says cannot be read: {error}");
        Failure::refused("GATEWAY_REFUSED", message)
    })
}

fn request<P: Params>(gateway: &mut GatewayClient, params: &P) -> Result<P::Answer, Failure> {
    gateway.request(params).map_err(CallFailure::into_reported)
}
