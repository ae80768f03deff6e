//! Reads parameters one by one and strictly.

use std::time::Duration;

use interlock_config::nearest;
use serde_json::{Map, Value};

use super::{MISSING, ParameterError, RANGE, TYPE, UNKNOWN, VALUE};

/// The parameters of one call. The tool knows all of their names.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    values: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub fn new(
        tool: &str,
        parameters: &'a Value,
        known: &'static [&'static str],
    ) -> Result<Self, ParameterError> {
        let Value::Object(values) = parameters else {
            let problem = format!(
                "takes its parameters as an object, not as {}",
                kind(parameters)
            );
            return Err(ParameterError::new(TYPE, tool, problem));
        };
        let unknown = values.keys().find(|key| !known.contains(&key.as_str()));
        if let Some(key) = unknown {
            let hint = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the parameters are {}", listed(known)),
            };
            let problem = format!("is not a parameter of `{tool}`");
            return Err(ParameterError::new(UNKNOWN, key, problem).with_hint(Some(hint)));
        }
        Ok(Self { values })
    }

    pub fn get(self, name: &str) -> Option<&'a Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    pub fn text(self, name: &str) -> Result<Option<&'a str>, ParameterError> {
        self.get(name).map(|value| text(name, value)).transpose()
    }

    /// The text of a parameter; blank text counts as absent.
    pub fn filled_text(self, name: &str) -> Result<Option<&'a str>, ParameterError> {
        Ok(self.text(name)?.filter(|text| !text.trim().is_empty()))
    }

    pub fn required_text(self, name: &str) -> Result<&'a str, ParameterError> {
        let text = self.text(name)?;
        text.ok_or_else(|| ParameterError::new(MISSING, name, "is required"))
    }

    /// The value of a flag; `false` if absent.
    pub fn flag(self, name: &str) -> Result<bool, ParameterError> {
        Ok(self.optional_flag(name)?.unwrap_or(false))
    }

    pub fn optional_flag(self, name: &str) -> Result<Option<bool>, ParameterError> {
        let read = |value: &Value| {
            let wrong = || wrong_type(name, "true or false", value);
            value.as_bool().ok_or_else(wrong)
        };
        self.get(name).map(read).transpose()
    }

    /// One of the given words, as the config writes them.
    pub fn word<T>(
        self,
        name: &str,
        words: &'static [&'static str],
        parse: impl Fn(&Value) -> Option<T>,
        otherwise: Option<&str>,
    ) -> Result<Option<T>, ParameterError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let word = text(name, value)?;
        if let Some(parsed) = parse(value).filter(|_| words.contains(&word)) {
            return Ok(Some(parsed));
        }
        let problem = format!("is one of {}, not {word:?}", listed(words));
        let near = nearest(word, words.iter().copied());
        let hint = near.map(|near| format!("did you mean {near:?}?"));
        let hint = hint.or(otherwise.map(str::to_owned));
        Err(ParameterError::new(VALUE, name, problem).with_hint(hint))
    }

    /// A number that is not negative. JSON has no NaN.
    pub fn number(self, name: &str) -> Result<Option<f64>, ParameterError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = value
            .as_f64()
            .ok_or_else(|| wrong_type(name, "a number", value))?;
        if !number.is_finite() {
            return Err(ParameterError::new(RANGE, name, "is too large"));
        }
        if number < 0.0 {
            return Err(ParameterError::new(RANGE, name, "is negative"));
        }
        Ok(Some(number))
    }

    /// A duration in milliseconds, clamped to `least..=most`.
    pub fn milliseconds(
        self,
        name: &str,
        least: u32,
        most: u32,
    ) -> Result<Option<Duration>, ParameterError> {
        let Some(number) = self.number(name)? else {
            return Ok(None);
        };
        let number = number.clamp(least.into(), most.into());
        Ok(Some(Duration::from_micros(whole(number * 1000.0))))
    }

    /// A whole number within a range.
    pub fn count(self, name: &str, least: u64, most: u64) -> Result<Option<u64>, ParameterError> {
        let Some(number) = self.number(name)? else {
            return Ok(None);
        };
        if number.fract() != 0.0 {
            return Err(ParameterError::new(RANGE, name, "is not a whole number"));
        }
        let exact = self.get(name).and_then(Value::as_u64);
        let count = exact.unwrap_or_else(|| whole(number));
        if (least..=most).contains(&count) {
            return Ok(Some(count));
        }
        let problem = format!("is outside of {least} to {most}");
        Err(ParameterError::new(RANGE, name, problem))
    }

    /// A list of texts; empty if absent.
    pub fn texts(self, name: &str) -> Result<Vec<String>, ParameterError> {
        let Some(value) = self.get(name) else {
            return Ok(Vec::new());
        };
        let Value::Array(items) = value else {
            return Err(wrong_type(name, "a list of strings", value));
        };
        let items = items.iter().enumerate();
        items
            .map(|(index, item)| text(&format!("{name}[{index}]"), item).map(str::to_owned))
            .collect()
    }
}

pub(super) fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, ParameterError> {
    let text = value.as_str();
    text.ok_or_else(|| wrong_type(name, "a string", value))
}

/// Rejects text that no program could receive as an argument, a path or an environment variable.
pub(super) fn without_nul<'a>(name: &str, text: &'a str) -> Result<&'a str, ParameterError> {
    if text.contains('\0') {
        let problem = "holds a NUL character, which no program can receive";
        return Err(ParameterError::new(VALUE, name, problem));
    }
    Ok(text)
}

pub(super) fn wrong_type(name: &str, expected: &str, value: &Value) -> ParameterError {
    let hint = match value {
        Value::String(text) if expected != "a string" => {
            let bare = text.parse::<f64>().is_ok() || ["true", "false"].contains(&text.as_str());
            if bare {
                Some("remove the quotes")
            } else if expected.starts_with("a list") {
                Some("put it in brackets")
            } else {
                None
            }
        }
        Value::Number(_) | Value::Bool(_) if expected == "a string" => Some("put it in quotes"),
        _ => None,
    };
    let problem = format!("is {expected}, not {}", kind(value));
    ParameterError::new(TYPE, name, problem).with_hint(hint.map(str::to_owned))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The whole part of a number that is not negative, or [`u64::MAX`] if it does not fit.
pub(super) fn whole(number: f64) -> u64 {
    format!("{:.0}", number.trunc().abs())
        .parse()
        .unwrap_or(u64::MAX)
}

pub fn listed(words: &[&str]) -> String {
    words.join(", ")
}
