//! `interlock policy` and `interlock exec-policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interlock_policy::{Ask, Fallback, Security};

use super::{
    AskArgument, FallbackArgument, HostArgument, PolicyReplayArguments, PresetArgument,
    SecurityArgument,
};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum PolicyCommand {
    /// Judge test cases and compare the verdicts with the expected ones
    Test(PolicyTestArguments),
    /// Judge the commands of the audit by the current or a proposed policy, and show what changes
    Replay(PolicyReplayArguments),
    /// Propose the narrowest rules for what approvers allowed at least twice
    Suggest(PolicySuggestArguments),
    /// Show, remove and restore the base: the entries for commands that only read the workspace
    #[command(subcommand, after_help = "Example:\n  interlock policy base show")]
    Base(PolicyBaseCommand),
    /// List, apply and remove templates: narrow entries for a kind of work, with tests
    #[command(
        subcommand,
        after_help = "Example:\n  interlock policy template apply project"
    )]
    Template(PolicyTemplateCommand),
}

impl PolicyCommand {
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Self::Test(test) => test.json,
            Self::Replay(replay) => replay.json,
            Self::Suggest(suggest) => suggest.json,
            Self::Base(base) => base.wants_json(),
            Self::Template(template) => template.wants_json(),
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum PolicyTemplateCommand {
    /// List the templates
    #[command(after_help = "Example:\n  interlock policy template list")]
    List(PolicyTemplateListArguments),
    /// Show what a template allows, its entries and its test cases
    #[command(after_help = "Example:\n  interlock policy template show rust")]
    Show(PolicyTemplateShowArguments),
    /// Add the entries of templates for a directory, if their test cases pass
    #[command(after_help = "\
Examples:
  interlock policy template apply project
  interlock policy template apply java containers
  interlock policy template apply --agent main --dir ~/src/app rust
  interlock policy template apply --dry-run server")]
    Apply(PolicyTemplateApplyArguments),
    /// Remove the entries that templates wrote for a directory, except edited ones
    #[command(after_help = "\
Examples:
  interlock policy template remove rust
  interlock policy template remove --agent main --dir ~/src/app rust
  interlock policy template remove --dry-run project

An entry that was edited stays, and so does an entry of another template that is applied for the same directory.")]
    Remove(PolicyTemplateRemoveArguments),
}

impl PolicyTemplateCommand {
    fn wants_json(&self) -> bool {
        match self {
            Self::List(list) => list.json,
            Self::Show(show) => show.json,
            Self::Apply(apply) => apply.json,
            Self::Remove(remove) => remove.json,
        }
    }
}

#[derive(Debug, Args)]
pub struct PolicyTemplateListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PolicyTemplateShowArguments {
    /// The directory to show it for [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The templates
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}

#[derive(Debug, Args)]
pub struct PolicyTemplateApplyArguments {
    /// The agent, or `*` for all agents
    #[arg(long, default_value = "*", value_name = "AGENT")]
    pub agent: String,
    /// The directory to apply it for, with everything beneath [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Show what would be added, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The templates; all of them are applied, or none
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}

#[derive(Debug, Args)]
pub struct PolicyTemplateRemoveArguments {
    /// The agent, or `*` for the list of all agents
    #[arg(long, default_value = "*", value_name = "AGENT")]
    pub agent: String,
    /// The directory that it was applied for [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Show what would be removed, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The templates
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum PolicyBaseCommand {
    /// Show what the base allows, and whether it is in force
    #[command(after_help = "Example:\n  interlock policy base show")]
    Show(PolicyBaseArguments),
    /// Remove the base from the document, so that its commands need approval again
    #[command(after_help = "Example:\n  interlock policy base remove")]
    Remove(PolicyBaseArguments),
    /// Add the base of this version to the document
    #[command(after_help = "Example:\n  interlock policy base restore")]
    Restore(PolicyBaseArguments),
}

impl PolicyBaseCommand {
    fn wants_json(&self) -> bool {
        match self {
            Self::Show(arguments) | Self::Remove(arguments) | Self::Restore(arguments) => {
                arguments.json
            }
        }
    }
}

#[derive(Debug, Args)]
pub struct PolicyBaseArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock policy test policy-cases.jsonl
  interlock policy test --with proposed.json5 cases.jsonl

Cases without a `policy` are judged by the policy of this host. With --with, a proposed document replaces the one in force.

Each line is a JSON object, for example:
  {\"id\":\"1\",\"command\":\"rg x\",\"resolve\":{},\"policy\":{\"security\":\"allowlist\",\"allowlist\":[{\"pattern\":\"rg\"}]},\"expect\":\"allow\"}")]
pub struct PolicyTestArguments {
    /// Files of cases, one JSON object per line; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Judge cases without a policy by this approvals document (JSON5) [default: the one in force]
    #[arg(long, value_name = "FILE")]
    pub with: Option<PathBuf>,
    /// Show passing cases too
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object per case
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock policy suggest --since 7d

Reads from the audit what approvers allowed, and proposes for each repeated command the narrowest rule that *always* could
have stored, for the directory in which the commands ran. Shows for each rule how many approvals it would have saved, the
widest command that it allows, and what else of the history it would allow. There is no proposal for text that is not
plain, for programs that start others, or if an approver denied what the rule would allow. At a terminal, suggest asks
about each rule; otherwise it writes nothing without --accept or --accept-all.")]
pub struct PolicySuggestArguments {
    /// Only approvals of this period, such as 8h or 7d
    #[arg(long, default_value = "7d", value_name = "DURATION")]
    pub since: String,
    /// Only approvals of this agent
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Judge at most this many verdicts of the history by each rule, the newest ones
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = crate::decisions::at_least_one)]
    pub limit: usize,
    /// Add the rule with this id; may be repeated
    #[arg(long, value_name = "ID", conflicts_with = "accept_all")]
    pub accept: Vec<String>,
    /// Add every proposed rule
    #[arg(long)]
    pub accept_all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ExecPolicyCommand {
    /// Show every layer of the policy and which one decides
    #[command(after_help = "Example:\n  interlock exec-policy show --agent main")]
    Show(ExecPolicyShowArguments),
    /// Set values in the config and the host's document together
    #[command(
        after_help = "Example:\n  interlock exec-policy set --security allowlist --ask on-miss"
    )]
    Set(ExecPolicySetArguments),
    /// Apply a preset: yolo (full/off/full), cautious (allowlist/on-miss/deny), deny-all
    #[command(after_help = "Example:\n  interlock exec-policy preset cautious")]
    Preset(ExecPolicyPresetArguments),
}

