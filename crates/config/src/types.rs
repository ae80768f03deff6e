//! The types of the config. Absent values are `None`; the code that uses a value chooses its
//! default.

use std::collections::BTreeMap;

use interlock_plan::{
    Elevation, SandboxBackend, SandboxTree, SandboxView, UnixSockets, WorkspaceAccess,
};
use interlock_policy::{Ask, Security};
use serde::{Deserialize, Serialize};

use crate::chat::{ChatSecret, ChatSwitch};
use crate::choice::{
    ChatTargets, ExecEffects, ExecMode, GatewayAuthMode, GatewayBind, Host, Leftovers, PushDetail,
    RemoteDocument, SandboxMode, SandboxScope, Shield, UnboundApprovals,
};
use crate::layer::LayeredSettings;
pub use crate::schema::byte_size;

/// Defines groups of settings that are parsed strictly and can override another group field by
/// field.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type),+ }

        impl LayeredSettings for $name {
            fn over(&self, base: &Self) -> Self {
                Self { $($field: self.$field.over(&base.$field)),+ }
            }
        }
    )+};
}

settings! {
    /// The whole file.
    Config {
        tools: Tools,
        agents: Agents,
        commands: Commands,
        skills: Skills,
        gateway: Gateway,
        node: Node,
        audit: Audit,
        push: PushConfig,
        approvals: ApprovalsConfig,
        channels: ChannelsConfig,
    }

    /// Where approvals are sent.
    ApprovalsConfig {
        exec: ExecForwarding,
    }

    /// `approvals.exec`: the chats to which approvals of commands are sent.
    ExecForwarding {
        enabled: Option<bool>,
        mode: Option<String>,
        agent_filter: Option<Vec<String>>,
        session_filter: Option<Vec<String>>,
        targets: Vec<ChatTargetConfig>,
    }

    /// A chat.
    ChatTargetConfig {
        channel: String,
        to: Option<String>,
        account_id: Option<String>,
        thread_id: Option<String>,
        after_sec: Option<u64>,
    }

    ChannelsConfig {
        matrix: MatrixChannel,
        telegram: TelegramChannel,
        slack: SlackChannel,
        discord: DiscordChannel,
        ntfy: NtfyChannel,
        webhook: WebhookChannel,
    }

    /// The keys of the account `default`, further accounts, and the approvers.
    MatrixChannel {
        enabled: Option<bool>,
        homeserver: Option<String>,
        user_id: Option<String>,
        access_token: Option<ChatSecret>,
        token_file: Option<String>,
        allow_private_network: Option<bool>,
        accounts: BTreeMap<String, MatrixAccount>,
        exec_approvals: ChatApprovals,
    }

    MatrixAccount {
        enabled: Option<bool>,
        homeserver: Option<String>,
        user_id: Option<String>,
        access_token: Option<ChatSecret>,
        token_file: Option<String>,
        allow_private_network: Option<bool>,
    }

    TelegramChannel {
        enabled: Option<bool>,
        bot_token: Option<ChatSecret>,
        token_file: Option<String>,
        api_root: Option<String>,
        allow_private_network: Option<bool>,
        accounts: BTreeMap<String, TelegramAccount>,
        exec_approvals: ChatApprovals,
    }

    TelegramAccount {
        enabled: Option<bool>,
        bot_token: Option<ChatSecret>,
        token_file: Option<String>,
        api_root: Option<String>,
        allow_private_network: Option<bool>,
    }

    SlackChannel {
        enabled: Option<bool>,
        bot_token: Option<ChatSecret>,
        token_file: Option<String>,
        app_token: Option<ChatSecret>,
        app_token_file: Option<String>,
        api_root: Option<String>,
        allow_private_network: Option<bool>,
        accounts: BTreeMap<String, SlackAccount>,
        exec_approvals: ChatApprovals,
    }

    SlackAccount {
        enabled: Option<bool>,
        bot_token: Option<ChatSecret>,
        token_file: Option<String>,
        app_token: Option<ChatSecret>,
        app_token_file: Option<String>,
        api_root: Option<String>,
        allow_private_network: Option<bool>,
    }

    DiscordChannel {
        enabled: Option<bool>,
        token: Option<ChatSecret>,
        token_file: Option<String>,
        api_root: Option<String>,
        allow_private_network: Option<bool>,
        accounts: BTreeMap<String, DiscordAccount>,
        exec_approvals: ChatApprovals,
    }

    DiscordAccount {
        enabled: Option<bool>,
        token: Option<ChatSecret>,
        token_file: Option<String>,
        api_root: Option<String>,
        allow_private_network: Option<bool>,
    }

    NtfyChannel {
        enabled: Option<bool>,
        url: Option<String>,
        topic: Option<String>,
        access_token: Option<ChatSecret>,
        token_file: Option<String>,
        allow: Option<bool>,
        allow_private_network: Option<bool>,
        exec_approvals: MachineApprovals,
    }

    WebhookChannel {
        enabled: Option<bool>,
        url: Option<String>,
        secret: Option<ChatSecret>,
        secret_file: Option<String>,
        decision_secret: Option<ChatSecret>,
        decision_secret_file: Option<String>,
        allow_private_network: Option<bool>,
        exec_approvals: MachineApprovals,
    }

    /// The approvers of a chat, and which approvals they may decide.
    ChatApprovals {
        enabled: Option<ChatSwitch>,
        approvers: Option<Vec<String>>,
        target: Option<ChatTargets>,
        agent_filter: Option<Vec<String>>,
        session_filter: Option<Vec<String>>,
        after_sec: Option<u64>,
        cleanup_after_resolve: Option<bool>,
        decisions: Option<Vec<String>>,
    }

    /// What is sent to a channel that cannot identify approvers, and what the channel may decide.
    MachineApprovals {
        agent_filter: Option<Vec<String>>,
        session_filter: Option<Vec<String>>,
        after_sec: Option<u64>,
        decisions: Option<Vec<String>>,
    }

    Audit {
        retention: Option<u64>,
    }

    /// Notifications on phones and in browsers.
    PushConfig {
        detail: Option<PushDetail>,
        endpoints: Option<Vec<String>>,
    }

    Tools {
        allow: Option<Vec<String>>,
        deny: Option<Vec<String>>,
        exec: ExecConfig,
        elevated: Elevated,
        sandbox: SandboxTools,
    }

    /// `tools.sandbox`: the settings inside a sandbox.
    SandboxTools {
        exec: SandboxExec,
        tools: SandboxToolFilter,
    }

    /// Which tools a sandboxed conversation may call. Each level restricts the others, so one level
    /// must never override another.
    SandboxToolFilter {
        allow: Option<Vec<String>>,
        also_allow: Option<Vec<String>>,
        deny: Option<Vec<String>>,
    }

    /// The policy inside a sandbox.
    SandboxExec {
        security: Option<Security>,
        ask: Option<Ask>,
    }

    /// `tools.exec`, global or of an agent.
    ExecConfig {
        host: Option<Host>,
        mode: Option<ExecMode>,
        security: Option<Security>,
        ask: Option<Ask>,
        node: Option<String>,
        path_prepend: Option<Vec<String>>,
        safe_bins: Option<Vec<String>>,
        safe_bin_trusted_dirs: Option<Vec<String>>,
        safe_bin_profiles: BTreeMap<String, SafeBinProfile>,
        strict_inline_eval: Option<bool>,
        command_highlighting: Option<bool>,
        background_ms: Option<u64>,
        timeout_sec: Option<u64>,
        timeout_seconds: Option<u64>,
        approval_running_notice_ms: Option<u64>,
        approval_wait_ms: Option<u64>,
        max_pending: Option<u64>,
        cleanup_ms: Option<u64>,
        notify_on_exit: Option<bool>,
        notify_on_exit_empty_success: Option<bool>,
        max_output_chars: Option<u64>,
        result_chars: Option<u64>,
        max_spool_bytes: Option<u64>,
        limits: ExecLimits,
        run_as: Option<String>,
        leftovers: Option<Leftovers>,
        shield: Option<Shield>,
        tree: Option<SandboxTree>,
        node_from_sandbox: Option<bool>,
        effects: Option<ExecEffects>,
        unbound_approvals: Option<UnboundApprovals>,
        require_race_free: Option<bool>,
        grant_expiry_days: Option<u64>,
        apply_patch: ApplyPatch,
    }

    /// The resources that a run on the host may use.
    ExecLimits {
        /// The size as written; [`ExecLimits::memory_bytes`] is the number of bytes.
        memory: Option<String>,
        cpus: Option<f64>,
        pids: Option<u64>,
    }

    /// The arguments that a safe bin may get.
    SafeBinProfile {
        min_positional: Option<u64>,
        max_positional: Option<u64>,
        allowed_value_flags: Option<Vec<String>>,
        allowed_flags: Option<Vec<String>>,
        denied_flags: Option<Vec<String>>,
    }

    ApplyPatch {
        enabled: Option<bool>,
        workspace_only: Option<bool>,
        allow_models: Option<Vec<String>>,
    }

    /// Who may leave the sandbox. Each level restricts the others, so one level must never override
    /// another.
    Elevated {
        enabled: Option<bool>,
        /// The allowed senders of each channel.
        allow_from: BTreeMap<String, Vec<String>>,
    }

    Agents {
        defaults: AgentDefaults,
        list: Vec<AgentConfig>,
        allow_unknown: Option<bool>,
    }

    AgentDefaults {
        workspace: Option<String>,
        elevated_default: Option<Elevation>,
        sandbox: Sandbox,
    }

    AgentConfig {
        id: String,
        name: Option<String>,
        default: Option<bool>,
        workspace: Option<String>,
        tools: Tools,
        sandbox: Sandbox,
    }

    /// How runs are confined.
    Sandbox {
        mode: Option<SandboxMode>,
        scope: Option<SandboxScope>,
        backend: Option<SandboxBackend>,
        required: Option<bool>,
        allow_host_root: Option<bool>,
        workspace_access: Option<WorkspaceAccess>,
        workspace_root: Option<String>,
        view: Option<SandboxView>,
        binds: Option<Vec<String>>,
        protect: Option<Vec<String>>,
        home: SandboxHome,
        network: SandboxNetwork,
        limits: SandboxLimitSettings,
        tree: Option<SandboxTree>,
        prune: SandboxPrune,
        docker: SandboxDocker,
        ssh: SandboxSsh,
        /// Of the reference; nothing here drives a browser. It is no part of what tells scopes apart.
        #[serde(skip_serializing)]
        browser: Option<serde_json::Value>,
    }

    /// The machine on which runs of the backend `ssh` are executed.
    SandboxSsh {
        target: Option<String>,
        workspace_root: Option<String>,
        strict_host_key_checking: Option<bool>,
        update_host_keys: Option<bool>,
        identity_file: Option<String>,
        certificate_file: Option<String>,
        known_hosts_file: Option<String>,
    }

    /// The container of a scope with the backends `docker` and `podman`.
    SandboxDocker {
        image: Option<String>,
        container_prefix: Option<String>,
        network: Option<String>,
        read_only_root: Option<bool>,
        setup_command: Option<String>,
        env: BTreeMap<String, String>,
        memory: Option<String>,
        cpus: Option<f64>,
        pids_limit: Option<u64>,
        binds: Option<Vec<String>>,
    }

    /// The parts of the home directory that a run sees.
    SandboxHome {
        tools: Option<Vec<String>>,
        caches: Option<Vec<String>>,
    }

    SandboxNetwork {
        allow: Option<Vec<String>>,
        deny: Option<Vec<String>>,
        ask: Option<bool>,
        unix_sockets: Option<UnixSockets>,
    }

    /// The resources that a sandboxed run may use. Sizes are as written; [`byte_size`] converts
    /// them.
    SandboxLimitSettings {
        memory: Option<String>,
        cpus: Option<f64>,
        pids: Option<u64>,
        output_bytes: Option<String>,
        timeout: Option<u64>,
        tmp: Option<String>,
        disk_free: Option<String>,
    }

    SandboxPrune {
        idle_hours: Option<u64>,
        max_age_days: Option<u64>,
    }

    Commands {
        owner_allow_from: Option<Vec<String>>,
    }

    Skills {
        bins: Option<Vec<String>>,
    }

    Gateway {
        port: Option<u64>,
        bind: Option<GatewayBind>,
        custom_bind_host: Option<String>,
        max_connections: Option<u64>,
        auth: GatewayAuth,
        tls: GatewayTls,
        remote: GatewayRemote,
        tools: GatewayTools,
        nodes: GatewayNodes,
        wake: GatewayWake,
        control_ui: ControlUiConfig,
    }

    /// The pages for browsers.
    ControlUiConfig {
        enabled: Option<bool>,
        base_path: Option<String>,
        allowed_origins: Option<Vec<String>>,
    }

    GatewayAuth {
        mode: Option<GatewayAuthMode>,
        password_file: Option<String>,
    }

    GatewayTls {
        enabled: Option<bool>,
        auto_generate: Option<bool>,
        cert_path: Option<String>,
        key_path: Option<String>,
    }

    /// The gateway that this machine's node and client commands talk to.
    GatewayRemote {
        url: Option<String>,
        token_file: Option<String>,
        password_file: Option<String>,
        tls_fingerprint: Option<String>,
    }

    /// The node host of this machine.
    Node {
        remote_document: Option<RemoteDocument>,
    }

    GatewayTools {
        allow: Option<Vec<String>>,
        deny: Option<Vec<String>>,
    }

    GatewayNodes {
        allow_commands: Option<Vec<String>>,
        deny_commands: Option<Vec<String>>,
        pairing: NodePairing,
    }

    NodePairing {
        auto_approve_cidrs: Option<Vec<String>>,
    }

    GatewayWake {
        url: Option<String>,
        tls_fingerprint: Option<String>,
        command: Option<Vec<String>>,
    }
}

impl ExecLimits {
    /// The memory limit in bytes, or `None` without a limit. The check of the config refuses
    /// invalid sizes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory.as_deref().and_then(byte_size)
    }
}
