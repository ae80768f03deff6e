//! The table of checks: the id, which must never change, and why a finding matters.

/// A check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityCheck {
    pub id: &'static str,
    pub why: &'static str,
}

macro_rules! checks {
    ($($name:ident = $id:literal, $why:literal;)+) => {
        /// The checks by name.
        pub mod checks {
            use super::SecurityCheck;
            $(pub const $name: SecurityCheck = SecurityCheck { id: $id, why: $why };)+
        }

        /// All checks, in the order of the reference.
        pub const SECURITY_CHECKS: &[SecurityCheck] = &[$(checks::$name),+];
    };
}

checks! {
    SECURITY_FULL = "tools.exec.security_full_configured",
        "every command of the agent runs, and no approver sees it first";
    HOST_SANDBOX_DEFAULTS = "tools.exec.host_sandbox_no_sandbox_defaults",
        "no sandbox is active, so every call is refused until one is or the key names another host";
    HOST_SANDBOX_AGENTS = "tools.exec.host_sandbox_no_sandbox_agents",
        "no sandbox is active for the agent, so every call is refused until one is or the key names another host";
    SANDBOX_OVERRULED = "sandbox.overruled_by_host",
        "commands of the agent run outside of the sandbox that the config switches on";
    SANDBOX_HOST_ROOT = "sandbox.allow_host_root",
        "where ids cannot be mapped, sandboxed runs are root on the host, though without capabilities";
    SANDBOX_VIEW_HOST = "sandbox.view_host",
        "sandboxed runs read every file of the host that their user can and that no mask hides";
    FS_TOOLS_DISABLED = "tools.exec.fs_tools_disabled_but_exec_enabled",
        "commands can write the files that the disabled tool could write";
    AUTO_ALLOW_SKILLS = "tools.exec.auto_allow_skills_enabled",
        "programs that skills name run without an entry, so a skill decides what is allowed";
    INTERPRETER_ENTRY = "tools.exec.allowlist_interpreter_without_strict_inline_eval",
        "an interpreter runs any code that its arguments hold, so the entry allows everything that code can do";
    SAFE_BINS_INTERPRETER = "tools.exec.safe_bins_interpreter_unprofiled",
        "an interpreter runs what it reads, so it is no filter; without a profile it is never allowed as one";
    SAFE_BINS_BROAD = "tools.exec.safe_bins_broad_behavior",
        "the program can read files, load code or start programs by its arguments; it is refused as a safe bin";
    SAFE_BIN_DIRS = "tools.exec.safe_bin_trusted_dirs_risky",
        "a program that is put into the directory under the name of a safe bin runs without an entry";
    SHIELD_OFF = "tools.exec.shield_off",
        "a run can read, write and trace what its user can, Interlock's state among it: a guard, not a wall";
    SHIELD_UNAVAILABLE = "tools.exec.shield_unavailable",
        "without namespaces a run can read, write and trace what its user can, or nothing runs where a shield is demanded";
    SHIELD_ROOT = "tools.exec.shield_root",
        "root can undo the shield; only a sandbox or another account for runs is a wall";
    RUN_AS_UNUSABLE = "tools.exec.run_as_unusable",
        "no command runs while the account for runs cannot be used";
    BIND_NO_AUTH = "gateway.bind_no_auth",
        "a caller without credentials can call tools as the agent `main`";
    BIND_NO_TLS = "gateway.bind_without_tls",
        "tokens and commands cross the network in clear text";
    LIVE_BIND_DIFFERS = "gateway.live_bind_differs",
        "the running gateway listens at another address than the config says";
    SECRET_FILE = "gateway.secret_file_permissions",
        "a user who can read or replace the file can pass for the gateway or its operator";
    SECRET_FILE_READABLE = "gateway.secret_file_readable",
        "a shielded run does not see the state directory, but other files of its user: with the secret it passes for the owner's gateway or node";
    CHANNEL_INLINE_SECRET = "channels.inline_secret",
        "who reads the config can write as the bot, and edit what an approver reads";
    CHANNEL_SECRET_FILE = "channels.secret_file_readable",
        "a shielded run does not see the state directory, but other files of its user: with the token it writes as the bot";
    CHANNEL_WILDCARD = "channels.approver_wildcard",
        "an entry that names no account makes no account an approver, though its reader may think so";
    CHANNEL_NO_APPROVER = "channels.allow_without_approver",
        "the platform cannot say who taps, so the audit names a topic and no approver";
    NODE_FULL = "nodes.security_full",
        "every command for the node runs there, and no approver sees it first";
    STATE_DIRECTORY = "state.directory_permissions",
        "a user who can write the state directory can replace policy, keys and records";
    STATE_FILE = "state.file_permissions",
        "a user who can change a file of the state directory can change policy, keys or records";
    STATE_UNUSABLE = "state.unusable",
        "nothing can be judged or checked while the state cannot be opened";
    CONFIG_FILE = "config.file_permissions",
        "a user who can change the config can change what runs, where and as whom";
    CONFIG_INVALID = "config.invalid",
        "the config that is in force is not the one that the file says";
    DOCUMENT_UNRECORDED = "approvals.document_unrecorded",
        "the policy was written by something else than Interlock, and nothing runs by it";
    DOCUMENT_INVALID = "approvals.document_invalid",
        "a document that cannot be read allows nothing";
    ENTRY_OVERWRITABLE = "approvals.entry_overwritable",
        "the entry allows whatever program is put there";
    ENTRY_FILE_GONE = "approvals.entry_file_gone",
        "the entry allows nothing now, and whatever appears under its name later";
    ENTRY_NEVER_USED = "approvals.entry_never_used",
        "an entry that no run needed is only a way in";
    ENTRY_EXPIRED = "approvals.entry_expired",
        "the entry no longer matches anything";
    ENTRY_BROKEN = "approvals.entry_broken",
        "an entry that does not compile never matches";
    ENTRY_INERT = "approvals.entry_inert",
        "a remembered approval that binds no arguments never matches: no approver agreed to every use of the program";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_reasons_are_sentences_without_a_full_stop() {
        let mut ids: Vec<&str> = SECURITY_CHECKS.iter().map(|check| check.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), SECURITY_CHECKS.len());
        for check in SECURITY_CHECKS {
            assert!(
                !check.why.is_empty() && !check.why.ends_with('.'),
                "{check:?}"
            );
        }
    }
}
