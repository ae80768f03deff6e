//! Remembers the content of files that were read: a file that was not written to since has the same
//! content.
//!
//! A file's times reveal every write, if they are old enough: two writes within one tick of the
//! clock have the same times. They do not reveal writes through a memory mapping that existed
//! before. A caller that must be sure keeps writers away, both when the content is read and when it
//! is recalled.
//!
//! All of this only holds on some file systems, and only while the mount exists: the content of a
//! device can be changed while it is not mounted.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, StatFs, Statx, StatxFlags};
use sha2::{Digest as _, Sha256};

use crate::identity::hex;

/// Longer than a tick of any file system's clock.
const YOUNG: Duration = Duration::from_secs(3);

/// How many files are remembered. Beyond that, the least recently used one is forgotten.
const MOST_KNOWN: usize = 64;

/// The file systems on which no content changes without a change of times, by their number in
/// `statfs`. On all others, content may change under the same times.
const TELLING: [(&str, u64); 2] = [
    // ext2 and ext3 have the same number. The first write through a mapping changes the times.
    ("ext4", 0xef53),
    // As with ext4.
    ("btrfs", 0x9123_683e),
    // Not tmpfs: writes through a mapping that was read first do not change the times. Not
    // overlayfs: it behaves like its upper layer, which can be a tmpfs. Not XFS: a file's owner can
    // exchange its content with another file's without changing the times (XFS_IOC_SWAPEXT).
    // Nothing that another machine or program serves.
];

/// Not in rustix: requests a mount id that is never reused (Linux 6.8).
const MNT_ID_UNIQUE: u32 = 0x4000;

static KNOWN: Mutex<VecDeque<KnownFile>> = Mutex::new(VecDeque::new());

/// Whether another process may have the file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    Possible,
    /// The caller holds a lease on the file.
    KeptAway,
}

/// A file that was read.
#[derive(Debug)]
struct KnownFile {
    mark: FileMark,
    writers: Writers,
    hash: String,
}

/// The marks by which a file is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    /// `None` if the mount's id may have been reused. Such a file is not remembered.
    mount: Option<u64>,
    device: (u32, u32),
    inode: u64,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl FileMark {
    fn of(file: &File) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS
            | StatxFlags::MNT_ID
            | StatxFlags::from_bits_retain(MNT_ID_UNIQUE);
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
        Ok(Self {
            mount: lasting_mount(&found, *ROOT_MOUNT),
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            size: found.stx_size,
            modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
            changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        })
    }

    fn is_young(&self) -> bool {
        let (seconds, rest) = self.changed;
        let nanoseconds = seconds.saturating_mul(1_000_000_000);
        is_young(nanoseconds.saturating_add(i64::from(rest)))
    }
}

