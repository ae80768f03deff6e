//! Edits as the smallest possible replacements of text: comments and formatting elsewhere stay, byte for byte.

use std::ops::Range;

use serde_json::{Map, Value};

use super::read::{Content, Node};
use super::scan::{comments, is_blank, is_line_end};
use super::write::{self, Style};
use super::{Json5Text, MAX_DEPTH};
use crate::diagnostic::Diagnostic;
use crate::path::{KeyPath, Segment};

/// Why an edit is not possible. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("`{path}` is {found}, not an object that could hold `{key}`")]
    NotAnObject {
        path: KeyPath,
        found: &'static str,
        key: String,
    },
    #[error("`{path}` is {found}, not a list that could hold [{index}]")]
    NotAList {
        path: KeyPath,
        found: &'static str,
        index: usize,
    },
    #[error("`{path}` has {length} elements; [{index}] is past its end (use [{length}] to append)")]
    IndexPastEnd {
        path: KeyPath,
        length: usize,
        index: usize,
    },
    #[error("the whole document cannot be removed")]
    RootRemoved,
    #[error("the edit would make the text invalid: {0}")]
    Invalid(Diagnostic),
    /// A guard: what was written must read back as what was meant.
    #[error("the edit of `{path}` would not read back as written")]
    NotReadBack { path: KeyPath },
}

impl EditError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotAnObject { .. } | Self::NotAList { .. } => "EDIT_WRONG_KIND",
            Self::IndexPastEnd { .. } => "EDIT_INDEX_PAST_END",
            Self::RootRemoved => "EDIT_ROOT_REMOVED",
            Self::Invalid(diagnostic) => diagnostic.code,
            Self::NotReadBack { .. } => "EDIT_NOT_READ_BACK",
        }
    }
}

/// A range of the old text and what stands there afterwards.
type Splice = (Range<usize>, String);

impl Json5Text {
    /// Sets one value, creating the objects and lists on the way. An index equal to the length of
    /// a list appends. Replacing a value also replaces the comments inside of it.
    pub fn set(&mut self, path: &KeyPath, value: &Value) -> Result<(), EditError> {
        let value = with_whole_numbers(value);
        let chain = self.chain(path.segments());
        let (known, rest) = path.segments().split_at(chain.len() - 1);
        let target = chain[known.len()];
        let Some((step, inner)) = rest.split_first() else {
            if target.to_value() == value {
                return Ok(());
            }
            let style = Layout {
                text: self.text(),
                chain: &chain[..chain.len() - 1],
            }
            .style_of(target);
            let splice = (target.span.clone(), write::value_text(&value, &style));
            return self.apply(vec![splice], path, Some(&value));
        };
        let place = KeyPath::from(known);
        let key = match (step, &target.content) {
            (Segment::Key(key), Content::Object(_)) => Some(key.as_str()),
            (Segment::Index(index), Content::Array(items)) if *index == items.len() => None,
            (Segment::Index(index), Content::Array(items)) => {
                return Err(EditError::IndexPastEnd {
                    path: place,
                    length: items.len(),
                    index: *index,
                });
            }
            (Segment::Key(key), _) => {
                return Err(EditError::NotAnObject {
                    path: place,
                    found: target.kind(),
                    key: key.clone(),
                });
            }
            (Segment::Index(index), _) => {
                return Err(EditError::NotAList {
                    path: place,
                    found: target.kind(),
                    index: *index,
                });
            }
        };
        let wrapped = wrap(value.clone(), inner, path)?;
        let splices = Layout {
            text: self.text(),
            chain: &chain,
        }
        .insertion(key, &wrapped);
        self.apply(splices, path, Some(&value))
    }

    /// Removes one member or element; false if there is none. Comments around it stay.
    pub fn unset(&mut self, path: &KeyPath) -> Result<bool, EditError> {
        let Some((last, parents)) = path.segments().split_last() else {
            return Err(EditError::RootRemoved);
        };
        let chain = self.chain(parents);
        if chain.len() - 1 < parents.len() {
            return Ok(false);
        }
        let container = chain[parents.len()];
        let index = match (last, &container.content) {
            (Segment::Key(key), Content::Object(items)) => {
                items.iter().position(|item| item.has_key(key))
            }
            (Segment::Index(index), Content::Array(items)) => {
                Some(*index).filter(|index| *index < items.len())
            }
            _ => None,
        };
        let Some(index) = index else { return Ok(false) };
        let splices = Layout {
            text: self.text(),
            chain: &chain,
        }
        .removal(index);
        self.apply(splices, path, None)?;
        Ok(true)
    }

    /// The nodes on the way, the root first, as far as the path exists.
    fn chain(&self, segments: &[Segment]) -> Vec<&Node> {
        let mut chain = vec![self.root()];
        let mut node = self.root();
        for segment in segments {
            let Some(next) = node.step(segment) else {
                break;
            };
            chain.push(next);
            node = next;
        }
        chain
    }

    fn apply(
        &mut self,
        mut splices: Vec<Splice>,
        path: &KeyPath,
        value: Option<&Value>,
    ) -> Result<(), EditError> {
        let mut meant = self.value();
        change(&mut meant, path.segments(), value);
        splices.sort_by_key(|(range, _)| (range.start, range.end));
        let mut text = String::with_capacity(self.text().len() + 64);
        let mut copied = 0;
        for (range, replacement) in splices {
            text.push_str(&self.text()[copied..range.start.max(copied)]);
            text.push_str(&replacement);
            copied = range.end.max(copied);
        }
        text.push_str(&self.text()[copied..]);
        let edited = Self::parse(self.name(), &text).map_err(EditError::Invalid)?;
        if edited.value() != meant {
            return Err(EditError::NotReadBack { path: path.clone() });
        }
        *self = edited;
        Ok(())
    }
}

