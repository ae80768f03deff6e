//! Draws the inbox: the list at the top, the selected approval below it, the keys at the bottom.

use interlock_approvals::{
    ApprovalDecision, Lease, ViewDetail, ViewLabel, ViewLine, ViewTone, requester_has_ended,
};
use interlock_command::{HighlightStyle as Part, highlight};
use interlock_console::output::line;
use interlock_host::now_ms;
use interlock_policy::AlwaysForm;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::inbox::{Inbox, Mode, OpenApproval, Selection};
use crate::prompt;

/// Draws the inbox, and records whether the whole command of the selected approval has been on the
/// screen.
pub(super) fn draw(frame: &mut Frame<'_>, inbox: &mut Inbox, about: &str) {
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
        "interlock approvals: {} waiting{}{}",
        inbox.rows.len(),
        if inbox.filter().is_empty() {
            String::new()
        } else {
            let filter = one_line(inbox.filter().text());
            format!(" of {} (filter: {filter})", inbox.waiting())
        },
        one_line(about)
    );
    frame.render_widget(Line::from(heading).bold(), title);
    draw_list(frame, inbox, list);
    draw_pane(frame, inbox, pane);
    let message_line = Line::from(inbox.message.clone()).fg(Color::Yellow);
    frame.render_widget(message_line, message);
    frame.render_widget(Line::from(key_help(inbox)).dim(), keys);
}

fn draw_list(frame: &mut Frame<'_>, inbox: &Inbox, area: Rect) {
    let height = usize::from(area.height);
    let selected = inbox.index();
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(height));
    let rows = inbox.rows.iter().enumerate().skip(first).take(height);
    let lines: Vec<Line<'_>> = rows
        .map(|(at, row)| {
            let is_selected = selected == Some(at);
            let gone = requester_has_ended(&row.requester);
            let line = Line::from(format!(
                "{} {}  {}  {} ago, {} left  {}{}",
                if is_selected { ">" } else { " " },
                row.short_id,
                one_line(&row.agent),
                since(row.created_at_ms),
                until(row.expires_at_ms),
                if gone { "(caller gone) " } else { "" },
                one_line(&row.preview),
            ));
            if is_selected { line.reversed() } else { line }
        })
        .collect();
    if lines.is_empty() {
        let text = if inbox.filter().is_empty() {
            "  nothing waits for a decision"
        } else {
            "  nothing that waits fits the filter (/ changes it)"
        };
        frame.render_widget(Line::from(text).dim(), area);
    } else {
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn draw_pane(frame: &mut Frame<'_>, inbox: &mut Inbox, area: Rect) {
    let block = Block::new().borders(Borders::TOP);
    let inside = block.inner(area);
    let equal = inbox.equal_ids().len().saturating_sub(1);
    match &mut inbox.selection {
        Selection::Nothing => frame.render_widget(block, area),
        Selection::Ended { short_id, how, .. } => {
            let title = format!(" {short_id} has ended ");
            frame.render_widget(block.title(title), area);
            let text = format!("{}\n\nj, k or Enter goes on to another one.", line(how));
            frame.render_widget(Paragraph::new(text), inside);
        }
        Selection::Open(open) => {
            let width = usize::from(inside.width);
            let (command, rest) = content(open, width);
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
            match (equal, open.is_for_equal) {
                (0, _) => {}
                (count, true) => title += &format!("(decided together with {count} equal) "),
                (count, false) => title += &format!("({count} more ask the same: e) "),
            }
            frame.render_widget(block.title(title), area);
            let shown: Vec<Line<'_>> = lines.into_iter().skip(open.scroll).take(height).collect();
            frame.render_widget(Paragraph::new(shown), inside);
        }
    }
}

/// The rows of the command, and the rows of everything else that the decision depends on, each of
/// this width.
fn content(open: &OpenApproval, width: usize) -> (Vec<Line<'static>>, Vec<Line<'static>>) {
    let approval = &open.approval;
    let columns = width.saturating_sub(LABELS + MARKS).max(LEAST_COLUMNS);
    let lines = prompt::lines(approval, ViewDetail::Whole, Some(columns));
    // The command comes first: as a single row, as a field or as a text.
    let is_command = |line: &ViewLine| line.label.is_empty() || line.label == COMMAND;
    let count = lines.iter().take_while(|line| is_command(line)).count();
    let (command_lines, rest) = lines.split_at(count);
    let command_lines = match command_lines {
        [only] if approval.view.has_colors() => vec![command(&only.text)],
        several => several.iter().map(row).collect(),
    };
    let mut rest: Vec<Line<'static>> = rest.iter().map(row).collect();
    if open.is_revealed {
        let text = "secrets are shown: r masks them";
        rest.push(Line::from(format!("{:<LABELS$}{text}", "note")));
    }
    (command_lines, rest)
}

/// The label of the first lines of a prompt.
const COMMAND: &str = ViewLabel::Command.as_str();
/// The width of the column of labels.
const LABELS: usize = 10;
/// The width of the widest mark in front of a text.
const MARKS: usize = 3;
/// The least width of a line, also on a narrower terminal.
const LEAST_COLUMNS: usize = 20;

fn row(line: &ViewLine) -> Line<'static> {
    let style = match line.tone {
        _ if line.is_diff && line.text.starts_with('+') => Style::new().fg(Color::Green),
        _ if line.is_diff && line.text.starts_with('-') => Style::new().fg(Color::Red),
        _ if line.is_diff && line.text.starts_with('@') => Style::new().fg(Color::Cyan),
        ViewTone::Warning => Style::new().fg(Color::Red).bold(),
        ViewTone::Plain => Style::new(),
    };
    let dim = Style::new().add_modifier(Modifier::DIM);
    Line::from(vec![
        Span::styled(format!("{:<LABELS$}{}", line.label, line.mark), dim),
        Span::styled(line.text.clone(), style),
    ])
}

