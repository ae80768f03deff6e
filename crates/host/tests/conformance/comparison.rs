//! One case, what the corpus says about it, and what Interlock says.

use std::fmt::Debug;

use serde_json::Value;

/// A row of the corpus with short ways to read it; absent or odd fields read as nothing.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a>(pub &'a Value);

impl<'a> Row<'a> {
    pub fn get(self, key: &str) -> &'a Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    pub fn text(self, key: &str) -> Option<&'a str> {
        self.get(key).as_str()
    }

    pub fn expect(self) -> Row<'a> {
        Row(self.get("expect"))
    }

    pub fn kind(self) -> &'a str {
        self.text("kind")
            .or_else(|| self.text("context"))
            .unwrap_or("")
    }

    pub fn argv(self, key: &str) -> Option<Vec<String>> {
        strings(self.get(key))
    }
}

/// `None` unless it is a list of strings.
pub fn strings(value: &Value) -> Option<Vec<String>> {
    let items = value.as_array()?.iter();
    items.map(|item| item.as_str().map(str::to_owned)).collect()
}

/// What an adapter makes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Compared(Comparison),
    /// Interlock has no such question; the reason stands in the table of deviations.
    NotOurs,
    /// Cannot be asked on this machine, or the row has another form than the rest of its kind.
    Skipped(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    pub expected: String,
    pub got: String,
    pub direction: Direction,
    /// What stood in the way here, for rules that go by it; empty when nothing did.
    pub obstacle: String,
}

/// How Interlock's answer relates to the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Same,
    /// Interlock allows, trusts or keeps more.
    Looser,
    Stricter,
    Different,
}

impl Comparison {
    pub fn answer(
        expected: impl Into<String>,
        got: impl Into<String>,
        direction: Direction,
    ) -> Answer {
        Answer::Compared(Self {
            expected: expected.into(),
            got: got.into(),
            direction,
            obstacle: String::new(),
        })
    }

    /// Values that are equal, or else lie in the direction given.
    pub fn values<T: PartialEq + Debug>(expected: &T, got: &T, otherwise: Direction) -> Answer {
        let direction = if expected == got {
            Direction::Same
        } else {
            otherwise
        };
        Self::answer(format!("{expected:?}"), format!("{got:?}"), direction)
    }

    /// A question whose "yes" is the looser answer.
    pub fn permission(expected: bool, got: bool) -> Answer {
        let direction = match (expected, got) {
            (false, true) => Direction::Looser,
            (true, false) => Direction::Stricter,
            _ => Direction::Same,
        };
        Self::answer(expected.to_string(), got.to_string(), direction)
    }

    /// A question whose "yes" is the stricter answer.
    pub fn suspicion(expected: bool, got: bool) -> Answer {
        match Self::permission(!expected, !got) {
            Answer::Compared(comparison) => {
                Self::answer(expected.to_string(), got.to_string(), comparison.direction)
            }
            other => other,
        }
    }

    /// Values with an order from loose to strict.
    pub fn strictness<T: Ord + Debug>(expected: &T, got: &T) -> Answer {
        let direction = match got.cmp(expected) {
            std::cmp::Ordering::Less => Direction::Looser,
            std::cmp::Ordering::Equal => Direction::Same,
            std::cmp::Ordering::Greater => Direction::Stricter,
        };
        Self::answer(format!("{expected:?}"), format!("{got:?}"), direction)
    }

    /// The worst of several questions about one row: looser before different before stricter.
    pub fn worst(answers: impl IntoIterator<Item = Answer>) -> Answer {
        let rank = |answer: &Answer| match answer {
            Answer::Compared(comparison) => match comparison.direction {
                Direction::Looser => 0,
                Direction::Different => 1,
                Direction::Stricter => 2,
                Direction::Same => 4,
            },
            Answer::Skipped(_) => 3,
            Answer::NotOurs => 5,
        };
        let worst = answers.into_iter().min_by_key(rank);
        worst.unwrap_or(Answer::NotOurs)
    }
}

impl Answer {
    /// Says what stood in the way.
    pub fn because(self, obstacle: impl Into<String>) -> Self {
        match self {
            Self::Compared(comparison) => Self::Compared(Comparison {
                obstacle: obstacle.into(),
                ..comparison
            }),
            other => other,
        }
    }

    /// Says which of several values was compared.
    pub fn about(self, what: &str) -> Self {
        match self {
            Self::Compared(comparison) => Self::Compared(Comparison {
                expected: format!("{what} {}", comparison.expected),
                got: format!("{what} {}", comparison.got),
                ..comparison
            }),
            other => other,
        }
    }
}

/// The row has another form than its kind usually has.
pub fn unreadable() -> Answer {
    Answer::Skipped("the row has an unknown form".to_owned())
}
