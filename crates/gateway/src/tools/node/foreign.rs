//! The gateway's policy for a foreign node, which does not read it.
//!
//! An Interlock node joins the gateway's layer to its own policy. A foreign node judges by its own
//! document alone, and only it can judge: it has the files. So under `security=allowlist` it must say
//! that it judges by its allowlist; where it does not, nothing counts as allowed, and an approver is
//! asked or nothing runs. Deny rules of the gateway are judged here, on the words of the command.

use std::collections::BTreeMap;
use std::time::Duration;

use interlock_command::{Source, VirtualHost};
use interlock_host::now_ms;
use interlock_policy::{
    Ask, CallerInput, DenyRule, Document, Layer, Levels, Outcome, PolicyParts,
    PolicySource as LevelSource, RunRequest, Security, evaluate,
};
use interlock_wire::node::{
    DEFAULT_INVOKE_TIMEOUT_MS, ExecApprovalsSnapshot, SYSTEM_EXEC_APPROVALS_GET, SystemRun,
};
use serde_json::json;

use super::{GatewayLevels, NodeCall, result};
use crate::nodes::NodeInvocation;
use crate::tools::result::ToolResult;

/// Stands for a directory of the node that nothing is known of.
const SOMEWHERE: &str = "/";

/// Whether the node may run the call without an approval, as far as this gateway is concerned. The
/// error is the result of a call that must not run at all.
pub(super) async fn may_be_allowed(work: &NodeCall) -> Result<bool, Box<ToolResult>> {
    let wanted = &work.wanted;
    if work.keeps {
        return Ok(wanted.ask() != Ask::Always);
    }
    let asks = wanted.ask() != Ask::Off;
    match words_denied(wanted, &work.run) {
        DeniedWords::Clear => {}
        DeniedWords::Unseen if asks => return Ok(false),
        DeniedWords::Unseen => return Err(Box::new(result::not_seen(&work.node))),
        DeniedWords::Denied(why) => return Err(Box::new(result::denied_here(&work.node, &why))),
    }
    if wanted.ask() == Ask::Always {
        return Ok(false);
    }
    if wanted.security() != Security::Allowlist || work.is_judged_by_allowlist().await {
        return Ok(true);
    }
    if asks {
        return Ok(false);
    }
    Err(Box::new(result::not_judged(&work.node)))
}

/// Why a deny rule that the gateway's document has by now keeps an approved run from a foreign node.
pub(super) fn denied_by_now(wanted: &GatewayLevels, run: &SystemRun) -> Option<String> {
    match words_denied(wanted, run) {
        DeniedWords::Denied(why) => Some(why),
        DeniedWords::Clear | DeniedWords::Unseen => None,
    }
}

/// What the deny rules of the gateway's document say about the words of a command.
enum DeniedWords {
    Clear,
    /// Some words cannot be seen, so no rule can be said not to match.
    Unseen,
    Denied(String),
}

/// Judged as on a host of which no file is known: names are where programs usually are, and a rule
/// for a path counts for a bare name too.
fn words_denied(wanted: &GatewayLevels, run: &SystemRun) -> DeniedWords {
    if wanted.deny.is_empty() {
        return DeniedWords::Clear;
    }
    let mut deny = wanted.deny.to_vec();
    let bare = wanted.deny.iter().filter_map(|(rule, origin)| {
        let name = rule.pattern.rsplit_once('/')?.1;
        let is_name = name.chars().any(|c| !matches!(c, '*' | '?'));
        let rule = DenyRule {
            pattern: name.to_owned(),
            ..rule.clone()
        };
        is_name.then(|| (rule, origin.clone()))
    });
    deny.extend(bare);
    // Everything may run but for the rules, and what they cannot see is asked about.
    let open = Layer::new(
        LevelSource::Default,
        "",
        Some(Security::Full),
        Some(Ask::OnMiss),
    );
    let policy = PolicyParts {
        levels: Some(Levels::join(&[open])),
        deny,
        ..PolicyParts::default()
    };
    let policy = match policy.assemble(None) {
        Ok(policy) => policy,
        Err(error) => return DeniedWords::Denied(error.to_string()),
    };
    let request = RunRequest {
        source: match &run.raw_command {
            Some(text) => Source::Text(text.clone()),
            None => Source::Argv(run.command.clone()),
        },
        cwd: run.cwd.clone().unwrap_or_else(|| SOMEWHERE.to_owned()),
        env: BTreeMap::new(),
        // A foreign node has neither terminals nor input.
        input: CallerInput::None,
        workspace: Vec::new(),
        now_ms: now_ms(),
    };
    match evaluate(request, &policy, &VirtualHost::new()) {
        Ok(evaluation) => match evaluation.verdict.outcome {
            Outcome::Allow(_) => DeniedWords::Clear,
            Outcome::Ask => DeniedWords::Unseen,
            Outcome::Deny => DeniedWords::Denied(evaluation.verdict.reason.message),
        },
        Err(error) => DeniedWords::Denied(error.to_string()),
    }
}

impl NodeCall {
    /// Whether the document of the node says, in so many words, that this agent may run no more than
    /// an allowlist names.
    async fn is_judged_by_allowlist(&self) -> bool {
        self.document_security()
            .await
            .is_some_and(|security| security != Security::Full)
    }

    async fn document_security(&self) -> Option<Security> {
        if !self.may(SYSTEM_EXEC_APPROVALS_GET) {
            return None;
        }
        let invocation = NodeInvocation {
            command: SYSTEM_EXEC_APPROVALS_GET,
            params: Some(json!({})),
            timeout: Some(Duration::from_millis(DEFAULT_INVOKE_TIMEOUT_MS)),
            node_timeout_ms: None,
            idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        };
        let (payload, _) = self
            .gateway
            .nodes
            .invoke(&self.node, invocation)
            .await
            .ok()?;
        let snapshot: ExecApprovalsSnapshot = serde_json::from_value(payload).ok()?;
        // Written by another program, which may say more than is known here.
        let (document, _) = Document::import(&snapshot.file).ok()?;
        let layer = Layer::of_document(&document, &self.call.agent);
        layer.security.map(|security| security.value)
    }
}
