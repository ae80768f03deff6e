//! `interlock approvals pending|approve|deny`: lists pending approvals and decides them.

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use interlock_approvals::{
    ApprovalDecision, DecisionBy, EFFECT_BINDING, Lease, NETWORK_BINDING, OutsideRuns,
    PATCH_BINDING, PendingApproval, PendingCursorInvalid, StoredDecision, process_name,
    requester_has_ended,
};
use interlock_arguments::{
    ApprovalsApproveArguments, ApprovalsDenyArguments, ApprovalsPendingArguments, StateArguments,
};
use interlock_client::{decider, supervisor};
use interlock_command::display::Secrets;
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure, bounds, milliseconds};
use interlock_host::LocalHost;
use interlock_policy::AlwaysForm;
use serde_json::{Value, json};

use super::source::{ApprovalSource, DecisionAnswer};
use crate::prompt;

pub fn pending(
    host: &LocalHost,
    state: &StateArguments,
    arguments: &ApprovalsPendingArguments,
) -> CommandOutcome {
    let source = ApprovalSource::open(state, host)?;
    if let ApprovalSource::Here(host) = source {
        tidy(host)?;
    }
    if let Some(id) = &arguments.id {
        let approval = source.approval(id, Secrets::Masked)?;
        if arguments.json {
            output::print_json(&approval.to_json());
        } else {
            output::print(&prompt::whole_text(&approval, Paint::stdout()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let after = arguments.cursor.as_deref().map(str::parse).transpose();
    let after = after.map_err(|error: PendingCursorInvalid| {
        Failure::usage("CURSOR_INVALID", format!("--cursor {error}"))
            .with_hint("leave it out for the first page")
    })?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let waiting = source.page(after, limit)?;
    let mut approvals = Vec::new();
    for summary in &waiting.approvals {
        approvals.push(source.approval(&summary.id, Secrets::Masked)?);
    }
    let next = waiting.next.map(|next| next.to_string());
    if arguments.json {
        let approvals: Vec<Value> = approvals.iter().map(PendingApproval::to_json).collect();
        let mut page = json!({ "approvals": approvals, "total": waiting.total });
        if let (Value::Object(page), Some(next)) = (&mut page, next) {
            page.insert("nextCursor".to_owned(), next.into());
        }
        output::print_json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    if approvals.is_empty() {
        output::note(&match source.gateway() {
            None => {
                let watch = state.in_command("interlock approvals watch");
                format!("nothing waits for a decision; to see new approvals: {watch}")
            }
            Some(url) => format!("nothing waits for a decision at the gateway {url}"),
        });
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let shown: Vec<String> = approvals
        .iter()
        .map(|approval| prompt::listed_text(approval, paint))
        .collect();
    output::print(&shown.join("\n"));
    let first = &approvals[0].short_id;
    output::note(&format!(
        "decide: {}, or deny",
        state.in_command(&format!("interlock approvals approve {first}"))
    ));
    if let Some(next) = next {
        output::note(&format!(
            "{} of {} that wait; go on with --cursor {next}",
            approvals.len(),
            waiting.total
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Settles runs that earlier processes left behind, and reports runs whose outcome is unknown.
fn tidy(host: &LocalHost) -> Result<(), Failure> {
    for recovered in host.recover(&supervisor(host)?)? {
        if recovered.outcome.is_none() {
            let run = if recovered.is_approved {
                "approved run"
            } else {
                "run"
            };
            output::note(&format!(
                "interlock: the outcome of {run} {} is unknown; it is not run again",
                recovered.run_id
            ));
        }
    }
    host.forget_old()?;
    Ok(())
}

pub fn approve(
    (source, state): (&ApprovalSource<'_>, &StateArguments),
    arguments: &ApprovalsApproveArguments,
    outside: OutsideRuns,
) -> CommandOutcome {
    let decision = if arguments.always.is_some() {
        ApprovalDecision::AllowAlways
    } else if arguments.session {
        ApprovalDecision::AllowSession
    } else if let Some(time) = &arguments.lease {
        ApprovalDecision::Lease(Lease {
            expires_in: Duration::from_millis(milliseconds(time)?),
            max_uses: arguments.uses.and_then(NonZeroU32::new),
        })
    } else {
        ApprovalDecision::AllowOnce
    };
    let secrets = if arguments.reveal {
        Secrets::Revealed
    } else {
        Secrets::Masked
    };
    let approval = source.approval(&arguments.id, secrets)?;
    let form = arguments.always.unwrap_or_default();
    let answer = DecisionWords {
        decision,
        form,
        reason: None,
    };
    decide((source, state), &approval, answer, outside, arguments.json)
}

pub fn deny(
    (source, state): (&ApprovalSource<'_>, &StateArguments),
    arguments: &ApprovalsDenyArguments,
    outside: OutsideRuns,
) -> CommandOutcome {
    let approval = source.approval(&arguments.id, Secrets::Masked)?;
    let answer = DecisionWords {
        decision: ApprovalDecision::Deny,
        form: AlwaysForm::Exact,
        reason: arguments.reason.as_deref(),
    };
    decide((source, state), &approval, answer, outside, arguments.json)
}

/// The decision of an approver, with its form and reason.
#[derive(Debug, Clone, Copy)]
pub struct DecisionWords<'a> {
    pub decision: ApprovalDecision,
    /// How much `allow-always` stores.
    pub form: AlwaysForm,
    /// The reason of a denial. The caller reads it.
    pub reason: Option<&'a str>,
}

/// Prints the whole approval, then decides exactly what was printed.
fn decide(
    (source, state): (&ApprovalSource<'_>, &StateArguments),
    approval: &PendingApproval,
    words: DecisionWords<'_>,
    outside: OutsideRuns,
    json: bool,
) -> CommandOutcome {
    if !json {
        // The decision follows at once, so every text is printed in full first.
        output::note(prompt::whole_text(approval, Paint::stderr()).trim_end());
    }
    let DecisionAnswer { stored, unawaited } = source.answer(approval, words, "cli", outside)?;
    let decision = words.decision;
    if json {
        output::print_json(&json!({
            "id": approval.id,
            "shortId": approval.short_id,
            "decision": decision.as_str(),
            "form": stored.form,
            "reason": stored.ended.reason,
            "again": stored.again,
            "stored": stored.entries,
            "awaited": unawaited.is_none(),
        }));
    } else {
        output::print(&told(approval, decision, &stored));
        if let Some(unawaited) = unawaited {
            output::note(&format!("interlock: {}", state.in_hint(&unawaited)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what happens next if no process waits to start what was allowed.
pub fn unawaited(
    host: &LocalHost,
    approval: &PendingApproval,
    decision: ApprovalDecision,
) -> Option<String> {
    if !decision.allows() {
        return None;
    }
    let id = &approval.short_id;
    let is_of_gateway = !approval.requester.starts_with("process:");
    let has_gateway = || interlock_gateway::running(host.state_dir()).is_some();
    match approval.binding.as_str() {
        EFFECT_BINDING => {
            let is_left = requester_has_ended(&approval.requester);
            (is_left || (is_of_gateway && !has_gateway())).then(|| {
                let by = if has_gateway() {
                    "the gateway commits its changes in a moment"
                } else {
                    "its changes are committed with the next command here, or when a gateway starts"
                };
                left_effect(id, by)
            })
        }
        // The approval lets connections pass. There is nothing to start.
        NETWORK_BINDING => None,
        binding if requester_has_ended(&approval.requester) => {
            let again = if binding == PATCH_BINDING {
                format!("interlock apply-patch --approval {id} FILE")
            } else {
                format!("interlock exec --approval {id} -- COMMAND")
            };
            Some(format!(
                "nothing waits for {id} any more, so nothing runs now; to run exactly this: {again}"
            ))
        }
        _ if is_of_gateway && !has_gateway() => Some(format!(
            "no gateway runs that would begin {id}; it does when one starts in time: interlock gateway run"
        )),
        _ => None,
    }
}

/// Like [`unawaited`], for an approval at a remote gateway that reports that the caller has ended.
pub fn unawaited_elsewhere(approval: &PendingApproval) -> String {
    let id = &approval.short_id;
    if approval.binding == EFFECT_BINDING {
        return left_effect(id, "the gateway commits its changes in a moment");
    }
    format!("nothing waits for {id} any more, so nothing runs now")
}

/// Says what happens to the file changes of a run whose caller has left. The command does not run
/// again.
fn left_effect(id: &str, by: &str) -> String {
    format!("{id} ran already, and its caller has left; {by}")
}

/// Records that the approval was shown on a surface of this process, then stores the decision.
pub fn answer(
    host: &LocalHost,
    approval: &PendingApproval,
    words: DecisionWords<'_>,
    surface: &str,
    outside: OutsideRuns,
) -> Result<StoredDecision, Failure> {
    let DecisionWords {
        decision,
        form,
        reason,
    } = words;
    check_shown(approval, decision)?;
    let surface = format!("{surface}:{}", process_name());
    let approvals = host.approvals();
    approvals.seen(&approval.id, &surface)?;
    let by = DecisionBy {
        decider: &decider(),
        surface: &surface,
        reason,
        has_shown: false,
        outside,
    };
    let (id, digest) = (&approval.id, &approval.plan_digest);
    Ok(approvals.decide_in_form(id, digest, decision, form, by)?)
}

/// Refuses to allow an approval that cannot be shown in full.
pub fn check_shown(approval: &PendingApproval, decision: ApprovalDecision) -> Result<(), Failure> {
    if decision == ApprovalDecision::Deny || approval.offers(ApprovalDecision::AllowOnce) {
        return Ok(());
    }
    let message = format!(
        "{}: not all of it can be shown, so it can only be denied",
        approval.short_id
    );
    Err(Failure::refused("APPROVAL_NOT_SHOWN", message))
}

/// Describes what a decision did.
pub fn told(
    approval: &PendingApproval,
    decision: ApprovalDecision,
    stored: &StoredDecision,
) -> String {
    let what = match decision {
        ApprovalDecision::AllowOnce | ApprovalDecision::AllowAlways => "allowed once",
        ApprovalDecision::AllowSession => "allowed for this session, for 24 hours at most",
        ApprovalDecision::Lease(_) => "allowed for a time",
        ApprovalDecision::Deny => "denied",
    };
    let again = if stored.again { " (as before)" } else { "" };
    let mut text = format!("{}: {what}{again}\n", approval.short_id);
    for entry in &stored.entries {
        text += &format!(
            "stored for agent {}: {} ({})\n",
            line(&approval.agent),
            line(&entry.pattern),
            line(&bounds(entry))
        );
    }
    text
}
