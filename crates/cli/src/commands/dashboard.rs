//! `interlock dashboard`: opens the pages of the gateway in a browser, and pairs that browser.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use interlock_arguments::{DashboardArguments, StateArguments};
use interlock_client::{GatewayClient, open, outside_runs};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::LocalHost;
use interlock_wire::params::{UiCode, UiPhone};
use interlock_wire::results::{UiCodeMinted, UiPhoneInvited};
use serde_json::json;

/// The file that redirects the browser to the page. It contains the code, which must not appear in
/// the arguments of a process.
const REDIRECT: &str = "dashboard.html";

pub fn run(state: &StateArguments, arguments: &DashboardArguments) -> CommandOutcome {
    let host = open(state)?;
    outside_runs(host.state_dir())?;
    if arguments.qr {
        let mut gateway = GatewayClient::connect(state, &host)?;
        let invited = gateway.request(&UiPhone::default())?;
        invite(&invited, arguments.json);
        return Ok(ExitCode::SUCCESS);
    }
    let minted = mint(state, &host)?;
    if arguments.json {
        output::print_json(
            &json!({ "url": address(&minted), "expiresAtMs": minted.expires_at_ms }),
        );
        return Ok(ExitCode::SUCCESS);
    }
    let opener = opener().filter(|_| !arguments.no_open);
    let is_open = match opener {
        Some(program) => open_browser(&program, host.state_dir(), &minted)?,
        None => false,
    };
    if is_open {
        output::note(&format!("interlock: opening {} in a browser", minted.url));
    } else {
        output::print(&format!("{}\n", address(&minted)));
        output::note(
            "interlock: open this address on this machine within a minute; it is good once",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens one approval in the user's browser, for desktop notifications. The id must be that of a
/// stored approval.
pub fn open_approval(state: &StateArguments, host: &LocalHost, id: &str) -> Result<(), Failure> {
    open_page(state, host, &format!("/approve/{id}"))
}

/// Opens the list of pending approvals in the user's browser.
pub fn open_inbox(state: &StateArguments, host: &LocalHost) -> Result<(), Failure> {
    open_page(state, host, "/inbox")
}

fn open_page(state: &StateArguments, host: &LocalHost, page: &str) -> Result<(), Failure> {
    let no_browser = || {
        Failure::refused("BROWSER_UNAVAILABLE", "no browser can be opened here")
            .with_hint("interlock dashboard --no-open")
    };
    let opener = opener().ok_or_else(no_browser)?;
    let mut minted = mint(state, host)?;
    minted.url = format!("{}{page}", minted.url.trim_end_matches('/'));
    if open_browser(&opener, host.state_dir(), &minted)? {
        Ok(())
    } else {
        Err(no_browser())
    }
}

/// Mints a code that pairs a browser of this machine once.
fn mint(state: &StateArguments, host: &LocalHost) -> Result<UiCodeMinted, Failure> {
    let minted = GatewayClient::connect(state, host)?.request(&UiCode::default())?;
    if minted.url.is_empty() {
        let message = "the gateway does not say where its pages are";
        return Err(Failure::refused("DASHBOARD_UNAVAILABLE", message));
    }
    Ok(minted)
}

/// Prints the address with which a phone pairs, as a QR code or as JSON.
fn invite(invited: &UiPhoneInvited, is_json: bool) {
    let address = format!("{}#pair={}", invited.url, invited.code.expose());
    if is_json {
        output::print_json(&json!({
            "url": address,
            "expiresAtMs": invited.expires_at_ms,
            "authorityFingerprint": invited.authority_fingerprint,
        }));
        return;
    }
    let lines = interlock_web::qr_lines(&address).unwrap_or_default();
    output::print(&format!("{}\n{address}\n", lines.join("\n")));
    if let Some(fingerprint) = &invited.authority_fingerprint {
        let base = invited.url.split('/').take(3).collect::<Vec<_>>().join("/");
        output::note(&format!(
            "interlock: a phone that does not trust the address installs its authority first: {base}/ca.crt\n\
             interlock: SHA-256 of that: {fingerprint}"
        ));
    }
    output::note(
        "interlock: scan it within 5 minutes; then compare the words and let the phone in: \
         interlock devices list, interlock devices approve ID",
    );
}

/// The address of the page with the code in the fragment, which browsers do not send to servers.
fn address(minted: &UiCodeMinted) -> String {
    format!("{}#code={}", minted.url, minted.code.expose())
}

/// The program that opens files in the user's browser, if there is a display.
fn opener() -> Option<PathBuf> {
    let name = if cfg!(target_os = "macos") {
        "open"
    } else {
        let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        has_screen.then_some("xdg-open")?
    };
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).map(|directory| directory.join(name));
    found.find(|file| file.is_absolute() && file.is_file())
}

fn open_browser(program: &Path, state_dir: &Path, minted: &UiCodeMinted) -> Result<bool, Failure> {
    let path = state_dir.join(REDIRECT);
    let failed = |error: std::io::Error| {
        Failure::refused(
            "DASHBOARD_UNAVAILABLE",
            format!("{}: {error}", path.display()),
        )
        .with_hint("interlock dashboard --no-open")
    };
    // Another user may have the old file open, so a new one is created.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&path);
    // The address has only characters without a meaning in HTML, so it needs no escapes.
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\"><meta http-equiv=\"refresh\" content=\"0; url={}\"><title>Interlock</title>\n",
        address(minted)
    );
    let mut file = file.map_err(failed)?;
    file.write_all(page.as_bytes()).map_err(failed)?;
    let started = Command::new(program)
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Ok(started.is_ok())
}
