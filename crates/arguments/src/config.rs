//! `interlock config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ConfigCommand {
    /// Print a value
    #[command(after_help = "Example:\n  interlock config get tools.exec.safeBins")]
    Get(ConfigGetArguments),
    /// Set a value; JSON5, or a plain word for a string
    #[command(
        after_help = "Examples:\n  interlock config set tools.exec.security allowlist\n  interlock config set tools.exec.safeBins '[\"head\", \"tail\"]'"
    )]
    Set(ConfigSetArguments),
    /// Remove a value
    #[command(after_help = "Example:\n  interlock config unset tools.exec.node")]
    Unset(ConfigUnsetArguments),
    /// Check the config, or another file
    #[command(after_help = "Example:\n  interlock config validate")]
    Validate(ConfigValidateArguments),
    /// Print the path of the config
    #[command(after_help = "Example:\n  interlock config path")]
    Path(ConfigPathArguments),
}

impl ConfigCommand {
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Self::Get(get) => get.json,
            Self::Set(set) => set.json,
            Self::Unset(unset) => unset.json,
            Self::Validate(validate) => validate.json,
            Self::Path(path) => path.json,
        }
    }
}

#[derive(Debug, Args)]
pub struct ConfigGetArguments {
    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "clap shows a help text unchanged"
    )]
    /// The key, such as agents.list[0].tools.exec.node [default: everything]
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ConfigSetArguments {
    /// The key, such as tools.exec.security
    #[arg(value_name = "KEY")]
    pub key: String,
    /// The value
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ConfigUnsetArguments {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ConfigValidateArguments {
    /// Another file to check
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ConfigPathArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
