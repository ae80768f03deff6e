//! The command and the environment of a sandboxed run.

use std::collections::BTreeMap;

use interlock_plan::FsResolver;
use interlock_policy::{Outcome, Verdict, env};
use interlock_programs::{Executable, Lookup, Resolver as _};
use interlock_sandbox::PreparedSandbox;

use super::{MARKS, PrepareError, RunSettings, ShellError};

/// Where the shell of a sandbox is found: in directories that every sandbox shows.
const SHELL_PATH: &str = "/bin:/usr/bin";

/// The PATH before the profile of the sandbox changes it.
pub(crate) const SANDBOX_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variable with the directories that go in front of PATH once the profile has set it. A
/// variable carries them so that no text of a caller becomes part of a command.
const PREPEND: &str = "INTERLOCK_PREPEND_PATH";

/// The shell text that puts these directories in front of PATH.
const PREPEND_TEXT: &str =
    "export PATH=\"$INTERLOCK_PREPEND_PATH${PATH:+:$PATH}\"; unset INTERLOCK_PREPEND_PATH; ";

/// The variables that a run inherits from the service's environment. None of them is secret.
const INHERITED: [&str; 7] = [
    "LANG",
    "LANGUAGE",
    "TZ",
    "USER",
    "LOGNAME",
    "TERM",
    "COLORTERM",
];

/// Variables that the account on the far side defines itself.
const FAR_NAMES: [&str; 3] = ["HOME", "USER", "LOGNAME"];

/// The shell that runs the commands of a sandbox.
pub(crate) const SANDBOX_SHELL: &str = "/bin/sh";

/// The executable of a sandbox's shell: `sh`, never the owner's own shell.
pub(super) fn sandbox_shell() -> Result<Executable, ShellError> {
    let resolver = FsResolver::from_path_value(SHELL_PATH, None);
    match resolver.executable("sh", "/") {
        Lookup::Found(shell) => Ok(shell),
        Lookup::Missing(_) => Err(ShellError),
    }
}

/// The options of the shell. A login shell reads the profile of the private home, which earlier
/// runs of the scope may have written; under `scope: shared`, runs of other agents too. Only a run
/// that may execute everything gets a login shell. A run that an entry or an approver allowed
/// executes the text that was judged and shown, and nothing before it.
pub(super) fn shell_options(verdict: &Verdict) -> Vec<String> {
    let is_everything_allowed =
        matches!(verdict.outcome, Outcome::Allow(_)) && !verdict.by_allowlist;
    if is_everything_allowed {
        vec!["-l".to_owned()]
    } else {
        Vec::new()
    }
}

/// The text that the shell runs: the command, after PATH is completed.
pub(super) fn text_inside(
    settings: &RunSettings<'_>,
    sandbox: &PreparedSandbox,
    command: &str,
) -> String {
    if prepended(settings, sandbox).is_empty() {
        command.to_owned()
    } else {
        format!("{PREPEND_TEXT}{command}")
    }
}

/// The directories in front of PATH: the call's own PATH, `tools.exec.pathPrepend`, and the tools
/// of the home directory.
fn prepended(settings: &RunSettings<'_>, sandbox: &PreparedSandbox) -> String {
    let own = settings.env.get("PATH").cloned();
    let listed = settings.path_prepend.iter().cloned();
    let tools = sandbox.tool_paths.iter().cloned();
    // The profile of an image does not know where its programs are; the image's PATH does.
    let image = sandbox.plan.container.as_ref();
    let image = image.and_then(|container| container.env.get("PATH").cloned());
    let all: Vec<String> = own
        .into_iter()
        .chain(listed)
        .chain(tools)
        .chain(image)
        .filter(|path| !path.is_empty())
        .collect();
    all.join(":")
}

/// The whole environment by the rules of sandboxes: little of the service's own, and all of the
/// call's variables. A variable that looks like a secret is refused.
pub(super) fn environment_inside(
    settings: &RunSettings<'_>,
    sandbox: &PreparedSandbox,
) -> Result<BTreeMap<String, String>, PrepareError> {
    let is_inherited = |name: &str| INHERITED.contains(&name) || name.starts_with("LC_");
    let mut base = settings.base_env.clone();
    base.retain(|name, _| is_inherited(name));
    let mut environment = env::for_sandbox(&base).allowed;
    if let Some(container) = &sandbox.plan.container {
        environment.extend(container.env.clone());
    }
    let own = env::for_sandbox(settings.env);
    if !own.blocked.is_empty() {
        let names: Vec<&str> = own.blocked.iter().map(String::as_str).collect();
        return Err(PrepareError::Environment(format!(
            "a sandbox gets no variables that look like secrets: {}",
            names.join(", ")
        )));
    }
    environment.extend(own.allowed);
    environment.insert("HOME".to_owned(), sandbox.home.clone());
    if let Some(directory) = &sandbox.temporary {
        environment.insert("TMPDIR".to_owned(), directory.clone());
    }
    environment.insert("SHELL".to_owned(), SANDBOX_SHELL.to_owned());
    environment.insert("PATH".to_owned(), SANDBOX_PATH.to_owned());
    let prepended = prepended(settings, sandbox);
    if !prepended.is_empty() {
        environment.insert(PREPEND.to_owned(), prepended);
    }
    if settings.pty.is_some() && !settings.env.contains_key("TERM") {
        environment.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    environment.extend(MARKS.map(|(key, value)| (key.to_owned(), value.to_owned())));
    environment.insert("INTERLOCK_SANDBOX".to_owned(), sandbox.plan.scope.clone());
    if sandbox.plan.ssh.is_some() {
        // The account on the far side has its own values.
        environment.retain(|name, _| !FAR_NAMES.contains(&name.as_str()));
    }
    Ok(environment)
}
