//! Nodes: finding them, calling them, and their answers.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::json::duplicate_key;
use crate::node::{MAX_LISTED_NODES, NodeListing};
use crate::results::{
    NodeDescription, NodeEventReceipt, NodeExplanation, NodeInvokeReceipt, NodeInvoked,
    NodePolicyReport, NodeRenamed, Relayed,
};
use crate::schema::{COUNT, OPEN, PropertyKind, STRING, STRINGS, TEXT};

params! {
    /// One page of the nodes, by name.
    NodeList for "node.list" -> NodeListing {
        optional {
            limit "limit": u64 = PropertyKind::Integer(1, MAX_LISTED_NODES as u64),
            /// The `nextCursor` of the previous page.
            cursor "cursor": String = TEXT,
            /// Only connected nodes.
            connected "connected": bool = PropertyKind::Boolean,
            /// Only the nodes that this word can mean: an id, an address, a prefix of an id, or a
            /// name.
            named "named": String = STRING,
        }
    }
}
params! {
    /// One node.
    NodeDescribe for "node.describe" -> NodeDescription {
        required { node_id "nodeId": String = TEXT, }
    }
}
params! {
    /// The policy of an Interlock node for an agent. An Interlock extension.
    NodePolicy for "node.policy" -> NodePolicyReport {
        required { node_id "nodeId": String = TEXT, }
        optional { agent_id "agentId": String = TEXT, }
    }
}
params! {
    /// The verdict of an Interlock node about a command, which is not run.
    NodeExplain for "node.explain" -> Relayed<NodeExplanation> {
        required {
            node_id "nodeId": String = TEXT,
            command "command": Vec<String> = STRINGS,
        }
        optional {
            agent_id "agentId": String = TEXT,
            cwd "cwd": String = TEXT,
            env "env": BTreeMap<String, String> = PropertyKind::Map(&STRING),
            pty "pty": bool = PropertyKind::Boolean,
            stdin_pipe "stdinPipe": bool = PropertyKind::Boolean,
            ask "ask": String = TEXT,
        }
    }
}
params! {
    /// Renames a node.
    NodeRename for "node.rename" -> NodeRenamed {
        required {
            node_id "nodeId": String = TEXT,
            display_name "displayName": String = TEXT,
        }
    }
}
params! {
    /// Runs one command of a node.
    NodeInvoke for "node.invoke" -> NodeInvoked {
        required {
            node_id "nodeId": String = TEXT,
            command "command": String = TEXT,
            idempotency_key "idempotencyKey": String = TEXT,
        }
        optional {
            params "params": Value = PropertyKind::Any,
            timeout_ms "timeoutMs": u64 = COUNT,
            session_key "sessionKey": String = TEXT,
            turn_source_channel "turnSourceChannel": String = STRING,
            turn_source_to "turnSourceTo": String = STRING,
            turn_source_account_id "turnSourceAccountId": String = STRING,
            turn_source_thread_id "turnSourceThreadId": Value = PropertyKind::AnyOf(&[STRING, PropertyKind::Number]),
        }
    }
}
params! {
    /// A node's answer. Nulls, and an object in place of text, are accepted, because nodes send
    /// them.
    NodeInvokeResult for "node.invoke.result" -> NodeInvokeReceipt {
        required {
            id "id": String = TEXT,
            node_id "nodeId": String = TEXT,
            ok "ok": bool = PropertyKind::Boolean,
        }
        optional {
            payload "payload": Value = PropertyKind::Any,
            payload_json "payloadJSON": Value = PropertyKind::AnyOf(&[STRING, PropertyKind::Null, OPEN]),
            error "error": NodeError = PropertyKind::AnyOf(&[PropertyKind::Object(&NodeError::SHAPE), PropertyKind::Null]),
        }
    }
}
object! {
    /// Why a node did not carry out a command.
    NodeError {
        optional {
            code "code": String = TEXT,
            message "message": String = TEXT,
        }
    }
}
params! {
    /// An event of a node, such as the end of a run.
    NodeEvent for "node.event" -> NodeEventReceipt {
        required { event "event": String = TEXT, }
        optional {
            payload "payload": Value = PropertyKind::Any,
            payload_json "payloadJSON": String = STRING,
        }
    }
}

/// The value of a JSON text without duplicate keys.
fn json_of(text: &str) -> Option<Value> {
    let value = serde_json::from_str(text).ok()?;
    duplicate_key(text.as_bytes()).is_none().then_some(value)
}

impl NodeInvokeResult {
    /// The result for an operator: the payload, and its text if the node sent one. A text that is
    /// not JSON is forwarded unchanged.
    pub fn into_payload(self) -> (Value, Option<String>) {
        match (self.payload_json, self.payload) {
            (Some(Value::String(text)), _) => {
                let unread = || serde_json::json!({ "payloadJSON": text });
                let parsed = json_of(&text).unwrap_or_else(unread);
                (parsed, Some(text))
            }
            (Some(object @ Value::Object(_)), _) => (object, None),
            (_, payload) => (payload.unwrap_or_default(), None),
        }
    }
}

impl NodeEvent {
    /// The payload, from the text or from the value; null if neither can be read.
    pub fn into_payload(self) -> Value {
        let text = self.payload_json.as_deref();
        let read = text.and_then(json_of);
        read.or(self.payload).unwrap_or_default()
    }
}
