//! Uses bubblewrap to make a scope's namespaces, on systems where a security module lets the
//! program `bwrap` make user namespaces but not Interlock.
//!
//! ```text
//! keeper ─► bwrap ─► sh    in new user, network, IPC and UTS namespaces: names itself, then waits
//!    └──── enters these namespaces, compares them with what was asked for, and lets bwrap end
//! ```
//!
//! Everything else is as with the native backend: the keeper's file systems, and for each run the
//! view, the id-mapped mounts, the filter and the process 1. bwrap does not build the view, because
//! it looks up its sources by path a second time, makes missing mount points even on the host, maps
//! no ids, and has no file systems that runs share.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;
use std::time::Instant;

use interlock_plan::{PlanAccount, SandboxUser};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use super::init::{InitFailure, Step as _, become_user, separate_mounts};
use super::keeper::KEEPER_PATIENCE;
use super::unsafe_confine::{SeparatedPart, enter};
use crate::streams::{Streams, above_standard, pipe};
use crate::unsafe_spawn::{CStrings, LaunchAccount};

/// Paths where bwrap is looked for, in directories that only root can write to. The caller's PATH
/// is ignored.
const PLACES: [&str; 4] = [
    "/usr/bin/bwrap",
    "/bin/bwrap",
    "/usr/local/bin/bwrap",
    "/run/current-system/sw/bin/bwrap",
];

/// The host directories that the shell in the new namespaces needs.
const SHOWN: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/nix"];

/// Prints the number of the process, and keeps the namespaces until its standard input is closed.
const HOLDER: &str = "echo $$; read -r _";

/// The namespaces that bwrap makes, by their names below `/proc/PID/ns`.
const PARTS: [(&str, SeparatedPart); 4] = [
    ("user", SeparatedPart::User),
    ("net", SeparatedPart::Network),
    ("ipc", SeparatedPart::Communication),
    ("uts", SeparatedPart::HostName),
];

/// Most bytes that are read of bwrap's output.
const MOST_TEXT: u64 = 2_048;

/// Moves the keeper of a scope, which has one thread, into namespaces that bwrap makes.
/// `enter_own_user_namespace` or `enter_user_namespace`, and `separate_mounts`, do the same
/// natively.
pub(super) fn enter_bubblewrap_namespaces(user: SandboxUser) -> Result<(), InitFailure> {
    let own = rustix::process::geteuid();
    let is_other_user = own.as_raw() != user.host_uid;
    let program = open_bubblewrap()?;
    let before = namespaces_of("self").step(|| "opening its own namespaces".to_owned())?;
    let mut maker = BubblewrapProcess::start(program, user, is_other_user)
        .step(|| "starting bwrap".to_owned())?;
    let holder = maker.holder()?;
    let made = namespaces_of(&holder.to_string())
        .step(|| "opening the namespaces that bwrap made".to_owned())?;
    // The number cannot belong to another process by now: bwrap was not collected, and is its
    // parent.
    if !maker.is_parent_of(holder) {
        return Err(InitFailure::new("bwrap ended too early".to_owned()));
    }
    for ((before, made), (name, _)) in before.iter().zip(&made).zip(PARTS) {
        if is_same(before, made).step(|| "comparing namespaces".to_owned())? {
            return Err(InitFailure::new(format!("bwrap made no {name} namespace")));
        }
    }
    let [in_user, shared @ ..] = &made[..] else {
        return Err(InitFailure::new("bwrap made no namespaces".to_owned()));
    };
    enter(in_user.as_fd(), SeparatedPart::User)
        .step(|| "entering the user namespace that bwrap made".to_owned())?;
    check_map("uid", user.uid, user.host_uid)?;
    check_map("gid", user.gid, user.host_gid)?;
    if is_other_user {
        become_user(user).step(|| "becoming the user of the scope".to_owned())?;
    }
    separate_mounts(UnshareFlags::NEWNS)?;
    for (namespace, (name, part)) in shared.iter().zip(&PARTS[1..]) {
        enter(namespace.as_fd(), *part)
            .step(|| format!("entering the {name} namespace that bwrap made"))?;
    }
    maker.end();
    Ok(())
}

/// Opens the program, which must belong to root and be writable by root alone. A program with the
/// set-user-ID bit would make namespaces that belong to root, which this process could not enter.
fn open_bubblewrap() -> Result<OwnedFd, InitFailure> {
    for place in PLACES {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(program) = rustix::fs::open(place, flags, Mode::empty()) else {
            continue;
        };
        let program = File::from(program);
        let found = program.metadata().step(|| format!("looking at {place}"))?;
        let mode = found.permissions().mode();
        let fault = if !found.is_file() || mode & 0o111 == 0 {
            Some("is not a program")
        } else if !is_of_root(found.uid()) || mode & 0o022 != 0 {
            Some("can be changed by others than root")
        } else if mode & 0o6000 != 0 {
            Some(
                "has the set-user-ID bit, so that its namespaces are root's; remove the bit with `chmod u-s`",
            )
        } else {
            None
        };
        return match fault {
            Some(fault) => Err(InitFailure::new(format!("{place} {fault}"))),
            None => Ok(program.into()),
        };
    }
    Err(InitFailure::new(
        "bwrap is not installed: install the package `bubblewrap`".to_owned(),
    ))
}

