//! `interlock sandbox setup`: if AppArmor keeps programs from making user namespaces, writes a
//! profile that lets Interlock make them. It changes no setting for other programs.

use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use interlock_arguments::SandboxSetupArguments;
use interlock_console::{CommandOutcome, Failure, output};

/// The file that says whether AppArmor is active.
const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";

/// The file that says whether AppArmor keeps programs without a profile from making user
/// namespaces.
const RESTRICTS: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

const PROFILE: &str = "/etc/apparmor.d/interlock";

const NEW_PROFILE: &str = "/etc/apparmor.d/.interlock.new";

/// The first line of the profile, by which this command recognizes its own file.
const MARK: &str = "# Written by `interlock sandbox setup`.";

/// The name of the profile.
const PROFILE_NAME: &str = "interlock";

/// The programs that load profiles. They have fixed paths: this command runs as root and must not
/// search a PATH.
const PARSERS: [&str; 2] = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"];

pub(super) fn run(arguments: &SandboxSetupArguments) -> CommandOutcome {
    let program = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .map_err(|error| {
            refused(format!(
                "the program of Interlock is not to be found: {error}"
            ))
        })?;
    let text = profile(&program)?;
    if arguments.print {
        output::print(&text);
        return Ok(ExitCode::SUCCESS);
    }
    let is_active = std::fs::read_to_string(ENABLED).is_ok_and(|word| word.trim() == "Y");
    if !is_active {
        output::print("AppArmor is not active on this machine: nothing is to be done\n");
        return Ok(ExitCode::SUCCESS);
    }
    let restricts = std::fs::read_to_string(RESTRICTS).is_ok_and(|word| word.trim() != "0");
    if !restricts {
        output::print("AppArmor does not restrict user namespaces here: nothing is to be done\n");
        return Ok(ExitCode::SUCCESS);
    }
    if !rustix::process::geteuid().is_root() {
        let failure = refused(format!("only root can write {PROFILE}"));
        return Err(failure.with_hint("sudo interlock sandbox setup"));
    }
    check_program(&program)?;
    check_existing()?;
    write(&text).map_err(|error| refused(format!("{PROFILE} cannot be written: {error}")))?;
    load()?;
    output::print(&format!(
        "wrote {PROFILE} and loaded it: {} may make user namespaces\n",
        program.display()
    ));
    output::note("hint: interlock doctor");
    Ok(ExitCode::SUCCESS)
}

fn refused(message: String) -> Failure {
    Failure::refused("SANDBOX_SETUP", message)
}

/// The text of the profile. It confines nothing; it only gives this program the right to make user
/// namespaces.
fn profile(program: &Path) -> Result<String, Failure> {
    let path = program.to_str().filter(|path| {
        // Other characters have a meaning in a profile.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
        path.bytes().all(is_plain)
    });
    let path = path.ok_or_else(|| {
        let message = format!(
            "the path of the program has characters that a profile cannot name: {}",
            program.display()
        );
        refused(message).with_hint("install Interlock as /usr/local/bin/interlock")
    })?;
    Ok(format!(
        "{MARK}\n# It lets Interlock make the user namespaces of sandboxes, and confines nothing.\n\
         abi <abi/4.0>,\n\ninclude <tunables/global>\n\n\
         profile {PROFILE_NAME} {path} flags=(unconfined) {{\n  userns,\n\n  include if exists <local/interlock>\n}}\n"
    ))
}

/// Refuses a program whose path accounts other than root can change. A profile gives its rights to
/// any file at that path, so every such account would get them.
fn check_program(program: &Path) -> Result<(), Failure> {
    for path in program.ancestors() {
        let found = std::fs::symlink_metadata(path)
            .map_err(|error| refused(format!("{}: {error}", path.display())))?;
        if found.uid() != 0 || found.mode() & 0o022 != 0 {
            let message = format!(
                "{} can be changed by others than root, and with it what may make user namespaces",
                path.display()
            );
            let hint = format!(
                "sudo install -m 755 {} /usr/local/bin/interlock && sudo /usr/local/bin/interlock sandbox setup",
                program.display()
            );
            return Err(refused(message).with_hint(hint));
        }
    }
    Ok(())
}

/// Refuses to replace a profile that this command did not write.
fn check_existing() -> Result<(), Failure> {
    match std::fs::read_to_string(PROFILE) {
        Ok(text) if !text.starts_with(MARK) => {
            let message = format!("{PROFILE} exists and was not written by this command");
            let hint = "add what `interlock sandbox setup --print` shows to it";
            Err(refused(message).with_hint(hint))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(refused(format!("{PROFILE} cannot be read: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes the profile completely or not at all.
fn write(text: &str) -> io::Result<()> {
    // Remove the file of an interrupted call.
    let _ = std::fs::remove_file(NEW_PROFILE);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(NEW_PROFILE)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(NEW_PROFILE, PROFILE)
}

fn load() -> Result<(), Failure> {
    let parser = PARSERS
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    let parser = parser.ok_or_else(|| {
        let message =
            format!("{PROFILE} is written, but apparmor_parser, which loads it, is not installed");
        refused(message).with_hint("install the package `apparmor`, or restart the machine")
    })?;
    let ended = Command::new(&parser)
        .args(["--replace", PROFILE])
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| refused(format!("{}: {error}", parser.display())))?;
    if ended.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&ended.stderr);
    Err(refused(format!(
        "{PROFILE} is written, but could not be loaded: {}",
        output::line(stderr.trim())
    )))
}
