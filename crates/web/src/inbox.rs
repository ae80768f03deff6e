//! What waits: one row for each pending approval, as in the list of a mail client.

use interlock_approvals::PendingApproval;
use interlock_store::{ApprovalEnd, ApprovalEnding, ApprovalSummary, Grant};
use maud::{Markup, html};

use crate::card::outcome;
use crate::text;

/// What the inbox shows.
#[derive(Debug, Default)]
pub struct InboxFacts<'a> {
    pub rows: &'a [ApprovalSummary],
    /// How many there are in all.
    pub total: u64,
    /// Where these rows begin in the list of all.
    pub offset: u64,
    /// Whether there are more behind them.
    pub has_more: bool,
    /// Each agent with the number of its pending approvals.
    pub agents: &'a [(String, u64)],
    /// The agent whose approvals alone are shown.
    pub agent: Option<&'a str>,
    /// What earlier decisions still allow.
    pub grants: &'a [Grant],
    /// The latest decisions, for an inbox with nothing in it.
    pub recent: &'a [RecentDecision],
}

/// A decision of a moment ago.
#[derive(Debug, Clone)]
pub struct RecentDecision {
    pub command: String,
    pub ended: ApprovalEnd,
}

/// The whole page.
pub fn inbox_page(facts: &InboxFacts<'_>) -> Markup {
    html! {
        div class="top" {
            h1 class="grow" { "Inbox" }
            button class="pill" id="pill" data-act="pill" hidden {}
            @if facts.agents.len() > 1 {
                div class="chips" role="group" aria-label="Agents" {
                    (chip("", "all", facts.agents.iter().map(|(_, count)| count).sum(), facts.agent.is_none()))
                    @for (agent, count) in facts.agents {
                        (chip(agent, agent, *count, facts.agent == Some(agent)))
                    }
                }
            }
            @if facts.total > 0 {
                input class="search" type="text" data-find data-search placeholder="Search" aria-label="Search" autocomplete="off";
            }
        }
        @if facts.rows.is_empty() {
            (nothing(facts))
        }
        ul class=(if facts.rows.is_empty() { "list hollow" } else { "list" }) id="rows" {
            @for row in facts.rows { (inbox_row(row)) }
        }
        @if facts.has_more {
            p class="actions" {
                button class="button" data-act="more" data-offset=(facts.offset + facts.rows.len() as u64) {
                    "Show more of " (facts.total)
                }
            }
        }
        @if !facts.grants.is_empty() { (active(facts.grants)) }
        div class="batchbar" id="batch" role="region" aria-label="Selected" hidden {}
    }
}

/// Sessions and leases that run without asking, each with the way to take it back.
fn active(grants: &[Grant]) -> Markup {
    html! {
        section class="block" id="grants" {
            header { h2 { "Allowed without asking" } }
            ul class="list" {
                @for grant in grants {
                    li class="entry" {
                        span class="grow" {
                            code { (text::command(&text::line(&grant.preview))) }
                            span class="sub" { (text::line(&grant.session_key)) " · by " (text::line(&grant.decider)) " · used " (grant.uses) @if let Some(most) = grant.max_uses { " of " (most) } }
                        }
                        @if let Some(until) = grant.expires_at_ms { time class="left" data-until=(until) {} }
                        button class="button small" data-act="revoke" data-grant=(grant.id) { "Revoke" }
                    }
                }
            }
        }
    }
}

fn chip(agent: &str, name: &str, count: u64, is_chosen: bool) -> Markup {
    html! {
        button class="chip" data-act="agent" data-agent=(agent) aria-pressed=(is_chosen) {
            (text::line(name)) " " span class="num" { (count) }
        }
    }
}

fn nothing(facts: &InboxFacts<'_>) -> Markup {
    html! {
        section class="empty" id="nothing" {
            h1 { "Nothing is waiting." }
            p { "New approvals appear here by themselves. This connects an agent:" }
            pre class="command" { code { "interlock setup claude-code" } }
            @if !facts.recent.is_empty() {
                ul class="list" {
                    @for decision in facts.recent {
                        li class="entry" {
                            code class="grow" { (text::command(&decision.command)) }
                            span class="muted small" { (ending_word(&decision.ended)) " " (text::at(decision.ended.at_ms)) }
                        }
                    }
                }
            }
        }
    }
}

/// One pending approval. The row holds names that decisions need, and no right to decide.
pub fn inbox_row(row: &ApprovalSummary) -> Markup {
    html! {
        li class="row" id=(format!("row-{}", row.id)) data-id=(row.id) data-digest=(row.plan_digest)
            data-agent=(text::line(&row.agent)) data-session=(text::line(&row.session_key)) data-kind=(row.binding) {
            div class="rowline" {
                button class="tick" data-act="select" role="checkbox" aria-checked="false" aria-label="Select" {}
                button class="head" data-act="toggle" aria-expanded="false" aria-controls=(format!("card-{}", row.id)) {
                    span class="who" { (text::line(&row.agent)) span class="faint" { " @ " (place(&row.host, row.node.as_deref())) } }
                    code class="cmd" { (text::command(&text::line(&row.preview))) }
                    span class=(format!("kind {}", row.binding)) { (kind_word(&row.binding)) }
                    time class="left" data-until=(row.expires_at_ms) {}
                }
            }
            div class="card" id=(format!("card-{}", row.id)) hidden {}
        }
    }
}

/// A row whose approval has ended: it stays where it is and has no decisions.
pub fn ended_row(approval: &PendingApproval, ended: &ApprovalEnd) -> Markup {
    html! {
        li class="row ended" id=(format!("row-{}", approval.id)) {
            span class="status" { (ending_word(ended)) }
            (outcome(&approval.id, ended))
        }
    }
}

/// Where it would run.
pub(crate) fn place(host: &str, node: Option<&str>) -> String {
    text::line(node.unwrap_or(host))
}

fn kind_word(binding: &str) -> &str {
    match binding {
        "file" => "script",
        other => other,
    }
}

/// What became of it, in two words.
pub(crate) fn ending_word(ended: &ApprovalEnd) -> &'static str {
    use interlock_store::ApprovalDecision as Decision;
    match ended.ending {
        ApprovalEnding::Decision(Decision::Deny) => "denied",
        ApprovalEnding::Decision(Decision::AllowOnce) => "allowed once",
        ApprovalEnding::Decision(Decision::AllowSession) => "allowed, session",
        ApprovalEnding::Decision(Decision::AllowAlways) => "allowed, always",
        ApprovalEnding::Decision(Decision::Lease(_)) => "allowed, lease",
        ApprovalEnding::FallbackAllow => "allowed by fallback",
        ApprovalEnding::FallbackDeny => "denied by fallback",
        ApprovalEnding::Expired => "expired",
        ApprovalEnding::Withdrawn => "withdrawn",
    }
}
