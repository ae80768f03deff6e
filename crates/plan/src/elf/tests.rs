use proptest::prelude::*;

use super::*;

/// A small 64-bit ELF file with these strings.
pub(crate) fn elf(
    interpreter: Option<&str>,
    needed: &[&str],
    rpath: Option<&str>,
    runpath: Option<&str>,
) -> Vec<u8> {
    let mut strings = vec![0];
    let mut put = |text: &str| {
        let at = strings.len() as u64;
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at
    };
    let mut rows: Vec<(u64, u64)> = Vec::new();
    rows.extend(needed.iter().map(|name| (DT_NEEDED, put(name))));
    rows.extend(rpath.map(|path| (DT_RPATH, put(path))));
    rows.extend(runpath.map(|path| (DT_RUNPATH, put(path))));
    let (segments, base) = (3_u16, 0x1000_u64);
    let strings_at = 64 + u64::from(segments) * 56;
    let dynamic_at = strings_at + strings.len() as u64;
    rows.extend([
        (DT_STRTAB, base + strings_at),
        (DT_STRSZ, strings.len() as u64),
    ]);
    rows.push((DT_NULL, 0));
    let dynamic_size = rows.len() as u64 * 16;
    let interpreter_at = dynamic_at + dynamic_size;
    let interpreter_text = interpreter.map_or(Vec::new(), |text| [text.as_bytes(), b"\0"].concat());
    let end = interpreter_at + interpreter_text.len() as u64;

    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, order, 1];
    file.resize(64, 0);
    file[32..40].copy_from_slice(&64_u64.to_ne_bytes());
    file[54..56].copy_from_slice(&56_u16.to_ne_bytes());
    file[56..58].copy_from_slice(&segments.to_ne_bytes());
    let mut segment = |kind: u32, offset: u64, size: u64| {
        let mut row = vec![0; 56];
        row[..4].copy_from_slice(&kind.to_ne_bytes());
        row[8..16].copy_from_slice(&offset.to_ne_bytes());
        row[16..24].copy_from_slice(&(base + offset).to_ne_bytes());
        row[32..40].copy_from_slice(&size.to_ne_bytes());
        file.extend(row);
    };
    segment(PT_LOAD, 0, end);
    segment(PT_DYNAMIC, dynamic_at, dynamic_size);
    let kind = if interpreter.is_some() { PT_INTERP } else { 0 };
    segment(kind, interpreter_at, interpreter_text.len() as u64);
    file.extend(strings);
    for (tag, value) in rows {
        file.extend(tag.to_ne_bytes());
        file.extend(value.to_ne_bytes());
    }
    file.extend(interpreter_text);
    file
}

#[test]
fn what_a_program_asks_for_is_read() {
    let bytes = elf(
        Some("/opt/own/ld.so"),
        &["liba.so", "libb.so.1"],
        Some("/a"),
        Some("$ORIGIN/../lib:/b"),
    );
    let facts = ElfFacts {
        interpreter: Some("/opt/own/ld.so".to_owned()),
        needed: vec!["liba.so".to_owned(), "libb.so.1".to_owned()],
        rpath: Some("/a".to_owned()),
        runpath: Some("$ORIGIN/../lib:/b".to_owned()),
    };
    assert_eq!(read(bytes.as_slice()), Ok(facts));
    assert_eq!(
        read(elf(None, &[], None, None).as_slice()),
        Ok(ElfFacts::default())
    );
}

#[test]
fn a_real_program_is_read() {
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    let facts = read(&file).unwrap();
    // Tests are linked dynamically, except on systems that have no dynamic loader.
    if facts.interpreter.is_some() {
        assert!(facts.needed.iter().any(|name| name.starts_with("libc.")));
    }
}

#[test]
fn what_is_not_of_this_machine_is_refused() {
    assert_eq!(read(b"#!/bin/sh\n".as_slice()), Err(ElfError::Other));
    assert_eq!(read(b"".as_slice()), Err(ElfError::Other));
    assert_eq!(read(b"\x7fELF".as_slice()), Err(ElfError::Malformed));
    let mut bytes = elf(None, &["x"], None, None);
    bytes[5] = 3 - bytes[5];
    assert_eq!(read(bytes.as_slice()), Err(ElfError::Foreign));
    bytes[5] = 7;
    assert_eq!(read(bytes.as_slice()), Err(ElfError::Malformed));
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(bytes.as_slice());
        let _ = read([b"\x7fELF\x02\x01\x01".as_slice(), &bytes].concat().as_slice());
        let _ = read([b"\x7fELF\x01\x01\x01".as_slice(), &bytes].concat().as_slice());
    }

    #[test]
    fn a_program_with_any_bytes_changed_or_cut_has_an_answer(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = elf(Some("/ld.so"), &["liba.so"], None, Some("$ORIGIN"));
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read(bytes.as_slice());
        bytes.truncate(cut.index(bytes.len()));
        let _ = read(bytes.as_slice());
    }
}
