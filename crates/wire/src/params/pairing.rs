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
    /// Requests approval for a node. Older nodes send it; the gateway itself asks for newer ones.
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
    /// The nodes whose commands wait for approval, and the approved ones.
    NodePairList for "node.pair.list" -> NodePairListing {}
}
params! {
    /// Approves the commands of a node. The required scopes depend on the commands.
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
    /// Revokes the approval of a node.
    NodePairRemove for "node.pair.remove" -> NodePairRemoved {
        required { node_id "nodeId": String = TEXT, }
    }
}
params! {
    /// Checks whether a token belongs to a node's pairing.
    NodePairVerify for "node.pair.verify" -> NodePairVerified {
        required {
            node_id "nodeId": String = TEXT,
            token "token": Secret = TEXT,
        }
    }
}
params! {
    /// The devices that wait for approval, and the approved ones.
    DevicePairList for "device.pair.list" -> DevicePairListing {}
}
params! {
    /// Approves a device.
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
    /// Removes a device and ends its connections.
    DevicePairRemove for "device.pair.remove" -> DeviceRemoved {
        required { device_id "deviceId": String = TEXT, }
    }
}
params! {
    /// Renames a device.
    DevicePairRename for "device.pair.rename" -> DeviceRenamed {
        required {
            device_id "deviceId": String = TEXT,
            label "label": String = PropertyKind::Text(1, 64),
        }
    }
}
params! {
    /// Issues a new token for a role. The old token becomes invalid.
    DeviceTokenRotate for "device.token.rotate" -> DeviceTokenRotated {
        required {
            device_id "deviceId": String = TEXT,
            role "role": String = TEXT,
        }
        optional { scopes "scopes": Vec<String> = TEXTS, }
    }
}
params! {
    /// Revokes a token of a device.
    DeviceTokenRevoke for "device.token.revoke" -> DeviceTokenRevoked {
        required {
            device_id "deviceId": String = TEXT,
            role "role": String = TEXT,
        }
    }
}
params! {
    /// The programs that skills bring along. Nodes ask for them.
    SkillsBins for "skills.bins" -> SkillPrograms {}
}
params! {
    /// A client's report about itself, or a note for a session.
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
    /// The connected clients.
    SystemPresence for "system-presence" -> Vec<ClientPresence> {}
}
