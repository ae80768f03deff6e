//! The table of keys.

use super::missing::{
    ACCESS_GROUPS, CONTAINER_FIXED, CONTAINER_NETWORK, REVIEWER, REVIEWER_MODE, SANDBOX,
    SANDBOX_BACKEND, SANDBOX_PODMAN, SESSION_MODE, SSH_FIXED,
};
use super::{ConfigField, ConfigKind, TextRule, field, not_available, required};
use crate::choice::{
    ChatTargets, ExecEffects, GatewayAuthMode, GatewayBind, Host, Leftovers, PushDetail, RemoteDocument, SandboxMode, SandboxScope, Shield, UnboundApprovals,
};
use interlock_plan::{Elevation, SandboxBackend, SandboxTree, SandboxView, UnixSockets, WorkspaceAccess};

const TEXT: ConfigKind = ConfigKind::Text(TextRule::Any);
const PATH: ConfigKind = ConfigKind::Text(TextRule::Path);
const FINGERPRINT: ConfigKind = ConfigKind::Text(TextRule::Fingerprint);
const TEXTS: ConfigKind = ConfigKind::List(&TEXT);
const PATHS: ConfigKind = ConfigKind::List(&PATH);
const PROGRAMS: ConfigKind = ConfigKind::List(&ConfigKind::Text(TextRule::ProgramName));
const FLAGS: ConfigKind = ConfigKind::List(&ConfigKind::Text(TextRule::Flag));

/// The words of `Security` and `Ask` of the policy crate. A test compares them.
const SECURITY: ConfigKind = ConfigKind::Choice(&["deny", "allowlist", "full"]);
const ASK: ConfigKind = ConfigKind::Choice(&["off", "on-miss", "always"]);

/// The words of `ExecMode` that this version supports. A test compares them.
const EXEC_MODE: ConfigKind = ConfigKind::ChoiceWithout(&["deny", "allowlist", "ask", "full"], &["auto"], &REVIEWER_MODE);

const DAY_MS: u64 = 86_400_000;
const YEAR_SECONDS: u64 = 31_536_000;
const GIB: u64 = 1 << 30;

/// The root of the config file.
pub static CONFIG: &[ConfigField] = &[
    field("tools", ConfigKind::Object(TOOLS), "", "Which tools there are and how commands run."),
    field("agents", ConfigKind::Object(AGENTS), "", "Agents, the callers that the policy knows by name."),
    field("approvals", ConfigKind::Object(APPROVALS), "", "Where approvals are sent."),
    field("channels", ConfigKind::Object(CHANNELS), "", "Chats that show approvals and accept decisions. They can be changed only on their own machine."),
    field("commands", ConfigKind::Object(COMMANDS), "", "Who may give slash commands."),
    field("skills", ConfigKind::Object(SKILLS), "", "Programs of skills."),
    field("gateway", ConfigKind::Object(GATEWAY), "", "The server."),
    field("node", ConfigKind::Object(NODE), "", "The node host of this machine."),
    field("audit", ConfigKind::Object(AUDIT), "", "The audit records."),
    field("push", ConfigKind::Object(PUSH), "", "Notifications on phones and in browsers."),
];

static APPROVALS: &[ConfigField] = &[
    field("exec", ConfigKind::Object(APPROVALS_EXEC), "", "Approvals of commands. They can be changed only on their own machine."),
];

static APPROVALS_EXEC: &[ConfigField] = &[
    field("enabled", ConfigKind::Bool, "false", "Whether approvals are sent to `targets`."),
    field("mode", ConfigKind::ChoiceWithout(&["targets"], &["session", "both"], &SESSION_MODE), "\"targets\"", "Where they are sent."),
    field("agentFilter", TEXTS, "", "Only approvals of these agents. Unset: all."),
    field("sessionFilter", TEXTS, "", "Only approvals of conversations whose key contains one of these texts, or matches one of them as a regular expression."),
    field("targets", ConfigKind::List(&ConfigKind::Object(CHAT_TARGET)), "", "The chats."),
];

static CHAT_TARGET: &[ConfigField] = &[
    required("channel", ConfigKind::Choice(&["matrix", "telegram", "slack", "discord", "ntfy", "webhook"]), "The kind of chat."),
    field("to", TEXT, "", "The room, chat or user, by the platform's own id. ntfy and webhook need none."),
    field("accountId", TEXT, "\"default\"", "The account that sends the approvals."),
    field("threadId", TEXT, "", "The thread of the room."),
    field("afterSec", ConfigKind::Integer(0, 3600), "0", "How long to wait before an approval is sent. It is not sent if it is decided or seen by then."),
];

static CHANNELS: &[ConfigField] = &[
    field("matrix", ConfigKind::Object(MATRIX), "", "Matrix rooms. Encrypted ones are refused: Interlock has no end-to-end encryption."),
    field("telegram", ConfigKind::Object(TELEGRAM), "", "Telegram chats, by a bot."),
    field("slack", ConfigKind::Object(SLACK), "", "Slack channels and direct messages, by an app with Socket Mode."),
    field("discord", ConfigKind::Object(DISCORD), "", "Discord channels and direct messages, by a bot."),
    field("ntfy", ConfigKind::Object(NTFY), "", "Topics of an ntfy server."),
    field("webhook", ConfigKind::Object(WEBHOOK), "", "A program of the owner's: signed calls, both ways."),
];

