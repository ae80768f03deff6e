use std::collections::BTreeSet;

use super::assembler::{ArgumentTest, CallBlock, FilterAction, FilterRule, interpret};
use super::*;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;
const EPROTONOSUPPORT: u32 = 0x0005_005d;
const EAFNOSUPPORT: u32 = 0x0005_0061;
const IGNORE: u32 = 0x0005_0000;

/// More than any kernel has.
const NUMBERS: u32 = 2_000;

fn result(sockets: UnixSockets, number: u32, arguments: [u64; 6]) -> u32 {
    let target = TARGET.unwrap();
    interpret(
        &program(sockets, MemoryFiles::Executable).unwrap(),
        target.architecture,
        number,
        arguments,
    )
}

fn call(number: libc::c_long, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    result(UnixSockets::Own, u32::try_from(number).unwrap(), all)
}

#[test]
fn every_number_gets_what_its_row_says_and_no_other_call_exists() {
    let all = program(UnixSockets::Own, MemoryFiles::Executable).unwrap();
    let target = TARGET.unwrap();
    let allowed: BTreeSet<u32> = table::calls(
        &[table::ALLOWED, table::ALLOWED_OLD],
        table::ALLOWED_BY_NUMBER,
    )
    .collect();
    let refused: BTreeSet<u32> = table::calls(
        &[table::REFUSED, table::REFUSED_HERE],
        table::REFUSED_BY_NUMBER,
    )
    .collect();
    let by_argument: BTreeSet<u32> = table::blocks(UnixSockets::Own, MemoryFiles::Executable)
        .into_iter()
        .filter(|block| !block.rules.is_empty())
        .map(|block| block.number)
        .collect();
    assert!(allowed.is_disjoint(&refused));
    assert!(allowed.is_disjoint(&by_argument) && refused.is_disjoint(&by_argument));
    for number in 0..NUMBERS {
        // Arguments change nothing for calls that are not judged by them.
        for arguments in [[0; 6], [u64::MAX; 6]] {
            let found = interpret(&all, target.architecture, number, arguments);
            if allowed.contains(&number) {
                assert_eq!(found, ALLOW, "call {number}");
            } else if refused.contains(&number) {
                assert_eq!(found, EPERM, "call {number}");
            } else if !by_argument.contains(&number) {
                assert_eq!(found, ENOSYS, "call {number}");
            }
        }
    }
    assert!(
        allowed.len() > 200 && refused.len() > 40,
        "the tables are whole"
    );
}

/// What a block says, read off the block itself.
fn said_by(block: &CallBlock, arguments: [u64; 6]) -> u32 {
    let low = |argument: usize| u32::try_from(arguments[argument] & 0xffff_ffff).unwrap();
    let high = |argument: usize| u32::try_from(arguments[argument] >> 32).unwrap();
    let holds = |test: &ArgumentTest| match *test {
        ArgumentTest::Is(argument, value) => low(argument) == value,
        ArgumentTest::HasAny(argument, bits) => low(argument) & bits != 0,
        ArgumentTest::UpperHasAny(argument, bits) => high(argument) & bits != 0,
    };
    let fits = |rule: &&FilterRule| rule.tests.iter().all(holds);
    let fitting = block.rules.iter().find(fits);
    fitting
        .map_or(block.otherwise, |rule| rule.action)
        .encoded()
}

/// Numbers are found by halving, over ranges: none may lead to the block of another one.
#[test]
fn every_number_leads_to_its_own_block() {
    let target = TARGET.unwrap();
    let programs = [UnixSockets::Own, UnixSockets::None]
        .into_iter()
        .flat_map(|sockets| {
            [MemoryFiles::Executable, MemoryFiles::NeverExecuted].map(|files| {
                (
                    program(sockets, files),
                    table::blocks(sockets, files),
                    ENOSYS,
                )
            })
        });
    let beside = (program_without_namespaces(), unseparated::blocks(), ALLOW);
    for (program, blocks, others) in programs.chain([beside]) {
        let program = program.unwrap();
        for number in (0..NUMBERS).chain([0x3fff_ffff]) {
            let block = blocks.iter().find(|block| block.number == number);
            let mut values: BTreeSet<u64> = [0, 1, u64::MAX, 1 << 32].into();
            for test in block
                .iter()
                .flat_map(|block| &block.rules)
                .flat_map(|rule| &rule.tests)
            {
                let (ArgumentTest::Is(_, value)
                | ArgumentTest::HasAny(_, value)
                | ArgumentTest::UpperHasAny(_, value)) = *test;
                values.extend([u64::from(value), u64::from(value) << 32, !u64::from(value)]);
            }
            for first in &values {
                for second in &values {
                    for arguments in [
                        [*first, *second, 0, *second, *first, 0],
                        [*second, *first, *second, 0, 0, *first],
                    ] {
                        let expected = block.map_or(others, |block| said_by(block, arguments));
                        let found = interpret(&program, target.architecture, number, arguments);
                        assert_eq!(found, expected, "call {number} {arguments:x?}");
                    }
                }
            }
        }
    }
}

