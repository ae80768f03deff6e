//! How the policy judges a command, and where each level comes from.

use interlock_wire::results::NodeExplanation;
use maud::{Markup, html};

use crate::text;

/// The data of the page.
#[derive(Debug, Default)]
pub struct PolicyFacts<'a> {
    pub agents: &'a [String],
    pub agent: &'a str,
    /// Machines with a judge of their own, by id and name.
    pub nodes: &'a [(String, String)],
    pub node: Option<&'a str>,
    pub command: &'a str,
    pub cwd: &'a str,
    /// The levels in force on this machine.
    pub levels: &'a [ExplainedLevel],
    pub explained: Option<&'a ExplainedCommand>,
    /// The answer of a node.
    pub by_node: Option<&'a NodeExplanation>,
    /// Why there is no verdict.
    pub problem: Option<&'a str>,
    /// Whether the reader may run cases.
    pub may_run_cases: bool,
    /// The results of the cases, or the reason why they cannot be read.
    pub cases: Option<Result<&'a [ShownCase], &'a str>>,
}

/// The result of one case.
#[derive(Debug, Clone, Default)]
pub struct ShownCase {
    /// `None` if the case was skipped.
    pub passed: Option<bool>,
    pub command: String,
    pub expected: String,
    pub verdict: String,
    pub reason: String,
}

/// One level, and the layers that determine it.
#[derive(Debug, Clone, Default)]
pub struct ExplainedLevel {
    pub name: &'static str,
    pub value: String,
    /// The layer that determined the value.
    pub by: String,
    /// The values of the other layers.
    pub others: String,
}

/// The verdict on one command.
#[derive(Debug, Clone, Default)]
pub struct ExplainedCommand {
    /// `allow`, `ask`, `deny` or `refused`.
    pub verdict: String,
    pub reason: String,
    pub origin: Option<String>,
    /// Each command of the line: whether a rule satisfies it, its words, its file, and the reason.
    pub segments: Vec<(bool, String, String, String)>,
    /// What would change the verdict: the effect and the command.
    pub remedies: Vec<(String, String)>,
    pub binding: String,
}

/// The page.
pub fn policy_page(facts: &PolicyFacts<'_>) -> Markup {
    let has_others = facts.levels.iter().any(|level| !level.others.is_empty());
    html! {
        div class="top" { h1 class="grow" { "Policy" } }
        section class="list" {
            div class="pad" {
                div class="line" {
                    input class="grow mono" type="text" id="command" data-search placeholder="A command: is it allowed?" aria-label="Command" autocomplete="off" spellcheck="false";
                    select id="agent" aria-label="Agent" { @for agent in facts.agents { option value=(agent) selected[agent == facts.agent] { "as " (text::line(agent)) } } }
                    select id="node" aria-label="Machine" {
                        option value="" { "on this machine" }
                        @for (id, name) in facts.nodes { option value=(id) selected[facts.node == Some(id)] { "on " (text::line(name)) } }
                    }
                    button class="button primary" id="explain" { "Explain" }
                }
                @if !facts.command.is_empty() { p class="note" { code { (text::command(&text::line(facts.command))) } @if !facts.cwd.is_empty() { " in " code { (text::line(facts.cwd)) } } } }
            }
            @if let Some(problem) = facts.problem { div class="pad" { p class="problem" { (text::line(problem)) } } }
            @if let Some(explained) = facts.explained { (verdict(explained)) }
            @if let Some(explained) = facts.by_node { (node_verdict(explained)) }
        }
        section class="block" {
            header { h2 { "In force for " (text::line(facts.agent)) } span class="muted small" { "on this machine" } }
            p id="in-force" hidden { @for (at, level) in facts.levels.iter().enumerate() { @if at > 0 { " / " } (level.value) } }
            div class="list scroll" {
                table {
                    thead { tr { th { "level" } th { "value" } th { "decided by" } @if has_others { th { "the others" } } } }
                    tbody {
                        @for level in facts.levels {
                            tr { td { (level.name) } td { b { (level.value) } } td { (text::line(&level.by)) } @if has_others { td class="muted" { (text::line(&level.others)) } } }
                        }
                    }
                }
            }
        }
        @if facts.may_run_cases { (crate::draft::editor()) (cases(facts)) }
    }
}

