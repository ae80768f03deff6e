//! Control of the gateway: tools, config, agents, sessions, tasks, logs, the audit.

use serde_json::{Map, Value};

use crate::results::{
    AgentListing, AuditChainHead, AuditChainReport, AuditPage, ConfigKeys, ConfigSnapshot,
    ConfigWritten, EffectiveTools, GatewayStatus, HealthReport, LogTail, ProcessListing,
    ProcessLogPage, ProcessPerformed, ProcessPolled, ProcessStanding, ProcessSubscribed,
    ProcessUnsubscribed, ProcessWritten, Relayed, SessionDirected, SessionListing, SessionPatched,
    TaskCanceled, TaskFound, TaskListing, ToolCatalog, ToolInvoked,
};
use crate::schema::{COUNT, OPEN, POSITIVE, PropertyKind, STRING, TEXT, TEXT_OR_NULL};

/// The statuses of a task.
pub const TASK_STATUSES: &[&str] = &[
    "queued",
    "running",
    "completed",
    "failed",
    "cancelled",
    "timed_out",
];

const TASK_STATUS: PropertyKind = PropertyKind::AnyOf(&[
    PropertyKind::Word("queued"),
    PropertyKind::Word("running"),
    PropertyKind::Word("completed"),
    PropertyKind::Word("failed"),
    PropertyKind::Word("cancelled"),
    PropertyKind::Word("timed_out"),
]);

