//! Reads the PATH of the user's login shell, for a service that was not started from a shell.
//!
//! This module starts a process without the one function that starts processes for callers. That is
//! safe because it does nothing for a caller: the program is the login shell of an account that
//! commands run as, its script is fixed, nothing of a request reaches it, and no verdict on a request
//! depends on it.

mod end;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use interlock_plan::{PlanAccount, RunAccount};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

/// The PATH if nothing else is known.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The most output of a login shell. A profile that prints more is killed.
const MAX_OUTPUT: usize = 1024 * 1024;

const PASSWD: &str = "/etc/passwd";
const SHELLS: &str = "/etc/shells";

/// The source of the PATH of commands if the caller sends none. `tools.exec.pathPrepend` comes
/// before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PathSource {
    /// This process, which a person started from a shell. Directories of the login shell are added
    /// if a service of this state directory has stored them.
    #[default]
    Process,
    /// The login shell first, then this process, which a service manager started. The shell is
    /// asked when its PATH is needed for the first time.
    LoginShell {
        /// The value of `$SHELL`. If the system does not list that shell, the user's entry in the
        /// password file is used.
        shell: Option<PathBuf>,
    },
}

/// Why the login shell's PATH is unknown. Only the PATH of this process is then used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginPathError {
    #[error("no login shell is known for user {0}")]
    NoShell(u32),
    #[error("{0} is not a shell whose PATH Interlock knows how to ask for")]
    UnknownShell(String),
    #[error("{shell} could not be started: {reason}")]
    NotStarted { shell: String, reason: String },
    #[error("{shell} took longer than {} seconds to read the profile", .limit.as_secs_f32())]
    TooSlow { shell: String, limit: Duration },
    #[error("{shell} or the profile printed more than {} KiB", MAX_OUTPUT / 1024)]
    TooMuch { shell: String },
    #[error("{shell} ended with {how} before it printed its PATH")]
    Ended { shell: String, how: String },
    #[error("the PATH of {shell} names no absolute directory")]
    NoDirectory { shell: String },
}

/// A login shell, and the environment that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginShell {
    pub program: PathBuf,
    pub user: Option<String>,
    pub home: Option<String>,
    /// The user and group of the shell, if they are not those of this process.
    pub runs_as: Option<(u32, u32)>,
    /// The time limit for the shell and everything that the profile starts.
    pub limit: Duration,
}

impl LoginShell {
    pub const LIMIT: Duration = Duration::from_secs(5);

    /// The login shell of the user of this process.
    pub fn of_user(variable: Option<&Path>, home: Option<&str>) -> Result<Self, LoginPathError> {
        let uid = rustix::process::geteuid().as_raw();
        let passwd = std::fs::read_to_string(PASSWD).unwrap_or_default();
        let shells = std::fs::read_to_string(SHELLS).unwrap_or_default();
        Self::choose(variable, home, &passwd, &shells, uid).ok_or(LoginPathError::NoShell(uid))
    }

    /// The login shell of the account that commands run as.
    pub fn of_account(account: &RunAccount) -> Self {
        let PlanAccount { user, uid, gid, .. } = &account.identity;
        Self {
            program: PathBuf::from(&account.shell),
            user: Some(user.clone()),
            home: Some(account.home.clone()),
            runs_as: Some((*uid, *gid)),
            limit: Self::LIMIT,
        }
    }

