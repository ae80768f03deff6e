//! What an approval can hold on to: the value that is shown, stored and put into the plan.

use interlock_programs::{Executable, Missing};
use serde::{Deserialize, Serialize};

/// How firmly an approval can hold what it approves, and how much of it *always* may store, from
/// firm to not at all. A line takes the worst kind of any command seen in it: text among it means
/// that nothing is stored, and a command in it that runs project code is reported besides
/// ([`Binding::projects`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingKind {
    /// Native executables, by identity.
    Native,
    /// One concrete local file and its interpreter, by content.
    File,
    /// Files of the project decide which code runs: only the program and its words are held.
    Project,
    /// All code is visible in the request itself.
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
    /// What made it so.
    pub reason: String,
    /// Files that are read as code or settings, or started by another program: their content is
    /// bound. Executables that Interlock starts itself are pinned besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BoundFile>,
    /// Paths that would come first if there were something: they must stay empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbound: Option<Unbound>,
    /// Runs whose code files of a project decide, whatever kind the whole line is of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<ProjectRun>,
    /// What else an approver should know, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One run of a program that takes its code from a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectRun {
    /// The program and the words that decide: `cargo test`.
    pub label: String,
    /// The program, by its plain name.
    pub program: String,
    /// The sentence that an approver reads.
    pub sentence: String,
    /// Where the project begins. None where that is only known when it runs, or where code is fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Canonical paths of the files there that decide, as far as they have customary names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<String>,
    pub scope: ProjectScope,
}

/// What *always for this project* may store of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProjectScope {
    /// The first so many words, those of wrappers and the program among them. What stands behind them was
    /// read, and leads nowhere else.
    Leading(usize),
    /// All words as they are.
    Words,
    /// Nothing, with the reason.
    Nothing(String),
}

/// A file whose content an approval holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundFile {
    pub role: BoundRole,
    #[serde(flatten)]
    pub file: Executable,
    /// Where it stands among the words of its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operand: Option<usize>,
    /// Another program will look it up in PATH by this name, and must find the same file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_up: Option<String>,
}

impl Binding {
    /// The one file that decides what runs, where there is just one: it is named in the command,
    /// nothing else of the project is read as code or settings, and no other file would come first.
    /// Its interpreters may stand beside it.
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

/// What a bound file is to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundRole {
    /// Code.
    Script,
    /// Runs a script.
    Interpreter,
    /// Started by another program.
    Program,
    /// Can name code to load.
    Settings,
}

/// Why nothing can be bound, for the reader who wants to change that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unbound {
    /// The executable of the command, as resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// A form of the command that could be bound.
    pub expected: String,
    pub found: String,
    /// The ways out, in words. Empty where only another command would help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<&'static str>,
    /// The one thing to do next, as a command that can be pasted.
    pub next_step: String,
    /// What is to run is not there yet, or cannot be executed yet. A command in front of it may change that.
    #[serde(skip)]
    pub(super) is_awaited: bool,
    /// The commands in front of it, where they may make what is to run. Empty text where they cannot be cut out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<String>,
}

impl Unbound {
    /// How the line can be split, where a command of it may make what another one runs.
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

/// Lets approvers allow what cannot be bound.
const ASK_ABOUT_UNBOUND: &str = "interlock config set tools.exec.unboundApprovals ask";

/// The ways out of an unbound command.
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

    /// A file that is read as code, at this index in argv.
    pub(super) fn code(reason: &str, file: &Executable, index: Option<usize>) -> Self {
        Self::new(BindingKind::File, reason).with(BoundFile {
            role: BoundRole::Script,
            file: file.clone(),
            operand: index,
            looked_up: None,
        })
    }

    /// `found` completes "expected …, found …".
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

    /// There is nothing that could run.
    pub(super) fn missing(name: &str, found: impl Into<String>) -> Self {
        let mut binding = Self::unbound(name, None, "a program or file that exists", found);
        if let Some(unbound) = &mut binding.unbound {
            unbound.remedies.clear();
            unbound.next_step = look_for(name);
        }
        binding
    }

    /// The same, of a file that is to run and may be made by a command in front of it.
    pub(super) fn awaiting(mut self, missing: &Missing) -> Self {
        if let Some(unbound) = &mut self.unbound {
            let can_come = matches!(missing, Missing::NotFound | Missing::NotExecutable(_));
            unbound.is_awaited = can_come;
        }
        self
    }

    /// Whether a command in front of this one may make what is to run.
    pub(super) fn is_awaiting(&self) -> bool {
        self.unbound
            .as_ref()
            .is_some_and(|unbound| unbound.is_awaited)
    }

    /// Names the commands in front of it, which may make what is to run: in a call of their own they leave
    /// something that can be bound.
    pub(super) fn behind(mut self, earlier: String) -> Self {
        if let Some(unbound) = &mut self.unbound {
            if !earlier.is_empty() {
                unbound.next_step = format!("interlock exec -- {}", shell_word(&earlier));
            }
            unbound.earlier = Some(earlier);
        }
        self
    }

    /// The worse of the two; what either holds on to is held.
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

    /// A run whose code a project decides.
    pub(super) fn project(run: ProjectRun) -> Self {
        Self {
            reason: run.sentence.clone(),
            projects: vec![run],
            ..Self::new(BindingKind::Project, "")
        }
    }

    /// Each note once.
    pub(super) fn noting(mut self, note: String) -> Self {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        self
    }

    /// Each file once in each role, wherever it stands.
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

/// How a person finds out why a name leads to nothing.
fn look_for(name: &str) -> String {
    let name = shell_word(name);
    if name.contains('/') {
        format!("ls -l -- {name}")
    } else {
        format!("type -a -- {name}")
    }
}

/// A word for a POSIX shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./+:@%,=~".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
