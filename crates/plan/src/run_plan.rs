//! The run plan: the canonical, immutable description of one run. What is shown, stored, approved
//! and run is this value; its digest names it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::account::{AssumedAccount, PlanAccount};
use crate::binding::PlanBinding;
use crate::destination::PinnedPath;
use crate::elevation::{Elevation, PlanRetry};
use crate::host_tree::PlanTree;
use crate::identity::{Drift, PinnedFile};
use crate::race::RaceFreedom;
use crate::sandbox::SandboxPlan;

/// Everything about one run that an attacker could want to change after the approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunPlan {
    pub agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_key: Option<String>,
    /// The user that the run has, where that is not the user of the process that starts it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub account: Option<PlanAccount>,
    /// The command as the caller wrote it.
    pub command: String,
    pub program: PlanProgram,
    pub cwd: PinnedDirectory,
    /// Every directory that a `cd` of the line enters, in the order of the line. A command whose
    /// directory is neither the `cwd` nor one of these does not start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<PinnedDirectory>,
    /// Files that the system loads into an executable from a place that the running user can
    /// write: its dynamic loader, and libraries beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PinnedFile>,
    /// Programs that load libraries from places which depend on more than the plan says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_libraries: Vec<String>,
    /// What an approval of this plan holds on to.
    pub binding: PlanBinding,
    /// The whole environment of the run, after the rules; nothing else is inherited.
    pub env: BTreeMap<String, String>,
    /// The names in `env` that the call set; the host gave the others. An approver reads these with
    /// their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pty: Option<PtySize>,
    pub stdin: PlanStdin,
    /// The whole tree is ended after this time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// Whether a file could be exchanged between the last check and its use, for the approver.
    /// `None` where no approver is asked: then only the result says it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub race_freedom: Option<RaceFreedom>,
    /// What keeps the run away from Interlock itself. A plan without this field is shielded.
    #[serde(default)]
    pub shield: PlanShield,
    /// What confines the run. `None` is a run on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxPlan>,
    /// How far the run leaves the sandbox that its conversation has. A plan without this field leaves
    /// none.
    #[serde(default, skip_serializing_if = "Elevation::is_off")]
    pub elevated: Elevation,
    /// The run inside that this one repeats outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<PlanRetry>,
    /// Which programs a run on the host may start, where that is limited or logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<PlanTree>,
}

/// Whether the run lives in namespaces in which Interlock's state directory, sockets and processes
/// do not exist, and if not, why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanShield {
    /// Mount and PID namespaces that belong to a user namespace: an ordinary user cannot undo them.
    #[default]
    User,
    /// Mount and PID namespaces of root, which can undo them.
    Root,
    /// The line starts a program that cannot work in a user namespace, and may run without one.
    Without,
    /// The owner switched the shield off.
    Off,
    /// This system offers no namespaces for it.
    Unavailable,
    /// The run is in a sandbox, which keeps it away from Interlock and from more.
    Sandbox,
}

impl PlanShield {
    /// Whether the run is started in namespaces.
    pub fn is_shielded(self) -> bool {
        matches!(self, Self::User | Self::Root)
    }

    /// What prompts, results and audit records say.
    pub fn words(self) -> &'static str {
        match self {
            Self::User => "shielded",
            Self::Root => "shielded (guard only: root can undo it)",
            Self::Without => "without the shield",
            Self::Off => "guard only (tools.exec.shield is off)",
            Self::Unavailable => "guard only (this system offers no namespaces for the shield)",
            Self::Sandbox => "in its sandbox",
        }
    }
}

impl std::fmt::Display for PlanShield {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

/// How the run is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanProgram {
    /// By Interlock itself: no shell sees the text.
    Direct { pipelines: Vec<PlanPipeline> },
    /// `SHELL [options] -c -- TEXT`, never a login or interactive shell.
    Shell {
        shell: PinnedFile,
        options: Vec<String>,
        text: String,
    },
    /// The same with the shell of a sandbox that shows another system than this one. No file of this
    /// host stands for it: the id of the image says which one it is.
    Inside {
        /// As the run sees it.
        shell: String,
        options: Vec<String>,
        text: String,
    },
}

/// Commands joined by pipes, and what comes after them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanPipeline {
    pub stages: Vec<PlanStage>,
    /// `time` in front: how long it took is written to standard error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timed: Option<TimeFormat>,
    pub next: PlanNext,
}

