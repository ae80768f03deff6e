//! The programs that a run starts, where they are logged (`tree: log`): which of them are refused, and what
//! is kept of each.

use serde::{Deserialize, Serialize};

/// What is refused to the processes of a run, besides the bare loader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProgramLogRules {
    /// The home directory that a `~` in a pattern means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// The deny rules that are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<DeniedProgram>,
}

/// A deny rule, as the document writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeniedProgram {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
}

/// The programs that a run started, as far as they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedPrograms {
    pub list: Vec<StartedProgram>,
    /// How many more there were.
    pub left_out: u64,
    /// How many of all were refused.
    pub refused: u64,
}

/// One program. A racing thread of the run may have changed its words after they were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedProgram {
    /// As the run sees it.
    pub path: String,
    /// The beginning of its arguments.
    pub argv: Vec<String>,
    /// The program that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Why it was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl StartedProgram {
    /// On one line.
    pub fn words(&self) -> String {
        let arguments = self.argv.get(1..).unwrap_or_default().join(" ");
        let mut words = self.path.clone();
        if !arguments.is_empty() {
            words = format!("{words} {arguments}");
        }
        match &self.refused {
            Some(why) => format!("{words} (refused: {why})"),
            None => words,
        }
    }
}
