//! Which conversations are sandboxed, which access that leaves open, and the directories of
//! sandboxes.

use interlock_wire::results::{SandboxExplained, SandboxMountShown};
use maud::{Markup, html};

use crate::text;

/// The data of the page.
#[derive(Debug, Default)]
pub struct SandboxFacts<'a> {
    pub agents: &'a [SandboxAgent],
    pub scopes: &'a [SandboxScopeRow],
    /// Scopes whose record cannot be read, each with the reason.
    pub unusable: &'a [String],
    pub may_explain: bool,
    pub may_remove: bool,
}

/// The sandbox of one agent, by the config.
#[derive(Debug, Clone, Default)]
pub struct SandboxAgent {
    pub agent: String,
    pub is_sandboxed: bool,
    /// Which conversations are sandboxed, in words.
    pub conversations: String,
    /// The key that determines this, and its value.
    pub key: String,
    pub backend: String,
    pub scope: String,
    pub workspace: String,
    pub network: String,
    /// What is not isolated.
    pub open: Vec<String>,
}

/// The directories of one sandbox.
#[derive(Debug, Clone, Default)]
pub struct SandboxScopeRow {
    pub id: String,
    pub scope: String,
    pub workspace: String,
    pub last_used_ms: Option<i64>,
}

/// The page.
pub fn sandbox_page(facts: &SandboxFacts<'_>) -> Markup {
    let is_off = facts.agents.iter().all(|agent| !agent.is_sandboxed);
    html! {
        div class="top" { h1 class="grow" { "Sandbox" } }
        @if is_off && facts.scopes.is_empty() {
            (text::empty("No conversation is sandboxed.",
                "Runs have the rights of the gateway's account. This confines the runs of all agents:",
                Some("interlock config set agents.defaults.sandbox.mode all")))
        }
        section class="block" {
            header { h2 class="grow" { "Agents" } }
            ul class="list" {
                @for agent in facts.agents { (agent_row(facts, agent)) }
            }
            div id="explained" {}
        }
        @if !facts.scopes.is_empty() || !facts.unusable.is_empty() {
            section class="block" id="scopes" {
                header {
                    h2 class="grow" { "Directories of sandboxes" }
                    @if facts.may_remove {
                        button class="button" id="prune" { "Prune" }
                    }
                }
                div class="list scroll" {
                    table {
                        thead { tr { th { "scope" } th { "workspace" } th { "last used" } } }
                        tbody {
                            @for scope in facts.scopes {
                                tr {
                                    td { (text::line(&scope.scope)) " " span class="faint small" { (text::line(&scope.id).chars().take(8).collect::<String>()) } }
                                    td { code { (text::line(&scope.workspace)) } }
                                    td { @match scope.last_used_ms { Some(at) => { (text::at(at)) } None => { "never" } } }
                                }
                            }
                        }
                    }
                    @for problem in facts.unusable { p class="pad problem" { (text::line(problem)) } }
                }
                p class="note" { "Prune removes home and scratch of those that were not used for long; Recreate removes an agent's. Workspaces stay." }
            }
        }
    }
}

fn agent_row(facts: &SandboxFacts<'_>, agent: &SandboxAgent) -> Markup {
    let name = text::line(&agent.agent);
    html! {
        li class="entry" data-agent=(agent.agent) {
            span class=(if agent.is_sandboxed { "dot" } else { "dot off" }) aria-hidden="true" {}
            span class="grow" {
                b { (name) } " "
                @if agent.is_sandboxed {
                    span { "sandboxed: " (agent.conversations) " · " (text::line(&agent.backend)) " · network: " (text::line(&agent.network)) }
                    span class="sub" { "shared by " (scope_words(&agent.scope)) " · workspace " (workspace_words(&agent.workspace)) " · " code { (text::line(&agent.key)) } }
                } @else {
                    span { "not sandboxed" }
                    span class="sub" { code { (text::line(&agent.key)) } }
                }
                @if !agent.open.is_empty() {
                    span class="sub warn" { "not isolated: " (text::line(&agent.open.join("; "))) }
                }
            }
            @if facts.may_explain {
                button class="button small" data-explain=(agent.agent) aria-label=(format!("Explain the sandbox of {name}")) { "Explain" }
            }
            @if facts.may_remove && agent.is_sandboxed {
                button class="button small" data-recreate=(agent.agent) aria-label=(format!("Recreate the sandboxes of {name}")) { "Recreate" }
            }
        }
    }
}

fn scope_words(scope: &str) -> &'static str {
    match scope {
        "session" => "one conversation",
        "shared" => "all agents",
        _ => "the agent's conversations",
    }
}

fn workspace_words(access: &str) -> String {
    match access {
        "rw" => "read and written".to_owned(),
        "ro" => "read-only".to_owned(),
        "none" => "not shown".to_owned(),
        other => text::line(other),
    }
}

/// Renders what runs of one conversation see.
pub fn sandbox_explained(explained: &SandboxExplained) -> Markup {
    let is_hidden = |mount: &&SandboxMountShown| mount.access == "hidden";
    let (hidden, seen): (Vec<_>, Vec<_>) = explained.mounts.iter().partition(is_hidden);
    html! {
        section class="block" id="explained" tabindex="-1" {
            header { h2 class="grow" { (text::line(&explained.session_key)) } }
            div class="list" {
                @if let Some(problem) = &explained.problem {
                    div class="pad" { p class=(if explained.sandboxed { "problem" } else { "muted" }) {
                        @if explained.sandboxed { "Its runs are refused: " } @else { "Not sandboxed: " } (text::line(problem))
                    } }
                }
                @if !explained.facts.is_empty() {
                    div class="pad" {
                        dl class="facts" {
                            @for fact in &explained.facts { dt { (text::line(&fact.name)) } dd { (text::line(&fact.value)) } }
                        }
                        p class="note" { "To try whether the promises hold: " code { (text::line(&format!("interlock sandbox explain --verify --agent {agent}", agent = explained.agent))) } }
                    }
                }
                @if !explained.mounts.is_empty() {
                    (mount_table(&seen))
                    @if !hidden.is_empty() {
                        details class="pad" {
                            summary { (hidden.len()) " hidden paths" }
                            (mount_table(&hidden))
                        }
                    }
                }
            }
        }
    }
}

fn mount_table(mounts: &[&SandboxMountShown]) -> Markup {
    html! {
        div class="scroll" {
            table {
                thead { tr { th { "path" } th { "access" } th { "why" } } }
                tbody {
                    @for mount in mounts {
                        tr { td { code { (text::line(&mount.target)) } } td class="kindcell" { (text::line(&mount.access)) } td class="muted" { (text::line(&mount.reason)) } }
                    }
                }
            }
        }
    }
}
