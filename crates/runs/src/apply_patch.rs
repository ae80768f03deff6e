//! `interlock apply-patch`: changes several files, all or none of them.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use interlock_approvals::companion::CourierWaits;
use interlock_approvals::process_name;
use interlock_arguments::{ApplyPatchArguments, StateArguments};
use interlock_client::{agent_id, caller_context, known_agent, open, request};
use interlock_console::output::{self, visible};
use interlock_console::{CommandOutcome, Failure};
use interlock_host::{EndListener, LocalHost, PatchOutcome, PatchRequest};
use interlock_inbox::approval_wait::{self, AwaitedApproval, Settled, Unawaited};
use interlock_patch::{MAX_PATCH_BYTES, PatchSummary};
use interlock_policy::{AgentId, quote};
use serde_json::Value;

pub fn run(state: &StateArguments, arguments: &ApplyPatchArguments) -> CommandOutcome {
    agent_id(&arguments.agent)?;
    let input = read(&arguments.file)?;
    let root = request::directory(arguments.root.as_deref(), "--root")?;
    let caller = caller_context(&root);
    let host = open(state)?;
    let agent = known_agent(&host, &arguments.agent)?;
    let request = PatchRequest {
        agent: &agent,
        session_key: None,
        model: arguments.model.as_deref(),
        caller: &caller,
        root,
        input: &input,
        dry_run: arguments.dry_run,
        requester: process_name(),
        runs_later: false,
    };
    let begun = match &arguments.approval {
        Some(id) => PatchOutcome::Applied(apply_approved(&host, id, &request)?),
        None => host.apply_patch(&request)?,
    };
    let summary = match begun {
        PatchOutcome::Applied(summary) => summary,
        PatchOutcome::Pending(approval) if arguments.no_wait => {
            let again = state.in_command(&apply_command(arguments, &approval.short_id));
            let left = Unawaited {
                approval: &approval,
                reason: &approval.reasons.join("; "),
                hint: format!("then apply it: {again}"),
            };
            let print = |result| output::print_json(&result);
            let print: Option<&dyn Fn(Value)> = arguments.json.then_some(&print);
            return approval_wait::leave(&host, state, left, print);
        }
        PatchOutcome::Pending(approval) => {
            let mut signals = approval_wait::ending_signals()?;
            let asked = AwaitedApproval {
                approval: &approval,
                reason: &approval.reasons.join("; "),
                json: arguments.json,
                courier: host
                    .approvals()
                    .courier(&approval, CourierWaits::ForDecision),
            };
            match approval_wait::settle(&host, state, asked, &mut signals)? {
                Settled::Decided => apply_approved(&host, &approval.id, &request)?,
                Settled::Left { code, .. } => return Ok(code),
            }
        }
    };
    if arguments.json {
        output::print_json(&summary);
    } else {
        output::print(&text(&summary, arguments.dry_run));
    }
    Ok(ExitCode::SUCCESS)
}

/// The command that applies the same patch once it is approved.
fn apply_command(arguments: &ApplyPatchArguments, id: &str) -> String {
    let mut flags = String::new();
    if arguments.agent != AgentId::MAIN {
        flags += &format!(" --agent {}", quote(&arguments.agent));
    }
    if let Some(root) = &arguments.root {
        flags += &format!(" --root {}", quote(&root.to_string_lossy()));
    }
    if let Some(model) = &arguments.model {
        flags += &format!(" --model {}", quote(model));
    }
    let file = quote(&arguments.file.to_string_lossy());
    format!("interlock apply-patch --approval {id}{flags} {file}")
}

/// Applies an approved patch. This command reports the outcome to its caller, so the host must not
/// queue an event that reports it again.
fn apply_approved(
    host: &LocalHost,
    id: &str,
    request: &PatchRequest<'_>,
) -> Result<PatchSummary, Failure> {
    let applied = host.apply_approved(id, request, EndListener::Caller);
    if applied.is_err() {
        let _ = host.approvals().mark_outcome_delivered(id);
    }
    Ok(applied?)
}

fn text(summary: &PatchSummary, dry_run: bool) -> String {
    let counts = |added: usize, removed: usize| format!("+{added} -{removed}");
    let file = |word: &str, file: &interlock_patch::FileSummary| {
        vec![
            word.to_owned(),
            counts(file.lines_added, file.lines_removed),
            visible(&file.path),
        ]
    };
    let added = summary.added.iter().map(|f| file("added", f));
    let modified = summary.modified.iter().map(|f| file("modified", f));
    let deleted = summary.deleted.iter().map(|f| file("deleted", f));
    let moved = summary.moved.iter().map(|moved| {
        let path = visible(&format!("{} -> {}", moved.from, moved.to));
        vec![
            "moved".to_owned(),
            counts(moved.lines_added, moved.lines_removed),
            path,
        ]
    });
    let rows: Vec<Vec<String>> = added.chain(modified).chain(deleted).chain(moved).collect();
    let mut out = output::table(&rows, "");
    if summary.is_empty() {
        out += "nothing to change\n";
    } else if dry_run {
        out += "dry run: no file was changed\n";
    }
    out
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    // One byte past the limit is enough to see that the patch is too large.
    let limit = MAX_PATCH_BYTES as u64 + 1;
    let outcome = if file == Path::new("-") {
        let stdin = std::io::stdin().lock();
        stdin.take(limit).read_to_end(&mut bytes)
    } else {
        let opened = std::fs::File::open(file);
        opened.and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    outcome.map_err(|error| {
        Failure::usage("PATCH_UNREADABLE", format!("{}: {error}", file.display()))
            .with_hint("name the file of a patch, or - for standard input")
    })?;
    if bytes.len() > MAX_PATCH_BYTES {
        let message = format!("the patch has more than {MAX_PATCH_BYTES} bytes");
        return Err(Failure::refused("PATCH_TOO_LARGE", message).with_hint("split the patch"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::refused("PATCH_PARSE", "the patch is not valid UTF-8"))
}