/// Renders the cases under this policy, one on each line, as `interlock policy test` reads them.
fn cases(facts: &PolicyFacts<'_>) -> Markup {
    html! {
        section class="block" {
            header { h2 class="grow" { "Cases" } button class="button" id="run-cases" { "Run" } }
            div class="list" {
                div class="pad" {
                    textarea class="short" id="cases" spellcheck="false" aria-label="Cases, one JSON object a line"
                        placeholder="{\"command\": \"git status\", \"expect\": \"allow\"}" {}
                    p class="note" { "One JSON object a line, as " code { "interlock policy test FILE" } " reads them. Nothing is run. While a draft is open, the draft judges." }
                }
                div id="judged" aria-live="polite" {
                    @match facts.cases {
                        None => {}
                        Some(Err(problem)) => { div class="pad" { p class="problem" { (text::line(problem)) } } }
                        Some(Ok(judged)) => { (judged_cases(judged)) }
                    }
                }
            }
        }
    }
}

fn judged_cases(judged: &[ShownCase]) -> Markup {
    let count = |wanted: Option<bool>| judged.iter().filter(|case| case.passed == wanted).count();
    html! {
        div class="pad" id="cases-result" {
            span class="good" { (count(Some(true))) " passed" } ", "
            span class=(if count(Some(false)) > 0 { "bad" } else { "muted" }) { (count(Some(false))) " failed" }
            @if count(None) > 0 { ", " span class="muted" { (count(None)) " skipped" } }
        }
        div class="scroll" {
            table {
                tbody {
                    @for case in judged.iter().filter(|case| case.passed != Some(true)) {
                        tr {
                            td { code { (text::command(&text::line(&case.command))) } }
                            td { "expected " b { (text::line(&case.expected)) } ", is " b { (text::line(&case.verdict)) } }
                            td class="muted" { (text::line(&case.reason)) }
                        }
                    }
                }
            }
        }
    }
}

fn word_class(verdict: &str) -> &'static str {
    match verdict {
        "allow" => "verdict good",
        "ask" => "verdict warn",
        _ => "verdict bad",
    }
}

fn verdict(explained: &ExplainedCommand) -> Markup {
    html! {
        div class="pad" id="verdict" {
            p { span class=(word_class(&explained.verdict)) { (explained.verdict) } "  " (text::sentence(&text::line(&explained.reason))) }
            @if let Some(origin) = &explained.origin { p class="muted small" { "rule: " code { (text::line(origin)) } } }
            @if !explained.binding.is_empty() { p class="muted small" { "bound: " (text::line(&explained.binding)) } }
        }
        @if !explained.segments.is_empty() {
            div class="scroll" {
                table {
                    thead { tr { th { "" } th { "command" } th { "program" } th { "reason" } } }
                    tbody {
                        @for (is_satisfied, words, file, reason) in &explained.segments {
                            tr {
                                td { @if *is_satisfied { span class="good" { "ok" } } @else { span class="warn" { "miss" } } }
                                td { code { (text::command(&text::line(words))) } }
                                td { code { (text::line(file)) } }
                                td class="muted" { (text::sentence(&text::line(reason))) }
                            }
                        }
                    }
                }
            }
        }
        @if !explained.remedies.is_empty() {
            div class="pad" {
                @for (effect, command) in &explained.remedies { p class="small" { (text::sentence(&text::line(effect))) ": " code { (text::line(command)) } } }
            }
        }
    }
}

fn node_verdict(explained: &NodeExplanation) -> Markup {
    let word = explained.verdict.as_deref().unwrap_or("unknown");
    html! {
        div class="pad" id="verdict" {
            p { span class=(word_class(word)) { (text::line(word)) } "  " (text::line(explained.reason.message.as_deref().unwrap_or_default())) }
            @if let Some(origin) = &explained.reason.origin { p class="muted small" { "rule: " code { (text::line(origin)) } } }
        }
        @if !explained.segments.is_empty() {
            div class="scroll" {
                table {
                    tbody {
                        @for segment in &explained.segments {
                            tr {
                                td { @if segment.satisfied_by.is_null() { span class="warn" { "miss" } } @else { span class="good" { "ok" } } }
                                td { code { (text::line(&segment.argv.join(" "))) } }
                                td { code { (text::line(segment.resolved.as_deref().unwrap_or("-"))) } }
                                td class="muted" { (text::line(segment.reason.message.as_deref().unwrap_or_default())) }
                            }
                        }
                    }
                }
            }
        }
    }
}
