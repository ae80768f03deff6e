//! Features that the config knows by name but this version does not have. Their keys must be
//! refused: a setting that is accepted without effect would mislead the owner.

/// A missing feature, and what the owner can do instead.
#[derive(Debug)]
pub struct MissingFeature {
    /// The stable code for programs.
    pub code: &'static str,
    pub remedy: &'static str,
}

/// The code of a key or value whose feature is missing.
pub const KEY_NOT_AVAILABLE: &str = "KEY_NOT_AVAILABLE";

/// The code of a configured sandbox that is unavailable. Nothing may run on the host instead.
pub const SANDBOX_UNAVAILABLE: &str = "SANDBOX_UNAVAILABLE";

const fn missing(remedy: &'static str) -> MissingFeature {
    MissingFeature {
        code: KEY_NOT_AVAILABLE,
        remedy,
    }
}

const fn without(remedy: &'static str) -> MissingFeature {
    MissingFeature {
        code: SANDBOX_UNAVAILABLE,
        remedy,
    }
}

pub(super) static SANDBOX: MissingFeature =
    without("remove the key: the sandbox of this version does not have what it asks for");

pub(super) static SANDBOX_BACKEND: MissingFeature =
    without("use `native`, `bwrap`, `docker`, `podman`, `landlock` or `ssh`, or remove the key");

pub(super) static SANDBOX_PODMAN: MissingFeature =
    without("use `sandbox.docker`: its keys hold for `backend: \"podman\"` too");

pub(super) static SSH_FIXED: MissingFeature = without(
    "remove the key: the system's `ssh` is used, and keys are named by `identityFile`, `certificateFile` and `knownHostsFile`",
);

pub(super) static CONTAINER_FIXED: MissingFeature = without(
    "remove the key: Interlock decides it, and `sandbox.limits`, `sandbox.binds` and `sandbox.network` hold for containers too",
);

pub(super) static CONTAINER_NETWORK: MissingFeature = without(
    "remove the key, and list the hosts in `sandbox.network.allow`: a container has no network of its own",
);

pub(super) static REVIEWER: MissingFeature =
    missing("remove the key; `mode: \"ask\"` puts every miss to an approver");

pub(super) static REVIEWER_MODE: MissingFeature =
    missing("use `ask`: it puts every miss to an approver");

pub(super) static SESSION_MODE: MissingFeature = missing(
    "use `targets`, and name the chats in `approvals.exec.targets`: a conversation has no chat of its own here",
);

pub(super) static ACCESS_GROUPS: MissingFeature =
    missing("remove the key; `commands.ownerAllowFrom` lists who may give slash commands");
