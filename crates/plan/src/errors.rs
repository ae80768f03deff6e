//! What an error of the system means for a look-up.

use rustix::io::Errno;

/// The path leads nowhere that this user can reach. A shell takes this for "no such file" and
/// goes on; every other error means that the answer is unknown, and must not be read as absence.
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
