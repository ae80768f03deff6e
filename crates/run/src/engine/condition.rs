//! The conditions of `test` and `[`: the POSIX forms with one condition, as shells read them.

use std::cmp::Ordering;
use std::fs::{self, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use rustix::fs::{Access, AtFlags, CWD};

use super::streams::Streams;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    True,
    False,
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The expression without a closing bracket. The number of words decides how they are read.
pub(super) fn evaluate(words: &[String], cwd: &str, streams: &Streams) -> Result<Verdict, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let holds = match words.as_slice() {
        [] => false,
        [text] => !text.is_empty(),
        ["!", text] => text.is_empty(),
        [operator, operand] => unary(operator, operand, cwd, streams)?,
        [left, operator, right] if is_binary(operator) => binary(left, operator, right, cwd)?,
        ["!", operator, operand] => !unary(operator, operand, cwd, streams)?,
        ["!", left, operator, right] => !binary(left, operator, right, cwd)?,
        _ => return Err("too many arguments".to_owned()),
    };
    Ok(holds.into())
}

/// A path of a stage; its own working directory is not this process's.
pub(super) fn against(cwd: &str, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", cwd.trim_end_matches('/'))
    }
}

fn unary(operator: &str, operand: &str, cwd: &str, streams: &Streams) -> Result<bool, String> {
    let found = |matches: fn(&Metadata) -> bool| {
        !operand.is_empty()
            && fs::metadata(against(cwd, operand)).is_ok_and(|metadata| matches(&metadata))
    };
    let may = |access| {
        !operand.is_empty()
            && rustix::fs::accessat(CWD, against(cwd, operand), access, AtFlags::EACCESS).is_ok()
    };
    Ok(match operator {
        "-n" => !operand.is_empty(),
        "-z" => operand.is_empty(),
        "-e" => found(|_| true),
        "-f" => found(Metadata::is_file),
        "-d" => found(Metadata::is_dir),
        "-s" => found(|metadata| metadata.size() > 0),
        "-b" => found(|metadata| metadata.file_type().is_block_device()),
        "-c" => found(|metadata| metadata.file_type().is_char_device()),
        "-p" => found(|metadata| metadata.file_type().is_fifo()),
        "-S" => found(|metadata| metadata.file_type().is_socket()),
        "-u" => found(|metadata| metadata.mode() & 0o4000 != 0),
        "-g" => found(|metadata| metadata.mode() & 0o2000 != 0),
        "-k" => found(|metadata| metadata.mode() & 0o1000 != 0),
        "-O" => found(|metadata| metadata.uid() == rustix::process::geteuid().as_raw()),
        "-G" => found(|metadata| metadata.gid() == rustix::process::getegid().as_raw()),
        "-h" | "-L" => {
            !operand.is_empty()
                && fs::symlink_metadata(against(cwd, operand))
                    .is_ok_and(|metadata| metadata.is_symlink())
        }
        "-r" => may(Access::READ_OK),
        "-w" => may(Access::WRITE_OK),
        "-x" => may(Access::EXEC_OK),
        "-t" => match integer(operand)? {
            0 => is_terminal(&streams.stdin),
            1 => is_terminal(&streams.stdout),
            2 => is_terminal(&streams.stderr),
            _ => false,
        },
        _ => return Err(format!("{operator}: unary operator expected")),
    })
}

fn is_binary(operator: &str) -> bool {
    const BINARY: &[&str] = &[
        "=", "==", "!=", "-eq", "-ne", "-gt", "-ge", "-lt", "-le", "-nt", "-ot", "-ef",
    ];
    BINARY.contains(&operator)
}

fn binary(left: &str, operator: &str, right: &str, cwd: &str) -> Result<bool, String> {
    let file = |path: &str| fs::metadata(against(cwd, path)).ok();
    let newer = |one: &str, other: &str| match (file(one), file(other)) {
        (Some(one), Some(other)) => modified(&one) > modified(&other),
        (one, None) => one.is_some(),
        (None, Some(_)) => false,
    };
    Ok(match operator {
        "=" | "==" => left == right,
        "!=" => left != right,
        "-nt" => newer(left, right),
        "-ot" => newer(right, left),
        "-ef" => match (file(left), file(right)) {
            (Some(one), Some(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
            _ => false,
        },
        _ => {
            let order = integer(left)?.cmp(&integer(right)?);
            match operator {
                "-eq" => order == Ordering::Equal,
                "-ne" => order != Ordering::Equal,
                "-gt" => order == Ordering::Greater,
                "-ge" => order != Ordering::Less,
                "-lt" => order == Ordering::Less,
                "-le" => order != Ordering::Greater,
                _ => return Err(format!("{operator}: binary operator expected")),
            }
        }
    })
}

fn modified(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

fn integer(text: &str) -> Result<i64, String> {
    let digits = text.trim_matches([' ', '\t']);
    digits
        .parse()
        .map_err(|_| format!("{text}: integer expression expected"))
}

fn is_terminal(descriptor: &OwnedFd) -> bool {
    rustix::termios::isatty(descriptor)
}