/// Colors the parts of a command. Invisible characters were already spelled out when the view was
/// made.
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

/// Cuts lines to this width. The inbox wraps lines itself because it must know which of them have
/// been on the screen.
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

/// Describes what the keys do in the current mode.
fn key_help(inbox: &Inbox) -> String {
    let open = match (&inbox.mode, &inbox.selection) {
        (Mode::Confirming { wish, ids }, _) => {
            let form = match (wish.decision, wish.form) {
                (ApprovalDecision::AllowAlways, form) if form != AlwaysForm::Exact => {
                    format!(" as {form}")
                }
                _ => String::new(),
            };
            let all = match ids.len() {
                0 | 1 => String::new(),
                count => format!(" for all {count} that ask the same"),
            };
            let word = wish.decision.as_str();
            return format!("{word}{form}{all}: y confirms, any other key does not");
        }
        (Mode::Denying(reason), _) => {
            return format!(
                "deny, because: {reason}_  (the caller reads it; Enter denies, Esc does not)"
            );
        }
        (Mode::Choosing(forms), _) => {
            let forms = forms.iter().enumerate();
            let forms = forms.map(|(at, form)| format!("{} {form}", at + 1));
            let forms: Vec<String> = forms.collect();
            return format!("always as: {}  (any other key does not)", forms.join("  "));
        }
        (Mode::Filtering(text), _) => {
            return format!(
                "filter: {text}_  (agent:NAME host:NAME or text; Enter shows, Esc leaves it)"
            );
        }
        (Mode::Leasing(text), _) => {
            return format!(
                "allow for how long? {text}_  (such as 30m; Enter allows, Esc does not)"
            );
        }
        (Mode::Looking, Selection::Open(open)) => open,
        _ => return "/ filter  j/k move  q leaves".to_owned(),
    };
    let mut words = Vec::new();
    let names = [
        (ApprovalDecision::AllowOnce, "o once"),
        (ApprovalDecision::AllowSession, "s session"),
        (
            ApprovalDecision::AllowAlways,
            match open.approval.always_form {
                AlwaysForm::Project => "a always for this project",
                _ => "a always",
            },
        ),
        (ApprovalDecision::Lease(Lease::LONGEST), "l lease"),
        (ApprovalDecision::Deny, "d/D deny"),
    ];
    for (decision, name) in names {
        if open.approval.offers(decision) {
            words.push(name);
        }
    }
    if !open.approval.wider.is_empty() {
        words.push("A always as");
    }
    if open.approval.view.masked_secrets > 0 || open.is_revealed {
        words.push("r reveal");
    }
    words.extend(["/ filter", "j/k move", "q leaves"]);
    words.join("  ")
}

/// Spells out invisible characters and line breaks.
fn one_line(text: &str) -> String {
    line(text)
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