    fn choose(
        variable: Option<&Path>,
        home: Option<&str>,
        passwd: &str,
        shells: &str,
        uid: u32,
    ) -> Option<Self> {
        let entry = passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, id, _, _, home, shell] = fields[..] else {
                return None;
            };
            (id.parse() == Ok(uid)).then_some((name, home, shell))
        });
        let is_listed = |shell: &&Path| shells.lines().any(|line| Path::new(line.trim()) == *shell);
        let of_entry = entry
            .map(|(_, _, shell)| Path::new(shell))
            .filter(|shell| shell.is_absolute());
        let program = variable
            .filter(|shell| shell.is_absolute())
            .filter(is_listed)
            .or(of_entry)?;
        Some(Self {
            program: program.to_owned(),
            user: entry.map(|(name, _, _)| name.to_owned()),
            home: home.or(entry.map(|(_, home, _)| home)).map(str::to_owned),
            runs_as: None,
            limit: Self::LIMIT,
        })
    }

    /// Starts the shell, lets it read the user's profile, and asks for its PATH. Returns the
    /// absolute directories without duplicates. Returns within the time limit, and must leave no
    /// process behind.
    pub fn read(&self) -> Result<Vec<String>, LoginPathError> {
        let shell = self.program.display().to_string();
        let not_started = |error: io::Error| LoginPathError::NotStarted {
            shell: shell.clone(),
            reason: error.to_string(),
        };
        let marks = Marks::new().map_err(not_started)?;
        let name = self.program.file_name().unwrap_or_default();
        let question =
            path_script(name, &marks).ok_or_else(|| LoginPathError::UnknownShell(shell.clone()))?;
        let mut command = Command::new(&self.program);
        command
            .args(["-l", "-c", &question])
            .env_clear()
            .env("PATH", DEFAULT_PATH)
            .env("SHELL", &self.program)
            .env("TERM", "dumb")
            .env(end::MARK, &marks.processes)
            .envs(self.home.iter().map(|home| ("HOME", home)))
            .envs(
                self.user
                    .iter()
                    .flat_map(|user| [("USER", user), ("LOGNAME", user)]),
            )
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some((user, group)) = self.runs_as {
            // The standard library drops supplementary groups if this process is root.
            command.uid(user).gid(group);
        }
        let began = Instant::now();
        let mut child = command.spawn().map_err(not_started)?;
        let answer = listen(&mut child, &marks, began + self.limit);
        let status = end::end(child, &marks.processes);
        let directories = match answer {
            Ok(LoginAnswer::Path(path)) => directories(&path),
            Ok(LoginAnswer::Ended) => {
                return Err(LoginPathError::Ended {
                    shell,
                    how: status.map_or("an unknown status".to_owned(), how),
                });
            }
            Ok(LoginAnswer::TimeIsOver) => {
                return Err(LoginPathError::TooSlow {
                    shell,
                    limit: self.limit,
                });
            }
            Ok(LoginAnswer::TooMuch) => return Err(LoginPathError::TooMuch { shell }),
            Err(error) => return Err(not_started(error)),
        };
        if directories.is_empty() {
            return Err(LoginPathError::NoDirectory { shell });
        }
        Ok(directories)
    }
}

/// Joins the absolute directories of several PATH values in order, without duplicates. Relative and
/// empty entries are dropped: they mean the working directory, where a file must not pose as a
/// program.
pub(crate) fn merge<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut seen = BTreeSet::new();
    let directories: Vec<&str> = values
        .into_iter()
        .flat_map(|value| value.split(':'))
        .filter(|directory| directory.starts_with('/') && seen.insert(*directory))
        .collect();
    if directories.is_empty() {
        return DEFAULT_PATH.to_owned();
    }
    directories.join(":")
}

/// The file in the state directory with the login shell's PATH, for commands that ask no shell.
const REMEMBERED: &str = "login-path";

/// Stores the login shell's PATH in the state directory. If that fails, commands that ask no shell
/// do not have these directories.
pub(crate) fn remember(state_dir: &Path, directories: &[String]) {
    let text = directories.join(":");
    if remembered(state_dir).join(":") == text {
        return;
    }
    let path = state_dir.join(REMEMBERED);
    let fresh = state_dir.join(format!("{REMEMBERED}.{}", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&fresh, &path));
    if let Err(error) = written {
        tracing::warn!(%error, path = %path.display(), "the login shell's PATH is not kept");
        let _ = std::fs::remove_file(&fresh);
    }
}

/// Reads the stored PATH, which is empty if the file is missing or invalid.
pub(crate) fn remembered(state_dir: &Path) -> Vec<String> {
    let Ok(file) = std::fs::File::open(state_dir.join(REMEMBERED)) else {
        return Vec::new();
    };
    let mut text = Vec::new();
    let most = u64::try_from(MAX_OUTPUT).unwrap_or(u64::MAX);
    match file.take(most).read_to_end(&mut text) {
        Ok(_) => directories(&text),
        Err(_) => Vec::new(),
    }
}

