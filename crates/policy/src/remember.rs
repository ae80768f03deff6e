//! Computes what "always" would store before the approver decides, so that it can be shown.
//!
//! The exact form is the approved call and nothing else: this program, these arguments, this
//! directory, these environment values, this terminal and standard input, and the content of a
//! script or of a program that the running user could alter. If files of a project decide what
//! runs, the entry is stored for that project (`project`). Wider forms are offered only if an
//! approver can see what they would let through. Otherwise they are left out, with the reason.

mod project;
mod readers;
mod wider;

pub(crate) use readers::is_filter_or_reader;
pub(crate) use wider::holds_secret_pair;

use std::fmt;
use std::str::FromStr;

use interlock_binding::{Binding, BindingKind};
use interlock_command::{Analysis, Command, Program, Shape};
use interlock_programs::{Executable, FileKind, Resolver, starts_others};
use serde::{Deserialize, Serialize};

use crate::arguments::digest_pattern;
use crate::entry::{ALLOW_ALWAYS, BoundContent, Entry, EntryShield};
use crate::judge::{
    BEYOND_ENTRIES, CallerInput, CommandCaller, JudgedCall, VerdictShield, called_as, sole_content,
};
use crate::verdict::JudgedCommand;

/// The entries that would satisfy the present misses, or the reason why there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remember {
    /// The entries that "always" stores unless the approver chooses another form.
    pub entries: Vec<Entry>,
    /// The form of these entries: exact, or for this project.
    #[serde(skip_serializing_if = "AlwaysForm::is_exact")]
    pub form: AlwaysForm,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_because: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wider: Vec<Wider>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_wider: Vec<NotWider>,
}

/// A wider form and the entries that it would store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wider {
    pub form: AlwaysForm,
    pub entries: Vec<Entry>,
}

/// A wider form that is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NotWider {
    /// `leading` or `program`.
    pub form: String,
    pub why: String,
}

/// How much "always" stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AlwaysForm {
    /// These arguments in this directory.
    #[default]
    Exact,
    /// The first arguments, this many, then any.
    Leading(usize),
    /// Any arguments.
    Program,
    /// The words that decide, in this project, because the files of the project decide what runs.
    Project,
}

/// A text that is not the name of a form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of `exact`, `leading:N`, `program`, `project`")]
pub struct AlwaysFormInvalid(String);

impl fmt::Display for AlwaysForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Leading(count) => write!(f, "leading:{count}"),
            Self::Program => f.write_str("program"),
            Self::Project => f.write_str("project"),
        }
    }
}

impl FromStr for AlwaysForm {
    type Err = AlwaysFormInvalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count = |text: &str| text.parse().ok().filter(|count| *count > 0);
        match (text, text.strip_prefix("leading:").and_then(count)) {
            ("exact", _) => Ok(Self::Exact),
            ("program", _) => Ok(Self::Program),
            ("project", _) => Ok(Self::Project),
            (_, Some(count)) => Ok(Self::Leading(count)),
            _ => Err(AlwaysFormInvalid(text.to_owned())),
        }
    }
}

impl AlwaysForm {
    /// Whether the form is these arguments in this directory.
    pub fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}

impl TryFrom<String> for AlwaysForm {
    type Error = AlwaysFormInvalid;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AlwaysForm> for String {
    fn from(form: AlwaysForm) -> Self {
        form.to_string()
    }
}

impl Remember {
    pub(crate) fn nothing(reason: impl Into<String>) -> Self {
        Self {
            nothing_because: Some(reason.into()),
            ..Self::default()
        }
    }

    /// Marks the entries for a run without the shield, if the run has none. Wider forms are removed
    /// then, because an approver who chooses one has not seen what else would run without the
    /// shield.
    pub(crate) fn in_shield(mut self, shield: VerdictShield) -> Self {
        if shield.is_usual() {
            return self;
        }
        for entry in &mut self.entries {
            entry.shield = Some(EntryShield::Off);
        }
        for wider in self.wider.drain(..) {
            let form = wider.form.to_string();
            self.not_wider.push(NotWider {
                form: form.split(':').next().unwrap_or_default().to_owned(),
                why: "the line runs without the shield".to_owned(),
            });
        }
        self.not_wider.dedup();
        self
    }

    pub(crate) fn of(
        analysis: &Analysis,
        segments: &[JudgedCommand],
        binding: &Binding,
        call: JudgedCall<'_>,
        resolver: &dyn Resolver,
        trusted_dirs: &[String],
    ) -> Self {
        match exact(analysis, segments, binding, call, resolver) {
            Err(reason) => Self::nothing(reason),
            Ok(storable) => {
                let mut entries: Vec<Entry> = Vec::new();
                for Storable { entry, .. } in &storable {
                    if !entries.contains(entry) {
                        entries.push(entry.clone());
                    }
                }
                let is_project = storable.iter().any(|one| one.is_project);
                let (wider, not_wider) = if call.input.is_interactive() {
                    wider::none("the caller can type into the program")
                } else if is_project {
                    wider::none("it is stored for this project, which decides what runs")
                } else {
                    wider::forms(&storable, trusted_dirs)
                };
                Self {
                    entries,
                    form: if is_project {
                        AlwaysForm::Project
                    } else {
                        AlwaysForm::Exact
                    },
                    nothing_because: None,
                    wider,
                    not_wider,
                }
            }
        }
    }
}

/// A command with the entry for exactly this command.
struct Storable<'a> {
    command: &'a Command,
    executable: &'a Executable,
    entry: Entry,
    /// The position of the script in argv, if an interpreter runs it.
    operand: Option<usize>,
    /// Whether the entry is for the project around the directory.
    is_project: bool,
}

