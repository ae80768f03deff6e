//! The content of files that were read before: who has not been written to since has the same.
//!
//! A file's times tell of every write, if they are old enough: two writes within one tick of the
//! clock have the same. They do not tell of writes through a memory mapping that was there before:
//! who must be sure keeps writers away, both when the content is read and when it is known again.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::identity::hex;

/// Longer than any file system's clock stands still.
const YOUNG: Duration = Duration::from_secs(3);

/// So many files are remembered; the one that was not asked for the longest time goes.
const MOST_KNOWN: usize = 64;

static KNOWN: Mutex<VecDeque<Known>> = Mutex::new(VecDeque::new());

/// Whether somebody may have the file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    Possible,
    /// The caller has a lease on the file.
    KeptAway,
}

/// A file that was read.
#[derive(Debug)]
struct Known {
    mark: Mark,
    writers: Writers,
    hash: String,
}

/// By what a file is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Whether a file was changed so lately that its times do not tell of another change, or will be: a
/// time that is yet to come says nothing either.
pub fn is_young(changed_ns: i64) -> bool {
    let Ok(nanoseconds) = u64::try_from(changed_ns) else {
        return true;
    };
    let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    changed.elapsed().map_or(true, |age| age < YOUNG)
}

/// The hash of a file's content, which is read only if it is not known.
pub fn known_sha256(file: &File, writers: Writers) -> io::Result<String> {
    let metadata = file.metadata()?;
    let mark = Mark::of(&metadata);
    let (seconds, rest) = mark.changed;
    let changed_ns = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    if is_young(changed_ns) {
        return read_sha256(file);
    }
    if let Some(hash) = recall(mark, writers) {
        return Ok(hash);
    }
    let hash = read_sha256(file)?;
    // What was written to while it was read has another mark.
    if Mark::of(&file.metadata()?) == mark {
        remember(Known {
            mark,
            writers,
            hash: hash.clone(),
        });
    }
    Ok(hash)
}

/// The same, read in any case. By position: the descriptor's own offset stays where it is.
pub fn read_sha256(file: &File) -> io::Result<String> {
    let mut hash = Sha256::new();
    // Small enough to stay close to the processor.
    let mut buffer = vec![0; 32 * 1024];
    let mut offset = 0;
    loop {
        let length = file.read_at(&mut buffer, offset)?;
        if length == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..length]);
        offset += length as u64;
    }
}

/// Who must be sure is not content with what somebody read who need not be.
fn recall(mark: Mark, writers: Writers) -> Option<String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |one: &Known| {
        one.mark == mark && (writers == Writers::Possible || one.writers == Writers::KeptAway)
    };
    let place = known.iter().position(fits)?;
    let found = known.remove(place)?;
    let hash = found.hash.clone();
    known.push_back(found);
    Some(hash)
}

fn remember(new: Known) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = |mark: Mark| (mark.device, mark.inode);
    known.retain(|one| file(one.mark) != file(new.mark));
    while known.len() >= MOST_KNOWN {
        known.pop_front();
    }
    known.push_back(new);
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    /// A file that was written a moment ago. Its change time cannot be set, so that most of what
    /// depends on age is asked of the parts.
    fn file(content: &str) -> (tempfile::NamedTempFile, File) {
        let mut named = tempfile::NamedTempFile::new().unwrap();
        named.write_all(content.as_bytes()).unwrap();
        let file = File::open(named.path()).unwrap();
        (named, file)
    }

    fn known(mark: Mark, hash: &str) -> Known {
        Known {
            mark,
            writers: Writers::Possible,
            hash: hash.to_owned(),
        }
    }

    /// A mapping that was there when it was read could have altered it since, without a trace.
    #[test]
    fn what_was_read_while_somebody_could_write_is_not_enough_for_who_must_be_sure() {
        let (_named, file) = file("hello");
        let mark = Mark::of(&file.metadata().unwrap());
        remember(known(mark, HELLO));
        assert_eq!(recall(mark, Writers::KeptAway), None);
        let writers = Writers::KeptAway;
        remember(Known {
            writers,
            ..known(mark, HELLO)
        });
        assert_eq!(recall(mark, writers).as_deref(), Some(HELLO));
        assert_eq!(recall(mark, Writers::Possible).as_deref(), Some(HELLO));
    }

    #[test]
    fn a_young_file_is_read_every_time() {
        let (mut named, file) = file("hello");
        assert_eq!(known_sha256(&file, Writers::Possible).unwrap(), HELLO);
        let mark = Mark::of(&file.metadata().unwrap());
        assert_eq!(recall(mark, Writers::Possible), None);
        named.write_all(b"!").unwrap();
        assert_ne!(known_sha256(&file, Writers::Possible).unwrap(), HELLO);
    }

    #[test]
    fn a_change_is_another_mark_and_only_the_last_is_kept() {
        let (mut named, file) = file("hello");
        let before = Mark::of(&file.metadata().unwrap());
        remember(known(before, HELLO));
        assert_eq!(recall(before, Writers::Possible).as_deref(), Some(HELLO));
        named.write_all(b"!").unwrap();
        let after = Mark::of(&file.metadata().unwrap());
        assert_ne!(before, after);
        assert_eq!(recall(after, Writers::Possible), None);
        remember(known(after, "other"));
        assert_eq!(recall(before, Writers::Possible), None);
    }

    /// Content of the same length with the old modification time: only the change time tells.
    #[test]
    fn a_file_that_is_known_is_not_taken_for_one_with_other_content() {
        let (named, file) = file("hello");
        let changed = || {
            let metadata = file.metadata().unwrap();
            metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec()
        };
        while is_young(changed()) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(known_sha256(&file, Writers::Possible).unwrap(), HELLO);
        let before = Mark::of(&file.metadata().unwrap());
        assert_eq!(recall(before, Writers::Possible).as_deref(), Some(HELLO));
        let modified = file.metadata().unwrap().modified().unwrap();
        std::fs::write(named.path(), "HELLO").unwrap();
        let writer = File::options().write(true).open(named.path()).unwrap();
        writer.set_modified(modified).unwrap();
        let after = Mark::of(&file.metadata().unwrap());
        assert_eq!((before.size, before.modified), (after.size, after.modified));
        assert_ne!(known_sha256(&file, Writers::Possible).unwrap(), HELLO);
    }

    #[test]
    fn a_file_of_the_system_is_read_once() {
        let file = File::open("/bin/sh").unwrap();
        let read = read_sha256(&file).unwrap();
        assert_eq!(known_sha256(&file, Writers::Possible).unwrap(), read);
        // The image may be as young as the test, where it is made for it.
        let metadata = file.metadata().unwrap();
        let changed = metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec();
        let expected = (!is_young(changed)).then_some(read);
        assert_eq!(recall(Mark::of(&metadata), Writers::Possible), expected);
    }

    #[test]
    fn times_to_come_and_times_before_all_times_say_nothing() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap().as_nanos()).unwrap();
        assert!(is_young(now));
        assert!(is_young(now + 60_000_000_000));
        assert!(is_young(-1));
        assert!(!is_young(now - 60_000_000_000));
    }
}
