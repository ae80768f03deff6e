//! Edits YAML line by line. No library keeps the comments of a YAML file, so this module handles
//! one shape only: a block mapping at the left edge whose members are block mappings. Each edit is
//! read back by a YAML parser and must have exactly the intended value. Every other shape is
//! refused, and the file stays unchanged.

use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Value};

use super::text::SettingsTextError;

/// The largest file that is parsed.
const MAX_BYTES: usize = 1024 * 1024;

/// A file that contains one mapping or nothing.
#[derive(Debug, Clone)]
pub struct YamlText {
    text: String,
    value: Value,
}

impl YamlText {
    pub fn parse(name: &str, text: &str) -> Result<Self, SettingsTextError> {
        if text.len() > MAX_BYTES {
            let message = format!("{name} has more than {MAX_BYTES} bytes");
            return Err(SettingsTextError(message));
        }
        let documents = Yaml::load_from_str(text)
            .map_err(|error| SettingsTextError(format!("{name}: {error}")))?;
        let value = match documents.as_slice() {
            [] => Value::Object(Map::new()),
            [only] => match plain(only) {
                Some(Value::Null) => Value::Object(Map::new()),
                Some(value @ Value::Object(_)) => value,
                Some(_) => return Err(SettingsTextError(format!("{name} is not a mapping"))),
                None => {
                    let message = format!(
                        "{name} has tags, aliases or keys that are not texts; setup does not change such a file"
                    );
                    return Err(SettingsTextError(message));
                }
            },
            _ => {
                let message = format!("{name} holds more than one document");
                return Err(SettingsTextError(message));
            }
        };
        Ok(Self {
            text: text.to_owned(),
            value,
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Sets a member of a top-level mapping, or a scalar inside such a member.
    pub fn set(&mut self, path: &[String], value: &Value) -> Result<(), SettingsTextError> {
        let mut meant = self.value.clone();
        let lines = match path {
            [top, name] => {
                if self.value[top].get(name).is_some() {
                    self.unset(path)?;
                    meant = self.value.clone();
                }
                if !meant[top].is_object() {
                    meant[top] = Value::Object(Map::new());
                }
                meant[top][name] = value.clone();
                self.with_member(top, name, value)?
            }
            [top, name, key] => {
                meant[top][name][key] = value.clone();
                self.with_scalar((top, name, key), value)?
            }
            _ => return Err(unknown_shape(path)),
        };
        self.replace(&lines, &meant, path)
    }

    /// Removes a member of a top-level mapping, or the mapping itself.
    pub fn unset(&mut self, path: &[String]) -> Result<(), SettingsTextError> {
        let mut meant = self.value.clone();
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let block = match path {
            [top] => {
                if let Value::Object(members) = &mut meant {
                    members.shift_remove(top);
                }
                find_block(&lines, 0..lines.len(), 0, top)
            }
            [top, name] => {
                let outer = find_block(&lines, 0..lines.len(), 0, top);
                let members = meant[top].as_object_mut();
                let is_last = members.is_some_and(|members| {
                    members.shift_remove(name);
                    members.is_empty()
                });
                // A block mapping without members reads as null.
                if is_last {
                    meant[top] = Value::Null;
                }
                outer.and_then(|outer| {
                    let inside = outer.start + 1..outer.end;
                    let indent = member_indent(&lines, inside.clone())?;
                    find_block(&lines, inside, indent, name)
                })
            }
            _ => None,
        };
        let block = block.ok_or_else(|| unknown_shape(path))?;
        let kept = [&lines[..block.start], &lines[block.end..]].concat();
        let text = kept.concat();
        self.replace(&text, &meant, path)
    }

    fn replace(
        &mut self,
        text: &str,
        meant: &Value,
        path: &[String],
    ) -> Result<(), SettingsTextError> {
        let changed = Self::parse("the changed file", text).map_err(|_| unknown_shape(path))?;
        if changed.value != *meant {
            return Err(unknown_shape(path));
        }
        *self = changed;
        Ok(())
    }

    fn with_member(
        &self,
        top: &str,
        name: &str,
        value: &Value,
    ) -> Result<String, SettingsTextError> {
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let Some(block) = find_block(&lines, 0..lines.len(), 0, top) else {
            if self.value.get(top).is_some() {
                return Err(unknown_shape(&[top.to_owned()]));
            }
            let mut text = self.text.clone();
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text += &format!("{top}:\n");
            write_member(&mut text, 2, name, value);
            return Ok(text);
        };
        let inside = block.start + 1..block.end;
        let indent = member_indent(&lines, inside).unwrap_or(2);
        let mut text = lines[..block.start].concat();
        // `extensions: {}` must lose its braces before members follow on the next lines.
        let head = lines[block.start];
        text += &match head.trim_end().strip_suffix("{}") {
            Some(head) => format!("{}\n", head.trim_end()),
            None if head.ends_with('\n') => head.to_owned(),
            None => format!("{head}\n"),
        };
        write_member(&mut text, indent, name, value);
        text += &lines[block.start + 1..].concat();
        Ok(text)
    }

    fn with_scalar(
        &self,
        (top, name, key): (&str, &str, &str),
        value: &Value,
    ) -> Result<String, SettingsTextError> {
        let refused = || unknown_shape(&[top.to_owned(), name.to_owned(), key.to_owned()]);
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let mut inside = 0..lines.len();
        let mut indent = 0;
        for step in [top, name] {
            let block = find_block(&lines, inside, indent, step).ok_or_else(refused)?;
            inside = block.start + 1..block.end;
            indent = member_indent(&lines, inside.clone()).ok_or_else(refused)?;
        }
        let block = find_block(&lines, inside, indent, key).ok_or_else(refused)?;
        let line = lines[block.start];
        let before = format!("{}{key}:", " ".repeat(indent));
        let rest = line.strip_prefix(&before).ok_or_else(refused)?;
        let written = rest.trim_start();
        let length = written
            .find(|c: char| c.is_whitespace() || c == '#')
            .unwrap_or(written.len());
        let mut text = lines[..block.start].concat();
        text += &format!("{before} {value}{}", &written[length..]);
        text += &lines[block.start + 1..].concat();
        Ok(text)
    }
}

fn unknown_shape(path: &[String]) -> SettingsTextError {
    SettingsTextError(format!(
        "`{}` is not written as a block mapping that setup can change without touching other lines",
        path.join(".")
    ))
}

/// The lines of a member: the line of its key and the deeper lines below. Blank lines and comments
/// after its last line do not belong to it.
fn find_block(
    lines: &[&str],
    within: std::ops::Range<usize>,
    indent: usize,
    key: &str,
) -> Option<std::ops::Range<usize>> {
    let head = format!("{}{key}:", " ".repeat(indent));
    let is_head = |line: &str| {
        line.strip_prefix(&head)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let start = within.clone().find(|index| is_head(lines[*index]))?;
    let mut end = start + 1;
    for (index, line) in lines.iter().enumerate().take(within.end).skip(start + 1) {
        match content_indent(line) {
            Some(depth) if depth <= indent => break,
            Some(_) => end = index + 1,
            None => {}
        }
    }
    Some(start..end)
}

/// The indentation of a line, or `None` for a blank line or a comment.
fn content_indent(line: &str) -> Option<usize> {
    let content = line.trim_start_matches(' ');
    let has_content = !content.trim().is_empty() && !content.starts_with('#');
    has_content.then(|| line.len() - content.len())
}

fn member_indent(lines: &[&str], within: std::ops::Range<usize>) -> Option<usize> {
    lines[within].iter().find_map(|line| content_indent(line))
}

/// Writes a member whose value is a mapping of scalars and lists of scalars. Strings are quoted as
/// in JSON, which YAML reads the same way.
fn write_member(text: &mut String, indent: usize, name: &str, value: &Value) {
    let outer = " ".repeat(indent);
    *text += &format!("{outer}{name}:\n");
    for (key, value) in value.as_object().unwrap_or(&Map::new()) {
        match value {
            Value::Array(elements) if !elements.is_empty() => {
                *text += &format!("{outer}  {key}:\n");
                for element in elements {
                    *text += &format!("{outer}    - {element}\n");
                }
            }
            value => *text += &format!("{outer}  {key}: {value}\n"),
        }
    }
}

/// The JSON value of a node, or `None` if JSON cannot represent it.
fn plain(node: &Yaml<'_>) -> Option<Value> {
    Some(match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(boolean)) => Value::from(*boolean),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::FloatingPoint(number)) => Value::from(number.into_inner()),
        Yaml::Value(Scalar::String(text)) => Value::from(text.as_ref()),
        Yaml::Sequence(elements) => {
            Value::Array(elements.iter().map(plain).collect::<Option<_>>()?)
        }
        Yaml::Mapping(members) => {
            let member = |(key, value): (&Yaml<'_>, &Yaml<'_>)| {
                let key = key.as_str()?;
                Some((key.to_owned(), plain(value)?))
            };
            Value::Object(members.iter().map(member).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
