//! Builds the approver's view from a stored plan. Nothing here reads the request: what is shown is
//! what will run.

use interlock_command::display::{self, Secrets, ShownLine};
use interlock_plan::{PlanAction, PlanProgram, PlanRetry, PlanStdin, RunPlan, SandboxPlan};
use interlock_policy::quote;

use super::{ApprovalView, ViewBlock, ViewLabel};
use crate::events::usual_session_key;
use crate::stored_verdict::RunManner;

/// The warning wherever input of the caller reaches the program.
const CAN_TYPE: &str = "the caller can type into the program";

/// Builds the view of everything that the plan holds. The caller adds why an approver has to
/// decide, and what *always* would store.
pub fn build_view(plan: &RunPlan, manner: &RunManner, secrets: Secrets) -> ApprovalView {
    let mut view = ApprovalView::default();
    add_command(&mut view, &plan.command, secrets);
    program(&mut view, plan, secrets);
    directory(&mut view, plan);
    for name in &plan.overrides {
        let value = plan.env.get(name).map_or("", String::as_str);
        add_env(&mut view, name, value, secrets);
    }
    let terminal = plan
        .pty
        .map(|size| format!("{} by {}", size.columns, size.rows));
    let stdin_is_open = plan.stdin == PlanStdin::Pipe;
    add_input(
        &mut view,
        &ViewInput {
            terminal,
            stdin_is_open,
        },
    );
    add_time(&mut view, plan.timeout_ms, manner.wait_ms);
    limits(&mut view, manner);
    view.sandbox = plan.sandbox.as_ref().map(SandboxPlan::summary);
    match &view.sandbox {
        Some(sandbox) => {
            let text = sandbox.to_string();
            view.field(ViewLabel::Sandbox, &text);
        }
        None if plan.elevated.leaves() => view.leave_sandbox(plan.elevated),
        None => view.field(ViewLabel::Sandbox, "none"),
    }
    if let Some(retry) = &plan.retry {
        add_retry(&mut view, plan, retry);
    }
    if plan.shield.is_shielded() {
        view.field(ViewLabel::Shield, plan.shield.words());
    } else {
        view.warning(ViewLabel::Shield, plan.shield.words());
    }
    if let Some(tree) = &plan.tree {
        view.field(ViewLabel::Programs, &tree.words());
    }
    if let Some(account) = &plan.account {
        view.field(ViewLabel::User, &account.user);
    }
    race(&mut view, plan);
    view.field(ViewLabel::Agent, &plan.agent_id);
    view
}

/// Adds a retry outside of the sandbox. The alternatives that keep the sandbox come first. The
/// caller's words for leaving it come last, as a separate text, so that no line of them looks like
/// a line of Interlock.
fn add_retry(view: &mut ApprovalView, plan: &RunPlan, retry: &PlanRetry) {
    for denied in &retry.denied {
        view.field(ViewLabel::Denied, denied);
    }
    let session = plan.session_key.clone();
    let session = session.unwrap_or_else(|| usual_session_key(&plan.agent_id));
    for bind in &retry.binds {
        let words = ["interlock", "sandbox", "bind", "--agent", &plan.agent_id];
        let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        words.extend(["--session".to_owned(), session.clone(), bind.clone()]);
        let text = format!(
            "deny this, and keep the sandbox with one more bind: {}",
            quoted(&words)
        );
        view.field(ViewLabel::Instead, &text);
    }
    view.block(ViewBlock {
        label: ViewLabel::Justification,
        title: ShownLine::new("the caller's words for leaving the sandbox"),
        lines: retry.justification.lines().map(ShownLine::new).collect(),
        left_out_lines: 0,
        is_diff: false,
    });
}

/// Adds the command as one line, or as a text if it has several lines.
pub(super) fn add_command(view: &mut ApprovalView, text: &str, secrets: Secrets) {
    let (lines, masked) = display::command_lines(text, secrets);
    view.masked_secrets += masked;
    match lines.as_slice() {
        [only] => view.field(ViewLabel::Command, only.as_str()),
        _ => view.block(ViewBlock {
            label: ViewLabel::Command,
            title: ShownLine::new(&format!("{} lines", lines.len())),
            lines,
            left_out_lines: 0,
            is_diff: false,
        }),
    }
}

/// Adds one override or assignment.
pub(super) fn add_env(view: &mut ApprovalView, name: &str, value: &str, secrets: Secrets) {
    let (shown, masked) = display::named_value(name, value, secrets);
    view.masked_secrets += masked;
    view.field(ViewLabel::Env, shown.as_str());
}

