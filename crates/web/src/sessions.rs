//! Background sessions: the list, and one session with its terminal or its output.

use interlock_transcript::screen::{ScreenRow, ScreenRun};
use interlock_wire::results::ProcessEntry;
use maud::{Markup, html};

use crate::text;

/// The data of the page of all sessions, the newest first.
#[derive(Debug, Default)]
pub struct SessionListFacts<'a> {
    pub running: &'a [ProcessEntry],
    /// The newest ended sessions.
    pub ended: &'a [ProcessEntry],
    /// How many ended sessions are still stored.
    pub total_ended: usize,
}

/// Renders the list, running sessions first.
pub fn sessions_page(listed: &SessionListFacts<'_>) -> Markup {
    let left_out = listed.total_ended.saturating_sub(listed.ended.len());
    html! {
        div class="top" { h1 class="grow" { "Sessions" } span class="muted small" { (listed.running.len()) " running" } }
        @if listed.running.is_empty() && listed.ended.is_empty() {
            (text::empty("No session runs.", "A command that outlives its call appears here, with its terminal. For example:", Some("interlock exec --background --pty -- 'cargo watch'")))
        }
        @if !listed.running.is_empty() { ul class="list" { @for one in listed.running { (entry(one)) } } }
        @if !listed.ended.is_empty() {
            section class="block" {
                header { h2 { "Ended" } }
                ul class="list" { @for one in listed.ended { (entry(one)) } }
                @if left_out > 0 {
                    p class="muted small" { (left_out) " older ones are not shown; " code { "interlock process list" } " goes on to them." }
                }
            }
        }
    }
}

fn entry(one: &ProcessEntry) -> Markup {
    let is_running = one.standing.status == "running";
    let id = &one.standing.session_id;
    html! {
        li {
            a class="entry" id=(format!("session-{}", text::line(id))) href=(format!("/sessions/{}", text::line(id))) {
                span class=(if is_running { "dot" } else { "dot off" }) aria-hidden="true" {}
                span class="grow" {
                    code { (text::command(&text::line(&one.command))) }
                    span class="sub" { (text::line(id)) " · " (text::line(&one.agent_id)) " @ " (text::line(one.node.as_deref().unwrap_or("this machine"))) " · " (text::line(&one.cwd)) }
                }
                @if one.waiting_for_input { span class="warn small" { "waits for input" } }
                span class="muted small num" { (standing(one)) " · " (text::duration(one.runtime_ms)) @if let Some(bytes) = one.total_bytes { " · " (text::bytes(bytes)) } }
            }
        }
    }
}

/// Returns the state of a session in words.
fn standing(one: &ProcessEntry) -> String {
    match (&*one.standing.status, one.standing.exit_code) {
        ("running", _) => "running".to_owned(),
        (_, _) if one.standing.timed_out => "time was over".to_owned(),
        (status, Some(code)) => format!("{}, exit {code}", text::line(status)),
        (status, None) => text::line(status),
    }
}

/// The data of the page of one session.
#[derive(Debug)]
pub struct SessionFacts<'a> {
    pub session: &'a ProcessEntry,
    /// The rows of its terminal, if it has one.
    pub screen: Option<&'a [ScreenRow]>,
    /// The end of its output, if it has no terminal.
    pub output: Option<&'a str>,
    /// Whether the reader may type into the session and end it.
    pub may_write: bool,
    /// Whether its terminal can adapt to a window, which only terminals on this machine can.
    pub may_fit: bool,
}

/// The signals that a viewer can send, each with its purpose.
const SIGNALS: &[(&str, &str)] = &[
    ("SIGINT", "Interrupt (SIGINT)"),
    ("SIGTERM", "Ask to end (SIGTERM)"),
    ("SIGHUP", "Hang up (SIGHUP)"),
    ("SIGKILL", "Kill (SIGKILL)"),
];

