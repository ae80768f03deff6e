//! *Always for this project*: an entry that binds the program, the words that decide, and the
//! directories of the project.
//!
//! Such an entry trusts the project's files as they are at each run. It covers nothing that leads
//! out of the project. The table of `interlock_binding` says which options and operands may follow
//! the deciding words, and `judge::holds` checks them again at each use.

use interlock_binding::Binding;
use interlock_binding::{ProjectScope, words_in_front};
use interlock_command::Command;
use interlock_programs::Resolver;

use super::wider::holds_secret;
use crate::arguments::ANY_ARGUMENTS;
use crate::entry::Entry;
use crate::judge::JudgedCall;
use crate::pattern::has_wildcard;

/// Turns an entry for exactly this command into one for its project.
pub(super) fn bind(
    entry: &mut Entry,
    command: &Command,
    binding: &Binding,
    call: JudgedCall<'_>,
    resolver: &dyn Resolver,
) -> Result<(), String> {
    let [run] = binding.projects.as_slice() else {
        return Err(format!(
            "more than one project decides what `{}` runs",
            command.name()
        ));
    };
    let arguments = &command.argv[1..];
    let args = match &run.scope {
        ProjectScope::Nothing(why) => return Err(why.clone()),
        ProjectScope::Words => arguments.to_vec(),
        ProjectScope::Leading(words) => {
            let count = words.saturating_sub(words_in_front(command) + 1);
            let mut args = arguments[..count.min(arguments.len())].to_vec();
            args.push(ANY_ARGUMENTS.to_owned());
            args
        }
    };
    let literal = args.iter().filter(|word| *word != ANY_ARGUMENTS);
    if literal.clone().any(|word| has_wildcard(word)) {
        return Err("an argument has `*` or `?` in it, which a list would read as any".to_owned());
    }
    if holds_secret(&command.argv) {
        return Err("an argument holds a secret, which an entry would show".to_owned());
    }
    let root = run.root.as_deref().unwrap_or(&command.cwd);
    let root = within_workspace(root, &command.cwd, call, resolver);
    check_root(&root, &command.cwd, resolver)?;
    entry.arg_pattern = None;
    entry.args = Some(args);
    entry.cwd = Some(format!("{root}/**"));
    Ok(())
}

/// Limits the project to the workspace of the call.
fn within_workspace(
    root: &str,
    cwd: &str,
    call: JudgedCall<'_>,
    resolver: &dyn Resolver,
) -> String {
    let workspaces = call.workspace.iter();
    let mut workspaces = workspaces.filter_map(|workspace| resolver.directory(workspace, "/"));
    match workspaces.find(|workspace| is_beneath(cwd, workspace)) {
        Some(workspace) if !is_beneath(root, &workspace) => workspace,
        _ => root.to_owned(),
    }
}

/// Fails for a directory that cannot be a single project, such as one above the home directory.
fn check_root(root: &str, cwd: &str, resolver: &dyn Resolver) -> Result<(), String> {
    if has_wildcard(root) {
        return Err(format!("the directory {root} has `*` or `?` in its name"));
    }
    if !is_beneath(cwd, root) {
        return Err(format!("{cwd} is not part of the project in {root}"));
    }
    let home = resolver.home();
    let holds_home = home.is_some_and(|home| {
        let home = resolver.directory(&home, "/").unwrap_or(home);
        is_beneath(&home, root)
    });
    if root == "/" || holds_home {
        return Err(format!(
            "the project would be {root}, which holds more than a project"
        ));
    }
    Ok(())
}

fn is_beneath(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path == directory
        || path
            .strip_prefix(directory)
            .is_some_and(|rest| rest.starts_with('/'))
}
