//! `interlock process`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ProcessCommand {
    /// List running and finished sessions
    #[command(after_help = "Example:\n  interlock process list")]
    List(ProcessListArguments),
    /// Show new output and the state of the session
    #[command(after_help = "\
Example:
  interlock process poll brave-otter --timeout 5000

An operator reads by offset: without --offset, from the start. With --agent, poll shows the output since the last poll of
that session key.")]
    Poll(ProcessPollArguments),
    /// Show lines of the transcript: the last 200 by default
    #[command(after_help = "Example:\n  interlock process log brave-otter --limit 50")]
    Log(ProcessLogArguments),
    /// Write to standard input
    #[command(after_help = "\
Examples:
  interlock process write brave-otter 'yes
  '
  interlock process write brave-otter --eof < answers.txt")]
    Write(ProcessWriteArguments),
    /// Press keys, named as in tmux
    #[command(after_help = "\
Examples:
  interlock process send-keys brave-otter C-c
  interlock process send-keys brave-otter --literal ':wq' Enter

Sent in this order: literal, hex, keys.")]
    SendKeys(ProcessSendKeysArguments),
    /// Press Enter
    #[command(after_help = "Example:\n  interlock process submit brave-otter")]
    Submit(ProcessSessionArguments),
    /// Paste text
    #[command(after_help = "\
Examples:
  interlock process paste brave-otter 'some text'
  interlock process paste brave-otter < draft.txt")]
    Paste(ProcessPasteArguments),
    /// Show the current screen of the terminal
    #[command(after_help = "Example:\n  interlock process screen brave-otter")]
    Screen(ProcessSessionArguments),
    /// End the session with all its processes, or send a signal
    #[command(after_help = "\
Examples:
  interlock process kill brave-otter
  interlock process kill brave-otter --signal INT

Without a signal, and with TERM and KILL, kill returns when all processes have ended. Any other signal goes to the
foreground process group.")]
    Kill(ProcessKillArguments),
    /// Forget a finished session
    #[command(after_help = "Example:\n  interlock process clear brave-otter")]
    Clear(ProcessSessionArguments),
    /// End the session if it runs, and forget it
    #[command(after_help = "Example:\n  interlock process remove brave-otter")]
    Remove(ProcessSessionArguments),
    /// Connect the terminal to a session
    #[command(after_help = "\
Example:
  interlock process attach brave-otter

The exit code is that of the session. Detaching leaves the session running. A session without a terminal gets its input
line by line; there Ctrl-C detaches and Ctrl-D ends the input.")]
    Attach(ProcessAttachArguments),
}

impl ProcessCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::List(list) => list.json,
            Self::Poll(poll) => poll.session.json,
            Self::Log(log) => log.session.json,
            Self::Write(write) => write.session.json,
            Self::SendKeys(keys) => keys.session.json,
            Self::Paste(paste) => paste.session.json,
            Self::Kill(kill) => kill.session.json,
            Self::Submit(session)
            | Self::Screen(session)
            | Self::Clear(session)
            | Self::Remove(session) => session.json,
            Self::Attach(_) => false,
        }
    }
}

// The caller that a command acts as.
#[derive(Debug, Args)]
pub struct CallerArguments {
    /// Act as this agent, which sees only its own background sessions [default: all sessions]
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// The conversation of the agent; each one has its own poll position [default:
    /// agent:AGENT:main]
    #[arg(long, value_name = "KEY", requires = "agent")]
    pub session_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct ProcessListArguments {
    #[command(flatten)]
    pub caller: CallerArguments,
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub limit: u64,
    /// Continue where the last page ended
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

// The session that a command acts on.
#[derive(Debug, Args)]
pub struct ProcessSessionArguments {
    #[command(flatten)]
    pub caller: CallerArguments,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The name of the session, or enough of its beginning
    #[arg(value_name = "SESSION")]
    pub session: String,
}

#[derive(Debug, Args)]
pub struct ProcessPollArguments {
    #[command(flatten)]
    pub session: ProcessSessionArguments,
    /// Wait this long for output or the end
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=30_000))]
    pub timeout: u64,
    /// Show output from this byte on, and leave the poll position unchanged
    #[arg(long, value_name = "BYTES")]
    pub offset: Option<u64>,
}

#[derive(Debug, Args)]
pub struct ProcessLogArguments {
    #[command(flatten)]
    pub session: ProcessSessionArguments,
    /// Start at this line, counted from 0; without --limit, show all lines to the end
    #[arg(long, value_name = "LINE")]
    pub offset: Option<u64>,
    /// Show this many lines; without --offset, the last ones
    #[arg(long, value_name = "LINES")]
    pub limit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct ProcessWriteArguments {
    #[command(flatten)]
    pub session: ProcessSessionArguments,
    /// Close the input after the data
    #[arg(long)]
    pub eof: bool,
    /// The data [default: standard input, unless that is a terminal]
    #[arg(value_name = "DATA", allow_hyphen_values = true)]
    pub data: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("input").required(true).multiple(true))]
pub struct ProcessSendKeysArguments {
    #[command(flatten)]
    pub session: ProcessSessionArguments,
    /// Text to type unchanged
    #[arg(long, group = "input", value_name = "TEXT", allow_hyphen_values = true)]
    pub literal: Option<String>,
    /// A byte in hexadecimal
    #[arg(long, group = "input", value_name = "BYTE")]
    pub hex: Vec<String>,
    /// Keys: Enter, Escape, Up, F5, C-c, M-x, …
    #[arg(group = "input", value_name = "KEY", allow_hyphen_values = true)]
    pub keys: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ProcessPasteArguments {
    #[command(flatten)]
    pub session: ProcessSessionArguments,
    /// Do not mark the text as a paste, so that the program treats it as typing
    #[arg(long)]
    pub no_bracket: bool,
    /// The text [default: standard input]
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub text: Option<String>,
    /// Read the text from a file
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ProcessKillArguments {
    #[command(flatten)]
    pub session: ProcessSessionArguments,
    /// A signal by name or number
    #[arg(long, short, value_name = "SIGNAL")]
    pub signal: Option<String>,
}

#[derive(Debug, Args)]
pub struct ProcessAttachArguments {
    #[command(flatten)]
    pub caller: CallerArguments,
    /// The key that detaches
    #[arg(long, value_name = "KEY", default_value = "C-]")]
    pub detach_key: String,
    /// The name of the session, or enough of its beginning
    #[arg(value_name = "SESSION")]
    pub session: String,
}
