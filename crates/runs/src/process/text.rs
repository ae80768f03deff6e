//! Formats sessions as text.

use std::io::IsTerminal as _;

use interlock_console::output::{self, Paint};
use interlock_sessions::{EndedSession, ScreenAnswer, SessionStatus, SessionSummary};

/// One line for each session.
pub fn list(sessions: &[SessionSummary], with_agent: bool) -> String {
    let paint = Paint::stdout();
    let rows: Vec<Vec<String>> = sessions
        .iter()
        .map(|session| {
            let mut row = vec![
                session.session_id.clone(),
                state(session),
                age(session.age_ms),
            ];
            if with_agent {
                row.push(output::visible(&session.agent_id));
            }
            let name = paint.strong(&output::visible(&session.name));
            row.push(match &session.node {
                Some(node) => format!("{name} on {}", output::visible(node)),
                None => name,
            });
            row
        })
        .collect();
    output::table(&rows, "")
}

fn state(session: &SessionSummary) -> String {
    let ended = &session.ended;
    match (ended.status, ended.exit_code, ended.signal) {
        (SessionStatus::Running, ..) if session.waiting_for_input => "waits for input".to_owned(),
        (SessionStatus::Running, ..) if !session.background => "running, attended".to_owned(),
        (SessionStatus::Failed, ..) if ended.timed_out => "timed out".to_owned(),
        (SessionStatus::Completed, Some(code), _) => format!("exited {code}"),
        (status, _, Some(_)) if status != SessionStatus::Running => ended.to_string(),
        (status, ..) => status.as_str().to_owned(),
    }
}

/// The state of a session, as the end of a sentence that begins with the session's name.
pub fn standing(ended: &EndedSession) -> String {
    match ended.status {
        SessionStatus::Running => "is running".to_owned(),
        SessionStatus::Lost => "is lost: how it ended is not known".to_owned(),
        SessionStatus::Failed if ended.timed_out => "was ended: its time was over".to_owned(),
        _ => ended.to_string(),
    }
}

/// Formats an age in its largest unit.
fn age(milliseconds: u64) -> String {
    const UNITS: &[(u64, &str)] = &[(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = milliseconds / 1000;
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    let (length, name) = unit.unwrap_or(&(1, "s"));
    format!("{}{name}", seconds / length)
}

/// Formats the rows of a screen without the empty rows at the end.
pub fn screen(screen: &ScreenAnswer) -> String {
    let rows = &screen.picture.rows;
    let last = rows.iter().rposition(|row| !row.is_empty());
    let rows = &rows[..last.map_or(0, |last| last + 1)];
    rows.iter().map(|row| harmless(row) + "\n").collect()
}

/// Formats output of a session. A program gets it unchanged. A terminal gets it without control
/// sequences other than colors, so that a log cannot move the cursor or change the terminal.
pub fn transcript(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    let mut shown = harmless(text);
    if !shown.is_empty() && !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown
}

fn harmless(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['\x1b', '\t']) {
        out.push_str(&output::visible(&rest[..at]));
        rest = &rest[at..];
        let length = if rest.starts_with('\t') {
            1
        } else {
            color(rest)
        };
        if length == 0 {
            out.push_str(&output::visible(&rest[..1]));
        }
        out.push_str(&rest[..length]);
        rest = &rest[length.max(1)..];
    }
    out.push_str(&output::visible(rest));
    out
}

/// The length of a sequence that only sets colors, or 0 for any other sequence.
fn color(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else {
        return 0;
    };
    let parameters = rest
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b';' || *byte == b':')
        .count();
    match rest.as_bytes().get(parameters) {
        Some(b'm') => "\x1b[".len() + parameters + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_pass_and_everything_else_is_made_visible() {
        for (text, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("a\r\nb\r", "a\nb\\u{D}"),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            ("\x1b[2J\x1b]0;x\x07", "\\u{1B}[2J\\u{1B}]0;x\\u{7}"),
            ("\x1b[6n\x1b", "\\u{1B}[6n\\u{1B}"),
            ("\x1b[31", "\\u{1B}[31"),
            ("é\x1b[m漢", "é\x1b[m漢"),
        ] {
            assert_eq!(harmless(text), shown, "{text:?}");
        }
    }

    #[test]
    fn ages_have_one_unit() {
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (7_199, "1h"),
            (200_000, "2d"),
        ] {
            assert_eq!(age(seconds * 1000), shown);
        }
    }
}
