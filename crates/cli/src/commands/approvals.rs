//! `interlock approvals`: the approvals document of this host, and pending approvals.

mod list;

use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

use interlock_arguments::{
    AllowlistAddArguments, AllowlistCommand, AllowlistRemoveArguments, ApprovalsCommand,
    ApprovalsGetArguments, ApprovalsSetArguments, ShieldArgument, StateArguments,
};
use interlock_client::{agent_id, known_scope, open, outside_runs};
use interlock_config::json5::MAX_BYTES;
use interlock_console::output::{self, Paint, line};
use interlock_console::{
    CommandOutcome, Failure, bounds, duration, level_row, milliseconds, rule_terms,
};
use interlock_host::{LocalHost, now_ms};
use interlock_inbox::{ApprovalSource, decide, grants, socket, watch};
use interlock_policy::{
    AgentId, Document, EVERY_AGENT, Entry, EntryShield, EntryWarning, Levels, agent_path, quote,
};
use interlock_rules::{EntryEdit, RemovedEntries};
use serde_json::{Map, Value, json};

use super::nodes;
use super::nodes::{DocumentAsked, DocumentOwner};

pub fn run(state: &StateArguments, command: ApprovalsCommand) -> CommandOutcome {
    let host = open(state)?;
    match command {
        ApprovalsCommand::Get(arguments) => {
            return match DocumentAsked::of(state, &host, &arguments.place)? {
                Some(DocumentAsked::Node(node)) => {
                    nodes::document_get(state, &host, node, &arguments)
                }
                Some(DocumentAsked::Gateway) => nodes::get_of_gateway(state, &host, &arguments),
                None => get(&host, &arguments),
            };
        }
        ApprovalsCommand::Pending(arguments) => return decide::pending(&host, state, &arguments),
        ApprovalsCommand::Grants(arguments) => return grants::list(&host, &arguments),
        ApprovalsCommand::Allowlist(AllowlistCommand::List(arguments)) => {
            return list::run(state, &host, &arguments);
        }
        _ => {}
    }
    let outside = outside_runs(host.state_dir())?;
    match command {
        ApprovalsCommand::Get(_)
        | ApprovalsCommand::Pending(_)
        | ApprovalsCommand::Grants(_)
        | ApprovalsCommand::Allowlist(AllowlistCommand::List(_)) => Ok(ExitCode::SUCCESS),
        ApprovalsCommand::Set(arguments) => set(state, &host, &arguments),
        ApprovalsCommand::Allowlist(AllowlistCommand::Add(arguments)) => {
            add(state, &host, arguments)
        }
        ApprovalsCommand::Allowlist(AllowlistCommand::Remove(arguments)) => {
            remove(state, &host, &arguments)
        }
        ApprovalsCommand::Approve(arguments) => {
            let source = ApprovalSource::open(state, &host)?;
            decide::approve((&source, state), &arguments, outside)
        }
        ApprovalsCommand::Deny(arguments) => {
            let source = ApprovalSource::open(state, &host)?;
            decide::deny((&source, state), &arguments, outside)
        }
        ApprovalsCommand::Watch(arguments) => watch::run(state, &host, &arguments, outside),
        ApprovalsCommand::Socket(arguments) => socket::run(&host, &arguments, outside),
        ApprovalsCommand::Revoke(arguments) => grants::revoke(&host, &arguments, outside),
    }
}

/// The agents to show: the named one, or else `main` and all others of the document.
pub(super) fn agents(
    named: Option<&str>,
    others: impl Iterator<Item = String>,
) -> Result<Vec<AgentId>, Failure> {
    // `*` means every agent, as no name does.
    if let Some(name) = named.filter(|name| *name != EVERY_AGENT) {
        return Ok(vec![agent_id(name)?]);
    }
    let mut agents = vec![AgentId::default()];
    for name in others.filter(|name| name != EVERY_AGENT) {
        let agent = agent_id(&name)?;
        if !agents.contains(&agent) {
            agents.push(agent);
        }
    }
    Ok(agents)
}

