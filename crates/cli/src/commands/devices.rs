//! `interlock devices`: who may connect to the gateway.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{CommandOutcome, open, outside_runs};
use crate::args::{DevicesCommand, DevicesTokenArguments, StateArguments};
use crate::failure::Failure;
use crate::gateway_client::GatewayClient;
use crate::output::{self, line};

pub fn run(state: &StateArguments, command: &DevicesCommand) -> CommandOutcome {
    let host = open(state)?;
    if !matches!(command, DevicesCommand::List(_)) {
        outside_runs(host.state_dir())?;
    }
    let mut gateway = GatewayClient::connect(state, &host)?;
    let known = gateway.call("device.pair.list", &json!({}))?;
    match command {
        DevicesCommand::List(arguments) => {
            list(state, &known, arguments.json);
        }
        DevicesCommand::Approve(arguments) => {
            let request = waiting(&known, &arguments.id)?;
            let params = json!({ "requestId": request["requestId"] });
            let answer = gateway.call("device.pair.approve", &params)?;
            let device = text(&answer["device"]["deviceId"]);
            done(
                arguments.json,
                &answer,
                &format!("device {device} may connect"),
            );
        }
        DevicesCommand::Reject(arguments) => {
            let request = waiting(&known, &arguments.id)?;
            let params = json!({ "requestId": request["requestId"] });
            let answer = gateway.call("device.pair.reject", &params)?;
            let device = text(&answer["deviceId"]);
            done(
                arguments.json,
                &answer,
                &format!("device {device} was turned away"),
            );
        }
        DevicesCommand::Remove(arguments) => {
            let device = find(&known, &arguments.device)?;
            let params = json!({ "deviceId": device["deviceId"] });
            let answer = gateway.call("device.pair.remove", &params)?;
            let device = text(&answer["deviceId"]);
            done(
                arguments.json,
                &answer,
                &format!("device {device} is forgotten"),
            );
        }
        DevicesCommand::Rotate(arguments) => {
            let answer = gateway.call("device.token.rotate", &token(&known, arguments)?)?;
            if arguments.json {
                output::print_json(&answer);
            } else {
                output::print(&format!("{}\n", text(&answer["token"])));
                output::note("interlock: kept nowhere, so keep it; the old token is worth nothing");
            }
        }
        DevicesCommand::Revoke(arguments) => {
            let answer = gateway.call("device.token.revoke", &token(&known, arguments)?)?;
            done(arguments.json, &answer, "the token is worth nothing now");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn token(known: &Value, arguments: &DevicesTokenArguments) -> Result<Value, Failure> {
    let device = find(known, &arguments.device)?;
    Ok(json!({ "deviceId": device["deviceId"], "role": arguments.role }))
}

/// Says what was done: in words, or as the gateway answered.
pub(super) fn done(json: bool, answer: &Value, said: &str) {
    if json {
        output::print_json(answer);
    } else {
        output::print(&format!("{said}\n"));
    }
}

fn list(state: &StateArguments, known: &Value, json: bool) {
    if json {
        output::print_json(known);
        return;
    }
    let mut rows = Vec::new();
    for device in rows_of(&known["paired"]) {
        let roles = rows_of(&device["roles"]);
        let roles: Vec<String> = roles.iter().map(text).collect();
        rows.push(vec![
            short(&device["deviceId"]),
            text(&device["displayName"]),
            text(&device["platform"]),
            roles.join(", "),
        ]);
    }
    for request in rows_of(&known["pending"]) {
        let id = short(&request["requestId"]);
        let approve = state.in_command(&format!("interlock devices approve {id}"));
        rows.push(vec![
            short(&request["deviceId"]),
            text(&request["displayName"]),
            text(&request["platform"]),
            format!("waits as {}: {approve}", text(&request["role"])),
        ]);
    }
    if rows.is_empty() {
        output::print("no devices\n");
    } else {
        output::print(&output::table(&rows, ""));
    }
}

fn find<'a>(known: &'a Value, asked: &str) -> Result<&'a Value, Failure> {
    pick(&known["paired"], asked, &["deviceId"], "device")
}

fn waiting<'a>(known: &'a Value, asked: &str) -> Result<&'a Value, Failure> {
    pick(
        &known["pending"],
        asked,
        &["requestId", "deviceId"],
        "request",
    )
}

/// The row that is meant: by a whole id, by its name, by the beginning of an id.
pub(super) fn pick<'a>(
    rows: &'a Value,
    asked: &str,
    ids: &[&str],
    what: &str,
) -> Result<&'a Value, Failure> {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |row: &&Value, test: &dyn Fn(&str) -> bool| {
        let mut values = ids.iter().filter_map(|id| row[*id].as_str());
        values.any(test)
    };
    let ways: [&dyn Fn(&&Value) -> bool; 3] = [
        &|row| is(row, &|id| id == asked),
        &|row| {
            row["displayName"]
                .as_str()
                .is_some_and(|name| name == asked)
        },
        &|row| asked.len() >= 4 && is(row, &|id| id.starts_with(asked)),
    ];
    for way in ways {
        let found: Vec<&Value> = rows.iter().filter(|row| way(row)).collect();
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

pub(super) fn rows_of(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Text of a stranger, as a terminal may show it in one line.
pub(super) fn text(value: &Value) -> String {
    let text = value.as_str().map(line).unwrap_or_default();
    text.replace('\n', "\\n").replace('\t', "\\t")
}

/// Enough of an id to name it.
pub(super) fn short(value: &Value) -> String {
    text(value).chars().take(12).collect()
}
