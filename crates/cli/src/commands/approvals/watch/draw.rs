//! What the inbox looks like: the list above, the selected approval below, keys at the bottom.

use interlock_command::{Style as Part, highlight};
use interlock_host::{Choice, PendingApproval, now_ms};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::super::super::prompt;
use super::super::bounds;
use super::inbox::{Inbox, Mode, Open, Selection};
use crate::output::visible;

/// Draws everything, and notes what of it has been on the screen.
pub(super) fn draw(frame: &mut Frame<'_>, inbox: &mut Inbox, listens: bool) {
    let rows = u16::try_from(inbox.rows.len()).unwrap_or(u16::MAX);
    let list_height = rows.clamp(1, (frame.area().height / 4).max(1));
    let [title, list, pane, message, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(list_height),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let heading = format!(
        "interlock approvals: {} waiting{}",
        inbox.rows.len(),
        if listens { ", listening" } else { "" }
    );
    frame.render_widget(Line::from(heading).bold(), title);
    draw_list(frame, inbox, list);
    draw_pane(frame, inbox, pane);
    let said = Line::from(inbox.message.clone()).fg(Color::Yellow);
    frame.render_widget(said, message);
    frame.render_widget(Line::from(offered(inbox)).dim(), keys);
}

fn draw_list(frame: &mut Frame<'_>, inbox: &Inbox, area: Rect) {
    let height = usize::from(area.height);
    let selected = inbox.index();
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(height));
    let rows = inbox.rows.iter().enumerate().skip(first).take(height);
    let lines: Vec<Line<'_>> = rows
        .map(|(at, row)| {
            let is_selected = selected == Some(at);
            let line = Line::from(format!(
                "{} {}  {}  {} ago, {} left  {}",
                if is_selected { ">" } else { " " },
                row.short_id,
                one_line(&row.agent),
                since(row.created_at_ms),
                until(row.expires_at_ms),
                one_line(&row.preview),
            ));
            if is_selected { line.reversed() } else { line }
        })
        .collect();
    if lines.is_empty() {
        frame.render_widget(Line::from("  nothing waits for a decision").dim(), area);
    } else {
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn draw_pane(frame: &mut Frame<'_>, inbox: &mut Inbox, area: Rect) {
    let block = Block::new().borders(Borders::TOP);
    let inside = block.inner(area);
    match &mut inbox.selection {
        Selection::Nothing => frame.render_widget(block, area),
        Selection::Ended { short_id, how, .. } => {
            let title = format!(" {short_id} has ended ");
            frame.render_widget(block.title(title), area);
            let text = format!("{}\n\nj, k or Enter goes on to another one.", visible(how));
            frame.render_widget(Paragraph::new(text), inside);
        }
        Selection::Open(open) => {
            let (command, rest) = content(open);
            let width = usize::from(inside.width);
            let mut lines = wrapped(command, width);
            let command_lines = lines.len();
            lines.extend(wrapped(rest, width));
            let height = usize::from(inside.height);
            open.scroll = open.scroll.min(lines.len().saturating_sub(height));
            let below = lines.len().saturating_sub(open.scroll + height);
            open.is_command_seen |= open.scroll + height >= command_lines;
            let mut title = format!(" {} ", open.approval.short_id);
            if below > 0 {
                title += &format!("({below} more lines: PgDn) ");
            }
            frame.render_widget(block.title(title), area);
            let shown: Vec<Line<'_>> = lines.into_iter().skip(open.scroll).take(height).collect();
            frame.render_widget(Paragraph::new(shown), inside);
        }
    }
}

/// The command, and all else that the answer depends on.
fn content(open: &Open) -> (Vec<Line<'static>>, Vec<Line<'static>>) {
    let approval = &open.approval;
    let mut rest = vec![
        fact("agent", &approval.agent),
        fact("in", &approval.cwd),
        fact("session", &approval.session_key),
    ];
    for (index, reason) in approval.reasons.iter().enumerate() {
        rest.push(fact(if index == 0 { "why" } else { "" }, reason));
    }
    let binding = format!("{}: {}", approval.binding, approval.binding_reason);
    rest.push(fact("binding", &binding));
    if approval.binding == "unbound" {
        let warning = "UNBOUND: what runs may be other code than what is shown";
        rest.push(fact("", warning).style(Style::new().fg(Color::Red).bold()));
    }
    for (index, entry) in approval.always.iter().enumerate() {
        let title = if index == 0 { "always" } else { "" };
        let entry = format!("would store {} ({})", entry.pattern, bounds(entry));
        rest.push(fact(title, &entry));
    }
    if let Some(why) = &approval.no_always {
        rest.push(fact("always", &format!("is not offered: {why}")));
    }
    let hidden = &approval.command;
    let notes = [
        (hidden.masked, "secrets are masked: r reveals them"),
        (hidden.spelled_out, "characters are spelled out"),
        (hidden.left_out, "bytes are left out"),
    ];
    for (count, what) in notes {
        if count > 0 {
            rest.push(fact("note", &format!("{count} {what}")));
        }
    }
    if open.is_revealed {
        rest.push(fact("note", "secrets are shown: r masks them"));
    }
    rest.push(fact(
        "expires",
        &format!("in {}", until(approval.expires_at_ms)),
    ));
    rest.extend(difference(approval));
    (vec![command(&approval.command.text)], rest)
}

fn difference(approval: &PendingApproval) -> Vec<Line<'static>> {
    let (Some(diff), Some(changed)) = (&approval.diff, prompt::changed(approval)) else {
        return Vec::new();
    };
    let mut lines = vec![fact("changed", &changed)];
    for line in diff.text.lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => Style::new().fg(Color::Green),
            Some(b'-') => Style::new().fg(Color::Red),
            Some(b'@') => Style::new().fg(Color::Cyan),
            _ => Style::new(),
        };
        lines.push(Line::styled(format!("  {line}"), style));
    }
    if diff.left_out > 0 {
        let more = format!("  … {} more lines are not shown", diff.left_out);
        lines.push(Line::from(more).dim());
    }
    lines
}

