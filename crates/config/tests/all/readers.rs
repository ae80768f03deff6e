//! Every key that the config accepts is read by the program. A key without a reader would be a promise
//! that is not kept: this test fails until such a key has a reader, or is marked as not available.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use interlock_config::schema::{CONFIG, ConfigField, ConfigKind};

/// A key, the source file that acts on its value, and the words by which that file reads it. An
/// agent's `tools` has the keys of the global one: one row stands for both, because `exec_for` and
/// `tool_levels` lay one over the other.
#[rustfmt::skip]
const READERS: &[(&str, &str, &str)] = &[
    ("tools.allow", "crates/local/src/tool_levels.rs", "tools.allow"),
    ("tools.deny", "crates/local/src/tool_levels.rs", "tools.deny"),
    ("tools.exec.host", "crates/local/src/route.rs", "exec.host"),
    ("tools.exec.mode", "crates/config/src/layer.rs", "self.mode.map(ExecMode::policy)"),
    ("tools.exec.security", "crates/rules/src/layers.rs", "merged.security"),
    ("tools.exec.ask", "crates/rules/src/layers.rs", "merged.ask"),
    ("tools.exec.node", "crates/dispatch/src/tools/node_run.rs", "exec.node"),
    ("tools.exec.pathPrepend", "crates/local/src/scope.rs", ".path_prepend"),
    ("tools.exec.safeBins", "crates/rules/src/assemble.rs", "exec.safe_bins"),
    ("tools.exec.safeBinTrustedDirs", "crates/rules/src/assemble.rs", "exec.safe_bin_trusted_dirs"),
    ("tools.exec.safeBinProfiles.*.minPositional", "crates/rules/src/assemble.rs", "profile.min_positional"),
    ("tools.exec.safeBinProfiles.*.maxPositional", "crates/rules/src/assemble.rs", "profile.max_positional"),
    ("tools.exec.safeBinProfiles.*.allowedValueFlags", "crates/rules/src/assemble.rs", "profile.allowed_value_flags"),
    ("tools.exec.safeBinProfiles.*.allowedFlags", "crates/rules/src/assemble.rs", "profile.allowed_flags"),
    ("tools.exec.safeBinProfiles.*.deniedFlags", "crates/rules/src/assemble.rs", "profile.denied_flags"),
    ("tools.exec.strictInlineEval", "crates/rules/src/assemble.rs", "exec.strict_inline_eval"),
    ("tools.exec.commandHighlighting", "crates/approvals/src/pending.rs", "exec.command_highlighting"),
    ("tools.exec.backgroundMs", "crates/dispatch/src/tools/exec.rs", "exec().background_after()"),
    ("tools.exec.timeoutSec", "crates/local/src/scope.rs", ".timeout()"),
    ("tools.exec.timeoutSeconds", "crates/local/src/scope.rs", ".timeout()"),
    ("tools.exec.effects", "crates/host/src/preview.rs", ".effects"),
    ("tools.exec.approvalRunningNoticeMs", "crates/approvals/src/events.rs", "exec.running_notice()"),
    ("tools.exec.approvalWaitMs", "crates/dispatch/src/tools/mod.rs", "exec.approval_wait_ms"),
    ("push.detail", "crates/methods/src/push/follow.rs", "push.detail"),
    ("push.endpoints", "crates/methods/src/push/follow.rs", "push.endpoints"),
    ("approvals.exec.agentFilter", "crates/channels/src/settings.rs", "exec.agent_filter"),
    ("approvals.exec.enabled", "crates/channels/src/settings.rs", "exec.enabled"),
    ("approvals.exec.mode", "crates/channels/src/settings.rs", "exec.mode"),
    ("approvals.exec.sessionFilter", "crates/channels/src/settings.rs", "exec.session_filter"),
    ("approvals.exec.targets[].accountId", "crates/channels/src/settings.rs", "target.account_id"),
    ("approvals.exec.targets[].afterSec", "crates/channels/src/settings.rs", "target.after_sec"),
    ("approvals.exec.targets[].channel", "crates/channels/src/settings.rs", "target.channel"),
    ("approvals.exec.targets[].threadId", "crates/channels/src/settings.rs", "target.thread_id"),
    ("approvals.exec.targets[].to", "crates/channels/src/settings.rs", "target.to"),
    ("channels.matrix.accessToken", "crates/channels/src/settings/accounts.rs", "matrix.access_token"),
    ("channels.matrix.accounts.*.accessToken", "crates/channels/src/settings/accounts.rs", "account.access_token"),
    ("channels.matrix.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "matrix.allow_private_network"),
    ("channels.matrix.accounts.*.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "account.allow_private_network"),
    ("channels.matrix.enabled", "crates/channels/src/settings/accounts.rs", "matrix.enabled"),
    ("channels.matrix.accounts.*.enabled", "crates/channels/src/settings/accounts.rs", "account.enabled"),
    ("channels.matrix.homeserver", "crates/channels/src/settings/accounts.rs", "matrix.homeserver"),
    ("channels.matrix.accounts.*.homeserver", "crates/channels/src/settings/accounts.rs", "account.homeserver"),
    ("channels.matrix.tokenFile", "crates/channels/src/settings/accounts.rs", "matrix.token_file"),
    ("channels.matrix.accounts.*.tokenFile", "crates/channels/src/settings/accounts.rs", "account.token_file"),
    ("channels.matrix.userId", "crates/channels/src/settings/accounts.rs", "matrix.user_id"),
    ("channels.matrix.accounts.*.userId", "crates/channels/src/settings/accounts.rs", "account.user_id"),
    ("channels.telegram.botToken", "crates/channels/src/settings/accounts.rs", "telegram.bot_token"),
    ("channels.telegram.accounts.*.botToken", "crates/channels/src/settings/accounts.rs", "account.bot_token"),
    ("channels.telegram.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "telegram.allow_private_network"),
    ("channels.telegram.accounts.*.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "account.allow_private_network"),
    ("channels.telegram.enabled", "crates/channels/src/settings/accounts.rs", "telegram.enabled"),
    ("channels.telegram.accounts.*.enabled", "crates/channels/src/settings/accounts.rs", "account.enabled"),
    ("channels.telegram.apiRoot", "crates/channels/src/settings/accounts.rs", "telegram.api_root"),
    ("channels.telegram.accounts.*.apiRoot", "crates/channels/src/settings/accounts.rs", "account.api_root"),
    ("channels.telegram.tokenFile", "crates/channels/src/settings/accounts.rs", "telegram.token_file"),
    ("channels.telegram.accounts.*.tokenFile", "crates/channels/src/settings/accounts.rs", "account.token_file"),
    ("channels.slack.botToken", "crates/channels/src/settings/accounts.rs", "slack.bot_token"),
    ("channels.slack.accounts.*.botToken", "crates/channels/src/settings/accounts.rs", "account.bot_token"),
    ("channels.slack.tokenFile", "crates/channels/src/settings/accounts.rs", "slack.token_file"),
    ("channels.slack.accounts.*.tokenFile", "crates/channels/src/settings/accounts.rs", "account.token_file"),
    ("channels.slack.appToken", "crates/channels/src/settings/accounts.rs", "slack.app_token"),
    ("channels.slack.accounts.*.appToken", "crates/channels/src/settings/accounts.rs", "account.app_token"),
    ("channels.slack.appTokenFile", "crates/channels/src/settings/accounts.rs", "slack.app_token_file"),
    ("channels.slack.accounts.*.appTokenFile", "crates/channels/src/settings/accounts.rs", "account.app_token_file"),
    ("channels.slack.apiRoot", "crates/channels/src/settings/accounts.rs", "slack.api_root"),
    ("channels.slack.accounts.*.apiRoot", "crates/channels/src/settings/accounts.rs", "account.api_root"),
    ("channels.slack.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "slack.allow_private_network"),
    ("channels.slack.accounts.*.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "account.allow_private_network"),
    ("channels.slack.enabled", "crates/channels/src/settings/accounts.rs", "slack.enabled"),
    ("channels.slack.accounts.*.enabled", "crates/channels/src/settings/accounts.rs", "account.enabled"),
    ("channels.discord.token", "crates/channels/src/settings/accounts.rs", "discord.token"),
    ("channels.discord.accounts.*.token", "crates/channels/src/settings/accounts.rs", "account.token"),
    ("channels.discord.tokenFile", "crates/channels/src/settings/accounts.rs", "discord.token_file"),
    ("channels.discord.accounts.*.tokenFile", "crates/channels/src/settings/accounts.rs", "account.token_file"),
    ("channels.discord.apiRoot", "crates/channels/src/settings/accounts.rs", "discord.api_root"),
    ("channels.discord.accounts.*.apiRoot", "crates/channels/src/settings/accounts.rs", "account.api_root"),
    ("channels.discord.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "discord.allow_private_network"),
    ("channels.discord.accounts.*.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "account.allow_private_network"),
    ("channels.discord.enabled", "crates/channels/src/settings/accounts.rs", "discord.enabled"),
    ("channels.discord.accounts.*.enabled", "crates/channels/src/settings/accounts.rs", "account.enabled"),
    ("channels.matrix.execApprovals.afterSec", "crates/channels/src/settings.rs", "own.after_sec"),
    ("channels.matrix.execApprovals.agentFilter", "crates/channels/src/settings.rs", "own.agent_filter"),
    ("channels.matrix.execApprovals.approvers", "crates/channels/src/settings.rs", "own.approvers"),
    ("channels.matrix.execApprovals.cleanupAfterResolve", "crates/channels/src/outbox.rs", "own.cleanup_after_resolve"),
    ("channels.matrix.execApprovals.decisions", "crates/channels/src/settings.rs", "own.decisions"),
    ("channels.matrix.execApprovals.enabled", "crates/channels/src/settings.rs", "own.enabled"),
    ("channels.matrix.execApprovals.sessionFilter", "crates/channels/src/settings.rs", "own.session_filter"),
    ("channels.matrix.execApprovals.target", "crates/channels/src/settings.rs", "own.target"),
    ("channels.telegram.execApprovals.afterSec", "crates/channels/src/settings.rs", "own.after_sec"),
    ("channels.telegram.execApprovals.agentFilter", "crates/channels/src/settings.rs", "own.agent_filter"),
    ("channels.telegram.execApprovals.approvers", "crates/channels/src/settings.rs", "own.approvers"),
    ("channels.telegram.execApprovals.cleanupAfterResolve", "crates/channels/src/outbox.rs", "own.cleanup_after_resolve"),
    ("channels.telegram.execApprovals.decisions", "crates/channels/src/settings.rs", "own.decisions"),
    ("channels.telegram.execApprovals.enabled", "crates/channels/src/settings.rs", "own.enabled"),
    ("channels.telegram.execApprovals.sessionFilter", "crates/channels/src/settings.rs", "own.session_filter"),
    ("channels.telegram.execApprovals.target", "crates/channels/src/settings.rs", "own.target"),
    ("channels.slack.execApprovals.afterSec", "crates/channels/src/settings.rs", "own.after_sec"),
    ("channels.slack.execApprovals.agentFilter", "crates/channels/src/settings.rs", "own.agent_filter"),
    ("channels.slack.execApprovals.approvers", "crates/channels/src/settings.rs", "own.approvers"),
    ("channels.slack.execApprovals.cleanupAfterResolve", "crates/channels/src/outbox.rs", "own.cleanup_after_resolve"),
    ("channels.slack.execApprovals.decisions", "crates/channels/src/settings.rs", "own.decisions"),
    ("channels.slack.execApprovals.enabled", "crates/channels/src/settings.rs", "own.enabled"),
    ("channels.slack.execApprovals.sessionFilter", "crates/channels/src/settings.rs", "own.session_filter"),
    ("channels.slack.execApprovals.target", "crates/channels/src/settings.rs", "own.target"),
    ("channels.discord.execApprovals.afterSec", "crates/channels/src/settings.rs", "own.after_sec"),
    ("channels.discord.execApprovals.agentFilter", "crates/channels/src/settings.rs", "own.agent_filter"),
    ("channels.discord.execApprovals.approvers", "crates/channels/src/settings.rs", "own.approvers"),
    ("channels.discord.execApprovals.cleanupAfterResolve", "crates/channels/src/outbox.rs", "own.cleanup_after_resolve"),
    ("channels.discord.execApprovals.decisions", "crates/channels/src/settings.rs", "own.decisions"),
    ("channels.discord.execApprovals.enabled", "crates/channels/src/settings.rs", "own.enabled"),
    ("channels.discord.execApprovals.sessionFilter", "crates/channels/src/settings.rs", "own.session_filter"),
    ("channels.discord.execApprovals.target", "crates/channels/src/settings.rs", "own.target"),
    ("channels.ntfy.execApprovals.afterSec", "crates/channels/src/settings.rs", "own.after_sec"),
    ("channels.ntfy.execApprovals.agentFilter", "crates/channels/src/settings.rs", "own.agent_filter"),
    ("channels.ntfy.execApprovals.sessionFilter", "crates/channels/src/settings.rs", "own.session_filter"),
    ("channels.ntfy.execApprovals.decisions", "crates/channels/src/settings.rs", "machine_approvals(config, kind)?.decisions"),
    ("channels.webhook.execApprovals.afterSec", "crates/channels/src/settings.rs", "own.after_sec"),
    ("channels.webhook.execApprovals.agentFilter", "crates/channels/src/settings.rs", "own.agent_filter"),
    ("channels.webhook.execApprovals.sessionFilter", "crates/channels/src/settings.rs", "own.session_filter"),
    ("channels.webhook.execApprovals.decisions", "crates/channels/src/settings.rs", "machine_approvals(config, kind)?.decisions"),
    ("channels.ntfy.accessToken", "crates/channels/src/settings/accounts.rs", "ntfy.access_token"),
    ("channels.ntfy.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "ntfy.allow_private_network"),
    ("channels.ntfy.enabled", "crates/channels/src/settings/accounts.rs", "ntfy.enabled"),
    ("channels.ntfy.tokenFile", "crates/channels/src/settings/accounts.rs", "ntfy.token_file"),
    ("channels.ntfy.topic", "crates/channels/src/settings/accounts.rs", "ntfy.topic"),
    ("channels.ntfy.url", "crates/channels/src/settings/accounts.rs", "ntfy.url"),
    ("channels.ntfy.allow", "crates/channels/src/rights.rs", "channels.ntfy.allow"),
    ("channels.webhook.allowPrivateNetwork", "crates/channels/src/settings/accounts.rs", "webhook.allow_private_network"),
    ("channels.webhook.enabled", "crates/channels/src/settings/accounts.rs", "webhook.enabled"),
    ("channels.webhook.secret", "crates/channels/src/settings/accounts.rs", "webhook.secret"),
    ("channels.webhook.secretFile", "crates/channels/src/settings/accounts.rs", "webhook.secret_file"),
    ("channels.webhook.decisionSecret", "crates/channels/src/settings/accounts.rs", "webhook.decision_secret"),
    ("channels.webhook.decisionSecretFile", "crates/channels/src/settings/accounts.rs", "webhook.decision_secret_file"),
    ("channels.webhook.url", "crates/channels/src/settings/accounts.rs", "webhook.url"),
    ("audit.retention", "crates/methods/src/upkeep.rs", "config.config().audit.retention"),
    ("tools.exec.maxPending", "crates/host/src/exec/ask.rs", "exec().most_pending()"),
    ("tools.exec.cleanupMs", "crates/host/src/exec/judged.rs", "config.keep_finished()"),
    ("tools.exec.notifyOnExit", "crates/approvals/src/events.rs", "exec.notifies_on_exit()"),
    ("tools.exec.notifyOnExitEmptySuccess", "crates/approvals/src/events.rs", "exec.notifies_on_empty_success()"),
    ("tools.exec.maxOutputChars", "crates/host/src/exec/judged.rs", "config.max_output_chars"),
    ("tools.exec.resultChars", "crates/dispatch/src/tools/mod.rs", "exec.result_chars()"),
    ("tools.exec.maxSpoolBytes", "crates/host/src/exec/judged.rs", "config.spool_quota()"),
    ("tools.exec.limits.memory", "crates/host/src/exec/judged.rs", "config.limits.memory_bytes()"),
    ("tools.exec.limits.cpus", "crates/host/src/exec/judged.rs", "config.limits.cpus"),
    ("tools.exec.limits.pids", "crates/host/src/exec/judged.rs", "config.limits.pids"),
    ("tools.exec.runAs", "crates/local/src/scope.rs", ".run_as"),
    ("tools.exec.leftovers", "crates/host/src/exec/judged.rs", "config.leftovers()"),
    ("tools.exec.shield", "crates/local/src/shield.rs", "exec.shield()"),
    ("tools.exec.tree", "crates/host/src/executables.rs", "exec().tree()"),
    ("tools.exec.nodeFromSandbox", "crates/local/src/route.rs", "exec.node_from_sandbox"),
    ("tools.exec.unboundApprovals", "crates/approvals/src/create.rs", "config.unbound_approvals"),
    ("tools.exec.requireRaceFree", "crates/host/src/exec/judged.rs", "config.requires_race_free()"),
    ("tools.exec.grantExpiryDays", "crates/approvals/src/decide.rs", "exec.grant_expiry_days"),
    ("tools.exec.applyPatch.enabled", "crates/host/src/patch/permit.rs", "settings.enabled"),
    ("tools.exec.applyPatch.workspaceOnly", "crates/host/src/patch/permit.rs", "settings.workspace_only"),
    ("tools.exec.applyPatch.allowModels", "crates/host/src/patch/permit.rs", "settings.allow_models"),
    ("tools.sandbox.tools.allow", "crates/host/src/sandbox.rs", "filter.allow"),
    ("tools.sandbox.tools.alsoAllow", "crates/host/src/sandbox.rs", "filter.also_allow"),
    ("tools.sandbox.tools.deny", "crates/host/src/sandbox.rs", "filter.deny"),
    ("tools.sandbox.exec.security", "crates/rules/src/layers.rs", "global.security"),
    ("tools.sandbox.exec.ask", "crates/rules/src/layers.rs", "global.ask"),
    ("tools.elevated.enabled", "crates/local/src/elevation.rs", "global.enabled"),
    ("tools.elevated.allowFrom", "crates/local/src/elevation.rs", "elevated.allow_from"),
    ("agents.defaults.elevatedDefault", "crates/local/src/elevation.rs", "agents.defaults.elevated_default"),
    ("agents.defaults.workspace", "crates/local/src/workspace.rs", "config.agents.defaults.workspace"),
    ("agents.defaults.sandbox.mode", "crates/sandbox/src/standing.rs", "settings.mode"),
    ("agents.defaults.sandbox.scope", "crates/sandbox/src/scope.rs", "self.settings.scope"),
    ("agents.defaults.sandbox.backend", "crates/sandbox/src/view.rs", ".backend"),
    ("agents.defaults.sandbox.required", "crates/sandbox/src/standing.rs", "settings.required"),
    ("agents.defaults.sandbox.allowHostRoot", "crates/sandbox/src/view.rs", "settings.allow_host_root"),
    ("agents.defaults.sandbox.workspaceAccess", "crates/sandbox/src/view.rs", "settings.workspace_access"),
    ("agents.defaults.sandbox.workspaceRoot", "crates/sandbox/src/view.rs", "settings.workspace_root"),
    ("agents.defaults.sandbox.view", "crates/sandbox/src/view.rs", "settings.view"),
    ("agents.defaults.sandbox.tree", "crates/sandbox/src/view.rs", ".tree"),
    ("agents.defaults.sandbox.binds", "crates/sandbox/src/view.rs", "settings.binds"),
    ("agents.defaults.sandbox.protect", "crates/sandbox/src/view/guards.rs", "settings.protect"),
    ("agents.defaults.sandbox.home.tools", "crates/sandbox/src/view/home.rs", "settings.home.tools"),
    ("agents.defaults.sandbox.home.caches", "crates/sandbox/src/view/home.rs", "settings.home.caches"),
    ("agents.defaults.sandbox.network.allow", "crates/sandbox/src/network.rs", "network.allow"),
    ("agents.defaults.sandbox.network.deny", "crates/sandbox/src/network.rs", "network.deny"),
    ("agents.defaults.sandbox.network.ask", "crates/sandbox/src/network.rs", "network.ask"),
    ("agents.defaults.sandbox.network.unixSockets", "crates/sandbox/src/view.rs", ".unix_sockets"),
    ("agents.defaults.sandbox.limits.memory", "crates/sandbox/src/view.rs", "own.memory"),
    ("agents.defaults.sandbox.limits.cpus", "crates/sandbox/src/view.rs", "own.cpus"),
    ("agents.defaults.sandbox.limits.pids", "crates/sandbox/src/view.rs", "own.pids"),
    ("agents.defaults.sandbox.limits.outputBytes", "crates/sandbox/src/view.rs", "own.output_bytes"),
    ("agents.defaults.sandbox.limits.timeout", "crates/sandbox/src/standing.rs", "limits.timeout"),
    ("agents.defaults.sandbox.limits.tmp", "crates/sandbox/src/view.rs", "own.tmp"),
    ("agents.defaults.sandbox.limits.diskFree", "crates/sandbox/src/view.rs", "own.disk_free"),
    ("agents.defaults.sandbox.prune.idleHours", "crates/sandbox/src/upkeep.rs", "settings.idle_hours"),
    ("agents.defaults.sandbox.prune.maxAgeDays", "crates/sandbox/src/upkeep.rs", "settings.max_age_days"),
    ("agents.defaults.sandbox.docker.image", "crates/sandbox/src/container.rs", "docker.image"),
    ("agents.defaults.sandbox.docker.containerPrefix", "crates/sandbox/src/container.rs", "docker.container_prefix"),
    ("agents.defaults.sandbox.docker.network", "crates/sandbox/src/view.rs", "docker.network"),
    ("agents.defaults.sandbox.docker.readOnlyRoot", "crates/sandbox/src/view.rs", "docker.read_only_root"),
    ("agents.defaults.sandbox.docker.setupCommand", "crates/sandbox/src/container.rs", "docker.setup_command"),
    ("agents.defaults.sandbox.docker.env", "crates/sandbox/src/container.rs", "docker.env"),
    ("agents.defaults.sandbox.docker.memory", "crates/sandbox/src/view.rs", "docker.memory"),
    ("agents.defaults.sandbox.docker.cpus", "crates/sandbox/src/view.rs", "docker.cpus"),
    ("agents.defaults.sandbox.docker.pidsLimit", "crates/sandbox/src/view.rs", "docker.pids_limit"),
    ("agents.defaults.sandbox.docker.binds", "crates/sandbox/src/view.rs", "docker.binds"),
    ("agents.defaults.sandbox.ssh.target", "crates/sandbox/src/ssh.rs", "own.target"),
    ("agents.defaults.sandbox.ssh.workspaceRoot", "crates/sandbox/src/ssh.rs", "own.workspace_root"),
    ("agents.defaults.sandbox.ssh.strictHostKeyChecking", "crates/sandbox/src/ssh.rs", "own.strict_host_key_checking"),
    ("agents.defaults.sandbox.ssh.updateHostKeys", "crates/sandbox/src/ssh.rs", "own.update_host_keys"),
    ("agents.defaults.sandbox.ssh.identityFile", "crates/sandbox/src/ssh.rs", "own.identity_file"),
    ("agents.defaults.sandbox.ssh.certificateFile", "crates/sandbox/src/ssh.rs", "own.certificate_file"),
    ("agents.defaults.sandbox.ssh.knownHostsFile", "crates/sandbox/src/ssh.rs", "own.known_hosts_file"),
    ("agents.list[].id", "crates/config/src/layer.rs", "known_as(&agent.id)"),
    ("agents.list[].name", "crates/methods/src/handlers/tools.rs", "agent.name"),
    ("agents.list[].default", "crates/config/src/layer.rs", "agent.default == Some(true)"),
    ("agents.list[].workspace", "crates/local/src/workspace.rs", "agent.workspace"),
    ("agents.list[].sandbox.mode", "crates/sandbox/src/standing.rs", "settings.mode"),
    ("agents.list[].sandbox.scope", "crates/sandbox/src/scope.rs", "self.settings.scope"),
    ("agents.list[].sandbox.backend", "crates/sandbox/src/view.rs", ".backend"),
    ("agents.list[].sandbox.required", "crates/sandbox/src/standing.rs", "settings.required"),
    ("agents.list[].sandbox.allowHostRoot", "crates/sandbox/src/view.rs", "settings.allow_host_root"),
    ("agents.list[].sandbox.workspaceAccess", "crates/sandbox/src/view.rs", "settings.workspace_access"),
    ("agents.list[].sandbox.workspaceRoot", "crates/sandbox/src/view.rs", "settings.workspace_root"),
    ("agents.list[].sandbox.view", "crates/sandbox/src/view.rs", "settings.view"),
    ("agents.list[].sandbox.tree", "crates/sandbox/src/view.rs", ".tree"),
    ("agents.list[].sandbox.binds", "crates/sandbox/src/view.rs", "settings.binds"),
    ("agents.list[].sandbox.protect", "crates/sandbox/src/view/guards.rs", "settings.protect"),
    ("agents.list[].sandbox.home.tools", "crates/sandbox/src/view/home.rs", "settings.home.tools"),
    ("agents.list[].sandbox.home.caches", "crates/sandbox/src/view/home.rs", "settings.home.caches"),
    ("agents.list[].sandbox.network.allow", "crates/sandbox/src/network.rs", "network.allow"),
    ("agents.list[].sandbox.network.deny", "crates/sandbox/src/network.rs", "network.deny"),
    ("agents.list[].sandbox.network.ask", "crates/sandbox/src/network.rs", "network.ask"),
    ("agents.list[].sandbox.network.unixSockets", "crates/sandbox/src/view.rs", ".unix_sockets"),
    ("agents.list[].sandbox.limits.memory", "crates/sandbox/src/view.rs", "own.memory"),
    ("agents.list[].sandbox.limits.cpus", "crates/sandbox/src/view.rs", "own.cpus"),
    ("agents.list[].sandbox.limits.pids", "crates/sandbox/src/view.rs", "own.pids"),
    ("agents.list[].sandbox.limits.outputBytes", "crates/sandbox/src/view.rs", "own.output_bytes"),
    ("agents.list[].sandbox.limits.timeout", "crates/sandbox/src/standing.rs", "limits.timeout"),
    ("agents.list[].sandbox.limits.tmp", "crates/sandbox/src/view.rs", "own.tmp"),
    ("agents.list[].sandbox.limits.diskFree", "crates/sandbox/src/view.rs", "own.disk_free"),
    ("agents.list[].sandbox.prune.idleHours", "crates/sandbox/src/upkeep.rs", "settings.idle_hours"),
    ("agents.list[].sandbox.prune.maxAgeDays", "crates/sandbox/src/upkeep.rs", "settings.max_age_days"),
    ("agents.list[].sandbox.docker.image", "crates/sandbox/src/container.rs", "docker.image"),
    ("agents.list[].sandbox.docker.containerPrefix", "crates/sandbox/src/container.rs", "docker.container_prefix"),
    ("agents.list[].sandbox.docker.network", "crates/sandbox/src/view.rs", "docker.network"),
    ("agents.list[].sandbox.docker.readOnlyRoot", "crates/sandbox/src/view.rs", "docker.read_only_root"),
    ("agents.list[].sandbox.docker.setupCommand", "crates/sandbox/src/container.rs", "docker.setup_command"),
    ("agents.list[].sandbox.docker.env", "crates/sandbox/src/container.rs", "docker.env"),
    ("agents.list[].sandbox.docker.memory", "crates/sandbox/src/view.rs", "docker.memory"),
    ("agents.list[].sandbox.docker.cpus", "crates/sandbox/src/view.rs", "docker.cpus"),
    ("agents.list[].sandbox.docker.pidsLimit", "crates/sandbox/src/view.rs", "docker.pids_limit"),
    ("agents.list[].sandbox.docker.binds", "crates/sandbox/src/view.rs", "docker.binds"),
    ("agents.list[].sandbox.ssh.target", "crates/sandbox/src/ssh.rs", "own.target"),
    ("agents.list[].sandbox.ssh.workspaceRoot", "crates/sandbox/src/ssh.rs", "own.workspace_root"),
    ("agents.list[].sandbox.ssh.strictHostKeyChecking", "crates/sandbox/src/ssh.rs", "own.strict_host_key_checking"),
    ("agents.list[].sandbox.ssh.updateHostKeys", "crates/sandbox/src/ssh.rs", "own.update_host_keys"),
    ("agents.list[].sandbox.ssh.identityFile", "crates/sandbox/src/ssh.rs", "own.identity_file"),
    ("agents.list[].sandbox.ssh.certificateFile", "crates/sandbox/src/ssh.rs", "own.certificate_file"),
    ("agents.list[].sandbox.ssh.knownHostsFile", "crates/sandbox/src/ssh.rs", "own.known_hosts_file"),
    ("agents.allowUnknown", "crates/dispatch/src/dispatcher.rs", "agents.allow_unknown"),
    ("commands.ownerAllowFrom", "crates/dispatch/src/sessions.rs", "config.commands.owner_allow_from"),
    ("skills.bins", "crates/rules/src/assemble.rs", "config.skills.bins"),
    ("gateway.port", "crates/gateway/src/serve/listen.rs", "gateway.port"),
    ("gateway.bind", "crates/gateway/src/serve/listen.rs", "gateway.bind"),
    ("gateway.customBindHost", "crates/gateway/src/serve/listen.rs", "gateway.custom_bind_host"),
    ("gateway.maxConnections", "crates/dispatch/src/limits.rs", "gateway.max_connections"),
    ("gateway.auth.mode", "crates/access/src/lib.rs", "auth.mode"),
    ("gateway.auth.passwordFile", "crates/access/src/lib.rs", "auth.password_file"),
    ("gateway.tls.enabled", "crates/gateway/src/serve/tls.rs", "tls.enabled"),
    ("gateway.tls.autoGenerate", "crates/gateway/src/serve/tls.rs", "tls.auto_generate"),
    ("gateway.tls.certPath", "crates/gateway/src/serve/tls.rs", "tls.cert_path"),
    ("gateway.tls.keyPath", "crates/gateway/src/serve/tls.rs", "tls.key_path"),
    ("gateway.remote.url", "crates/gateway/src/http/mod.rs", "gateway.remote.url"),
    ("gateway.remote.tokenFile", "crates/node/src/introduction.rs", "remote.token_file"),
    ("gateway.remote.passwordFile", "crates/node/src/introduction.rs", "remote.password_file"),
    ("gateway.remote.tlsFingerprint", "crates/services/src/node.rs", ".tls_fingerprint"),
    ("gateway.tools.allow", "crates/dispatch/src/tools/mod.rs", "gateway.allow"),
    ("gateway.tools.deny", "crates/dispatch/src/tools/mod.rs", "gateway.deny"),
    ("gateway.nodes.allowCommands", "crates/dispatch/src/nodes/platform.rs", "config.allow_commands"),
    ("gateway.nodes.denyCommands", "crates/dispatch/src/nodes/platform.rs", "config.deny_commands"),
    ("gateway.nodes.pairing.autoApproveCidrs", "crates/gateway/src/ws/handshake.rs", ".auto_approve_cidrs"),
    ("gateway.wake.url", "crates/dispatch/src/wake.rs", "settings.url"),
    ("gateway.wake.tlsFingerprint", "crates/dispatch/src/wake.rs", "settings.tls_fingerprint"),
    ("gateway.controlUi.enabled", "crates/gateway/src/http/pages.rs", "control_ui.enabled"),
    ("gateway.controlUi.basePath", "crates/gateway/src/serve/mod.rs", "control_ui.base_path"),
    ("gateway.controlUi.allowedOrigins", "crates/gateway/src/http/mod.rs", "control_ui.allowed_origins"),
    ("gateway.wake.command", "crates/dispatch/src/wake.rs", "settings.command"),
    ("node.remoteDocument", "crates/node/src/serve.rs", "node.remote_document"),
];

/// Files that may read the global `tools.exec` alone, each because it also reads the agent's; the service
/// only to know whether any account is named.
const GLOBAL_EXEC_READERS: &[&str] = &[
    "crates/doctor/src/audit/exec.rs",
    "crates/doctor/src/audit/safe_bins.rs",
    "crates/doctor/src/repairs.rs",
    "crates/services/src/service/mod.rs",
    "crates/config/src/layer.rs",
    "crates/rules/src/layers.rs",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every key that takes a value of its own, as the rows name it.
fn accepted_keys(fields: &'static [ConfigField], path: &str, keys: &mut BTreeSet<String>) {
    for field in fields.iter().filter(|field| field.kind.is_accepted()) {
        let path = if path.is_empty() {
            field.key.to_owned()
        } else {
            format!("{path}.{}", field.key)
        };
        match field.kind {
            // The keys of the global `tools`, which the rows have already.
            ConfigKind::Object(_) if path == "agents.list[].tools" => {}
            ConfigKind::Object(inner) => accepted_keys(inner, &path, keys),
            ConfigKind::List(ConfigKind::Object(inner)) => {
                accepted_keys(inner, &format!("{path}[]"), keys);
            }
            ConfigKind::Map(_, ConfigKind::Object(inner)) => {
                accepted_keys(inner, &format!("{path}.*"), keys);
            }
            _ => {
                keys.insert(path);
            }
        }
    }
}

/// What a file does: without its comments and its tests.
fn code_of(path: &Path) -> String {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    // A long expression stands on several lines.
    lines.map(str::trim).collect()
}

#[test]
fn every_accepted_key_has_a_reader() {
    let mut accepted = BTreeSet::new();
    accepted_keys(CONFIG, "", &mut accepted);
    let listed: BTreeSet<String> = READERS.iter().map(|(key, ..)| (*key).to_owned()).collect();
    assert_eq!(listed.len(), READERS.len(), "a key has two rows");
    let unread: Vec<&String> = accepted.difference(&listed).collect();
    assert!(
        unread.is_empty(),
        "accepted and read nowhere: {unread:?}\n\
         Name the file that acts on the value in READERS, or mark the key with `not_available`."
    );
    let stale: Vec<&String> = listed.difference(&accepted).collect();
    assert!(
        stale.is_empty(),
        "rows of keys that are not accepted: {stale:?}"
    );
}

#[test]
fn every_reader_reads_its_key() {
    for (key, file, fragment) in READERS {
        assert!(
            code_of(&workspace().join(file)).contains(fragment),
            "{key}: {file} does not read it as `{fragment}`"
        );
    }
}

/// An agent's own values would have no effect on a reader of the global ones.
#[test]
fn what_a_run_reads_of_tools_exec_is_laid_over_by_the_agents_own() {
    let mut readers = Vec::new();
    for directory in fs::read_dir(workspace().join("crates")).unwrap() {
        sources(&directory.unwrap().path().join("src"), &mut readers);
    }
    assert!(readers.len() > 100, "{}", readers.len());
    for path in readers {
        let name = path
            .strip_prefix(workspace())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let code = code_of(&path);
        let reads_global = [
            "config.tools.exec",
            "config().tools.exec",
            "self.tools.exec",
        ]
        .iter()
        .any(|fragment| code.contains(fragment));
        assert!(
            !reads_global || GLOBAL_EXEC_READERS.contains(&name.as_str()),
            "{name} reads the global tools.exec: use exec_for"
        );
    }
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
