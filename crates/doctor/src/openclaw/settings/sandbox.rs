//! Imports the sandbox of the other config: settings that the native sandbox has are imported, the
//! rest is reported. Commands that ran in a sandbox there must never run on the host here.

use interlock_config::{Host, KeyPath, SandboxMode};
use serde_json::{Map, Value, json};

use super::{SettingPlace, SettingsPlanner, is_empty, shown_value, take};
use crate::openclaw::ImportedValue;
use crate::openclaw::rules::{ImportRule, KeyRule};

const fn rule(
    key: &'static str,
    here: Option<&'static str>,
    rule: ImportRule,
    reason: &'static str,
) -> KeyRule {
    KeyRule {
        key,
        here,
        rule,
        reason,
    }
}

const GROUPS: &str = "a limit; where the system has no control group for it, runs are refused";

/// The keys of `sandbox`, for all agents or for one.
#[rustfmt::skip]
const SANDBOX_RULES: &[KeyRule] = &[
    rule("sandbox.scope", None, ImportRule::Neutral, "what shares a sandbox"),
    rule("sandbox.backend", None, ImportRule::OnlyWords(&["native"]), "runs are confined by the native sandbox, which needs no other program"),
    rule("sandbox.docker.memory", Some("sandbox.limits.memory"), ImportRule::Neutral, GROUPS),
    rule("sandbox.docker.cpus", Some("sandbox.limits.cpus"), ImportRule::Neutral, GROUPS),
    rule("sandbox.docker.pidsLimit", Some("sandbox.limits.pids"), ImportRule::Smallest, "more processes would be allowed"),
    rule("sandbox.docker.binds", Some("sandbox.binds"), ImportRule::Loosening, "runs see these paths, read-only without `rw`"),
    rule("sandbox.prune.idleHours", None, ImportRule::Neutral, "a time"),
    rule("sandbox.prune.maxAgeDays", None, ImportRule::Neutral, "a time"),
];

const READ_ACCESS: KeyRule = rule(
    "sandbox.workspaceAccess",
    None,
    ImportRule::OnlyWords(&["none", "ro"]),
    "the native sandbox has `none`, `ro` and `rw`",
);

const WRITE_ACCESS: KeyRule = rule(
    "sandbox.workspaceAccess",
    None,
    ImportRule::Loosening,
    "sandboxed runs change the workspace",
);

