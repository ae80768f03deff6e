//! Checks of `tools.exec.*`, and of the levels that the document and the config give together.

use std::collections::BTreeMap;

use interlock_config::types::Sandbox;
use interlock_config::{GatewayBind, Host, LayeredSettings as _, OverruledSandbox, SandboxMode};
use interlock_host::tool_levels;
use interlock_plan::SandboxView;
use interlock_policy::{AgentId, Ask, Security, auto_allow_skills, check_tool, quote};
use interlock_rules::levels;
use serde_json::json;

use super::table::checks;
use super::{AuditSubject, FindingSeverity, SecurityFinding};

pub(super) fn check(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    check_full(subject, findings);
    check_sandbox_host(subject, findings);
    check_overruled_sandboxes(subject, findings);
    check_sandboxes(subject, findings);
    check_file_tools(subject, findings);
    check_skills(subject, findings);
}

/// The path of an agent's own values in the config.
fn own_path(subject: &AuditSubject, agent: &AgentId) -> Option<String> {
    let list = &subject.config.agents.list;
    let index = list
        .iter()
        .position(|own| own.id.eq_ignore_ascii_case(agent.as_str()))?;
    Some(format!("agents.list[{index}]"))
}

fn check_full(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let is_open = |agent: &AgentId| {
        let levels = levels(&subject.config, &subject.document, agent, None);
        levels.security.value() == Security::Full && levels.ask.value() != Ask::Always
    };
    let reaches_network = !matches!(
        subject.config.gateway.bind,
        None | Some(GatewayBind::Loopback)
    );
    let severity = if reaches_network {
        FindingSeverity::Critical
    } else {
        FindingSeverity::Warn
    };
    let mut by_common_values = Vec::new();
    for agent in subject.agents().into_iter().filter(is_open) {
        let own = own_path(subject, &agent).filter(|_| {
            let exec = subject
                .config
                .agent(agent.as_str())
                .map(|own| &own.tools.exec);
            exec.is_some_and(|exec| exec.security.is_some() || exec.mode.is_some())
        });
        let Some(path) = own else {
            by_common_values.push(agent);
            continue;
        };
        // A preset does not change an agent's own value.
        let key = format!("{path}.tools.exec");
        let exec = subject
            .config
            .agent(agent.as_str())
            .map(|own| &own.tools.exec);
        let fix = if exec.is_some_and(|exec| exec.mode.is_some()) {
            format!("interlock config set {} ask", quote(&format!("{key}.mode")))
        } else {
            format!(
                "interlock config set {} allowlist && interlock config set {} on-miss",
                quote(&format!("{key}.security")),
                quote(&format!("{key}.ask")),
            )
        };
        findings.push(checks::SECURITY_FULL.finding(
            severity,
            key,
            format!("the effective security of the agent {agent} is `full`"),
            fix,
        ));
    }
    if !by_common_values.is_empty() {
        findings.push(checks::SECURITY_FULL.finding(
            severity,
            "tools.exec.security",
            format!(
                "the effective security is `full` for {}",
                names(&by_common_values)
            ),
            "interlock exec-policy preset cautious",
        ));
    }
}

fn names(agents: &[AgentId]) -> String {
    let agents: Vec<&str> = agents.iter().map(AgentId::as_str).collect();
    match agents.as_slice() {
        [one] => format!("the agent {one}"),
        several => format!("the agents {}", several.join(", ")),
    }
}

fn check_sandbox_host(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let is_off = |settings: &Sandbox| {
        settings.mode.is_none_or(|mode| mode == SandboxMode::Off) && settings.required != Some(true)
    };
    let defaults = &subject.config.agents.defaults.sandbox;
    if subject.config.tools.exec.host == Some(Host::Sandbox) && is_off(defaults) {
        findings.push(checks::HOST_SANDBOX_DEFAULTS.finding(
            FindingSeverity::Warn,
            "tools.exec.host",
            "tools.exec.host is `sandbox`",
            "interlock config set tools.exec.host gateway",
        ));
    }
    for (index, agent) in subject.config.agents.list.iter().enumerate() {
        let settings = agent.sandbox.over(defaults);
        if agent.tools.exec.host == Some(Host::Sandbox) && is_off(&settings) {
            let key = format!("agents.list[{index}].tools.exec.host");
            findings.push(checks::HOST_SANDBOX_AGENTS.finding(
                FindingSeverity::Warn,
                key.clone(),
                format!("tools.exec.host of the agent {} is `sandbox`", agent.id),
                format!("interlock config set {} gateway", quote(&key)),
            ));
        }
    }
}

