//! The parameters of `exec`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use interlock_config::{Host, YIELD_MS};
use interlock_policy::Ask;
use serde::Deserialize as _;
use serde_json::Value;

use super::fields::{Fields, text, whole, without_nul, wrong_type};
use super::{CONFLICT, ParameterError, RANGE, VALUE, WORKDIR};
use crate::preview::CallEffects;
use crate::retry::RetryRequest;

const KNOWN: &[&str] = &[
    "command",
    "workdir",
    "env",
    "yieldMs",
    "background",
    "timeout",
    "timeoutSeconds",
    "pty",
    "host",
    "ask",
    "security",
    "node",
    "elevated",
    "stdin",
    "retryOf",
    "justification",
    "effects",
];

/// The same limit as in the config.
const MAX_TIMEOUT_SECONDS: f64 = 31_536_000.0;

/// No run has a longer id.
const MAX_RUN_BYTES: usize = 128;

/// An approver has to read all of it.
const MAX_JUSTIFICATION_BYTES: usize = 2_000;

const ASK: &[&str] = &["off", "on-miss", "always"];
const STDIN: &[&str] = &["null", "pipe"];

/// The parameters of an `exec` call. Whether the call may have them is decided elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecParameters {
    pub command: String,
    /// As the caller wrote it; see [`Self::directory`].
    pub workdir: Option<String>,
    pub env: BTreeMap<String, String>,
    /// Clamped to the limits.
    pub yield_after: Option<Duration>,
    pub background: bool,
    /// Zero means no limit for this call; `None` means the limit of the config.
    pub timeout: Option<Duration>,
    pub pty: bool,
    /// A call that names a node has the host `node`.
    pub host: Option<Host>,
    /// Can only make the policy stricter.
    pub ask: Option<Ask>,
    /// The id, name, address or id prefix of a node.
    pub node: Option<String>,
    /// `None` leaves the choice to the conversation.
    pub elevated: Option<bool>,
    pub stdin: InputMode,
    /// The sandboxed run that this run repeats outside of the sandbox.
    pub retry: Option<RetryRequest>,
    /// Whether an approver decides about the command's changes.
    pub effects: Option<CallEffects>,
}

/// What the run reads from its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InputMode {
    /// Nothing.
    #[default]
    Null,
    /// The input that `process write` sends.
    Pipe,
}

impl ExecParameters {
    pub fn parse(parameters: &Value) -> Result<Self, ParameterError> {
        let fields = Fields::new("exec", parameters, KNOWN)?;
        let command = without_nul("command", fields.required_text("command")?)?;
        if command.trim().is_empty() {
            return Err(ParameterError::new(VALUE, "command", "is empty"));
        }
        // Accepted because some callers send it, but without effect: a call cannot loosen the
        // policy.
        fields.text("security")?;
        let (least, most) = (limit(*YIELD_MS.start()), limit(*YIELD_MS.end()));
        let not_a_host =
            "`host` does not name a machine: for a node say host \"node\" and its name in `node`";
        let host = fields.word(
            "host",
            Host::WORDS,
            |value| Host::deserialize(value).ok(),
            Some(not_a_host),
        )?;
        let node = filled("node", fields)?;
        let host = match (host, &node) {
            // A call that names a node does not mean this machine.
            (None | Some(Host::Auto), Some(_)) => Some(Host::Node),
            (Some(Host::Gateway | Host::Sandbox), Some(_)) => {
                let problem = "names a node, which goes with host \"node\" only";
                return Err(ParameterError::new(VALUE, "node", problem));
            }
            (host, _) => host,
        };
        Ok(Self {
            command: command.to_owned(),
            workdir: filled("workdir", fields)?,
            env: env(fields)?,
            yield_after: fields.milliseconds("yieldMs", least, most)?,
            background: fields.flag("background")?,
            timeout: timeout(fields)?,
            pty: fields.flag("pty")?,
            host,
            ask: fields.word("ask", ASK, |value| Ask::deserialize(value).ok(), None)?,
            node,
            elevated: fields.optional_flag("elevated")?,
            stdin: fields
                .word("stdin", STDIN, input_mode, None)?
                .unwrap_or_default(),
            retry: retry(fields)?,
            effects: fields.word(
                "effects",
                CallEffects::WORDS,
                |value| CallEffects::parse(value.as_str()?),
                None,
            )?,
        })
    }