/// The id of this process's root mount, as older systems report it.
static ROOT_MOUNT: LazyLock<Option<u64>> = LazyLock::new(|| {
    let found = rustix::fs::statx(CWD, "/", AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    has(&found, StatxFlags::MNT_ID.bits()).then_some(found.stx_mnt_id)
});

/// The id of a mount, if it is never reused. Older systems reuse an id as soon as it is free; only
/// the id of the root mount stays, because this process keeps it busy.
fn lasting_mount(found: &Statx, root: Option<u64>) -> Option<u64> {
    let mount = Some(found.stx_mnt_id);
    if has(found, MNT_ID_UNIQUE) {
        return mount;
    }
    mount.filter(|_| has(found, StatxFlags::MNT_ID.bits()) && mount == root)
}

fn has(found: &Statx, field: u32) -> bool {
    found.stx_mask & field != 0
}

/// Whether a file's times, once they are old enough, reveal every later write.
fn times_tell(file_system: &StatFs) -> bool {
    // Sign and width differ between machines; the number has 32 bits.
    let number = i128::from(file_system.f_type) & 0xffff_ffff;
    TELLING
        .iter()
        .any(|(_, telling)| number == i128::from(*telling))
}

/// Whether the times of the file at a path reveal later writes.
pub(crate) fn times_tell_at(path: &str) -> io::Result<bool> {
    Ok(times_tell(&rustix::fs::statfs(path)?))
}

/// Whether a file was changed so recently that its times would not reveal another change. A time in
/// the future reveals nothing either.
pub fn is_young(changed_ns: i64) -> bool {
    let Ok(nanoseconds) = u64::try_from(changed_ns) else {
        return true;
    };
    let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    changed.elapsed().map_or(true, |age| age < YOUNG)
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownContent {
    pub sha256: String,
    /// Whether the file's times, once they are old enough, reveal every later write.
    pub times_tell: bool,
}

/// The content of a file. It is only read if it is not remembered.
pub fn known_content(file: &File, writers: Writers) -> io::Result<KnownContent> {
    let mark = FileMark::of(file)?;
    let may_be_known = mark.mount.is_some() && !mark.is_young();
    if may_be_known && let Some(sha256) = recall(mark, writers) {
        // Only files whose times reveal writes are remembered.
        return Ok(KnownContent {
            sha256,
            times_tell: true,
        });
    }
    let content = read_content(file)?;
    // A file that was written to while it was read has another mark.
    if may_be_known && content.times_tell && FileMark::of(file)? == mark {
        remember(KnownFile {
            mark,
            writers,
            hash: content.sha256.clone(),
        });
    }
    Ok(content)
}

/// The content of a file, always read.
pub fn read_content(file: &File) -> io::Result<KnownContent> {
    Ok(KnownContent {
        sha256: read_sha256(file)?,
        times_tell: times_tell(&rustix::fs::fstatfs(file)?),
    })
}

/// Limits for hashing one file: a caller that names a file must not keep the host busy.
pub const MAX_HASHED_BYTES: u64 = 1 << 30;
pub const MAX_HASHING_TIME: Duration = Duration::from_secs(5);

/// The error for a file that is too large to be bound by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is larger than 1 GiB, or reading it takes longer than 5 s")]
pub struct HashLimitReached;

impl HashLimitReached {
    /// Whether this limit is the reason why a file could not be read.
    pub fn is_cause_of(error: &io::Error) -> bool {
        let cause = error.get_ref();
        cause.is_some_and(|cause| cause.downcast_ref::<Self>().is_some())
    }
}

/// The hash of a file, always read, within the limits. Reads by position: the descriptor's own
/// offset does not change.
pub fn read_sha256(file: &File) -> io::Result<String> {
    let limit = || io::Error::other(HashLimitReached);
    if file.metadata()?.len() > MAX_HASHED_BYTES {
        return Err(limit());
    }
    let began = Instant::now();
    let mut hash = Sha256::new();
    // Small enough for the processor's cache.
    let mut buffer = vec![0; 32 * 1024];
    let mut offset = 0;
    loop {
        let length = file.read_at(&mut buffer, offset)?;
        if length == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..length]);
        offset += length as u64;
        if offset > MAX_HASHED_BYTES || began.elapsed() > MAX_HASHING_TIME {
            return Err(limit());
        }
    }
}

/// Recalls a hash. A caller that needs a lease does not accept a hash that was computed without
/// one.
fn recall(mark: FileMark, writers: Writers) -> Option<String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |one: &KnownFile| {
        one.mark == mark && (writers == Writers::Possible || one.writers == Writers::KeptAway)
    };
    let place = known.iter().position(fits)?;
    let found = known.remove(place)?;
    let hash = found.hash.clone();
    known.push_back(found);
    Some(hash)
}

