//! Sandboxes on another machine: the system's `ssh`, one connection per scope that all its runs
//! share, and a copy of the workspace there. The copy is made once, under a lock, and appears by a
//! rename. From then on the copy is authoritative, and nothing is copied back.

mod target;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interlock_config::types::Sandbox;
use interlock_engine::sandbox::{OpenedConnection, SshOrder};
use interlock_plan::{
    FsResolver, MountTable, PinnedFile, SandboxEffects, SandboxPlan, SandboxTree, SandboxUser,
    SandboxView, SshPlan, UnixSockets, WorkspaceAccess,
};
use interlock_programs::{Lookup, Resolver as _};
use rustix::fs::FlockOperation;
use sha2::{Digest as _, Sha256};

use crate::binds::check_workspace;
use crate::elsewhere::check_root;
use crate::error::SandboxError;
use crate::scope::{OpenedScope, ScopeOf, ScopeStore, short_name};
use crate::view::{PreparedSandbox, SandboxRequest, limits, real};
use target::{SshTarget, option_path};

/// Search path of the client and `tar`, with only directories that only root can write to.
const PLACES: &str = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin";

/// The directory of scopes on the far side, if the config does not set one.
const ROOT: &str = "/tmp/interlock-sandboxes";

/// Longest path of a socket, without the suffix that `ssh` adds while it makes the socket.
const MOST_CONTROL: usize = 88;

const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(10);

/// The variable by which the client finds the owner's key agent.
const AGENT: &str = "SSH_AUTH_SOCK";

const NO_OTHER_HOSTS: &str = "GlobalKnownHostsFile=/dev/null";
const NO_OTHER_KEYS: &str = "IdentitiesOnly=yes";

/// All options of the connection except those that name files. The first two are used only if such
/// a file is named.
const OPTIONS: [&str; 10] = [
    NO_OTHER_HOSTS,
    NO_OTHER_KEYS,
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "ProxyCommand=none",
    "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
];

const FILE_OPTIONS: [&str; 3] = ["UserKnownHostsFile", "IdentityFile", "CertificateFile"];

/// Succeeds if the copy of the workspace exists.
const IS_SEEDED: &str = r#"[ -d "$1/workspace" ]"#;

/// Unpacks standard input next to the final path, and renames it. Of two at once, one fails.
const SEED: &str = r#"root=$1
umask 077
mkdir -p -- "$root" || exit 125
lock=$root/.seeding
mkdir -- "$lock" 2>/dev/null || { echo "$lock is there: another copy is being made, or one was interrupted; remove it" >&2; exit 75; }
trap 'rm -rf -- "$lock"' EXIT
trap 'exit 129' HUP INT TERM
[ ! -e "$root/workspace" ] || exit 0
mkdir -- "$lock/new" && tar -x -f - -C "$lock/new" && mv -- "$lock/new" "$root/workspace""#;

/// Removes the directory of the scope.
const REMOVE: &str = r#"chmod -R u+w -- "$1" 2>/dev/null; rm -rf -- "$1""#;

/// Makes an empty workspace.
const SCRATCH: &str = r#"umask 077; mkdir -p -- "$1/workspace""#;

/// Makes the value for runs on another machine. This makes no connection.
pub(crate) fn prepare_far_sandbox(
    request: &SandboxRequest<'_>,
) -> Result<PreparedSandbox, SandboxError> {
    let settings = request.settings;
    check_far_settings(settings)?;
    if request.effects == SandboxEffects::Preview {
        return Err(SandboxError::Setting {
            key: "backend",
            value: "ssh".to_owned(),
            rule: "what a run changes on another machine cannot be previewed; send it with effects: \"direct\"".to_owned(),
        });
    }
    let look = |source| SandboxError::File {
        what: "cannot look at the workspace",
        path: request.workspace.to_owned(),
        source,
    };
    let workspace = std::fs::canonicalize(request.workspace).map_err(look)?;
    let state_dir = real(request.state_dir);
    let mut own = MountTable::read().other_paths(&state_dir);
    own.push(state_dir.clone());
    let root = settings.workspace_root.as_deref().map(|named| {
        let beside = [(workspace.as_path(), "the workspace")];
        check_root(named, &state_dir, &beside)
    });
    let root = root.transpose()?;
    own.extend(root.clone());
    check_workspace(&workspace, &own, request.home.map(Path::new))?;
    let of = ScopeOf {
        settings,
        agent: request.agent,
        session_key: request.session_key,
        workspace: &workspace,
        effects: request.effects,
        root: root.as_deref(),
    };
    let is_root = rustix::process::geteuid().is_root();
    let scope = ScopeStore::new(&state_dir).open(of, is_root)?;
    let ssh = plan_ssh(settings, &scope, request.home)?;
    let workspace = workspace.display().to_string();
    let cwd = far_directory(&workspace, &ssh, request.cwd);
    let cwd = cwd.ok_or_else(|| SandboxError::WorkingDirectory {
        path: request.cwd.to_owned(),
        shown: format!("{workspace} and /workspace"),
    })?;
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let plan = SandboxPlan {
        backend: request.backend,
        scope: scope.record.scope.clone(),
        scope_id: scope.record.id.clone(),
        scope_directory: scope.directory.display().to_string(),
        view: SandboxView::Minimal,
        workspace_access: settings.workspace_access.unwrap_or(WorkspaceAccess::None),
        workspace: workspace.clone(),
        user: SandboxUser {
            uid,
            gid,
            host_uid: uid,
            host_gid: gid,
        },
        cwd,
        mounts: Vec::new(),
        unix_sockets: UnixSockets::Own,
        network: None,
        limits: limits(settings, request.backend),
        executables: None,
        program_log: None,
        effects: SandboxEffects::Direct,
        protect: Vec::new(),
        container: None,
        ssh: Some(ssh),
    };
    Ok(PreparedSandbox {
        plan,
        host_cwd: workspace,
        home: String::new(),
        temporary: None,
        tool_paths: Vec::new(),
    })
}

