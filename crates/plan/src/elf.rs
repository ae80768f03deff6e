//! Reads which files the system loads with an ELF file: its dynamic loader and its libraries.
//!
//! The reader is total: input that cannot be followed is an error, never a guess. It reads a
//! bounded part of the file, stores no more than it reads, and follows no pointer twice.

use std::fs::File;
use std::io;

/// No real program has longer tables, segments or strings.
const MAX_SEGMENTS: usize = 512;
const MAX_DYNAMIC_BYTES: u64 = 1 << 20;
const MAX_STRING_BYTES: usize = 4096;
const MAX_NAMES: usize = 1024;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
/// These tags also name libraries that are loaded.
const DT_AUDIT: u64 = 0x6fff_fefc;
const DT_DEPAUDIT: u64 = 0x6fff_fefb;
const DT_AUXILIARY: u64 = 0x7fff_fffd;
const DT_FILTER: u64 = 0x7fff_ffff;

/// The files that are loaded with a program or library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ElfFacts {
    /// `PT_INTERP`: the dynamic loader.
    pub interpreter: Option<String>,
    /// Libraries by name or path, in order.
    pub needed: Vec<String>,
    /// `DT_RPATH`, directories joined by `:`.
    pub rpath: Option<String>,
    /// `DT_RUNPATH`, likewise. If it is present, the loader ignores `rpath`.
    pub runpath: Option<String>,
}

/// Why a file cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElfError {
    /// The file is not ELF.
    Other,
    /// The byte order or word size differs from every program of this machine.
    Foreign,
    Malformed,
}

/// A source of bytes: a file, or memory in tests.
pub(crate) trait ReadAt {
    /// Returns the number of bytes that could be read; fewer than requested only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut length = 0;
        while length < buffer.len() {
            let Some(at) = offset.checked_add(length as u64) else {
                break;
            };
            match std::os::unix::fs::FileExt::read_at(self, &mut buffer[length..], at)? {
                0 => break,
                read => length += read,
            }
        }
        Ok(length)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let rest = rest.unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

/// Reads the facts of a file.
pub(crate) fn read(file: &(impl ReadAt + ?Sized)) -> Result<ElfFacts, ElfError> {
    let mut head = [0; 64];
    let length = file
        .read_at(&mut head, 0)
        .map_err(|_| ElfError::Malformed)?;
    if !head[..length].starts_with(b"\x7fELF") {
        return Err(ElfError::Other);
    }
    let class = match head[4] {
        1 => Class::Bits32,
        2 => Class::Bits64,
        _ => return Err(ElfError::Malformed),
    };
    let native_order = if cfg!(target_endian = "little") { 1 } else { 2 };
    match head[5] {
        order if order == native_order => {}
        1 | 2 => return Err(ElfError::Foreign),
        _ => return Err(ElfError::Malformed),
    }
    let elf = Elf { file, class };
    let segments = elf.segments(&head[..length])?;
    let mut facts = ElfFacts::default();
    if let Some(segment) = segments.iter().find(|segment| segment.kind == PT_INTERP) {
        // The kernel reads the interpreter by its offset in the file.
        facts.interpreter = Some(elf.string(segment.offset)?);
    }
    if let Some(dynamic) = segments.iter().find(|segment| segment.kind == PT_DYNAMIC) {
        elf.dynamic(dynamic, &segments, &mut facts)?;
    }
    Ok(facts)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Bits32,
    Bits64,
}

#[derive(Debug, Clone, Copy)]
struct ElfSegment {
    kind: u32,
    offset: u64,
    address: u64,
    file_size: u64,
}

struct Elf<'a, F: ?Sized> {
    file: &'a F,
    class: Class,
}

