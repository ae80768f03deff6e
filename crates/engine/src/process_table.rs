//! The system's list of processes, read from `/proc`.

use std::fs;
use std::io::Read as _;

use rustix::process::Pid;

/// Length to which a command is shortened for display.
const SHOWN_CHARACTERS: usize = 200;

/// One process, with what is needed to tell which processes belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    pub pid: i32,
    pub parent: i32,
    pub session: i32,
    /// The start time in clock ticks since the system started. Together with the number, it
    /// identifies one process.
    pub started: u64,
    pub name: String,
    state: u8,
    flags: u32,
    threads: u32,
}

/// The kernel's `PF_EXITING`.
const EXITING: u32 = 4;

impl ProcessRow {
    /// Whether the process has ended and only awaits collection. The state is that of the first
    /// thread: a process whose first thread has ended is alive as long as other threads continue.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Whether the process is ending or has ended, so that it executes no code of its program
    /// anymore. Its descriptors may still be open, and cannot be read.
    pub fn is_ending(&self) -> bool {
        self.is_zombie() || (self.flags & EXITING != 0 && self.threads <= 1)
    }
}

/// Reads all processes. This is no snapshot of one moment: a process that moves meanwhile may be
/// missed.
pub(crate) fn read() -> Vec<ProcessRow> {
    let Ok(directory) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    directory
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(row)
        .collect()
}

/// Returns the children of all threads of a process, including ended ones. `None` if the kernel
/// does not keep these lists. Each list is read at one moment, so an empty list proves that there
/// was no child then.
pub(crate) fn children(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        let numbers = listed.split_ascii_whitespace();
        found.extend(numbers.filter_map(|number| number.parse::<i32>().ok()));
    }
    Some(found)
}

/// Whether the process lives and is still the same process.
pub(super) fn still_there(seen: &ProcessRow) -> bool {
    row(seen.pid).is_some_and(|now| now.started == seen.started && !now.is_zombie())
}

/// Whether this number still belongs to the process that started then, running or ended.
pub(crate) fn is_same(pid: i32, started: u64) -> bool {
    row(pid).is_some_and(|now| now.started == started)
}

/// Whether the process leads its session.
pub(super) fn leads_session(pid: Pid) -> bool {
    row(pid.as_raw_pid()).is_some_and(|row| row.session == row.pid)
}

/// Returns the arguments of a process, shortened, or its name if it has none.
pub(super) fn command(row: &ProcessRow) -> String {
    let arguments = fs::read(format!("/proc/{}/cmdline", row.pid)).unwrap_or_default();
    let text = String::from_utf8_lossy(&arguments);
    let text = text.trim_end_matches('\0');
    if text.is_empty() {
        return row.name.clone();
    }
    text.chars()
        .take(SHOWN_CHARACTERS)
        .map(|character| match character {
            '\0' => ' ',
            other => other,
        })
        .collect()
}

/// Reads one process. Its parent is 0 if the parent is not visible from here.
pub fn row(pid: i32) -> Option<ProcessRow> {
    // The line is never longer: some fifty numbers and a short name. One read returns all of it.
    let mut buffer = [0; 2048];
    let mut file = fs::File::open(format!("/proc/{pid}/stat")).ok()?;
    let length = file.read(&mut buffer).ok()?;
    parse(pid, &String::from_utf8_lossy(buffer.get(..length)?))
}

/// Parses `pid (name) state parent group session …`. The name may contain anything, even
/// parentheses.
fn parse(pid: i32, stat: &str) -> Option<ProcessRow> {
    const FLAGS: usize = 6;
    const THREADS: usize = 17;
    const STARTED: usize = 19;
    let (front, back) = stat.rsplit_once(')')?;
    let (_, name) = front.split_once('(')?;
    let fields: Vec<&str> = back.split_ascii_whitespace().collect();
    Some(ProcessRow {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(STARTED)?.parse().ok()?,
        name: name.to_owned(),
        state: *fields.first()?.as_bytes().first()?,
        flags: fields.get(FLAGS)?.parse().ok()?,
        threads: fields.get(THREADS)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_riddle() {
        let stat = "7 (a) b (c) S 3 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        let row = parse(7, stat).unwrap();
        assert_eq!((row.parent, row.session, row.started), (3, 5, 4242));
        assert_eq!(row.name, "a) b (c");
        assert!(!row.is_zombie());
    }

    #[test]
    fn a_process_lives_while_one_of_its_threads_does() {
        let of = |state: &str, flags: u32, threads: u32| {
            let stat =
                format!("7 (a) {state} 3 7 5 0 -1 {flags} 1 0 0 0 0 0 0 0 20 0 {threads} 0 42 0 0");
            let row = parse(7, &stat).unwrap();
            (row.is_zombie(), row.is_ending())
        };
        assert_eq!(of("Z", 4_194_308, 1), (true, true));
        assert_eq!(of("Z", 4_194_308, 2), (false, false));
        assert_eq!(of("R", 4_194_308, 1), (false, true));
        assert_eq!(of("R", 4_194_308, 2), (false, false));
        assert_eq!(of("S", 4_194_560, 1), (false, false));
    }

    #[test]
    fn children_of_every_thread_are_listed() {
        let me = i32::try_from(std::process::id()).unwrap();
        let mut command = std::process::Command::new("/bin/sleep");
        let started = std::thread::spawn(move || command.arg("60").spawn().unwrap());
        let mut child = started.join().unwrap();
        let listed = children(me);
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(listed.is_some_and(|listed| listed.contains(&pid)));
        assert!(children(me).is_some_and(|listed| !listed.contains(&pid)));
    }

    #[test]
    fn this_process_is_in_the_table() {
        let me = i32::try_from(std::process::id()).unwrap();
        let row = read().into_iter().find(|row| row.pid == me).unwrap();
        assert!(still_there(&row));
        assert!(!command(&row).is_empty());
    }
}
