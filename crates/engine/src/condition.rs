//! The conditions of `test` and `[`: the POSIX forms with a single condition, interpreted as shells
//! do.

use std::cmp::Ordering;
use std::os::fd::OwnedFd;

use rustix::fs::{Access, AtFlags, FileType, Stat};

use super::streams::Streams;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionResult {
    True,
    False,
}

impl From<bool> for ConditionResult {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Evaluates the expression without its closing bracket. The number of words decides how they are
/// read.
pub(super) fn evaluate(
    words: &[String],
    directory: &OwnedFd,
    streams: &Streams,
) -> Result<ConditionResult, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let holds = match words.as_slice() {
        [] => false,
        [text] => !text.is_empty(),
        ["!", text] => text.is_empty(),
        [operator, operand] => unary(operator, operand, directory, streams)?,
        [left, operator, right] if is_binary(operator) => binary(left, operator, right, directory)?,
        ["!", operator, operand] => !unary(operator, operand, directory, streams)?,
        ["!", left, operator, right] => !binary(left, operator, right, directory)?,
        _ => return Err("too many arguments".to_owned()),
    };
    Ok(holds.into())
}

/// Makes a stage's path absolute, because the stage's working directory is not that of this
/// process.
pub(super) fn against(cwd: &str, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", cwd.trim_end_matches('/'))
    }
}

fn unary(
    operator: &str,
    operand: &str,
    directory: &OwnedFd,
    streams: &Streams,
) -> Result<bool, String> {
    let stat = |flags| stat(directory, operand, flags);
    let found = |matches: fn(&Stat) -> bool| {
        stat(AtFlags::empty()).is_some_and(|metadata| matches(&metadata))
    };
    let is = |wanted: FileType| stat(AtFlags::empty()).is_some_and(|stat| kind(&stat) == wanted);
    let may = |access| {
        !operand.is_empty()
            && rustix::fs::accessat(directory, operand, access, AtFlags::EACCESS).is_ok()
    };
    Ok(match operator {
        "-n" => !operand.is_empty(),
        "-z" => operand.is_empty(),
        "-e" => found(|_| true),
        "-f" => is(FileType::RegularFile),
        "-d" => is(FileType::Directory),
        "-s" => found(|stat| stat.st_size > 0),
        "-b" => is(FileType::BlockDevice),
        "-c" => is(FileType::CharacterDevice),
        "-p" => is(FileType::Fifo),
        "-S" => is(FileType::Socket),
        "-u" => found(|stat| stat.st_mode & 0o4000 != 0),
        "-g" => found(|stat| stat.st_mode & 0o2000 != 0),
        "-k" => found(|stat| stat.st_mode & 0o1000 != 0),
        "-O" => found(|stat| stat.st_uid == rustix::process::geteuid().as_raw()),
        "-G" => found(|stat| stat.st_gid == rustix::process::getegid().as_raw()),
        "-h" | "-L" => {
            stat(AtFlags::SYMLINK_NOFOLLOW).is_some_and(|stat| kind(&stat) == FileType::Symlink)
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

fn binary(left: &str, operator: &str, right: &str, directory: &OwnedFd) -> Result<bool, String> {
    let file = |path: &str| stat(directory, path, AtFlags::empty());
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
            (Some(one), Some(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
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

fn modified(stat: &Stat) -> (i64, i64) {
    // The types of these fields differ between machines. No file time is longer than this.
    let number = |part: i128| i64::try_from(part).unwrap_or(i64::MAX);
    (
        number(stat.st_mtime.into()),
        number(stat.st_mtime_nsec.into()),
    )
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the status of the file that a stage's path leads to. A relative path is resolved in the
/// directory that was opened for the stage.
fn stat(directory: &OwnedFd, path: &str, flags: AtFlags) -> Option<Stat> {
    if path.is_empty() {
        return None;
    }
    rustix::fs::statat(directory, path, flags).ok()
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