impl ExecPolicyCommand {
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Self::Show(show) => show.json,
            Self::Set(set) => set.json,
            Self::Preset(preset) => preset.json,
        }
    }
}

#[derive(Debug, Args)]
pub struct ExecPolicyShowArguments {
    /// Show one agent [default: every agent of config and document]
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("values").required(true).multiple(true))]
pub struct ExecPolicySetArguments {
    /// Where commands run
    #[arg(long, group = "values", value_enum, value_name = "HOST")]
    pub host: Option<HostArgument>,
    /// What may run
    #[arg(long, group = "values", value_enum, value_name = "LEVEL")]
    pub security: Option<SecurityArgument>,
    /// When an approver is asked
    #[arg(long, group = "values", value_enum, value_name = "MODE")]
    pub ask: Option<AskArgument>,
    /// What happens when no approver can be asked
    #[arg(long, group = "values", value_enum, value_name = "LEVEL")]
    pub ask_fallback: Option<FallbackArgument>,
    /// Require an entry for the programs of skills too
    #[arg(long, group = "values")]
    pub no_auto_allow_skills: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ExecPolicyPresetArguments {
    /// The preset
    #[arg(value_enum, value_name = "NAME")]
    pub preset: PresetArgument,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl From<AskArgument> for Ask {
    fn from(argument: AskArgument) -> Self {
        match argument {
            AskArgument::Off => Self::Off,
            AskArgument::OnMiss => Self::OnMiss,
            AskArgument::Always => Self::Always,
        }
    }
}

impl From<SecurityArgument> for Security {
    fn from(argument: SecurityArgument) -> Self {
        match argument {
            SecurityArgument::Deny => Self::Deny,
            SecurityArgument::Allowlist => Self::Allowlist,
            SecurityArgument::Full => Self::Full,
        }
    }
}

impl From<FallbackArgument> for Fallback {
    fn from(argument: FallbackArgument) -> Self {
        match argument {
            FallbackArgument::Deny => Self::Deny,
            FallbackArgument::Allowlist => Self::Allowlist,
            FallbackArgument::Full => Self::Full,
        }
    }
}