fn exact<'a>(
    analysis: &'a Analysis,
    segments: &[JudgedCommand],
    binding: &Binding,
    call: JudgedCall<'_>,
    resolver: &dyn Resolver,
) -> Result<Vec<Storable<'a>>, String> {
    if let Shape::Odd(odd) = &analysis.shape {
        return Err(format!("the text is not plain: {}", odd.reason.message()));
    }
    if binding.kind >= BindingKind::Text {
        return Err(binding.reason.clone());
    }
    let mut storable = Vec::new();
    for (command, judged) in analysis.commands.iter().zip(segments) {
        if judged.satisfied_by.is_some() {
            continue;
        }
        let executable = command.executable();
        let Some(executable) = executable.filter(|_| !BEYOND_ENTRIES.contains(&judged.reason.code))
        else {
            return Err(judged.reason.message.clone());
        };
        if matches!(command.program, Program::Closed { .. })
            || starts_others(command.name(), executable).is_some()
            || is_never_stored(command.name(), &executable.canonical)
        {
            return Err(format!("`{}` starts another program", command.name()));
        }
        let mut made = entry_for(command, executable, call, resolver)?;
        hold_call(&mut made.entry, CommandCaller::of_command(call, command))?;
        storable.push(made);
    }
    if storable.is_empty() {
        return Err("nothing in it needs an entry".to_owned());
    }
    Ok(storable)
}

/// The most bytes of environment values in one entry. An approver would not read more.
const MAX_ENV_BYTES: usize = 4096;

/// Binds the entry to the facts of the call: every variable with its value, including harmless
/// ones, and how the caller can type into the run. The entry then satisfies no other call.
fn hold_call(entry: &mut Entry, caller: CommandCaller<'_>) -> Result<(), String> {
    entry.env = caller.env.held();
    if entry.env.iter().map(String::len).sum::<usize>() > MAX_ENV_BYTES {
        return Err(format!(
            "the environment values have more than {MAX_ENV_BYTES} bytes"
        ));
    }
    if let Some(secret) = entry.env.iter().find(|pair| holds_secret_pair(pair)) {
        let name = secret.split('=').next().unwrap_or_default();
        return Err(format!(
            "`{name}` holds a secret, which an entry would show"
        ));
    }
    entry.interactive = caller.input.is_interactive();
    entry.terminal = entry
        .interactive
        .then_some(caller.input == CallerInput::Terminal);
    entry.check().map_err(|error| error.to_string())
}

/// Returns the entry for these arguments in this directory. A script is bound with its content.
fn entry_for<'a>(
    command: &'a Command,
    executable: &'a Executable,
    call: JudgedCall<'_>,
    resolver: &dyn Resolver,
) -> Result<Storable<'a>, String> {
    let mut entry = Entry {
        arg_pattern: Some(digest_pattern(&command.argv[1..], &command.cwd)),
        source: Some(ALLOW_ALWAYS.to_owned()),
        ..Entry::for_pattern(executable.canonical.clone())
    };
    let file_name = executable.canonical.rsplit('/').next();
    if executable.kind == FileKind::Native && file_name != Some(called_as(command)) {
        // One file may implement many programs, chosen by the name of the call.
        entry.called_as = Some(called_as(command).to_owned());
    }
    let binding = interlock_binding::of_command(command, resolver);
    if binding.kind == BindingKind::Project {
        project::bind(&mut entry, command, &binding, call, resolver)?;
        if executable.mutable || executable.kind != FileKind::Native {
            entry.bound_file = Some(content_of(command, &executable.canonical, resolver)?);
        }
        return Ok(Storable {
            command,
            executable,
            entry,
            operand: None,
            is_project: true,
        });
    }
    if binding.kind == BindingKind::Native {
        if executable.mutable {
            entry.bound_file = Some(content_of(command, &executable.canonical, resolver)?);
        }
        return Ok(Storable {
            command,
            executable,
            entry,
            operand: None,
            is_project: false,
        });
    }
    let Some(script) = binding.sole_script() else {
        return Err(format!(
            "more than one file decides what `{}` runs",
            command.name()
        ));
    };
    let is_operand =
        executable.kind == FileKind::Native && matches!(command.program, Program::File(_));
    let in_front = interlock_binding::words_in_front(command);
    let operand = script.operand.and_then(|index| index.checked_sub(in_front));
    entry.bound_file = Some(content_of(command, &script.file.canonical, resolver)?);
    Ok(Storable {
        command,
        executable,
        entry,
        operand: operand.filter(|_| is_operand),
        is_project: false,
    })
}

fn content_of(
    command: &Command,
    path: &str,
    resolver: &dyn Resolver,
) -> Result<BoundContent, String> {
    match sole_content(command, resolver) {
        Some(held) => Ok(held.content),
        None => Err(format!("the content of {path} cannot be held")),
    }
}

fn is_never_stored(name: &str, canonical: &str) -> bool {
    [name, canonical].into_iter().any(|program| {
        interlock_programs::opaque_reason(program).is_some()
            || interlock_programs::is_shell(program)
    })
}
