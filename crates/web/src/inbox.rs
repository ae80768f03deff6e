//! The inbox: one row for each pending approval, as in the list of a mail client.

use std::fmt::Write as _;

use interlock_approvals::PendingApproval;
use interlock_store::{ApprovalEnd, ApprovalEnding, ApprovalSummary, Grant};
use maud::{Markup, html};
use sha2::{Digest as _, Sha256};

use crate::card::{ask_again, outcome};
use crate::text::{self, CommandColors};

/// The data of the inbox.
#[derive(Debug, Default)]
pub struct InboxFacts<'a> {
    pub rows: &'a [InboxRow],
    /// The number of all rows.
    pub total: u64,
    /// The position of these rows in the list of all.
    pub offset: u64,
    /// Whether more rows follow.
    pub has_more: bool,
    /// Each agent with the number of its pending approvals.
    pub agents: &'a [(String, u64)],
    /// The only agent whose approvals are shown.
    pub agent: Option<&'a str>,
    /// The machines on which commands wait to run, and the chosen one.
    pub hosts: &'a [String],
    pub host: Option<&'a str>,
    /// The grants that earlier decisions left in force.
    pub grants: &'a [Grant],
    /// The latest decisions, shown if the inbox is empty.
    pub recent: &'a [RecentDecision],
    /// Approvals that expired a moment ago and may be asked again.
    pub expired: &'a [AskableApproval],
}

/// One row: an approval, and the ids of others that ask for exactly the same in the same
/// conversation.
#[derive(Debug, Clone)]
pub struct InboxRow {
    pub summary: ApprovalSummary,
    pub equal: Vec<String>,
    /// Whether the owner wants the agent's commands in colors.
    pub colors: CommandColors,
}

/// An approval that expired a moment ago.
#[derive(Debug, Clone)]
pub struct AskableApproval {
    pub id: String,
    pub short_id: String,
    pub agent: String,
    pub command: String,
    pub ended: ApprovalEnd,
}

/// A recent decision.
#[derive(Debug, Clone)]
pub struct RecentDecision {
    pub command: String,
    pub ended: ApprovalEnd,
}

/// The whole page.
pub fn inbox_page(facts: &InboxFacts<'_>) -> Markup {
    let is_grouped = facts.agents.len() > 1 && facts.agent.is_none();
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
            @if facts.hosts.len() > 1 {
                select id="host" data-host aria-label="Machine" {
                    option value="" { "every machine" }
                    @for host in facts.hosts { option value=(host) selected[facts.host == Some(host)] { (text::line(host)) } }
                }
            }
            @if facts.total > 0 {
                input class="search" type="text" id="find-row" data-find data-search placeholder="Search" aria-label="Search" autocomplete="off";
            }
        }
        @if facts.rows.is_empty() {
            (nothing(facts))
        }
        ul class=(if facts.rows.is_empty() { "list hollow" } else { "list" }) id="rows" {
            @for (at, row) in facts.rows.iter().enumerate() {
                @if is_grouped && at.checked_sub(1).is_none_or(|before| facts.rows[before].summary.agent != row.summary.agent) {
                    (agent_heading(&row.summary.agent))
                }
                (inbox_row(row))
            }
        }
        @if facts.has_more {
            p class="actions" {
                button class="button" data-act="more" data-offset=(facts.offset + facts.rows.len() as u64) {
                    "Show more of " (facts.total)
                }
            }
        }
        @if !facts.grants.is_empty() { (active(facts.grants)) }
        @if !facts.expired.is_empty() { (expired(facts.expired)) }
        div class="batchbar" id="batch" role="region" aria-label="Selected" hidden {}
    }
}

/// The heading above the rows of one agent, shown if several agents have pending approvals.
fn agent_heading(agent: &str) -> Markup {
    html! { li class="group" data-group=(text::line(agent)) { (text::line(agent)) } }
}

/// Lists the sessions and leases that run without asking, each with a way to revoke it.
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

/// Lists approvals that expired before a decision.
fn expired(all: &[AskableApproval]) -> Markup {
    html! {
        section class="block" id="expired" {
            header { h2 { "Expired" } span class="muted small" { "The same can be asked again for 10 minutes." } }
            div class="list" {
                @for one in all {
                    div class="entry" {
                        span class="grow" { code { (text::command(&text::line(&one.command))) } span class="sub" { (text::line(&one.agent)) " · " (one.short_id) " · " (text::at(one.ended.at_ms)) } }
                        (ask_again(&one.id))
                    }
                }
            }
        }
    }
}

/// Returns what rows that look the same have in common. The browser counts such rows as one until
/// it reads the list again. The value serves display only, and no decision depends on it.
fn looks_like(row: &ApprovalSummary) -> String {
    let parts = [
        row.binding.as_str(),
        &row.preview,
        &row.agent,
        &row.host,
        row.node.as_deref().unwrap_or_default(),
        &row.session_key,
    ];
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let mut name = String::new();
    for byte in &hash.finalize()[..8] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Renders one pending approval. The row contains the names that a decision needs, and gives no
/// right to decide.
pub fn inbox_row(shown: &InboxRow) -> Markup {
    let row = &shown.summary;
    let count = shown.equal.len() + 1;
    html! {
        li class="row" id=(format!("row-{}", row.id)) data-id=(row.id) data-digest=(row.plan_digest)
            data-same=(looks_like(row)) data-equal=[(count > 1).then(|| shown.equal.join(" "))]
            data-agent=(text::line(&row.agent)) data-session=(text::line(&row.session_key)) data-kind=(row.binding) {
            div class="rowline" {
                button class="tick" data-act="select" role="checkbox" aria-checked="false" aria-label="Select" {}
                button class="head" data-act="toggle" aria-expanded="false" aria-controls=(format!("card-{}", row.id)) {
                    span class="who" { (text::line(&row.agent)) span class="faint" { " @ " (place(&row.host, row.node.as_deref())) } }
                    code class="cmd" { (text::command_with(&text::line(&row.preview), shown.colors)) }
                    span class=(format!("kind {}", row.binding)) { span class="times" hidden[count == 1] { "×" (count) } (kind_word(&row.binding)) }
                    time class="left" data-until=(row.expires_at_ms) {}
                }
            }
            div class="card" id=(format!("card-{}", row.id)) hidden {}
        }
    }
}

/// Renders a row whose approval has ended. It stays in its place and offers no decisions.
pub fn ended_row(approval: &PendingApproval, ended: &ApprovalEnd, may_ask_again: bool) -> Markup {
    html! {
        li class="row ended" id=(format!("row-{}", approval.id)) {
            span class="status" { (ending_word(ended)) }
            (outcome(&approval.id, ended, None))
            @if may_ask_again { (ask_again(&approval.id)) }
        }
    }
}

/// Returns where the command would run.
pub(crate) fn place(host: &str, node: Option<&str>) -> String {
    text::line(node.unwrap_or(host))
}

fn kind_word(binding: &str) -> &str {
    match binding {
        "file" => "script",
        other => other,
    }
}

/// Returns in two words how an approval ended.
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