fn fact(title: &str, value: &str) -> Line<'static> {
    Line::from(vec![
        Span::styled(
            format!("{title:<9}"),
            Style::new().add_modifier(Modifier::DIM),
        ),
        Span::raw(one_line(value)),
    ])
}

/// With its parts coloured; what cannot be seen was spelled out when it was made ready to be shown.
fn command(text: &str) -> Line<'static> {
    let mut spans = Vec::new();
    let mut at = 0;
    for part in highlight(text) {
        spans.push(Span::raw(one_line(&text[at..part.span.start])));
        let style = match part.style {
            Part::Program => Style::new().fg(Color::Cyan).bold(),
            Part::Option => Style::new().fg(Color::Cyan),
            Part::Argument => Style::new(),
            Part::Assignment => Style::new().fg(Color::Magenta),
            Part::Operator => Style::new().bold(),
            Part::Redirection => Style::new().fg(Color::Yellow),
            Part::Odd => Style::new().fg(Color::Red).bold(),
        };
        spans.push(Span::styled(one_line(part.span.of(text)), style));
        at = part.span.end;
    }
    spans.push(Span::raw(one_line(&text[at..])));
    Line::from(spans)
}

/// Cut into lines of this width, so that it is known how many there are and what each one holds.
fn wrapped(lines: Vec<Line<'static>>, width: usize) -> Vec<Line<'static>> {
    let width = width.max(1);
    let mut out = Vec::new();
    for line in lines {
        let mut spans: Vec<Span<'static>> = Vec::new();
        let mut used = 0;
        for piece in line.styled_graphemes(Style::new()) {
            let piece = Span::styled(piece.symbol.to_owned(), piece.style);
            let wide = piece.width();
            if used + wide > width && used > 0 {
                out.push(Line::from(std::mem::take(&mut spans)));
                used = 0;
            }
            used += wide;
            match spans.last_mut() {
                Some(last) if last.style == piece.style => {
                    last.content.to_mut().push_str(&piece.content);
                }
                _ => spans.push(piece),
            }
        }
        out.push(Line::from(spans));
    }
    out
}

/// What the keys do now.
fn offered(inbox: &Inbox) -> String {
    let open = match (&inbox.mode, &inbox.selection) {
        (Mode::Confirming(decision), _) => {
            return format!("{}: y confirms, any other key does not", decision.as_str());
        }
        (Mode::Leasing(text), _) => {
            return format!(
                "allow for how long? {text}_  (such as 30m; Enter allows, Esc does not)"
            );
        }
        (Mode::Looking, Selection::Open(open)) => open,
        _ => return "j/k move  q leaves".to_owned(),
    };
    let mut words = Vec::new();
    let names = [
        (Choice::AllowOnce, "o once"),
        (Choice::AllowSession, "s session"),
        (Choice::AllowAlways, "a always"),
        (Choice::Lease, "l lease"),
        (Choice::Deny, "d deny"),
    ];
    for (choice, name) in names {
        if open.approval.choices.contains(&choice) {
            words.push(name);
        }
    }
    if open.approval.command.masked > 0 || open.is_revealed {
        words.push("r reveal");
    }
    words.extend(["j/k move", "q leaves"]);
    words.join("  ")
}

/// Nothing hidden, and no line break.
fn one_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

fn since(at_ms: i64) -> String {
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    time(now.saturating_sub(at_ms))
}

fn until(at_ms: i64) -> String {
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    time(at_ms.saturating_sub(now))
}

fn time(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..7200 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h", seconds / 3600),
    }
}
