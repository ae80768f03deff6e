//! The health of the gateway.

use interlock_wire::results::{ClientPresence, ConfigIssue, GatewayStatus};
use maud::{Markup, html};

use crate::text;

/// The data of the page.
#[derive(Debug)]
pub struct HealthFacts<'a> {
    pub status: &'a GatewayStatus,
    pub clients: &'a [ClientPresence],
    pub issues: &'a [ConfigIssue],
    /// The newest lines of the gateway's log.
    pub log: &'a [String],
    /// What separates runs from Interlock on this machine.
    pub shield: &'a str,
    /// What weakens the policy, the gravest first. `None` if the reader may not know.
    pub findings: Option<&'a [HealthFinding]>,
    /// The free bytes on the file system of the state.
    pub free_bytes: Option<u64>,
}

/// One finding of the security audit.
#[derive(Debug, Clone, Default)]
pub struct HealthFinding {
    /// `critical`, `warn` or `info`.
    pub severity: &'static str,
    pub subject: String,
    pub what: String,
    /// A command to copy.
    pub fix: String,
}

/// Less free space than this causes a warning.
const LITTLE_ROOM: u64 = 1 << 30;

/// The page.
pub fn health_page(facts: &HealthFacts<'_>) -> Markup {
    let status = facts.status;
    let is_shielded = facts.shield.starts_with("shielded");
    html! {
        div class="top" { h1 class="grow" { "Health" } span class="good small" { "the gateway answers" } }
        div class="list stat" {
            div { b { (text::line(status.version.as_deref().unwrap_or("?"))) } span { "version" } }
            div { b { (text::duration(status.uptime_ms)) } span { "since its start" } }
            div { b { (status.approvals.pending) } span { "approvals wait" } }
            div { b { (status.runs.running) } span { "runs" } }
            div { b { (status.clients) } span { "clients connected" } }
            div { b { (status.agents) } span { "agents configured" } }
            @if let Some(free) = facts.free_bytes {
                div { b class=[(free < LITTLE_ROOM).then_some("warn")] { (text::bytes(free)) } span { "free for the state" } }
            }
        }
        section class="block" {
            header { h2 { "What separates runs from Interlock" } }
            div class="list pad" {
                p class=(if is_shielded { "" } else { "warn" }) { (text::line(facts.shield)) }
                p class="note" { "All of it, with repairs: " code { "interlock doctor" } }
            }
        }
        @if let Some(found) = facts.findings {
            section class="block" id="findings" {
                header { h2 { "What weakens the policy" } }
                ul class="list" {
                    @if found.is_empty() { li class="entry" { span class="good" { "Nothing was found." } } }
                    @for finding in found {
                        li class="entry" {
                            span class="grow" {
                                span class=(if finding.severity == "critical" { "bad" } else if finding.severity == "warn" { "warn" } else { "muted" }) { (finding.severity) }
                                " " b { (text::line(&finding.subject)) } " " (text::line(&finding.what))
                                @if !finding.fix.is_empty() { span class="sub" { "fix: " code { (text::line(&finding.fix)) } } }
                            }
                        }
                    }
                }
            }
        }
        @if !facts.issues.is_empty() {
            section class="block" {
                header { h2 { "The config" } }
                ul class="mind" {
                    @for issue in facts.issues {
                        li { (text::line(&issue.message)) @if let Some(place) = &issue.place { " (line " (place.line) ")" } }
                    }
                }
            }
        }
        section class="block" {
            header { h2 { "Connected" } }
            ul class="list" {
                @for client in facts.clients {
                    li class="entry" {
                        span class="grow" {
                            b { (text::line(&client.host)) } " " span class="muted small" { (text::line(&client.roles.join(", "))) }
                            span class="sub" { (text::line(&client.mode)) " · " (text::line(&client.platform)) " " (text::line(&client.version)) @if let Some(ip) = &client.ip { " · " (text::line(ip)) } }
                        }
                        span class="muted small" { "since " (text::at(i64::try_from(client.ts).unwrap_or_default())) }
                    }
                }
            }
        }
        section class="block" {
            header { h2 { "Files" } }
            dl class="facts list pad" {
                @for (name, path) in [("state", &status.state_dir), ("config", &status.config_path)] {
                    @if let Some(path) = path { dt { (name) } dd { code { (text::line(path)) } } }
                }
            }
        }
        section class="block" {
            header { h2 { "Log" } }
            pre class="text small" id="log" data-keep-scroll tabindex="0" {
                @if facts.log.is_empty() { "Nothing was logged since its start." }
                @for line in facts.log { (text::line(line)) "\n" }
            }
        }
    }
}