/// Adds the shell that reads the text, or the expanded words that run without a shell.
fn program(view: &mut ApprovalView, plan: &RunPlan, secrets: Secrets) {
    match &plan.program {
        PlanProgram::Shell { options, .. } | PlanProgram::Inside { options, .. } => {
            let shell = match &plan.program {
                PlanProgram::Shell { shell, .. } => &shell.canonical,
                PlanProgram::Inside { shell, .. } => shell,
                PlanProgram::Direct { .. } => return,
            };
            let mut words = vec![shell.clone()];
            words.extend(options.iter().cloned());
            words.extend(["-c".to_owned(), "--".to_owned()]);
            view.field(ViewLabel::Runs, &format!("{} TEXT", quoted(&words)));
        }
        PlanProgram::Direct { .. } => {
            let mut runs = Vec::new();
            plan.each_action(|action| {
                if let PlanAction::Execute {
                    executable,
                    argv,
                    env,
                    cwd,
                    ..
                } = action
                {
                    let mut words: Vec<String> = env
                        .iter()
                        .map(|(name, value)| format!("{name}={}", quote(value)))
                        .collect();
                    words.push(quote(&executable.canonical));
                    words.extend(argv.iter().skip(1).map(|word| quote(word)));
                    let place = (*cwd != plan.cwd.canonical).then_some(cwd);
                    runs.push((words.join(" "), place.cloned()));
                }
            });
            for (words, place) in runs {
                let (lines, masked) = display::command_lines(&words, secrets);
                view.masked_secrets += masked;
                let words: Vec<&str> = lines.iter().map(ShownLine::as_str).collect();
                let mut text = words.join("\\u{A}");
                if let Some(place) = place {
                    text += &format!(" (in {})", ShownLine::new(&place));
                }
                view.field(ViewLabel::Runs, &text);
            }
        }
    }
}

fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    words.join(" ")
}

fn directory(view: &mut ApprovalView, plan: &RunPlan) {
    let cwd = &plan.cwd;
    view.field(ViewLabel::Directory, &cwd.canonical);
    if cwd.requested != cwd.canonical {
        let text = format!("asked for as {}", cwd.requested);
        view.field(ViewLabel::Directory, &text);
    }
    for entered in &plan.directories {
        view.field(
            ViewLabel::Directory,
            &format!("enters {}", entered.canonical),
        );
    }
}

/// How the caller can type into the program.
pub(super) struct ViewInput {
    /// The size of the terminal, if it is known.
    pub terminal: Option<String>,
    pub stdin_is_open: bool,
}

pub(super) fn add_input(view: &mut ApprovalView, input: &ViewInput) {
    if let Some(size) = &input.terminal {
        let size = if size.is_empty() { "yes" } else { size };
        view.warning(ViewLabel::Terminal, &format!("{size}: {CAN_TYPE}"));
    }
    if input.stdin_is_open {
        view.warning(ViewLabel::Stdin, &format!("stays open: {CAN_TYPE}"));
    }
}

pub(super) fn add_time(view: &mut ApprovalView, timeout_ms: Option<u64>, wait_ms: Option<u64>) {
    let text = match timeout_ms {
        Some(ms) => format!("ended after {}", duration(ms)),
        None => "no limit".to_owned(),
    };
    view.field(ViewLabel::Time, &text);
    if let Some(ms) = wait_ms {
        let text = match ms {
            0 => "runs in the background from its start".to_owned(),
            ms => format!("goes to the background after {}", duration(ms)),
        };
        view.field(ViewLabel::Background, &text);
    }
}

fn limits(view: &mut ApprovalView, manner: &RunManner) {
    let mut parts = Vec::new();
    if let Some(bytes) = manner.memory_bytes {
        parts.push(format!("{} MiB of memory", bytes.div_ceil(1 << 20)));
    }
    if let Some(pids) = manner.pids {
        parts.push(format!("{pids} processes"));
    }
    if let Some(cpus) = manner.cpus {
        parts.push(format!("{cpus} processors"));
    }
    if !parts.is_empty() {
        view.field(ViewLabel::Limits, &parts.join(", "));
    }
}

/// Adds whether, and why, a file could be exchanged between its last check and its use.
fn race(view: &mut ApprovalView, plan: &RunPlan) {
    let Some(freedom) = &plan.race_freedom else {
        return;
    };
    if freedom.is_race_free() {
        view.field(
            ViewLabel::Race,
            "race-free: no file can be exchanged meanwhile",
        );
    }
    for risk in freedom.risks() {
        view.warning(ViewLabel::Race, &format!("not race-free: {risk}"));
    }
}

/// A duration in the largest unit that expresses it exactly.
fn duration(ms: u64) -> String {
    match ms {
        ms if ms > 0 && ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
        ms if ms > 0 && ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}
