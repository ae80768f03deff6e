//! The network plan: one run reaches one host name on one port. An approver is asked about this
//! value when a sandboxed run connects to a name that no entry lists. Its digest names it.

use interlock_command::display::{Secrets, ShownText};
use interlock_patch::sha256;
use interlock_plan::{HostName, TargetHost};
use interlock_store::{Approval, ApprovalDecision, GrantKey, Lease};
use serde::{Deserialize, Serialize};

use crate::approvals::THIS_HOST;
use crate::error::ApprovalRefusal;
use crate::pending::{PendingApproval, add_binding, add_reasons, add_session, shown_command};
use crate::shown_plan::{ShownPlan, stored_plan};
use crate::stored_verdict::StoredVerdict;
use crate::view::{ApprovalView, ViewLabel};

/// The binding of an approval for a host: exactly its name and its port.
pub const NETWORK_BINDING: &str = "network";

/// Why a lease has no number of uses.
pub(crate) const NO_USES: &str = "a run makes many connections to a host, so that uses are not counted: give the lease a time alone";

/// Everything that a decision about a host binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPlan {
    pub agent_id: String,
    pub session_key: String,
    /// The run that connects, by its id and by the name of its session.
    pub run_id: String,
    pub session: String,
    /// The command of the run and its directory.
    pub command: String,
    pub cwd: String,
    /// The sandbox in words.
    pub scope: String,
    /// The name in lower case, without a final dot.
    pub host: String,
    pub port: u16,
}

impl NetworkPlan {
    /// The SHA-256 of the plan, in hexadecimal.
    pub fn digest(&self) -> Option<String> {
        serde_json::to_vec(self).ok().map(|bytes| sha256(&bytes))
    }

    /// The digest that grants share with this plan. It covers the name and the port, and nothing of
    /// the run.
    pub fn content_digest(&self) -> String {
        sha256(format!("network host v1\0{}\0{}", self.host, self.port).as_bytes())
    }

    /// The id of the plan's approval. Each run, name and port has one id, no matter which process
    /// asks and how often it was restarted.
    pub fn approval_id(&self) -> String {
        let text = format!(
            "network approval v1\0{}\0{}\0{}",
            self.run_id, self.host, self.port
        );
        let hash = sha256(text.as_bytes());
        let part = |from: usize, to: usize| hash.get(from..to).unwrap_or_default();
        format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        )
    }

    pub fn grant_key<'a>(&'a self, content_digest: &'a str) -> GrantKey<'a> {
        GrantKey {
            content_digest,
            agent: &self.agent_id,
            session_key: &self.session_key,
            host: THIS_HOST,
            node: None,
        }
    }

    /// A title on one line, for lists, messages and grants.
    pub fn title(&self) -> String {
        format!("reach {}:{}", self.host, self.port)
    }

    /// What the approval stores besides the plan. There is no fallback for the approver.
    pub fn stored_verdict(&self) -> StoredVerdict {
        StoredVerdict::of_reason(Some("unlisted-host"), &self.reason())
    }

    fn reason(&self) -> String {
        format!(
            "no entry of network.allow lists {}:{}",
            self.host, self.port
        )
    }
}

/// The plan of an approval for a host; `None` for an approval of another kind, or if it cannot be
/// read.
pub fn network_plan_of(approval: &Approval) -> Option<NetworkPlan> {
    let is_network = approval.request.binding == NETWORK_BINDING;
    stored_plan(approval, NetworkPlan::digest)
        .ok()
        .filter(|_| is_network)
}

/// Reads an approval for a host as an approver is shown it.
pub(crate) fn read_network(approval: Approval) -> Result<PendingApproval, ApprovalRefusal> {
    let plan = stored_plan(&approval, NetworkPlan::digest)?;
    let request = &approval.request;
    let binding_reason = format!(
        "exactly {} on port {}, on addresses of the internet",
        plan.host, plan.port
    );
    let reasons = vec![plan.reason()];
    let command: ShownText = shown_command(&plan.title(), Secrets::Revealed);
    let mut view = ApprovalView::default();
    view.field(ViewLabel::Command, &command.text);
    let running = shown_command(&plan.command, Secrets::Masked);
    view.field(
        ViewLabel::Runs,
        &format!(
            "this runs already, and its connection waits: {}",
            running.text
        ),
    );
    view.field(ViewLabel::Directory, &plan.cwd);
    view.field(ViewLabel::Sandbox, &plan.scope);
    view.field(ViewLabel::Agent, &request.agent);
    add_session(&mut view, &request.session_key);
    view.field(
        ViewLabel::Note,
        &format!("the run is {} ({})", plan.session, plan.run_id),
    );
    add_reasons(&mut view, &reasons);
    add_binding(&mut view, NETWORK_BINDING, &binding_reason);
    if let Ok(TargetHost::Name(name)) = TargetHost::read(&plan.host) {
        add_warnings(&mut view, &name);
    }
    view.field(
        ViewLabel::Note,
        "once is for this run; session, a lease and always are for runs of this agent; a host that is reached can be sent data",
    );
    let shown = ShownPlan {
        view,
        command,
        cwd: plan.cwd,
        binding_reason,
        reasons,
        diff: None,
        no_always: None,
        offered: vec![
            ApprovalDecision::AllowOnce,
            ApprovalDecision::AllowSession,
            ApprovalDecision::Lease(Lease::LONGEST),
            ApprovalDecision::AllowAlways,
            ApprovalDecision::Deny,
        ],
    };
    Ok(shown.of_approval(approval))
}

fn add_warnings(view: &mut ApprovalView, name: &HostName) {
    if name.has_other_letters() {
        let warning = format!(
            "{name} is written with letters of another script: it can look like another name where it is shown in them"
        );
        view.warning(ViewLabel::Note, &warning);
    }
    // A run can encode data in a name.
    let longest = name.as_str().split('.').map(str::len).max();
    if name.as_str().len() > 100 || longest.unwrap_or_default() > 40 {
        view.warning(
            ViewLabel::Note,
            "the name is unusually long: a run can put data into a name, and asking for its address sends it",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(run_id: &str, host: &str, port: u16) -> NetworkPlan {
        NetworkPlan {
            agent_id: "main".to_owned(),
            session_key: "agent:main:main".to_owned(),
            run_id: run_id.to_owned(),
            session: "calm-fox".to_owned(),
            command: "curl https://a.test".to_owned(),
            cwd: "/work".to_owned(),
            scope: "agent main".to_owned(),
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn an_approval_is_of_one_run_name_and_port_and_a_grant_of_the_last_two() {
        let one = plan("r1", "a.test", 443);
        assert_eq!(one.approval_id(), plan("r1", "a.test", 443).approval_id());
        assert!(uuid::Uuid::parse_str(&one.approval_id()).is_ok());
        for other in [
            plan("r2", "a.test", 443),
            plan("r1", "b.test", 443),
            plan("r1", "a.test", 80),
            plan("r1", "a.test\u{0}443", 443),
        ] {
            assert_ne!(one.approval_id(), other.approval_id());
            assert_ne!(one.digest(), other.digest());
        }
        let granted = one.content_digest();
        assert_eq!(granted, plan("r2", "a.test", 443).content_digest());
        assert_ne!(granted, plan("r1", "a.test", 80).content_digest());
        assert_ne!(granted, plan("r1", "sub.a.test", 443).content_digest());
    }
}