#[test]
fn each_call_stands_in_one_row_with_a_reason() {
    let rows = [
        table::ALLOWED,
        table::ALLOWED_OLD,
        table::REFUSED,
        table::REFUSED_HERE,
    ];
    let mut seen = BTreeSet::new();
    for row in rows.into_iter().flatten() {
        assert!(!row.reason.is_empty());
        for call in row.calls {
            assert!(seen.insert(*call), "call {call} stands in two rows");
        }
    }
}

#[test]
fn other_architectures_and_x32_are_killed() {
    let all = program(UnixSockets::Own, MemoryFiles::Executable).unwrap();
    let target = TARGET.unwrap();
    let read = u32::try_from(libc::SYS_read).unwrap();
    for architecture in [0x4000_0003, 0xc000_00b7, 0xc000_003e, 0] {
        let expected = if architecture == target.architecture {
            ALLOW
        } else {
            KILL
        };
        assert_eq!(interpret(&all, architecture, read, [0; 6]), expected);
    }
    if target.has_x32 {
        for number in [0x4000_0000, 0x4000_0200, u32::MAX] {
            assert_eq!(interpret(&all, target.architecture, number, [0; 6]), KILL);
        }
    }
}

#[test]
fn namespaces_are_refused_by_the_low_half_of_the_flags() {
    // A thread of a program, as C libraries start it.
    assert_eq!(call(libc::SYS_clone, &[0x3d_0f00]), ALLOW);
    assert_eq!(call(libc::SYS_clone, &[u64::from(17_u32)]), ALLOW);
    for bit in [17, 25, 26, 27, 28, 29, 30] {
        assert_eq!(call(libc::SYS_clone, &[1 << bit]), EPERM, "bit {bit}");
        assert_eq!(call(libc::SYS_unshare, &[1 << bit]), EPERM, "bit {bit}");
        // The upper half is not seen by the kernel and hides nothing.
        assert_eq!(call(libc::SYS_clone, &[(7 << 32) | (1 << bit)]), EPERM);
    }
    assert_eq!(call(libc::SYS_unshare, &[0x80]), EPERM);
    assert_eq!(call(libc::SYS_unshare, &[0x400]), ALLOW);
    assert_eq!(call(libc::SYS_clone3, &[0]), ENOSYS);
    assert_eq!(call(libc::SYS_openat2, &[0]), ENOSYS);
}

#[test]
fn no_call_sets_a_set_id_bit() {
    for mode in [0o4755, 0o2755, 0o6755, 0o104_644] {
        assert_eq!(call(libc::SYS_fchmod, &[3, mode]), EPERM);
        assert_eq!(call(libc::SYS_fchmodat, &[3, 0, mode]), EPERM);
        assert_eq!(call(452, &[3, 0, mode]), EPERM);
        assert_eq!(call(libc::SYS_mkdirat, &[3, 0, mode]), EPERM);
        assert_eq!(call(libc::SYS_mknodat, &[3, 0, mode]), EPERM);
        assert_eq!(call(libc::SYS_openat, &[3, 0, 0o101, mode]), EPERM);
        // Without a new file the mode is whatever was in the register.
        assert_eq!(call(libc::SYS_openat, &[3, 0, 0o2, mode]), ALLOW);
    }
    for mode in [0o755, 0o1777, 0] {
        assert_eq!(call(libc::SYS_fchmodat, &[3, 0, mode]), ALLOW);
        assert_eq!(call(libc::SYS_openat, &[3, 0, 0o101, mode]), ALLOW);
    }
    // O_TMPFILE makes a file without O_CREAT.
    assert_eq!(call(libc::SYS_openat, &[3, 0, 0o20_200_002, 0o4700]), EPERM);
}

