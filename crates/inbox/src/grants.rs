//! `interlock approvals grants|revoke`: lists and revokes what earlier decisions still allow.

use std::process::ExitCode;

use interlock_approvals::{EVERY_SESSION, Grant, OutsideRuns};
use interlock_arguments::{ApprovalsGrantsArguments, ApprovalsRevokeArguments};
use interlock_client::decider;
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, time_left};
use interlock_host::{LocalHost, now_ms};
use serde_json::{Value, json};

pub fn list(host: &LocalHost, arguments: &ApprovalsGrantsArguments) -> CommandOutcome {
    let grants = host.approvals().grants()?;
    if arguments.json {
        let grants: Vec<Value> = grants.iter().map(as_json).collect();
        output::print_json(&json!({ "total": grants.len(), "grants": grants }));
        return Ok(ExitCode::SUCCESS);
    }
    if grants.is_empty() {
        output::note(
            "no grant is in force; interlock approvals approve ID --session, or --for 2h, makes one",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let shown: Vec<String> = grants
        .iter()
        .map(|grant| text(grant, Paint::stdout()))
        .collect();
    output::print(&shown.join("\n"));
    Ok(ExitCode::SUCCESS)
}

pub fn revoke(
    host: &LocalHost,
    arguments: &ApprovalsRevokeArguments,
    outside: OutsideRuns,
) -> CommandOutcome {
    let approvals = host.approvals();
    let grant = approvals.revoke_grant(&arguments.id, &decider(), outside)?;
    if arguments.json {
        output::print_json(&json!({ "revoked": as_json(&grant) }));
    } else {
        output::print(&format!("revoked {}: {}\n", grant.id, line(&grant.preview)));
    }
    Ok(ExitCode::SUCCESS)
}

fn uses_left(grant: &Grant) -> Option<u32> {
    grant.max_uses.map(|most| most.saturating_sub(grant.uses))
}

fn text(grant: &Grant, paint: Paint) -> String {
    let uses = uses_left(grant).map_or("any number of".to_owned(), |left| left.to_string());
    let is_for_all = grant.session_key == EVERY_SESSION;
    let (without_end, session) = if is_for_all {
        ("until it is revoked", "every one of its agent".to_owned())
    } else {
        ("until the session ends", line(&grant.session_key))
    };
    let until = grant.expires_at_ms.map_or(without_end.to_owned(), |at| {
        let at = u64::try_from(at).unwrap_or_default();
        format!("for {} more", time_left(at.saturating_sub(now_ms())))
    });
    let rows = [
        ("agent", line(&grant.agent)),
        ("session", session),
        ("allows", format!("{uses} runs, {until}")),
        ("by", line(&grant.decider)),
    ];
    let rows = rows.map(|(title, value)| vec![title.to_owned(), value]);
    format!(
        "{}  {}\n{}",
        paint.strong(&grant.id),
        paint.command(&line(&grant.preview)),
        output::table(&rows, "  ")
    )
}

fn as_json(grant: &Grant) -> Value {
    json!({
        "id": grant.id,
        "approvalId": grant.approval_id,
        "agent": grant.agent,
        "sessionKey": grant.session_key,
        "host": grant.host,
        "command": grant.preview,
        "decider": grant.decider,
        "createdAtMs": grant.created_at_ms,
        "expiresAtMs": grant.expires_at_ms,
        "maxUses": grant.max_uses,
        "usesLeft": uses_left(grant),
    })
}