/// Reports one finding per key. A key for all agents is reported once, with all agents.
fn check_overruled_sandboxes(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let mut by_key: BTreeMap<String, (OverruledSandbox, Vec<AgentId>)> = BTreeMap::new();
    for agent in subject.agents() {
        if let Some(overruled) = subject.config.overruled_sandbox(agent.as_str()) {
            let key = overruled.key.clone();
            let (_, agents) = by_key.entry(key).or_insert((overruled, Vec::new()));
            agents.push(agent);
        }
    }
    for (key, (overruled, agents)) in by_key {
        findings.push(checks::SANDBOX_OVERRULED.finding(
            FindingSeverity::Warn,
            key,
            format!("{} of {}", overruled.words(), names(&agents)),
            overruled.remedy(),
        ));
    }
}

/// Reports settings that weaken a configured sandbox.
fn check_sandboxes(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let agents = &subject.config.agents;
    let own = agents
        .list
        .iter()
        .enumerate()
        .map(|(index, agent)| (format!("agents.list[{index}].sandbox"), &agent.sandbox));
    let defaults = (
        "agents.defaults.sandbox".to_owned(),
        &agents.defaults.sandbox,
    );
    for (key, settings) in std::iter::once(defaults).chain(own) {
        if settings.allow_host_root == Some(true) {
            findings.push(checks::SANDBOX_HOST_ROOT.finding(
                FindingSeverity::Warn,
                format!("{key}.allowHostRoot"),
                format!("{key}.allowHostRoot is true"),
                format!(
                    "interlock config unset {}",
                    quote(&format!("{key}.allowHostRoot"))
                ),
            ));
        }
        if settings.view == Some(SandboxView::Host) {
            findings.push(checks::SANDBOX_VIEW_HOST.finding(
                FindingSeverity::Info,
                format!("{key}.view"),
                format!("{key}.view is `host`"),
                format!(
                    "interlock config set {} minimal",
                    quote(&format!("{key}.view"))
                ),
            ));
        }
    }
}

fn check_file_tools(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    for agent in subject.agents() {
        let tools = tool_levels(&subject.config, &agent);
        let exec = subject.config.exec_for(agent.as_str());
        let files_are_closed =
            check_tool("apply_patch", &tools).is_err() || exec.apply_patch.enabled == Some(false);
        let exec_is_open = check_tool("exec", &tools).is_ok()
            && levels(&subject.config, &subject.document, &agent, None)
                .security
                .value()
                != Security::Deny;
        if !files_are_closed || !exec_is_open {
            continue;
        }
        let own = own_path(subject, &agent);
        let (key, deny) = match &own {
            Some(path) => {
                let own = subject.config.agent(agent.as_str());
                let deny = own.and_then(|own| own.tools.deny.clone());
                (format!("{path}.tools.deny"), deny)
            }
            None => ("tools.deny".to_owned(), subject.config.tools.deny.clone()),
        };
        let mut deny = deny.unwrap_or_default();
        deny.push("group:runtime".to_owned());
        findings.push(checks::FS_TOOLS_DISABLED.finding(
            FindingSeverity::Warn,
            key.clone(),
            format!("apply_patch is closed to the agent {agent}, and exec is open to it"),
            format!(
                "interlock config set {} {}",
                quote(&key),
                quote(&json!(deny).to_string())
            ),
        ));
    }
}

fn check_skills(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let agents = subject.agents();
    let agents: Vec<AgentId> = agents
        .into_iter()
        .filter(|agent| auto_allow_skills(&subject.document, agent))
        .collect();
    if !agents.is_empty() {
        findings.push(checks::AUTO_ALLOW_SKILLS.finding(
            FindingSeverity::Warn,
            "autoAllowSkills",
            format!("autoAllowSkills is on for {}", names(&agents)),
            "interlock exec-policy set --no-auto-allow-skills",
        ));
    }
}
