//! The common part of `system.run` and `system.run.prepare`: turns words into a request to the
//! host.

use std::collections::BTreeMap;

use interlock_command::Source;
use interlock_config::schema::SANDBOX_UNAVAILABLE;
use interlock_host::{ExecError, ExecRequest, NO_CALLER_CONTEXT, RequestedPlace, Yield};
use interlock_plan::PlanStdin;
use interlock_policy::{AgentId, Ask, DenyRule, Security};
use interlock_rules::GatewayLayer;
use interlock_wire::node::extension::PolicyLayer;
use interlock_wire::{ErrorCode, WireError};

use crate::serve::NodeService;

/// The requester in the records.
const REQUESTER: &str = "gateway";

/// A command with everything that the host judges.
#[derive(Debug)]
pub(super) struct CommandCall {
    pub(super) agent: AgentId,
    pub(super) source: Source,
    /// An absolute path.
    pub(super) cwd: String,
    /// Whether the gateway named the directory. Otherwise it is the directory of this process,
    /// which a sandbox does not show.
    pub(super) is_cwd_named: bool,
    pub(super) env: BTreeMap<String, String>,
    pub(super) session_key: Option<String>,
    pub(super) gateway: GatewayLayer,
}

/// The gateway's additions to the policy of this machine, which can only make it stricter. An
/// unknown word counts as the strictest one, and a deny rule that cannot be read refuses the run.
pub(super) fn gateway_layer(layer: &PolicyLayer) -> Result<GatewayLayer, WireError> {
    let deny = layer.deny.iter().map(|deny| {
        let rule: DenyRule = serde_json::from_value(deny.rule.clone()).map_err(|error| {
            let origin = &deny.origin;
            WireError::unavailable(format!("the gateway's deny rule {origin}: {error}"))
        })?;
        Ok((rule, deny.origin.clone()))
    });
    Ok(GatewayLayer {
        security: given(layer.security.as_deref())
            .map(|word| Security::parse(word).unwrap_or(Security::Deny)),
        ask: given(layer.ask.as_deref()).map(|word| Ask::parse(word).unwrap_or(Ask::Always)),
        deny: deny.collect::<Result<_, WireError>>()?,
    })
}

impl CommandCall {
    pub(super) fn request<'a>(&'a self, service: &'a NodeService) -> ExecRequest<'a> {
        ExecRequest {
            agent: &self.agent,
            config: None,
            caller: &NO_CALLER_CONTEXT,
            source: self.source.clone(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            ask: None,
            gateway: Some(&self.gateway),
            // The gateway counts in milliseconds, so the limit is set on the plan.
            timeout_seconds: Some(0),
            base_env: &service.environment,
            session_key: self.session_key.as_deref(),
            pty: None,
            stdin: PlanStdin::Null,
            yields: Yield::Never,
            show_chars: Some(0),
            requester: REQUESTER,
            runs_later: false,
            place: RequestedPlace {
                is_cwd_usual: !self.is_cwd_named,
                ..RequestedPlace::default()
            },
        }
    }
}

/// The source of a command. Gateways send every text as `/bin/sh -lc TEXT`. As outermost words,
/// this is transport and not a login shell that the caller requested: the text is judged, and run
/// directly if it is plain.
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

/// A text that is not blank.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// The directory of a command: the requested one, relative to the directory of this process.
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

/// Why this machine cannot run a command, for an Interlock gateway: the code and text of a local
/// call, followed by a line break and the remedy. `None` if the protocol's own text says how to
/// continue.
pub(super) fn own_words(error: &ExecError) -> Option<WireError> {
    match error {
        // The command runs in the sandbox of this machine's owner, or nowhere.
        ExecError::Host(_) | ExecError::Supervisor(_) if error.code() == SANDBOX_UNAVAILABLE => {}
        ExecError::Unbound(_)
        | ExecError::Refused(_)
        | ExecError::Script(_)
        | ExecError::Input(_)
        | ExecError::Limits(_)
        | ExecError::Shield(_)
        | ExecError::Route(_)
        | ExecError::Retry(_)
        | ExecError::Sandbox(_)
        | ExecError::Workspace(_)
        | ExecError::Prepare(_) => {}
        ExecError::Host(_)
        | ExecError::Tool(_)
        | ExecError::Denied(_)
        | ExecError::Approval(_)
        | ExecError::Preview(_)
        | ExecError::Supervisor(_) => return None,
    }
    let mut message = error.to_string().replace('\n', " ");
    if let Some(remedy) = error.remedy() {
        message = format!("{message}\n{remedy}");
    }
    let code = ErrorCode::from(error.code().to_owned());
    Some(WireError::new(code, message))
}

/// The error for a working directory that cannot be used.
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
