//! What an approval of this request could pin: the binder's table.

use interlock_command::builtins::{ShellWord, shell_word};
use interlock_command::inline::{self, HitKind};
use interlock_command::{Analysis, Closed, FileKind, Lookup, Program, Resolver, Shape, Sight};
use serde::Serialize;

use crate::judge::starts_others;

mod runtime;

/// How firmly an approval can hold what it approves, from firm to not at all. A line takes the
/// worst kind of any command seen in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingKind {
    /// Native executables, by identity.
    Native,
    /// One concrete local file and its interpreter, by content.
    File,
    /// All code is visible in the request itself.
    Text,
    /// Code comes from elsewhere.
    Unbound,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binding {
    pub kind: BindingKind,
    /// What made it so.
    pub reason: String,
    /// The file whose content would be bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Binding {
    fn new(kind: BindingKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
            file: None,
        }
    }

    fn worse(self, other: Self) -> Self {
        if other.kind > self.kind { other } else { self }
    }
}

/// The binding of a whole request.
pub(crate) fn of(analysis: &Analysis, sight: Option<&Sight>, resolver: &dyn Resolver) -> Binding {
    let mut worst = match &analysis.shape {
        Shape::Odd(odd) => Binding::new(
            BindingKind::Text,
            format!("the text is not plain: {}", odd.reason.message()),
        ),
        Shape::Plain(_) | Shape::Argv => Binding::new(BindingKind::Native, "native executables"),
    };
    if let Some(why) = analysis.shell_builtin() {
        let reason = format!("only a shell can run it: {why}");
        worst = worst.worse(Binding::new(BindingKind::Text, reason));
    }
    for command in &analysis.commands {
        worst = worst.worse(of_command(command, resolver));
    }
    let is_hidden = analysis.shape.odd().is_some() || has_odd_text(analysis);
    let Some(sight) = sight.filter(|_| is_hidden) else {
        return worst;
    };
    if let Some(reason) = sight.unseen {
        worst = worst.worse(Binding::new(BindingKind::Unbound, reason));
    }
    let programs = sight.commands.iter().filter(|seen| !is_builtin(&seen.argv));
    for seen in programs {
        let cwd = seen.cwd.as_deref().unwrap_or(&analysis.cwd);
        let nested = of_argv(&seen.argv, None, cwd, resolver);
        if nested.kind == BindingKind::Unbound {
            worst = worst.worse(nested);
        }
    }
    worst
}

/// A builtin brings no code of its own; what it reads or starts is seen by itself.
fn is_builtin(argv: &[String]) -> bool {
    let name = argv.first().map_or("", String::as_str);
    matches!(shell_word(name), ShellWord::Builtin | ShellWord::Ours)
}

/// A shell behind which only a parser can see: what it finds there counts for the binding.
pub(crate) fn has_odd_text(analysis: &Analysis) -> bool {
    analysis.commands.iter().any(|command| {
        matches!(
            command.program,
            Program::Closed {
                reason: Closed::ShellText(_),
                ..
            }
        )
    })
}

fn of_command(command: &interlock_command::Command, resolver: &dyn Resolver) -> Binding {
    let argv = &command.argv;
    let disguised = command
        .executable()
        .and_then(|executable| starts_others(command.name(), executable));
    match &command.program {
        Program::File(_) | Program::Script { .. } if disguised.is_some() => Binding::new(
            BindingKind::Unbound,
            format!("`{}` starts another program", command.name()),
        ),
        Program::Builtin { .. } => Binding::new(BindingKind::Native, "built into Interlock"),
        Program::File(lookup) => of_argv(argv, Some(lookup), &command.cwd, resolver),
        Program::Script { file, .. } => match file {
            Lookup::Found(file) => Binding {
                file: Some(file.canonical.clone()),
                ..Binding::new(BindingKind::File, "a script and its shell")
            },
            Lookup::Missing(missing) => {
                Binding::new(BindingKind::Unbound, format!("the script {missing}"))
            }
        },
        Program::Closed { reason, .. } => match reason {
            Closed::ShellText(odd) => Binding::new(
                BindingKind::Text,
                format!("the text is not plain: {}", odd.reason.message()),
            ),
            Closed::Shell(reason) => Binding::new(BindingKind::Unbound, *reason),
            Closed::UntrustedShell => Binding::new(
                BindingKind::Unbound,
                "a shell outside of the trusted directories",
            ),
            Closed::UntrustedWrapper | Closed::Wrapper => Binding::new(
                BindingKind::Unbound,
                format!("`{}` starts another program", command.name()),
            ),
        },
    }
}

fn of_argv(
    argv: &[String],
    lookup: Option<&Lookup>,
    cwd: &str,
    resolver: &dyn Resolver,
) -> Binding {
    let name = argv.first().map_or("", String::as_str);
    if interlock_command::opaque_reason(name).is_some() {
        return Binding::new(
            BindingKind::Unbound,
            format!("`{name}` starts another program"),
        );
    }
    if let Some(hit) = inline::detect(argv).filter(|hit| hit.kind == HitKind::Code) {
        return Binding::new(BindingKind::Text, format!("inline code: {}", hit.label()));
    }
    if let Some(binding) = runtime::binding(argv, cwd, resolver) {
        return binding;
    }
    let owned;
    let lookup = if let Some(lookup) = lookup {
        lookup
    } else {
        owned = resolver.executable(name, cwd);
        &owned
    };
    match lookup {
        Lookup::Missing(missing) => {
            Binding::new(BindingKind::Unbound, format!("`{name}` {missing}"))
        }
        Lookup::Found(executable) if executable.kind == FileKind::Native => {
            Binding::new(BindingKind::Native, "a native executable")
        }
        Lookup::Found(executable) => Binding {
            file: Some(executable.canonical.clone()),
            ..Binding::new(BindingKind::File, "a script and its interpreter")
        },
    }
}