#[test]
fn terminals_take_no_input_from_programs() {
    for request in [0x5412, 0x541c, 0x541d, 0x5423] {
        assert_eq!(call(libc::SYS_ioctl, &[0, request]), EPERM);
        assert_eq!(call(libc::SYS_ioctl, &[0, request | (1 << 32)]), EPERM);
    }
    assert_eq!(call(libc::SYS_ioctl, &[0, 0x5413]), ALLOW);
}

#[test]
fn socket_families_are_few() {
    for family in 0..64_u64 {
        let expected = match family {
            1 | 2 | 10 | 16 => ALLOW,
            _ => EAFNOSUPPORT,
        };
        assert_eq!(
            call(libc::SYS_socket, &[family, 1, 0]),
            expected,
            "{family}"
        );
    }
    assert_eq!(call(libc::SYS_socket, &[16, 3, 9]), EAFNOSUPPORT, "audit");
    for family in [2, 10] {
        for protocol in 0..300 {
            let expected = match protocol {
                0 | 1 | 6 | 17 | 58 => ALLOW,
                _ => EPROTONOSUPPORT,
            };
            let found = call(libc::SYS_socket, &[family, 1, protocol]);
            assert_eq!(found, expected, "{family} {protocol}");
        }
    }
    let socket = u32::try_from(libc::SYS_socket).unwrap();
    let pair = u32::try_from(libc::SYS_socketpair).unwrap();
    let none =
        |number, first, second| result(UnixSockets::None, number, [first, second, 0, 0, 0, 0]);
    assert_eq!(none(socket, 1, 1), EAFNOSUPPORT);
    assert_eq!(none(pair, 1, 1), ALLOW);
    assert_eq!(none(pair, 1, 1 | 0o2_000_000), ALLOW);
    assert_eq!(none(pair, 1, 2), EAFNOSUPPORT);
    assert_eq!(none(pair, 1, 5), EAFNOSUPPORT);
}

#[test]
fn the_program_fits_into_the_kernel() {
    // The kernel takes 4,096. It walks through the program for each call that it knows while a run waits.
    let longest = 600;
    assert!(
        program(UnixSockets::None, MemoryFiles::NeverExecuted)
            .unwrap()
            .len()
            < longest
    );
    assert_eq!(FilterAction::Refuse(38).encoded(), ENOSYS);
}

#[test]
fn the_limit_of_core_files_is_read_and_never_set() {
    assert_eq!(call(libc::SYS_setrlimit, &[4, 0x1000]), IGNORE);
    assert_eq!(call(libc::SYS_setrlimit, &[7, 0x1000]), ALLOW);
    assert_eq!(call(libc::SYS_prlimit64, &[0, 4, 0, 0x1000]), ALLOW);
    assert_eq!(call(libc::SYS_prlimit64, &[0, 7, 0x1000, 0]), ALLOW);
    // An address whose low half is zero is an address, too.
    for new in [0x1000, 1 << 32, u64::MAX] {
        assert_eq!(call(libc::SYS_prlimit64, &[0, 4, new, 0]), IGNORE);
    }
}

#[test]
fn files_in_memory_are_sealed_against_execution_where_that_is_asked_for() {
    let number = u32::try_from(libc::SYS_memfd_create).unwrap();
    let target = TARGET.unwrap();
    for (files, plain) in [
        (MemoryFiles::Executable, ALLOW),
        (MemoryFiles::NeverExecuted, 0x0005_000d),
    ] {
        let all = program(UnixSockets::Own, files).unwrap();
        let end = |flags| interpret(&all, target.architecture, number, [0, flags, 0, 0, 0, 0]);
        assert_eq!((end(0), end(1), end(0x10)), (plain, plain, plain));
        assert_eq!((end(8), end(9)), (ALLOW, ALLOW));
    }
}

