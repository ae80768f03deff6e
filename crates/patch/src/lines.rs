//! A view of a file as lines that keep their endings, for any bytes.

/// The lines of a file. `\n`, `\r\n` and a lone `\r` end a line and may be mixed. A byte order mark
/// belongs to no line.
pub(crate) struct FileLines<'a> {
    bytes: &'a [u8],
    spans: Vec<LineSpan>,
}

#[derive(Clone, Copy)]
struct LineSpan {
    start: u32,
    end: u32,
    next: u32,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<'a> FileLines<'a> {
    /// Splits `bytes`, which must be shorter than 4 GiB. The plan's limit is far below that.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut spans = Vec::with_capacity(bytes.len() / 32);
        let mut start = if bytes.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        let mut at = start;
        while at < bytes.len() {
            let length = match bytes[at] {
                b'\r' if bytes.get(at + 1) == Some(&b'\n') => 2,
                b'\n' | b'\r' => 1,
                _ => {
                    at += 1;
                    continue;
                }
            };
            spans.push(LineSpan::new(start, at, at + length));
            at += length;
            start = at;
        }
        if start < bytes.len() {
            spans.push(LineSpan::new(start, bytes.len(), bytes.len()));
        }
        Self { bytes, spans }
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the line without its ending.
    pub(crate) fn text(&self, line: usize) -> &'a [u8] {
        let span = self.spans[line];
        &self.bytes[span.start as usize..span.end as usize]
    }

    /// Returns the ending of the line, which is empty only for a last line without a final newline.
    pub(crate) fn ending(&self, line: usize) -> &'a [u8] {
        let span = self.spans[line];
        &self.bytes[span.end as usize..span.next as usize]
    }

    /// Returns the bytes of the lines `from..to` with their endings.
    pub(crate) fn range(&self, from: usize, to: usize) -> &'a [u8] {
        &self.bytes[self.offset(from)..self.offset(to)]
    }

    /// Returns the bytes before the first line: nothing or a byte order mark.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        &self.bytes[..self.offset(0)]
    }

    pub(crate) fn lacks_final_newline(&self) -> bool {
        self.spans.last().is_some_and(|span| span.end == span.next)
    }

    /// Returns the ending for a line that is inserted before line `at`: the ending of the line
    /// above, else of the line below, else `\n`.
    pub(crate) fn ending_near(&self, at: usize) -> &'a [u8] {
        let above = at.checked_sub(1).filter(|line| *line < self.len());
        let further_above = above.and_then(|line| line.checked_sub(1));
        let below = Some(at).filter(|line| *line < self.len());
        [above, further_above, below]
            .into_iter()
            .flatten()
            .map(|line| self.ending(line))
            .find(|ending| !ending.is_empty())
            .unwrap_or(b"\n")
    }

    fn offset(&self, line: usize) -> usize {
        match self.spans.get(line) {
            Some(span) => span.start as usize,
            None => self.bytes.len(),
        }
    }
}

impl LineSpan {
    fn new(start: usize, end: usize, next: usize) -> Self {
        let narrow = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Self {
            start: narrow(start),
            end: narrow(end),
            next: narrow(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_ending_is_seen_and_no_byte_is_lost() {
        type Case = (&'static [u8], &'static [(&'static str, &'static str)]);
        let cases: [Case; 8] = [
            (b"", &[]),
            (b"a", &[("a", "")]),
            (b"a\n", &[("a", "\n")]),
            (b"a\r\nb\rc\n", &[("a", "\r\n"), ("b", "\r"), ("c", "\n")]),
            (b"a\r\r\nb", &[("a", "\r"), ("", "\r\n"), ("b", "")]),
            (b"\n\n", &[("", "\n"), ("", "\n")]),
            (b"\xef\xbb\xbfa\n", &[("a", "\n")]),
            (b"\xef\xbb\xbf", &[]),
        ];
        for (bytes, expected) in cases {
            let lines = FileLines::new(bytes);
            let found: Vec<_> = (0..lines.len())
                .map(|line| {
                    (
                        str::from_utf8(lines.text(line)).unwrap(),
                        str::from_utf8(lines.ending(line)).unwrap(),
                    )
                })
                .collect();
            assert_eq!(found, expected, "{bytes:?}");
            assert_eq!(
                [lines.prefix(), lines.range(0, lines.len())].concat(),
                bytes
            );
        }
    }
}