/// Returns the far side of a scope.
fn plan_ssh(
    settings: &Sandbox,
    scope: &OpenedScope,
    home: Option<&str>,
) -> Result<SshPlan, SandboxError> {
    let own = &settings.ssh;
    let refused = |key, value: &str, rule: &str| SandboxError::Setting {
        key,
        value: value.to_owned(),
        rule: rule.to_owned(),
    };
    let Some(target) = &own.target else {
        let rule = "the backend `ssh` needs a target, such as `user@host:22`";
        return Err(refused("ssh.target", "", rule));
    };
    let target = SshTarget::read(target)
        .map_err(|rule| refused("ssh.target", &crate::container::one_line(target), rule))?;
    if own.strict_host_key_checking == Some(false) {
        let rule = "the key of the far side is always compared";
        return Err(refused("ssh.strictHostKeyChecking", "false", rule));
    }
    if own.update_host_keys == Some(true) {
        let rule = "Interlock never changes which keys are known";
        return Err(refused("ssh.updateHostKeys", "true", rule));
    }
    let mut options: Vec<String> = OPTIONS[2..].iter().map(|&one| one.to_owned()).collect();
    let files = [
        ("ssh.knownHostsFile", FILE_OPTIONS[0], &own.known_hosts_file),
        ("ssh.identityFile", FILE_OPTIONS[1], &own.identity_file),
        (
            "ssh.certificateFile",
            FILE_OPTIONS[2],
            &own.certificate_file,
        ),
    ];
    for (key, option, file) in files {
        let Some(file) = file else { continue };
        let path = match (file.strip_prefix('~'), home) {
            (Some(rest), Some(home)) => format!("{}{rest}", home.trim_end_matches('/')),
            _ => file.clone(),
        };
        let value = option_path(&path).map_err(|rule| refused(key, &path, rule))?;
        options.push(format!("{option}={value}"));
    }
    if own.known_hosts_file.is_some() {
        options.push(NO_OTHER_HOSTS.to_owned());
    }
    if own.identity_file.is_some() {
        options.push(NO_OTHER_KEYS.to_owned());
    }
    let root = own.workspace_root.as_deref().unwrap_or(ROOT);
    if !root.starts_with('/') || root.chars().any(char::is_control) {
        let rule = "it is an absolute path on the far side";
        return Err(refused("ssh.workspaceRoot", root, rule));
    }
    let control = scope.directory.join("c").display().to_string();
    if control.contains(['%', '$']) {
        return Err(SandboxError::Engine {
            message: format!("the client reads `%` and `$` of {control} as something else"),
            remedy: "use a state directory with another path: --state-dir".to_owned(),
        });
    }
    if control.len() > MOST_CONTROL {
        return Err(SandboxError::Engine {
            message: format!("{control} is too long for a socket"),
            remedy: "use a state directory with a shorter path: --state-dir".to_owned(),
        });
    }
    let agent = std::env::var(AGENT).ok();
    let client_env = agent
        .map(|agent| (AGENT.to_owned(), agent))
        .into_iter()
        .collect();
    Ok(SshPlan {
        client: system_program("ssh", "openssh-client")?,
        host: target.host,
        user: target.user,
        port: target.port,
        options,
        control,
        root: format!(
            "{}/{}",
            root.trim_end_matches('/'),
            far_name(&scope.directory)
        ),
        client_env,
    })
}

