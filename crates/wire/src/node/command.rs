//! The text of a command that people see and approve, and the check that a text that accompanies an
//! argv agrees with it.

use interlock_programs::{ShellCall, shell_call, unwrap_chain};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Joins the words with blanks. A word that is empty, or contains white space or a double quote, is
/// put in double quotes; nothing else is escaped. For people, not for shells.
pub fn format_exec_command(argv: &[String]) -> String {
    let word = |word: &String| {
        let plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c == '"');
        if plain {
            return word.clone();
        }
        format!("\"{}\"", word.replace('"', "\\\""))
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A command as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandText {
    /// All words.
    pub text: String,
    /// The text inside `sh -c TEXT`, if that is all that runs.
    pub preview: Option<String>,
}

/// The error for a text that differs from the argv that it accompanied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCommandMismatch {
    pub raw_command: String,
    /// The expected text: the inner text, or all words.
    pub inferred: String,
    /// All words.
    pub formatted: String,
}

/// The texts of an argv. A `raw` text that is not blank must be one of them.
pub fn command_text(argv: &[String], raw: Option<&str>) -> Result<CommandText, RawCommandMismatch> {
    let text = format_exec_command(argv);
    let preview = shell_payload(argv);
    match raw.map(str::trim).filter(|raw| !raw.is_empty()) {
        Some(raw) if raw != text.trim() && preview.as_deref().map(str::trim) != Some(raw) => {
            Err(RawCommandMismatch {
                raw_command: raw.to_owned(),
                inferred: preview.unwrap_or_else(|| text.clone()),
                formatted: text,
            })
        }
        _ => Ok(CommandText { text, preview }),
    }
}

/// The text of `SHELL -c TEXT`, also behind wrappers without an effect. Arguments after the text,
/// or a changed environment, mean that the text is not everything that runs.
fn shell_payload(argv: &[String]) -> Option<String> {
    let chain = unwrap_chain(argv);
    if chain.blocked.is_some() {
        return None;
    }
    let last = chain.argv.last()?;
    match shell_call(&chain.argv) {
        ShellCall::Text { index, .. } if index + 1 == chain.argv.len() => Some(last.clone()),
        ShellCall::Closed { text, .. } => text.filter(|text| text == last),
        _ => None,
    }
}

/// Reads a list of words. Any other value becomes an empty list, which is refused where it is used.
pub(super) fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let Value::Array(words) = Value::deserialize(deserializer)? else {
        return Ok(Vec::new());
    };
    let words = words.into_iter().map(|word| match word {
        Value::String(word) => Some(word),
        _ => None,
    });
    Ok(words.collect::<Option<_>>().unwrap_or_default())
}
