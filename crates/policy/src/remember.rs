//! What "always" would store, computed beforehand so that it can be shown.

use interlock_command::{Analysis, Binding, BindingKind, Program, Shape, starts_others};
use serde::Serialize;

use crate::arguments::digest_pattern;
use crate::entry::{ALLOW_ALWAYS, Entry};
use crate::judge::BEYOND_ENTRIES;
use crate::verdict::Judged;

/// Entries that would satisfy what is a miss now, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remember {
    pub entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_because: Option<String>,
}

impl Remember {
    fn nothing(reason: impl Into<String>) -> Self {
        Self {
            entries: Vec::new(),
            nothing_because: Some(reason.into()),
        }
    }

    pub(crate) fn of(analysis: &Analysis, segments: &[Judged], binding: &Binding) -> Self {
        if let Shape::Odd(odd) = &analysis.shape {
            return Self::nothing(format!("the text is not plain: {}", odd.reason.message()));
        }
        if binding.kind >= BindingKind::Text {
            return Self::nothing(binding.reason.clone());
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (command, judged) in analysis.commands.iter().zip(segments) {
            if judged.satisfied_by.is_some() {
                continue;
            }
            if BEYOND_ENTRIES.contains(&judged.reason.code) {
                return Self::nothing(judged.reason.message.clone());
            }
            let Some(executable) = command.executable() else {
                return Self::nothing(judged.reason.message.clone());
            };
            if matches!(command.program, Program::Closed { .. })
                || starts_others(command.name(), executable).is_some()
                || is_never_stored(command.name(), &executable.canonical)
            {
                return Self::nothing(format!("`{}` starts another program", command.name()));
            }
            let arguments = &command.argv[1..];
            let entry = Entry {
                arg_pattern: Some(digest_pattern(arguments, &command.cwd)),
                source: Some(ALLOW_ALWAYS.to_owned()),
                ..Entry::for_pattern(executable.canonical.clone())
            };
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        if entries.is_empty() {
            return Self::nothing("nothing in it needs an entry");
        }
        Self {
            entries,
            nothing_because: None,
        }
    }
}

fn is_never_stored(name: &str, canonical: &str) -> bool {
    [name, canonical].into_iter().any(|program| {
        interlock_command::opaque_reason(program).is_some() || interlock_command::is_shell(program)
    })
}
