//! The parameters of `process`.

use std::time::Duration;

use interlock_engine::Signal;
use interlock_host::parameters::{Fields, MISSING, ParameterError, UNKNOWN, VALUE, listed};
use interlock_transcript::LineRange;
use interlock_transcript::keys::Bracketed;
use serde_json::Value;

use super::{CursorInvalid, KeysInput, SessionAction, SessionCursor, SessionListRequest};

/// A longer wait is shortened to this.
const MAX_POLL_MS: u32 = 30_000;
/// More lines than a transcript ever shows at once.
const MAX_LINES: u64 = 1_000_000;
/// The largest number of sessions on one page.
const MAX_LISTED: u64 = 1_000;
/// JSON represents every whole number up to this one exactly.
const MAX_OFFSET: u64 = 1 << 53;

const KNOWN: &[&str] = &[
    "action",
    "sessionId",
    "timeout",
    "offset",
    "limit",
    "data",
    "eof",
    "keys",
    "literal",
    "hex",
    "text",
    "bracketed",
    "signal",
    "cursor",
];

/// Each action with its parameters besides the session.
const ACTIONS: &[(&str, &[&str])] = &[
    ("list", &["limit", "cursor"]),
    ("poll", &["timeout"]),
    ("log", &["offset", "limit"]),
    ("write", &["data", "eof"]),
    ("send-keys", &["keys", "literal", "hex"]),
    ("submit", &[]),
    ("paste", &["text", "bracketed"]),
    ("screen", &[]),
    ("kill", &["signal"]),
    ("clear", &[]),
    ("remove", &[]),
];

/// The signals that a call may send to a run, with or without the prefix `SIG`.
const SIGNALS: &[(&str, Signal)] = &[
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("WINCH", Signal::WINCH),
];

/// The parameters of a `process` call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessParameters {
    List {
        /// The largest number of sessions on a page.
        limit: Option<u64>,
        /// The cursor that the previous page returned.
        cursor: Option<SessionCursor>,
    },
    Of {
        session_id: String,
        action: ProcessAction,
    },
}

/// An action on one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessAction {
    Poll {
        /// How long to wait for new output.
        wait: Duration,
    },
    /// An offset without a limit means to the end.
    Log {
        offset: Option<u64>,
        limit: Option<u64>,
    },
    Write {
        data: String,
        /// Whether the input ends after `data`.
        eof: bool,
    },
    /// Sent in this order: literal, hex, keys.
    SendKeys {
        literal: Option<String>,
        hex: Vec<String>,
        keys: Vec<String>,
    },
    Submit,
    Paste {
        text: String,
        bracketed: Bracketed,
    },
    Screen,
    /// Without a signal, ends the tree.
    Kill {
        signal: Option<Signal>,
    },
    Clear,
    Remove,
}

impl ProcessParameters {
    pub fn parse(parameters: &Value) -> Result<Self, ParameterError> {
        let fields = Fields::new("process", parameters, KNOWN)?;
        let action = action(fields)?;
        check_belongs(fields, action)?;
        if action == "list" {
            return Self::list(fields);
        }
        let session_id = fields.filled_text("sessionId")?.ok_or_else(|| {
            let problem = format!("is required for `{action}`");
            let hint = Some("`list` shows the ids".to_owned());
            ParameterError::new(MISSING, "sessionId", problem).with_hint(hint)
        })?;
        Ok(Self::Of {
            session_id: session_id.to_owned(),
            action: ProcessAction::parse(action, fields)?,
        })
    }
}

impl ProcessParameters {
    fn list(fields: Fields<'_>) -> Result<Self, ParameterError> {
        let cursor = fields.filled_text("cursor")?.map(|text| {
            text.trim().parse().map_err(|error: CursorInvalid| {
                let hint = "leave it out for the first page".to_owned();
                ParameterError::new(VALUE, "cursor", error.to_string()).with_hint(Some(hint))
            })
        });
        // Some callers fill in every parameter: 0 means no limit.
        let limit = fields.count("limit", 0, MAX_LISTED)?;
        Ok(Self::List {
            limit: limit.filter(|limit| *limit > 0),
            cursor: cursor.transpose()?,
        })
    }
}

