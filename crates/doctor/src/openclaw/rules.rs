//! How each config key of OpenClaw is imported. A key that is not in the table is not imported:
//! Interlock has no such key, or the key has another meaning here.

/// How a value is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportRule {
    /// The value cannot allow more. It is imported if Interlock has no value yet.
    Neutral,
    /// `tools.exec.security`, `ask` and `mode`: the stricter value wins, for the agents that it
    /// applies to.
    Levels,
    /// The value is imported only if it is this one, or if Interlock already has it. The other
    /// value would loosen the policy.
    OnlyIf(bool),
    /// The smaller number wins.
    Smallest,
    /// A list that allows: only names in both lists stay. If the config of Interlock has no list,
    /// `Some` is its default list, and `None` means that everything is allowed.
    CommonNames(Option<&'static [&'static str]>),
    /// A list that forbids: names of both lists are combined.
    AllNames,
    /// A choice that is imported only if it is one of these words.
    OnlyWords(&'static [&'static str]),
    /// Imported, and reported as a value that allows more.
    Loosening,
    /// Not imported. The owner can set it with a command.
    Left,
}

/// A key, relative to the config or to an agent, and how it is imported.
#[derive(Debug, Clone, Copy)]
pub struct KeyRule {
    pub key: &'static str,
    /// The key in Interlock, if it has another name.
    pub here: Option<&'static str>,
    pub rule: ImportRule,
    pub reason: &'static str,
}

const fn rule(key: &'static str, rule: ImportRule, reason: &'static str) -> KeyRule {
    KeyRule {
        key,
        here: None,
        rule,
        reason,
    }
}

const BUILT_IN_SAFE_BINS: &[&str] = interlock_policy::safe_bin::DEFAULT_SAFE_BINS;

/// Keys that the config and an agent have.
#[rustfmt::skip]
pub const TOOL_RULES: &[KeyRule] = &[
    rule("tools.exec.host", ImportRule::OnlyWords(&["auto", "gateway", "node", "sandbox"]), "where commands run; `sandbox` refuses calls of conversations without one"),
    rule("tools.exec.security", ImportRule::Levels, "the stricter one counts"),
    rule("tools.exec.ask", ImportRule::Levels, "the stricter one counts"),
    rule("tools.exec.mode", ImportRule::Levels, "the stricter one counts"),
    rule("tools.exec.node", ImportRule::Neutral, "names a node"),
    rule("tools.exec.strictInlineEval", ImportRule::OnlyIf(true), "`false` would allow inline code without an approval"),
    rule("tools.exec.safeBins", ImportRule::CommonNames(Some(BUILT_IN_SAFE_BINS)), "further safe bins would run without an entry"),
    rule("tools.exec.safeBinTrustedDirs", ImportRule::Left, "programs of further directories would run as safe bins"),
    rule("tools.exec.safeBinProfiles", ImportRule::Left, "a profile lets a program run without an entry"),
    rule("tools.exec.pathPrepend", ImportRule::Left, "names would lead to programs of these directories"),
    rule("tools.exec.backgroundMs", ImportRule::Neutral, "a time"),
    rule("tools.exec.timeoutSec", ImportRule::Neutral, "a time"),
    KeyRule { key: "tools.exec.timeoutSeconds", here: Some("tools.exec.timeoutSec"), rule: ImportRule::Neutral, reason: "a time" },
    rule("tools.exec.approvalRunningNoticeMs", ImportRule::Neutral, "a time"),
    rule("tools.exec.cleanupMs", ImportRule::Neutral, "a time"),
    rule("tools.exec.notifyOnExit", ImportRule::Neutral, "events only"),
    rule("tools.exec.notifyOnExitEmptySuccess", ImportRule::Neutral, "events only"),
    rule("tools.exec.grantExpiryDays", ImportRule::Smallest, "remembered approvals would live longer"),
    rule("tools.exec.applyPatch.enabled", ImportRule::OnlyIf(false), "the tool would be open again"),
    rule("tools.exec.applyPatch.workspaceOnly", ImportRule::OnlyIf(true), "patches could leave the workspace"),
    rule("tools.exec.applyPatch.allowModels", ImportRule::CommonNames(None), "further models would get the tool"),
    rule("tools.exec.commandHighlighting", ImportRule::Neutral, "colors only"),
    rule("tools.exec.reviewer", ImportRule::Left, "not available in this version"),
    rule("tools.allow", ImportRule::CommonNames(None), "further tools would be open"),
    rule("tools.deny", ImportRule::AllNames, "what either forbids is forbidden"),
    rule("tools.elevated.enabled", ImportRule::OnlyIf(false), "runs could leave their sandbox"),
    rule("tools.elevated.allowFrom", ImportRule::Left, "further senders could leave their sandbox"),
];

/// Keys that only the config has.
#[rustfmt::skip]
pub const CONFIG_RULES: &[KeyRule] = &[
    rule("agents.defaults.workspace", ImportRule::Loosening, "agents read and patch files there"),
    rule("gateway.port", ImportRule::Neutral, "a port of this machine"),
    rule("gateway.bind", ImportRule::OnlyWords(&["loopback"]), "the gateway would be reached from other machines"),
    rule("gateway.customBindHost", ImportRule::Left, "the gateway would be reached from other machines"),
    rule("gateway.auth.mode", ImportRule::OnlyWords(&["token"]), "`none` lets callers in without proof, and a password stays where it is"),
    rule("gateway.tls.enabled", ImportRule::OnlyIf(true), "the port would speak plain text"),
    rule("gateway.nodes.denyCommands", ImportRule::AllNames, "what either forbids is forbidden"),
    rule("gateway.nodes.allowCommands", ImportRule::Left, "nodes could offer further commands"),
    rule("gateway.tools.deny", ImportRule::AllNames, "what either forbids is forbidden"),
    rule("gateway.tools.allow", ImportRule::Left, "there it opens tools that are closed by default"),
];

/// Parts of the config that must never be read: they contain secrets, or settings that Interlock
/// lacks.
#[rustfmt::skip]
pub const CLOSED_PARTS: &[(&str, &str)] = &[
    ("gateway.auth.token", "a secret; mint a new one"),
    ("gateway.auth.password", "a secret; put a new one into a file"),
    ("gateway.remote", "the address and the secret of a connection of the other program"),
    ("gateway.tls.certPath", "the other program's certificate"),
    ("gateway.tls.keyPath", "the other program's key"),
    ("channels", "chat channels are not available in this version, and their tokens stay where they are"),
    ("approvals", "chat channels are not available in this version"),
    ("auth", "secrets of the other program"),
    ("env", "variables of the other program, which may be secrets"),
    ("secrets", "secrets of the other program"),
    ("models", "models belong to the agent, and their keys are secrets"),
    ("meta", "notes of the other program"),
    ("$include", "other files are not read; import a config without includes"),
];
