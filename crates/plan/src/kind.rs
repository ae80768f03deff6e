//! Determines the kind of a file from its first bytes.

use crate::walk::{file_type, is_same_file};
use interlock_programs::FileKind;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Stat};

/// Enough for every header here, and usually also for the PE header, which may be anywhere.
const HEAD: usize = 512;

/// The kind of the regular file at `canonical`, which must still be the file that `expected`
/// describes. [`FileKind::Unknown`] if it cannot be read or is another file by now.
///
/// This function never blocks and has no side effects: a FIFO or device in the file's place is
/// opened without blocking, does not become the controlling terminal, and is not read.
pub(crate) fn kind(canonical: &[u8], expected: &Stat) -> FileKind {
    let Some(file) = open(canonical) else {
        return FileKind::Unknown;
    };
    let is_expected = rustix::fs::fstat(&file).is_ok_and(|stat| {
        file_type(&stat) == FileType::RegularFile && is_same_file(&stat, expected)
    });
    if !is_expected {
        return FileKind::Unknown;
    }
    let mut head = [0; HEAD];
    let length = read_at(&file, &mut head, 0);
    kind_of(&head[..length], |offset| {
        let mut signature = [0; 4];
        (read_at(&file, &mut signature, offset) == 4).then_some(signature)
    })
}

/// The kernel reads this much of the first line; longer lines are not followed.
const SCRIPT_LINE: usize = 256;

/// The text after `#!` in the regular file at `canonical`, as far as the kernel reads it.
pub(crate) fn script_line(canonical: &[u8]) -> Option<String> {
    let file = open(canonical)?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if file_type(&stat) != FileType::RegularFile {
        return None;
    }
    let mut head = [0; SCRIPT_LINE];
    let length = read_at(&file, &mut head, 0);
    let line = head[..length].strip_prefix(b"#!")?;
    let line = match line.iter().position(|byte| *byte == b'\n') {
        Some(end) => &line[..end],
        // The kernel refuses or cuts a line without an end here.
        None if length == SCRIPT_LINE => return None,
        None => line,
    };
    let line = std::str::from_utf8(line).ok()?;
    Some(line.trim_matches([' ', '\t']).to_owned())
}

fn open(path: &[u8]) -> Option<OwnedFd> {
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Decides by the first bytes. `read_four` reads four bytes at a later offset.
fn kind_of(head: &[u8], read_four: impl Fn(u64) -> Option<[u8; 4]>) -> FileKind {
    if head.starts_with(b"#!") {
        return FileKind::Script;
    }
    let native = match head.first_chunk() {
        // ELF; Mach-O for 32 and 64 bits, in either byte order.
        Some(b"\x7fELF" | [0xfe, 0xed, 0xfa, 0xce | 0xcf] | [0xce | 0xcf, 0xfa, 0xed, 0xfe]) => {
            true
        }
        Some([0xca, 0xfe, 0xba, 0xbe]) => is_universal_mach_o(head),
        Some([b'M', b'Z', ..]) => is_portable_executable(head, read_four),
        _ => false,
    };
    if native {
        FileKind::Native
    } else {
        FileKind::Unknown
    }
}

/// Whether this is a universal Mach-O. A Java class starts with the same bytes. They are followed
/// by the number of architectures or by the class file's version, whose major part was never below
/// 45.
fn is_universal_mach_o(head: &[u8]) -> bool {
    four_at(head, 4).is_some_and(|bytes| (1..45).contains(&u32::from_be_bytes(bytes)))
}

/// A plain DOS program does not count. The header that it points to decides.
fn is_portable_executable(head: &[u8], read_four: impl Fn(u64) -> Option<[u8; 4]>) -> bool {
    let Some(pointer) = four_at(head, 0x3c).map(u32::from_le_bytes) else {
        return false;
    };
    let within_head = usize::try_from(pointer)
        .ok()
        .and_then(|at| four_at(head, at));
    within_head.or_else(|| read_four(pointer.into())) == Some(*b"PE\0\0")
}

fn four_at(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The number of bytes read. An error counts as the end.
fn read_at(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> usize {
    rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buffer, offset)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::kind_of;
    use interlock_programs::FileKind::{self, Native, Script, Unknown};

    fn kind_of_whole(bytes: &[u8]) -> FileKind {
        let head = &bytes[..bytes.len().min(super::HEAD)];
        kind_of(head, |offset| {
            bytes
                .get(usize::try_from(offset).ok()?..)?
                .first_chunk()
                .copied()
        })
    }

    /// A DOS header whose PE header is at `offset`, and which ends after it.
    fn portable_executable(offset: u32) -> Vec<u8> {
        let mut bytes = vec![0; offset as usize];
        bytes.resize(bytes.len().max(0x40), 0);
        bytes[..2].copy_from_slice(b"MZ");
        bytes[0x3c..0x40].copy_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(b"PE\0\0");
        bytes
    }

    #[test]
    fn the_first_bytes_decide_the_kind() {
        let rows: [(&[u8], FileKind); 20] = [
            (b"\x7fELF\x02\x01\x01", Native),
            (b"\x7fELF", Native),
            (b"\x7fEL", Unknown),
            (b"\xfe\xed\xfa\xce\0", Native),
            (b"\xfe\xed\xfa\xcf\0", Native),
            (b"\xce\xfa\xed\xfe\0", Native),
            (b"\xcf\xfa\xed\xfe\0", Native),
            (b"\xca\xfe\xba\xbe\0\0\0\x02", Native),
            (b"\xca\xfe\xba\xbe\0\0\0\x2c", Native),
            (b"\xca\xfe\xba\xbe\0\0\0\x2d", Unknown),
            (b"\xca\xfe\xba\xbe\0\0\0\x41", Unknown),
            (b"\xca\xfe\xba\xbe\xff\xff\0\x41", Unknown),
            (b"\xca\xfe\xba\xbe\0\0\0\0", Unknown),
            (b"\xca\xfe\xba\xbe", Unknown),
            (b"#!/bin/sh\n", Script),
            (b"#!", Script),
            (b"#", Unknown),
            (b" #!/bin/sh\n", Unknown),
            (b"MZ", Unknown),
            (b"", Unknown),
        ];
        for (bytes, expected) in rows {
            assert_eq!(kind_of_whole(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn a_dos_header_counts_only_with_the_pe_header_it_points_to() {
        for offset in [0x40, 0x80, 508, 509, 511, 512, 513, 70_000] {
            let mut bytes = portable_executable(offset);
            assert_eq!(kind_of_whole(&bytes), Native, "{offset}");
            bytes[offset as usize] = b'N';
            assert_eq!(kind_of_whole(&bytes), Unknown, "{offset}");
            bytes.truncate(offset as usize + 2);
            assert_eq!(kind_of_whole(&bytes), Unknown, "{offset}, cut");
        }
        let mut bytes = portable_executable(0x80);
        bytes[0x3c..0x40].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(kind_of_whole(&bytes), Unknown);
    }
}