fn directories(path: &[u8]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    path.split(|byte| *byte == b':')
        .filter_map(|directory| std::str::from_utf8(directory).ok())
        .filter(|directory| directory.starts_with('/') && !directory.contains(char::is_control))
        .filter(|directory| seen.insert(*directory))
        .map(str::to_owned)
        .collect()
}

/// Random marks around the answer. A profile may print anything, but cannot guess the marks.
struct Marks {
    begin: String,
    end: String,
    /// A value in the environment of every process that the shell starts. It must differ from the
    /// marks of the answer, because a profile may print its environment.
    processes: String,
}

impl Marks {
    fn new() -> io::Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let hex = format!("{:032x}", u128::from_ne_bytes(random));
        Ok(Self {
            begin: format!("path-{hex}-begins"),
            end: format!("path-{hex}-ends"),
            processes: hex,
        })
    }

    /// Finds the last answer in the output.
    fn find<'a>(&self, output: &'a [u8]) -> Option<&'a [u8]> {
        let end = last(output, self.end.as_bytes())?;
        let begin = last(&output[..end], self.begin.as_bytes())? + self.begin.len();
        Some(&output[begin..end])
    }
}

fn last(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .rposition(|window| window == needle)
}

/// The script with which a shell of this name prints its PATH. It uses only builtins, because a
/// profile may have removed every program or redefined a name.
fn path_script(name: &OsStr, marks: &Marks) -> Option<String> {
    let Marks { begin, end, .. } = marks;
    Some(match name.to_str()? {
        "bash" | "rbash" | "zsh" => format!(r#"builtin printf '%s' '{begin}' "$PATH" '{end}'"#),
        // These shells have no `builtin`; `command` skips functions.
        "sh" | "dash" | "ash" | "ksh" | "ksh93" | "mksh" | "yash" => {
            format!(r#"command printf '%s' '{begin}' "$PATH" '{end}'"#)
        }
        // PATH is a list in fish.
        "fish" => {
            format!("builtin printf '%s' '{begin}' (builtin string join : -- $PATH) '{end}'")
        }
        _ => return None,
    })
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

enum LoginAnswer {
    Path(Vec<u8>),
    Ended,
    TimeIsOver,
    TooMuch,
}

/// Reads until the answer is complete. It does not wait for the end of the output, because a daemon
/// of the profile may keep the output open forever.
fn listen(child: &mut Child, marks: &Marks, deadline: Instant) -> io::Result<LoginAnswer> {
    let Some(mut stdout) = child.stdout.take() else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    rustix::io::ioctl_fionbio(&stdout, true)?;
    let ended = ended(child)?;
    let mut output = Vec::new();
    let mut is_open = true;
    loop {
        // Check before reading: if the shell has ended, all of its output can then be read.
        let has_ended = wait(is_open.then_some(&stdout), &ended, deadline)?;
        is_open = is_open && read_all(&mut stdout, &mut output)?;
        if let Some(path) = marks.find(&output) {
            return Ok(LoginAnswer::Path(path.to_vec()));
        }
        if output.len() > MAX_OUTPUT {
            return Ok(LoginAnswer::TooMuch);
        }
        if has_ended {
            return Ok(LoginAnswer::Ended);
        }
        if Instant::now() >= deadline {
            return Ok(LoginAnswer::TimeIsOver);
        }
    }
}

fn ended(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits for output, for the end of the shell, or for the deadline. Returns whether the shell has
/// ended.
fn wait(stdout: Option<&ChildStdout>, ended: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
    let mut watched = vec![PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
    let output = stdout.map(|stdout| PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN));
    watched.extend(output);
    match rustix::event::poll(&mut watched, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(!watched[0].revents().is_empty())
}

/// Reads the available output, up to a little more than the limit. Returns whether more may come.
fn read_all(stdout: &mut ChildStdout, output: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 16 * 1024];
    while output.len() <= MAX_OUTPUT {
        match stdout.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(length) => output.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