/// Renders one session.
pub fn session_page(facts: &SessionFacts<'_>) -> Markup {
    let one = facts.session;
    let is_running = one.standing.status == "running";
    let id = text::line(&one.standing.session_id);
    html! {
        div class="top" {
            div class="grow" {
                h1 { code { (text::command(&text::line(&one.command))) } }
                p class="muted small" id="standing" { (id) " · " (standing(one)) " · " (text::duration(one.runtime_ms)) " · " (text::line(&one.agent_id)) " @ " (text::line(one.node.as_deref().unwrap_or("this machine"))) " · " (text::line(&one.cwd)) }
            }
            a class="button quiet" href="/sessions" { "All sessions" }
        }
        @if let Some(note) = &one.standing.note { p class="warn small" { (text::line(note)) } }
        @match facts.screen {
            Some(rows) => {
                div class="screen" id="screen" role="group" aria-label="Terminal" tabindex="0" data-session=(id) data-live=(is_running && facts.may_write) {
                    @for (at, row) in rows.iter().enumerate() { (screen_row(at, row)) }
                }
            }
            None => {
                div class="screen" id="output" role="log" tabindex="0" data-session=(id) data-keep-scroll { (session_output(facts.output.unwrap_or_default())) }
            }
        }
        @if is_running && facts.may_write {
            div class="line pad" id="typing" {
                @if facts.screen.is_some() {
                    input class="phone" type="text" id="typed" placeholder="Type a line; Enter sends it" aria-label="Input" autocomplete="off" autocapitalize="off";
                    span class="muted small grow wide" { "Click the terminal to type into it." }
                    @for (name, keys) in [("^C", "C-c"), ("^D", "C-d"), ("Esc", "Escape"), ("Tab", "Tab"), ("↑", "Up"), ("Enter", "Enter")] {
                        button class="button small" data-key=(keys) { (name) }
                    }
                } @else if one.stdin_writable {
                    input class="grow" type="text" id="stdin" placeholder="Type a line; Enter sends it" aria-label="Input" autocomplete="off";
                } @else {
                    span class="muted small grow" { "Its standard input is closed." }
                }
                @if facts.screen.is_some() && facts.may_fit { button class="button small" id="fit" title="Gives the terminal the size of this window" { "Fit" } }
                select id="signal" aria-label="Send a signal" {
                    option value="" { "Signal…" }
                    @for (signal, words) in SIGNALS { option value=(signal) { (words) } }
                }
                button class="button small deny" id="kill" { "End it" }
            }
        }
        div class="line pad" {
            input class="search" type="text" id="find" data-search placeholder="Find in the log" aria-label="Find in the log" autocomplete="off";
            span class="muted small" id="hits" role="status" {}
            span class="grow" {}
            button class="button small" id="download" { "Download the log" }
        }
        pre class="text" id="log" hidden data-keep-scroll {}
    }
}

/// Renders the end of a session's output, in which hidden characters were already made visible.
pub fn session_output(text: &str) -> Markup {
    html! { div id="output-text" { (text) } }
}

/// Renders one row of a terminal. Its runs are text with colors. They contain no escape sequences
/// of the program.
pub fn screen_row(at: usize, row: &ScreenRow) -> Markup {
    html! {
        div id=(format!("s-{at}")) {
            @for run in &row.runs {
                @match class(run) {
                    Some(class) => { span class=(class) { (drawn(&run.text)) } }
                    None => { (drawn(&run.text)) }
                }
            }
        }
    }
}

/// Returns the text of a terminal, in which each character has its cell. Characters that are
/// invisible or change the direction of others are drawn as a replacement.
fn drawn(text: &str) -> String {
    let visible = |character: char| match character {
        '\u{AD}'
        | '\u{61C}'
        | '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{FEFF}' => '\u{FFFD}',
        other if other.is_control() => '\u{FFFD}',
        other => other,
    };
    text.chars().map(visible).collect()
}

fn class(run: &ScreenRun) -> Option<String> {
    let mut classes = Vec::new();
    if run.is_cursor {
        classes.push("cursor".to_owned());
    }
    classes.extend(run.foreground.map(|color| format!("f{}", name(color))));
    classes.extend(run.background.map(|color| format!("k{}", name(color))));
    for (is_set, class) in [
        (run.bold, "bold"),
        (run.dim, "dim"),
        (run.italic, "ital"),
        (run.underline, "line1"),
    ] {
        if is_set {
            classes.push(class.to_owned());
        }
    }
    (!classes.is_empty()).then(|| classes.join(" "))
}

/// Returns the name of one of the eight colors, or of all others.
fn name(color: u8) -> String {
    match color {
        0..=7 => color.to_string(),
        8..=15 => (color - 8).to_string(),
        _ => "x".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_how_many_ended_sessions_it_leaves_out() {
        let ended = [ProcessEntry::default(), ProcessEntry::default()];
        let page = |total_ended| {
            let listed = SessionListFacts {
                ended: &ended,
                total_ended,
                ..SessionListFacts::default()
            };
            sessions_page(&listed).into_string()
        };
        assert!(page(7).contains("5 older ones are not shown"));
        assert!(!page(2).contains("not shown"));
    }
}