/// Returns the name of a scope on the far side, which is unique because that machine may serve
/// others too.
fn far_name(directory: &Path) -> String {
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(b"interlock far scope v1\0");
    for part in [directory.as_os_str().as_encoded_bytes(), &machine, &host] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(part);
    }
    short_name(&hash.finalize(), 16)
}

fn system_program(name: &str, package: &str) -> Result<PinnedFile, SandboxError> {
    let missing = |why: String| SandboxError::Engine {
        message: format!("`{name}`: {why}"),
        remedy: format!("install the package `{package}`"),
    };
    match FsResolver::from_path_value(PLACES, None).executable(name, "/") {
        Lookup::Found(program) => {
            PinnedFile::of(&program).map_err(|error| missing(error.to_string()))
        }
        Lookup::Missing(why) => Err(missing(why.to_string())),
    }
}

/// Refuses settings that a run over ssh cannot have.
fn check_far_settings(settings: &Sandbox) -> Result<(), SandboxError> {
    let refused = |key, value: &str, rule: &str| {
        Err(SandboxError::Setting {
            key,
            value: value.to_owned(),
            rule: rule.to_owned(),
        })
    };
    let access = settings.workspace_access.unwrap_or(WorkspaceAccess::None);
    if matches!(access, WorkspaceAccess::Ro | WorkspaceAccess::Cow) {
        let rule = "over ssh there is `rw`, a copy of the workspace, and `none`, an empty one";
        return refused("workspaceAccess", access.as_str(), rule);
    }
    if settings.view == Some(SandboxView::Host) {
        return refused(
            "view",
            "host",
            "a run over ssh sees the far side, and not this host",
        );
    }
    if let Some(tree @ (SandboxTree::Enforce | SandboxTree::Log)) = settings.tree {
        return refused("tree", tree.as_str(), "nothing on the far side holds it");
    }
    let network = &settings.network;
    let has_rules = network.allow.is_some() || network.deny.is_some() || network.ask == Some(true);
    if has_rules || network.unix_sockets == Some(UnixSockets::None) {
        return refused(
            "network",
            "",
            "the network of the far side is not Interlock's to confine",
        );
    }
    if settings
        .binds
        .as_ref()
        .is_some_and(|binds| !binds.is_empty())
    {
        return refused("binds", "", "no directory of this host is shown over ssh");
    }
    if settings
        .protect
        .as_ref()
        .is_some_and(|paths| !paths.is_empty())
    {
        return refused("protect", "", "nothing on the far side holds it");
    }
    let limits = &settings.limits;
    if limits.memory.is_some()
        || limits.cpus.is_some()
        || limits.pids.is_some()
        || limits.tmp.is_some()
    {
        let rule = "over ssh there are the limits `timeout` and `outputBytes`";
        return refused("limits", "", rule);
    }
    Ok(())
}

/// Returns the working directory on the far side, by its name on this host or there.
fn far_directory(workspace: &str, ssh: &SshPlan, cwd: &str) -> Option<String> {
    let below = |directory: &str| {
        let rest = cwd.strip_prefix(directory.trim_end_matches('/'))?;
        let is_plain = rest.is_empty() || rest.starts_with('/');
        let leaves = rest.split('/').any(|part| part == "..");
        (is_plain && !leaves).then(|| format!("{}{rest}", ssh.workspace()))
    };
    below("/workspace")
        .or_else(|| below(workspace))
        .or_else(|| below(&ssh.workspace()))
}

/// Opens the connection of a scope, and makes the copy of its workspace if there is none. The
/// keeper of the scope calls this, and holds the connection.
pub fn open_connection(order: &SshOrder) -> Result<OpenedConnection, String> {
    let failed = |error: io::Error| format!("the connection of its scope: {error}");
    check_order(order)?;
    let lock = Path::new(&order.scope_directory).join("ssh.lock");
    let lock = File::create(lock).map_err(failed)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|error| failed(error.into()))?;
    let _ = std::fs::remove_file(&order.plan.control);
    let mut master = client(order, &order.plan.master_arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let opened = wait_for_master(order, &mut master).and_then(|()| {
        // The record comes before anything is made there, because the far side is removed by it.
        let record = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        std::fs::write(record_path(&order.scope_directory), record)
            .map_err(|error| error.to_string())?;
        seed(order)
    });
    if let Err(why) = opened {
        let _ = master.kill();
        let _ = master.wait();
        return Err(why);
    }
    Ok(OpenedConnection { master })
}

