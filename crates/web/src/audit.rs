//! The audit chain: records by filter, a small chart of the decisions, and whether the chain is
//! intact.

use interlock_wire::results::AuditEntry;
use maud::{Markup, html};
use serde_json::Value;

use crate::text;

/// The kinds of records that a reader can choose.
pub const AUDIT_KINDS: &[&str] = &[
    "verdict", "prompt", "delivery", "decision", "run", "policy", "pairing",
];

/// The search and its result.
#[derive(Debug, Default)]
pub struct AuditFacts<'a> {
    pub records: &'a [AuditEntry],
    /// How many records match in all, if that is known.
    pub total: Option<u64>,
    pub next_cursor: Option<&'a str>,
    pub kinds: &'a [&'a str],
    pub kind: &'a str,
    pub agent: &'a str,
    pub agents: &'a [String],
    /// The only approver whose decisions are shown, and the approvers to choose from.
    pub approver: &'a str,
    pub approvers: &'a [String],
    pub text: &'a str,
    pub head: &'a str,
    /// Allowed and denied decisions per day, the oldest first: label, allowed, denied.
    pub days: &'a [(String, u64, u64)],
}

/// The page.
pub fn audit_page(search: &AuditFacts<'_>) -> Markup {
    html! {
        div class="top" {
            h1 class="grow" { "Audit" }
            span class="muted small wide" { "head " code { (text::line(search.head.get(..18).unwrap_or(search.head))) } }
            span class="small" id="verified" role="status" {}
            button class="button" id="verify" { "Verify" }
            button class="button" id="export" { "Export" }
        }
        @if search.days.iter().any(|(_, allowed, denied)| allowed + denied > 0) { (chart(search.days)) }
        div class="top" {
            select id="kind" aria-label="Kind" { option value="" { "all kinds" } @for kind in search.kinds { option value=(kind) selected[*kind == search.kind] { (kind) } } }
            select id="agent" aria-label="Agent" { option value="" { "all agents" } @for agent in search.agents { option value=(agent) selected[agent == search.agent] { (text::line(agent)) } } }
            select id="approver" aria-label="Approver" { option value="" { "all approvers" } @for approver in search.approvers { option value=(approver) selected[approver == search.approver] { (text::line(approver)) } } }
            input class="search" type="text" id="text" data-search value=(search.text) placeholder="Search" aria-label="Search" autocomplete="off";
            @if let Some(total) = search.total { span class="muted small num" { (total) " records" } }
        }
        @if search.records.is_empty() {
            (text::empty("No record matches.", "Choose another kind or agent, or search for another word.", None))
        } @else {
            div class="list scroll" {
                table {
                    thead { tr { th class="num seq" { "number" } th { "time" } th { "kind" } th { "what" } } }
                    tbody id="records" { @for record in search.records { (row(record)) } }
                }
            }
        }
        @if let Some(cursor) = search.next_cursor {
            p class="actions" { button class="button" id="older" data-cursor=(cursor) { "Older" } }
        }
    }
}

fn row(record: &AuditEntry) -> Markup {
    html! {
        tr {
            td class="num faint seq" { (record.seq) }
            td { (text::at(record.time_ms)) }
            td class="kindcell" { (text::line(&record.kind)) }
            td {
                details {
                    summary { span { (summary(&record.body)) } }
                    pre class="text small" { (text::visible_json(&record.body)) }
                }
            }
        }
    }
}

/// Returns the most informative parts of a record on one line.
fn summary(body: &Value) -> String {
    let names = [
        "verdict", "decision", "ending", "what", "code", "command", "preview", "agent", "agentId",
        "by", "who", "decider", "approver", "exitCode", "surface", "state", "detail", "from",
        "method", "path", "origin", "repeated", "reason",
    ];
    let mut parts = Vec::new();
    for name in names {
        match body.get(name) {
            // The long id of a device says nothing to a reader. The record itself contains it.
            Some(Value::String(value)) if name == "surface" => {
                let kind = value.split(':').next().unwrap_or_default();
                parts.push(if kind == "web" { "browser" } else { kind }.to_owned());
            }
            Some(Value::String(value)) if !value.is_empty() => parts.push(value.clone()),
            Some(Value::Number(value)) => parts.push(format!("{name} {value}")),
            _ => {}
        }
    }
    let line = text::line(&parts.join(" · "));
    match line.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => named(body),
        None => line,
    }
}

/// Returns the names of a record's fields, if none of them is known here.
fn named(body: &Value) -> String {
    let names = body
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str());
    text::line(&names.collect::<Vec<_>>().join(", "))
}

/// Draws two series of bars, with a table for screen readers behind them.
fn chart(days: &[(String, u64, u64)]) -> Markup {
    let most = days
        .iter()
        .map(|(_, allowed, denied)| allowed.max(denied))
        .max();
    let most = (*most.unwrap_or(&1)).max(1);
    let height = |count: u64| {
        if count == 0 {
            0
        } else {
            (count * 56 / most).max(2)
        }
    };
    let width = days.len() as u64 * 24;
    html! {
        section class="block" {
            header { h2 { "Decisions per day" } span class="small good" { "allowed" } span class="small bad" { "denied" } }
            div class="list pad" {
                svg class="chart" viewBox=(format!("0 0 {width} 60")) preserveAspectRatio="none" aria-hidden="true" {
                    @for (at, (_, allowed, denied)) in (0u64..).zip(days) {
                        rect class="a" x=(at * 24 + 3) y=(58 - height(*allowed)) width="8" height=(height(*allowed)) {}
                        rect class="d" x=(at * 24 + 13) y=(58 - height(*denied)) width="8" height=(height(*denied)) {}
                    }
                }
                table class="sr" {
                    caption { "Decisions per day" }
                    tr { th { "day" } th { "allowed" } th { "denied" } }
                    @for (day, allowed, denied) in days { tr { td { (day) } td { (allowed) } td { (denied) } } }
                }
            }
        }
    }
}
