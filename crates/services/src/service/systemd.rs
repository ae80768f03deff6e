//! Writes the unit of a service for systemd, and calls `systemctl`.

use std::fmt::Write as _;

use super::manager::{ManagerStep, ManagerWork, ServiceScope};
use super::{
    DO_NOT_RESTART, RESTART_SECONDS, ServiceDefinition, ServiceKind, Unwritable, marker, text,
};

/// Characters that systemd allows in arguments but not in the path of the program.
const FORBIDDEN_IN_PROGRAM: [char; 3] = ['"', '\'', '\\'];

/// The unit of a service.
///
/// Runs must survive a stop or restart of the gateway. They belong to the supervisor, which leaves
/// the control group of the service if it may. If it may not, `KillMode=process` keeps systemd from
/// killing the runs in that group. `Delegate` lets the control groups of runs have limits there.
pub fn unit(service: &ServiceDefinition, scope: ServiceScope) -> Result<String, Unwritable> {
    let program = text(&service.program)?;
    if program.contains(FORBIDDEN_IN_PROGRAM) {
        return Err(Unwritable {
            what: program.to_owned(),
            why: "systemd starts no program whose path has quotes or backslashes",
        });
    }
    let mut command = format!(":{}", quoted(program));
    for argument in &service.arguments {
        command.push(' ');
        command.push_str(&quoted(text(argument)?));
    }
    let mut environment = String::new();
    for (name, value) in &service.environment {
        let value = text(value)?;
        let _ = writeln!(
            environment,
            "Environment={}",
            quoted(&format!("{name}={value}"))
        );
    }
    let (after, wanted_by) = match scope {
        // The companion lives as long as the desktop session.
        _ if service.kind == ServiceKind::Companion => (
            "After=graphical-session.target\nPartOf=graphical-session.target\n",
            "graphical-session.target",
        ),
        ServiceScope::System => (
            "After=network-online.target\nWants=network-online.target\n",
            "multi-user.target",
        ),
        // A user's systemd has no unit for the network.
        ServiceScope::User => ("", "default.target"),
    };
    Ok(format!(
        "# {marker}\n\
         # Settings of your own belong into a drop-in, see systemctl(1), edit.\n\
         [Unit]\n\
         Description=Interlock {kind} ({state_dir})\n\
         {after}\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=exec\n\
         ExecStart={command}\n\
         {environment}\
         UMask=0077\n\
         Restart=on-failure\n\
         RestartSec={RESTART_SECONDS}\n\
         RestartPreventExitStatus={DO_NOT_RESTART}\n\
         KillMode=process\n\
         Delegate=yes\n\
         TimeoutStopSec=30\n\
         \n\
         [Install]\n\
         WantedBy={wanted_by}\n",
        marker = marker(service.kind),
        kind = service.kind,
        state_dir = text(&service.state_dir)?.replace('%', "%%"),
    ))
}

/// Quotes one word of a setting. `$` needs no escape: the colon before the command turns off
/// variable expansion, and `Environment` expands none.
fn quoted(word: &str) -> String {
    let mut out = String::from("\"");
    for character in word.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '%' => out.push_str("%%"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

pub fn file_name(name: &str) -> String {
    format!("{name}.service")
}

/// The commands for each operation.
pub fn steps(work: ManagerWork, scope: ServiceScope, name: &str) -> Vec<ManagerStep> {
    let unit = file_name(name);
    let call = |words: &[&str]| {
        let manager: &[&str] = match scope {
            ServiceScope::System => &["systemctl"],
            ServiceScope::User => &["systemctl", "--user"],
        };
        ManagerStep::new(manager.iter().chain(words).copied())
    };
    match work {
        ManagerWork::Ask => vec![call(&["show", "--property=Version"])],
        ManagerWork::IsActive => vec![call(&["is-active", "--quiet", &unit])],
        ManagerWork::Load => vec![call(&["daemon-reload"]), call(&["enable", &unit])],
        ManagerWork::Start => vec![call(&["start", &unit])],
        ManagerWork::Stop => vec![call(&["stop", &unit])],
        ManagerWork::Restart => vec![call(&["restart", &unit])],
        ManagerWork::Unload => vec![call(&["disable", "--now", &unit])],
        // `reset-failed` fails for a unit that never failed.
        ManagerWork::Forget => vec![
            call(&["daemon-reload"]),
            call(&["reset-failed", &unit]).allowed_to_fail(),
        ],
    }
}