fn get(host: &LocalHost, arguments: &ApprovalsGetArguments) -> CommandOutcome {
    if let Some(agent) = &arguments.agent {
        known_scope(host, agent)?;
    }
    let (document, stored) = host.rules().document_with_uses()?;
    let agents = agents(arguments.agent.as_deref(), document.agents.keys().cloned())?;
    let mut levels: Vec<(AgentId, Levels)> = Vec::new();
    for agent in agents {
        let joined = host.levels(&agent, None)?;
        levels.push((agent, joined));
    }
    if arguments.json {
        let effective: Map<String, Value> = levels
            .iter()
            .map(|(agent, levels)| (agent.to_string(), json!(levels)))
            .collect();
        output::print_json(&json!({
            "document": without_secrets(&document),
            "hash": stored.hash,
            "updatedAtMs": stored.updated_at_ms,
            "effective": effective,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let mut out = format!("approvals document {}\n", paint.dim(&stored.hash));
    for (agent, levels) in &levels {
        out += &format!("\n{}\n", paint.strong(&format!("agent {agent}")));
        out += &output::table(
            &[
                level_row("security", &levels.security),
                level_row("ask", &levels.ask),
                level_row("askFallback", &levels.ask_fallback),
            ],
            "  ",
        );
        out += &entries(&document, agent);
    }
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

/// The entries of an agent as a table, each with where it is written.
pub(super) fn entries(document: &Document, agent: &AgentId) -> String {
    let row = |(entry, origin): (Entry, String)| {
        let note = entry.note.as_deref().map(line).unwrap_or_default();
        let bounds = line(&bounds(&entry));
        vec![line(&entry.pattern), bounds, origin, note, last_use(&entry)]
    };
    let (base, own): (Vec<_>, Vec<_>) = interlock_policy::entries(document, agent)
        .into_iter()
        .partition(|(entry, _)| entry.is_base());
    let trusted: Vec<Vec<String>> = own.into_iter().map(row).collect();
    let base: Vec<Vec<String>> = base.into_iter().map(row).collect();
    let denied: Vec<Vec<String>> = interlock_policy::deny_rules(document, agent)
        .into_iter()
        .map(|(rule, origin)| {
            let reason = rule.reason.as_deref().map(line).unwrap_or_default();
            let terms = line(&rule_terms(&rule));
            vec![line(&rule.pattern), terms, origin, reason]
        })
        .collect();
    let mut out = String::new();
    let base_title = "base (interlock policy base show)";
    for (title, rows) in [("allowlist", trusted), (base_title, base), ("deny", denied)] {
        if !rows.is_empty() {
            out += &format!("  {title}\n{}", output::table(&rows, "    "));
        }
    }
    if out.is_empty() {
        out += "  no entries\n";
    }
    out
}

/// When an entry was last used, and by which command.
fn last_use(entry: &Entry) -> String {
    let Some(at) = entry.last_used_at else {
        return String::new();
    };
    let ago = duration(now_ms().saturating_sub(at));
    match &entry.last_used_command {
        Some(command) => format!("used {ago} ago: {}", line(command)),
        None => format!("used {ago} ago"),
    }
}

/// The document without the token of the approval socket, which must not leave the store.
fn without_secrets(document: &Document) -> Document {
    let mut document = document.clone();
    if let Some(socket) = &mut document.socket {
        socket.token = None;
    }
    document
}

fn set(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &ApprovalsSetArguments,
) -> CommandOutcome {
    let (name, text) = match &arguments.file {
        Some(file) => {
            let text = File::open(file).and_then(read_limited);
            (file.display().to_string(), text)
        }
        None => ("standard input".to_owned(), read_limited(std::io::stdin())),
    };
    let text = text.map_err(|error| {
        Failure::refused("DOCUMENT_UNREADABLE", format!("{name}: {error}"))
            .with_hint("name a JSON5 file, or use --stdin")
    })?;
    if let Some(asked) = DocumentAsked::of(state, host, &arguments.place)? {
        if arguments.import {
            let message = "--import is for the document of this machine";
            return Err(Failure::usage("IMPORT_REMOTE", message)
                .with_hint("use it on the machine of the gateway"));
        }
        return nodes::document_set(state, host, asked, (&name, &text), arguments);
    }
    let base_hash = arguments.base_hash.as_deref();
    let stored = if arguments.import {
        let (stored, left_out) = host.rules().import_document(&name, &text, base_hash)?;
        for problem in &left_out.0 {
            output::note(&format!("left out: {problem}"));
        }
        stored
    } else {
        host.rules().set_document(&name, &text, base_hash)?
    };
    if arguments.json {
        output::print_json(&json!({ "hash": stored.hash, "updatedAtMs": stored.updated_at_ms }));
    } else {
        output::print(&format!("approvals document set, hash {}\n", stored.hash));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads one byte past the limit, so that the parser notices a document that is too long.
pub(super) fn read_limited(source: impl Read) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    source
        .take(limit.saturating_add(1))
        .read_to_end(&mut text)?;
    Ok(text)
}

fn add(
    state: &StateArguments,
    host: &LocalHost,
    arguments: AllowlistAddArguments,
) -> CommandOutcome {
    let expires_at = match &arguments.expires_in {
        Some(text) => Some(now_ms().saturating_add(milliseconds(text)?)),
        None => None,
    };
    let entry = Entry {
        args: (!arguments.args.is_empty()).then_some(arguments.args),
        arg_pattern: arguments.arg_pattern,
        cwd: arguments.cwd,
        paths: (!arguments.paths.is_empty()).then_some(arguments.paths),
        env: arguments.env,
        interactive: arguments.interactive,
        shield: arguments.shield.map(|ShieldArgument::Off| EntryShield::Off),
        note: arguments.note,
        expires_at,
        ..Entry::for_pattern(arguments.pattern)
    };
    let (edit, owner) = match DocumentAsked::of(state, host, &arguments.place)? {
        None => {
            let agent = known_scope(host, &arguments.agent)?;
            (host.rules().add_entry(&agent, &entry)?, None)
        }
        Some(asked) => {
            let (edit, owner) = nodes::add_entry(state, host, asked, &arguments.agent, &entry)?;
            (edit, Some(owner))
        }
    };
    let (entry, added) = match &edit {
        EntryEdit::Added(entry) => (entry, true),
        EntryEdit::Present(entry) => (entry, false),
    };
    let agent = scope_name(&arguments.agent);
    if arguments.json {
        let mut result = json!({ "added": added, "agent": agent, "entry": entry });
        if let Some(warning) = entry.warning() {
            result["warnings"] = json!([warned(state, &agent, &warning)]);
        }
        output::print_json(&with_owner(result, owner.as_ref()));
    } else {
        let id = entry.id.as_deref().unwrap_or("no id");
        let shown = format!("{} ({})", line(&entry.pattern), line(&bounds(entry)));
        let list = format!(
            "{}.allowlist{}",
            agent_path(&agent),
            of_owner(owner.as_ref())
        );
        output::print(&if added {
            format!("added {shown} to {list}, id {id}\n")
        } else {
            format!("{shown} is already in {list}, id {id}\n")
        });
    }
    if let Some(warning) = entry.warning().filter(|_| !arguments.json) {
        output::note(&format!("warning: {}", warned(state, &agent, &warning)));
    }
    if let Some(why) = satisfies_nothing(entry) {
        output::note(&format!("warning: this entry satisfies nothing: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A warning about an entry, with the command that adds a narrower one.
fn warned(state: &StateArguments, agent: &str, warning: &EntryWarning) -> String {
    let narrower = format!(
        "interlock approvals allowlist add --agent {} {}",
        quote(agent),
        warning.narrower
    );
    format!(
        "{}; narrower: {}",
        line(&warning.message),
        state.in_command(&narrower)
    )
}

pub(super) fn of_owner(owner: Option<&DocumentOwner>) -> String {
    owner.map_or_else(String::new, |owner| format!(" of {}", owner.shown()))
}

pub(super) fn with_owner(mut result: Value, owner: Option<&DocumentOwner>) -> Value {
    if let Some(owner) = owner {
        owner.add_to(&mut result);
    }
    result
}

/// The key of an agent in the document. Older names map to the current ones.
pub(super) fn scope_name(agent: &str) -> String {
    AgentId::new(agent).map_or_else(|_| agent.to_owned(), |id| id.as_str().to_owned())
}

/// Warns that an entry will never match: some programs are not trusted by name alone. The owner
/// should read that now, not at the next prompt.
fn satisfies_nothing(entry: &Entry) -> Option<String> {
    let program = entry.pattern.as_str();
    if interlock_programs::is_shell(program) {
        return Some(format!(
            "`{program}` is a shell; what it runs is judged instead"
        ));
    }
    let why = interlock_programs::opaque_reason(program)?;
    let unbound = entry.args.is_none() && entry.arg_pattern.is_none();
    unbound.then(|| format!("`{program}` {why}; list the arguments with --arg"))
}

fn remove(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &AllowlistRemoveArguments,
) -> CommandOutcome {
    let (agent, pattern) = (&arguments.agent, &arguments.pattern);
    let (
        RemovedEntries {
            entries: removed,
            kept,
        },
        owner,
    ) = match DocumentAsked::of(state, host, &arguments.place)? {
        None => {
            let agent = known_scope(host, agent)?;
            (host.rules().remove_entry(&agent, pattern)?, None)
        }
        Some(asked) => {
            let (removed, owner) = nodes::remove_entry(state, host, asked, agent, pattern)?;
            (removed, Some(owner))
        }
    };
    if arguments.json {
        let result = json!({ "removed": removed, "agent": scope_name(agent) });
        output::print_json(&with_owner(result, owner.as_ref()));
    } else {
        for entry in &removed {
            output::print(&format!(
                "removed {} ({}) from {}.allowlist{}\n",
                line(&entry.pattern),
                line(&bounds(entry)),
                agent_path(&scope_name(agent)),
                of_owner(owner.as_ref())
            ));
        }
    }
    if kept > 0 {
        output::note(&format!(
            "left: {kept} of the base or of templates for {}; to remove one, name its id: {}",
            line(pattern),
            state.in_command("interlock approvals allowlist list --json")
        ));
    }
    Ok(ExitCode::SUCCESS)
}
