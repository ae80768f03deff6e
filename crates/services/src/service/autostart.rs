//! Installs the companion as an autostart entry of the desktop, for sessions that systemd does not
//! manage.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use interlock_arguments::{ServiceArguments, ServiceInstallArguments, StateArguments};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::LocalHost;
use serde_json::json;

use super::files::{FoundUnit, remove, write};
use super::{ServiceDefinition, ServiceKind, Unwritable, check_program, marker, name, text};

const KIND: ServiceKind = ServiceKind::Companion;

/// Writes the entry. The next desktop session reads it.
pub fn install_autostart(
    state: &StateArguments,
    service: &ServiceDefinition,
    arguments: &ServiceInstallArguments,
) -> CommandOutcome {
    if arguments.no_start {
        return Err(Failure::usage(
            "FLAG_WITHOUT_EFFECT",
            "--no-start has no effect with --autostart, which starts nothing now",
        ));
    }
    let text = entry(service)?;
    if arguments.print {
        output::print(&text);
        return Ok(ExitCode::SUCCESS);
    }
    interlock_client::outside_runs(&service.state_dir)?;
    check_program(state, service)?;
    let file = file(&service.name, arguments.service.unit_dir.as_deref())?;
    let before = FoundUnit::at(&file, KIND)?;
    if matches!(before, FoundUnit::Foreign) && !arguments.force {
        let message = format!("{} was not written by interlock", file.display());
        return Err(Failure::refused("SERVICE_FILE_FOREIGN", message)
            .with_hint("look at it; --force replaces it"));
    }
    write(&file, &text, 0o644)?;
    print_file("wrote", &file, arguments.service.json);
    output::note(&format!(
        "hint: it starts with the next desktop session; in this one: {}",
        state.in_command("interlock companion")
    ));
    Ok(ExitCode::SUCCESS)
}

/// Removes the entry. Returns whether there was one.
pub fn uninstall_autostart(
    host: &LocalHost,
    arguments: &ServiceArguments,
) -> Result<bool, Failure> {
    interlock_client::outside_runs(host.state_dir())?;
    let name = name(KIND, host.state_dir());
    let file = file(&name, arguments.unit_dir.as_deref())?;
    let is_there = matches!(FoundUnit::at(&file, KIND)?, FoundUnit::Interlock(_));
    if is_there {
        remove(&file)?;
        print_file("removed", &file, arguments.json);
    }
    Ok(is_there)
}

fn print_file(what: &str, file: &Path, is_json: bool) {
    let file = file.display().to_string();
    if is_json {
        output::print_json(&json!({ "file": file, what: [file] }));
    } else {
        output::print(&format!("{what:<8}{}\n", output::visible(&file)));
    }
}

fn file(name: &str, directory: Option<&Path>) -> Result<PathBuf, Failure> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let usual = || {
        let config = absolute("XDG_CONFIG_HOME");
        let config = config.or_else(|| absolute("HOME").map(|home| home.join(".config")));
        config.map(|config| config.join("autostart"))
    };
    let directory = directory.map(Path::to_owned).or_else(usual);
    let unknown = || Failure::refused("HOME_UNKNOWN", "HOME is not set to an absolute path");
    Ok(directory
        .ok_or_else(unknown)?
        .join(format!("{name}.desktop")))
}

/// The text of the entry. Desktops unescape `Exec` twice: first as a string, then as quoted words.
pub(super) fn entry(service: &ServiceDefinition) -> Result<String, Unwritable> {
    let mut command = quoted(text(&service.program)?);
    for argument in &service.arguments {
        command.push(' ');
        command.push_str(&quoted(text(argument)?));
    }
    Ok(format!(
        "# {marker}\n\
         [Desktop Entry]\n\
         Type=Application\n\
         Name=Interlock companion\n\
         Comment=Shows approvals as notifications\n\
         Exec={command}\n\
         NoDisplay=true\n\
         X-GNOME-Autostart-enabled=true\n",
        marker = marker(KIND),
    ))
}

/// Quotes one word of `Exec`: special characters are escaped and `%` is doubled. Every backslash is
/// doubled again, because the string level unescapes it first.
fn quoted(word: &str) -> String {
    let mut out = String::from("\"");
    for character in word.chars() {
        match character {
            '"' | '`' | '$' => out.extend(['\\', '\\', character]),
            '\\' => out.push_str(r"\\\\"),
            '%' => out.push_str("%%"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
