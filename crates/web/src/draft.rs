//! A draft of the approvals document, and how it would have judged earlier commands.

use interlock_wire::results::{PolicyReplayed, ReplayedVerdict};
use maud::{Markup, html};

use crate::text;

/// The editor. It is empty until the reader begins a draft.
pub(crate) fn editor() -> Markup {
    html! {
        section class="block" id="draft-block" {
            header {
                h2 class="grow" { "Draft" }
                button class="button" id="draft-begin" { "Edit a copy of the document" }
            }
            div class="list" id="draft-list" hidden {
                div class="pad" {
                    textarea id="draft" spellcheck="false" autocapitalize="off" aria-label="Draft of the approvals document, JSON5" {}
                    p class="note" { "The approvals document of this machine. Nothing changes before it is saved." }
                    div class="line" {
                        button class="button primary" id="replay" { "Replay" }
                        label class="line small muted" { "the last "
                            select id="replay-limit" aria-label="Verdicts" {
                                @for number in [100, 500, 2000] { option value=(number) selected[number == 500] { (number) } }
                            }
                            " verdicts"
                        }
                        span class="grow" {}
                        button class="button quiet" id="draft-drop" { "Discard" }
                        button class="button" id="draft-save" disabled { "Save" }
                    }
                }
                div id="replayed" aria-live="polite" {}
            }
        }
    }
}

/// Renders the result of a replay.
pub fn replay_result(replayed: &PolicyReplayed) -> Markup {
    let figures = [
        (replayed.prompts_saved, "fewer prompts", ""),
        (replayed.newly_allowed, "newly allowed", "warn"),
        (replayed.newly_asked, "newly asked", ""),
        (replayed.newly_refused, "newly refused", ""),
    ];
    html! {
        div id="replayed" aria-live="polite" {
            div class="stat" {
                div { b { (replayed.judged) } span { "judged again" } }
                @for (number, words, class) in figures {
                    div { b class=[(number > 0 && !class.is_empty()).then_some(class)] { (number) } span { (words) } }
                }
            }
            @if !replayed.loosened.is_empty() {
                div class="pad" {
                    p { b class="warn" { "This allows more" } " than the document in force:" }
                    ul class="mind" { @for what in &replayed.loosened { li { (text::line(what)) } } }
                }
            }
            @if replayed.changes.is_empty() {
                div class="pad" { p class="muted" { @if replayed.judged == 0 { "There is nothing in the audit yet that could be judged again." } @else { "Every one of these verdicts stays as it is." } } }
            } @else {
                div class="scroll" {
                    table {
                        thead { tr { th { "" } th { "command" } th { "then" } th { "with the draft" } th class="num" { "times" } } }
                        tbody { @for change in &replayed.changes { (changed(change)) } }
                    }
                }
                @if replayed.more_changes > 0 { div class="pad" { p class="muted" { "and " (replayed.more_changes) " more: " code { "interlock policy replay --with FILE" } } } }
            }
            @for (why, count) in &replayed.left_out { div class="pad" { p class="muted small" { (count) " left out: " (text::line(why)) } } }
        }
    }
}

fn changed(change: &ReplayedVerdict) -> Markup {
    html! {
        tr {
            td class="kindcell" { @if change.looser { span class="warn" { "looser" } } @else { span class="muted" { "stricter" } } }
            td { code { (text::command(&text::line(&change.command))) } span class="sub small muted" { " " (text::line(&change.agent)) " in " (text::line(&change.cwd)) } }
            td { b { (text::line(&change.before)) } " " span class="muted small" { (text::line(&change.before_reason)) } }
            td { b { (text::line(&change.after)) } " " span class="muted small" { (text::line(&change.after_reason)) } }
            td class="num" { (change.times) }
        }
    }
}
