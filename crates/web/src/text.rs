//! Small parts that pages share.

use interlock_command::display::ShownLine;
use interlock_command::{HighlightStyle, highlight};
use maud::{Markup, html};

/// Longer texts are shown without colors, because finding the colors would take too long.
const MOST_HIGHLIGHTED: usize = 16 * 1024;

/// Returns foreign text on one line, with every invisible character spelled out.
pub(crate) fn line(text: &str) -> String {
    ShownLine::new(text).as_str().to_owned()
}

/// Renders a sentence whose hidden characters were already made visible. Parts between backticks
/// are code. A text with backticks of its own changes how a part looks, and never what it says.
pub(crate) fn sentence(shown: &str) -> Markup {
    let parts: Vec<&str> = shown.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (shown) };
    }
    html! {
        @for (at, part) in parts.iter().enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Whether the words of commands are colored by their role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandColors {
    On,
    /// The owner switched the colors off.
    Off,
}

/// Renders a command whose hidden characters were already made visible, with its words colored by
/// their role.
pub(crate) fn command(shown: &str) -> Markup {
    command_with(shown, CommandColors::On)
}

/// Renders a command with or without colors, as the owner wants. A word of two scripts is always
/// marked.
pub(crate) fn command_with(shown: &str, colors: CommandColors) -> Markup {
    if shown.len() > MOST_HIGHLIGHTED {
        return html! { (shown) };
    }
    let mut spans: Vec<(usize, usize, &str)> = mixed_words(shown)
        .map(|(start, end)| (start, end, "mixed"))
        .collect();
    if colors == CommandColors::On {
        let marked = spans.len();
        for found in highlight(shown) {
            let (start, end) = (found.span.start, found.span.end);
            let is_taken = spans[..marked]
                .iter()
                .any(|(from, to, _)| start < *to && *from < end);
            let class = match found.style {
                HighlightStyle::Program => "b",
                HighlightStyle::Option => "o",
                HighlightStyle::Assignment => "v",
                HighlightStyle::Operator | HighlightStyle::Redirection => "q",
                HighlightStyle::Odd => "odd",
                HighlightStyle::Argument => continue,
            };
            if !is_taken {
                spans.push((start, end, class));
            }
        }
        spans.sort_unstable();
    }
    let mut from = 0;
    let mut parts = Vec::new();
    for (start, end, class) in spans {
        if start < from || end > shown.len() {
            continue;
        }
        parts.push((None, &shown[from..start]));
        parts.push((Some(class), &shown[start..end]));
        from = end;
    }
    parts.push((None, &shown[from..]));
    html! {
        @for (class, text) in parts {
            @match class {
                Some("mixed") => { span class="mixed" title="letters of two scripts" { (text) } }
                Some(class) => { span class=(class) { (text) } }
                None => { (text) }
            }
        }
    }
}

/// Returns the words in which a letter of another script is spelled out, between blanks and quotes.
fn mixed_words(shown: &str) -> impl Iterator<Item = (usize, usize)> {
    let is_edge = |c: char| c.is_whitespace() || matches!(c, '\'' | '"');
    let words = shown.split(is_edge);
    let words = words.map(|word| (word.as_ptr().addr() - shown.as_ptr().addr(), word));
    words.filter_map(|(start, word)| {
        let mut escapes = word.split("\\u{").skip(1);
        let is_letter = |rest: &str| {
            let code = rest.split('}').next().unwrap_or_default();
            let code = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
            code.is_some_and(char::is_alphabetic)
        };
        escapes
            .any(is_letter)
            .then_some((start, start + word.len()))
    })
}

/// Renders a moment, which the browser writes in the reader's time zone.
pub(crate) fn at(milliseconds: i64) -> Markup {
    html! { time data-at=(milliseconds) {} }
}

/// Returns a number of bytes, in the unit that makes it short.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let Some(power) = bytes.checked_ilog(1024).filter(|power| *power > 0) else {
        return format!("{bytes} B");
    };
    let power = power.min(4);
    let tenths = u128::from(bytes) * 10 / 1024_u128.pow(power);
    let unit = UNITS[power as usize - 1];
    match tenths {
        100.. => format!("{} {unit}", tenths / 10),
        _ => format!("{}.{} {unit}", tenths / 10, tenths % 10),
    }
}

/// Returns a length of time.
pub(crate) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Returns the lines of a foreign text, each with hidden characters made visible.
pub(crate) fn visible_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join("\n")
}

/// Returns a value as indented JSON with hidden characters made visible.
pub(crate) fn visible_json(value: &serde_json::Value) -> String {
    visible_lines(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Renders a page that has nothing to show: a sentence, and the next step.
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
    fn a_word_of_two_scripts_is_marked_with_and_without_colors() {
        let shown = "git log /usr/bin/c\\u{430}t 'a\\u{202E}b'";
        for colors in [CommandColors::On, CommandColors::Off] {
            let html = command_with(shown, colors).into_string();
            let marked =
                "<span class=\"mixed\" title=\"letters of two scripts\">/usr/bin/c\\u{430}t</span>";
            assert!(html.contains(marked), "{html}");
            assert_eq!(html.matches("mixed").count(), 1, "{html}");
            assert_eq!(html.contains("class=\"b\""), colors == CommandColors::On);
        }
    }

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
