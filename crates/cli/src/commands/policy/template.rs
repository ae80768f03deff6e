//! `interlock policy template`: lists, applies and removes narrow entries for a kind of work.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use interlock_arguments::{
    PolicyTemplateApplyArguments, PolicyTemplateCommand, PolicyTemplateRemoveArguments,
    StateArguments,
};
use interlock_client::request::{directory, utf8};
use interlock_client::{known_scope, open, outside_runs};
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure, bounds};
use interlock_host::LocalHost;
use interlock_policy::{EVERY_AGENT, Entry, quote};
use interlock_rules::{
    EntryEdit, Template, TemplateCaseResult, TemplateRemovalMode, check_template_directory,
    templates,
};
use serde_json::json;

pub(super) fn run(state: &StateArguments, command: &PolicyTemplateCommand) -> CommandOutcome {
    match command {
        PolicyTemplateCommand::List(arguments) => list(state, arguments.json),
        PolicyTemplateCommand::Show(arguments) => {
            let directory = directory_of(arguments.dir.as_deref())?;
            let template = Template::of(&arguments.names, &directory)?;
            if arguments.json {
                output::print_json(&template);
            } else {
                output::print(&described(&template, &directory));
            }
            Ok(ExitCode::SUCCESS)
        }
        PolicyTemplateCommand::Apply(arguments) => apply(state, arguments),
        PolicyTemplateCommand::Remove(arguments) => remove(state, arguments),
    }
}

fn directory_of(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let found = directory(named, "--dir")?;
    std::fs::canonicalize(&found)
        .map_err(|error| Failure::usage("CWD_UNUSABLE", format!("{}: {error}", found.display())))
}

