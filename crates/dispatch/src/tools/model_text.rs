//! Results for models: a status line, then events, then output, then notes. All of it together fits
//! into `tools.exec.resultChars`. Programs read the same facts as data, which repeats no text.

use interlock_command::display::ShownLine;
use serde_json::Value;

use super::result::ToolResult;
use super::run_outcome::RunLocation;

/// How many characters of a result are reserved for everything but output.
const MOST_RESERVED: usize = 4_000;

/// Fields of the data that the text already contains, including the output.
const TOLD_IN_TEXT: &[&str] = &[
    "aggregated",
    "denial",
    "hint",
    "message",
    "reason",
    "remedy",
    "rows",
    "tail",
    "text",
    "warningText",
];

/// A result as a model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelText {
    /// The status: exit code, duration, host.
    pub status: String,
    /// A program's output. Empty output is reported as such.
    pub output: Option<String>,
    pub notes: Vec<String>,
}

impl ModelText {
    pub fn new(status: String) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }
}

impl std::fmt::Display for RunLocation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(cwd) = &self.cwd {
            write!(out, "in {} ", ShownLine::new(cwd))?;
        }
        match &self.node {
            Some(node) => write!(out, "on node {}", ShownLine::new(&node.name)),
            None => out.write_str("on gateway"),
        }
    }
}

/// The first line of an ended run.
pub fn ended_status(how: &str, duration_ms: u64, location: &RunLocation) -> String {
    format!("{how}, {}, {location}", duration(duration_ms))
}

/// How many characters of output fit into a result of this length.
pub fn output_room(result_chars: usize) -> usize {
    result_chars - MOST_RESERVED.min(result_chars / 4)
}

/// How to read the omitted part of a transcript.
pub fn read_rest((left_out, total): (u64, u64), session: &str, offset: Option<u64>) -> String {
    let offset = offset.map_or(String::new(), |line| format!(", offset {line}"));
    format!(
        "({left_out} of {total} bytes are left out; read them with process: action log, sessionId {session}{offset})"
    )
}

/// The line of a transcript at which the omitted part begins. The line before the gap may be cut,
/// so it is read again.
pub fn line_of_gap(text: &str, left_out: u64, lines: u64) -> Option<u64> {
    let gap = format!("[{left_out} bytes with {lines} line ends left out here]\n");
    let head = &text[..text.find(&gap)?];
    let ends = head.bytes().filter(|byte| *byte == b'\n').count();
    u64::try_from(ends.saturating_sub(1)).ok()
}

impl ToolResult {
    /// The result as a model reads it, with at most `most` characters.
    pub fn for_model(&self, most: usize) -> String {
        let owned;
        let model = match &self.model {
            Some(model) => model,
            None => {
                owned = ModelText::new(self.first_line());
                &owned
            }
        };
        let notes = model.notes.join("\n");
        let output = model.output.as_deref().map(|output| {
            let output = output.trim_end_matches('\n');
            if output.is_empty() {
                "(no output)"
            } else {
                output
            }
        });
        let taken = [model.status.as_str(), output.unwrap_or_default(), &notes];
        let taken: usize = taken.iter().map(|part| part.chars().count() + 2).sum();
        // Events are only delivered here, so they get room even beside long output.
        let room = most
            .saturating_sub(taken)
            .max(MOST_RESERVED.min(most / 4) / 2);
        let events = cut(self.events.join("\n"), room).0;
        let parts = [
            model.status.as_str(),
            &events,
            output.unwrap_or_default(),
            &notes,
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        cut(parts.join("\n\n"), most).0
    }

    /// The text of a result without a run. It includes the code, since the data may not be shown to
    /// the model.
    fn first_line(&self) -> String {
        match &self.refusal {
            Some(refusal) => format!("{} ({}): {}", refusal.status(), refusal.code, self.text),
            None => self.text.clone(),
        }
    }

    /// The data of a result whose text is sent beside it: ids, status and counts.
    pub fn without_text(&self) -> Value {
        without_text(&self.details())
    }
}

fn without_text(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !TOLD_IN_TEXT.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), without_text(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_text).collect(),
        value => value.clone(),
    }
}

/// The longest line about omitted text.
const MAX_MARK_CHARS: usize = 80;

