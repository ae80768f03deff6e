//! `interlock deny`: rules for commands that must never run.

use clap::{Args, Subcommand};

use super::DocumentPlace;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum DenyCommand {
    /// Add a rule: a command that matches it never runs, even if something else allows it
    #[command(after_help = "\
Examples:
  interlock deny add --reason 'releases are made by people' --arg=push --arg='**' git
  interlock deny add --agent builder terraform
  interlock deny add --node lab /usr/sbin/reboot")]
    Add(DenyAddArguments),
    /// Remove a rule by its pattern
    #[command(after_help = "\
Examples:
  interlock deny remove terraform
  interlock deny remove --arg=push --arg='**' git")]
    Remove(DenyRemoveArguments),
    /// List the rules and where each one comes from
    #[command(after_help = "Example:\n  interlock deny list --agent main")]
    List(DenyListArguments),
}

impl DenyCommand {
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Self::Add(add) => add.json,
            Self::Remove(remove) => remove.json,
            Self::List(list) => list.json,
        }
    }
}

// The arguments that a rule matches.
#[derive(Debug, Args)]
pub struct DenyTerms {
    /// A pattern for one argument, in order; `*` matches any text, `**` any number of arguments
    #[arg(
        long = "arg",
        value_name = "PATTERN",
        conflicts_with = "arg_pattern",
        allow_hyphen_values = true
    )]
    pub args: Vec<String>,
    /// A regular expression for the arguments, joined by single spaces
    #[arg(long, value_name = "REGEX")]
    pub arg_pattern: Option<String>,
}

#[derive(Debug, Args)]
pub struct DenyAddArguments {
    /// The agent, or `*` for all agents
    #[arg(long, default_value = "*", value_name = "AGENT")]
    pub agent: String,
    #[command(flatten)]
    pub place: DocumentPlace,
    #[command(flatten)]
    pub terms: DenyTerms,
    /// The reason, which the caller reads
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A program name (through PATH) or a path pattern
    #[arg(value_name = "PATTERN")]
    pub pattern: String,
}

#[derive(Debug, Args)]
pub struct DenyRemoveArguments {
    /// The agent, or `*` for all agents
    #[arg(long, default_value = "*", value_name = "AGENT")]
    pub agent: String,
    #[command(flatten)]
    pub place: DocumentPlace,
    #[command(flatten)]
    pub terms: DenyTerms,
    /// Remove every rule with this pattern, with any arguments
    #[arg(long, conflicts_with_all = ["args", "arg_pattern"])]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The pattern of the rule
    #[arg(value_name = "PATTERN")]
    pub pattern: String,
}

#[derive(Debug, Args)]
pub struct DenyListArguments {
    /// Only the rules that apply to this agent [default: all rules]
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    #[command(flatten)]
    pub place: DocumentPlace,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