/// Whether the user is root. In a user namespace that does not map root, root's files belong to the
/// overflow id.
fn is_of_root(uid: u32) -> bool {
    let overflow = || {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let knows_root = map.lines().any(|line| {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            matches!(
                (words.next(), words.next(), words.next()),
                (Some(Ok(_)), Some(Ok(0)), Some(Ok(1..)))
            )
        });
        let id = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        !knows_root && id.trim().parse() == Ok(uid)
    };
    uid == 0 || overflow()
}

/// bwrap, with the ends of its streams.
struct BubblewrapProcess {
    pid: Pid,
    /// The standard input of the shell, which ends when this is closed.
    input: Option<OwnedFd>,
    output: OwnedFd,
    errors: OwnedFd,
}

impl BubblewrapProcess {
    fn start(program: OwnedFd, user: SandboxUser, is_other_user: bool) -> io::Result<Self> {
        let (stdin, input) = pipe()?;
        let (output, stdout) = pipe()?;
        let (errors, stderr) = pipe()?;
        let words = arguments(user).into_iter().map(CString::new);
        let account = is_other_user.then(|| {
            Arc::new(LaunchAccount::new(&PlanAccount {
                user: String::new(),
                uid: user.host_uid,
                gid: user.host_gid,
                groups: Vec::new(),
            }))
        });
        let streams = Streams {
            stdin: Arc::new(stdin),
            stdout: Arc::new(stdout),
            stderr: Arc::new(stderr),
        };
        let program = above_standard(program)?;
        let argv = CStrings::new(words.collect::<Result<_, _>>()?);
        let pid = super::start_program(program, argv, streams, account)?;
        Ok(Self {
            pid,
            input: Some(input),
            output,
            errors,
        })
    }

    /// Returns the process that holds the namespaces. It prints its number once all of them exist.
    fn holder(&self) -> Result<i32, InitFailure> {
        let said = read_line(&self.output).step(|| "waiting for bwrap".to_owned())?;
        if let Ok(holder) = said.trim().parse::<i32>()
            && self.is_parent_of(holder)
        {
            return Ok(holder);
        }
        let mut why = String::new();
        // bwrap writes its error before it ends, so the error is in the pipe by then.
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        if let Ok(errors) = self.errors.try_clone() {
            let _ = File::from(errors).take(MOST_TEXT).read_to_string(&mut why);
        }
        Err(InitFailure::new(match why.trim() {
            "" => "bwrap made no namespaces and did not say why".to_owned(),
            why => format!("bwrap made no namespaces: {why}"),
        }))
    }

    fn is_parent_of(&self, process: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = rest.split_whitespace().nth(1);
        parent.is_some_and(|parent| parent.parse() == Ok(self.pid.as_raw_pid()))
    }

    /// Lets bwrap end, and waits for that. Its namespaces last as long as a process is in them.
    fn end(&mut self) {
        drop(self.input.take());
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

impl Drop for BubblewrapProcess {
    fn drop(&mut self) {
        if self.input.take().is_some() {
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}

fn arguments(user: SandboxUser) -> Vec<String> {
    let mut words: Vec<String> = ["bwrap", "--unshare-user", "--unshare-net"]
        .into_iter()
        .chain(["--unshare-ipc", "--unshare-uts", "--die-with-parent"])
        .map(str::to_owned)
        .collect();
    words.extend(["--uid".to_owned(), user.uid.to_string()]);
    words.extend(["--gid".to_owned(), user.gid.to_string()]);
    for path in SHOWN {
        words.extend(["--ro-bind-try", path, path].map(str::to_owned));
    }
    words.extend(["--", "/bin/sh", "-c", HOLDER].map(str::to_owned));
    words
}

/// Opens the namespaces in the order of [`PARTS`].
fn namespaces_of(process: &str) -> io::Result<Vec<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = |(name, _): &(&str, SeparatedPart)| {
        rustix::fs::open(format!("/proc/{process}/ns/{name}"), flags, Mode::empty())
    };
    Ok(PARTS.iter().map(open).collect::<Result<_, _>>()?)
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Checks that the entered user namespace maps only one id, and that it is the requested one.
fn check_map(kind: &str, inside: u32, outside: u32) -> Result<(), InitFailure> {
    let map = std::fs::read_to_string(format!("/proc/self/{kind}_map"))
        .step(|| format!("reading the {kind} map"))?;
    let words: Vec<&str> = map.split_whitespace().collect();
    let expected = [inside.to_string(), outside.to_string(), "1".to_owned()];
    if words == expected {
        Ok(())
    } else {
        Err(InitFailure::new(format!(
            "bwrap mapped the {kind} as `{}` in place of `{}`",
            words.join(" "),
            expected.join(" ")
        )))
    }
}

/// Reads the first line, or everything until the other side closes the pipe.
fn read_line(pipe: &OwnedFd) -> io::Result<String> {
    let began = Instant::now();
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < 64 {
        let left = KEEPER_PATIENCE.saturating_sub(began.elapsed());
        let wait = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut polled = [PollFd::new(pipe, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&wait)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(rustix::io::Errno::INTR) => continue,
            polled => drop(polled?),
        }
        let mut bytes = [0; 64];
        match rustix::io::read(pipe, &mut bytes)? {
            0 => break,
            length => line.extend_from_slice(bytes.get(..length).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
