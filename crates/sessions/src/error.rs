//! Why the tool did not perform an action.

use interlock_engine::Leftover;
use interlock_host::HostError;
use interlock_policy::ToolRefusal;
use interlock_supervisor::ClientError;
use interlock_transcript::TranscriptError;

use super::answer::EndedSession;
use super::page::CursorInvalid;

/// An error with a stable code, and a remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tool(#[from] ToolRefusal),
    /// Also covers sessions that the caller may not see.
    #[error("there is no session `{}`", short(.id))]
    NotFound { id: String },
    #[error("`{}` begins the names of several sessions: {}", short(.text), .candidates.join(", "))]
    Ambiguous {
        text: String,
        candidates: Vec<String>,
    },
    #[error("the session {id} is running")]
    Running { id: String },
    #[error("the session {id} has ended: {ended}")]
    Finished { id: String, ended: EndedSession },
    #[error("the session {id} is lost: its supervisor died, and how it ended is not known")]
    Lost { id: String },
    #[error("the session {id} has no terminal")]
    NoTerminal { id: String },
    #[error("the session {id} does not read input, or no longer does")]
    StdinClosed { id: String },
    #[error("{bytes} bytes of input at once are too much: at most {most}")]
    InputTooLarge { bytes: usize, most: usize },
    #[error("there is no signal `{}`", short(.0))]
    SignalUnknown(String),
    #[error("of the session {id} these processes could not be ended: {}", listed(.processes))]
    StillRunning {
        id: String,
        processes: Vec<Leftover>,
    },
    #[error("`cursor` {0}")]
    Cursor(#[from] CursorInvalid),
    #[error("the transcript cannot be read: {0}")]
    Transcript(#[from] TranscriptError),
    #[error(transparent)]
    Supervisor(#[from] ClientError),
}

impl ProcessError {
    pub fn code(&self) -> &str {
        match self {
            Self::Host(error) => error.code(),
            Self::Tool(_) => "TOOL_DENIED",
            Self::NotFound { .. } => "SESSION_NOT_FOUND",
            Self::Ambiguous { .. } => "SESSION_AMBIGUOUS",
            Self::Running { .. } => "SESSION_RUNNING",
            Self::Finished { .. } => "SESSION_FINISHED",
            Self::Lost { .. } => "SESSION_LOST",
            Self::NoTerminal { .. } => "NO_TERMINAL",
            Self::StdinClosed { .. } => "STDIN_CLOSED",
            Self::InputTooLarge { .. } => "INPUT_TOO_LARGE",
            Self::SignalUnknown(_) => "SIGNAL_UNKNOWN",
            Self::StillRunning { .. } => "STILL_RUNNING",
            Self::Cursor(_) => "CURSOR_INVALID",
            Self::Transcript(_) => "TRANSCRIPT_UNREADABLE",
            Self::Supervisor(error) => error.code(),
        }
    }

    /// What to do next.
    pub fn remedy(&self) -> Option<String> {
        let text = match self {
            Self::Host(error) => return error.remedy(),
            Self::Tool(_) => "look at it: interlock config get",
            Self::NotFound { .. } => "see which there are: interlock process list",
            Self::Ambiguous { .. } => "write more of the name",
            Self::Running { id } => {
                return Some(format!(
                    "end it and forget it: interlock process remove {id}"
                ));
            }
            Self::Finished { id, .. } | Self::Lost { id } => {
                return Some(format!("read what it wrote: interlock process log {id}"));
            }
            Self::NoTerminal { .. } => "start it on a terminal: interlock exec --pty -- COMMAND",
            Self::StdinClosed { .. } => {
                "start it with open input: interlock exec --stdin -- COMMAND; or on a terminal: interlock exec --pty -- COMMAND"
            }
            Self::InputTooLarge { .. } => "send it in parts, or as a file",
            Self::SignalUnknown(_) => "name one such as INT, HUP or USR1, or its number",
            Self::StillRunning { .. } => {
                "they may belong to another user or wait for a device; ask the system's owner"
            }
            Self::Cursor(_) => "leave it out for the first page",
            Self::Transcript(_) => return None,
            Self::Supervisor(error) => match error.code() {
                "STDIN_FULL" => "it does not read what it was sent before; try again later",
                "PEER_REFUSED" => "a command that runs here must not handle sessions",
                _ => return None,
            },
        };
        Some(text.to_owned())
    }
}

fn listed(processes: &[Leftover]) -> String {
    let one = |process: &Leftover| format!("{} (pid {})", short(&process.command), process.pid);
    processes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A caller's text, shortened and without characters that control a terminal.
fn short(text: &str) -> String {
    const MOST: usize = 80;
    let visible: String = text
        .chars()
        .take(MOST)
        .flat_map(|character| {
            let hidden =
                character.is_control() || !character.is_ascii() && !character.is_alphanumeric();
            let escaped = hidden.then(|| character.escape_unicode());
            let plain = (!hidden).then_some(character);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();
    if text.chars().nth(MOST).is_some() {
        visible + "…"
    } else {
        visible
    }
}
