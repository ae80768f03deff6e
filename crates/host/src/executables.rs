//! Lists what a run may execute where `tree` is `enforce`: the programs that its command names,
//! those of allowlist entries, and what belongs to them. The list only narrows: everything else
//! that the run sees cannot be executed.

use interlock_command::Analysis;
use interlock_local::AgentScope;
use interlock_plan::{
    DeniedProgram, FsResolver, PlanShield, PlanTree, ProgramLogRules, RunPlan, SandboxTree,
    executable_closure, gains_privileges, is_left_to_shell,
};
use interlock_policy::{Allowlist, DenyRule, DenyRules, Policy};
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
    log.deny = denied_programs(rules);
    log.home = Some(sandbox.home.clone());
}

fn denied_programs(rules: &DenyRules) -> Vec<DeniedProgram> {
    let denied = |rule: &DenyRule| DeniedProgram {
        pattern: rule.pattern.clone(),
        arg_pattern: rule.arg_pattern.clone(),
        args: rule.args.clone(),
    };
    rules.rules().map(denied).collect()
}

/// What `tools.exec.tree` says for a run on the host that the allowlist allows.
#[derive(Debug, Clone)]
pub struct HostTreeRules {
    is_enforced: bool,
    /// Programs of entries, by path or by name.
    allowed: Vec<String>,
    log: ProgramLogRules,
}

/// Which programs a run starts cannot be held. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("which programs the run starts cannot be held (tools.exec.tree): {0}")]
pub struct TreeUnavailable(String);

impl HostTreeRules {
    /// `None` where the config says nothing of it.
    pub(crate) fn of(scope: &AgentScope<'_>, policy: &Policy) -> Option<Self> {
        let is_enforced = match scope.exec().tree() {
            SandboxTree::Off => return None,
            SandboxTree::Log => false,
            SandboxTree::Enforce => true,
        };
        let is_plain = |pattern: &String| !pattern.contains(['*', '?']);
        Some(Self {
            is_enforced,
            // As in a sandbox: patterns with wildcards would have to be searched for.
            allowed: policy.allowlist.patterns().filter(is_plain).collect(),
            log: ProgramLogRules {
                home: scope.home().map(str::to_owned),
                deny: denied_programs(&policy.deny),
            },
        })
    }

    /// What the plan of such a run says. The plan is complete but for this.
    pub(crate) fn for_plan(&self, plan: &RunPlan) -> Result<PlanTree, TreeUnavailable> {
        let started = plan.executables().into_iter().chain(plan.passed_on());
        let started: Vec<String> = started.map(|file| file.canonical.clone()).collect();
        // Rules and filters hold only what gains no privileges. In a user namespace and for root there is
        // nothing to gain.
        let has_all = rustix::process::geteuid().is_root() && plan.account.is_none();
        if plan.shield != PlanShield::User
            && !has_all
            && let Some(path) = started.iter().find(|path| gains_privileges(path))
        {
            return Err(TreeUnavailable(format!(
                "{path} gains privileges when it starts (set-user-id, set-group-id or capabilities)"
            )));
        }
        if !self.is_enforced {
            let rules = self.log.clone();
            return Ok(PlanTree::Log { rules });
        }
        interlock_engine::sandbox::probe_execution_rules()
            .map_err(|error| TreeUnavailable(error.to_string()))?;
        let path = plan.env.get("PATH").map_or("", String::as_str);
        let resolver = FsResolver::from_path_value(path, self.log.home.clone());
        let mut found = started;
        for pattern in &self.allowed {
            if let Lookup::Found(program) = resolver.executable(pattern, "/") {
                found.push(program.canonical);
            }
        }
        let helpers = found
            .iter()
            .filter_map(|path| path.rsplit('/').next())
            .flat_map(helpers::helpers_of);
        let helpers: Vec<String> = helpers.map(|path| (*path).to_owned()).collect();
        found.extend(helpers);
        if found.iter().any(|path| is_left_to_shell(path)) {
            found.push(SANDBOX_SHELL.to_owned());
        }
        let executables = executable_closure(found, &resolver).into_iter().collect();
        Ok(PlanTree::Enforce { executables })
    }
}
