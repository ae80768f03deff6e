//! Describes entries, deny rules and levels in a few words.

use interlock_host::now_ms;
use interlock_policy::{
    ARGUMENTS_DIGEST, DenyRule, Entry, EntryShield, Joined, PolicySource, quote,
};

use crate::time_text::time_left;

const ANY_ARGUMENTS: &str = "any arguments";

fn arguments(args: Option<&[String]>, pattern: Option<&str>) -> Option<String> {
    if let Some(args) = args {
        let quoted: Vec<String> = args.iter().map(|argument| quote(argument)).collect();
        return Some(format!("args {}", quoted.join(" ")).trim_end().to_owned());
    }
    pattern.map(|pattern| {
        if pattern.starts_with(ARGUMENTS_DIGEST) {
            return "exactly the approved arguments, in the directory of the approval".to_owned();
        }
        // Show NUL as a regular expression writes it, not as a Rust escape.
        format!("argPattern {}", pattern.replace('\0', "\\x00"))
    })
}

/// Describes the arguments that a deny rule matches.
pub fn rule_terms(rule: &DenyRule) -> String {
    let arguments = arguments(rule.args.as_deref(), rule.arg_pattern.as_deref());
    arguments.unwrap_or_else(|| ANY_ARGUMENTS.to_owned())
}

/// Describes the conditions of an entry in a few words.
pub fn bounds(entry: &Entry) -> String {
    let arguments = arguments(entry.args.as_deref(), entry.arg_pattern.as_deref());
    let mut parts = vec![arguments.unwrap_or_else(|| ANY_ARGUMENTS.to_owned())];
    if let Some(name) = &entry.called_as {
        parts.push(format!("called as {name}"));
    }
    if let Some(cwd) = &entry.cwd {
        parts.push(format!("in {cwd}"));
    }
    if let Some(paths) = &entry.paths {
        parts.push(format!("files in {}", paths.join(", ")));
    }
    if let Some(file) = &entry.bound_file {
        let hash = file.sha256.get(..12).unwrap_or(&file.sha256);
        parts.push(format!("{} with the content {hash}…", file.path));
        if !file.interpreters.is_empty() {
            parts.push(format!("run by {}", file.interpreters.join(", ")));
        }
        for also in &file.also {
            let hash = also.sha256.get(..12).unwrap_or(&also.sha256);
            parts.push(format!("{} with the content {hash}…", also.path));
        }
    }
    if !entry.env.is_empty() {
        parts.push(format!("env {}", entry.env.join(" ")));
    }
    match (entry.interactive, entry.terminal) {
        (true, Some(true)) => parts.push("on a terminal".to_owned()),
        (true, Some(false)) => parts.push("with an open stdin".to_owned()),
        (true, None) => parts.push("also interactive".to_owned()),
        (false, Some(true)) => parts.push("never: a terminal is interactive".to_owned()),
        (false, Some(false) | None) => {}
    }
    if entry.shield == Some(EntryShield::Off) {
        parts.push("also without the shield".to_owned());
    }
    if entry.expires_at.is_some_and(|at| at <= now_ms()) {
        parts.push("expired".to_owned());
    } else if let Some(at) = entry.expires_at {
        parts.push(format!(
            "for {} more",
            time_left(at.saturating_sub(now_ms()))
        ));
    }
    if entry.is_inert() {
        parts.push("inert: binds no arguments".to_owned());
    }
    parts.join(", ")
}

/// One row of the table of layers: the field, its effective value, the layer that decided, and the
/// values of the other layers.
pub fn level_row<T: Copy + std::fmt::Display>(name: &str, joined: &Joined<T>) -> Vec<String> {
    let effective = &joined.effective;
    let decided = match effective.source {
        PolicySource::Default => "built-in default".to_owned(),
        PolicySource::Call => "by the call itself".to_owned(),
        source if effective.path.is_empty() => format!("by the {}", source.as_str()),
        source => format!("by {} ({})", effective.path, source.as_str()),
    };
    let others: Vec<String> = joined
        .layers
        .iter()
        .filter(|layer| layer.path != effective.path || layer.source != effective.source)
        .map(|layer| format!("{} says {}", layer.source.as_str(), layer.value))
        .collect();
    vec![
        name.to_owned(),
        effective.value.to_string(),
        decided,
        others.join(", "),
    ]
}