fn list(state: &StateArguments, as_json: bool) -> CommandOutcome {
    let all = templates()?;
    if as_json {
        output::print_json(&all);
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|summary| vec![summary.name.to_owned(), summary.description.clone()])
        .collect();
    let mut out = output::table(&rows, "");
    out += &format!(
        "\nto read one:   {}\nto apply one:  {}\nto remove it:  {}\n",
        state.in_command("interlock policy template show rust"),
        state.in_command("interlock policy template apply rust"),
        state.in_command("interlock policy template remove rust"),
    );
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

/// Describes a template with its entries.
fn described(template: &Template, directory: &Path) -> String {
    let paint = Paint::stdout();
    let mut out = format!(
        "{} {}\n\n",
        paint.strong(&format!("template {}:", template.name)),
        template.description
    );
    if !template.includes.is_empty() {
        out += &format!("includes {}\n", template.includes.join(", "));
    }
    for allowed in &template.allows {
        out += &format!("- {allowed}\n");
    }
    out += &format!("\nentries for {}\n", line(&directory.display().to_string()));
    let rows: Vec<Vec<String>> = template
        .entries
        .iter()
        .map(|entry| {
            let note = entry.note.as_deref().map(line).unwrap_or_default();
            vec![line(&entry.pattern), line(&bounds(entry)), note]
        })
        .collect();
    out + &output::table(&rows, "  ")
}

fn apply(state: &StateArguments, arguments: &PolicyTemplateApplyArguments) -> CommandOutcome {
    let host = open(state)?;
    known_scope(&host, &arguments.agent)?;
    let directory = directory_of(arguments.dir.as_deref())?;
    let template = Template::of(&arguments.names, &directory)?;
    // Entries of a template for a machine have no directory.
    if template
        .entries
        .iter()
        .any(|entry| entry.cwd.is_some() || entry.paths.is_some())
    {
        check_template_directory(&directory, host.home())?;
    }
    check_cases(&host, &template, arguments, &directory)?;
    if arguments.dry_run {
        if arguments.json {
            output::print_json(&json!({
                "template": template, "agent": arguments.agent, "written": false
            }));
        } else {
            output::print(&described(&template, &directory));
            output::print("\nnothing was written (--dry-run)\n");
        }
        return Ok(ExitCode::SUCCESS);
    }
    outside_runs(host.state_dir())?;
    let edits = host.rules().apply_template(&template, &arguments.agent)?;
    let is_added = |edit: &&EntryEdit| matches!(edit, EntryEdit::Added(_));
    let added = edits.iter().filter(is_added).count();
    let present = edits.len() - added;
    if arguments.json {
        let entries: Vec<_> = edits
            .iter()
            .map(|edit| match edit {
                EntryEdit::Added(entry) => json!({ "added": true, "entry": entry }),
                EntryEdit::Present(entry) => json!({ "added": false, "entry": entry }),
            })
            .collect();
        output::print_json(&json!({
            "template": template.name,
            "includes": template.includes,
            "agent": arguments.agent,
            "dir": directory,
            "written": true,
            "added": added,
            "present": present,
            "entries": entries,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = String::new();
    for allowed in &template.allows {
        out += &format!("- {allowed}\n");
    }
    let asked = template.name.split(' ');
    let names: Vec<&str> = asked
        .chain(template.includes.iter().map(String::as_str))
        .collect();
    out += &format!(
        "applied {} for {}: {added} entries added, {present} were there; to see them: {}\n",
        names.join(", "),
        line(&directory.display().to_string()),
        state.in_command("interlock approvals allowlist list"),
    );
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

/// Removes the entries of templates, and prints which ones stay.
fn remove(state: &StateArguments, arguments: &PolicyTemplateRemoveArguments) -> CommandOutcome {
    let host = open(state)?;
    known_scope(&host, &arguments.agent)?;
    let directory = removal_directory(arguments.dir.as_deref())?;
    let mode = if arguments.dry_run {
        TemplateRemovalMode::Look
    } else {
        outside_runs(host.state_dir())?;
        TemplateRemovalMode::Remove
    };
    let removal =
        host.rules()
            .remove_template(&arguments.names, &directory, &arguments.agent, mode)?;
    if arguments.json {
        output::print_json(&json!({
            "template": arguments.names.join(" "),
            "agent": arguments.agent,
            "dir": directory,
            "written": !arguments.dry_run,
            "removed": removal.removed,
            "edited": removal.edited,
            "shared": removal.shared,
            "sharedWith": removal.shared_with,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = String::new();
    for entry in &removal.removed {
        out += &format!("- {} ({})\n", line(&entry.pattern), line(&bounds(entry)));
    }
    for entry in &removal.edited {
        out += &format!(
            "left, because it is not as the template writes it: {} ({}); to remove it: {}\n",
            line(&entry.pattern),
            line(&bounds(entry)),
            state.in_command(&removal_of(entry, &arguments.agent)),
        );
    }
    if !removal.shared.is_empty() {
        out += &format!(
            "left, because {} has them too: {} entries\n",
            removal.shared_with.join(" and "),
            removal.shared.len()
        );
    }
    let names = arguments.names.join(", ");
    let directory = line(&directory.display().to_string());
    let count = removal.removed.len();
    out += &if arguments.dry_run {
        format!(
            "would remove {count} entries of {names} for {directory}; nothing was written (--dry-run)\n"
        )
    } else {
        format!("removed {count} entries of {names} for {directory}\n")
    };
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

/// The directory of a removal. A directory that no longer exists can be named by its absolute path.
fn removal_directory(named: Option<&Path>) -> Result<PathBuf, Failure> {
    match named {
        Some(named) if named.is_absolute() && !named.exists() => Ok(named.to_owned()),
        named => directory_of(named),
    }
}

/// The command that removes one entry.
fn removal_of(entry: &Entry, agent: &str) -> String {
    let flag = match agent {
        EVERY_AGENT => String::new(),
        agent => format!("--agent {} ", quote(agent)),
    };
    let which = quote(entry.id.as_deref().unwrap_or(&entry.pattern));
    format!("interlock approvals allowlist remove {flag}{which}")
}

/// Checks that every test case of the template has the expected verdict. Otherwise nothing must be
/// written.
fn check_cases(
    host: &LocalHost,
    template: &Template,
    arguments: &PolicyTemplateApplyArguments,
    directory: &Path,
) -> Result<(), Failure> {
    let directory = utf8(&directory.as_os_str().to_owned())?;
    let results = host.try_template(template, &arguments.agent, &directory)?;
    let Some(failed) = results.iter().find(|result| !result.pass) else {
        return Ok(());
    };
    let TemplateCaseResult {
        command,
        expected,
        verdict,
        reason,
        ..
    } = failed;
    let message = format!(
        "nothing was written: `{}` should be {expected}, and is {verdict} ({})",
        line(command),
        line(reason)
    );
    Err(Failure::refused("TEMPLATE_CASE", message)
        .with_hint("a deny rule of the document decides otherwise, or report it"))
}
