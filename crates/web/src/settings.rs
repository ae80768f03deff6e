//! The config, as a form of its schema and as text. The browser fills both through `config.*`.

use interlock_wire::results::ConfigSnapshot;
use maud::{Markup, html};

use crate::text;

/// The data of the page.
#[derive(Debug)]
pub struct SettingsFacts<'a> {
    pub config: &'a ConfigSnapshot,
    pub may_administer: bool,
    /// Whether the reader may pair phones.
    pub may_pair: bool,
}

/// The page.
pub fn settings_page(facts: &SettingsFacts<'_>) -> Markup {
    let config = facts.config;
    html! {
        div class="top" {
            h1 class="grow" { "Settings" }
            div class="chips" role="group" aria-label="How" {
                button class="chip" id="as-form" aria-pressed="true" { "Form" }
                button class="chip" id="as-text" aria-pressed="false" { "Text" }
            }
        }
        p class="muted small" {
            code { (text::line(&config.path)) }
            @if let Some(hash) = &config.hash { " · " code class="faint" { (text::line(hash.get(..12).unwrap_or(hash))) } }
            @if !config.exists { " · does not exist yet: every key has its default" }
        }
        section class="block" id="phones" {
            header { h2 { "Phones and notifications" } }
            ul class="list" {
                @if facts.may_pair {
                    li class="entry" {
                        span class="grow" { "Decide on a phone" span class="sub" { "It can read and decide approvals, and nothing else." } }
                        button class="button small" id="pair-phone" { "Pair a phone" }
                    }
                }
                li class="entry" {
                    span class="grow" { "Notifications on this device" span class="sub" { "They can be reviewed and denied. What they say: push.detail." } }
                    span class="line" id="notifications" {}
                }
            }
        }
        @if !config.valid {
            ul class="mind" {
                li { b { "The file cannot be used. " } "The last good config is in force." }
                @for issue in &config.issues {
                    li { (text::line(&issue.message)) @if let Some(place) = &issue.place { " (line " (place.line) ")" } }
                }
            }
        }
        @if facts.may_administer {
            section class="block" id="form" aria-busy="true" { div class="list pad muted" { "Reading…" } }
            section class="block" id="text" hidden {
                textarea id="raw" spellcheck="false" aria-label="The config as JSON5" data-keep-scroll {}
                ul class="problem" id="issues" role="alert" {}
            }
            div class="batchbar" id="savebar" hidden {
                span class="grow" id="unsaved" {}
                button class="button quiet" id="revert" { "Revert" }
                button class="button primary" id="save" { "Save" }
            }
        } @else {
            pre class="text" { (text::visible_lines(config.raw.as_deref().unwrap_or_default())) }
            p class="note" { "To change it takes the scope operator.admin." }
        }
    }
}
