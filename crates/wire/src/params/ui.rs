//! The Control UI: its pages, and the access of browsers.

use serde_json::{Map, Value};

use crate::approval::{ApprovalAskedAgain, ApprovalsDecided};
use crate::results::{
    PushChanged, PushKeyShown, PushTested, UiClosed, UiCodeMinted, UiOpened, UiPhoneInvited,
    UiScreenFitted,
};
use crate::schema::{OPEN, PropertyKind, TEXT};

/// The pages that `ui.open` renders.
pub const UI_VIEWS: &[&str] = &[
    "inbox", "approval", "sessions", "session", "nodes", "policy", "audit", "sandbox", "settings",
    "health",
];

params! {
    /// Opens a page: returns its HTML, and the topic of the later `ui.patch` events that change it.
    /// A connection that opened a page gets no other events about approvals. An Interlock
    /// extension.
    UiOpen for "ui.open" -> UiOpened {
        required { view "view": String = PropertyKind::OneOf(UI_VIEWS), }
        optional {
            /// The subject of the page: an id, a filter, or a position in a list.
            params "params": Map<String, Value> = OPEN,
        }
    }
}
params! {
    /// Ends the events of a page. An Interlock extension.
    UiClose for "ui.close" -> UiClosed {
        required { topic "topic": String = TEXT, }
    }
}
params! {
    /// Mints a code that gives a browser of this machine access, once, within a minute. Only
    /// available at the Unix socket. An Interlock extension.
    UiCode for "ui.code" -> UiCodeMinted {}
}
params! {
    /// Resizes the terminal of a background session to a viewer's window. Another viewer that
    /// resized it before owns the size while it watches. An Interlock extension.
    UiScreen for "ui.screen" -> UiScreenFitted {
        required {
            session_id "sessionId": String = TEXT,
            columns "columns": u64 = PropertyKind::Integer(2, 1000),
            rows "rows": u64 = PropertyKind::Integer(2, 1000),
        }
    }
}
params! {
    /// Mints a code with which one phone may ask for access to approvals within 5 minutes. An
    /// Interlock extension.
    UiPhone for "ui.phone" -> UiPhoneInvited {}
}
params! {
    /// The key with which a browser subscribes to notifications. An Interlock extension.
    PushKey for "push.key" -> PushKeyShown {}
}
params! {
    /// Sends notifications of approvals to this device. An Interlock extension.
    PushSubscribe for "push.subscribe" -> PushChanged {
        required {
            endpoint "endpoint": String = TEXT,
            /// The browser's key and secret, in base64url.
            p256dh "p256dh": String = TEXT,
            auth "auth": String = TEXT,
        }
    }
}
params! {
    /// Stops notifications to this device. An Interlock extension.
    PushUnsubscribe for "push.unsubscribe" -> PushChanged {}
}
params! {
    /// Sends a test notification to this device. An Interlock extension.
    PushTest for "push.test" -> PushTested {}
}
params! {
    /// Asks again about the plan of an approval that expired within the last 10 minutes. An
    /// Interlock extension.
    ExecApprovalAskAgain for "exec.approval.askAgain" -> ApprovalAskedAgain {
        required { id "id": String = TEXT, }
    }
}
object! {
    /// One of several approvals that are decided together.
    ApprovalNamed {
        required {
            id "id": String = TEXT,
            /// The digest of the plan that was shown.
            plan_digest "planDigest": String = TEXT,
        }
        optional {
            /// The ticket of the view that showed the approval.
            ticket "ticket": String = TEXT,
        }
    }
}
params! {
    /// Decides several approvals, each independently: one result per item. An Interlock extension.
    ExecApprovalResolveMany for "exec.approval.resolveMany" -> ApprovalsDecided {
        required {
            items "items": Vec<ApprovalNamed> = PropertyKind::List(&PropertyKind::Object(&ApprovalNamed::SHAPE), 100),
            /// `allow-once` or `deny`.
            decision "decision": String = PropertyKind::OneOf(&["allow-once", "deny"]),
        }
        optional {
            /// The reason of the denials, which the callers read.
            reason "reason": String = TEXT,
        }
    }
}
