//! The text of a command, which people see and approve, and whether a text that came with an argv
//! says the same.

use interlock_programs::{ShellCall, shell_call, unwrap_chain};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The words joined by blanks. A word that is empty, or has white space or a double quote, stands
/// in double quotes; nothing else is escaped. For people, not for shells.
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

/// A text that came with an argv says something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCommandMismatch {
    pub raw_command: String,
    /// What it should have said: the inner text, or all words.
    pub inferred: String,
    /// All words.
    pub formatted: String,
}

/// The texts of an argv. `raw` must be one of them if it is there and not blank.
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

/// The text of `SHELL -c TEXT`, also behind wrappers that change nothing. Arguments behind the
/// text, or a changed environment, mean that the text is not all that runs.
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

/// A list of words. Anything else is no command: an empty list, which is refused where it is used.
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
