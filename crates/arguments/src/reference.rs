//! Makes the reference pages of the documentation from the command line that the program accepts.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use crate::Arguments;
use crate::reach::{COMMANDS, CommandReach};

/// The whole command line, also for tests that compare texts with it.
pub fn command_line() -> Command {
    let mut root = Arguments::command();
    // Commands add their flags lazily. `build` adds the flags of all commands.
    root.build();
    root
}

/// The reference page in Markdown, with one section per command in the order of `--help`.
pub fn cli_page() -> String {
    let root = command_line();
    let mut page = String::from(
        "# Command line reference\n\nGenerated from the program. Data goes to standard output, everything else to standard error. \
         Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 a command or patch was not allowed, and what a command says of others.\n\n## Options of every command\n\n",
    );
    let global: Vec<&Arg> = root
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .collect();
    options(&mut page, &global);
    let shown = root.get_subcommands();
    for command in shown.filter(|command| !command.is_hide_set()) {
        section(&mut page, command, "interlock");
    }
    page
}

fn section(page: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string);
    let _ = write!(
        page,
        "\n## `{name}`\n\n{}.\n",
        about.as_deref().unwrap_or_default()
    );
    if command.has_subcommands() {
        page.push('\n');
        for inner in command.get_subcommands() {
            let path = format!("{name} {}", inner.get_name());
            let about = inner.get_about().map(ToString::to_string);
            let _ = writeln!(
                page,
                "- [`{path}`](#{}): {}",
                path.replace(' ', "-"),
                about.unwrap_or_default()
            );
        }
    }
    if !command.has_subcommands() || !command.is_subcommand_required_set() {
        usage(page, command);
    }
    for inner in command.get_subcommands() {
        section(page, inner, &name);
    }
}

/// The usage, the arguments and the examples of one command.
fn usage(page: &mut String, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = write!(page, "\n```\n{usage}\n```\n");
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| !argument.is_global_set() && !argument.is_hide_set())
        .filter(|argument| argument.get_id() != "help")
        .collect();
    if !own.is_empty() {
        page.push('\n');
        options(page, &own);
    }
    if let Some(example) = command.get_after_help() {
        let _ = write!(page, "\n```text\n{example}\n```\n");
    }
}

fn options(page: &mut String, arguments: &[&Arg]) {
    page.push_str("| argument | meaning |\n| --- | --- |\n");
    for argument in arguments {
        let meaning = argument.get_help().map(ToString::to_string);
        let mut meaning = meaning.unwrap_or_default();
        let words: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|value| argument.get_action().takes_values() && !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !words.is_empty() {
            let _ = write!(meaning, ": {}", words.join(", "));
        }
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .filter(|_| argument.get_action().takes_values())
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        if !defaults.is_empty() {
            let _ = write!(meaning, " [default: {}]", defaults.join(", "));
        }
        let _ = writeln!(page, "| `{}` | {meaning} |", signature(argument));
    }
}

/// The name of an argument, such as `-v, --verbose`, `--cwd <DIR>` or `<FILE>...`.
fn signature(argument: &Arg) -> String {
    let mut names = Vec::new();
    if let Some(short) = argument.get_short() {
        names.push(format!("-{short}"));
    }
    if let Some(long) = argument.get_long() {
        names.push(format!("--{long}"));
    }
    if names.is_empty() {
        return argument.to_string();
    }
    let value = argument
        .get_value_names()
        .filter(|_| argument.get_action().takes_values())
        .and_then(<[_]>::first);
    match value {
        Some(value) => format!("{} <{value}>", names.join(", ")),
        None => names.join(", "),
    }
}

/// The table of the guide that says where each command acts if `gateway.remote` names a remote
/// gateway.
pub fn reach_table() -> String {
    let mut table = String::from("| where it acts | commands |\n| --- | --- |\n");
    let rows = [
        (CommandReach::Gateway, "at the gateway"),
        (
            CommandReach::GatewayWithNode,
            "at the gateway with `--node`; otherwise refused without `--local`",
        ),
        (
            CommandReach::Refused,
            "on this machine only: refused without `--local` (`LOCAL_ONLY`)",
        ),
        (
            CommandReach::Noted,
            "on this machine, and says so on standard error",
        ),
        (
            CommandReach::Machine,
            "the program and the files of this machine",
        ),
    ];
    for (reach, words) in rows {
        let _ = writeln!(table, "| {words} | {} |", grouped(reach).join(", "));
    }
    table
}

/// Groups commands with the same first word.
fn grouped(reach: CommandReach) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    let shown = COMMANDS.iter().filter(|row| row.command != "man");
    for row in shown.filter(|row| row.reach == reach) {
        let (first, rest) = row.command.split_once(' ').unwrap_or((row.command, ""));
        match groups.last_mut() {
            Some((group, all)) if *group == first => all.push(rest),
            _ => groups.push((first, vec![rest])),
        }
    }
    let shown = |(first, rest): (&str, Vec<&str>)| match rest.as_slice() {
        [""] => format!("`{first}`"),
        rest => format!("`{first} {}`", rest.join("\\|")),
    };
    groups.into_iter().map(shown).collect()
}

/// The commands that are refused while the owner follows a remote gateway.
pub fn refused_elsewhere() -> Vec<&'static str> {
    let refused = |reach: CommandReach| {
        matches!(reach, CommandReach::Refused | CommandReach::GatewayWithNode)
    };
    let rows = COMMANDS.iter().filter(|row| refused(row.reach));
    rows.map(|row| row.command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A doc comment above a shared group of options would replace the help of every command with
    /// that group. This finds such commands.
    fn changed(before: &Command, after: &Command, path: &str, into: &mut Vec<String>) {
        for inner in before.get_subcommands() {
            let path = format!("{path} {}", inner.get_name());
            let built = after.find_subcommand(inner.get_name()).unwrap();
            let text = |command: &Command| command.get_about().map(ToString::to_string);
            if text(inner) != text(built) {
                into.push(path.clone());
            }
            changed(inner, built, &path, into);
        }
    }

    #[test]
    fn a_command_has_one_text_in_the_list_and_in_its_own_help() {
        let mut found = Vec::new();
        changed(&Arguments::command(), &command_line(), "", &mut found);
        assert!(found.is_empty(), "{found:?}");
    }
}
