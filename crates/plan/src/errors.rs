//! The meaning of a system error for a lookup.

use rustix::io::Errno;

/// Whether the path leads nowhere that this user can reach. A shell treats this as "no such file"
/// and continues. Every other error means that the answer is unknown, and must not count as
/// absence.
pub(crate) fn is_unreachable(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG
    )
}

/// The error as a lower-case fragment that follows "cannot be read:".
pub(crate) fn reason(error: Errno) -> String {
    match error {
        Errno::NOENT => "it does not exist".to_owned(),
        Errno::NOTDIR => "a part of the path is not a directory".to_owned(),
        Errno::ACCESS => "permission denied".to_owned(),
        Errno::LOOP => "too many symbolic links".to_owned(),
        Errno::NAMETOOLONG => "the path is too long".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}
