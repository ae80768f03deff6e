//! The run plan: the canonical, immutable description of one run. This value is what is shown,
//! stored, approved and run; its digest names it.

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
    /// The user of the run, if it differs from the user of the process that starts it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub account: Option<PlanAccount>,
    /// The command as the caller wrote it.
    pub command: String,
    pub program: PlanProgram,
    pub cwd: PinnedDirectory,
    /// Every directory that a `cd` of the line enters, in the order of the line. A command whose
    /// directory is neither `cwd` nor one of these does not start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<PinnedDirectory>,
    /// Files that the system loads into an executable from a place that the running user can write:
    /// its dynamic loader, and libraries beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PinnedFile>,
    /// Programs that load libraries from places that the plan cannot determine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_libraries: Vec<String>,
    /// The files and places that an approval of this plan binds.
    pub binding: PlanBinding,
    /// The whole environment of the run, after the rules. Nothing else is inherited.
    pub env: BTreeMap<String, String>,
    /// The names in `env` that the call set; the host set the others. An approver reads them with
    /// their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pty: Option<PtySize>,
    pub stdin: PlanStdin,
    /// The limit after which the whole tree is ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// Whether a file could be exchanged between the last check and its use, for the approver.
    /// `None` if no approver is asked: then only the result says it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub race_freedom: Option<RaceFreedom>,
    /// What keeps the run away from Interlock itself. A plan without this field is shielded.
    #[serde(default)]
    pub shield: PlanShield,
    /// What confines the run. `None` means a run on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxPlan>,
    /// How far the run leaves the sandbox of its conversation. A plan without this field does not
    /// leave it.
    #[serde(default, skip_serializing_if = "Elevation::is_off")]
    pub elevated: Elevation,
    /// The sandboxed run that this run repeats outside of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<PlanRetry>,
    /// Which programs a run on the host may start, where that is limited or logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<PlanTree>,
}

/// Whether the run has namespaces in which Interlock's state directory, sockets and processes do
/// not exist; if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanShield {
    /// Mount and PID namespaces that belong to a user namespace. An ordinary user cannot undo them.
    #[default]
    User,
    /// Mount and PID namespaces of root, which can undo them.
    Root,
    /// The line starts a program that cannot work in a user namespace, and may run without one.
    Without,
    /// The owner switched the shield off.
    Off,
    /// This system offers no namespaces for the shield.
    Unavailable,
    /// The run is in a sandbox, which keeps it away from Interlock and from other things.
    Sandbox,
}

impl PlanShield {
    /// Whether the run is started in namespaces.
    pub fn is_shielded(self) -> bool {
        matches!(self, Self::User | Self::Root)
    }

    /// The description in prompts, results and audit records.
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
    /// Interlock itself starts the programs: no shell sees the text.
    Direct { pipelines: Vec<PlanPipeline> },
    /// `SHELL [options] -c -- TEXT`, never a login or interactive shell.
    Shell {
        shell: PinnedFile,
        options: Vec<String>,
        text: String,
    },
    /// Like `Shell`, with the shell of a sandbox that shows another system than this one. No file
    /// of this host identifies that shell; the id of the image does.
    Inside {
        /// The path as the run sees it.
        shell: String,
        options: Vec<String>,
        text: String,
    },
}

/// Commands joined by pipes, and the connector after them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanPipeline {
    pub stages: Vec<PlanStage>,
    /// `time` precedes the pipeline: its duration is written to standard error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timed: Option<TimeFormat>,
    pub next: PlanNext,
}

/// The connector between a pipeline and the next one. A list that ends in `Background` goes to the
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
    /// Starts a program from its pinned file. `argv[0]` is the program's name for itself.
    Execute {
        executable: PinnedFile,
        argv: Vec<String>,
        /// Set only for this program.
        env: Vec<(String, String)>,
        cwd: String,
        /// Files that the program will read or start and that were judged too: the script of a
        /// shell, or the program behind a wrapper. `argv` contains their absolute paths.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passes_on: Vec<PinnedFile>,
        /// Paths in `argv` by which an entry was judged. They must still lead to the same place at
        /// the start.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        paths: Vec<PinnedPath>,
    },
    /// A builtin of Interlock: `cd : true false pwd test [`.
    Builtin {
        name: String,
        arguments: Vec<String>,
        cwd: String,
    },
    /// The content of `sh -c TEXT`, with its own working directory and exit status.
    Group { pipelines: Vec<PlanPipeline> },
}

/// A redirection, which can touch no file but `/dev/null`.
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
    /// Stays open for later writing. A terminal is always writable.
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
    /// The digest that names exactly this plan: every field counts, in a fixed order.
    pub fn digest(&self) -> PlanDigest {
        // Serialization cannot fail: the plan is plain data with string keys.
        let canonical = serde_json::to_vec(self).unwrap_or_default();
        let mut hash = Sha256::new();
        hash.update(b"interlock run plan v1\0");
        hash.update(&canonical);
        PlanDigest(crate::identity::hex(&hash.finalize()))
    }

    /// Gives the calling thread the file access rights of the run's user until the result is
    /// dropped, so that it sees files as the run will.
    pub fn assume_account(&self) -> Result<Option<AssumedAccount>, Drift> {
        let account = self.account.as_ref();
        Ok(account.map(PlanAccount::assume).transpose()?)
    }

    /// The executed files, in the order of the plan, including groups.
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

    /// The files that are passed on to executed programs, which open them by path.
    pub fn passed_on(&self) -> Vec<&PinnedFile> {
        let mut found = Vec::new();
        self.each_action(|action| {
            if let PlanAction::Execute { passes_on, .. } = action {
                found.extend(passes_on);
            }
        });
        found
    }

    /// The files of the plan besides its binding: executed, passed on and loaded files.
    pub fn pinned_files(&self) -> impl Iterator<Item = &PinnedFile> {
        let executed = self.executables().into_iter().chain(self.passed_on());
        executed.chain(&self.libraries)
    }

    /// Whether the plan pins a file with exactly this content. The running user cannot change a
    /// file without a hash.
    pub fn holds_content(&self, path: &str, sha256: &str) -> bool {
        let bound = self.binding.files.iter().map(|bound| &bound.file);
        let mut files = bound.chain(self.pinned_files());
        files.any(|file| {
            let is_same = |hash: &String| hash.eq_ignore_ascii_case(sha256);
            file.canonical == path && file.sha256.as_ref().is_none_or(is_same)
        })
    }

    /// The directories of the run: the working directory, then those that a `cd` enters.
    pub fn all_directories(&self) -> impl Iterator<Item = &PinnedDirectory> {
        std::iter::once(&self.cwd).chain(&self.directories)
    }

    /// The pinned directory with this canonical path.
    pub fn directory_at(&self, canonical: &str) -> Option<&PinnedDirectory> {
        self.all_directories()
            .find(|directory| directory.canonical == canonical)
    }

    /// Visits every action in the order of the plan, including groups and their members.
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
