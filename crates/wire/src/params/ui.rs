//! The Control UI: its pages, and how a browser gets in.

use serde_json::{Map, Value};

use crate::approval::{ApprovalAskedAgain, ApprovalsDecided};
use crate::results::{
    PushChanged, PushKeyShown, PushTested, UiClosed, UiCodeMinted, UiOpened, UiPhoneInvited,
};
use crate::schema::{OPEN, PropertyKind, TEXT};

/// The pages that `ui.open` renders.
pub const UI_VIEWS: &[&str] = &[
    "inbox", "approval", "sessions", "session", "nodes", "policy", "audit", "sandbox", "settings",
    "health",
];

params! {
    /// Opens a page: its HTML, and the topic of the events `ui.patch` that change it from then on.
    /// A connection that opened a page is sent no other events of approvals. An Interlock extension.
    UiOpen for "ui.open" -> UiOpened {
        required { view "view": String = PropertyKind::OneOf(UI_VIEWS), }
        optional {
            /// What the page shows: an id, a filter, a place in a list.
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
    /// Mints a code with which a browser of this machine gets in, once, within a minute. Only at the
    /// Unix socket. An Interlock extension.
    UiCode for "ui.code" -> UiCodeMinted {}
}
params! {
    /// Mints a code with which one phone may ask to be let in, within 5 minutes, for approvals. An
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
            /// The browser's key and secret, base64url.
            p256dh "p256dh": String = TEXT,
            auth "auth": String = TEXT,
        }
    }
}
params! {
    /// Sends no more notifications to this device. An Interlock extension.
    PushUnsubscribe for "push.unsubscribe" -> PushChanged {}
}
params! {
    /// Sends a notification to this device, to see whether it arrives. An Interlock extension.
    PushTest for "push.test" -> PushTested {}
}
params! {
    /// Asks once more about the plan of an approval that expired within the last 10 minutes. An
    /// Interlock extension.
    ExecApprovalAskAgain for "exec.approval.askAgain" -> ApprovalAskedAgain {
        required { id "id": String = TEXT, }
    }
}
object! {
    /// One approval of several that are decided together.
    ApprovalNamed {
        required {
            id "id": String = TEXT,
            /// The digest of the plan that was shown.
            plan_digest "planDigest": String = TEXT,
        }
        optional {
            /// The ticket of the view that showed it.
            ticket "ticket": String = TEXT,
        }
    }
}
params! {
    /// Decides several approvals, each by itself: one result per item. An Interlock extension.
    ExecApprovalResolveMany for "exec.approval.resolveMany" -> ApprovalsDecided {
        required {
            items "items": Vec<ApprovalNamed> = PropertyKind::List(&PropertyKind::Object(&ApprovalNamed::SHAPE), 100),
            /// `allow-once` or `deny`.
            decision "decision": String = PropertyKind::OneOf(&["allow-once", "deny"]),
        }
        optional {
            /// Why they are denied; the callers read it.
            reason "reason": String = TEXT,
        }
    }
}
