//! The binding: what an approval pins. It is shown to the approver, stored, and put into the plan.

use interlock_programs::{Executable, Missing};
use serde::{Deserialize, Serialize};

/// How firmly an approval can pin what it allows, and how much *always* may store, from firm to not
/// at all. A line has the worst kind of all commands in it. If one of them is text, nothing is
/// stored. Commands that run project code are also listed in [`Binding::projects`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingKind {
    /// Native executables, by identity.
    Native,
    /// A local file and its interpreter, by content.
    File,
    /// Files of the project decide which code runs, so only the program and its words are pinned.
    Project,
    /// All code is visible in the request.
    Text,
    /// Code comes from elsewhere.
    Unbound,
}

impl BindingKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::File => "file",
            Self::Project => "project",
            Self::Text => "text",
            Self::Unbound => "unbound",
        }
    }
}

/// The binding of a command or of a whole line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binding {
    pub kind: BindingKind,
    /// Why the binding has this kind.
    pub reason: String,
    /// Files that are read as code or settings, or started by another program. Their content is
    /// bound. Executables that Interlock starts itself are not in this list; the plan pins them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BoundFile>,
    /// Paths that would take precedence if a file were there. They must stay empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbound: Option<Unbound>,
    /// Runs of project code, whatever kind the whole line has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<ProjectRun>,
    /// Other facts for the approver, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A run of a program that takes its code from a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectRun {
    /// The program and the words that decide what runs, such as `cargo test`.
    pub label: String,
    /// The plain name of the program.
    pub program: String,
    /// The sentence that an approver reads.
    pub sentence: String,
    /// The root of the project. `None` if it is only known when the command runs, or if the code is
    /// fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Canonical paths of the files in the project that decide what runs, if they have usual names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<String>,
    pub scope: ProjectScope,
}

/// What *always for this project* may store of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProjectScope {
    /// This many leading words, including wrappers and the program. The words after them were
    /// checked and do not lead to other code.
    Leading(usize),
    /// All words unchanged.
    Words,
    /// Nothing, with the reason.
    Nothing(String),
}

/// A file whose content an approval binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundFile {
    pub role: BoundRole,
    #[serde(flatten)]
    pub file: Executable,
    /// The index of the file among the words of its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operand: Option<usize>,
    /// The name under which another program looks it up in PATH, where it must find the same file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_up: Option<String>,
}

impl Binding {
    /// The file that alone decides what runs, if there is one: the command names it, nothing else
    /// of the project is read as code or settings, and no other file would take precedence. Its
    /// interpreters may be bound as well.
    pub fn sole_script(&self) -> Option<&BoundFile> {
        let mut others = self
            .files
            .iter()
            .filter(|file| file.role != BoundRole::Interpreter);
        let script = others
            .next()
            .filter(|file| file.role == BoundRole::Script)?;
        let is_sole = self.kind == BindingKind::File
            && script.operand.is_some()
            && others.next().is_none()
            && self.absent.is_empty();
        is_sole.then_some(script)
    }
}

/// The role of a bound file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundRole {
    /// Code.
    Script,
    /// The interpreter of a script.
    Interpreter,
    /// A program that another program starts.
    Program,
    /// Settings that can name code to load.
    Settings,
}

/// Why nothing can be bound, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unbound {
    /// The resolved executable of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// A form of the command that could be bound.
    pub expected: String,
    pub found: String,
    /// Remedies in words. Empty if only another command would help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<&'static str>,
    /// What to do next, as a command to paste.
    pub next_step: String,
    /// Whether the file to run is missing or not executable yet. An earlier command of the line may
    /// change that.
    #[serde(skip)]
    pub(super) is_awaited: bool,
    /// The earlier commands of the line, if they may create the file to run. It is empty if they
    /// cannot be separated from the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<String>,
}

impl Unbound {
    /// How to split the line, if one of its commands may create what another one runs.
    pub fn split_advice(&self) -> Option<String> {
        let first = match self.earlier.as_deref()? {
            "" => "the commands in front of it".to_owned(),
            earlier => format!("`{earlier}`"),
        };
        Some(format!(
            "split the line, because an approval holds what runs by its content, and it is not there yet: first {first}, \
             then the rest in a call of its own"
        ))
    }
}

/// The command that lets approvers allow unbound commands.
const ASK_ABOUT_UNBOUND: &str = "interlock config set tools.exec.unboundApprovals ask";

