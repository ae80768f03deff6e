//! The count of one file, and what in it makes the run fail.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::Adapter;
use crate::comparison::{Answer, Comparison, Direction, Row};
use crate::deviations::{self, Deviation};

/// So much of a file may be stricter without a rule that says why, in percent.
const STRICTER_PERCENT: usize = 3;

#[derive(Debug, Default)]
pub struct Tally {
    file: String,
    agree: usize,
    stricter: usize,
    stricter_by_rule: usize,
    looser_by_rule: usize,
    different_by_rule: usize,
    /// Cases whose expected answer is disputed.
    soft: usize,
    skipped: BTreeMap<String, usize>,
    not_ours: BTreeMap<String, usize>,
    /// How often each rule was needed.
    rules: BTreeMap<&'static str, (usize, &'static str)>,
    /// Every disagreement, for the reader.
    notes: Vec<String>,
    failures: Vec<String>,
}

impl Tally {
    pub fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            ..Self::default()
        }
    }

    pub fn row(&mut self, line: &str, adapter: Adapter) {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            *self
                .skipped
                .entry("the row is not JSON".to_owned())
                .or_default() += 1;
            return;
        };
        let row = Row(&value);
        match row.text("platform") {
            None | Some("any" | "linux" | "posix" | "unix") => {}
            Some(platform) => {
                *self.skipped.entry(format!("for {platform}")).or_default() += 1;
                return;
            }
        }
        match adapter(row) {
            Answer::NotOurs => {
                let reason = deviations::why_not_ours(&self.file, row.kind());
                let key = format!("{}: {reason}", row.kind());
                *self.not_ours.entry(key).or_default() += 1;
            }
            Answer::Skipped(reason) => *self.skipped.entry(reason).or_default() += 1,
            Answer::Compared(comparison) => self.compared(row, &comparison),
        }
    }

    fn compared(&mut self, row: Row<'_>, comparison: &Comparison) {
        if comparison.direction == Direction::Same {
            self.agree += 1;
            return;
        }
        let rule = deviations::find(&self.file, row, comparison);
        let soft = row.get("soft").as_bool() == Some(true);
        let note = describe(row, comparison, rule);
        self.notes.push(note.clone());
        if let Some(rule) = rule {
            self.rules.entry(rule.name).or_insert((0, rule.because)).0 += 1;
        }
        match (comparison.direction, rule.is_some()) {
            (Direction::Looser, true) => self.looser_by_rule += 1,
            (Direction::Different, true) => self.different_by_rule += 1,
            (Direction::Stricter, true) => self.stricter_by_rule += 1,
            _ if soft => self.soft += 1,
            (Direction::Stricter, false) => self.stricter += 1,
            (Direction::Looser | Direction::Different, false) => self.failures.push(note),
            (Direction::Same, _) => {}
        }
    }

    fn asked(&self) -> usize {
        self.agree
            + self.stricter
            + self.stricter_by_rule
            + self.looser_by_rule
            + self.different_by_rule
            + self.soft
            + self.failures.len()
    }

    pub fn is_empty(&self) -> bool {
        self.asked() == 0
    }

    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self
            .failures
            .iter()
            .map(|note| format!("{}: {note}", self.file))
            .collect();
        if self.stricter * 100 > self.asked() * STRICTER_PERCENT {
            failures.push(format!(
                "{}: {} of {} are stricter without a rule, more than {STRICTER_PERCENT} %",
                self.file,
                self.stricter,
                self.asked()
            ));
        }
        failures
    }

    pub fn add(&mut self, other: Self) {
        self.agree += other.agree;
        self.stricter += other.stricter;
        self.stricter_by_rule += other.stricter_by_rule;
        self.looser_by_rule += other.looser_by_rule;
        self.different_by_rule += other.different_by_rule;
        self.soft += other.soft;
        self.failures.extend(other.failures);
        for (key, count) in other.skipped {
            *self.skipped.entry(key).or_default() += count;
        }
        for (key, count) in other.not_ours {
            *self.not_ours.entry(key).or_default() += count;
        }
    }

    /// `allowlist: 168 of 171 agree, 2 stricter, 1 looser by the spec, 0 skipped`
    pub fn line(&self) -> String {
        let mut line = format!(
            "{}: {} of {} agree, {} stricter, {} looser by the spec, {} skipped",
            self.file,
            self.agree,
            self.asked(),
            self.stricter + self.stricter_by_rule,
            self.looser_by_rule,
            self.skipped.values().sum::<usize>()
        );
        for (count, what) in [
            (self.stricter_by_rule, "of the stricter by the spec"),
            (self.different_by_rule, "different by the spec"),
            (self.soft, "soft"),
            (self.not_ours.values().sum(), "not ours"),
            (self.failures.len(), "UNEXPLAINED"),
        ] {
            if count > 0 {
                line.push_str(&format!(", {count} {what}"));
            }
        }
        line
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        for (reason, count) in &self.skipped {
            write!(f, "\n  skipped {count}: {reason}")?;
        }
        for (kind, count) in &self.not_ours {
            write!(f, "\n  not ours {count}: {kind}")?;
        }
        for note in &self.notes {
            write!(f, "\n  {note}")?;
        }
        for (rule, (count, because)) in &self.rules {
            write!(f, "\n  rule {rule}, {count}: {because}")?;
        }
        Ok(())
    }
}

fn describe(row: Row<'_>, comparison: &Comparison, rule: Option<&Deviation>) -> String {
    let question = [
        "command",
        "argv",
        "key",
        "pattern",
        "argPattern",
        "input",
        "request",
    ]
    .into_iter()
    .map(|key| row.get(key))
    .find(|value| !value.is_null());
    let question = question.map_or_else(String::new, Value::to_string);
    let direction = match comparison.direction {
        Direction::Looser => "looser",
        Direction::Stricter => "stricter",
        Direction::Different => "different",
        Direction::Same => "same",
    };
    let rule = rule.map_or("no rule", |rule| rule.name);
    format!(
        "{direction} [{rule}] {} {} {question}: expected {}, got {}",
        row.text("id").unwrap_or("?"),
        row.kind(),
        comparison.expected,
        comparison.got
    )
}
