//! The handling of each system call in a sandbox, with the reason. A call that no row names does
//! not exist inside (`ENOSYS`), because calls that are newer than this table were not examined.

use std::collections::BTreeSet;

use interlock_plan::UnixSockets;
use libc::c_long;

use super::MemoryFiles;
use super::assembler::{ArgumentTest, CallBlock, FilterAction, FilterRule};

pub(super) const EPERM: u16 = 1;
pub(super) const EACCES: u16 = 13;
const EINVAL: u16 = 22;
const EPROTONOSUPPORT: u16 = 93;
pub(super) const EAFNOSUPPORT: u16 = 97;

/// Calls that share a reason.
pub(super) struct CallRow {
    pub reason: &'static str,
    pub calls: &'static [c_long],
}

macro_rules! rows {
    ($($reason:literal: $($name:ident)+;)+) => {
        &[$(CallRow { reason: $reason, calls: &[$(libc::$name),+] }),+]
    };
}

/// Harmless calls: they act on the caller's own memory, files, processes and sockets.
pub(super) const ALLOWED: &[CallRow] = rows! {
    "reading and writing open files":
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2
        SYS_pwritev2 SYS_lseek SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range SYS_readahead
        SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range SYS_fallocate SYS_ftruncate SYS_truncate
        SYS_fadvise64 SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_flock SYS_pipe2;
    "names and attributes of files; the mounts say what can be reached and changed":
        SYS_newfstatat SYS_fstat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2 SYS_readlinkat
        SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat
        SYS_symlinkat SYS_fchownat SYS_fchown SYS_utimensat SYS_umask SYS_setxattr SYS_lsetxattr SYS_fsetxattr
        SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr
        SYS_lremovexattr SYS_fremovexattr SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch;
    "memory of the caller":
        SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_brk SYS_madvise SYS_mlock SYS_mlock2 SYS_munlock
        SYS_mlockall SYS_munlockall SYS_msync SYS_mincore SYS_membarrier SYS_pkey_mprotect
        SYS_pkey_alloc SYS_pkey_free SYS_remap_file_pages SYS_mbind SYS_get_mempolicy SYS_set_mempolicy;
    "processes of the sandbox, which has a PID namespace of its own":
        SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill SYS_tgkill
        SYS_pidfd_open SYS_pidfd_send_signal SYS_getpid SYS_getppid SYS_gettid SYS_getpgid SYS_setpgid
        SYS_getsid SYS_setsid SYS_set_tid_address SYS_set_robust_list SYS_get_robust_list SYS_rseq
        SYS_restart_syscall SYS_getrusage SYS_times SYS_getpriority SYS_setpriority
        SYS_getrlimit SYS_prctl SYS_getcpu SYS_ioprio_get SYS_ioprio_set;
    "the identity of the caller; without capabilities none of these gains anything":
        SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getresuid SYS_getresgid SYS_setuid
        SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid SYS_setgroups
        SYS_capget SYS_capset;
    "signals":
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait
        SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_rt_sigsuspend SYS_sigaltstack SYS_signalfd4;
    "waiting and time":
        SYS_futex SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres SYS_gettimeofday
        SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun
        SYS_timer_delete SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_eventfd2 SYS_ppoll
        SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_sched_yield
        SYS_futex_waitv;
    "scheduling of own threads":
        SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam SYS_sched_setparam SYS_sched_getscheduler
        SYS_sched_setscheduler SYS_sched_getattr SYS_sched_setattr SYS_sched_get_priority_max
        SYS_sched_get_priority_min SYS_sched_rr_get_interval;
    "sockets that are open; the network namespace has a loopback alone":
        SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername SYS_getsockopt
        SYS_setsockopt SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown;
    "communication inside the IPC namespace of the sandbox":
        SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget
        SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
        SYS_mq_getsetattr;
    "facts that any program may know":
        SYS_uname SYS_sysinfo SYS_getrandom;
    "further confinement of the caller by itself":
        SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self;
    "asynchronous input and output of open files, without a kernel thread":
        SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents;
};

/// Older harmless calls, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
pub(super) const ALLOWED_OLD: &[CallRow] = rows! {
    "older forms of allowed calls":
        SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_unlink SYS_rmdir SYS_rename SYS_link
        SYS_symlink SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_pipe SYS_dup2 SYS_poll
        SYS_select SYS_epoll_create SYS_epoll_wait SYS_inotify_init SYS_signalfd SYS_eventfd SYS_fork SYS_vfork
        SYS_alarm SYS_pause SYS_time SYS_getpgrp SYS_arch_prctl;
};
#[cfg(not(target_arch = "x86_64"))]
pub(super) const ALLOWED_OLD: &[CallRow] = &[];

