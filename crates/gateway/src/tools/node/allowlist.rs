//! `security=allowlist` of the gateway on a node that cannot be told of it.
//!
//! A node of ours joins the gateway's level to its own. Any other judges by its own document alone,
//! and only it can judge: it has the files. So it must be one that judges by its allowlist; where it
//! is not, or does not say so, nothing counts as allowed, and a person is asked or nothing runs.

use std::time::Duration;

use interlock_policy::{Document, Layer, Security};
use interlock_wire::node::{
    DEFAULT_INVOKE_TIMEOUT_MS, ExecApprovalsSnapshot, SYSTEM_EXEC_APPROVALS_GET,
};
use serde_json::json;

use super::Work;
use crate::nodes::Invocation;

impl Work {
    /// Whether the document of the node says, in so many words, that this agent may run no more than
    /// an allowlist names.
    pub(super) async fn is_judged_by_allowlist(&self) -> bool {
        self.document_security()
            .await
            .is_some_and(|security| security != Security::Full)
    }

    async fn document_security(&self) -> Option<Security> {
        if !self.may(SYSTEM_EXEC_APPROVALS_GET) {
            return None;
        }
        let invocation = Invocation {
            command: SYSTEM_EXEC_APPROVALS_GET,
            params: Some(json!({})),
            timeout: Some(Duration::from_millis(DEFAULT_INVOKE_TIMEOUT_MS)),
            told_timeout_ms: None,
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
