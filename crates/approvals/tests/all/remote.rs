//! Approvals of runs that another host makes: stored, shown, decided and used once, over a store alone.

use std::path::PathBuf;
use std::sync::Arc;

use interlock_approvals::{
    ApprovalDecision, ApprovalRefusal, ApprovalSettings, Approvals, DecisionBy, OutsideRuns,
    RemoteApproval, StoredVerdict,
};
use interlock_command::display::Secrets;
use interlock_config::{ConfigError, ConfigFile};
use interlock_store::Store;
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The settings of a config that says nothing.
#[derive(Debug)]
struct NoConfig(PathBuf);

impl ApprovalSettings for NoConfig {
    fn config(&self) -> Result<Arc<ConfigFile>, ConfigError> {
        Ok(Arc::new(ConfigFile::load(&self.0)?))
    }
}

struct World {
    scratch: TempDir,
    store: Store,
    settings: NoConfig,
}

impl World {
    fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        let store = Store::open(scratch.path()).unwrap();
        let settings = NoConfig(scratch.path().join("config.json5"));
        Self {
            scratch,
            store,
            settings,
        }
    }

    fn approvals(&self) -> Approvals<'_> {
        Approvals::new(&self.store, &self.settings)
    }

    fn request(&self, subject: &Value) -> String {
        let requested = RemoteApproval {
            id: None,
            subject,
            agent: "main",
            session_key: "agent:main:main",
            host: "node",
            node: Some("lab"),
            requester: "connection 7",
            expires_in_ms: 60_000,
            offers_always: false,
        };
        let stored = self.approvals().request_remote(&requested, |_| {});
        stored.unwrap().unwrap().id
    }

    fn decide(&self, id: &str, decision: ApprovalDecision) -> Result<(), ApprovalRefusal> {
        let paths = SupervisorPaths::new(self.scratch.path());
        let outside = OutsideRuns::this_process(&SupervisorClient::new(paths, "none")).unwrap();
        let approval = self.approvals().approval(id, Secrets::Masked).unwrap();
        let by = DecisionBy {
            decider: "operator",
            surface: "browser",
            reason: Some("not today"),
            has_shown: true,
            outside,
        };
        let digest = &approval.plan_digest;
        self.approvals()
            .decide(id, digest, decision, by)
            .map(|_| ())
    }
}

#[test]
fn an_allowed_approval_is_used_once() {
    let world = World::new();
    let id = world.request(&json!({ "command": "uptime", "cwd": "/" }));
    assert_eq!(
        world.approvals().use_remote(&id).unwrap_err().code(),
        "APPROVAL_PENDING"
    );
    world.decide(&id, ApprovalDecision::AllowOnce).unwrap();
    let decision = world.approvals().use_remote(&id).unwrap();
    assert_eq!(decision, ApprovalDecision::AllowOnce);
    assert_eq!(
        world.approvals().use_remote(&id).unwrap_err().code(),
        "APPROVAL_USED"
    );
}

#[test]
fn a_denied_approval_gives_the_approver_s_words_to_the_caller() {
    let world = World::new();
    let id = world.request(&json!({ "command": "uptime", "cwd": "/" }));
    world.decide(&id, ApprovalDecision::Deny).unwrap();
    let error = world.approvals().use_remote(&id).unwrap_err();
    assert!(error.is_denial());
    assert!(
        error.to_string().ends_with("by operator: not today"),
        "{error}"
    );
}

#[test]
fn only_what_another_host_can_keep_is_offered() {
    let world = World::new();
    let id = world.request(&json!({ "command": "uptime", "cwd": "/" }));
    let approval = world.approvals().approval(&id, Secrets::Masked).unwrap();
    assert_eq!(
        approval.offered,
        [ApprovalDecision::AllowOnce, ApprovalDecision::Deny]
    );
    for decision in [
        ApprovalDecision::AllowSession,
        ApprovalDecision::AllowAlways,
    ] {
        assert!(!approval.offers(decision));
        let refused = world.decide(&id, decision).unwrap_err();
        assert_eq!(refused.code(), "APPROVAL_NOT_OFFERED");
    }
}

#[test]
fn the_stored_verdict_has_its_version() {
    let world = World::new();
    let id = world.request(&json!({ "command": "uptime", "cwd": "/" }));
    let stored = world.store.approval(&id).unwrap();
    assert_eq!(stored.request.verdict["version"], 1);
    let verdict = StoredVerdict::of_approval(&stored);
    assert_eq!(verdict.reasons(), ["another host asks"]);
}