/// The source of a secret, in place of its text.
pub(super) static SECRET_SOURCE: &[ConfigField] = &[
    required("source", ConfigKind::Choice(&["env"]), "Where the secret is: `env`, in the environment of the gateway."),
    required("id", ConfigKind::Text(TextRule::VariableName), "The name of the variable. Runs do not inherit it."),
];

const HTTPS: ConfigKind = ConfigKind::Text(TextRule::HttpsUrl);
const PRIVATE: ConfigField = field("allowPrivateNetwork", ConfigKind::Bool, "false", "Whether the address may be one of this machine or its network.");
const TOKEN_FILE: ConfigField = field("tokenFile", PATH, "", "The file with the token, of mode 0600. `interlock channels login` writes one to the state directory, where runs cannot see it.");
const APP_TOKEN_FILE: ConfigField = field("appTokenFile", PATH, "", "The file with the token of the app, of mode 0600.");
const CHANNEL_ENABLED: ConfigField = field("enabled", ConfigKind::Bool, "true", "Whether the channel is used.");
const CHAT_APPROVALS: ConfigField = field("execApprovals", ConfigKind::Object(EXEC_APPROVALS), "", "Who may decide there, and which approvals.");

static MATRIX: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("homeserver", HTTPS, "", "The address of the account's server."),
    field("userId", TEXT, "", "The account: `@name:server`."),
    field("accessToken", ConfigKind::SecretText, "", "Its token; better in `tokenFile`."),
    TOKEN_FILE,
    PRIVATE,
    field("accounts", ConfigKind::Map(TextRule::AgentId, &ConfigKind::Object(MATRIX_ACCOUNT)), "", "Further accounts by name; the keys above are the account `default`."),
    CHAT_APPROVALS,
];

static MATRIX_ACCOUNT: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("homeserver", HTTPS, "", "The address of the account's server."),
    field("userId", TEXT, "", "The account: `@name:server`."),
    field("accessToken", ConfigKind::SecretText, "", "Its token; better in `tokenFile`."),
    TOKEN_FILE,
    PRIVATE,
];

static TELEGRAM: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("botToken", ConfigKind::SecretText, "", "The token of the bot; better in `tokenFile`."),
    TOKEN_FILE,
    field("apiRoot", HTTPS, "\"https://api.telegram.org\"", "Another server of the bot interface."),
    PRIVATE,
    field("accounts", ConfigKind::Map(TextRule::AgentId, &ConfigKind::Object(TELEGRAM_ACCOUNT)), "", "Further bots by name; the keys above are the account `default`."),
    CHAT_APPROVALS,
];

static TELEGRAM_ACCOUNT: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("botToken", ConfigKind::SecretText, "", "The token of the bot; better in `tokenFile`."),
    TOKEN_FILE,
    field("apiRoot", HTTPS, "\"https://api.telegram.org\"", "Another server of the bot interface."),
    PRIVATE,
];

static SLACK: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("botToken", ConfigKind::SecretText, "", "The token of the bot, `xoxb-…`; better in `tokenFile`."),
    TOKEN_FILE,
    field("appToken", ConfigKind::SecretText, "", "The token of the app for Socket Mode, `xapp-…`; better in `appTokenFile`."),
    APP_TOKEN_FILE,
    field("apiRoot", HTTPS, "\"https://slack.com/api\"", "Another server of the web interface, such as `https://slack-gov.com/api`."),
    PRIVATE,
    field("accounts", ConfigKind::Map(TextRule::AgentId, &ConfigKind::Object(SLACK_ACCOUNT)), "", "Further apps or workspaces by name; the keys above are the account `default`."),
    CHAT_APPROVALS,
];

static SLACK_ACCOUNT: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("botToken", ConfigKind::SecretText, "", "The token of the bot, `xoxb-…`; better in `tokenFile`."),
    TOKEN_FILE,
    field("appToken", ConfigKind::SecretText, "", "The token of the app for Socket Mode, `xapp-…`; better in `appTokenFile`."),
    APP_TOKEN_FILE,
    field("apiRoot", HTTPS, "\"https://slack.com/api\"", "Another server of the web interface."),
    PRIVATE,
];

static DISCORD: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("token", ConfigKind::SecretText, "", "The token of the bot; better in `tokenFile`."),
    TOKEN_FILE,
    field("apiRoot", HTTPS, "\"https://discord.com/api\"", "Another server of the interface."),
    PRIVATE,
    field("accounts", ConfigKind::Map(TextRule::AgentId, &ConfigKind::Object(DISCORD_ACCOUNT)), "", "Further bots by name; the keys above are the account `default`."),
    CHAT_APPROVALS,
];

static DISCORD_ACCOUNT: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("token", ConfigKind::SecretText, "", "The token of the bot; better in `tokenFile`."),
    TOKEN_FILE,
    field("apiRoot", HTTPS, "\"https://discord.com/api\"", "Another server of the interface."),
    PRIVATE,
];

