//! Small parts that pages share.

use interlock_command::display::ShownLine;
use interlock_command::{HighlightStyle, highlight};
use maud::{Markup, html};

/// Longer texts are shown without colors: looking at them would take longer than reading them.
const MOST_HIGHLIGHTED: usize = 16 * 1024;

/// A text of others on one line, with everything spelled out that cannot be seen.
pub(crate) fn line(text: &str) -> String {
    ShownLine::new(text).as_str().to_owned()
}

/// A command that was made visible already, with its words colored by their place.
pub(crate) fn command(shown: &str) -> Markup {
    if shown.len() > MOST_HIGHLIGHTED {
        return html! { (shown) };
    }
    let mut from = 0;
    let mut parts = Vec::new();
    for found in highlight(shown) {
        if found.span.start < from || found.span.end > shown.len() {
            continue;
        }
        parts.push((None, &shown[from..found.span.start]));
        let class = match found.style {
            HighlightStyle::Program => "b",
            HighlightStyle::Option => "o",
            HighlightStyle::Assignment => "v",
            HighlightStyle::Operator | HighlightStyle::Redirection => "q",
            HighlightStyle::Odd => "odd",
            HighlightStyle::Argument => "",
        };
        let class = (!class.is_empty()).then_some(class);
        parts.push((class, &shown[found.span.start..found.span.end]));
        from = found.span.end;
    }
    parts.push((None, &shown[from..]));
    html! {
        @for (class, text) in parts {
            @match class {
                Some(class) => { span class=(class) { (text) } }
                None => { (text) }
            }
        }
    }
}

/// A moment, which the browser writes in its reader's time zone.
pub(crate) fn at(milliseconds: i64) -> Markup {
    html! { time data-at=(milliseconds) {} }
}

/// A length of time.
pub(crate) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Lines of a text of others, each made visible.
pub(crate) fn visible_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join("\n")
}

/// A value as indented JSON, made visible.
pub(crate) fn visible_json(value: &serde_json::Value) -> String {
    visible_lines(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// What a page says that has nothing to show: a sentence, and the next step.
pub(crate) fn empty(sentence: &str, next: &str, command: Option<&str>) -> Markup {
    html! {
        section class="empty" id="nothing" {
            h1 { (sentence) }
            p { (next) }
            @if let Some(command) = command { pre class="command" { code { (command) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_text_whatever_stands_in_it() {
        let hostile = "echo '<img src=x onerror=\"pwn=1\"></code><script>' && rm -rf \"$x\"";
        let shown = command(hostile).into_string();
        let text: String = shown
            .replace("</span>", "")
            .split("<span class=\"")
            .enumerate()
            .map(|(at, part)| match part.split_once("\">") {
                Some((_, rest)) if at > 0 => rest.to_owned(),
                _ => part.to_owned(),
            })
            .collect();
        assert!(!text.contains('<'), "{text}");
        let plain = text.replace("&lt;", "<").replace("&gt;", ">");
        let plain = plain.replace("&quot;", "\"").replace("&amp;", "&");
        assert_eq!(plain, hostile);
    }
}