fn remember(new: KnownFile) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = |mark: FileMark| (mark.device, mark.inode);
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

    fn known(mark: FileMark, hash: &str) -> KnownFile {
        KnownFile {
            mark,
            writers: Writers::Possible,
            hash: hash.to_owned(),
        }
    }

    fn hash(file: &File) -> String {
        known_content(file, Writers::Possible).unwrap().sha256
    }

    fn grow_old(file: &File) {
        while FileMark::of(file).unwrap().is_young() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn can_be_known(file: &File) -> bool {
        let mark = FileMark::of(file).unwrap();
        mark.mount.is_some() && read_content(file).unwrap().times_tell
    }

    /// A mapping that was there when it was read could have altered it since, without a trace.
    #[test]
    fn a_hash_without_a_lease_is_not_enough_for_a_caller_that_needs_one() {
        let (_named, file) = file("hello");
        let mark = FileMark::of(&file).unwrap();
        remember(known(mark, HELLO));
        assert_eq!(recall(mark, Writers::KeptAway), None);
        let writers = Writers::KeptAway;
        remember(KnownFile {
            writers,
            ..known(mark, HELLO)
        });
        assert_eq!(recall(mark, writers).as_deref(), Some(HELLO));
        assert_eq!(recall(mark, Writers::Possible).as_deref(), Some(HELLO));
    }

    #[test]
    fn a_young_file_is_read_every_time() {
        let (mut named, file) = file("hello");
        assert_eq!(hash(&file), HELLO);
        let mark = FileMark::of(&file).unwrap();
        assert_eq!(recall(mark, Writers::Possible), None);
        named.write_all(b"!").unwrap();
        assert_ne!(hash(&file), HELLO);
    }

    #[test]
    fn a_change_is_another_mark_and_only_the_last_is_kept() {
        let (mut named, file) = file("hello");
        let before = FileMark::of(&file).unwrap();
        remember(known(before, HELLO));
        assert_eq!(recall(before, Writers::Possible).as_deref(), Some(HELLO));
        named.write_all(b"!").unwrap();
        let after = FileMark::of(&file).unwrap();
        assert_ne!(before, after);
        assert_eq!(recall(after, Writers::Possible), None);
        remember(known(after, "other"));
        assert_eq!(recall(before, Writers::Possible), None);
    }

    /// Content of the same length with the old modification time: only the change time tells.
    #[test]
    fn a_file_that_is_known_is_not_taken_for_one_with_other_content() {
        let (named, file) = file("hello");
        grow_old(&file);
        assert_eq!(hash(&file), HELLO);
        let before = FileMark::of(&file).unwrap();
        let expected = can_be_known(&file).then_some(HELLO);
        assert_eq!(recall(before, Writers::Possible).as_deref(), expected);
        let modified = file.metadata().unwrap().modified().unwrap();
        std::fs::write(named.path(), "HELLO").unwrap();
        let writer = File::options().write(true).open(named.path()).unwrap();
        writer.set_modified(modified).unwrap();
        let after = FileMark::of(&file).unwrap();
        assert_eq!((before.size, before.modified), (after.size, after.modified));
        assert_ne!(hash(&file), HELLO);
    }

    #[test]
    fn a_file_of_the_system_is_read_once() {
        let file = File::open("/bin/sh").unwrap();
        let read = read_sha256(&file).unwrap();
        assert_eq!(hash(&file), read);
        let mark = FileMark::of(&file).unwrap();
        // The image may be as young as the test, where it is made for it, or lie on overlayfs.
        let expected = (!mark.is_young() && can_be_known(&file)).then_some(read);
        assert_eq!(recall(mark, Writers::Possible), expected);
    }

    /// A mapping that was read first changes it without a trace.
    #[test]
    fn a_file_in_memory_is_read_every_time_however_old_it_is() {
        let Ok(mut named) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            println!("skipped: there is no /dev/shm");
            return;
        };
        named.write_all(b"hello").unwrap();
        let file = File::open(named.path()).unwrap();
        grow_old(&file);
        let content = known_content(&file, Writers::KeptAway).unwrap();
        assert_eq!(content.sha256, HELLO);
        assert!(!content.times_tell);
        let mark = FileMark::of(&file).unwrap();
        assert_eq!(recall(mark, Writers::Possible), None);
    }

    #[test]
    fn what_was_known_by_another_mount_is_not_known_by_this_one() {
        let (_named, file) = file("hello");
        let before = FileMark::of(&file).unwrap();
        remember(known(before, HELLO));
        let mount = Some(before.mount.unwrap_or_default() + 1);
        let after = FileMark { mount, ..before };
        assert_eq!(recall(after, Writers::Possible), None);
    }

    #[test]
    fn a_mount_is_known_again_by_a_number_that_no_other_gets() {
        let mut found =
            rustix::fs::statx(CWD, "/", AtFlags::empty(), StatxFlags::BASIC_STATS).unwrap();
        found.stx_mnt_id = 7;
        let older = StatxFlags::MNT_ID.bits();
        for (mask, root, expected) in [
            (MNT_ID_UNIQUE, None, Some(7)),
            // Free numbers are given again; the root's is not free while this process lives.
            (older, None, None),
            (older, Some(8), None),
            (older, Some(7), Some(7)),
            (0, Some(7), None),
        ] {
            found.stx_mask = mask;
            assert_eq!(lasting_mount(&found, root), expected, "{mask:x} {root:?}");
        }
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
