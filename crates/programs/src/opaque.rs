//! Programs whose purpose is to start another program in a way that the judge does not model.
//!
//! They are a miss even if an entry names them. Only an entry that also binds the arguments
//! satisfies them, and "always" stores nothing for them.

use crate::names::program_name;
use crate::{Executable, is_dispatch_wrapper};

/// Rows by what the programs do; every name is in lower case.
const OPAQUE: &[(&str, &[&str])] = &[
    (
        "runs as another user",
        &[
            "sudo",
            "doas",
            "su",
            "runuser",
            "pkexec",
            "gosu",
            "su-exec",
            "setpriv",
            "run0",
            "sg",
            "newgrp",
            "setuidgid",
            "capsh",
            "dzdo",
            "pbrun",
            "sudoedit",
            "machinectl",
            "start-stop-daemon",
        ],
    ),
    (
        "runs in another root or namespace",
        &[
            "chroot",
            "unshare",
            "nsenter",
            "bwrap",
            "firejail",
            "proot",
            "fakechroot",
            "systemd-nspawn",
            "schroot",
            "pivot_root",
            "switch_root",
            "lxc-attach",
            "lxc-execute",
            "flatpak-spawn",
            "toolbox",
            "distrobox",
        ],
    ),
    (
        "starts it under another scheduler, limit or session",
        &[
            "setsid",
            "chrt",
            "ionice",
            "taskset",
            "numactl",
            "cpulimit",
            "schedtool",
            "prlimit",
            "softlimit",
            "cgexec",
            "systemd-run",
            "systemd-inhibit",
            "systemd-cat",
            "nocache",
            "choom",
            "uclampset",
            "linux32",
            "linux64",
            "setarch",
            "arch",
            "i386",
            "x86_64",
            "chpst",
            "runsv",
            "runsvdir",
            "supervise",
            "envdir",
            "setlock",
            "envuidgid",
            "daemonize",
            "daemon",
            "tini",
            "dumb-init",
            "catatonit",
            "s6-setsid",
            "s6-svscan",
            "s6-supervise",
            "s6-setuidgid",
            "s6-softlimit",
            "execlineb",
            "with-contenv",
        ],
    ),
    (
        "traces, profiles or debugs it",
        &[
            "strace",
            "ltrace",
            "rr",
            "perf",
            "valgrind",
            "uftrace",
            "bpftrace",
            "gdbserver",
            "lldb-server",
            "heaptrack",
            "catchsegv",
            "xtrace",
            "dtruss",
            "dtrace",
            "sysdig",
            "operf",
            "ftrace",
            "trace-cmd",
            "hyperfine",
        ],
    ),
    (
        "loads it, or loads something into it",
        &[
            "ld.so",
            "ld-linux.so",
            "ld-linux-x86-64.so.2",
            "ld-linux.so.2",
            "ld-linux-aarch64.so.1",
            "ld-linux-armhf.so.3",
            "ld-musl-x86_64.so.1",
            "ld-musl-aarch64.so.1",
            "qemu-x86_64",
            "qemu-i386",
            "qemu-arm",
            "qemu-aarch64",
            "box64",
            "wine",
            "wine64",
            "faketime",
            "fakeroot",
            "eatmydata",
            "proxychains",
            "proxychains4",
            "torify",
            "torsocks",
            "tsocks",
            "aoss",
            "padsp",
            "libtool",
            "jexec",
        ],
    ),
    (
        "records it or gives it a terminal",
        &[
            "script",
            "scriptlive",
            "asciinema",
            "ttyrec",
            "unbuffer",
            "rlwrap",
            "rlfe",
            "socat",
            "dtach",
            "abduco",
            "xvfb-run",
            "xinit",
            "startx",
            "dbus-run-session",
            "dbus-launch",
            "ssh-agent",
            "gpg-agent",
            "keychain",
            "xterm",
            "gnome-terminal",
            "konsole",
            "xdg-open",
        ],
    ),
    (
        "runs many commands out of its input or arguments",
        &[
            "xargs",
            "parallel",
            "sem",
            "busybox",
            "toybox",
            "coreutils",
            "tmux",
            "screen",
            "zellij",
            "byobu",
            "at",
            "batch",
            "crontab",
            "anacron",
            "watch",
            "entr",
            "watchexec",
            "nodemon",
            "chronic",
            "ifne",
            "pee",
            "foreman",
            "overmind",
            "concurrently",
            "run-parts",
            "xcrun",
            "doexec",
            "apply",
        ],
    ),
];

/// Returns why the program is opaque, or `None` if it is ordinary.
pub fn opaque_reason(token: &str) -> Option<&'static str> {
    let name = program_name(token);
    if crate::shell::is_multi_call(&name) {
        return Some("runs many commands out of its input or arguments");
    }
    if is_loader(&name) {
        return Some("loads it, or loads something into it");
    }
    OPAQUE
        .iter()
        .find(|(_, names)| names.contains(&&*name))
        .map(|(reason, _)| *reason)
}

/// Returns why the program starts others in a way that is not modeled.
pub fn starts_others(name: &str, executable: &Executable) -> Option<&'static str> {
    let canonical = executable.canonical.rsplit('/').next().unwrap_or_default();
    let multi_call = matches!(canonical, "busybox" | "toybox" | "coreutils");
    // Usually all three names are equal, so only one lookup is needed.
    let (asked, found) = (program_name(name), program_name(&executable.found));
    let real = program_name(canonical);
    // A link to `env` or `nice` under another name: that name does not say how the options are
    // read.
    let is_disguised =
        || real != asked && !is_dispatch_wrapper(&asked) && is_dispatch_wrapper(&real);
    opaque_reason(&asked)
        .or_else(|| (found != asked).then(|| opaque_reason(&found))?)
        .or_else(|| (real != asked && !multi_call).then(|| opaque_reason(&real))?)
        .or_else(|| is_disguised().then_some("is a wrapper under another name"))
}

/// Whether this is the dynamic loader run as a program: `ld-linux-….so.N`, `ld-2.36.so`,
/// `ld64.so.2`.
pub fn is_loader(name: &str) -> bool {
    name.starts_with("ld") && name.contains(".so") && !name.starts_with("ldconfig")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_program_is_listed_twice_and_names_are_lower_case() {
        let mut names: Vec<_> = OPAQUE.iter().flat_map(|(_, names)| *names).collect();
        assert!(names.iter().all(|name| name.to_lowercase() == **name));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn loaders_are_opaque_under_any_version() {
        assert!(opaque_reason("/lib64/ld-linux-x86-64.so.2").is_some());
        assert!(opaque_reason("ld-2.31.so").is_some());
        assert!(opaque_reason("ls").is_none());
        assert!(opaque_reason("ld").is_none());
    }
}
