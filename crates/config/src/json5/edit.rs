//! Edits texts with the smallest possible replacements. All other comments and formatting stay byte
//! for byte.

use serde_json::{Map, Value};

use super::layout::{Layout, Splice};
use super::read::{Json5Content, Json5Node};
use super::write;
use super::{Json5Text, MAX_DEPTH};
use crate::diagnostic::Diagnostic;
use crate::path::{KeyPath, PathSegment};

/// Why an edit is not possible. The text stays unchanged.
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
    /// The edited text does not read back as intended. This check guards against mistakes of the
    /// editor.
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

impl Json5Text {
    /// Sets a value, and creates missing objects and lists of the path. An index equal to the
    /// length of a list appends. Replacing a value also replaces the comments inside it.
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
                quotes_keys: self.quotes_keys,
            }
            .style_of(target);
            let splice = (target.span.clone(), write::value_text(&value, &style));
            return self.apply(vec![splice], path, Some(&value));
        };
        let place = KeyPath::from(known);
        let key = match (step, &target.content) {
            (PathSegment::Key(key), Json5Content::Object(_)) => Some(key.as_str()),
            (PathSegment::Index(index), Json5Content::Array(items)) if *index == items.len() => {
                None
            }
            (PathSegment::Index(index), Json5Content::Array(items)) => {
                return Err(EditError::IndexPastEnd {
                    path: place,
                    length: items.len(),
                    index: *index,
                });
            }
            (PathSegment::Key(key), _) => {
                return Err(EditError::NotAnObject {
                    path: place,
                    found: target.kind(),
                    key: key.clone(),
                });
            }
            (PathSegment::Index(index), _) => {
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
            quotes_keys: self.quotes_keys,
        }
        .insertion(key, &wrapped);
        self.apply(splices, path, Some(&value))
    }

    /// Removes a member or element. Returns `false` if there is none. Comments around it stay.
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
            (PathSegment::Key(key), Json5Content::Object(items)) => {
                items.iter().position(|item| item.has_key(key))
            }
            (PathSegment::Index(index), Json5Content::Array(items)) => {
                Some(*index).filter(|index| *index < items.len())
            }
            _ => None,
        };
        let Some(index) = index else { return Ok(false) };
        let splices = Layout {
            text: self.text(),
            chain: &chain,
            quotes_keys: self.quotes_keys,
        }
        .removal(index);
        self.apply(splices, path, None)?;
        Ok(true)
    }

    /// The nodes of the path from the root on, as far as the path exists.
    fn chain(&self, segments: &[PathSegment]) -> Vec<&Json5Node> {
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
        let quotes_keys = self.quotes_keys;
        *self = Self {
            quotes_keys,
            ..edited
        };
        Ok(())
    }
}

/// Wraps a value in the containers that the rest of the path names.
fn wrap(value: Value, segments: &[PathSegment], path: &KeyPath) -> Result<Value, EditError> {
    debug_assert!(segments.len() <= MAX_DEPTH);
    let mut wrapped = value;
    for (depth, segment) in segments.iter().enumerate().rev() {
        wrapped = match segment {
            PathSegment::Key(key) => Value::Object(Map::from_iter([(key.clone(), wrapped)])),
            PathSegment::Index(0) => Value::Array(vec![wrapped]),
            PathSegment::Index(index) => {
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

/// Makes the same edit on the plain value, to check the edited text. The path must exist or have
/// just been created.
fn change(target: &mut Value, segments: &[PathSegment], value: Option<&Value>) {
    let Some((first, rest)) = segments.split_first() else {
        if let Some(value) = value {
            *target = value.clone();
        }
        return;
    };
    match (first, target, value) {
        (PathSegment::Key(key), Value::Object(members), None) if rest.is_empty() => {
            members.shift_remove(key);
        }
        (PathSegment::Index(index), Value::Array(elements), None)
            if rest.is_empty() && *index < elements.len() =>
        {
            elements.remove(*index);
        }
        (PathSegment::Key(key), Value::Object(members), _) => {
            change(
                members
                    .entry(key.clone())
                    .or_insert_with(|| container_for(rest)),
                rest,
                value,
            );
        }
        (PathSegment::Index(index), Value::Array(elements), _) => {
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

fn container_for(rest: &[PathSegment]) -> Value {
    match rest.first() {
        Some(PathSegment::Key(_)) => Value::Object(Map::new()),
        Some(PathSegment::Index(_)) => Value::Array(Vec::new()),
        None => Value::Null,
    }
}

/// Normalizes numbers as the reader does: `5.0` becomes `5`.
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
