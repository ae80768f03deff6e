//! The programs that a run starts, if they are logged (`tree: log`): which of them are refused, and
//! what is recorded of each.

use serde::{Deserialize, Serialize};

/// The programs that the processes of a run may not start, besides the bare loader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProgramLogRules {
    /// The home directory for `~` in a pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// The deny rules in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<DeniedProgram>,
}

/// A deny rule as the document writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeniedProgram {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
}

/// The recorded programs of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedPrograms {
    pub list: Vec<StartedProgram>,
    /// The number of further programs.
    pub left_out: u64,
    /// The number of refused programs among all.
    pub refused: u64,
}

/// One started program. A racing thread of the run may have changed its words after they were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedProgram {
    /// The path as the run sees it.
    pub path: String,
    /// The beginning of its arguments.
    pub argv: Vec<String>,
    /// The program that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Why the program was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl StartedProgram {
    /// The program on one line.
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