impl SettingsPlanner<'_> {
    /// Imports `sandbox` of an agent or of all agents. `tools` is the value that contains
    /// `tools.exec.host`, and its place.
    pub(super) fn take_sandbox(
        &mut self,
        theirs: &mut Value,
        place: &SettingPlace<'_>,
        tools: (&mut Value, &SettingPlace<'_>),
    ) {
        let Some(sandbox) = take(theirs, "sandbox") else {
            return;
        };
        let mut rest = json!({ "sandbox": sandbox });
        let mode = take(&mut rest, "sandbox.mode");
        self.take_mode(mode.as_ref(), place, tools);
        if let Some(binds) = rest.pointer_mut("/sandbox/docker/binds") {
            self.leave_strange_binds(binds, place);
        }
        // Only the network `none` is imported.
        if rest.pointer("/sandbox/docker/network") == Some(&json!("none")) {
            take(&mut rest, "sandbox.docker.network");
        }
        let access = rest.pointer("/sandbox/workspaceAccess");
        let access = if access == Some(&json!("rw")) {
            WRITE_ACCESS
        } else {
            READ_ACCESS
        };
        for rule in [access].iter().chain(SANDBOX_RULES) {
            self.apply(rule, &mut rest, place);
        }
        let docker = take(&mut rest, "sandbox.docker");
        self.leave_keys(docker.as_ref(), &format!("{}sandbox.docker.", place.theirs));
        let left = rest.get("sandbox");
        self.leave_keys(left, &format!("{}sandbox.", place.theirs));
    }

    /// Imports the stricter mode. An unknown mode disables the exec tool, because it is not known
    /// which runs were sandboxed there.
    fn take_mode(
        &mut self,
        theirs: Option<&Value>,
        place: &SettingPlace<'_>,
        (rest, tools): (&mut Value, &SettingPlace<'_>),
    ) {
        let Some(theirs) = theirs else {
            return;
        };
        let path = format!("{}sandbox.mode", place.theirs);
        let key = place.ours.clone().key("sandbox").key("mode");
        let shown = format!("{}sandbox.mode", place.shown);
        let ours = self.text.get(&key);
        let level = |value: &Value| {
            let mut words = SandboxMode::WORDS.iter();
            words.position(|word| value.as_str() == Some(word))
        };
        match (level(theirs), ours.as_ref().and_then(level)) {
            (Some(wanted), Some(own)) if wanted == own => {}
            (Some(wanted), Some(own)) if wanted < own => {
                let what = format!("`{}` would sandbox fewer runs", shown_value(theirs));
                self.report.left.push(ImportedValue::new(&path, what));
            }
            (Some(0), None) if place.agent.is_empty() => {}
            (Some(0), None) if !self.has_sandbox() => {}
            (Some(0), None) => {
                let what = "the agent would leave the sandbox that all agents have here";
                self.report.left.push(ImportedValue::new(&path, what));
            }
            (Some(_), _) => match self.set(&key, &shown, theirs) {
                Ok(()) => {
                    let what = format!(
                        "{}: these runs are in the native sandbox, by the policy of tools.sandbox.exec",
                        shown_value(theirs)
                    );
                    let taken = ImportedValue::new(&path, what);
                    self.report.taken.push(taken.loosening());
                }
                Err(reason) => self.report.left.push(ImportedValue::new(&path, reason)),
            },
            (None, _) => {
                let what = format!(
                    "{} is not a mode that is known here, so every call without a sandbox is refused",
                    shown_value(theirs)
                );
                self.report.left.push(ImportedValue::new(&path, what));
            }
        }
        if level(theirs) != Some(0) {
            self.keep_inside(level(theirs).is_none(), rest, tools);
        }
    }

    /// Whether all agents have a sandbox here after the edits so far.
    fn has_sandbox(&self) -> bool {
        let mode = self.config().agents.defaults.sandbox.mode;
        mode.is_some_and(|mode| mode != SandboxMode::Off)
    }

    /// Keeps runs in their sandbox if a host outside it is configured, there or here.
    fn keep_inside(&mut self, is_closed: bool, rest: &mut Value, tools: &SettingPlace<'_>) {
        let theirs = rest.pointer("/tools/exec/host").cloned();
        let is_outside =
            |host: &Value| host.as_str() == Some("gateway") || host.as_str() == Some("node");
        let leaves_here = matches!(
            self.config().exec_for(tools.agent).host,
            Some(Host::Gateway | Host::Node)
        );
        if !is_closed && !leaves_here && !theirs.as_ref().is_some_and(is_outside) {
            return;
        }
        take(rest, "tools.exec.host");
        let keys = ["tools", "exec", "host"];
        let key = keys
            .iter()
            .fold(tools.ours.clone(), |key: KeyPath, name| key.key(name));
        let shown = format!("{}tools.exec.host", tools.shown);
        let path = format!("{}tools.exec.host", tools.theirs);
        match self.set(&key, &shown, &json!("sandbox")) {
            Ok(()) => {
                let what = "`sandbox`: what ran in a sandbox there does not run on a host here";
                let command = format!("interlock config set {shown} gateway");
                let value = ImportedValue::new(path, what).with_command(command);
                self.report.changed.push(value);
            }
            Err(reason) => self.report.left.push(ImportedValue::new(path, reason)),
        }
    }

    /// Keeps binds that have the same meaning here, and reports the others.
    fn leave_strange_binds(&mut self, binds: &mut Value, place: &SettingPlace<'_>) {
        let Some(list) = binds.as_array_mut() else {
            return;
        };
        let count = list.len();
        list.retain(|bind| {
            let parts: Vec<&str> = bind.as_str().unwrap_or_default().split(':').collect();
            let is_path = |path: &str| path.starts_with('/');
            match parts.as_slice() {
                [source, target] | [source, target, "ro" | "rw"] => {
                    is_path(source) && is_path(target)
                }
                _ => false,
            }
        });
        let left = count - list.len();
        if left > 0 {
            let what = format!("{left} of {count} are not SOURCE:TARGET[:ro|rw] of whole paths");
            let path = format!("{}sandbox.docker.binds", place.theirs);
            self.report.left.push(ImportedValue::new(path, what));
        }
        if list.is_empty() {
            *binds = json!({});
        }
    }

    fn leave_keys(&mut self, rest: Option<&Value>, path: &str) {
        let keys = rest.and_then(Value::as_object);
        for (name, value) in keys.into_iter().flat_map(Map::iter) {
            if !is_empty(value) {
                let what = "the native sandbox has no such key";
                let left = ImportedValue::new(format!("{path}{name}"), what);
                self.report.left.push(left);
            }
        }
    }
}
