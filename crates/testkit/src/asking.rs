//! Requests for approval, and the callers that wait for a decision.

use std::process::{Child, Stdio};

use serde_json::Value;

use super::{Machine, Run, eventually};

/// `interlock exec` that waits for a decision, with the short id of its approval.
pub struct Waiting {
    pub child: Child,
    pub id: String,
}

impl Waiting {
    pub fn new(machine: &Machine, arguments: &[&str]) -> Self {
        let before = machine.pending_ids();
        let mut all = vec!["exec"];
        all.extend(arguments);
        let child = machine
            .command(&all)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let new = || {
            let mut ids = machine.pending_ids().into_iter();
            ids.find(|id| !before.contains(id))
        };
        eventually("a question is put down", || new().is_some());
        Self {
            child,
            id: new().unwrap(),
        }
    }

    pub fn end(self) -> Run {
        Run::of(&self.child.wait_with_output().unwrap())
    }
}

impl Machine {
    pub fn pending(&self) -> Vec<Value> {
        let listed = self.ok(&["approvals", "pending", "--json"]).json();
        listed["approvals"].as_array().unwrap().clone()
    }

    pub fn pending_ids(&self) -> Vec<String> {
        let id = |approval: &Value| approval["shortId"].as_str().unwrap().to_owned();
        self.pending().iter().map(id).collect()
    }

    /// Requests an approval without a waiting caller, and returns its id.
    pub fn put_down(&self, arguments: &[&str]) -> String {
        let mut all = vec!["exec", "--no-wait", "--json"];
        all.extend(arguments);
        let run = self.run(&all);
        assert_eq!(run.code, 3, "{run:#?}");
        let result = run.json();
        assert_eq!(result["status"], "approval-pending");
        result["approvalId"].as_str().unwrap().to_owned()
    }

    /// Requests an approval and allows it, so that it is ready to run.
    pub fn approved(&self, arguments: &[&str]) -> String {
        let id = self.put_down(arguments);
        self.ok(&["approvals", "approve", &id]);
        id
    }

    /// Runs an approved command.
    pub fn run_approved(&self, id: &str, arguments: &[&str]) -> Run {
        let mut all = vec!["exec", "--approval", id];
        all.extend(arguments);
        self.run(&all)
    }

    pub fn database(&self) -> rusqlite::Connection {
        let database = rusqlite::Connection::open(self.state().join("interlock.db")).unwrap();
        let patience = std::time::Duration::from_secs(10);
        database.busy_timeout(patience).unwrap();
        database
    }
}