static NTFY: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("url", HTTPS, "\"https://ntfy.sh\"", "The server."),
    field("topic", TEXT, "", "The topic. Subscribers of it can read and deny approvals: choose a name that cannot be guessed, or a server that asks who they are."),
    field("accessToken", ConfigKind::SecretText, "", "The token of an account that may publish; better in `tokenFile`."),
    TOKEN_FILE,
    field("allow", ConfigKind::Bool, "false", "Also offers *Allow once*. ntfy cannot tell who taps it, so the audit record names the topic instead of an approver."),
    PRIVATE,
    field("execApprovals", ConfigKind::Object(MACHINE_APPROVALS), "", "Which approvals are sent."),
];

static WEBHOOK: &[ConfigField] = &[
    CHANNEL_ENABLED,
    field("url", HTTPS, "", "Gets a signed POST for every approval and its end."),
    field("secret", ConfigKind::SecretText, "", "The secret that signs calls of Interlock; better in `secretFile`."),
    field("secretFile", PATH, "", "The file with the secret, of mode 0600."),
    field("decisionSecret", ConfigKind::SecretText, "", "The secret that signs decisions of the program; better in `decisionSecretFile`. Without a secret, no decisions are accepted."),
    field("decisionSecretFile", PATH, "", "The file with the secret, of mode 0600."),
    PRIVATE,
    field("execApprovals", ConfigKind::Object(MACHINE_APPROVALS), "", "Which approvals are sent, and what may be decided."),
];

static EXEC_APPROVALS: &[ConfigField] = &[
    field("enabled", ConfigKind::BoolOr(&["auto"]), "\"auto\"", "Whether decisions are accepted there. `auto`: if there are approvers. With `false`, messages have a link and no buttons for a decision."),
    field("approvers", TEXTS, "", "Exact ids of the platform, such as `@ada:example.org` or `123456789`; never names. Unset: the `CHANNEL:ID` entries of `commands.ownerAllowFrom`."),
    field("target", ConfigKind::Choice(ChatTargets::WORDS), "\"both\"", "Where approvals go: to each approver alone (`dm`), to the chats of `approvals.exec.targets` (`channel`), or `both`."),
    field("agentFilter", TEXTS, "", "Only approvals of these agents are sent to approvers. Unset: all."),
    field("sessionFilter", TEXTS, "", "Only approvals of conversations whose key contains this text, or matches it as a regular expression."),
    field("afterSec", ConfigKind::Integer(0, 3600), "0", "How long to wait before a direct message is sent. It is not sent if the approval is decided or seen by then."),
    field("cleanupAfterResolve", ConfigKind::Bool, "false", "Removes the message when its approval has ended, instead of editing it."),
    field("decisions", CHAT_DECISIONS, "", "The accepted decisions. Unset: all that a prompt offers."),
];

static MACHINE_APPROVALS: &[ConfigField] = &[
    field("agentFilter", TEXTS, "", "Only approvals of these agents. Unset: all."),
    field("sessionFilter", TEXTS, "", "Only approvals of conversations whose key contains this text, or matches it as a regular expression."),
    field("afterSec", ConfigKind::Integer(0, 3600), "0", "How long to wait before an approval is sent. It is not sent if it is decided or seen by then."),
    field("decisions", CHAT_DECISIONS, "", "The accepted decisions. Unset: all that are offered."),
];

const CHAT_DECISIONS: ConfigKind = ConfigKind::List(&ConfigKind::Choice(&["allow-once", "allow-session", "allow-always", "lease", "deny"]));

static PUSH: &[ConfigField] = &[
    field("detail", ConfigKind::Choice(PushDetail::WORDS), "\"summary\"", "What a notification contains: only that an approval is pending (`none`); agent, host and programs (`summary`); a short command (`command`)."),
    field("endpoints", ConfigKind::List(&ConfigKind::Text(TextRule::HttpUrl)), "", "Push servers besides those of browsers, such as your own one for UnifiedPush: `https://push.example`. They must use `https`, and may be in this network."),
];

static AUDIT: &[ConfigField] = &[
    field("retention", ConfigKind::Integer(1, 36_500), "", "How many days records stay in the database. A running gateway moves older ones to files in `audit-archive` of the state directory, 1,024 at a time, and the chain continues after a sealed cut. Unset: records stay. It can be changed only on its own machine."),
];

static TOOLS: &[ConfigField] = &[
    field("allow", TEXTS, "", "Tools or groups that may be called. A list blocks all others, an empty list blocks everything."),
    field("deny", TEXTS, "", "Tools or groups that may not be called. It overrides `allow`."),
    field("exec", ConfigKind::Object(EXEC), "", "How commands run."),
    field("elevated", ConfigKind::Object(ELEVATED), "", "Which runs may leave their sandbox; each level only restricts."),
    field("sandbox", ConfigKind::Object(SANDBOX_POLICY), "", "Settings for sandboxed runs."),
];

static SANDBOX_POLICY: &[ConfigField] = &[
    field("tools", ConfigKind::Object(SANDBOX_TOOL_FILTER), "", "Another filter of tools, for sandboxed conversations. It can only restrict."),
    field("exec", ConfigKind::Object(SANDBOX_EXEC), "", "The policy inside a sandbox. Deny rules hold there too; a host document that says `security: \"deny\"` or `ask: \"always\"` tightens it."),
];

static SANDBOX_TOOL_FILTER: &[ConfigField] = &[
    field("allow", TEXTS, "", "Only these tools. Unset: all."),
    field("alsoAllow", TEXTS, "", "Further tools besides `allow`."),
    field("deny", TEXTS, "", "Never these tools."),
];

