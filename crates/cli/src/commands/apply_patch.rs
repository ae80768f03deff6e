//! `interlock apply-patch`: several files, all or nothing.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use interlock_host::companion::Waits;
use interlock_host::{
    Listener, LocalHost, PatchOutcome, PatchRequest, PendingApproval, process_name,
};
use interlock_patch::{MAX_PATCH_BYTES, Summary};
use interlock_policy::AgentId;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exec::ask::{self, Asked, Settled};
use super::{Outcome, caller_context, open, request};
use crate::args::{ApplyPatchArguments, StateArguments};
use crate::failure::Failure;
use crate::output::{self, visible};

/// How long a companion may take to say that it has the approval, when no answer is waited for.
const RECEIPT: Duration = Duration::from_secs(1);

pub fn run(state: &StateArguments, arguments: &ApplyPatchArguments) -> Outcome {
    let agent = AgentId::new(&arguments.agent)
        .map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
    let input = read(&arguments.file)?;
    let root = request::directory(arguments.root.as_deref(), "--root")?;
    let caller = caller_context(&root);
    let host = open(state)?;
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
            return leave(&host, state, arguments, &approval);
        }
        PatchOutcome::Pending(approval) => {
            let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
                .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
            let asked = Asked {
                approval: &approval,
                reason: &approval.reasons.join("; "),
                json: arguments.json,
                courier: host.courier(&approval, Waits::ForAnswer),
            };
            match ask::settle(&host, state, asked, &mut signals)? {
                Settled::Decided => apply_approved(&host, &approval.id, &request)?,
                Settled::Left(code) => return Ok(code),
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

/// The caller that waits here is notified by the answer: no event does it again.
fn apply_approved(
    host: &LocalHost,
    id: &str,
    request: &PatchRequest<'_>,
) -> Result<Summary, Failure> {
    let applied = host.desk().apply_approved(id, request, Listener::Caller);
    if applied.is_err() {
        let _ = host.desk().told(id);
    }
    Ok(applied?)
}

/// Says what waits, and how to approve it.
fn leave(
    host: &LocalHost,
    state: &StateArguments,
    arguments: &ApplyPatchArguments,
    approval: &PendingApproval,
) -> Outcome {
    if let Some(mut courier) = host.courier(approval, Waits::ForReceipt) {
        courier.deliver(RECEIPT);
    }
    let approve = ask::approve_command(state, approval);
    let reason = approval.reasons.join("; ");
    if arguments.json {
        output::print_json(&json!({
            "status": "approval-pending",
            "approvalId": approval.id,
            "shortId": approval.short_id,
            "expiresAtMs": approval.expires_at_ms,
            "reason": reason,
            "binding": approval.binding,
            "approve": approve,
        }));
        return Ok(ExitCode::from(1));
    }
    let message = format!(
        "approval required: {}\napproval-pending: {} ({})\napprove it: {approve}",
        visible(&reason),
        approval.short_id,
        approval.id
    );
    let again = format!(
        "then apply it: interlock apply-patch --approval {}",
        approval.short_id
    );
    Err(Failure::refused("APPROVAL_PENDING", message).with_hint(again))
}

fn text(summary: &Summary, dry_run: bool) -> String {
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
    // Whatever is longer is refused, and need not be read for that.
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
    })?;
    if bytes.len() > MAX_PATCH_BYTES {
        let message = format!("the patch has more than {MAX_PATCH_BYTES} bytes");
        return Err(Failure::refused("PATCH_TOO_LARGE", message).with_hint("split the patch"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::refused("PATCH_PARSE", "the patch is not valid UTF-8"))
}