    /// The directory in which the command starts: `workdir`, relative to the session's directory,
    /// or the session's directory itself. It must exist. `~` is a name like any other.
    pub fn directory(&self, session: &Path) -> Result<String, ParameterError> {
        let requested = match &self.workdir {
            Some(workdir) => session.join(workdir),
            None => session.to_owned(),
        };
        let found = std::fs::canonicalize(&requested).and_then(|found| {
            if found.is_dir() {
                Ok(found)
            } else {
                Err(std::io::ErrorKind::NotADirectory.into())
            }
        });
        let unusable = |problem: String| {
            let is_home = self
                .workdir
                .as_deref()
                .is_some_and(|workdir| workdir.starts_with('~'));
            let hint = is_home.then(|| "`~` is not expanded: write the path in full".to_owned());
            let shown = requested.display();
            ParameterError::new(
                WORKDIR,
                "workdir",
                format!("cannot be used: {shown}: {problem}"),
            )
            .with_hint(hint)
        };
        let found = found.map_err(|error| {
            unusable(match error.kind() {
                std::io::ErrorKind::NotFound => "no such directory".to_owned(),
                std::io::ErrorKind::NotADirectory => "not a directory".to_owned(),
                std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => error.to_string(),
            })
        })?;
        let found = found.into_os_string().into_string();
        found.map_err(|_| unusable("its path is not valid UTF-8".to_owned()))
    }
}

fn filled(name: &str, fields: Fields<'_>) -> Result<Option<String>, ParameterError> {
    let text = fields.filled_text(name)?;
    let text = text.map(|text| without_nul(name, text)).transpose()?;
    Ok(text.map(str::to_owned))
}

/// `retryOf` and `justification` require each other, and `elevated: true`.
fn retry(fields: Fields<'_>) -> Result<Option<RetryRequest>, ParameterError> {
    let (run, justification) = (filled("retryOf", fields)?, filled("justification", fields)?);
    let (run, justification) = match (run, justification) {
        (None, None) => return Ok(None),
        (Some(_), None) => {
            let problem =
                "needs `justification`: why the run has to leave its sandbox, in your words";
            return Err(ParameterError::new(VALUE, "retryOf", problem));
        }
        (None, Some(_)) => {
            let problem = "needs `retryOf`: the run that the sandbox denied something to";
            return Err(ParameterError::new(VALUE, "justification", problem));
        }
        (Some(run), Some(justification)) => (run, justification),
    };
    if fields.optional_flag("elevated")? != Some(true) {
        let problem = "repeats a run outside of its sandbox, which takes `elevated: true`";
        return Err(ParameterError::new(CONFLICT, "retryOf", problem));
    }
    if run.len() > MAX_RUN_BYTES {
        return Err(ParameterError::new(RANGE, "retryOf", "is too long"));
    }
    if justification.trim().is_empty() || justification.len() > MAX_JUSTIFICATION_BYTES {
        let problem = format!("is empty or longer than {MAX_JUSTIFICATION_BYTES} bytes");
        return Err(ParameterError::new(RANGE, "justification", problem));
    }
    Ok(Some(RetryRequest { run, justification }))
}

fn limit(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn input_mode(value: &Value) -> Option<InputMode> {
    match value.as_str()? {
        "null" => Some(InputMode::Null),
        "pipe" => Some(InputMode::Pipe),
        _ => None,
    }
}

fn env(fields: Fields<'_>) -> Result<BTreeMap<String, String>, ParameterError> {
    let Some(value) = fields.get("env") else {
        return Ok(BTreeMap::new());
    };
    let Value::Object(pairs) = value else {
        return Err(wrong_type("env", "an object of strings", value));
    };
    let pairs = pairs.iter().map(|(key, value)| {
        let name = format!("env.{key}");
        let value = without_nul(&name, text(&name, value)?)?;
        Ok((key.clone(), value.to_owned()))
    });
    pairs.collect()
}

/// The time limit, under either name. Fractions are rounded up, so that a short limit never becomes
/// zero, which means no limit.
fn timeout(fields: Fields<'_>) -> Result<Option<Duration>, ParameterError> {
    let (short, long) = (fields.number("timeout")?, fields.number("timeoutSeconds")?);
    let (name, seconds) = match (short, long) {
        (Some(short), Some(long)) if short.total_cmp(&long).is_ne() => {
            let problem = "says something else than `timeoutSeconds`; give one of them";
            return Err(ParameterError::new(CONFLICT, "timeout", problem));
        }
        (Some(seconds), _) => ("timeout", seconds),
        (None, Some(seconds)) => ("timeoutSeconds", seconds),
        (None, None) => return Ok(None),
    };
    if seconds > MAX_TIMEOUT_SECONDS {
        let problem = format!("is more than a year ({MAX_TIMEOUT_SECONDS:.0} seconds)");
        let hint = Some("0 is no limit".to_owned());
        return Err(ParameterError::new(RANGE, name, problem).with_hint(hint));
    }
    Ok(Some(Duration::from_millis(whole(
        (seconds * 1000.0).ceil(),
    ))))
}