/// The text around the innermost container of `chain`, and how things are written there.
struct Layout<'a> {
    text: &'a str,
    chain: &'a [&'a Node],
}

impl Layout<'_> {
    /// Adds an item at the end of the container.
    fn insertion(&self, key: Option<&str>, value: &Value) -> Vec<Splice> {
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

    /// Takes an item out, with its comma and, if it stood alone there, its lines.
    fn removal(&self, index: usize) -> Vec<Splice> {
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

    /// Widens a cut so that it leaves no empty line and no double blank behind.
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

    /// How a new item of the innermost container is written.
    fn style(&self) -> Style {
        let Some(container) = self.chain.last() else {
            return self.plain_style();
        };
        let on_own_line = container
            .items()
            .iter()
            .rev()
            .find(|item| self.leads_line(item.start()));
        let unit = self.unit();
        Style {
            multiline: self.is_multiline(self.chain.len()),
            indent: match on_own_line {
                Some(item) => self.line_indent(item.start()).to_owned(),
                None => format!("{}{unit}", self.line_indent(container.span.start)),
            },
            unit,
            ..self.plain_style()
        }
    }

    /// How a value is written that takes the place of `node`, which stands in the innermost container.
    fn style_of(&self, node: &Node) -> Style {
        let multiline = self.chain.is_empty() || self.is_multiline(self.chain.len());
        Style {
            multiline,
            indent: self.line_indent(node.span.start).to_owned(),
            unit: self.unit(),
            ..self.plain_style()
        }
    }

    fn plain_style(&self) -> Style {
        let last_key = |node: &&Node| node.items().last().and_then(|item| item.key.clone());
        let key = self.chain.iter().rev().find_map(last_key);
        Style {
            multiline: true,
            indent: String::new(),
            unit: String::new(),
            newline: if self.text.contains("\r\n") {
                "\r\n"
            } else {
                "\n"
            },
            quoted_keys: key.is_some_and(|key| self.text[key.span].starts_with(['"', '\''])),
        }
    }

    /// Whether the `depth`th container of the chain has its items on lines of their own. An empty
    /// one follows its parent; an empty root is opened up.
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

    /// What the text adds per level: seen at the innermost container that shows it, else at the root.
    fn unit(&self) -> String {
        let root = self.chain.first().copied();
        let shown = |node: &Node| {
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

/// The value with the containers that the rest of the path names around it.
fn wrap(value: Value, segments: &[Segment], path: &KeyPath) -> Result<Value, EditError> {
    debug_assert!(segments.len() <= MAX_DEPTH);
    let mut wrapped = value;
    for (depth, segment) in segments.iter().enumerate().rev() {
        wrapped = match segment {
            Segment::Key(key) => Value::Object(Map::from_iter([(key.clone(), wrapped)])),
            Segment::Index(0) => Value::Array(vec![wrapped]),
            Segment::Index(index) => {
                let place = &path.segments()[..path.segments().len() - segments.len() + depth];
                return Err(EditError::IndexPastEnd {
                    path: place.into(),
                    length: 0,
                    index: *index,
                });
            }
        };
    }
    Ok(wrapped)
}

/// The same edit on the plain value, to check the text against. Only paths that exist or were
/// just created come here.
fn change(target: &mut Value, segments: &[Segment], value: Option<&Value>) {
    let Some((first, rest)) = segments.split_first() else {
        if let Some(value) = value {
            *target = value.clone();
        }
        return;
    };
    match (first, target, value) {
        (Segment::Key(key), Value::Object(members), None) if rest.is_empty() => {
            members.shift_remove(key);
        }
        (Segment::Index(index), Value::Array(elements), None)
            if rest.is_empty() && *index < elements.len() =>
        {
            elements.remove(*index);
        }
        (Segment::Key(key), Value::Object(members), _) => {
            change(
                members
                    .entry(key.clone())
                    .or_insert_with(|| container_for(rest)),
                rest,
                value,
            );
        }
        (Segment::Index(index), Value::Array(elements), _) => {
            if *index == elements.len() {
                elements.push(container_for(rest));
            }
            if let Some(element) = elements.get_mut(*index) {
                change(element, rest, value);
            }
        }
        _ => {}
    }
}

fn container_for(rest: &[Segment]) -> Value {
    match rest.first() {
        Some(Segment::Key(_)) => Value::Object(Map::new()),
        Some(Segment::Index(_)) => Value::Array(Vec::new()),
        None => Value::Null,
    }
}

/// As the reader would give it back: `5.0` is `5`.
#[allow(clippy::cast_possible_truncation)] // whole and below 2^53
fn with_whole_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float)
                if number.is_f64()
                    && float.fract() == 0.0
                    && float.abs() <= 9_007_199_254_740_992.0 =>
            {
                Value::from(float as i64)
            }
            _ => value.clone(),
        },
        Value::Array(elements) => elements.iter().map(with_whole_numbers).collect(),
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(key, value)| (key.clone(), with_whole_numbers(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}