params! {
    /// Reports that the gateway is alive.
    Health for "health" -> HealthReport {
        optional { probe "probe": bool = PropertyKind::Boolean, }
    }
}
params! {
    /// Reports the state of the gateway.
    Status for "status" -> GatewayStatus {
        optional { include_channel_summary "includeChannelSummary": bool = PropertyKind::Boolean, }
    }
}
params! {
    /// All tools.
    ToolsCatalog for "tools.catalog" -> ToolCatalog {
        optional {
            agent_id "agentId": String = TEXT,
            include_plugins "includePlugins": bool = PropertyKind::Boolean,
        }
    }
}
params! {
    /// The tools that an agent may call.
    ToolsEffective for "tools.effective" -> EffectiveTools {
        required { session_key "sessionKey": String = TEXT, }
        optional { agent_id "agentId": String = TEXT, }
    }
}
params! {
    /// Calls a tool, as an agent would.
    ToolsInvoke for "tools.invoke" -> ToolInvoked {
        required { name "name": String = TEXT, }
        optional {
            args "args": Map<String, Value> = OPEN,
            session_key "sessionKey": String = TEXT,
            agent_id "agentId": String = TEXT,
            confirm "confirm": bool = PropertyKind::Boolean,
            idempotency_key "idempotencyKey": String = TEXT,
            approval_wait_ms "approvalWaitMs": u64 = COUNT,
        }
    }
}
params! {
    /// The config, without its secrets.
    ConfigGet for "config.get" -> ConfigSnapshot {}
}
params! {
    /// Replaces the whole config.
    ConfigSet for "config.set" -> ConfigWritten {
        required { raw "raw": String = TEXT, }
        optional { base_hash "baseHash": String = TEXT, }
    }
}
params! {
    /// Changes keys of the config. A value replaces the present one, null removes a key, and
    /// objects are merged.
    ConfigPatch for "config.patch" -> ConfigWritten {
        required { raw "raw": String = TEXT, }
        optional {
            base_hash "baseHash": String = TEXT,
            session_key "sessionKey": String = STRING,
            delivery_context "deliveryContext": Map<String, Value> = OPEN,
            note "note": String = STRING,
            restart_delay_ms "restartDelayMs": u64 = COUNT,
            replace_paths "replacePaths": Vec<String> = PropertyKind::List(&TEXT, 256),
        }
    }
}
params! {
    /// The keys that the config may have.
    ConfigSchema for "config.schema" -> ConfigKeys {}
}
params! {
    /// The agents that the config names.
    AgentsList for "agents.list" -> AgentListing {}
}
params! {
    /// The conversations that were used, have settings, or have undelivered events, the latest
    /// first.
    SessionsList for "sessions.list" -> SessionListing {
        optional {
            limit "limit": u64 = POSITIVE,
            offset "offset": u64 = COUNT,
            active_minutes "activeMinutes": u64 = POSITIVE,
            include_global "includeGlobal": bool = PropertyKind::Boolean,
            include_unknown "includeUnknown": bool = PropertyKind::Boolean,
            include_derived_titles "includeDerivedTitles": bool = PropertyKind::Boolean,
            include_last_message "includeLastMessage": bool = PropertyKind::Boolean,
            label "label": String = PropertyKind::Text(1, 512),
            spawned_by "spawnedBy": String = TEXT,
            agent_id "agentId": String = TEXT,
            search "search": String = STRING,
        }
    }
}
params! {
    /// Changes the overrides of one session. Only settings that concern running commands are
    /// accepted. All other settings are refused, so a client never believes that they had an
    /// effect.
    SessionsPatch for "sessions.patch" -> SessionPatched {
        required { key "key": String = TEXT, }
        optional { agent_id "agentId": String = TEXT, }
        patch {
            label "label": String = PropertyKind::AnyOf(&[PropertyKind::Text(1, 512), PropertyKind::Null]),
            elevated_level "elevatedLevel": String = TEXT_OR_NULL,
            exec_host "execHost": String = TEXT_OR_NULL,
            exec_security "execSecurity": String = TEXT_OR_NULL,
            exec_ask "execAsk": String = TEXT_OR_NULL,
            exec_node "execNode": String = TEXT_OR_NULL,
        }
    }
}
params! {
    /// The background sessions as tasks.
    TasksList for "tasks.list" -> TaskListing {
        optional {
            /// One status or a list of them.
            status "status": Value = PropertyKind::AnyOf(&[TASK_STATUS, PropertyKind::List(&TASK_STATUS, usize::MAX)]),
            agent_id "agentId": String = TEXT,
            session_key "sessionKey": String = TEXT,
            limit "limit": u64 = PropertyKind::Integer(1, 500),
            cursor "cursor": String = STRING,
        }
    }
}
params! {
    /// One task.
    TasksGet for "tasks.get" -> TaskFound {
        required { task_id "taskId": String = TEXT, }
    }
}
params! {
    /// Ends a task.
    TasksCancel for "tasks.cancel" -> TaskCanceled {
        required { task_id "taskId": String = TEXT, }
        optional { reason "reason": String = STRING, }
    }
}
params! {
    /// The newest lines of the gateway's log.
    LogsTail for "logs.tail" -> LogTail {
        optional {
            cursor "cursor": u64 = COUNT,
            limit "limit": u64 = PropertyKind::Integer(1, 5000),
            max_bytes "maxBytes": u64 = PropertyKind::Integer(1, 1_000_000),
        }
    }
}
params! {
    /// Lists audit records. An Interlock extension.
    AuditList for "audit.list" -> AuditPage {
        optional {
            agent_id "agentId": String = TEXT,
            session_key "sessionKey": String = TEXT,
            run_id "runId": String = TEXT,
            kind "kind": String = TEXT,
            /// Only decisions of this approver, by the name that they were recorded with.
            approver "approver": String = TEXT,
            /// Only records after this time.
            after "after": u64 = COUNT,
            /// Only records before this time.
            before "before": u64 = COUNT,
            limit "limit": u64 = PropertyKind::Integer(1, 500),
            cursor "cursor": String = TEXT,
        }
    }
}
params! {
    /// Verifies the whole audit chain, and that it still contains a published head. An Interlock
    /// extension.
    AuditVerify for "audit.verify" -> AuditChainReport {
        optional { head "head": String = TEXT, }
    }
}
params! {
    /// The head of the audit chain, to be kept elsewhere. An Interlock extension.
    AuditHead for "audit.head" -> AuditChainHead {}
}
params! {
    /// Applies a slash directive that an operator typed for a session. An Interlock extension.
    SessionsDirective for "sessions.directive" -> SessionDirected {
        required {
            session_key "sessionKey": String = TEXT,
            text "text": String = PropertyKind::Text(1, 4096),
        }
        optional {
            /// The author of the directive as `CHANNEL:SENDER`. Without it, the author is the
            /// calling operator.
            sender "sender": String = PropertyKind::Text(1, 512),
        }
    }
}
params! {
    /// Background and foreground sessions of all agents, the newest first. An Interlock extension.
    ProcessList for "process.list" -> Relayed<ProcessListing> {
        optional {
            agent_id "agentId": String = TEXT,
            /// Only the sessions that the agent `agentId` itself sees: its background sessions.
            agent_view "agentView": bool = PropertyKind::Boolean,
            /// Only sessions whose id has this prefix.
            prefix "prefix": String = TEXT,
            /// The largest number of sessions in one answer; the default is 200.
            limit "limit": u64 = PropertyKind::Integer(1, 1_000),
            /// The `nextCursor` of the previous answer.
            cursor "cursor": String = TEXT,
        }
    }
}
params! {
    /// New output after an offset, and the state of the session. The poll moves no cursor. An
    /// Interlock extension.
    ProcessPoll for "process.poll" -> Relayed<ProcessPolled> {
        required { session_id "sessionId": String = TEXT, }
        optional {
            offset "offset": u64 = COUNT,
            timeout_ms "timeoutMs": u64 = PropertyKind::Integer(0, 30_000),
        }
    }
}
params! {
    /// Lines of the transcript. An Interlock extension.
    ProcessLog for "process.log" -> Relayed<ProcessLogPage> {
        required { session_id "sessionId": String = TEXT, }
        optional {
            offset "offset": u64 = COUNT,
            limit "limit": u64 = POSITIVE,
        }
    }
}
params! {
    /// Sends input to a background session. An Interlock extension.
    ProcessWrite for "process.write" -> Relayed<ProcessWritten> {
        required {
            session_id "sessionId": String = TEXT,
            data "data": String = STRING,
        }
        optional { eof "eof": bool = PropertyKind::Boolean, }
    }
}
params! {
    /// Ends a background session, or sends a signal to its foreground process. An Interlock
    /// extension.
    ProcessKill for "process.kill" -> Relayed<ProcessStanding> {
        required { session_id "sessionId": String = TEXT, }
        optional { signal "signal": String = TEXT, }
    }
}
params! {
    /// Performs any action of the tool `process` with its arguments, for an operator. An Interlock
    /// extension.
    ProcessPerform for "process.perform" -> Relayed<ProcessPerformed> {
        required { args "args": Map<String, Value> = OPEN, }
        optional {}
    }
}
params! {
    /// Sends the output of a background session to this connection until it ends. An Interlock
    /// extension.
    ProcessSubscribe for "process.subscribe" -> ProcessSubscribed {
        required { session_id "sessionId": String = TEXT, }
        optional { from_offset "fromOffset": u64 = COUNT, }
    }
}
params! {
    /// Ends a subscription to the output of a background session. An Interlock extension.
    ProcessUnsubscribe for "process.unsubscribe" -> ProcessUnsubscribed {
        required { session_id "sessionId": String = TEXT, }
    }
}

impl ProcessPerform {
    /// An action on one session, by its name in the tool.
    pub fn on_session(action: &str, session_id: &str) -> Self {
        let action = Self {
            args: Map::from_iter([("action".to_owned(), action.into())]),
        };
        action.with("sessionId", session_id)
    }

    /// Adds an argument.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.args.insert(name.to_owned(), value.into());
        self
    }
}

impl TasksList {
    /// The requested statuses; empty means all.
    pub fn statuses(&self) -> Vec<&str> {
        match &self.status {
            Some(Value::String(status)) => vec![status],
            Some(Value::Array(statuses)) => statuses.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }
}
