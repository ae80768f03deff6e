//! Whether a process is blocked in reading a session's input.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use interlock_transcript::SessionRecord;

use super::descriptors;
use super::table::TerminalRow;

/// The device `/dev/tty`, which means each process's own terminal.
const OWN_TERMINAL: (u32, u32) = (5, 0);

/// The major number of pseudo-terminals.
const PSEUDO_TERMINALS: u32 = 136;

/// The input of a session, as the reading processes see it.
#[derive(Debug)]
pub(super) enum SessionInput {
    Terminal((u32, u32)),
    /// Links such as `pipe:[4711]`. One of them is the input.
    Pipes(Vec<PathBuf>),
}

impl SessionInput {
    /// The input according to the session's record and the terminal of the process that serves it.
    pub fn recorded(session: &SessionRecord, terminal: Option<(u32, u32)>) -> Option<Self> {
        if session.pty {
            return terminal.map(Self::Terminal);
        }
        let pipe = session.input_pipe?;
        Some(Self::Pipes(vec![PathBuf::from(format!("pipe:[{pipe}]"))]))
    }

    /// The input according to the descriptors of the serving process, if they can be read.
    pub fn held_by(holder: i32, pty: bool) -> Option<Self> {
        if !pty {
            let pipes = descriptors(holder)
                .filter(|(number, target)| is_pipe(target) && access(holder, *number) == Some(1))
                .map(|(_, target)| target);
            return Some(Self::Pipes(pipes.collect()));
        }
        descriptors(holder)
            .filter(|(_, target)| target.ends_with("ptmx"))
            .find_map(|(number, _)| {
                let info = descriptor_info(holder, number)?;
                let index = info
                    .lines()
                    .find_map(|line| line.strip_prefix("tty-index:"));
                let index = index?.trim().parse().ok()?;
                Some(Self::Terminal((PSEUDO_TERMINALS, index)))
            })
    }

    /// Whether the process could read the input. The kernel stops processes that read in the
    /// background of a terminal.
    pub fn is_in_foreground(&self, row: &TerminalRow) -> bool {
        match self {
            Self::Terminal(device) => row.terminal == *device && row.group == row.foreground,
            Self::Pipes(_) => true,
        }
    }

    /// Whether a thread of the process waits for this input and nothing else.
    pub fn is_awaited_by(&self, pid: i32) -> bool {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        let mut threads = threads.into_iter().flatten().flatten();
        threads.any(|thread| {
            let thread = thread.path();
            match fs::read_to_string(thread.join("syscall")) {
                Ok(call) => self.is_call_for(pid, &call).unwrap_or(false),
                // Fewer processes may read `syscall` than `wchan`, the function in which a thread
                // sleeps.
                Err(_) => self.is_sleep_for(pid, &thread).unwrap_or(false),
            }
        })
    }

    fn is_call_for(&self, pid: i32, call: &str) -> Option<bool> {
        let mut words = call.split_ascii_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (first, second, third) = (argument()?, argument()?, argument()?);
        let kind = CALLS.iter().find(|(known, _)| *known == number)?.1;
        let awaited = match kind {
            BlockingCall::Read => vec![i32::try_from(first).ok()?],
            BlockingCall::Poll => polled(pid, first, second)?,
            BlockingCall::Select => {
                let written = selected(pid, first, third)?;
                if !written.is_empty() {
                    return None;
                }
                selected(pid, first, second)?
            }
        };
        let is_input = |number: &i32| self.leads_to_input(pid, *number);
        Some(!awaited.is_empty() && awaited.iter().all(is_input))
    }

    /// Decides by the kernel function in which the thread sleeps. Counts only if the process holds
    /// nothing else that it could be reading in that function.
    fn is_sleep_for(&self, pid: i32, thread: &Path) -> Option<bool> {
        let place = fs::read_to_string(thread.join("wchan")).ok()?;
        let places = match self {
            Self::Terminal(_) => ["n_tty_read", "wait_woken"],
            Self::Pipes(_) => ["pipe_read", "anon_pipe_read"],
        };
        if !places.contains(&place.as_str()) {
            return None;
        }
        let mut holds = false;
        for (number, target) in descriptors(pid) {
            if self.leads_to_input(pid, number) {
                holds = true;
            } else if self.sleeps_alike(pid, number, &target) {
                return None;
            }
        }
        Some(holds)
    }