static SANDBOX_EXEC: &[ConfigField] = &[
    field("security", SECURITY, "\"full\"", "What may run inside a sandbox."),
    field("ask", ASK, "\"off\"", "When an approver is asked."),
];

static EXEC: &[ConfigField] = &[
    field("host", ConfigKind::Choice(Host::WORDS), "\"auto\"", "Where commands run. `auto`: in the sandbox if one is active, else at the gateway or on the node that a call names. `sandbox` refuses a call of a conversation without a sandbox."),
    field("mode", EXEC_MODE, "", "A short form that sets `security` and `ask` together."),
    field("security", SECURITY, "\"full\"", "What may run; the host's approvals document can only be stricter."),
    field("ask", ASK, "\"off\"", "When an approver is asked; the host's approvals document can only ask more."),
    field("node", TEXT, "", "The node for `host: \"node\"`: id, name, address or a prefix of the id."),
    field("pathPrepend", PATHS, "", "Directories before PATH."),
    field("safeBins", PROGRAMS, r#"["cut", "uniq", "head", "tail", "tr", "wc"]"#, "Filters that need no allowlist entry while they only read their input."),
    field("safeBinTrustedDirs", PATHS, "", "Directories in which safe bins may be, besides `/bin` and `/usr/bin`."),
    field("safeBinProfiles", ConfigKind::Map(TextRule::ProgramName, &ConfigKind::Object(SAFE_BIN_PROFILE)), "", "The arguments that each safe bin may get."),
    field("strictInlineEval", ConfigKind::Bool, "false", "Whether inline code needs an approval each time, even if its program is allowlisted."),
    field("commandHighlighting", ConfigKind::Bool, "", "Whether prompts color the words of a command by their place. Unset: on the surfaces of Interlock. `true`: there, and approvals are sent to other clients with the places of their programs (`commandSpans`). `false`: nowhere."),
    field("backgroundMs", ConfigKind::Integer(10, 120_000), "10000", "How long a run takes before it continues in the background."),
    field("timeoutSec", ConfigKind::Integer(1, YEAR_SECONDS), "1800", "The time limit of a run, unless the call sets another one."),
    field("timeoutSeconds", ConfigKind::Integer(1, YEAR_SECONDS), "1800", "Another name for `timeoutSec`."),
    field("approvalRunningNoticeMs", ConfigKind::Integer(0, DAY_MS), "10000", "An approved run that takes longer is announced once. 0: never."),
    field("approvalWaitMs", ConfigKind::Integer(0, 1_800_000), "45000", "How long a call waits for a decision before it returns `approval-pending`. Unless it is set, a call of an MCP client that takes progress waits 600000."),
    field("maxPending", ConfigKind::Integer(1, 10_000), "100", "How many approvals of an agent may be pending; the next call is refused (`APPROVAL_TOO_MANY`)."),
    field("cleanupMs", ConfigKind::Integer(60_000, 10_800_000), "1800000", "How long finished sessions are kept."),
    field("notifyOnExit", ConfigKind::Bool, "true", "Whether the end of a background run is a system event."),
    field("notifyOnExitEmptySuccess", ConfigKind::Bool, "false", "Whether that also applies to a run that succeeds without output."),
    field("maxOutputChars", ConfigKind::Integer(1000, 200_000), "200000", "Characters of output that a result shows."),
    field("resultChars", ConfigKind::Integer(1000, 200_000), "30000", "Characters of a result over MCP: its head and its tail. `maxOutputChars` is for the other transports."),
    field("maxSpoolBytes", ConfigKind::Integer(65_536, 10 * GIB), "1073741824", "Bytes of output kept per session."),
    field("limits", ConfigKind::Object(EXEC_LIMITS), "", "Limits per run on this host; a run whose limits cannot be set does not start."),
    field("runAs", TEXT, "", "The user that commands run as, if Interlock runs as root. `interlock gateway install --run-as USER` sets it; it cannot be changed over the wire."),
    field("tree", ConfigKind::Choice(SandboxTree::WORDS), "\"off\"", "Which programs a run on the host may start, if allowlist entries allowed the run. `enforce`: only the programs that its command names, their interpreters and helpers, and those of allowlist entries; the kernel holds this. `log`: every program is in the result and in the audit, and programs that deny rules name are refused. No program of such a run gains privileges, as `sudo` would."),
    field("leftovers", ConfigKind::Choice(Leftovers::WORDS), "\"end\"", "What happens to processes that a run leaves behind."),
    field("shield", ConfigKind::Choice(Shield::WORDS), "\"auto\"", "Runs live in namespaces in which the state directory, sockets and processes of Interlock do not exist. `auto`: where the system can; lines with a program that cannot work there (such as `sudo` or `ssh`) need an entry with `shield: \"off\"` or an approval. `on`: such lines, and runs on a system that cannot, are refused. `off`: no namespaces, a guard only."),
    field("nodeFromSandbox", ConfigKind::Bool, "false", "With `host: \"auto\"`, a call of a sandboxed conversation may name `host: \"node\"`, which is outside of the sandbox."),
    field("effects", ConfigKind::Choice(ExecEffects::WORDS), "\"direct\"", "When a command runs as a preview: once, in a sandbox whose changes of the workspace are committed only if an approver allows exactly these, without a network. `ask`: where an approver would be asked about the command. `always`: every command. Commands that cannot be bound, denied ones and those in the background are not previewed."),
    field("unboundApprovals", ConfigKind::Choice(UnboundApprovals::WORDS), "\"deny\"", "`ask` lets an approver allow code that cannot be pinned, once."),
    field("requireRaceFree", ConfigKind::Bool, "false", "Whether to refuse approved scripts that could change between check and start."),
    field("grantExpiryDays", ConfigKind::Integer(1, 3650), "", "Remembered approvals end after this many days."),
    field("applyPatch", ConfigKind::Object(APPLY_PATCH), "", "The tool `apply_patch`."),
    not_available("reviewer", &REVIEWER),
];

static EXEC_LIMITS: &[ConfigField] = &[
    field("memory", ConfigKind::Text(TextRule::ByteSize), "", "The memory limit."),
    field("cpus", ConfigKind::Number(0.01, 4096.0), "", "How many processors; fractions are possible."),
    field("pids", ConfigKind::Integer(1, 1_000_000), "", "How many processes and threads at one time."),
];


static SAFE_BIN_PROFILE: &[ConfigField] = &[
    field("minPositional", ConfigKind::Integer(0, 1000), "0", "The least number of arguments that are not flags."),
    field("maxPositional", ConfigKind::Integer(0, 1000), "0", "The largest number of arguments that are not flags."),
    field("allowedValueFlags", FLAGS, "", "Flags that take a value."),
    field("allowedFlags", FLAGS, "", "Flags without a value."),
    field("deniedFlags", FLAGS, "", "Flags that are refused in any form."),
];

static APPLY_PATCH: &[ConfigField] = &[
    field("enabled", ConfigKind::Bool, "true", "Whether the tool exists."),
    field("workspaceOnly", ConfigKind::Bool, "true", "Whether paths must stay inside the workspace."),
    field("allowModels", TEXTS, "", "Models that get the tool. Unset: all."),
];

static ELEVATED: &[ConfigField] = &[
    field("enabled", ConfigKind::Bool, "false", "Whether a run may leave its sandbox at all, by `elevated` of a call or by `/elevated`."),
    field("allowFrom", ConfigKind::Map(TextRule::Any, &TEXTS), "", "Who may: lists of senders by channel (`cli`, `mcp`, `http`, `ws`, a chat channel). `*` is every sender of the channel; the prefixes `id: name: username: tag: from: e164:` say which of a sender's names is meant."),
];

static AGENTS: &[ConfigField] = &[
    field("defaults", ConfigKind::Object(AGENT_DEFAULTS), "", "Defaults for all agents."),
    field("list", ConfigKind::List(&ConfigKind::Object(AGENT)), "", "The agents; `main` always exists."),
    field("allowUnknown", ConfigKind::Bool, "false", "Whether callers may name agents that are not listed."),
];

static AGENT_DEFAULTS: &[ConfigField] = &[
    field("workspace", PATH, "", "The directory agents work in."),
    field("sandbox", ConfigKind::Object(AGENT_SANDBOX), "", "How runs are confined."),
    field("elevatedDefault", ConfigKind::Choice(Elevation::WORDS), "", "The level of conversations that `/elevated` does not set: `on` (or `ask`) and `full` let their runs leave the sandbox, `off` refuses calls that ask for it. Unset, a call may ask for `on`."),
];

static AGENT: &[ConfigField] = &[
    required("id", ConfigKind::Text(TextRule::AgentId), "Its name on the wire; case does not matter."),
    field("name", TEXT, "", "Its name for people."),
    field("default", ConfigKind::Bool, "false", "Whether this is the agent of calls to the gateway that name none. At most one agent may be."),
    field("workspace", PATH, "", "The directory it works in."),
    field("tools", ConfigKind::Object(TOOLS), "", "Its own values over the global ones; `allow`, `deny` and `elevated` only restrict."),
    field("sandbox", ConfigKind::Object(AGENT_SANDBOX), "", "Its own values over the defaults."),
];

/// The sandbox of an agent. If a configured sandbox cannot be set up, a run must never run on the
/// host instead.
static AGENT_SANDBOX: &[ConfigField] = &[
    field("mode", ConfigKind::Choice(SandboxMode::WORDS), "\"off\"", "Which conversations are sandboxed; `non-main`: every one but `agent:ID:main`."),
    field("scope", ConfigKind::Choice(SandboxScope::WORDS), "\"agent\"", "Which runs share one sandbox, with its home and scratch directories."),
    field("backend", ConfigKind::ChoiceWithout(SandboxBackend::WORDS, &["kubernetes"], &SANDBOX_BACKEND), "", "What sets the sandbox up: `native`; `bwrap`, where the program bubblewrap makes its namespaces; `docker` or `podman`, where runs see the root of a container; `landlock`, without namespaces and with fewer promises, for hosts that cannot make namespaces; `ssh`, where runs are executed on another machine. Unset: `native`, or `bwrap` if only that works."),
    field("required", ConfigKind::Bool, "false", "Whether no run may leave the sandbox, not even by a configured `tools.exec.host`."),
    field("allowHostRoot", ConfigKind::Bool, "false", "If Interlock runs as root and ids cannot be mapped: whether runs may be root on the host, without capabilities."),
    field("workspaceAccess", ConfigKind::Choice(WorkspaceAccess::WORDS), "\"none\"", "What a run may do with the workspace; `none` and `ro` give it a scratch workspace at `/workspace`, `cow` commits its changes when it ends."),
    field("workspaceRoot", PATH, "", "The directory in which the directories of scopes lie: scratch workspaces, homes and layers. It belongs to this user alone (mode 0700), is neither in nor above a workspace, a bind or the state directory, and no run sees it. Unset: `sandboxes` in the state directory."),
    field("view", ConfigKind::Choice(SandboxView::WORDS), "\"minimal\"", "`minimal`: system directories, the workspace and `binds`. `host`: the whole root read-only, without credentials."),
    field("binds", TEXTS, "", "More directories or files: `SOURCE:TARGET[:ro|rw]`, read-only unless it says `rw`."),
    field("protect", TEXTS, "", "Further paths of the workspace, relative to it: read-only under `rw`, and committed only with an approval under `cow`."),
    field("home", ConfigKind::Object(SANDBOX_HOME), "", "The parts of the home directory that a run sees, besides its private one."),
    field("network", ConfigKind::Object(SANDBOX_NETWORK_FIELDS), "", "The network of a sandbox: a loopback, and the hosts that `allow` lists."),
    field("limits", ConfigKind::Object(SANDBOX_LIMITS), "", "Limits per run; those of `tools.exec.limits` apply too."),
    field("tree", ConfigKind::Choice(SandboxTree::WORDS), "\"off\"", "`log`: every program that a run starts is in its result and in the audit, and those that deny rules name are refused. `enforce`: processes of a run start only the programs that its command names, their interpreters and helpers, and those of allowlist entries; nothing that can be written to is executed."),
    field("prune", ConfigKind::Object(SANDBOX_PRUNE), "", "Which scopes `interlock sandbox prune` removes."),
    field("docker", ConfigKind::Object(SANDBOX_DOCKER), "", "The container of a scope, with the backends `docker` and `podman`."),
    not_available("podman", &SANDBOX_PODMAN),
    field("ssh", ConfigKind::Object(SANDBOX_SSH), "", "The machine on which runs are executed, with the backend `ssh`."),
    not_available("kubernetes", &SANDBOX),
    field("browser", ConfigKind::Unused, "", "Read and without effect: Interlock drives no browser."),
];

/// The container settings. Properties that every container has cannot be set to another value.
static SANDBOX_DOCKER: &[ConfigField] = &[
    field("image", TEXT, "", "The image, by a name that the engine knows. It is never pulled, and a run is bound to its id."),
    field("containerPrefix", TEXT, "\"interlock-sbx-\"", "The prefix of the names of containers."),
    field("network", ConfigKind::ChoiceWithout(&["none"], &["bridge", "host"], &CONTAINER_NETWORK), "\"none\"", "Containers have no network; `sandbox.network` lists the hosts that runs reach."),
    field("readOnlyRoot", ConfigKind::Bool, "true", "The root of a container is read-only; `false` is refused."),
    field("setupCommand", TEXT, "", "Runs once in a new container, as the user of its runs, with their home directory. If it fails, the container is removed and the call refused."),
    field("env", ConfigKind::Map(TextRule::VariableName, &ConfigKind::Text(TextRule::Any)), "", "Variables of every run, over those of the image."),
    field("memory", ConfigKind::Text(TextRule::ByteSize), "", "Like `limits.memory`; the smaller one applies."),
    field("cpus", ConfigKind::Number(0.01, 4096.0), "", "Like `limits.cpus`; the smaller one applies."),
    field("pidsLimit", ConfigKind::Integer(1, 1_000_000), "", "Like `limits.pids`; the smaller one applies."),
    field("binds", TEXTS, "", "Like `sandbox.binds`, in addition to them."),
    not_available("workdir", &CONTAINER_FIXED),
    not_available("tmpfs", &CONTAINER_FIXED),
    not_available("user", &CONTAINER_FIXED),
    not_available("capDrop", &CONTAINER_FIXED),
    not_available("memorySwap", &CONTAINER_FIXED),
    not_available("ulimits", &CONTAINER_FIXED),
    not_available("seccompProfile", &CONTAINER_FIXED),
    not_available("apparmorProfile", &CONTAINER_FIXED),
    not_available("dns", &CONTAINER_NETWORK),
    not_available("extraHosts", &CONTAINER_NETWORK),
    not_available("gpus", &CONTAINER_FIXED),
    not_available("dangerouslyAllowReservedContainerTargets", &CONTAINER_FIXED),
    not_available("dangerouslyAllowExternalBindSources", &CONTAINER_FIXED),
    not_available("dangerouslyAllowContainerNamespaceJoin", &CONTAINER_FIXED),
];

static SANDBOX_SSH: &[ConfigField] = &[
    field("target", TEXT, "", "`[USER@]HOST[:PORT]`."),
    field("workspaceRoot", TEXT, "\"/tmp/interlock-sandboxes\"", "The directory on that machine in which each scope has its own directory."),
    field("strictHostKeyChecking", ConfigKind::Bool, "true", "The key of the machine is always compared; `false` is refused."),
    field("updateHostKeys", ConfigKind::Bool, "false", "Known keys are never changed; `true` is refused."),
    field("identityFile", PATH, "", "The private key. Unset: the usual ones of this account, and its key agent."),
    field("certificateFile", PATH, "", "The certificate of that key."),
    field("knownHostsFile", PATH, "", "The only file with trusted host keys. Unset: the files of this account and of the system."),
    not_available("command", &SSH_FIXED),
    not_available("identityData", &SSH_FIXED),
    not_available("certificateData", &SSH_FIXED),
    not_available("knownHostsData", &SSH_FIXED),
];

static SANDBOX_HOME: &[ConfigField] = &[
    field("tools", TEXTS, r#"[".cargo/bin", ".rustup", ".nvm", ".pyenv", ".rbenv", ".asdf", ".volta", ".bun/bin", ".deno/bin", ".local/bin", "go/bin"]"#, "Directories of the home directory that a run sees read-only, relative to it."),
    field("caches", TEXTS, r#"[".cargo/registry", ".cargo/git", ".npm", ".cache/pip", ".cache/uv", ".cache/yarn", ".cache/pnpm", ".local/share/pnpm/store", ".bun/install/cache", "go/pkg", ".cache/go-build", ".m2/repository", ".gradle/caches", ".nuget/packages", ".cache/composer"]"#, "Directories of the home directory that a run sees copy-on-write, relative to it: what runs write there stays in their scope. Files with credentials in them are hidden. `[]` is none."),
];

static SANDBOX_NETWORK_FIELDS: &[ConfigField] = &[
    field("allow", ConfigKind::List(&ConfigKind::Text(TextRule::AllowedHost)), "", "Hosts that a run reaches: `HOST:PORT`, `*.HOST:PORT`, `ADDRESS:PORT`, `host.internal:PORT`; at most 20 different ports. Without an entry there is a loopback alone."),
    field("deny", ConfigKind::List(&ConfigKind::Text(TextRule::DeniedHost)), "", "Hosts that no entry of `allow` opens; `HOST:*` is every port."),
    field("ask", ConfigKind::Bool, "", "A connection to a name that no entry lists, on port 80, 443 or one of `allow`, waits up to 30 seconds for an approver. Unset: as soon as `allow` has an entry. `true` without an entry: every name asks."),
    field("unixSockets", ConfigKind::Choice(UnixSockets::WORDS), "\"own\"", "`own`: Unix sockets that the sandbox makes itself. `none`: only pairs of stream sockets."),
];

static SANDBOX_LIMITS: &[ConfigField] = &[
    field("memory", ConfigKind::Text(TextRule::ByteSize), "", "The memory limit."),
    field("cpus", ConfigKind::Number(0.01, 4096.0), "", "How many processors; fractions are possible."),
    field("pids", ConfigKind::Integer(1, 1_000_000), "", "How many processes and threads at one time."),
    field("outputBytes", ConfigKind::Text(TextRule::ByteSize), "", "The output limit: a run that writes more is ended."),
    field("timeout", ConfigKind::Integer(1, YEAR_SECONDS), "", "The time limit of a run in seconds; the smaller of this and the limit of the call applies."),
    field("tmp", ConfigKind::Text(TextRule::ByteSize), "\"1g\"", "The size of each of `/tmp`, `/var/tmp`, `/run` and `/dev/shm`."),
    field("diskFree", ConfigKind::Text(TextRule::ByteSize), "\"1g\"", "A run is ended before less than this is free on a file system of the host that it writes to; on a file system with little room, before half of the space that was free at the start is used."),
];

static SANDBOX_PRUNE: &[ConfigField] = &[
    field("idleHours", ConfigKind::Integer(1, 87_600), "24", "Remove scopes without a run for this long."),
    field("maxAgeDays", ConfigKind::Integer(1, 3_650), "7", "Remove scopes that are older than this."),
];

static COMMANDS: &[ConfigField] = &[
    not_available("useAccessGroups", &ACCESS_GROUPS),
    field("ownerAllowFrom", TEXTS, "", "The owners: `CHANNEL:SENDER` or `SENDER`."),
];

static SKILLS: &[ConfigField] = &[
    field("bins", TEXTS, "", "Programs that skills use, by name: allowlisted where a document says `autoAllowSkills`, if they are called by that name. Nodes get the list of their gateway."),
];

static GATEWAY: &[ConfigField] = &[
    field("port", ConfigKind::Integer(1, 65_535), "18789", "The port."),
    field("bind", ConfigKind::Choice(GatewayBind::WORDS), "\"loopback\"", "The addresses on which it listens; beyond loopback only with auth."),
    field("customBindHost", TEXT, "", "The address for `bind: \"custom\"`."),
    field("maxConnections", ConfigKind::Integer(16, 1_000_000), "4096", "How many network connections are open at once; further callers wait. The limit of open files (`RLIMIT_NOFILE`) may allow fewer, and the gateway then says so in its log. As many pairing requests are kept, but at least 1000. Takes effect at the next start."),
    field("auth", ConfigKind::Object(GATEWAY_AUTH), "", "How callers prove themselves."),
    field("tls", ConfigKind::Object(GATEWAY_TLS), "", "Encryption."),
    field("remote", ConfigKind::Object(GATEWAY_REMOTE), "", "The gateway that client commands and the node host of this machine go to, and how others reach the one of this machine."),
    field("tools", ConfigKind::Object(GATEWAY_TOOLS), "", "Tools that can be called over HTTP."),
    field("nodes", ConfigKind::Object(GATEWAY_NODES), "", "What nodes may offer."),
    field("wake", ConfigKind::Object(GATEWAY_WAKE), "", "What is called when an event should wake a session."),
    field("controlUi", ConfigKind::Object(GATEWAY_CONTROL_UI), "", "The pages for browsers."),
];

static GATEWAY_CONTROL_UI: &[ConfigField] = &[
    field("enabled", ConfigKind::Bool, "true", "Whether the port serves the pages."),
    field("basePath", ConfigKind::Text(TextRule::BasePath), "", "The path of the pages, such as `/interlock`, for a proxy that forwards one path. Unset: `/`. Takes effect at the next start."),
    field("allowedOrigins", ConfigKind::List(&ConfigKind::Text(TextRule::HttpUrl)), "", "Origins of pages that may connect besides the gateway's own, such as that of a proxy: `https://box.example`."),
];

static GATEWAY_AUTH: &[ConfigField] = &[
    field("mode", ConfigKind::Choice(GatewayAuthMode::WORDS), "\"token\"", "What callers must show."),
    field("token", ConfigKind::Refused("mint a token, of which only the hash is kept: interlock gateway token --new; or set INTERLOCK_GATEWAY_TOKEN"), "", "Operator tokens are stored as hashes only."),
    field("tokenFile", ConfigKind::Refused("take the token over, of which only the hash is kept: interlock gateway token --import FILE; then remove the file"), "", "Operator tokens are stored as hashes only."),
    field("password", ConfigKind::Refused("put the password into a file of mode 0600 and name it in `passwordFile`, or set INTERLOCK_GATEWAY_PASSWORD"), "", "A secret must not be in the config."),
    field("passwordFile", PATH, "", "The file with the password."),
];

static GATEWAY_TLS: &[ConfigField] = &[
    field("enabled", ConfigKind::Bool, "false", "Whether the port uses only TLS."),
    field("autoGenerate", ConfigKind::Bool, "true", "Whether a certificate is made at the first start if no files are named. It is kept in the state directory."),
    field("certPath", PATH, "", "The certificate and its chain, as PEM."),
    field("keyPath", PATH, "", "The private key of the certificate, as PEM, readable only by its owner."),
    field("caPath", ConfigKind::Refused("leave it out: callers prove themselves by tokens and device keys, not by certificates"), "", "Certificates of callers are not asked for."),
];

static GATEWAY_REMOTE: &[ConfigField] = &[
    field("url", ConfigKind::Text(TextRule::WebSocketUrl), "", "The address of the gateway. If its token or password is given (below, or in the environment) and no gateway of this state directory runs, client commands go to it. On the gateway's own machine, its name is accepted in the Host header and put into the generated certificate."),
    field("token", ConfigKind::Refused("put the token into a file of mode 0600 and name it in `tokenFile`, or set INTERLOCK_GATEWAY_TOKEN"), "", "A secret must not be in the config."),
    field("tokenFile", PATH, "", "The file with the token of the node host and of client commands."),
    field("password", ConfigKind::Refused("put the password into a file of mode 0600 and name it in `passwordFile`, or set INTERLOCK_GATEWAY_PASSWORD"), "", "A secret must not be in the config."),
    field("passwordFile", PATH, "", "The file with the password of the node host and of client commands."),
    field("tlsFingerprint", FINGERPRINT, "", "SHA-256 of the certificate that the node host and client commands accept."),
];

static NODE: &[ConfigField] = &[
    field("remoteDocument", ConfigKind::Choice(RemoteDocument::WORDS), "\"write\"", "What gateways may do with the approvals document of this machine: replace it, only make it stricter, or only read it. Except with `write`, `allow-always` of a gateway allows once."),
];

static GATEWAY_TOOLS: &[ConfigField] = &[
    field("allow", TEXTS, "", "Tools that may be called; a non-empty list blocks all others."),
    field("deny", TEXTS, "", "Tools that may not be called. It overrides the list of allowed ones."),
];

static GATEWAY_NODES: &[ConfigField] = &[
    field("allowCommands", TEXTS, "", "Node commands to accept besides the usual ones."),
    field("denyCommands", TEXTS, "", "Node commands to drop."),
    field("pairing", ConfigKind::Object(NODE_PAIRING), "", "How nodes are paired."),
];

static NODE_PAIRING: &[ConfigField] = &[field(
    "autoApproveCidrs",
    ConfigKind::List(&ConfigKind::Text(TextRule::Cidr)),
    "",
    "Address ranges from which nodes with the shared secret are paired without an approval. They must not include a proxy, because its address would count for every node behind it.",
)];

static GATEWAY_WAKE: &[ConfigField] = &[
    field("url", ConfigKind::Text(TextRule::HttpUrl), "", "Gets a signed POST."),
    field("tlsFingerprint", FINGERPRINT, "", "SHA-256 of the certificate of an `https://` address. Unset: any that this machine trusts."),
    field("command", TEXTS, "", "A program with its arguments, instead of a URL."),
];
