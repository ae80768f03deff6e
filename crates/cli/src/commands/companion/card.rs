//! The text of a notification about an approval, and whether the notification may have *Allow
//! once*.
//!
//! The text is the one of every other surface ([`interlock_approvals::ApprovalView`]), so unusual
//! characters are already spelled out. For a server that declares that it draws markup, the text is
//! escaped. A server may draw markup without declaring it (dunst does by default). For those,
//! everything that could be markup is spelled out, and such an approval cannot be allowed from the
//! notification.

use std::collections::BTreeMap;

use interlock_approvals::{ApprovalDecision, PendingApproval, ViewDetail};
use interlock_command::display::ShownLine;

/// The longest command with *Allow once*: servers cut long texts.
const COMMAND_CHARACTERS: usize = 180;

/// The most lines and characters of a notification. It has only the beginning of a longer text.
const MOST_LINES: usize = 20;
const MOST_CHARACTERS: usize = 1200;

/// How many agents the notification with a count names.
const NAMED_AGENTS: usize = 4;

/// The text of one notification, without markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DesktopText {
    pub summary: String,
    pub body: String,
    /// Whether the text contains the whole view.
    pub is_whole: bool,
}

impl DesktopText {
    /// The text for one approval.
    pub fn of_approval(approval: &PendingApproval) -> Self {
        let place = approval.node.as_deref().unwrap_or(&approval.host);
        let mut lines = Vec::new();
        for line in approval.view.lines(ViewDetail::Whole, None, "") {
            lines.push(match line.label {
                "" | "command" => format!("{}{}", line.mark, line.text),
                label => format!("{label}: {}{}", line.mark, line.text),
            });
        }
        let whole = lines.join("\n");
        let mut body = String::new();
        for line in lines.iter().take(MOST_LINES) {
            body.push_str(line);
            body.push('\n');
        }
        let end = body.char_indices().nth(MOST_CHARACTERS);
        let end = end.map_or(body.trim_end_matches('\n').len(), |(at, _)| at);
        body.truncate(end);
        let is_whole = body == whole && approval.view.left_out_lines() == 0;
        if !is_whole {
            body.push_str("\n… cut: review it to see the rest");
        }
        Self {
            summary: format!(
                "{} · {} @ {} asks",
                approval.short_id,
                ShownLine::new(&approval.agent),
                ShownLine::new(place)
            ),
            body,
            is_whole,
        }
    }

    /// One text for several approvals, with a count per agent.
    pub fn of_many<'a>(agents: impl Iterator<Item = &'a str>) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for agent in agents {
            *counts.entry(agent).or_default() += 1;
        }
        let all: usize = counts.values().sum();
        let mut named: Vec<String> = counts
            .iter()
            .take(NAMED_AGENTS)
            .map(|(agent, count)| format!("{} {count}", ShownLine::new(agent)))
            .collect();
        if counts.len() > NAMED_AGENTS {
            named.push(format!("{} other agents", counts.len() - NAMED_AGENTS));
        }
        let summary = match all {
            1 => "1 approval waits".to_owned(),
            all => format!("{all} approvals wait"),
        };
        Self {
            summary,
            body: named.join(", "),
            is_whole: false,
        }
    }

    /// A message to the approver about a pressed button.
    pub fn note(summary: &str, body: &str) -> Self {
        Self {
            summary: summary.to_owned(),
            body: ShownLine::new(body).to_string(),
            is_whole: false,
        }
    }

    /// The summary. Markup is spelled out: servers should not draw it here, but may.
    pub fn shown_summary(&self) -> String {
        without_markup(&self.summary)
    }

    /// Whether a server could take a part of the text for markup and show something else.
    pub fn could_be_markup(&self) -> bool {
        without_markup(&self.body) != self.body
    }

    /// The body for a server, with markup escaped or spelled out.
    pub fn body_for(&self, draws_markup: bool) -> String {
        if !draws_markup {
            return without_markup(&self.body);
        }
        let mut out = String::with_capacity(self.body.len());
        for character in self.body.chars() {
            match character {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '"' => out.push_str("&quot;"),
                '\'' => out.push_str("&#39;"),
                other => out.push(other),
            }
        }
        out
    }
}

/// Spells out every character that could begin a tag or an entity. Shell operators such as `&&` and
/// `2>&1` stay.
fn without_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let begins_entity = |next: &char| next.is_ascii_alphabetic() || *next == '#';
        match character {
            '<' => out.push_str("\\u{3C}"),
            '&' if rest.peek().is_some_and(begins_entity) => out.push_str("\\u{26}"),
            other => out.push(other),
        }
    }
    out
}

/// Why the notification of an approval must not have *Allow once*, independent of the state of the
/// desktop.
pub(super) fn no_allow(approval: &PendingApproval, text: &DesktopText) -> Option<&'static str> {
    let command = &approval.command;
    let is_short = command.left_out == 0 && command.text.chars().count() <= COMMAND_CHARACTERS;
    let reasons = [
        (approval.ended.is_some(), "it has ended"),
        (
            !approval.offers(ApprovalDecision::AllowOnce),
            "it can only be denied",
        ),
        (
            !matches!(approval.binding.as_str(), "native" | "file"),
            "its kind is neither native nor file",
        ),
        (
            approval.view.elevated.leaves(),
            "it leaves the sandbox of its conversation",
        ),
        (approval.view.masked_secrets > 0, "secrets in it are masked"),
        (!is_short || !text.is_whole, "it is not shown whole here"),
    ];
    reasons
        .into_iter()
        .find_map(|(holds, reason)| holds.then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_draws_markup_gets_none() {
        let text = DesktopText {
            summary: String::new(),
            body: "echo '<a href=\"x\">&amp;'".to_owned(),
            is_whole: true,
        };
        assert_eq!(
            text.body_for(true),
            "echo &#39;&lt;a href=&quot;x&quot;&gt;&amp;amp;&#39;"
        );
        // Another one may draw it without saying so.
        assert_eq!(
            text.body_for(false),
            "echo '\\u{3C}a href=\"x\">\\u{26}amp;'"
        );
        assert!(text.could_be_markup());
        let plain = DesktopText::note("", "a && b 2>&1 > c & d");
        assert!(!plain.could_be_markup());
        assert_eq!(plain.body_for(false), plain.body);
    }

    #[test]
    fn many_approvals_are_counted_by_agent() {
        let text = DesktopText::of_many(["ci", "main", "main", "a", "b", "c", "d\n"].into_iter());
        assert_eq!(text.summary, "7 approvals wait");
        assert_eq!(text.body, "a 1, b 1, c 1, ci 1, 2 other agents");
    }
}