impl<F: ReadAt + ?Sized> Elf<'_, F> {
    fn segments(&self, head: &[u8]) -> Result<Vec<ElfSegment>, ElfError> {
        let (table, size_at, entry) = match self.class {
            Class::Bits32 => (u64::from(four(head, 28)?), 42, 32),
            Class::Bits64 => (eight(head, 32)?, 54, 56),
        };
        let entry_size = usize::from(two(head, size_at)?);
        let count = usize::from(two(head, size_at + 2)?);
        if count == 0 {
            return Ok(Vec::new());
        }
        if entry_size != entry || count > MAX_SEGMENTS {
            return Err(ElfError::Malformed);
        }
        let bytes = self.exactly(table, count * entry)?;
        bytes
            .chunks_exact(entry)
            .map(|row| self.segment(row))
            .collect()
    }

    fn segment(&self, row: &[u8]) -> Result<ElfSegment, ElfError> {
        let wide = |at: usize| four(row, at).map(u64::from);
        Ok(match self.class {
            Class::Bits32 => ElfSegment {
                kind: four(row, 0)?,
                offset: wide(4)?,
                address: wide(8)?,
                file_size: wide(16)?,
            },
            Class::Bits64 => ElfSegment {
                kind: four(row, 0)?,
                offset: eight(row, 8)?,
                address: eight(row, 16)?,
                file_size: eight(row, 32)?,
            },
        })
    }

    fn dynamic(
        &self,
        dynamic: &ElfSegment,
        segments: &[ElfSegment],
        facts: &mut ElfFacts,
    ) -> Result<(), ElfError> {
        // The loader finds the table by its address, regardless of the segment's file offset.
        let offset = in_file(dynamic.address, segments)?;
        let size = dynamic.file_size.min(MAX_DYNAMIC_BYTES);
        let size = usize::try_from(size).map_err(|_| ElfError::Malformed)?;
        let bytes = self.exactly(offset, size)?;
        let width = match self.class {
            Class::Bits32 => 8,
            Class::Bits64 => 16,
        };
        let (mut table, mut table_size) = (None, u64::MAX);
        let mut names: Vec<(u64, u64)> = Vec::new();
        let mut is_ended = false;
        for row in bytes.chunks_exact(width) {
            let (tag, value) = match self.class {
                Class::Bits32 => (u64::from(four(row, 0)?), u64::from(four(row, 4)?)),
                Class::Bits64 => (eight(row, 0)?, eight(row, 8)?),
            };
            match tag {
                DT_NULL => {
                    is_ended = true;
                    break;
                }
                DT_STRTAB => table = Some(value),
                DT_STRSZ => table_size = value,
                DT_NEEDED | DT_RPATH | DT_RUNPATH | DT_AUDIT | DT_DEPAUDIT | DT_AUXILIARY
                | DT_FILTER => names.push((tag, value)),
                _ => {}
            }
        }
        if !is_ended || names.len() > MAX_NAMES {
            return Err(ElfError::Malformed);
        }
        if names.is_empty() {
            return Ok(());
        }
        let table = in_file(table.ok_or(ElfError::Malformed)?, segments)?;
        for (tag, at) in names {
            if at >= table_size {
                return Err(ElfError::Malformed);
            }
            let text = self.string(table.checked_add(at).ok_or(ElfError::Malformed)?)?;
            match tag {
                DT_RPATH => facts.rpath = Some(text),
                DT_RUNPATH => facts.runpath = Some(text),
                // Each of these entries may be a list.
                DT_AUDIT | DT_DEPAUDIT => facts.needed.extend(text.split(':').map(str::to_owned)),
                _ => facts.needed.push(text),
            }
        }
        Ok(())
    }

    fn exactly(&self, offset: u64, length: usize) -> Result<Vec<u8>, ElfError> {
        let mut bytes = vec![0; length];
        match self.file.read_at(&mut bytes, offset) {
            Ok(read) if read == length => Ok(bytes),
            _ => Err(ElfError::Malformed),
        }
    }

    /// The text up to the next NUL.
    fn string(&self, offset: u64) -> Result<String, ElfError> {
        let mut bytes = vec![0; MAX_STRING_BYTES];
        let read = self.file.read_at(&mut bytes, offset);
        bytes.truncate(read.map_err(|_| ElfError::Malformed)?);
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.ok_or(ElfError::Malformed)?);
        String::from_utf8(bytes).map_err(|_| ElfError::Malformed)
    }
}

/// The file offset of an address. A later segment covers an earlier one.
fn in_file(address: u64, segments: &[ElfSegment]) -> Result<u64, ElfError> {
    let mut loaded = segments.iter().rev().filter(|one| one.kind == PT_LOAD);
    let found = loaded.find_map(|segment| {
        let inside = address.checked_sub(segment.address)?;
        (inside < segment.file_size).then(|| segment.offset.checked_add(inside))?
    });
    found.ok_or(ElfError::Malformed)
}

fn two(bytes: &[u8], at: usize) -> Result<u16, ElfError> {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk);
    chunk
        .map(|chunk| u16::from_ne_bytes(*chunk))
        .ok_or(ElfError::Malformed)
}

fn four(bytes: &[u8], at: usize) -> Result<u32, ElfError> {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk);
    chunk
        .map(|chunk| u32::from_ne_bytes(*chunk))
        .ok_or(ElfError::Malformed)
}

fn eight(bytes: &[u8], at: usize) -> Result<u64, ElfError> {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk);
    chunk
        .map(|chunk| u64::from_ne_bytes(*chunk))
        .ok_or(ElfError::Malformed)
}

#[cfg(test)]
pub(crate) mod tests;
