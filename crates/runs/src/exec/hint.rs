//! Hints for a caller whose command did not run: what would change the verdict, or where to look.

use interlock_arguments::{ExecArguments, StateArguments};
use interlock_host::ExecError;
use interlock_policy::{Verdict, quote};

/// The hint that is printed below an error.
pub(super) fn hint(
    error: &ExecError,
    state: &StateArguments,
    call: (&ExecArguments, bool),
) -> Option<String> {
    match error {
        ExecError::Host(error) => error.remedy(),
        ExecError::Input(error) => interlock_console::input_hint(error),
        ExecError::Tool(_) => {
            let look = state.in_command("interlock config get");
            Some(format!("look at it: {look}"))
        }
        _ => {
            let verdict = error.verdict();
            let judged = || verdict.map(|verdict| remedy(verdict, state, call));
            error.remedy().or_else(judged)
        }
    }
}

/// The command that would change the verdict, or the one that shows all of its reasons.
pub(super) fn remedy(
    verdict: &Verdict,
    state: &StateArguments,
    call: (&ExecArguments, bool),
) -> String {
    match verdict.remedies.first() {
        Some(remedy) => {
            let command = state.in_command(&remedy.command);
            format!("{}: {command}", remedy.effect)
        }
        None => match verdict.suggestion {
            Some(suggestion) => suggestion.to_owned(),
            None => format!("see the whole judgement: {}", explain(state, call)),
        },
    }
}

/// The `interlock explain` command for the same request. `has_pipe` says whether the run would get
/// input from the caller.
fn explain(state: &StateArguments, (all, has_pipe): (&ExecArguments, bool)) -> String {
    let arguments = &all.request;
    let mut words = vec!["interlock explain".to_owned()];
    if arguments.agent != "main" {
        words.push(format!("--agent {}", quote(&arguments.agent)));
    }
    if let Some(cwd) = &arguments.cwd {
        words.push(format!("--cwd {}", quote(&cwd.to_string_lossy())));
    }
    let pairs = arguments.env.iter();
    words.extend(pairs.map(|pair| format!("--env {}", quote(pair))));
    if all.pty {
        words.push("--pty".to_owned());
    }
    if has_pipe {
        words.push("--stdin pipe".to_owned());
    }
    if arguments.argv {
        words.push("--argv".to_owned());
    }
    words.push("--".to_owned());
    let command = arguments.command.iter();
    words.extend(command.map(|word| quote(&word.to_string_lossy())));
    state.in_command(&words.join(" "))
}
