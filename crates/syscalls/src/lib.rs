//! The system calls that the processes of a sandbox may make: the filter that each process carries
//! from its first instruction to its end.
//!
//! Read `table` (the handling of each call, and why), then `assembler` (how this becomes a program
//! for the kernel). Nothing in here calls the kernel: [`program`] is a value, which
//! `interlock_engine` installs.

#![forbid(unsafe_code)]

mod assembler;
mod table;
#[cfg(test)]
mod tests;
mod unseparated;

use interlock_plan::UnixSockets;

pub use assembler::FilterInstruction;
use assembler::{FilterTarget, assemble, assemble_asking, assemble_beside};

#[cfg(target_arch = "x86_64")]
const TARGET: Option<FilterTarget> = Some(FilterTarget {
    architecture: 0xc000_003e,
    has_x32: true,
});
#[cfg(target_arch = "aarch64")]
const TARGET: Option<FilterTarget> = Some(FilterTarget {
    architecture: 0xc000_00b7,
    has_x32: false,
});
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const TARGET: Option<FilterTarget> = None;

/// The reasons for refusing calls, one per group of calls, for `interlock sandbox explain`.
pub fn refusal_reasons() -> Vec<&'static str> {
    let mut reasons: Vec<&str> = table::REFUSED.iter().map(|row| row.reason).collect();
    reasons.dedup();
    reasons
}

/// Returns the program, ready for the kernel. `None` on an architecture without a table, where no
/// sandbox is available.
pub fn program(sockets: UnixSockets, files: MemoryFiles) -> Option<Vec<FilterInstruction>> {
    Some(assemble(TARGET?, &table::blocks(sockets, files)))
}

/// Returns the program by which the kernel asks before a process starts another program.
pub fn program_about_execution() -> Option<Vec<FilterInstruction>> {
    let numbers = [libc::SYS_execve, libc::SYS_execveat];
    let numbers = numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    Some(assemble_asking(TARGET?, &numbers))
}

/// Returns the program that is installed beside the whole one if no namespace confines a run: it
/// refuses calls that would reach the host's network, memory and processes.
pub fn program_without_namespaces() -> Option<Vec<FilterInstruction>> {
    Some(assemble_beside(TARGET?, &unseparated::blocks()))
}

/// Returns the program that accompanies the filter and the rules of a run on the host, without the
/// whole one: calls of other architectures and of x32, which the filter would not see, end the
/// process. With [`MemoryFiles::NeverExecuted`], it also prevents making files in memory that could
/// be executed.
pub fn program_beside_host_tree(files: MemoryFiles) -> Option<Vec<FilterInstruction>> {
    Some(assemble_beside(TARGET?, &[table::memory_files(files)]))
}

/// Returns the program by which the kernel asks before a process changes the attributes of a file.
pub fn program_about_attributes() -> Option<Vec<FilterInstruction>> {
    Some(assemble_asking(TARGET?, &unseparated::attribute_calls()))
}

/// How files in memory are handled, which have no path that an execution rule could name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFiles {
    Executable,
    /// Such a file can only be made if it is sealed against execution.
    NeverExecuted,
}
