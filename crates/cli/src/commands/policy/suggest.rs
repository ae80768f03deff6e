//! `interlock policy suggest`: proposes rules that would have saved approvals, and adds accepted
//! ones.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use interlock_arguments::{PolicySuggestArguments, StateArguments};
use interlock_checks::{ReplayFilter, Suggestion, Suggestions, suggest};
use interlock_client::{known_agent, open};
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure, milliseconds};
use interlock_host::{LocalHost, now_ms};

/// How many items of a list are shown.
const MOST_SHOWN: usize = 5;

pub(super) fn run(state: &StateArguments, arguments: &PolicySuggestArguments) -> CommandOutcome {
    let host = open(state)?;
    let since = now_ms().saturating_sub(milliseconds(&arguments.since)?);
    let filter = ReplayFilter {
        agent: arguments.agent.clone(),
        since_ms: Some(i64::try_from(since).unwrap_or(i64::MAX)),
        limit: arguments.limit,
    };
    let suggestions = suggest(&host, &filter)?;
    if let Some(agent) = arguments
        .agent
        .as_deref()
        .filter(|_| suggestions.approvals == 0)
    {
        // The history may name agents that the config no longer has, so check the name only now.
        known_agent(&host, agent)?;
    }
    if !arguments.accept.is_empty() || arguments.accept_all {
        return accept(&host, &suggestions, arguments);
    }
    if arguments.json {
        output::print_json(&suggestions);
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&text(&suggestions, Paint::stdout()));
    if suggestions.suggestions.is_empty() {
        output::note(&format!(
            "a rule is proposed for what was approved at least twice in the last {}; --since looks further back",
            line(&arguments.since)
        ));
    }
    let is_asked = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if is_asked {
        ask(&host, &suggestions)?;
    } else if !suggestions.suggestions.is_empty() {
        let flags = match &arguments.agent {
            Some(agent) => format!(" --agent {}", interlock_policy::quote(agent)),
            None => String::new(),
        };
        output::note(&format!(
            "nothing was written; to add all of them: {}",
            state.in_command(&format!(
                "interlock policy suggest --since {}{flags} --accept-all",
                arguments.since
            ))
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the named rules. If one of the names is unknown, nothing is added.
fn accept(
    host: &LocalHost,
    suggestions: &Suggestions,
    arguments: &PolicySuggestArguments,
) -> CommandOutcome {
    let all = &suggestions.suggestions;
    for id in &arguments.accept {
        if !all.iter().any(|suggestion| suggestion.id == *id) {
            let message = format!("--accept {id}: no suggestion has this id, nothing was written");
            return Err(Failure::refused("SUGGESTION_UNKNOWN", message).with_hint(
                "list them with the same --since and --agent: interlock policy suggest",
            ));
        }
    }
    let chosen: Vec<&Suggestion> = all
        .iter()
        .filter(|one| arguments.accept_all || arguments.accept.contains(&one.id))
        .collect();
    for suggestion in &chosen {
        host.rules()
            .add_entry(&suggestion.agent, &suggestion.entry)?;
    }
    if arguments.json {
        output::print_json(&serde_json::json!({ "accepted": chosen }));
    } else {
        for suggestion in chosen {
            output::print(&added(suggestion));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn added(suggestion: &Suggestion) -> String {
    let Suggestion { agent, allows, .. } = suggestion;
    format!("added for agent {}: {}\n", line(agent), line(allows))
}

/// Asks about each rule at the terminal. Only a clear yes adds a rule.
fn ask(host: &LocalHost, suggestions: &Suggestions) -> Result<(), Failure> {
    let mut is_all = false;
    for suggestion in &suggestions.suggestions {
        if !is_all {
            let mut errors = std::io::stderr();
            let _ = write!(
                errors,
                "add {}: {}? [y]es, [N]o, [a]ll, [q]uit: ",
                suggestion.id,
                line(&suggestion.allows)
            );
            let _ = errors.flush();
            let mut answer = String::new();
            let read = std::io::stdin().lock().read_line(&mut answer);
            match answer.trim() {
                "y" | "yes" => {}
                "a" | "all" => is_all = true,
                "q" | "quit" => return Ok(()),
                _ if read.is_ok_and(|bytes| bytes > 0) => continue,
                _ => return Ok(()),
            }
        }
        host.rules()
            .add_entry(&suggestion.agent, &suggestion.entry)?;
        output::print(&added(suggestion));
    }
    Ok(())
}

fn text(suggestions: &Suggestions, paint: Paint) -> String {
    let mut out = String::new();
    for suggestion in &suggestions.suggestions {
        out += &format!(
            "{}  {}\n  agent {}: {} approvals, {} of them saved by this rule alone\n",
            paint.strong(&suggestion.id),
            line(&suggestion.allows),
            line(&suggestion.agent),
            suggestion.approvals,
            suggestion.prompts_saved,
        );
        out += &list("approved", &suggestion.commands, paint);
        out += &list("would allow, too", &suggestion.newly_allowed, paint);
    }
    for (why, count) in &suggestions.left_out {
        out += &format!("no rule for {count}: {}\n", line(why));
    }
    out += &format!(
        "{} approvals, {} suggestions; all of them together would have saved {} prompts\n",
        suggestions.approvals,
        suggestions.suggestions.len(),
        suggestions.prompts_saved
    );
    out
}

fn list(title: &str, commands: &[String], paint: Paint) -> String {
    let mut out = String::new();
    for command in commands.iter().take(MOST_SHOWN) {
        out += &format!("  {title}: {}\n", paint.command(command));
    }
    if let Some(more) = commands
        .len()
        .checked_sub(MOST_SHOWN)
        .filter(|more| *more > 0)
    {
        out += &format!("  {title}: {more} more, shown by --json\n");
    }
    out
}
