//! `policy.replay`: shows how another policy would have judged earlier commands.

use interlock_checks::{Direction, Replay, ReplayFilter, replay as replay_history};
use interlock_policy::Document;
use interlock_rules::{RulesError, loosenings, parse_document};
use interlock_wire::WireError;
use interlock_wire::params;
use interlock_wire::results::{PolicyReplayed, ReplayedVerdict};

use super::{Context, unavailable, work};
use crate::gateway::Gateway;

/// Verdicts that are judged again if the caller names no limit.
const USUAL_LIMIT: u64 = 500;

/// The most changes in one answer.
const MOST_CHANGES: usize = 200;

/// The longest draft. It equals the command line's limit for documents.
const MOST_DRAFT_BYTES: usize = 4 * 1024 * 1024;

/// `policy.replay`.
pub(super) async fn replay(
    context: Context<'_>,
    asked: params::PolicyReplay,
) -> Result<PolicyReplayed, WireError> {
    work(context, move |gateway| {
        let draft = asked.raw.as_deref().map(read_draft).transpose()?;
        judge(gateway, &asked, draft.as_ref())
    })
    .await
}

/// Parses the document of an editor. Every error is named with its line.
pub(crate) fn read_draft(text: &str) -> Result<Document, WireError> {
    if text.len() > MOST_DRAFT_BYTES {
        let message = format!("raw is longer than {MOST_DRAFT_BYTES} bytes");
        return Err(WireError::invalid(message).with("code", "DOCUMENT_INVALID"));
    }
    parse_document("draft", text.as_bytes())
        .map_err(|error| WireError::invalid(error.to_string()).with("code", error.code()))
}

fn judge(
    gateway: &Gateway,
    asked: &params::PolicyReplay,
    draft: Option<&Document>,
) -> Result<PolicyReplayed, WireError> {
    let host = &gateway.dispatcher.host;
    let failed = |error: RulesError| unavailable(&error.into());
    let (document, stored) = host.rules().document().map_err(failed)?;
    let filter = ReplayFilter {
        agent: asked.agent_id.clone(),
        since_ms: None,
        limit: usize::try_from(asked.limit.unwrap_or(USUAL_LIMIT)).unwrap_or(usize::MAX),
    };
    // The hash must name the document that was read, even if another one is written meanwhile.
    let judged = draft.unwrap_or(&document);
    let replay =
        replay_history(host, &filter, Some(judged)).map_err(|error| unavailable(&error))?;
    let config = host.config().map_err(|error| unavailable(&error))?;
    let mut replayed = answer(replay);
    replayed.base_hash = stored.hash;
    if let Some(draft) = draft {
        replayed.loosened = loosenings(&document, draft, config.config());
        replayed.file = serde_json::from_str(&draft.to_json()).unwrap_or_default();
    }
    replayed.html = interlock_web::replay_result(&replayed).into_string();
    Ok(replayed)
}

fn answer(replay: Replay) -> PolicyReplayed {
    let changes = replay.changes.into_iter().map(|change| ReplayedVerdict {
        agent: change.agent,
        cwd: change.cwd,
        command: change.command,
        before: change.before,
        before_reason: change.before_reason,
        after: change.after,
        after_reason: change.after_reason,
        looser: change.direction == Direction::Looser,
        times: change.times,
    });
    let mut changes: Vec<ReplayedVerdict> = changes.collect();
    // Looser verdicts come first, so that they are never the part that is left out.
    changes.sort_by_key(|change| !change.looser);
    let more = changes.len().saturating_sub(MOST_CHANGES);
    changes.truncate(MOST_CHANGES);
    let left_out = replay.left_out.into_iter();
    PolicyReplayed {
        judged: replay.judged,
        prompts_saved: replay.prompts_saved,
        newly_allowed: replay.newly_allowed,
        newly_asked: replay.newly_asked,
        newly_refused: replay.newly_refused,
        changes,
        more_changes: u64::try_from(more).unwrap_or(u64::MAX),
        left_out: left_out
            .map(|(why, count)| (why.to_owned(), count))
            .collect(),
        ..PolicyReplayed::default()
    }
}
