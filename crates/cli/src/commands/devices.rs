//! `interlock devices`: the devices that may connect to the gateway.

use std::process::ExitCode;

use interlock_arguments::{DevicesCommand, StateArguments};
use interlock_client::{GatewayClient, open, outside_runs, read_result};
use interlock_console::output::{self, line};
use interlock_console::{CommandOutcome, Failure};
use interlock_wire::node::NodePairRequested;
use interlock_wire::params::{
    DevicePairApprove, DevicePairList, DevicePairReject, DevicePairRemove, DeviceTokenRevoke,
    DeviceTokenRotate, Params,
};
use interlock_wire::results::{DevicePairListing, DevicePairRequested, PairedDeviceEntry};

pub fn run(state: &StateArguments, command: &DevicesCommand) -> CommandOutcome {
    let host = open(state)?;
    if !matches!(command, DevicesCommand::List(_)) {
        outside_runs(host.state_dir())?;
    }
    let mut gateway = GatewayClient::connect(state, &host)?;
    match command {
        DevicesCommand::List(arguments) => {
            let known = gateway.request_json(&DevicePairList::default())?;
            if arguments.json {
                output::print_json(&known);
            } else {
                list(state, &read_result::<DevicePairList>(known)?);
            }
        }
        DevicesCommand::Approve(arguments) => {
            let request_id = waiting(&mut gateway, &arguments.id)?;
            let params = DevicePairApprove { request_id };
            perform(&mut gateway, &params, arguments.json, |answer| {
                format!("device {} may connect", one_line(&answer.device.device_id))
            })?;
        }
        DevicesCommand::Reject(arguments) => {
            let request_id = waiting(&mut gateway, &arguments.id)?;
            let params = DevicePairReject { request_id };
            perform(&mut gateway, &params, arguments.json, |answer| {
                format!("device {} was turned away", one_line(&answer.device_id))
            })?;
        }
        DevicesCommand::Remove(arguments) => {
            let device_id = find(&mut gateway, &arguments.device)?;
            let params = DevicePairRemove { device_id };
            perform(&mut gateway, &params, arguments.json, |answer| {
                format!("device {} is forgotten", one_line(&answer.device_id))
            })?;
        }
        DevicesCommand::Rotate(arguments) => {
            let params = DeviceTokenRotate {
                device_id: find(&mut gateway, &arguments.device)?,
                role: arguments.role.clone(),
                scopes: None,
            };
            let answer = gateway.request_json(&params)?;
            if arguments.json {
                output::print_json(&answer);
            } else {
                let answer = read_result::<DeviceTokenRotate>(answer)?;
                output::print(&format!("{}\n", one_line(answer.token.expose())));
                output::note("interlock: kept nowhere, so keep it; the old token is worth nothing");
            }
        }
        DevicesCommand::Revoke(arguments) => {
            let params = DeviceTokenRevoke {
                device_id: find(&mut gateway, &arguments.device)?,
                role: arguments.role.clone(),
            };
            perform(&mut gateway, &params, arguments.json, |_| {
                "the token is worth nothing now".to_owned()
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Calls a method and prints what it did, in words or as the JSON answer of the gateway.
pub(super) fn perform<P: Params>(
    gateway: &mut GatewayClient,
    params: &P,
    json: bool,
    describe: impl FnOnce(&P::Answer) -> String,
) -> Result<(), Failure> {
    let answer = gateway.request_json(params)?;
    if json {
        output::print_json(&answer);
    } else {
        let text = describe(&read_result::<P>(answer)?);
        output::print(&format!("{text}\n"));
    }
    Ok(())
}

fn list(state: &StateArguments, known: &DevicePairListing) {
    let mut rows = Vec::new();
    for device in &known.paired {
        let roles: Vec<String> = device.roles.iter().map(|role| one_line(role)).collect();
        rows.push(vec![
            short_id(&device.device_id),
            one_line_or_empty(device.display_name.as_deref()),
            one_line_or_empty(device.platform.as_deref()),
            roles.join(", "),
        ]);
    }
    for request in &known.pending {
        let id = short_id(&request.request_id);
        let approve = state.in_command(&format!("interlock devices approve {id}"));
        rows.push(vec![
            short_id(&request.device_id),
            one_line_or_empty(request.display_name.as_deref()),
            one_line_or_empty(request.platform.as_deref()),
            match &request.words {
                Some(words) => format!("shows \"{}\", waits: {approve}", one_line(words)),
                None => format!("waits as {}: {approve}", one_line(&request.role)),
            },
        ]);
    }
    if rows.is_empty() {
        output::note("no devices; new machines and browsers are listed here when they connect");
    }
    output::print(&output::table(&rows, ""));
}

/// The id of a paired device.
fn find(gateway: &mut GatewayClient, asked: &str) -> Result<String, Failure> {
    let known = gateway.request(&DevicePairList::default())?;
    Ok(pick(&known.paired, asked, "device")?.device_id.clone())
}

/// The id of a pending request.
fn waiting(gateway: &mut GatewayClient, asked: &str) -> Result<String, Failure> {
    let known = gateway.request(&DevicePairList::default())?;
    Ok(pick(&known.pending, asked, "request")?.request_id.clone())
}

/// A row that an operator can name by an id or by its name.
pub(super) trait NamedRow {
    fn ids(&self) -> Vec<&str>;
    fn name(&self) -> Option<&str>;
}

impl NamedRow for PairedDeviceEntry {
    fn ids(&self) -> Vec<&str> {
        vec![&self.device_id]
    }

    fn name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }
}

impl NamedRow for DevicePairRequested {
    fn ids(&self) -> Vec<&str> {
        vec![&self.request_id, &self.device_id]
    }

    fn name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }
}

impl NamedRow for NodePairRequested {
    fn ids(&self) -> Vec<&str> {
        vec![&self.request_id, &self.node_id]
    }

    fn name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }
}

/// Finds a row by a full id, by its name, or by the beginning of an id, in this order.
pub(super) fn pick<'a, R: NamedRow>(
    rows: &'a [R],
    asked: &str,
    what: &str,
) -> Result<&'a R, Failure> {
    let ways: [&dyn Fn(&R) -> bool; 3] = [
        &|row| row.ids().contains(&asked),
        &|row| row.name() == Some(asked),
        &|row| asked.len() >= 4 && row.ids().iter().any(|id| id.starts_with(asked)),
    ];
    for way in ways {
        let found: Vec<&R> = rows.iter().filter(|row| way(row)).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one),
            _ => {
                let message = format!("`{}` is more than one {what}", line(asked));
                return Err(Failure::refused("AMBIGUOUS", message));
            }
        }
    }
    let message = format!("there is no {what} `{}`", line(asked));
    Err(Failure::refused("NOT_FOUND", message)
        .with_hint("list them: interlock devices list, interlock nodes status"))
}

/// Formats untrusted text on one line, without control characters.
pub(super) fn one_line(text: &str) -> String {
    line(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Like [`one_line`], for a text that may be missing.
pub(super) fn one_line_or_empty(text: Option<&str>) -> String {
    text.map(one_line).unwrap_or_default()
}

/// The beginning of an id, long enough to name it.
pub(super) fn short_id(id: &str) -> String {
    one_line(id).chars().take(12).collect()
}
