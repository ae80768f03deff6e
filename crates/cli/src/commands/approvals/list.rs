//! `interlock approvals allowlist list`: lists the entries, who wrote each of them and when it was
//! last used. Entries of the base are listed separately, because the owner did not write them one
//! by one.

use std::process::ExitCode;

use interlock_arguments::{AllowlistListArguments, StateArguments};
use interlock_client::{agent_id, known_agent};
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure, bounds};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, Document, EVERY_AGENT, Entry};
use serde_json::{Value, json};

use super::super::nodes;
use super::super::nodes::DocumentAsked;
use super::{last_use, with_owner};

/// The `source` of entries that belong to the base.
const BASE: &str = "base";

/// An entry, and where it is written.
type PrintedEntry = (Entry, String);

pub(super) fn run(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &AllowlistListArguments,
) -> CommandOutcome {
    let (document, owner) = match DocumentAsked::of(state, host, &arguments.place)? {
        None => (host.rules().document_with_uses()?.0, None),
        Some(asked) => {
            let (document, owner) = nodes::deny::document(state, host, asked)?;
            (document, Some(owner))
        }
    };
    let named = arguments.agent.as_deref();
    let entries = match named.filter(|name| *name != EVERY_AGENT) {
        Some(name) => {
            let agent = match &owner {
                None => known_agent(host, name)?,
                Some(_) => agent_id(name)?,
            };
            interlock_policy::entries(&document, &agent)
        }
        None => all_entries(&document)?,
    };
    let (base, own): (Vec<PrintedEntry>, Vec<PrintedEntry>) = entries
        .into_iter()
        .partition(|(entry, _)| entry.source.as_deref() == Some(BASE));
    if arguments.json {
        let result = json!({ "entries": values(&own), "base": values(&base) });
        output::print_json(&with_owner(result, owner.as_ref()));
        return Ok(ExitCode::SUCCESS);
    }
    if own.is_empty() && base.is_empty() {
        output::note("no entries; to add one: interlock approvals allowlist add PROGRAM");
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let mut out = String::new();
    for (title, entries) in [("allowlist", &own), ("base", &base)] {
        if entries.is_empty() {
            continue;
        }
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        out += &format!("{}\n{}", paint.strong(title), output::table(&rows, "  "));
    }
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

fn row((entry, origin): &PrintedEntry) -> Vec<String> {
    let used = last_use(entry);
    vec![
        line(&entry.pattern),
        line(&bounds(entry)),
        origin.clone(),
        line(entry.source.as_deref().unwrap_or("owner")),
        if used.is_empty() {
            "never used".to_owned()
        } else {
            used
        },
        entry.note.as_deref().map(line).unwrap_or_default(),
    ]
}

fn values(entries: &[PrintedEntry]) -> Vec<Value> {
    let value = |(entry, origin): &PrintedEntry| json!({ "entry": entry, "origin": origin });
    entries.iter().map(value).collect()
}

/// The entries of all scopes, without duplicates.
fn all_entries(document: &Document) -> Result<Vec<PrintedEntry>, Failure> {
    let mut all: Vec<PrintedEntry> = Vec::new();
    let named = document.agents.keys().filter(|name| *name != EVERY_AGENT);
    for name in named.map(String::as_str).chain([AgentId::MAIN]) {
        for entry in interlock_policy::entries(document, &agent_id(name)?) {
            if !all.contains(&entry) {
                all.push(entry);
            }
        }
    }
    Ok(all)
}
