//! Edits of settings files: which value is set or which element is added, and what is needed to
//! undo the edit in a file that was changed meanwhile.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::text::{SettingsText, SettingsTextError};

/// One edit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum SettingsEdit {
    /// Sets the value at a path.
    Set { path: Vec<String>, value: Value },
    /// Adds an element to the list at a path.
    Add { path: Vec<String>, value: Value },
    /// Sets the value at a path if its parent object exists; otherwise sets the parent to
    /// `otherwise`.
    SetOr {
        path: Vec<String>,
        value: Value,
        otherwise: Value,
    },
}

/// An edit that was made, with the value that it replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedEdit {
    pub edit: SettingsEdit,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Value>,
    /// How many steps of the path existed before. The edit created the deeper ones.
    pub existing_steps: usize,
}

impl SettingsEdit {
    pub fn set(path: &[&str], value: impl Into<Value>) -> Self {
        Self::Set {
            path: owned(path),
            value: value.into(),
        }
    }

    pub fn add(path: &[&str], value: impl Into<Value>) -> Self {
        Self::Add {
            path: owned(path),
            value: value.into(),
        }
    }

    fn parts(&self) -> (&[String], &Value) {
        match self {
            Self::Set { path, value }
            | Self::Add { path, value }
            | Self::SetOr { path, value, .. } => (path, value),
        }
    }

    /// Describes the edit in one line for the owner.
    pub fn describe(&self) -> String {
        let (path, value) = self.parts();
        let path = path.join(".");
        match (self, value) {
            (Self::Add { .. }, Value::Object(_)) => format!("{path}: an entry added"),
            (Self::Add { .. }, value) => format!("{path}: {value} added"),
            (Self::Set { .. } | Self::SetOr { .. }, Value::Object(_)) => format!("{path} set"),
            (Self::Set { .. } | Self::SetOr { .. }, value) => format!("{path} = {value}"),
        }
    }

    /// The `Set` edit that a `SetOr` edit means for this text.
    fn settled(&self, text: &SettingsText) -> Option<Self> {
        let Self::SetOr {
            path,
            value,
            otherwise,
        } = self
        else {
            return None;
        };
        let (_, parent) = path.split_last()?;
        Some(if text.get(parent).is_some_and(|value| value.is_object()) {
            Self::Set {
                path: path.clone(),
                value: value.clone(),
            }
        } else {
            Self::Set {
                path: parent.to_vec(),
                value: otherwise.clone(),
            }
        })
    }

    /// Makes the edit. Returns `None` if the file already has the value.
    pub fn apply(&self, text: &mut SettingsText) -> Result<Option<AppliedEdit>, SettingsTextError> {
        if let Some(settled) = self.settled(text) {
            return settled.apply(text);
        }
        let (path, value) = self.parts();
        let known = |steps: &usize| text.get(&path[..*steps]).is_some();
        let existing_steps = (0..=path.len()).take_while(known).last().unwrap_or(0);
        let previous = text.get(path);
        let mut expected = text.value();
        match self {
            Self::Set { .. } if previous.as_ref() == Some(value) => return Ok(None),
            Self::Set { .. } | Self::SetOr { .. } => {
                *at(&mut expected, path) = value.clone();
                text.set(path, value)?;
            }
            Self::Add { .. } => {
                match &previous {
                    None => *at(&mut expected, path) = Value::from(vec![value.clone()]),
                    Some(Value::Array(elements)) if elements.contains(value) => return Ok(None),
                    Some(Value::Array(_)) => {
                        if let Value::Array(elements) = at(&mut expected, path) {
                            elements.push(value.clone());
                        }
                    }
                    Some(_) => return Err(SettingsTextError::not_a_list(path)),
                }
                text.push(path, value)?;
            }
        }
        text.check_reads_as(&expected)?;
        Ok(Some(AppliedEdit {
            edit: self.clone(),
            previous: previous.filter(|_| matches!(self, Self::Set { .. })),
            existing_steps,
        }))
    }
}

impl AppliedEdit {
    /// Undoes the edit and nothing else. Returns `false` and changes nothing if the owner has
    /// changed the value since.
    pub fn revert(&self, text: &mut SettingsText) -> Result<bool, SettingsTextError> {
        let (path, value) = self.edit.parts();
        let Some(current) = text.get(path) else {
            return Ok(true);
        };
        match (&self.edit, &self.previous) {
            // An object under the name of Interlock belongs to setup, even if its members were
            // changed.
            (SettingsEdit::Set { .. } | SettingsEdit::SetOr { .. }, _)
                if current != *value && !value.is_object() =>
            {
                return Ok(false);
            }
            (SettingsEdit::Set { .. } | SettingsEdit::SetOr { .. }, Some(previous)) => {
                text.set(path, previous)?;
            }
            (SettingsEdit::Set { .. } | SettingsEdit::SetOr { .. }, None) => {
                text.unset(path)?;
                self.prune(text)?;
            }
            (SettingsEdit::Add { .. }, _) => {
                let elements = current.as_array().cloned().unwrap_or_default();
                let Some(index) = elements.iter().position(|element| element == value) else {
                    return Ok(true);
                };
                if elements.len() == 1 && self.existing_steps < path.len() {
                    text.unset(path)?;
                    self.prune(text)?;
                } else {
                    text.remove(path, index)?;
                }
            }
        }
        Ok(true)
    }

    /// Removes objects that the edit created if they are empty now.
    fn prune(&self, text: &mut SettingsText) -> Result<(), SettingsTextError> {
        let (path, _) = self.edit.parts();
        for steps in (self.existing_steps + 1..path.len()).rev() {
            // An empty YAML mapping reads as null.
            let is_empty =
                |value: Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
            if !text.get(&path[..steps]).is_some_and(is_empty) {
                break;
            }
            text.unset(&path[..steps])?;
        }
        Ok(())
    }
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|step| (*step).to_owned()).collect()
}

/// The value at a path, created if it is missing. A step that is not an object is replaced here;
/// the edit of the text refuses it.
fn at<'a>(value: &'a mut Value, path: &[String]) -> &'a mut Value {
    let mut place = value;
    for step in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[step.as_str()];
    }
    place
}