/// Newer harmless calls, by their numbers, which are the same on all architectures.
pub(super) const ALLOWED_BY_NUMBER: &[(u32, &str)] = &[
    (451, "cachestat: facts about the page cache of an open file"),
    (453, "map_shadow_stack: memory of the caller"),
    (454, "futex_wake"),
    (455, "futex_wait"),
    (456, "futex_requeue"),
    (462, "mseal: memory of the caller"),
    (463, "setxattrat: as setxattr"),
    (464, "getxattrat: as getxattr"),
    (465, "listxattrat: as listxattr"),
    (466, "removexattrat: as removexattr"),
];

/// Calls that fail with `EPERM`.
pub(super) const REFUSED: &[CallRow] = rows! {
    "reads or changes the memory and descriptors of other processes":
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_kcmp SYS_pidfd_getfd SYS_process_madvise
        SYS_process_mrelease SYS_move_pages SYS_migrate_pages;
    "keys of the kernel belong to the user and not to the sandbox":
        SYS_keyctl SYS_add_key SYS_request_key;
    "large and often attacked parts of the kernel":
        SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
        SYS_fanotify_init SYS_fanotify_mark;
    "mounts are what the sandbox consists of":
        SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick
        SYS_open_tree SYS_move_mount SYS_mount_setattr;
    "other namespaces": SYS_setns;
    "file handles reach files that no path of the sandbox leads to":
        SYS_open_by_handle_at SYS_name_to_handle_at;
    "the machine belongs to its owner":
        SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot SYS_swapon SYS_swapoff
        SYS_acct SYS_quotactl SYS_quotactl_fd SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
        SYS_sethostname SYS_setdomainname SYS_syslog SYS_vhangup SYS_lookup_dcookie;
};

#[cfg(target_arch = "x86_64")]
pub(super) const REFUSED_HERE: &[CallRow] = rows! {
    "direct access to devices and to the tables of the processor":
        SYS_iopl SYS_ioperm SYS_modify_ldt;
    "the machine belongs to its owner": SYS_kexec_file_load;
};
#[cfg(target_arch = "aarch64")]
pub(super) const REFUSED_HERE: &[CallRow] = rows! {
    "the machine belongs to its owner": SYS_kexec_file_load;
};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const REFUSED_HERE: &[CallRow] = &[];

/// Newer mount calls, by number. They fail as the older ones do.
pub(super) const REFUSED_BY_NUMBER: &[(u32, &str)] = &[
    (457, "statmount: mounts"),
    (458, "listmount: mounts"),
    (467, "open_tree_attr: mounts"),
];

/// The flags of every namespace for `clone` and `unshare`. The last one is known only to `unshare`.
const NAMESPACES: u32 = 0x7e02_0000;
const TIME_NAMESPACE: u32 = 0x80;

/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;

/// With one of these flags, `open` creates a file, and the mode matters.
const MAKES_FILE: u32 = 0o100 | 0o20_000_000;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCCONS: u32 = 0x541d;
const TIOCSETD: u32 = 0x5423;

/// A lease makes other processes that open the file wait, up to 45 seconds: the owner's, and
/// Interlock itself.
const F_SETLEASE: u32 = 1024;

/// Bits of a size of a megabyte or more. System V shared memory lasts as long as the scope, and no
/// file system size limits it: 4,096 pieces are about as much as `/tmp` and similar file systems
/// hold.
const LARGE_SHARED_MEMORY: u32 = 0xfff0_0000;

/// The socket types from 8 on: `SOCK_PACKET` (10) makes a packet socket of any family.
const ODD_SOCKET_KINDS: u32 = 8;

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;
const NETLINK_ROUTE: u32 = 0;
/// The default protocol of the socket's type, ICMP, TCP, UDP, ICMP for IPv6.
const PROTOCOLS: [u32; 5] = [0, 1, 6, 17, 58];
const SOCK_STREAM: u32 = 1;
const SOCK_KINDS: [u32; 4] = [0, 0o4000, 0o2_000_000, 0o2_004_000];