/// Shortens a text to `most` characters, half from the beginning and half from the end, with a line
/// about the rest, like output of runs on this machine. The line counts. Also returns the number of
/// omitted bytes.
pub fn cut(text: String, most: usize) -> (String, usize) {
    let place = |skip: usize| text.char_indices().nth(skip).map(|(place, _)| place);
    if place(most).is_none() {
        return (text, 0);
    }
    let chars = text.chars().count();
    let kept = most.saturating_sub(MAX_MARK_CHARS);
    let head = place(kept / 2).unwrap_or(0);
    let tail = place(chars - (kept - kept / 2)).unwrap_or(text.len());
    let middle = &text[head..tail];
    let mut shown = text[..head].to_owned();
    if !shown.is_empty() && !shown.ends_with('\n') {
        shown.push('\n');
    }
    let lines = middle.bytes().filter(|byte| *byte == b'\n').count();
    shown.push_str(&format!(
        "[{} bytes with {lines} line ends left out here]\n",
        middle.len()
    ));
    shown.push_str(&text[tail..]);
    let left_out = middle.len();
    (shown, left_out)
}

/// The part of a text that fits, in whole lines, and the number of dropped lines. A single line
/// that is too long is cut.
pub fn fitting_lines(text: &str, most: usize, end: KeptEnd) -> (String, u64) {
    if text.chars().count() <= most {
        return (text.to_owned(), 0);
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut room = most;
    let fits = |line: &&&str| {
        let length = line.chars().count();
        let fits = length <= room;
        room = room.saturating_sub(length);
        fits
    };
    let kept = match end {
        KeptEnd::First => lines.iter().take_while(fits).count(),
        KeptEnd::Last => lines.iter().rev().take_while(fits).count(),
    };
    // A single line that exceeds the room is better than none.
    let kept = kept.max(1);
    let dropped = lines.len() - kept;
    let part = match end {
        KeptEnd::First => lines[..kept].concat(),
        KeptEnd::Last => lines[dropped..].concat(),
    };
    let dropped = u64::try_from(dropped).unwrap_or(u64::MAX);
    (cut(part, most).0, dropped)
}

/// Which end of a text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptEnd {
    First,
    Last,
}

/// A duration for readers.
pub fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1_000;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{seconds}.{} s", milliseconds / 100 % 10),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(model: ModelText, events: &[&str]) -> ToolResult {
        ToolResult {
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            ..ToolResult::new(String::new(), json!({}), false).with_model(model)
        }
    }

    #[test]
    fn a_result_fits_with_its_events_and_says_what_is_left_out() {
        for most in [1_000, 5_000, 30_000] {
            for (output, events) in [
                ("x".repeat(most * 2), vec!["System: e"; 20]),
                ("line\n".repeat(most), vec![]),
                ("語".repeat(most * 2), vec!["long event "; 4_000]),
            ] {
                let model = ModelText {
                    status: "exit code 0".to_owned(),
                    output: Some(output),
                    notes: vec!["note".to_owned()],
                };
                let text = result(model, &events).for_model(most);
                assert!(text.chars().count() <= most, "{most}");
                assert!(text.starts_with("exit code 0\n\n"), "{text}");
                assert!(text.ends_with("\n\nnote"));
                assert!(text.contains("left out here]"));
            }
        }
    }

    #[test]
    fn the_data_repeats_no_text_at_any_depth() {
        let result = ToolResult::new(
            "hi".to_owned(),
            json!({
                "status": "completed",
                "aggregated": "hi",
                "output": { "text": "hi", "totalBytes": 2 },
                "sessions": [{ "sessionId": "a-b", "tail": "hi" }],
                "events": [{ "id": 1, "text": "System: hi" }],
            }),
            false,
        );
        assert_eq!(
            result.without_text(),
            json!({
                "status": "completed",
                "output": { "totalBytes": 2 },
                "sessions": [{ "sessionId": "a-b" }],
                "events": [{ "id": 1 }],
            })
        );
    }

    #[test]
    fn a_refusal_has_its_code_in_the_text() {
        let denied = ToolResult::denied("EXEC_DENIED", "exec denied: no", Some("do this"));
        assert_eq!(
            denied.for_model(1_000),
            "denied (EXEC_DENIED): exec denied: no\nhint: do this"
        );
    }

    #[test]
    fn pages_of_lines_are_cut_between_lines_where_they_can_be() {
        let text = "1\n22\n333\n";
        let rows = [
            (9, KeptEnd::First, text, 0),
            (8, KeptEnd::First, "1\n22\n", 1),
            (8, KeptEnd::Last, "22\n333\n", 1),
            (2, KeptEnd::First, "1\n", 2),
        ];
        for (most, end, expected, dropped) in rows {
            let fitting = fitting_lines(text, most, end);
            assert_eq!(fitting, (expected.to_owned(), dropped), "{most} {end:?}");
        }
    }

    #[test]
    fn the_line_of_a_gap_is_never_behind_it() {
        let text = "a\nb\n[10 bytes with 3 line ends left out here]\nz\n";
        assert_eq!(line_of_gap(text, 10, 3), Some(1));
        assert_eq!(line_of_gap(text, 11, 3), None);
    }
}