impl From<ProcessParameters> for SessionAction {
    fn from(parameters: ProcessParameters) -> Self {
        let (session_id, action) = match parameters {
            ProcessParameters::List { limit, cursor } => {
                return Self::List(SessionListRequest {
                    after: cursor,
                    limit: limit.and_then(|limit| usize::try_from(limit).ok()),
                    ..SessionListRequest::default()
                });
            }
            ProcessParameters::Of { session_id, action } => (session_id, action),
        };
        match action {
            ProcessAction::Poll { wait } => Self::Poll {
                session_id,
                timeout: wait,
            },
            ProcessAction::Log { offset, limit } => Self::Log {
                session_id,
                range: LineRange { offset, limit },
            },
            ProcessAction::Write { data, eof } => Self::Write {
                session_id,
                data,
                eof,
            },
            ProcessAction::SendKeys { literal, hex, keys } => Self::SendKeys {
                session_id,
                keys: KeysInput { literal, hex, keys },
            },
            ProcessAction::Submit => Self::Submit { session_id },
            ProcessAction::Paste { text, bracketed } => Self::Paste {
                session_id,
                text,
                bracketed,
            },
            ProcessAction::Screen => Self::Screen { session_id },
            ProcessAction::Kill { signal } => Self::Kill {
                session_id,
                signal: signal.map(|signal| signal.as_raw().to_string()),
            },
            ProcessAction::Clear => Self::Clear { session_id },
            ProcessAction::Remove => Self::Remove { session_id },
        }
    }
}

impl ProcessAction {
    fn parse(action: &str, fields: Fields<'_>) -> Result<Self, ParameterError> {
        Ok(match action {
            "poll" => Self::Poll {
                wait: fields
                    .milliseconds("timeout", 0, MAX_POLL_MS)?
                    .unwrap_or_default(),
            },
            "log" => Self::Log {
                offset: fields.count("offset", 0, MAX_OFFSET)?,
                limit: fields.count("limit", 1, MAX_LINES)?,
            },
            "write" => {
                let data = fields.text("data")?;
                let eof = fields.flag("eof")?;
                if data.is_none() && !eof {
                    let problem = "is required for `write`, unless `eof` ends the input";
                    return Err(ParameterError::new(MISSING, "data", problem));
                }
                Self::Write {
                    data: data.unwrap_or_default().to_owned(),
                    eof,
                }
            }
            "send-keys" => {
                let literal = fields.text("literal")?.filter(|text| !text.is_empty());
                let (hex, keys) = (fields.texts("hex")?, fields.texts("keys")?);
                if literal.is_none() && hex.is_empty() && keys.is_empty() {
                    let problem = "is required for `send-keys`, or `literal`, or `hex`";
                    return Err(ParameterError::new(MISSING, "keys", problem));
                }
                Self::SendKeys {
                    literal: literal.map(str::to_owned),
                    hex,
                    keys,
                }
            }
            "paste" => Self::Paste {
                text: fields.required_text("text")?.to_owned(),
                bracketed: match fields.optional_flag("bracketed")? {
                    Some(false) => Bracketed::No,
                    Some(true) | None => Bracketed::Yes,
                },
            },
            "kill" => Self::Kill {
                signal: fields.text("signal")?.map(signal).transpose()?,
            },
            "submit" => Self::Submit,
            "screen" => Self::Screen,
            "clear" => Self::Clear,
            "remove" => Self::Remove,
            _ => return Err(unknown_action(action)),
        })
    }
}

fn action(fields: Fields<'_>) -> Result<&'static str, ParameterError> {
    let word = fields.required_text("action")?;
    let known = ACTIONS.iter().find(|(name, _)| *name == word);
    known
        .map(|(name, _)| *name)
        .ok_or_else(|| unknown_action(word))
}

fn unknown_action(word: &str) -> ParameterError {
    let names: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
    let problem = format!("is one of {}, not {word:?}", listed(&names));
    let near = interlock_config::nearest(word, names.into_iter());
    let hint = near.map(|near| format!("did you mean {near:?}?"));
    ParameterError::new(VALUE, "action", problem).with_hint(hint)
}

/// Rejects parameters of other actions: they would have no effect, and the caller would not know.
/// Empty values are accepted, because some callers fill in every parameter.
fn check_belongs(fields: Fields<'_>, action: &str) -> Result<(), ParameterError> {
    let own = ACTIONS.iter().find(|(name, _)| *name == action);
    let own = own.map_or(&[][..], |(_, own)| *own);
    let strange = KNOWN.iter().find(|name| {
        let common = **name == "action" || (**name == "sessionId" && action != "list");
        !common && !own.contains(name) && fields.get(name).is_some_and(says_something)
    });
    let Some(name) = strange else {
        return Ok(());
    };
    let takers: Vec<&str> = ACTIONS
        .iter()
        .filter(|(taker, takes)| takes.contains(name) || (*name == "sessionId" && *taker != "list"))
        .map(|(taker, _)| *taker)
        .collect();
    let problem = format!("is not a parameter of `{action}`");
    let hint = format!("it belongs to {}", listed(&takers));
    Err(ParameterError::new(UNKNOWN, *name, problem).with_hint(Some(hint)))
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(_) => true,
    }
}

fn signal(word: &str) -> Result<Signal, ParameterError> {
    let upper = word.trim().to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    found.map(|(_, signal)| *signal).ok_or_else(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
        let problem = format!("is one of {}, not {word:?}", listed(&names));
        ParameterError::new(VALUE, "signal", problem)
    })
}
