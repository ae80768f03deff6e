//! The handling of system calls if no namespace separates a run from the host (backend `landlock`):
//! some rows of `table` rely on namespaces, and these take their place. Landlock restricts none of
//! these calls.

use libc::c_long;

use super::assembler::{ArgumentTest, CallBlock, FilterAction};
use super::table::{CallRow, EACCES, EAFNOSUPPORT, REFUSE, SYS_FCHMODAT2, number, rule};

macro_rules! rows {
    ($($reason:literal: $($name:ident)+;)+) => {
        &[$(CallRow { reason: $reason, calls: &[$(libc::$name),+] }),+]
    };
}

/// Calls that fail with `EPERM`.
const REFUSED: &[CallRow] = rows! {
    "memory, queues and semaphores that all processes of the machine share":
        SYS_shmget SYS_shmat SYS_shmctl SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget SYS_msgsnd
        SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
        SYS_mq_getsetattr;
};

/// Newer forms of the calls that are asked about. They do not exist inside.
const NEWER: [u32; 2] = [463, 466];

const ENOSYS: u16 = 38;

/// Requests that change flags of a file even through a read-only descriptor: attributes in both
/// sizes, the attributes of XFS, the version, sealing with verity, and encryption of a directory.
const FILE_REQUESTS: [u32; 7] = [
    0x4008_6602,
    0x4004_6602,
    0x401c_5820,
    0x4008_7602,
    0x4004_7602,
    0x4080_6685,
    0x800c_6613,
];

/// `PRIO_PROCESS`, and the corresponding value for `ioprio_set`.
const ONE_PROCESS: u32 = 0;
const ONE_PROCESS_OF_DISK: u32 = 1;

/// Returns one block per call.
pub(super) fn blocks() -> Vec<CallBlock> {
    let own = |call: c_long, tests: &[ArgumentTest]| CallBlock {
        number: number(call),
        rules: vec![rule(tests, FilterAction::Allow)],
        otherwise: REFUSE,
    };
    let mut blocks = vec![
        // Every network is the host's. The other program leaves only pairs of Unix sockets.
        CallBlock {
            number: number(libc::SYS_socket),
            rules: Vec::new(),
            otherwise: FilterAction::Refuse(EAFNOSUPPORT),
        },
        // Other processes of the same user are addressed by their numbers; 0 is the caller.
        own(libc::SYS_prlimit64, &[ArgumentTest::Is(0, 0)]),
        own(libc::SYS_sched_setaffinity, &[ArgumentTest::Is(0, 0)]),
        own(libc::SYS_sched_setparam, &[ArgumentTest::Is(0, 0)]),
        own(libc::SYS_sched_setscheduler, &[ArgumentTest::Is(0, 0)]),
        own(libc::SYS_sched_setattr, &[ArgumentTest::Is(0, 0)]),
        own(
            libc::SYS_setpriority,
            &[ArgumentTest::Is(0, ONE_PROCESS), ArgumentTest::Is(1, 0)],
        ),
        own(
            libc::SYS_ioprio_set,
            &[
                ArgumentTest::Is(0, ONE_PROCESS_OF_DISK),
                ArgumentTest::Is(1, 0),
            ],
        ),
        // This call would reveal events in directories that cannot be opened.
        CallBlock {
            number: number(libc::SYS_inotify_add_watch),
            rules: Vec::new(),
            otherwise: FilterAction::Refuse(EACCES),
        },
        CallBlock {
            number: number(libc::SYS_ioctl),
            rules: FILE_REQUESTS
                .map(|request| rule(&[ArgumentTest::Is(1, request)], REFUSE))
                .to_vec(),
            otherwise: FilterAction::Allow,
        },
    ];
    let refused = REFUSED.iter().flat_map(|row| row.calls).copied();
    let refused = refused.map(|call| (number(call), REFUSE));
    let newer = NEWER.map(|number| (number, FilterAction::Refuse(ENOSYS)));
    blocks.extend(refused.chain(newer).map(|(number, otherwise)| CallBlock {
        number,
        rules: Vec::new(),
        otherwise,
    }));
    blocks
}

/// Returns the calls that change mode, owner, times and extended attributes of a file. Landlock
/// does not see them, so a run could change those of every file of its user.
pub(super) fn attribute_calls() -> Vec<u32> {
    let mut calls = vec![
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        SYS_FCHMODAT2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ]);
    calls.into_iter().map(number).collect()
}
