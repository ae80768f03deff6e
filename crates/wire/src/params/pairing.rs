//! Pairing: which devices may connect, and which commands of a node may be used.

use crate::results::{
    ClientPresence, DeviceApproved, DevicePairListing, DeviceRejected, DeviceRemoved,
    DeviceRenamed, DeviceTokenRevoked, DeviceTokenRotated, NodePairApproved, NodePairListing,
    NodePairPending, NodePairRejected, NodePairRemoved, NodePairVerified, SkillPrograms,
    SystemEventReceipt,
};
use crate::schema::{PropertyKind, STRING, TEXT, TEXTS};
use crate::secret::Secret;

params! {
    /// Sent by older nodes; the gateway itself asks for newer ones.
    NodePairRequest for "node.pair.request" -> NodePairPending {
        required { node_id "nodeId": String = TEXT, }
        optional {
            display_name "displayName": String = TEXT,
            platform "platform": String = TEXT,
            version "version": String = TEXT,
            core_version "coreVersion": String = TEXT,
            ui_version "uiVersion": String = TEXT,
            device_family "deviceFamily": String = TEXT,
            model_identifier "modelIdentifier": String = TEXT,
            caps "caps": Vec<String> = TEXTS,
            commands "commands": Vec<String> = TEXTS,
            remote_ip "remoteIp": String = TEXT,
            silent "silent": bool = PropertyKind::Boolean,
        }
    }
}
params! {
    /// The nodes whose commands wait for approval, and those that have it.
    NodePairList for "node.pair.list" -> NodePairListing {}
}
params! {
    /// Lets the commands of a node be used. What the commands can do decides which scopes it takes.
    NodePairApprove for "node.pair.approve" -> NodePairApproved {
        required { request_id "requestId": String = TEXT, }
    }
}
params! {
    /// Refuses the commands of a node.
    NodePairReject for "node.pair.reject" -> NodePairRejected {
        required { request_id "requestId": String = TEXT, }
    }
}
params! {
    /// Takes the approval of a node back.
    NodePairRemove for "node.pair.remove" -> NodePairRemoved {
        required { node_id "nodeId": String = TEXT, }
    }
}
params! {
    /// Whether a token is that of a node's pairing.
    NodePairVerify for "node.pair.verify" -> NodePairVerified {
        required {
            node_id "nodeId": String = TEXT,
            token "token": Secret = TEXT,
        }
    }
}
params! {
    /// The devices that wait for approval, and those that have it.
    DevicePairList for "device.pair.list" -> DevicePairListing {}
}
params! {
    /// Lets a device connect.
    DevicePairApprove for "device.pair.approve" -> DeviceApproved {
        required { request_id "requestId": String = TEXT, }
    }
}
params! {
    /// Refuses a device.
    DevicePairReject for "device.pair.reject" -> DeviceRejected {
        required { request_id "requestId": String = TEXT, }
    }
}
params! {
    /// Forgets a device, and ends its connections.
    DevicePairRemove for "device.pair.remove" -> DeviceRemoved {
        required { device_id "deviceId": String = TEXT, }
    }
}
params! {
    /// Gives a device another name.
    DevicePairRename for "device.pair.rename" -> DeviceRenamed {
        required {
            device_id "deviceId": String = TEXT,
            label "label": String = PropertyKind::Text(1, 64),
        }
    }
}
params! {
    /// A new token for a role; the old one is worth nothing from then on.
    DeviceTokenRotate for "device.token.rotate" -> DeviceTokenRotated {
        required {
            device_id "deviceId": String = TEXT,
            role "role": String = TEXT,
        }
        optional { scopes "scopes": Vec<String> = TEXTS, }
    }
}
params! {
    /// Makes a token of a device worth nothing.
    DeviceTokenRevoke for "device.token.revoke" -> DeviceTokenRevoked {
        required {
            device_id "deviceId": String = TEXT,
            role "role": String = TEXT,
        }
    }
}
params! {
    /// Asked by nodes: the programs that skills bring along.
    SkillsBins for "skills.bins" -> SkillPrograms {}
}
params! {
    /// What a client tells of itself, or a line for a session.
    SystemEvent for "system-event" -> SystemEventReceipt {
        required { text "text": String = TEXT, }
        optional {
            session_key "sessionKey": String = TEXT,
            device_id "deviceId": String = STRING,
            instance_id "instanceId": String = STRING,
            host "host": String = STRING,
            ip "ip": String = STRING,
            mode "mode": String = STRING,
            version "version": String = STRING,
            platform "platform": String = STRING,
            device_family "deviceFamily": String = STRING,
            model_identifier "modelIdentifier": String = STRING,
            last_input_seconds "lastInputSeconds": f64 = PropertyKind::Number,
            reason "reason": String = STRING,
            roles "roles": Vec<String> = TEXTS,
            scopes "scopes": Vec<String> = TEXTS,
            tags "tags": Vec<String> = TEXTS,
        }
    }
}
params! {
    /// The clients that are connected.
    SystemPresence for "system-presence" -> Vec<ClientPresence> {}
}