/// The remedies for an unbound command.
const REMEDIES: [&str; 4] = [
    "run it in a sandbox",
    "let an allowlist entry with exactly these arguments allow it",
    "set `security` to `full` for this agent",
    "set tools.exec.unboundApprovals to \"ask\": a human may then approve it once, marked unbound",
];

impl Binding {
    pub(super) fn new(kind: BindingKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
            files: Vec::new(),
            absent: Vec::new(),
            unbound: None,
            projects: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn native() -> Self {
        Self::new(BindingKind::Native, "a native executable")
    }

    /// The binding of a file that is read as code, at this index of argv.
    pub(super) fn code(reason: &str, file: &Executable, index: Option<usize>) -> Self {
        Self::new(BindingKind::File, reason).with(BoundFile {
            role: BoundRole::Script,
            file: file.clone(),
            operand: index,
            looked_up: None,
        })
    }

    /// An unbound command. `found` completes "expected …, found …".
    pub(super) fn unbound(
        name: &str,
        executable: Option<&Executable>,
        expected: &str,
        found: impl Into<String>,
    ) -> Self {
        let found = found.into();
        let unbound = Unbound {
            executable: executable.map(|executable| executable.found.clone()),
            expected: expected.to_owned(),
            found: found.clone(),
            remedies: REMEDIES.to_vec(),
            next_step: ASK_ABOUT_UNBOUND.to_owned(),
            is_awaited: false,
            earlier: None,
        };
        Self {
            unbound: Some(unbound),
            ..Self::new(BindingKind::Unbound, format!("`{name}`: {found}"))
        }
    }

    /// The binding if the program or file does not exist.
    pub(super) fn missing(name: &str, found: impl Into<String>) -> Self {
        let mut binding = Self::unbound(name, None, "a program or file that exists", found);
        if let Some(unbound) = &mut binding.unbound {
            unbound.remedies.clear();
            unbound.next_step = look_for(name);
        }
        binding
    }

    /// Marks that an earlier command may create the missing file.
    pub(super) fn awaiting(mut self, missing: &Missing) -> Self {
        if let Some(unbound) = &mut self.unbound {
            let can_come = matches!(missing, Missing::NotFound | Missing::NotExecutable(_));
            unbound.is_awaited = can_come;
        }
        self
    }

    /// Whether an earlier command may create the file to run.
    pub(super) fn is_awaiting(&self) -> bool {
        self.unbound
            .as_ref()
            .is_some_and(|unbound| unbound.is_awaited)
    }

    /// Adds the earlier commands, which may create the file to run. If they run in a separate call
    /// first, the file can be bound afterwards.
    pub(super) fn behind(mut self, earlier: String) -> Self {
        if let Some(unbound) = &mut self.unbound {
            if !earlier.is_empty() {
                unbound.next_step = format!("interlock exec -- {}", shell_word(&earlier));
            }
            unbound.earlier = Some(earlier);
        }
        self
    }

    /// Combines two bindings: the worse kind wins, and the files of both are bound.
    pub(super) fn and(mut self, mut other: Self) -> Self {
        if other.kind > self.kind {
            std::mem::swap(&mut self, &mut other);
        }
        for file in other.files {
            self = self.with(file);
        }
        for path in other.absent {
            if !self.absent.contains(&path) {
                self.absent.push(path);
            }
        }
        for run in other.projects {
            if !self.projects.contains(&run) {
                self.projects.push(run);
            }
        }
        for note in other.notes {
            self = self.noting(note);
        }
        self
    }

    /// The binding of a run of project code.
    pub(super) fn project(run: ProjectRun) -> Self {
        Self {
            reason: run.sentence.clone(),
            projects: vec![run],
            ..Self::new(BindingKind::Project, "")
        }
    }

    /// Adds a note, unless it is already there.
    pub(super) fn noting(mut self, note: String) -> Self {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        self
    }

    /// Adds a file, unless it is already bound in the same role.
    pub(super) fn with(mut self, file: BoundFile) -> Self {
        let is_known = self.files.iter().any(|known| {
            known.role == file.role && known.file == file.file && known.looked_up == file.looked_up
        });
        if !is_known {
            self.files.push(file);
        }
        self
    }
}

/// The command with which the owner finds out why a name leads to nothing.
fn look_for(name: &str) -> String {
    let name = shell_word(name);
    if name.contains('/') {
        format!("ls -l -- {name}")
    } else {
        format!("type -a -- {name}")
    }
}

/// Quotes a word for a POSIX shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./+:@%,=~".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
