//! The text of a settings file in one of three formats. An edit keeps all other bytes as far as the
//! editor of the format can. Each edit is read back and checked before it is used.

use interlock_config::{Json5Text, KeyPath};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml_edit::DocumentMut;

use super::toml;
use super::yaml::YamlText;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingsFormat {
    /// JSON, with comments and trailing commas if the agent program accepts them.
    Json,
    Toml,
    Yaml,
}

/// A parsed settings file.
#[derive(Debug, Clone)]
pub enum SettingsText {
    Json(Json5Text),
    Toml(Box<DocumentMut>),
    Yaml(YamlText),
}

/// Why a settings file cannot be read or changed. The file stays unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsTextError(pub String);

impl SettingsTextError {
    pub fn not_a_list(path: &[String]) -> Self {
        Self(format!(
            "`{}` is not a list; setup adds an element to it",
            path.join(".")
        ))
    }
}

impl SettingsText {
    /// Parses a file. Error messages call it `name`.
    pub fn parse(
        format: SettingsFormat,
        name: &str,
        text: &str,
    ) -> Result<Self, SettingsTextError> {
        // A file with only white space counts as missing.
        let is_empty = text.trim().is_empty();
        match format {
            SettingsFormat::Json => {
                let text = if is_empty { "{}\n" } else { text };
                let parsed = Json5Text::parse(name, text);
                let parsed = parsed.map_err(|problem| SettingsTextError(problem.to_string()))?;
                if !parsed.value().is_object() {
                    return Err(SettingsTextError(format!("{name} does not hold an object")));
                }
                Ok(Self::Json(parsed.quoting_keys()))
            }
            SettingsFormat::Toml => {
                let parsed = text.parse::<DocumentMut>();
                let parsed =
                    parsed.map_err(|error| SettingsTextError(format!("{name}: {error}")))?;
                Ok(Self::Toml(Box::new(parsed)))
            }
            SettingsFormat::Yaml => Ok(Self::Yaml(YamlText::parse(name, text)?)),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Json(text) => text.text().to_owned(),
            Self::Toml(document) => document.to_string(),
            Self::Yaml(text) => text.text().to_owned(),
        }
    }

    pub fn value(&self) -> Value {
        match self {
            Self::Json(text) => text.value(),
            Self::Toml(document) => toml::value(document),
            Self::Yaml(text) => text.value().clone(),
        }
    }

    pub fn get(&self, path: &[String]) -> Option<Value> {
        let mut value = &self.value();
        for step in path {
            value = value.get(step)?;
        }
        Some(value.clone())
    }

    pub fn set(&mut self, path: &[String], value: &Value) -> Result<(), SettingsTextError> {
        match self {
            Self::Json(text) => text
                .set(&keys(path), value)
                .map_err(|error| edit_error(&error)),
            Self::Toml(document) => toml::set(document, path, value),
            Self::Yaml(text) => text.set(path, value),
        }
    }

    pub fn unset(&mut self, path: &[String]) -> Result<(), SettingsTextError> {
        match self {
            Self::Json(text) => text
                .unset(&keys(path))
                .map(drop)
                .map_err(|error| edit_error(&error)),
            Self::Toml(document) => {
                toml::unset(document, path);
                Ok(())
            }
            Self::Yaml(text) => text.unset(path),
        }
    }

    /// Adds an element to a list. A missing list is created.
    pub fn push(&mut self, path: &[String], value: &Value) -> Result<(), SettingsTextError> {
        let length = match self.get(path) {
            Some(Value::Array(elements)) => Some(elements.len()),
            Some(_) => return Err(SettingsTextError::not_a_list(path)),
            None => None,
        };
        match (self, length) {
            (Self::Json(text), Some(length)) => text
                .set(&keys(path).index(length), value)
                .map_err(|error| edit_error(&error)),
            (Self::Json(text), None) => text
                .set(&keys(path), &Value::from(vec![value.clone()]))
                .map_err(|error| edit_error(&error)),
            (Self::Toml(document), _) => toml::push(document, path, value),
            (Self::Yaml(_), _) => Err(SettingsTextError(format!(
                "`{}`: lists of YAML files are not changed",
                path.join(".")
            ))),
        }
    }

    /// Removes one element of a list.
    pub fn remove(&mut self, path: &[String], index: usize) -> Result<(), SettingsTextError> {
        match self {
            Self::Json(text) => text
                .unset(&keys(path).index(index))
                .map(drop)
                .map_err(|error| edit_error(&error)),
            Self::Toml(document) => {
                toml::remove(document, path, index);
                Ok(())
            }
            Self::Yaml(_) => Ok(()),
        }
    }

    /// Checks that the edited text reads back as the expected value. An edit that fails this check
    /// must not be written.
    pub fn check_reads_as(&self, expected: &Value) -> Result<(), SettingsTextError> {
        let format = match self {
            Self::Json(_) => SettingsFormat::Json,
            Self::Toml(_) => SettingsFormat::Toml,
            Self::Yaml(_) => SettingsFormat::Yaml,
        };
        let read = Self::parse(format, "the changed file", &self.text())?;
        if read.value() == *expected {
            return Ok(());
        }
        let message = "the change would not read back as it was meant";
        Err(SettingsTextError(message.to_owned()))
    }
}

fn keys(path: &[String]) -> KeyPath {
    path.iter()
        .fold(KeyPath::root(), |keys, step| keys.key(step))
}

fn edit_error(error: &interlock_config::EditError) -> SettingsTextError {
    SettingsTextError(error.to_string())
}
