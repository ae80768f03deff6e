//! Features that the config knows by name and this version does not have. A key of one is refused:
//! a setting that is accepted and has no effect would tell the owner something untrue.

/// A feature that is not there, and what the owner does instead.
#[derive(Debug)]
pub struct MissingFeature {
    /// Stable; for programs.
    pub code: &'static str,
    pub remedy: &'static str,
}

/// Code of a key or value whose feature is not there.
pub const KEY_NOT_AVAILABLE: &str = "KEY_NOT_AVAILABLE";

/// Code of a sandbox that is asked for and cannot be had. Nothing runs on the host instead.
pub const SANDBOX_UNAVAILABLE: &str = "SANDBOX_UNAVAILABLE";

const fn missing(remedy: &'static str) -> MissingFeature {
    MissingFeature {
        code: KEY_NOT_AVAILABLE,
        remedy,
    }
}

pub(super) static SANDBOX: MissingFeature = MissingFeature {
    code: SANDBOX_UNAVAILABLE,
    remedy: "remove the key, or leave `mode` at \"off\": this version confines no run, it judges each one",
};

pub(super) static SANDBOX_TOOLS: MissingFeature = MissingFeature {
    code: SANDBOX_UNAVAILABLE,
    remedy: "remove the key; `tools.allow`, `tools.deny` and `tools.exec` hold for every run",
};

pub(super) static NODE_FROM_SANDBOX: MissingFeature =
    missing("remove the key: without a sandbox, `tools.exec.host` alone says where commands run");

pub(super) static ELEVATED_DEFAULT: MissingFeature =
    missing("remove the key: without a sandbox there is none to leave");

pub(super) static REVIEWER: MissingFeature =
    missing("remove the key; `mode: \"ask\"` puts every miss to an approver");

pub(super) static REVIEWER_MODE: MissingFeature =
    missing("use `ask`: it puts every miss to an approver");

pub(super) static CHANNELS: MissingFeature = missing(
    "remove the key; approvals are decided with `interlock approvals`, an operator client or the approval socket",
);

pub(super) static ACCESS_GROUPS: MissingFeature =
    missing("remove the key; `commands.ownerAllowFrom` lists who may give slash commands");
