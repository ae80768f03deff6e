//! The system's table of processes.

use std::collections::HashMap;
use std::fs;

/// One process, as far as terminals are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TerminalRow {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    /// The major and minor number of its terminal; zeros without a terminal.
    pub terminal: (u32, u32),
    /// The group in the foreground of that terminal.
    pub foreground: i32,
}

#[derive(Debug)]
pub(super) struct Table {
    rows: HashMap<i32, TerminalRow>,
    children: HashMap<i32, Vec<i32>>,
}

impl Table {
    pub fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let rows = pids.filter_map(|pid: i32| {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            parse(pid, &String::from_utf8_lossy(&stat))
        });
        let rows: HashMap<i32, TerminalRow> = rows.map(|row| (row.pid, row)).collect();
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for row in rows.values() {
            children.entry(row.parent).or_default().push(row.pid);
        }
        Self { rows, children }
    }

    pub fn parent(&self, pid: i32) -> Option<i32> {
        self.rows.get(&pid).map(|row| row.parent)
    }

    /// The terminal of a process.
    pub fn terminal(&self, pid: i32) -> Option<(u32, u32)> {
        let terminal = self.rows.get(&pid)?.terminal;
        (terminal != (0, 0)).then_some(terminal)
    }

    pub fn children(&self, pid: i32) -> impl Iterator<Item = i32> {
        self.children.get(&pid).into_iter().flatten().copied()
    }

    /// All descendants of a process. The table is no snapshot, so a loop is possible; the iterator
    /// ends anyway.
    pub fn descendants(&self, pid: i32) -> impl Iterator<Item = &TerminalRow> {
        let mut left = self.rows.len();
        let mut next: Vec<i32> = self.children(pid).collect();
        std::iter::from_fn(move || {
            let pid = next.pop()?;
            left = left.checked_sub(1)?;
            next.extend(self.children(pid));
            self.rows.get(&pid)
        })
    }
}

/// Parses `pid (name) state parent group session terminal foreground …`. The name may contain
/// anything.
fn parse(pid: i32, stat: &str) -> Option<TerminalRow> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let mut number = || fields.next()?.parse::<i32>().ok();
    let (parent, group, _session, terminal, foreground) =
        (number()?, number()?, number()?, number()?, number()?);
    let device = terminal.cast_unsigned();
    Some(TerminalRow {
        pid,
        parent,
        group,
        terminal: (
            (device >> 8) & 0xfff,
            (device & 0xff) | ((device >> 12) & 0xf_ff00),
        ),
        foreground,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_riddle_and_a_terminal_has_two_numbers() {
        // /dev/pts/300
        let device = 0x0010_882c;
        let stat = format!("7 (a) b (c) S 3 4 5 {device} 9 4194560 1 0");
        let row = TerminalRow {
            pid: 7,
            parent: 3,
            group: 4,
            terminal: (136, 300),
            foreground: 9,
        };
        assert_eq!(parse(7, &stat), Some(row));
    }
}