/// The personalities that Docker allows too: the default, the emulation of Linux 2.6 version
/// numbers and 32-bit machine names, and a query of the present one.
const PERSONALITIES: [u32; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Returns one block per call, sorted by number.
pub(super) fn blocks(sockets: UnixSockets, files: MemoryFiles) -> Vec<CallBlock> {
    let mut blocks = by_argument(sockets);
    blocks.push(memory_files(files));
    let mut known: BTreeSet<u32> = blocks.iter().map(|block| block.number).collect();
    let allowed = calls(&[ALLOWED, ALLOWED_OLD], ALLOWED_BY_NUMBER);
    let refused = calls(&[REFUSED, REFUSED_HERE], REFUSED_BY_NUMBER);
    let allowed = allowed.map(|number| (number, FilterAction::Allow));
    for (number, otherwise) in allowed.chain(refused.map(|number| (number, REFUSE))) {
        // A number stands for one call. The first row counts, and a test finds duplicates.
        if known.insert(number) {
            blocks.push(CallBlock {
                number,
                rules: Vec::new(),
                otherwise,
            });
        }
    }
    blocks.sort_by_key(|block| block.number);
    blocks
}

pub(super) fn calls<'a>(
    tables: &'a [&'static [CallRow]],
    by_number: &'static [(u32, &'static str)],
) -> impl Iterator<Item = u32> + 'a {
    let rows = tables.iter().flat_map(|rows| rows.iter());
    let named = rows.flat_map(|row| row.calls).copied().map(number);
    named.chain(by_number.iter().map(|(number, _)| *number))
}

pub(super) fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

pub(super) const REFUSE: FilterAction = FilterAction::Refuse(EPERM);

/// Returns the calls whose arguments decide. `clone3` and `openat2` are not among them: their flags
/// are in memory that a filter cannot read, so these calls do not exist inside.
fn by_argument(sockets: UnixSockets) -> Vec<CallBlock> {
    let mut blocks = vec![
        refusing(libc::SYS_clone, &[ArgumentTest::HasAny(0, NAMESPACES)]),
        refusing(
            libc::SYS_unshare,
            &[ArgumentTest::HasAny(0, NAMESPACES | TIME_NAMESPACE)],
        ),
        refusing(libc::SYS_fchmod, &[ArgumentTest::HasAny(1, SET_ID)]),
        refusing(libc::SYS_fchmodat, &[ArgumentTest::HasAny(2, SET_ID)]),
        refusing(SYS_FCHMODAT2, &[ArgumentTest::HasAny(2, SET_ID)]),
        refusing(libc::SYS_mkdirat, &[ArgumentTest::HasAny(2, SET_ID)]),
        refusing(libc::SYS_mknodat, &[ArgumentTest::HasAny(2, SET_ID)]),
        refusing(
            libc::SYS_openat,
            &[
                ArgumentTest::HasAny(2, MAKES_FILE),
                ArgumentTest::HasAny(3, SET_ID),
            ],
        ),
        refusing(
            libc::SYS_mq_open,
            &[
                ArgumentTest::HasAny(1, MAKES_FILE),
                ArgumentTest::HasAny(2, SET_ID),
            ],
        ),
        // The first request puts input into a terminal that an operator is attached to; two more
        // reach the console, and the last loads kernel modules for modems and field buses.
        CallBlock {
            number: number(libc::SYS_ioctl),
            rules: [TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD]
                .map(|request| rule(&[ArgumentTest::Is(1, request)], REFUSE))
                .to_vec(),
            otherwise: FilterAction::Allow,
        },
        refusing(libc::SYS_fcntl, &[ArgumentTest::Is(1, F_SETLEASE)]),
        CallBlock {
            number: number(libc::SYS_shmget),
            rules: vec![
                rule(
                    &[ArgumentTest::HasAny(1, LARGE_SHARED_MEMORY)],
                    FilterAction::Refuse(EINVAL),
                ),
                rule(
                    &[ArgumentTest::UpperHasAny(1, u32::MAX)],
                    FilterAction::Refuse(EINVAL),
                ),
            ],
            otherwise: FilterAction::Allow,
        },
        CallBlock {
            number: number(libc::SYS_personality),
            rules: PERSONALITIES
                .map(|value| rule(&[ArgumentTest::Is(0, value)], FilterAction::Allow))
                .to_vec(),
            otherwise: REFUSE,
        },
        socket(sockets),
        socket_pair(sockets),
        core_limit(libc::SYS_setrlimit, &[&[ArgumentTest::Is(0, RLIMIT_CORE)]]),
        // A call without new values only reads the limit.
        core_limit(
            libc::SYS_prlimit64,
            &[
                &[
                    ArgumentTest::Is(1, RLIMIT_CORE),
                    ArgumentTest::HasAny(2, u32::MAX),
                ],
                &[
                    ArgumentTest::Is(1, RLIMIT_CORE),
                    ArgumentTest::UpperHasAny(2, u32::MAX),
                ],
            ],
        ),
    ];
    blocks.extend(old_modes());
    blocks
}

/// `MFD_NOEXEC_SEAL`
const SEALED: u32 = 8;

