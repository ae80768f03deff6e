//! What `system.run` and `system.run.prepare` have in common: words become a request to the host.

use std::collections::BTreeMap;

use interlock_command::Source;
use interlock_host::{ExecError, ExecRequest, Yield};
use interlock_plan::Stdin;
use interlock_policy::{AgentId, Ask, Security};
use interlock_wire::node::SystemRunPlan;
use interlock_wire::{ErrorCode, WireError};
use sha2::{Digest as _, Sha256};

use crate::serve::Service;

/// Who asks, for the records.
const REQUESTER: &str = "gateway";

/// A command with all that the host judges by.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) agent: AgentId,
    pub(super) source: Source,
    /// Absolute.
    pub(super) cwd: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) session_key: Option<String>,
    pub(super) wanted: Wanted,
}

/// What the gateway wants at least. It can only be stricter than this machine.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    security: Option<Security>,
    ask: Option<Ask>,
}

impl Wanted {
    /// A word that this version does not know is taken for the strictest one.
    pub(super) fn of(security: Option<&str>, ask: Option<&str>) -> Self {
        Self {
            security: given(security).map(|word| Security::parse(word).unwrap_or(Security::Deny)),
            ask: given(ask).map(|word| Ask::parse(word).unwrap_or(Ask::Always)),
        }
    }
}

impl Call {
    pub(super) fn request<'a>(&'a self, service: &'a Service) -> ExecRequest<'a> {
        ExecRequest {
            agent: &self.agent,
            source: self.source.clone(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            ask: self.wanted.ask,
            security: self.wanted.security,
            // The gateway counts in milliseconds: it is set on the plan.
            timeout_seconds: Some(0),
            base_env: &service.environment,
            session_key: self.session_key.as_deref(),
            pty: None,
            stdin: Stdin::Null,
            yields: Yield::Never,
            shows_output: false,
            requester: REQUESTER,
            runs_later: false,
        }
    }
}

/// Gateways send every text as `/bin/sh -lc TEXT`. As the outermost words that is transport, not a
/// login shell that somebody asked for: the text is judged, and run directly where it is plain.
pub(super) fn source(argv: &[String]) -> Source {
    match argv {
        [shell, flag, text] if shell == "/bin/sh" && matches!(flag.as_str(), "-lc" | "-c") => {
            Source::Text(text.clone())
        }
        _ => Source::Argv(argv.to_vec()),
    }
}

pub(super) fn agent(name: Option<&str>) -> Result<AgentId, WireError> {
    match name.map(str::trim).filter(|name| !name.is_empty()) {
        None => Ok(AgentId::default()),
        Some(name) => AgentId::new(name)
            .map_err(|error| WireError::invalid(format!("INVALID_REQUEST: agentId: {error}"))),
    }
}

/// A text that says something.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Where a command runs: what was asked for, against the directory of this process.
pub(super) fn directory(cwd: Option<&str>) -> Result<String, WireError> {
    let own = || {
        let own = std::env::current_dir();
        own.map_err(|error| WireError::unavailable(format!("the node's directory: {error}")))
    };
    let path = match given(cwd) {
        Some(path) if path.starts_with('/') => return Ok(path.to_owned()),
        Some(path) => own()?.join(path),
        None => own()?,
    };
    let path = path.into_os_string().into_string();
    path.map_err(|_| WireError::unavailable("the node's directory is not valid UTF-8"))
}

/// Why this machine cannot run a command, for a gateway of ours: the code and the words that its own
/// callers get, and behind a line break what to do instead. None where the protocol's words say
/// how to go on.
pub(super) fn own_words(error: &ExecError) -> Option<WireError> {
    match error {
        ExecError::Unbound(_)
        | ExecError::Refused(_)
        | ExecError::Script(_)
        | ExecError::Input(_)
        | ExecError::Limits(_)
        | ExecError::Shield(_)
        | ExecError::Prepare(_) => {}
        ExecError::Host(_)
        | ExecError::Tool(_)
        | ExecError::Denied(_)
        | ExecError::Desk(_)
        | ExecError::Supervisor(_) => return None,
    }
    let mut message = error.to_string().replace('\n', " ");
    if let Some(remedy) = error.remedy() {
        message = format!("{message}\n{remedy}");
    }
    let code = ErrorCode::from(error.code().to_owned());
    Some(WireError::new(code, message))
}

/// The same of a directory that is none.
pub(super) fn no_directory(path: &str) -> WireError {
    let why = match std::fs::metadata(path) {
        Ok(_) => "not a directory".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "no such directory".to_owned()
        }
        Err(error) => error.to_string(),
    };
    let code = ErrorCode::from("WORKDIR_UNUSABLE".to_owned());
    let remedy = "name a directory of the node, or leave out `workdir`";
    WireError::new(
        code,
        format!("`workdir` cannot be used: {path}: {why}\n{remedy}"),
    )
}

/// By what a plan is recognised: everything in it that says what would run. Gateways hand plans
/// around as they are, and carry no digest of their own.
pub(super) fn digest(plan: &SystemRunPlan) -> String {
    let words = (
        &plan.argv,
        &plan.cwd,
        &plan.command_text,
        &plan.agent_id,
        &plan.session_key,
        &plan.mutable_file_operand,
    );
    let text = serde_json::to_string(&words).unwrap_or_default();
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