/// What stands between a pipeline and the next one. A list that ends in `Background` goes to the
/// background as a whole, back to the last `Sequence` or `Background`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanNext {
    And,
    Or,
    Sequence,
    Background,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeFormat {
    Bash,
    Posix,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanStage {
    pub action: PlanAction,
    /// Applied from left to right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirections: Vec<PlanRedirection>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanAction {
    /// A program from its pinned file. `argv[0]` is what it is called.
    Execute {
        executable: PinnedFile,
        argv: Vec<String>,
        /// Set for this program only.
        env: Vec<(String, String)>,
        cwd: String,
        /// Files that it will read or start and that are judged too: the script of a shell, the
        /// program behind a wrapper. They stand in `argv` by their absolute path.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passes_on: Vec<PinnedFile>,
        /// Paths in `argv` that an entry was judged by. They must lead there still when it starts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        paths: Vec<PinnedPath>,
    },
    /// One of Interlock's own: `cd : true false pwd test [`.
    Builtin {
        name: String,
        arguments: Vec<String>,
        cwd: String,
    },
    /// What `sh -c TEXT` says, with its own working directory and exit status.
    Group { pipelines: Vec<PlanPipeline> },
}

/// Touches no file but `/dev/null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanRedirection {
    pub stream: PlanStream,
    pub target: PlanTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanStream {
    Stdin,
    Stdout,
    Stderr,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanTarget {
    Null,
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PtySize {
    pub columns: u16,
    pub rows: u16,
}

/// What the run reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanStdin {
    Null,
    /// Kept open for later writing. A terminal is always writable.
    Pipe,
}

/// A directory that a run starts in or enters, by path and identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinnedDirectory {
    pub requested: String,
    pub canonical: String,
    pub device: u64,
    pub inode: u64,
}

/// SHA-256 of a plan's canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlanDigest(String);

impl PlanDigest {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for PlanDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl RunPlan {
    /// The name of exactly this plan: every field counts, in a fixed order.
    pub fn digest(&self) -> PlanDigest {
        // Plain data with string keys: serialization cannot fail.
        let canonical = serde_json::to_vec(self).unwrap_or_default();
        let mut hash = Sha256::new();
        hash.update(b"interlock run plan v1\0");
        hash.update(&canonical);
        PlanDigest(crate::identity::hex(&hash.finalize()))
    }

    /// Gives the calling thread the file access rights of the run's user until the result is
    /// dropped: to look at files as the run will.
    pub fn assume_account(&self) -> Result<Option<AssumedAccount>, Drift> {
        let account = self.account.as_ref();
        Ok(account.map(PlanAccount::assume).transpose()?)
    }

    /// The files that are executed, in the order of the plan, groups included.
    pub fn executables(&self) -> Vec<&PinnedFile> {
        let mut found = Vec::new();
        if let PlanProgram::Shell { shell, .. } = &self.program {
            found.push(shell);
        }
        if let Some(ssh) = self.sandbox.as_ref().and_then(|own| own.ssh.as_ref()) {
            found.push(&ssh.client);
        }
        self.each_action(|action| {
            if let PlanAction::Execute { executable, .. } = action {
                found.push(executable);
            }
        });
        found
    }

    /// The files that are passed on to what is executed; those open them by path.
    pub fn passed_on(&self) -> Vec<&PinnedFile> {
        let mut found = Vec::new();
        self.each_action(|action| {
            if let PlanAction::Execute { passes_on, .. } = action {
                found.extend(passes_on);
            }
        });
        found
    }

    /// The files of the plan besides its binding: what is executed, passed on and loaded.
    pub fn pinned_files(&self) -> impl Iterator<Item = &PinnedFile> {
        let executed = self.executables().into_iter().chain(self.passed_on());
        executed.chain(&self.libraries)
    }

    /// Whether the plan pins a file with exactly this content. A file without a hash is one that
    /// the running user cannot alter.
    pub fn holds_content(&self, path: &str, sha256: &str) -> bool {
        let bound = self.binding.files.iter().map(|bound| &bound.file);
        let mut files = bound.chain(self.pinned_files());
        files.any(|file| {
            let is_same = |hash: &String| hash.eq_ignore_ascii_case(sha256);
            file.canonical == path && file.sha256.as_ref().is_none_or(is_same)
        })
    }

    /// The directories that the run uses: the working directory, then those that a `cd` enters.
    pub fn all_directories(&self) -> impl Iterator<Item = &PinnedDirectory> {
        std::iter::once(&self.cwd).chain(&self.directories)
    }

    /// The pinned directory that a command names by its canonical path.
    pub fn directory_at(&self, canonical: &str) -> Option<&PinnedDirectory> {
        self.all_directories()
            .find(|directory| directory.canonical == canonical)
    }

    /// Looks at every action in the order of the plan, groups and their members included.
    pub fn each_action<'a>(&'a self, mut look: impl FnMut(&'a PlanAction)) {
        let PlanProgram::Direct { pipelines } = &self.program else {
            return;
        };
        let mut waiting: Vec<&PlanPipeline> = pipelines.iter().rev().collect();
        while let Some(pipeline) = waiting.pop() {
            for stage in &pipeline.stages {
                look(&stage.action);
                if let PlanAction::Group { pipelines } = &stage.action {
                    waiting.extend(pipelines.iter().rev());
                }
            }
        }
    }
}