    /// Whether a thread that reads this other descriptor would sleep in the same kernel function.
    fn sleeps_alike(&self, pid: i32, number: i32, target: &Path) -> bool {
        match self {
            // Reads of ordinary files and pipes sleep in other functions.
            Self::Terminal(_) if target.starts_with("/dev") => target != "/dev/null",
            Self::Terminal(_) => !target.is_absolute() && !is_pipe(target),
            Self::Pipes(_) => is_pipe(target) && access(pid, number) != Some(1),
        }
    }

    fn leads_to_input(&self, pid: i32, number: i32) -> bool {
        let path = PathBuf::from(format!("/proc/{pid}/fd/{number}"));
        match self {
            Self::Terminal(own) => fs::metadata(path).is_ok_and(|target| {
                let device = target.rdev();
                let device = (rustix::fs::major(device), rustix::fs::minor(device));
                device == *own || device == OWN_TERMINAL
            }),
            Self::Pipes(pipes) => fs::read_link(path).is_ok_and(|target| pipes.contains(&target)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum BlockingCall {
    /// The first argument is the descriptor.
    Read,
    /// A list of descriptors and its length.
    Poll,
    /// The highest descriptor plus one, then the sets to read and to write.
    Select,
}

/// The numbers of the system calls in which programs wait for input.
const CALLS: &[(i64, BlockingCall)] = if cfg!(target_arch = "x86_64") {
    &[
        (0, BlockingCall::Read),
        (19, BlockingCall::Read), // readv
        (7, BlockingCall::Poll),
        (271, BlockingCall::Poll), // ppoll
        (23, BlockingCall::Select),
        (270, BlockingCall::Select), // pselect6
    ]
} else if cfg!(any(target_arch = "aarch64", target_arch = "riscv64")) {
    &[
        (63, BlockingCall::Read),
        (65, BlockingCall::Read),   // readv
        (73, BlockingCall::Poll),   // ppoll
        (72, BlockingCall::Select), // pselect6
    ]
} else {
    &[]
};

/// The descriptors that `poll` waits for; `None` if it waits for anything but input.
fn polled(pid: i32, address: u64, count: u64) -> Option<Vec<i32>> {
    const ENTRY: usize = 8;
    const MOST: usize = 64;
    const READABLE: u16 = 0x1;
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST)?;
    let list = memory(pid, address, count * ENTRY)?;
    let (entries, _) = list.as_chunks::<ENTRY>();
    let mut found = Vec::new();
    for [a, b, c, d, e, f, ..] in entries {
        let number = i32::from_ne_bytes([*a, *b, *c, *d]);
        let events = u16::from_ne_bytes([*e, *f]);
        if number < 0 {
            continue;
        }
        if events & READABLE == 0 {
            return None;
        }
        found.push(number);
    }
    Some(found)
}

/// The members of a set of `select`.
fn selected(pid: i32, count: u64, address: u64) -> Option<Vec<i32>> {
    const MOST: u64 = 1024;
    if address == 0 {
        return Some(Vec::new());
    }
    let count = usize::try_from(count.min(MOST)).ok()?;
    // The set consists of machine words, whose bytes are in order on the machines listed above.
    let set = memory(pid, address, count.div_ceil(64) * 8)?;
    let is_member = |number: &usize| set[number / 8] & (1 << (number % 8)) != 0;
    let members = (0..count).filter(is_member);
    Some(
        members
            .filter_map(|number| i32::try_from(number).ok())
            .collect(),
    )
}

fn memory(pid: i32, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(bytes)
}

fn is_pipe(target: &Path) -> bool {
    target
        .to_str()
        .is_some_and(|text| text.starts_with("pipe:"))
}

/// The access mode of a descriptor: 0 to read, 1 to write, 2 for both.
fn access(pid: i32, number: i32) -> Option<u32> {
    let info = descriptor_info(pid, number)?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(u32::from_str_radix(flags.trim(), 8).ok()? & 0o3)
}

fn descriptor_info(pid: i32, number: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()
}

#[cfg(test)]
mod tests;