pub(super) fn memory_files(files: MemoryFiles) -> CallBlock {
    CallBlock {
        number: number(libc::SYS_memfd_create),
        rules: vec![rule(
            &[ArgumentTest::HasAny(1, SEALED)],
            FilterAction::Allow,
        )],
        otherwise: match files {
            MemoryFiles::Executable => FilterAction::Allow,
            MemoryFiles::NeverExecuted => FilterAction::Refuse(EACCES),
        },
    }
}

const RLIMIT_CORE: u32 = 4;

/// Keeps the limit of core files unchanged: with a limit of 1, the kernel starts no handler for a
/// crashed program, and with 0 it does, as root of the host. Shells routinely lower the limit, so
/// the call is not an error.
fn core_limit(call: c_long, cases: &[&[ArgumentTest]]) -> CallBlock {
    CallBlock {
        number: number(call),
        rules: cases
            .iter()
            .map(|tests| rule(tests, FilterAction::Ignore))
            .collect(),
        otherwise: FilterAction::Allow,
    }
}

/// Available since Linux 6.6, with the same number on all architectures.
pub(super) const SYS_FCHMODAT2: c_long = 452;

#[cfg(target_arch = "x86_64")]
fn old_modes() -> Vec<CallBlock> {
    vec![
        refusing(libc::SYS_chmod, &[ArgumentTest::HasAny(1, SET_ID)]),
        refusing(libc::SYS_mkdir, &[ArgumentTest::HasAny(1, SET_ID)]),
        refusing(libc::SYS_mknod, &[ArgumentTest::HasAny(1, SET_ID)]),
        refusing(libc::SYS_creat, &[ArgumentTest::HasAny(1, SET_ID)]),
        refusing(
            libc::SYS_open,
            &[
                ArgumentTest::HasAny(1, MAKES_FILE),
                ArgumentTest::HasAny(2, SET_ID),
            ],
        ),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn old_modes() -> Vec<CallBlock> {
    Vec::new()
}

/// Allows only the families and protocols that programs need: every other one is a part of the
/// kernel that hardly any program uses, and requesting it loads a module.
fn socket(sockets: UnixSockets) -> CallBlock {
    let mut rules = vec![rule(
        &[ArgumentTest::HasAny(1, ODD_SOCKET_KINDS)],
        FilterAction::Refuse(EAFNOSUPPORT),
    )];
    for family in [AF_INET, AF_INET6] {
        for protocol in PROTOCOLS {
            rules.push(rule(
                &[ArgumentTest::Is(0, family), ArgumentTest::Is(2, protocol)],
                FilterAction::Allow,
            ));
        }
        // Programs that try a newer protocol first fall back to TCP.
        rules.push(rule(
            &[ArgumentTest::Is(0, family)],
            FilterAction::Refuse(EPROTONOSUPPORT),
        ));
    }
    rules.push(rule(
        &[
            ArgumentTest::Is(0, AF_NETLINK),
            ArgumentTest::Is(2, NETLINK_ROUTE),
        ],
        FilterAction::Allow,
    ));
    if sockets == UnixSockets::Own {
        rules.push(rule(&[ArgumentTest::Is(0, AF_UNIX)], FilterAction::Allow));
    }
    CallBlock {
        number: number(libc::SYS_socket),
        rules,
        otherwise: FilterAction::Refuse(EAFNOSUPPORT),
    }
}

/// A pair is already connected. A datagram socket could still send elsewhere.
fn socket_pair(sockets: UnixSockets) -> CallBlock {
    let rules = match sockets {
        UnixSockets::Own => vec![rule(&[ArgumentTest::Is(0, AF_UNIX)], FilterAction::Allow)],
        UnixSockets::None => SOCK_KINDS
            .map(|flags| {
                rule(
                    &[
                        ArgumentTest::Is(0, AF_UNIX),
                        ArgumentTest::Is(1, SOCK_STREAM | flags),
                    ],
                    FilterAction::Allow,
                )
            })
            .to_vec(),
    };
    CallBlock {
        number: number(libc::SYS_socketpair),
        rules,
        otherwise: FilterAction::Refuse(EAFNOSUPPORT),
    }
}

/// Allows the call unless all tests hold.
pub(super) fn refusing(call: c_long, tests: &[ArgumentTest]) -> CallBlock {
    CallBlock {
        number: number(call),
        rules: vec![rule(tests, REFUSE)],
        otherwise: FilterAction::Allow,
    }
}

pub(super) fn rule(tests: &[ArgumentTest], action: FilterAction) -> FilterRule {
    FilterRule {
        tests: tests.to_vec(),
        action,
    }
}
