//! Converts bytes to text: invalid UTF-8 is replaced, and a valid character is never cut in two.

/// The longest UTF-8 sequence.
pub(crate) const MAX_CHAR: usize = 4;

/// The decoded characters, each with its number of bytes.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (char, usize)> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let replaced = (!chunk.invalid().is_empty())
            .then_some((char::REPLACEMENT_CHARACTER, chunk.invalid().len()));
        chunk
            .valid()
            .chars()
            .map(|character| (character, character.len_utf8()))
            .chain(replaced)
    })
}

pub(crate) fn count(bytes: &[u8]) -> usize {
    characters(bytes).count()
}

/// The length in bytes of the first `limit` characters.
pub(crate) fn first(bytes: &[u8], limit: usize) -> usize {
    characters(bytes)
        .take(limit)
        .map(|(_, length)| length)
        .sum()
}

/// The offset at which the last `limit` characters start.
pub(crate) fn last(bytes: &[u8], limit: usize) -> usize {
    first(bytes, count(bytes).saturating_sub(limit))
}

/// The number of bytes at the start that belong to an earlier character.
pub(crate) fn continuation(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take(MAX_CHAR - 1)
        .take_while(|byte| **byte & 0xc0 == 0x80)
        .count()
}

/// The length without an incomplete last character.
pub(crate) fn complete(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        Some(chunk) if !chunk.invalid().is_empty() && may_continue(chunk.invalid()) => {
            bytes.len() - chunk.invalid().len()
        }
        _ => bytes.len(),
    }
}

/// Whether these invalid bytes could be the beginning of a character.
fn may_continue(invalid: &[u8]) -> bool {
    match std::str::from_utf8(invalid) {
        Ok(_) => false,
        Err(error) => error.error_len().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_decoder() {
        for bytes in [
            &b"plain"[..],
            "äöü€𝄞".as_bytes(),
            b"a\xffb\xe2\x82",
            b"\x80\x80",
            b"\xf0\x9d\x84",
            b"",
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(count(bytes), text.chars().count());
            for limit in 0..8 {
                let front = String::from_utf8_lossy(&bytes[..first(bytes, limit)]);
                assert!(text.starts_with(&*front));
                assert_eq!(front.chars().count(), limit.min(count(bytes)));
                let back = String::from_utf8_lossy(&bytes[last(bytes, limit)..]);
                assert!(text.ends_with(&*back));
                assert_eq!(back.chars().count(), limit.min(count(bytes)));
            }
        }
    }

    #[test]
    fn only_an_unfinished_character_is_held_back() {
        for (bytes, expected) in [
            (&b"ab"[..], 2),
            (b"ab\xe2\x82", 2),
            (b"ab\xe2\x82\xac", 5),
            (b"ab\xff", 3),
            (b"\xe2\x28\xf0", 2),
            (b"\x80", 1),
            (b"", 0),
        ] {
            assert_eq!(complete(bytes), expected, "{bytes:?}");
        }
    }
}
