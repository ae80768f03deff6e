//! Lists what a sandboxed run may execute where `tree` is `enforce`: the programs that its command
//! names, those of allowlist entries, and what belongs to them. The list only narrows: everything
//! else that the sandbox shows cannot be executed.

use interlock_command::Analysis;
use interlock_plan::{DeniedProgram, FsResolver, executable_closure};
use interlock_policy::{Allowlist, DenyRule, DenyRules};
use interlock_programs::helpers::{self, LOGIN_SHELL};
use interlock_programs::{DYNAMIC, Lookup, Resolver};
use interlock_sandbox::PreparedSandbox;

use crate::prepare::{SANDBOX_PATH, SANDBOX_SHELL};

/// Fills the plan's list of executables, if the plan has one. `resolver` is the one that the judge
/// used. The shell of a sandbox has another PATH, so one name can mean two files; both are listed.
pub(crate) fn list_executables(
    sandbox: &mut PreparedSandbox,
    analysis: &Analysis,
    allowlist: &Allowlist,
    resolver: &impl Resolver,
) {
    if sandbox.plan.executables.is_none() {
        return;
    }
    let mut path = sandbox.tool_paths.join(":");
    path.push_str(if path.is_empty() { "" } else { ":" });
    path.push_str(SANDBOX_PATH);
    let inside = FsResolver::from_path_value(&path, None);
    let mut found: Vec<String> = Vec::new();
    let mut add = |name: &str, cwd: &str| {
        for lookup in [resolver.executable(name, cwd), inside.executable(name, cwd)] {
            if let Lookup::Found(program) = lookup {
                found.push(program.canonical);
            }
        }
    };
    add(SANDBOX_SHELL, "/");
    for command in analysis.sight().commands {
        let name = command.argv.first();
        if let Some(name) = name.filter(|name| !name.contains(DYNAMIC) && !command.is_operand) {
            add(name, command.cwd.as_deref().unwrap_or(&analysis.cwd));
        }
    }
    for pattern in allowlist.patterns() {
        // Finding the files of a pattern with wildcards would take a search. A command that names
        // one of these files lists that file.
        if !pattern.contains(['*', '?']) {
            add(&pattern, "/");
        }
    }
    let helpers = found
        .iter()
        .filter_map(|path| path.rsplit('/').next())
        .flat_map(helpers::helpers_of)
        .chain(LOGIN_SHELL);
    let helpers: Vec<String> = helpers.map(|path| (*path).to_owned()).collect();
    found.extend(helpers);
    let all = executable_closure(found, &inside);
    let shown = all.iter().filter_map(|path| sandbox.plan.path_inside(path));
    sandbox.plan.executables = Some(shown.collect());
}

/// Adds the programs of the deny rules to the program log, which refuses their start within a run.
pub(crate) fn list_denied_programs(sandbox: &mut PreparedSandbox, rules: &DenyRules) {
    let Some(log) = &mut sandbox.plan.program_log else {
        return;
    };
    let denied = |rule: &DenyRule| DeniedProgram {
        pattern: rule.pattern.clone(),
        arg_pattern: rule.arg_pattern.clone(),
        args: rule.args.clone(),
    };
    log.deny = rules.rules().map(denied).collect();
    log.home = Some(sandbox.home.clone());
}
