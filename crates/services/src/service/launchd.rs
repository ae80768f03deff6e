//! Writes the property list of a service for launchd, and calls `launchctl`.

use std::fmt::Write as _;
use std::path::Path;

use super::manager::{ManagerStep, ManagerWork, ServiceScope};
use super::{RESTART_SECONDS, ServiceDefinition, Unwritable, marker, text};

/// The property list of a service. `AbandonProcessGroup` keeps runs alive when the service stops.
/// launchd has no setting for exit codes after which a service must not restart.
pub fn property_list(service: &ServiceDefinition) -> Result<String, Unwritable> {
    let mut arguments = String::new();
    for argument in std::iter::once(service.program.as_os_str())
        .chain(service.arguments.iter().map(AsRef::as_ref))
    {
        let _ = writeln!(
            arguments,
            "    <string>{}</string>",
            escaped(text(argument)?)
        );
    }
    let mut environment = String::new();
    for (name, value) in &service.environment {
        let value = escaped(text(value)?);
        let _ = writeln!(environment, "    <key>{name}</key><string>{value}</string>");
    }
    let log = service.state_dir.join(format!("{}.log", service.kind));
    let log = escaped(text(&log)?);
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <!-- {marker} -->\n\
         <plist version=\"1.0\">\n\
         <dict>\n\
         \x20 <key>Label</key><string>{label}</string>\n\
         \x20 <key>ProgramArguments</key>\n  <array>\n{arguments}  </array>\n\
         \x20 <key>EnvironmentVariables</key>\n  <dict>\n{environment}  </dict>\n\
         \x20 <key>RunAtLoad</key><true/>\n\
         \x20 <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>\n\
         \x20 <key>ThrottleInterval</key><integer>{RESTART_SECONDS}</integer>\n\
         \x20 <key>AbandonProcessGroup</key><true/>\n\
         \x20 <key>Umask</key><integer>63</integer>\n\
         \x20 <key>StandardOutPath</key><string>{log}</string>\n\
         \x20 <key>StandardErrorPath</key><string>{log}</string>\n\
         </dict>\n\
         </plist>\n",
        marker = marker(service.kind),
        label = label(&service.name),
    ))
}

fn escaped(word: &str) -> String {
    word.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn label(name: &str) -> String {
    format!("dev.interlock.{name}")
}

pub fn file_name(name: &str) -> String {
    format!("{}.plist", label(name))
}

/// The commands for each operation. launchd starts a service when it loads it.
pub fn steps(
    work: ManagerWork,
    scope: ServiceScope,
    user: u32,
    name: &str,
    file: &Path,
) -> Vec<ManagerStep> {
    let domain = match scope {
        ServiceScope::System => "system".to_owned(),
        ServiceScope::User => format!("gui/{user}"),
    };
    let service = format!("{domain}/{}", label(name));
    let file = file.to_string_lossy();
    let call = |words: &[&str]| {
        ManagerStep::new(std::iter::once("launchctl").chain(words.iter().copied()))
    };
    let bootstrap = || call(&["bootstrap", &domain, &file]);
    let bootout = || call(&["bootout", &service]);
    match work {
        ManagerWork::Ask => vec![call(&["print", &domain])],
        ManagerWork::IsActive => vec![call(&["print", &service])],
        ManagerWork::Load => vec![call(&["enable", &service])],
        // `bootstrap` fails if the service is already loaded. `kickstart` then starts it.
        ManagerWork::Start => vec![
            bootstrap().allowed_to_fail(),
            call(&["kickstart", &service]),
        ],
        ManagerWork::Stop => vec![bootout()],
        ManagerWork::Restart => vec![bootout().allowed_to_fail(), bootstrap()],
        ManagerWork::Unload => vec![bootout().allowed_to_fail()],
        ManagerWork::Forget => Vec::new(),
    }
}
