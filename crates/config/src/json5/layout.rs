//! Detects the style of the text around a place, and computes the smallest changes in that style.

use std::ops::Range;

use serde_json::Value;

use super::read::Json5Node;
use super::scan::{comments, is_blank, is_line_end};
use super::write::{self, Json5Style};

/// A range of the old text, and its replacement.
pub(super) type Splice = (Range<usize>, String);

/// The text around the innermost container of `chain`, and its style.
pub(super) struct Layout<'a> {
    pub(super) text: &'a str,
    pub(super) chain: &'a [&'a Json5Node],
    /// Whether new keys always get quotes, even if the keys around them have none.
    pub(super) quotes_keys: bool,
}

impl Layout<'_> {
    /// Adds an item at the end of the container.
    pub(super) fn insertion(&self, key: Option<&str>, value: &Value) -> Vec<Splice> {
        let Some(container) = self.chain.last() else {
            return Vec::new();
        };
        let (open, close) = (container.span.start, container.span.end - 1);
        let style = self.style();
        let item = write::item(key, value, &style);
        let content_end = open + 1 + self.text[open + 1..close].trim_end_matches(is_blank).len();
        let line = format!("{}{}", style.newline, style.indent);
        let Some(last) = container.items().last() else {
            let tail = &self.text[content_end..close];
            let blank = if key.is_some() || content_end > open + 1 {
                " "
            } else {
                ""
            };
            let added = match style.multiline {
                true if tail.contains(is_line_end) => format!("{line}{item}{tail}"),
                true => format!("{line}{item}{}{}", style.newline, self.line_indent(open)),
                false => format!("{blank}{item}{blank}"),
            };
            return vec![(content_end..close, added)];
        };
        let at_end = content_end..content_end;
        match (style.multiline, last.comma.is_some()) {
            (true, true) => vec![(at_end, format!("{line}{item},"))],
            (true, false) => {
                let value_end = last.value.span.end;
                vec![
                    (value_end..value_end, ",".to_owned()),
                    (at_end, format!("{line}{item}")),
                ]
            }
            (false, true) => vec![(at_end, format!(" {item},"))],
            (false, false) => vec![(at_end, format!(", {item}"))],
        }
    }

    /// Removes an item with its comma, and also its lines if it was alone on them.
    pub(super) fn removal(&self, index: usize) -> Vec<Splice> {
        let Some(container) = self.chain.last() else {
            return Vec::new();
        };
        let items = container.items();
        let (item, inside) = (
            &items[index],
            container.span.start + 1..container.span.end - 1,
        );
        let (start, value_end) = (item.start(), item.value.span.end);
        let mut cuts = Vec::new();
        let mut end = value_end;
        match item.comma {
            Some(comma) if comments(self.text, value_end..comma).is_empty() => end = comma + 1,
            Some(comma) => cuts.push(comma..comma + 1),
            None => cuts.extend(
                index
                    .checked_sub(1)
                    .and_then(|before| items[before].comma)
                    .map(|comma| comma..comma + 1),
            ),
        }
        let lonely = items.len() == 1
            && comments(self.text, inside.start..start).is_empty()
            && comments(self.text, end..inside.end).is_empty();
        if lonely {
            return vec![(inside, String::new())];
        }
        cuts.push(self.with_blanks(start..end, item.comma.is_none()));
        cuts.into_iter()
            .map(|range| (range, String::new()))
            .collect()
    }

    /// Widens a cut so that it leaves neither an empty line nor a double space.
    fn with_blanks(&self, cut: Range<usize>, last: bool) -> Range<usize> {
        let is_space = |c: char| matches!(c, ' ' | '\t');
        let rest = &self.text[cut.end..];
        let after = rest.trim_start_matches(is_space);
        let cut_to_next = cut.start..cut.end + rest.len() - after.len();
        let line_start = self.line_start(cut.start);
        let leads_its_line = self.text[line_start..cut.start].chars().all(is_space);
        let line_end = ["\r\n", "\n", "\r"]
            .into_iter()
            .find(|end| after.starts_with(end));
        match line_end {
            Some(end) if leads_its_line => line_start..cut_to_next.end + end.len(),
            None if leads_its_line || !last => cut_to_next,
            _ => self.text[..cut.start].trim_end_matches(is_space).len()..cut.end,
        }
    }

    /// The style of a new item of the innermost container.
    fn style(&self) -> Json5Style {
        let Some(container) = self.chain.last() else {
            return self.plain_style();
        };
        let on_own_line = container
            .items()
            .iter()
            .rev()
            .find(|item| self.leads_line(item.start()));
        let unit = self.unit();
        Json5Style {
            multiline: self.is_multiline(self.chain.len()),
            indent: match on_own_line {
                Some(item) => self.line_indent(item.start()).to_owned(),
                None => format!("{}{unit}", self.line_indent(container.span.start)),
            },
            unit,
            ..self.plain_style()
        }
    }

    /// The style of a value that replaces `node` in the innermost container.
    pub(super) fn style_of(&self, node: &Json5Node) -> Json5Style {
        let multiline = self.chain.is_empty() || self.is_multiline(self.chain.len());
        Json5Style {
            multiline,
            indent: self.line_indent(node.span.start).to_owned(),
            unit: self.unit(),
            ..self.plain_style()
        }
    }

    fn plain_style(&self) -> Json5Style {
        let last_key = |node: &&Json5Node| node.items().last().and_then(|item| item.key.clone());
        let key = self.chain.iter().rev().find_map(last_key);
        Json5Style {
            multiline: true,
            indent: String::new(),
            unit: String::new(),
            newline: if self.text.contains("\r\n") {
                "\r\n"
            } else {
                "\n"
            },
            quoted_keys: self.quotes_keys
                || key.is_some_and(|key| self.text[key.span].starts_with(['"', '\''])),
        }
    }

    /// Whether the `depth`th container of the chain has each item on its own line. An empty
    /// container follows its parent, and an empty root counts as multi-line.
    fn is_multiline(&self, depth: usize) -> bool {
        let Some(container) = depth.checked_sub(1).and_then(|index| self.chain.get(index)) else {
            return true;
        };
        let inside = container.span.start + 1..container.span.end - 1;
        let breaks = |range: Range<usize>| self.text[range].contains(is_line_end);
        match (container.items().first(), container.items().last()) {
            (Some(first), Some(last)) => {
                breaks(inside.start..first.start()) || breaks(last.value.span.end..inside.end)
            }
            _ => breaks(inside) || self.is_multiline(depth - 1),
        }
    }

    /// The indentation per level, taken from the innermost container that shows it, or else from
    /// the root.
    fn unit(&self) -> String {
        let root = self.chain.first().copied();
        let shown = |node: &Json5Node| {
            let item = node
                .items()
                .iter()
                .find(|item| self.leads_line(item.start()))?;
            let unit = self
                .line_indent(item.start())
                .strip_prefix(self.line_indent(node.span.start))?;
            (!unit.is_empty()).then(|| unit.to_owned())
        };
        self.chain
            .iter()
            .rev()
            .copied()
            .chain(root)
            .find_map(shown)
            .unwrap_or_else(|| "  ".to_owned())
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind(['\n', '\r']).map_or(0, |end| end + 1)
    }

    fn line_indent(&self, at: usize) -> &str {
        let line = &self.text[self.line_start(at)..at];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    fn leads_line(&self, at: usize) -> bool {
        self.line_start(at) > 0 && self.line_indent(at).len() == at - self.line_start(at)
    }
}