/// Leases keep others waiting; large pieces of shared memory outlast a run; a kind of socket makes a packet
/// socket of any family.
#[test]
fn leases_large_shared_memory_and_odd_sockets_are_refused() {
    const EINVAL: u32 = 0x0005_0016;
    for wide in [0, 1 << 32, 0xffff_ffff << 32] {
        assert_eq!(call(libc::SYS_fcntl, &[3, 1024 | wide, 1]), EPERM);
        assert_eq!(call(libc::SYS_fcntl, &[3, 4 | wide, 1]), ALLOW);
    }
    for size in [1 << 20, 1 << 31, 1 << 32, u64::MAX] {
        assert_eq!(call(libc::SYS_shmget, &[1, size, 0o1600]), EINVAL, "{size}");
    }
    assert_eq!(call(libc::SYS_shmget, &[1, (1 << 20) - 1, 0o1600]), ALLOW);
    for family in [1, 2, 10, 16] {
        for kind in [10, 0o12 | 0o2_004_000, 8, 15] {
            assert_eq!(call(libc::SYS_socket, &[family, kind, 0]), EAFNOSUPPORT);
        }
        assert_eq!(call(libc::SYS_socket, &[family, 1 | 0o2_004_000, 0]), ALLOW);
    }
}

#[test]
fn without_namespaces_more_is_refused_and_attributes_are_asked_about() {
    const ASK: u32 = 0x7fc0_0000;
    let target = TARGET.unwrap();
    let beside = program_without_namespaces().unwrap();
    let asking = program_about_attributes().unwrap();
    let on = |program: &[FilterInstruction], number: libc::c_long, arguments: &[u64]| {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let number = u32::try_from(number).unwrap();
        interpret(program, target.architecture, number, all)
    };
    for family in 0..50 {
        assert_eq!(on(&beside, libc::SYS_socket, &[family, 1]), EAFNOSUPPORT);
    }
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
    ] {
        assert_eq!(on(&beside, call, &[0, 7]), ALLOW);
        assert_eq!(on(&beside, call, &[1, 7]), EPERM);
        assert_eq!(on(&beside, call, &[u64::MAX, 7]), EPERM);
    }
    assert_eq!(on(&beside, libc::SYS_setpriority, &[0, 0]), ALLOW);
    for (which, who) in [(0, 9), (1, 0), (2, 0)] {
        assert_eq!(on(&beside, libc::SYS_setpriority, &[which, who]), EPERM);
    }
    assert_eq!(on(&beside, libc::SYS_shmget, &[]), EPERM);
    assert_eq!(on(&beside, libc::SYS_ioctl, &[3, 0x5401]), ALLOW);
    assert_eq!(on(&beside, libc::SYS_ioctl, &[3, 0x4008_6602]), EPERM);
    assert_eq!(on(&beside, libc::SYS_read, &[]), ALLOW);
    let asked = unseparated::attribute_calls();
    for number in 0..NUMBERS {
        let found = interpret(&asking, target.architecture, number, [0; 6]);
        let expected = if asked.contains(&number) { ASK } else { ALLOW };
        assert_eq!(found, expected, "call {number}");
    }
    // Every call that the whole program allows and that changes what a file is.
    assert_eq!(
        asked.len(),
        if cfg!(target_arch = "x86_64") { 18 } else { 12 }
    );
}

/// On the host, what the kernel does not ask about or hold by a path is closed: calls of other architectures,
/// and files in memory.
#[test]
fn beside_the_tree_of_a_host_run_nothing_starts_unseen() {
    let target = TARGET.unwrap();
    for (files, of_memory) in [
        (MemoryFiles::Executable, ALLOW),
        (MemoryFiles::NeverExecuted, 0x0005_000d),
    ] {
        let program = program_beside_host_tree(files).unwrap();
        let on = |architecture, number: libc::c_long, second| {
            let number = u32::try_from(number).unwrap();
            interpret(&program, architecture, number, [0, second, 0, 0, 0, 0])
        };
        let own = target.architecture;
        assert_eq!(on(own, libc::SYS_execve, 0), ALLOW);
        assert_eq!(on(own, libc::SYS_memfd_create, 0), of_memory);
        assert_eq!(on(own, libc::SYS_memfd_create, 1), of_memory);
        // MFD_NOEXEC_SEAL
        assert_eq!(on(own, libc::SYS_memfd_create, 8), ALLOW);
        assert_eq!(on(own ^ 1, libc::SYS_execve, 0), KILL);
    }
}
