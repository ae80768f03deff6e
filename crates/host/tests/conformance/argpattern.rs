//! Entries against one executable and its arguments.

use interlock_policy::{Allowlist, ArgumentRule, Candidate, Entry};
use serde_json::Value;

use crate::comparison::{Answer, Comparison, Row, unreadable};

pub fn ask(row: Row<'_>) -> Answer {
    let answer = match row.kind() {
        "entries" => entries(row),
        "regex" => regex(row),
        _ => Some(Answer::NotOurs),
    };
    answer.unwrap_or_else(unreadable)
}

/// The case says nothing about who may change the way to the file, so the path as found is not
/// protected.
pub fn entries(row: Row<'_>) -> Option<Answer> {
    let executable = Row(row.get("executable"));
    let raw = executable.text("raw").unwrap_or_default();
    let arguments = row.argv("argv").unwrap_or_default();
    let expected = row.expect().get("match").as_bool()?;
    let got = match executable.text("resolved") {
        Some(found) => {
            let mut entries = entry_list(row.get("entries"))?;
            // Without arguments nothing can be said about them.
            if row.get("argv").is_null() {
                entries.retain(|(entry, _)| entry.arg_pattern.is_none());
            }
            let candidate = Candidate {
                path_name: (!raw.contains('/')).then_some(raw),
                found,
                canonical: executable.text("realPath").unwrap_or(found),
                protected: false,
                opaque: interlock_programs::opaque_reason(raw).is_some(),
                arguments: arguments.get(1..).unwrap_or_default(),
                cwd: row.text("cwd").unwrap_or("/"),
                now_ms: 0,
            };
            let home = std::env::var("HOME").ok();
            let list = Allowlist::new(entries.into_iter().collect(), home.as_deref());
            list.find(&candidate).is_ok()
        }
        None => false,
    };
    Some(Comparison::permission(expected, got))
}

/// Entries that cannot be read match nothing.
fn entry_list(value: &Value) -> Option<Vec<(Entry, String)>> {
    let items = value.as_array()?.iter();
    let entries = items.filter_map(|item| serde_json::from_value::<Entry>(item.clone()).ok());
    Some(entries.map(|entry| (entry, "entries".to_owned())).collect())
}

fn regex(row: Row<'_>) -> Option<Answer> {
    let expected = row.expect().get("match").as_bool()?;
    let arguments = row.argv("args")?;
    let rule = ArgumentRule::parse(Some(row.text("argPattern")?), None);
    let got = rule.is_ok_and(|rule| rule.matches(&arguments, "/"));
    Some(Comparison::permission(expected, got))
}