/// Checks an order. The keeper starts what its order names before the run is authorized, so the
/// order must name nothing that could be another program, or make the client start one.
fn check_order(order: &SshOrder) -> Result<(), String> {
    let plan = &order.plan;
    let client = system_program("ssh", "openssh-client").map_err(|error| error.to_string())?;
    let is_known = |option: &String| {
        OPTIONS.contains(&option.as_str())
            || option.split_once('=').is_some_and(|(name, value)| {
                let inner = value
                    .strip_prefix('"')
                    .and_then(|rest| rest.strip_suffix('"'));
                FILE_OPTIONS.contains(&name)
                    && inner.is_some_and(|inner| option_path(inner).is_ok())
            })
    };
    let fault = if client.canonical != plan.client.canonical {
        "another client"
    } else if !SshTarget::fits(&plan.host, plan.user.as_deref()) {
        "no host"
    } else if !plan.options.iter().all(is_known) {
        "an option that is not Interlock's"
    } else if plan.client_env.keys().any(|name| name != AGENT) {
        "a variable that is not Interlock's"
    } else if !plan
        .control
        .starts_with(&format!("{}/c", order.scope_directory))
        || plan.control.contains(['%', '$'])
    {
        "another socket"
    } else {
        return Ok(());
    };
    Err(format!("the order of the connection names {fault}"))
}

fn record_path(directory: impl AsRef<Path>) -> PathBuf {
    directory.as_ref().join("far.json")
}

/// Whether a scope is on another machine, where its workspace is authoritative.
pub(crate) fn is_far(directory: &Path) -> bool {
    record_path(directory).exists()
}

/// Removes what a scope has on another machine, if anything.
pub(crate) fn remove_far_side(directory: &Path) -> io::Result<()> {
    let Ok(record) = std::fs::read(record_path(directory)) else {
        return Ok(());
    };
    let order: SshOrder = serde_json::from_slice(&record)?;
    let _ = std::fs::remove_file(&order.plan.control);
    let mut master = client(&order, &order.plan.master_arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let removed = wait_for_master(&order, &mut master)
        .and_then(|()| run_script(&order, REMOVE, Stdio::null()));
    let _ = master.kill();
    let _ = master.wait();
    removed.map_err(io::Error::other)
}

fn client(order: &SshOrder, arguments: &[String]) -> Command {
    let mut command = Command::new(&order.plan.client.canonical);
    let words = arguments.split_first().map_or(&[][..], |(_, rest)| rest);
    command
        .arg0("ssh")
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(&order.plan.client_env)
        .current_dir("/");
    command
}

fn wait_for_master(order: &SshOrder, master: &mut Child) -> Result<(), String> {
    let until = Instant::now() + CONNECT_PATIENCE;
    let host = &order.plan.host;
    loop {
        if Path::new(&order.plan.control).exists() {
            return Ok(());
        }
        match master.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(PAUSE),
            Ok(None) => return Err(format!("{host} did not answer")),
            Ok(Some(_)) => {
                let mut said = String::new();
                let errors = master.stderr.take();
                let _ = errors.map(|errors| errors.take(4_096).read_to_string(&mut said));
                let said = crate::container::one_line(&said);
                if said.to_ascii_lowercase().contains("host key") {
                    return Err(format!(
                        "the host key of {host} is not among the known hosts, or is another one; compare its key with that of the machine itself, then add it to the known hosts file that agents.*.sandbox.ssh.knownHostsFile names, such as by `ssh-keyscan`"
                    ));
                }
                return Err(format!("{host} cannot be reached: {said}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn seed(order: &SshOrder) -> Result<(), String> {
    let root = order.plan.root.as_str();
    let Some(workspace) = &order.seeded_from else {
        return run_script(order, SCRATCH, Stdio::null());
    };
    let words = order.plan.script_arguments(IS_SEEDED, &[root]);
    let is_seeded = client(order, &words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if is_seeded.map_err(|error| error.to_string())?.success() {
        return Ok(());
    }
    let tar = system_program("tar", "tar").map_err(|error| error.to_string())?;
    let mut packed = Command::new(tar.canonical)
        .args(["--create", "--file=-", "--sparse", "--directory"])
        .arg(workspace)
        .args(["--", "."])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("packing the workspace: {error}"))?;
    let stream = packed.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let seeded = run_script(order, SEED, stream);
    if seeded.is_err() {
        let _ = packed.kill();
    }
    let ended = packed.wait().map_err(|error| error.to_string())?;
    seeded?;
    // A file that changed meanwhile is no error; a file that could not be read is one.
    match ended.code() {
        Some(0 | 1) => Ok(()),
        _ => Err("the workspace could not be packed as a whole".to_owned()),
    }
}

fn run_script(order: &SshOrder, script: &str, input: Stdio) -> Result<(), String> {
    let words = order.plan.script_arguments(script, &[&order.plan.root]);
    let output = client(order, &words)
        .stdin(input)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!(
        "making the workspace on {}: {}",
        order.plan.host,
        crate::container::one_line(&said)
    ))
}

#[cfg(test)]
mod tests;
